import itertools

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.data.demo import demo_pairs
from keras_transformer.layers import masks
from keras_transformer.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Tokenizer, Tokenizers, pad

SENTENCES = [text for pair in demo_pairs("train", 300) for text in pair]
SENTENCES += ["naïve Łódź façade Ærø", "ein Straßenkörper, Übergröße", "Ελληνικά и русский", "日本語の文"]
KINDS = {
    "bpe": dict(kind="bpe"),
    "unigram": dict(kind="unigram"),
    "bpe_bytes": dict(kind="bpe", byte_fallback=True),
    "unigram_bytes": dict(kind="unigram", byte_fallback=True),
    "lowercase": dict(kind="bpe", lowercase=True),
    "symbols": dict(kind="bpe", lowercase=True, symbols=["<2DE>", "ﬁ", "a,b"]),
}
# Text as it should not be: any character that has bytes, and those that tokenizers like to trip over more often.
NASTY = ["</s>", "<unk>", "<pad>", "<2DE>", "a,b", *"ab \t\n\r\0▁<>/s½ﬁßİ\ufeff\ufffd"]
NASTY += "\u0085\u00a0\u00ad\u0301\u200b\u200d\u2028\u3000"
TEXT = st.one_of(
    st.text(max_size=40),
    st.lists(st.sampled_from(NASTY), max_size=20).map("".join),
    st.lists(st.sampled_from(SENTENCES), max_size=2).map("\u2028".join),
)


@pytest.fixture(scope="module")
def trained():
    return {name: Tokenizer.train(SENTENCES, vocab_size=700, **options) for name, options in KINDS.items()}


@pytest.fixture(scope="module", params=KINDS)
def both(request, trained):
    """A tokenizer in Python and in the graph."""
    tokenizer = trained[request.param]
    return tokenizer, tokenizer.graph_tokenizer()


def in_graph(graph, texts):
    return graph.encode_tensor(tf.constant(texts, tf.string)).to_list()


def padded(sequences, width):
    rows = [[*ids, *[PAD_ID] * (width - len(ids))] for ids in sequences]
    return np.array(rows, np.int32).reshape(len(rows), width)


class TestTraining:
    def test_the_special_pieces_have_the_first_ids(self, trained):
        for tokenizer in trained.values():
            assert tokenizer.pieces([PAD_ID, UNK_ID, BOS_ID, EOS_ID]) == ["<pad>", "<unk>", "<s>", "</s>"]
        assert masks.PAD_ID == PAD_ID

    @pytest.mark.parametrize("kind", ["bpe", "unigram"])
    def test_long_lines_are_learned_from_too(self, kind):
        tokenizer = Tokenizer.train([*SENTENCES, "большой жук " * 500], vocab_size=700, kind=kind)
        assert UNK_ID not in tokenizer.encode(["жук"])[0]

    @pytest.mark.parametrize("name", KINDS)
    def test_the_same_sentences_give_the_same_model(self, trained, name):
        again = Tokenizer.train(iter(SENTENCES), vocab_size=700, **KINDS[name])
        assert again.model_bytes == trained[name].model_bytes
        assert again.model_hash == trained[name].model_hash
        assert again == trained[name] and len({again, trained[name]}) == 1

    def test_other_sentences_give_another_hash(self, trained):
        other = Tokenizer.train(SENTENCES[:-1], vocab_size=700)
        assert other.model_hash != trained["bpe"].model_hash
        assert other != trained["bpe"] and other != other.model_bytes

    def test_it_shows_its_size_and_which_one_it_is(self, trained):
        bpe = trained["bpe"]
        assert repr(bpe) == f"<Tokenizer of {bpe.vocab_size} pieces, {bpe.model_hash[:12]}>"

    def test_the_vocabulary_has_at_most_the_size_that_was_asked_for(self, trained):
        assert all(0 < tokenizer.vocab_size <= 700 for tokenizer in trained.values())
        assert trained["bpe"].vocab_size == 700

    def test_pieces_have_their_ids(self, trained):
        for tokenizer in trained.values():
            ids = list(range(tokenizer.vocab_size))
            assert tokenizer.ids(tokenizer.pieces(ids)) == ids
            assert tokenizer.ids(["<unk>"]) == [UNK_ID]
            with pytest.raises(ValueError, match="pieces of this vocabulary. Received: 'no such piece'"):
                tokenizer.ids(["a", "no such piece"])

    @pytest.mark.parametrize("kind", ["bpe", "unigram"])
    def test_a_small_corpus_gives_fewer_pieces_and_does_not_fail(self, kind):
        tokenizer = Tokenizer.train(["hello world", "a"], vocab_size=37_000, kind=kind)
        assert 10 < tokenizer.vocab_size < 100
        assert tokenizer.decode(tokenizer.encode(["hello world"])) == ["hello world"]

    def test_fewer_pieces_than_characters_are_refused(self):
        with pytest.raises(ValueError, match=r"`vocab_size` must be at least \d+ for this text. Received: 20"):
            Tokenizer.train(SENTENCES, vocab_size=20)

    @pytest.mark.parametrize("sentences", [[], ["", ""], [" ", "\u200b"]])
    def test_no_sentences_are_refused(self, sentences):
        with pytest.raises(ValueError, match="Expected sentences with text to train on. Received: none."):
            Tokenizer.train(sentences, vocab_size=100)

    def test_a_single_string_is_no_list_of_sentences(self, trained):
        for ask in (lambda: Tokenizer.train("train.en", vocab_size=40), lambda: trained["bpe"].encode("Anna")):
            with pytest.raises(TypeError, match="Expected strings in a list. Received: '(train.en|Anna)'"):
                ask()

    def test_with_byte_fallback_no_text_has_unknown_pieces(self, trained):
        rare = "𝄞 ꙮ"
        assert UNK_ID in trained["bpe"].encode([rare])[0]
        assert UNK_ID not in trained["bpe_bytes"].encode([rare])[0]
        assert trained["bpe_bytes"].decode(trained["bpe_bytes"].encode([rare])) == [rare]

    def test_less_coverage_leaves_rare_characters_out(self):
        tokenizer = Tokenizer.train(SENTENCES, vocab_size=700, character_coverage=0.99)
        assert UNK_ID in tokenizer.encode(["日本語"])[0]


