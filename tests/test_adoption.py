"""SentencePiece models of other systems."""

import io

import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from keras_transformer.tokenizer import Tokenizer
from tests.test_tokenizer import KINDS, SENTENCES, in_graph


def foreign(path, **options):
    """A SentencePiece model as others train it."""
    model = io.BytesIO()
    options = {"model_type": "bpe", "hard_vocab_limit": False, **options}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES), model_writer=model, vocab_size=700, minloglevel=2, **options
    )
    path.write_bytes(model.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


class TestAdoption:
    @pytest.mark.parametrize(
        "options",
        [
            {},
            dict(model_type="unigram", byte_fallback=True),
            dict(pad_id=3, unk_id=2, bos_id=-1, eos_id=0),
            dict(pad_id=0, unk_id=1, bos_id=2, eos_id=3),
            dict(pad_id=0, unk_id=1, bos_id=2, eos_id=3, pad_piece="[PAD]", eos_piece="[E]"),  # our ids alone
            dict(control_symbols=["<pad>"], pad_piece="[PAD]", pad_id=5),  # our piece, and none of theirs
            dict(
                control_symbols=["<cls>"],
                user_defined_symbols=["<2de>"],
                pad_piece="[PAD]",
                pad_id=5,
                unk_piece="[U]",
                eos_piece="[E]",
            ),
            dict(normalization_rule_name="identity", add_dummy_prefix=False),
        ],
    )
    def test_it_cuts_text_as_before_in_python_and_in_the_graph(self, tmp_path, options):
        theirs = foreign(tmp_path / "their.model", **options)
        ours = Tokenizer.adopt(tmp_path / "their.model")
        texts = [*SENTENCES, "<2de> x <cls>", "", "日本", "</s>"]
        ids = ours.encode(texts)
        assert ours.pieces(range(4)) == ["<pad>", "<unk>", "<s>", "</s>"]
        unknown = theirs.id_to_piece(theirs.unk_id())
        expected = [[theirs.id_to_piece(id_) for id_ in row] for row in theirs.encode(texts)]
        expected = [["<unk>" if piece == unknown else piece for piece in row] for row in expected]
        assert [ours.pieces(row)[:-1] for row in ids] == expected
        assert ours.decode(ids) == theirs.decode(theirs.encode(texts))
        assert in_graph(ours.graph_tokenizer(), texts) == ids
        assert ours.decode(ours.sample(ids, 0.5, seed=1)) == ours.decode(ids)

    @pytest.mark.parametrize("name", KINDS)
    def test_a_model_with_our_ids_stays_as_it_is(self, name, tmp_path):
        tokenizer = Tokenizer.train(SENTENCES, vocab_size=700, **KINDS[name])
        tokenizer.save(tmp_path / "our.model")
        assert Tokenizer.adopt(tmp_path / "our.model") == tokenizer

    @pytest.mark.parametrize(
        ("options", "received"),
        [
            (dict(model_type="char"), "char"),
            (dict(treat_whitespace_as_suffix=True), "blanks behind words"),
            (dict(model_type="unigram", split_by_whitespace=False), "pieces with blanks inside"),
            (dict(remove_extra_whitespaces=False), "runs of blanks that are kept"),
            (dict(user_defined_symbols=["<pad>"]), "a symbol with the name of a special piece"),
            (dict(user_defined_symbols=["[PAD]"], pad_piece="[PAD]"), "a symbol with the name of a special piece"),
        ],
    )
    def test_another_kind_is_refused(self, tmp_path, options, received):
        foreign(tmp_path / "their.model", **options)
        with pytest.raises(ValueError, match=f"their.model: A tokenizer must be .* Received: {received}"):
            Tokenizer.adopt(tmp_path / "their.model")

    def test_blanks_that_are_not_escaped_are_refused(self, tmp_path):
        path = tmp_path / "their.model"
        foreign(path)
        model = sentencepiece_model_pb2.ModelProto.FromString(path.read_bytes())
        model.normalizer_spec.escape_whitespaces = False
        path.write_bytes(model.SerializeToString())
        with pytest.raises(
            ValueError, match="their.model: A tokenizer must be .* Received: blanks that are not escaped"
        ):
            Tokenizer.adopt(path)

    def test_a_file_that_is_none_is_refused(self, tmp_path):
        (tmp_path / "a.model").write_bytes(b"no model at all")
        with pytest.raises(ValueError, match="a.model: Expected a SentencePiece model"):
            Tokenizer.adopt(tmp_path / "a.model")

    def test_a_file_that_is_cut_off_is_refused_wherever_that_is(self, tmp_path):
        path = tmp_path / "their.model"
        foreign(path)
        whole = path.read_bytes()
        for size in range(0, len(whole) // 2, 97):  # in the middle of its pieces
            path.write_bytes(whole[:size])
            with pytest.raises(ValueError, match="SentencePiece model|a file that is cut off"):
                Tokenizer.adopt(path)

    def test_other_ids_are_refused_without_it(self, tmp_path):
        foreign(tmp_path / "their.model")
        with pytest.raises(ValueError, match=r"must have the ids 0, 1, 2 and 3 for <pad>.*Received: \(-1, 0, 1, 2\)"):
            Tokenizer.load(tmp_path / "their.model")