class TestText:
    def test_every_text_ends_with_the_end_of_sentence_even_an_empty_one(self, both):
        ids = both[0].encode(["", "The dog.", "\0"])
        assert ids[0] == [EOS_ID]
        assert all(row[-1] == EOS_ID and EOS_ID not in row[:-1] for row in ids)

    def test_no_text_at_all(self, both):
        tokenizer, graph = both
        assert tokenizer.encode([]) == tokenizer.decode([]) == []
        assert in_graph(graph, []) == []
        assert graph.decode_tensor(tf.zeros([0, 0], tf.int32)).shape == [0]

    def test_text_comes_back_with_accents_and_without_loose_blanks(self, trained):
        text = "naïve  Łódź\tfaçade\nÆrø Straßenkörper "
        assert trained["bpe"].decode(trained["bpe"].encode([text])) == ["naïve Łódź façade Ærø Straßenkörper"]

    def test_lowercase_folds_case_and_keeps_accents(self, trained):
        tokenizer = trained["lowercase"]
        assert tokenizer.decode(tokenizer.encode(["Übergröße Łódź"])) == ["übergröße łódź"]
        assert tokenizer.encode(["ÜBERGRÖẞE"]) == tokenizer.encode(["übergröße"])

    def test_text_that_names_a_special_piece_does_not_become_one(self, both):
        ids = both[0].encode(["<s> a </s> b <pad>"])[0]
        assert {PAD_ID, BOS_ID, EOS_ID}.isdisjoint(ids[:-1])

    def test_what_is_no_string_is_refused(self, both):
        with pytest.raises(TypeError, match="Expected strings in a list. Received: None in it."):
            both[0].encode(["a", None])
        with pytest.raises(ValueError, match="Received: 7 in it"):
            Tokenizer.train(["a", 7], vocab_size=20)
        with pytest.raises(ValueError, match="`kind` must be one of bpe, unigram. Received: kind='word'."):
            Tokenizer.train(["a"], vocab_size=20, kind="word")

    def test_text_with_a_lone_surrogate_can_be_learned_from(self):
        learned = Tokenizer.train(["a dog\udc80 sleeps"] * 9, vocab_size=30)
        assert learned.model_bytes == Tokenizer.train(["a dog\ufffd sleeps"] * 9, vocab_size=30).model_bytes

    def test_a_lone_surrogate_counts_as_the_replacement_character(self, both):
        assert both[0].encode(["a\ud800b", "c"]) == both[0].encode(["a\ufffdb", "c"])

    def test_many_texts_are_encoded_by_several_threads_to_the_same_ids(self, trained, monkeypatch):
        tokenizer, encode, threads = trained["bpe"], sentencepiece.SentencePieceProcessor.encode, []

        def recorded(processor, texts, **options):
            threads.append(options["num_threads"])
            return encode(processor, texts, **options)

        alone = [tokenizer.encode([text])[0] for text in SENTENCES]
        monkeypatch.setattr(sentencepiece.SentencePieceProcessor, "encode", recorded)
        texts, ids = (list(itertools.islice(itertools.cycle(items), 1000)) for items in (SENTENCES, alone))
        for cores in (3, 1):
            monkeypatch.setattr("keras_transformer.tokenizer.CORES", cores)
            assert tokenizer.encode(texts) == ids and tokenizer.encode(texts[:1]) == ids[:1]
        assert threads == [3, 1, 1, 1]

    def test_decoding_stops_at_the_end_of_sentence_and_skips_padding(self, trained):
        tokenizer = trained["bpe"]
        *ids, eos = tokenizer.encode(["The dog sleeps."])[0]
        assert tokenizer.decode([[BOS_ID, *ids, eos, *ids], [PAD_ID, *ids], []]) == ["The dog sleeps."] * 2 + [""]
        assert tokenizer.decode(np.array([[*ids, eos, PAD_ID]])) == ["The dog sleeps."]


class TestGraph:
    @settings(max_examples=60, deadline=None)
    @given(texts=st.lists(TEXT, max_size=20))
    def test_ids_and_text_equal_those_of_python_on_any_text(self, both, texts):
        tokenizer, graph = both
        ids = tokenizer.encode(texts)
        assert in_graph(graph, texts) == ids
        decoded = graph.decode_tensor(padded(ids, max(map(len, ids), default=0)))
        assert [text.decode("utf-8") for text in decoded.numpy()] == tokenizer.decode(ids)

    @settings(max_examples=30, deadline=None)
    @given(rows=st.lists(st.lists(st.integers(-3, 800), min_size=9, max_size=9), max_size=9))
    def test_any_ids_decode_to_the_same_valid_text(self, both, rows):
        tokenizer, graph = both
        decoded = graph.decode_tensor(padded(rows, 9)).numpy()
        assert [text.decode("utf-8") for text in decoded] == tokenizer.decode(rows)

    @pytest.mark.parametrize("text", ["a" * 1_000_000, "The dog. " * 110_000, "\u2028\0" * 250_000, " " * 1_000_000])
    def test_a_line_of_a_megabyte(self, both, text):
        tokenizer, graph = both
        assert in_graph(graph, [text]) == tokenizer.encode([text])

    @settings(max_examples=30, deadline=None)
    @given(garbage=st.binary(max_size=20))
    def test_bytes_that_are_no_utf8_become_replacement_characters(self, both, garbage):
        tokenizer, graph = both
        assert in_graph(graph, [garbage, b"a"]) == tokenizer.encode([garbage.decode("utf-8", "replace"), "a"])

    def test_it_is_carried_along_by_an_exported_module(self, trained, tmp_path):
        class RoundTrip(tf.Module):
            def __init__(self):
                super().__init__()
                self.tokenizer = trained["bpe"].graph_tokenizer()

            @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
            def __call__(self, text):
                return self.tokenizer.decode_tensor(self.tokenizer.encode_tensor(text).to_tensor())

        tf.saved_model.save(RoundTrip(), tmp_path)
        texts = [b"The dog sleeps.", b"", "naïve Łódź".encode()]
        assert tf.saved_model.load(tmp_path)(tf.constant(texts)).numpy().tolist() == texts

    def test_two_of_one_exported_module_stay_two(self, trained, tmp_path):
        class Both(tf.Module):
            def __init__(self):
                super().__init__()
                self.tokenizers = [trained[name].graph_tokenizer() for name in ("bpe", "unigram")]

            @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
            def __call__(self, ids):
                return [tokenizer.pieces_tensor(ids) for tokenizer in self.tokenizers]

        tf.saved_model.save(Both(), tmp_path)
        ids = list(range(4, 50))
        both = tf.saved_model.load(tmp_path)(tf.constant(ids))
        found = [[piece.decode() for piece in pieces.numpy()] for pieces in both]
        assert found == [trained[name].pieces(ids) for name in ("bpe", "unigram")] and found[0] != found[1]


class TestTokenizers:
    def test_a_shared_model_is_one_file_and_one_object(self, trained, tmp_path):
        Tokenizers(trained["bpe"], trained["bpe"]).save(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.model"]
        loaded = Tokenizers.load(tmp_path)
        assert loaded.shared
        assert loaded.source.model_hash == trained["bpe"].model_hash

    def test_separate_models_are_two_files(self, trained, tmp_path):
        Tokenizers(trained["bpe"], trained["unigram"]).save(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["source.model", "target.model"]
        loaded = Tokenizers.load(tmp_path)
        assert not loaded.shared
        assert [t.model_hash for t in loaded] == [trained["bpe"].model_hash, trained["unigram"].model_hash]

    def test_what_is_loaded_is_what_was_saved_last(self, trained, tmp_path):
        for source, target in itertools.product(trained.values(), repeat=2):
            Tokenizers(source, target).save(tmp_path)
            assert [t.model_bytes for t in Tokenizers.load(tmp_path)] == [source.model_bytes, target.model_bytes]


def test_a_single_sequence_of_ids_is_no_list_of_them(trained):
    for take in (pad, trained["bpe"].decode):
        for ids in ([5, 6, 3], np.array([5, 6]), tf.constant([5, 6])):
            with pytest.raises(TypeError, match=r"Expected sequences of ids in a list. Received: \["):
                take(ids)
    assert trained["bpe"].decode(iter(row) for row in [[3], [3]]) == ["", ""]


def test_padding_fills_up_with_zeros():
    np.testing.assert_array_equal(pad([[5, 6, 7], [8]]), [[5, 6, 7], [8, 0, 0]])
    assert pad([]).shape == (0, 1) and pad([[]]).tolist() == [[0]]


class TestSymbols:
    @pytest.mark.parametrize("kind", ["bpe", "unigram"])
    @pytest.mark.parametrize("byte_fallback", [False, True])
    def test_a_symbol_is_one_piece_wherever_it_stands(self, kind, byte_fallback):
        symbols = ["<2DE>", "ﬁ", "a,b"]
        tokenizer = Tokenizer.train(
            SENTENCES, vocab_size=700, kind=kind, byte_fallback=byte_fallback, lowercase=True, symbols=symbols
        )
        assert tokenizer.ids(symbols) == [4, 5, 6]
        for symbol, id_ in zip(symbols, (4, 5, 6), strict=True):
            [ids] = tokenizer.encode([f"{symbol} Anna{symbol}sleeps{symbol}"])
            assert ids.count(id_) == 3
            assert tokenizer.decode([ids]) == [f"{symbol} anna{symbol}sleeps{symbol}"]
        texts = [f"<2DE> {text}<2DE>" for text in SENTENCES]
        ids = tokenizer.encode(texts)
        for sampled in (tokenizer.sample(ids, 0.5, seed=1), tokenizer.sample(ids, 0.1, seed=2)):
            assert tokenizer.decode(sampled) == tokenizer.decode(ids)
            assert all(row.count(4) == 2 for row in sampled)

    @pytest.mark.parametrize(
        "symbols",
        [["a b"], [" a"], [""], ["a", "a"], ["<unk>"], ["a", "</s>"], ["\0"], ["▁x"], ["<0x41>"], ["\ud800"], [1]],
    )
    def test_what_can_be_no_symbol_is_refused(self, symbols):
        with pytest.raises(
            ValueError,
            match='`symbols` must be different strings without blanks or "▁", none of them .* Received: symbols=',
        ):
            Tokenizer.train(SENTENCES, vocab_size=700, symbols=symbols)

    def test_a_single_string_is_no_list_of_symbols(self):
        with pytest.raises(TypeError, match="Expected strings in a list"):
            Tokenizer.train(SENTENCES, vocab_size=700, symbols="<2de>")
