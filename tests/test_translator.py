"""Strings to strings."""

import shutil
import zipfile

import keras
import numpy as np
import pytest

from keras_transformer import SmoothedCrossEntropy, Transformer, compilation, inference
from keras_transformer.alignment import links, word_numbers
from keras_transformer.compilation import padded_shape
from keras_transformer.config import ConfigError, DecodeConfig
from keras_transformer.fast import kept_panels, products_by_xla
from keras_transformer.files import write_json
from keras_transformer.tokenizer import EOS_ID, Tokenizer, Tokenizers
from keras_transformer.training.workdir import Workdir
from keras_transformer.translator import Translator
from tests.small import ending_run

TEXTS = ["Anna sleeps.", "", "The old man wants to read the book because it is good.", "   ", "Tom!", "x" * 300]


@pytest.fixture(scope="module")
def finished_run(finished_run, tmp_path_factory):
    return ending_run(finished_run, tmp_path_factory.mktemp("ending") / "run")


@pytest.fixture(scope="module")
def translator(finished_run):
    return Translator.load(finished_run)


def test_some_sentences_of_these_tests_end_before_their_limit_and_some_do_not(translator):
    ended = [found[0].pieces[-1:] == ["</s>"] for found in translator.translate_nbest(TEXTS, 1)]
    assert any(ended) and not all(ended)


def test_there_is_one_translation_a_text_in_order(translator):
    together = translator.translate(TEXTS)
    assert len(together) == len(TEXTS)
    assert together[1] == together[3] == ""
    assert together == [translator.translate([text])[0] for text in TEXTS]


def test_the_order_of_the_texts_does_not_matter(translator):
    texts = [f"Anna sees {n} dogs." for n in range(40)]
    shuffled = np.random.default_rng(3).permutation(40)
    expected = translator.translate(texts)
    assert translator.translate([texts[i] for i in shuffled]) == [expected[i] for i in shuffled]


def test_n_best_lists_are_sorted_and_begin_with_the_translation(translator):
    (found,) = translator.translate_nbest(["Anna sleeps."], 3)
    scores = [translation.score for translation in found]
    assert len(found) == 3 and scores == sorted(scores, reverse=True)
    assert all(translation.log_prob <= 0 for translation in found)


def test_nothing_in_nothing_out(translator):
    assert translator.translate([]) == translator.sample([], seeds=[]) == translator.sample([], seeds=1) == []
    assert translator.score([], []) == translator.align([], []) == translator.word_alignments([], []) == []


@pytest.mark.parametrize("name", ["model", "decode"])
def test_what_the_traced_search_has_read_cannot_be_changed_behind_it(translator, name):
    with pytest.raises(AttributeError, match=name):
        setattr(translator, name, getattr(translator, name))


def test_learned_positions_limit_what_is_read_and_written(translator):
    model = Transformer(
        translator.model.vocab_size, d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1,
        positions="learned", max_positions=13,
    )  # fmt: skip
    texts = ["a few words " * 20, "Anna sleeps.", "She sleeps there, Anna."]
    plain, compiled = (
        Translator(model, translator.tokenizers, xla=xla).translate_nbest(texts, 1) for xla in (False, True)
    )
    assert [best.text for best, *_ in plain] == [best.text for best, *_ in compiled]
    assert all(best.log_prob > -1000 for best, *_ in compiled)  # something was found


def test_the_size_of_a_batch_changes_no_translation(finished_run):
    texts = ["the dog sees the cat", "a man", "", "the woman reads a book to the child"] * 3
    translator = Translator.load(finished_run, xla=False)
    expected, scores = translator.translate(texts), [found.score for found in translator.score(texts, texts)]
    for tokens_per_batch in (1, 64, 100_000):
        decode = translator.decode.replace(tokens_per_batch=tokens_per_batch)
        other = Translator(translator.model, translator.tokenizers, decode, xla=False)
        assert other.translate(texts) == expected
        np.testing.assert_allclose([found.score for found in other.score(texts, texts)], scores, rtol=1e-5)


def saved(translator, folder):
    translator.save(folder)
    return Translator.load(folder)


def test_a_saved_translator_is_the_same_when_it_is_loaded(translator, tmp_path):
    changed = Translator(translator.model, translator.tokenizers, translator.decode.replace(alpha=1.0, beam_width=2))
    for original in translator, changed:  # the second is written over the first
        loaded = saved(original, tmp_path / "new" / "folder")
        assert loaded.decode == original.decode and loaded.model.get_config() == original.model.get_config()
        assert loaded.translate_nbest(TEXTS, 2) == original.translate_nbest(TEXTS, 2)
    names = {path.name for path in (tmp_path / "new" / "folder").iterdir()}
    assert names == {"config.json", "model.keras", "tokenizer.model"}


def test_two_vocabularies_and_a_short_table_of_positions_are_saved(translator, tmp_path):
    tokenizers = Tokenizers(translator.tokenizers.source, Tokenizer.train(TEXTS * 9, vocab_size=40))
    model = Transformer(
        tokenizers.target.vocab_size, tokenizers.source.vocab_size, tied_embeddings="none", d_model=16, d_ff=32,
        num_heads=2, num_encoder_layers=1, num_decoder_layers=1, positions="learned", max_positions=13,
    )  # fmt: skip
    original = Translator(model, tokenizers)
    assert saved(original, tmp_path).translate(TEXTS) == original.translate(TEXTS)


def test_a_model_that_keras_has_trained_is_saved(translator, tmp_path):
    model = keras.models.clone_model(translator.model)
    model.compile("adam", SmoothedCrossEntropy())
    ids = np.full((2, 5), 7)
    model.fit((ids, ids), ids, verbose=0)
    original = Translator(model, translator.tokenizers)
    assert saved(original, tmp_path).translate(TEXTS) == original.translate(TEXTS)


def test_nothing_but_a_saved_translator_is_written_over(translator, finished_run, tmp_path):
    (tmp_path / "config.json").write_text('{"architectures": ["Other"]}')
    for folder in (finished_run, tmp_path):
        with pytest.raises(ValueError, match=f"must be new, empty or one of a saved translator. Received: {folder}"):
            translator.save(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


@pytest.mark.parametrize("what", [Transformer, Tokenizers])
def test_what_cannot_be_saved_leaves_the_old_model(translator, tmp_path, monkeypatch, what):
    before = saved(translator, tmp_path).translate(TEXTS)

    def run_out(self, path):
        raise OSError(28, "No space left on device")

    changed = Translator(translator.model, translator.tokenizers, translator.decode.replace(beam_width=1))
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(what, "save", run_out)
        changed.save(tmp_path)
    left = Translator.load(tmp_path)
    assert left.decode == translator.decode and left.translate(TEXTS) == before


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_a_saved_model_computes_in_float32(translator, tmp_path, dtype):
    sizes = dict(d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1)
    half = Transformer(translator.model.vocab_size, dtype=dtype, **sizes)
    loaded = saved(Translator(half, translator.tokenizers), tmp_path).model
    assert loaded.compute_dtype == "float32"
    for ours, theirs in zip(half.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("lowercase", [False, True])
def test_a_saved_translator_tells_whether_case_is_folded(tmp_path, lowercase):
    tokenizer = Tokenizer.train(["Anna sleeps here. The dog sees a house."] * 9, vocab_size=60, lowercase=lowercase)
    sizes = dict(d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1)
    Translator(Transformer(tokenizer.vocab_size, **sizes), Tokenizers(tokenizer, tokenizer)).save(tmp_path)
    assert Workdir(tmp_path).load_config().data.lowercase == lowercase


def test_a_saved_translator_is_scored_as_its_run_was(finished_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(finished_run, run)
    config = Workdir(run).load_config().replace(data=dict(bleu_tokenizer="char", test="elsewhere.tsv"))
    write_json(run / "config.json", config.to_dict())
    Translator.load(run).save(tmp_path / "saved")
    saved = Workdir(tmp_path / "saved").load_config().data
    assert saved == config.data.replace(train=None, valid=None, test=None) and saved.bleu_tokenizer == "char"


def test_a_saved_translator_has_nothing_of_a_training(translator, tmp_path):
    model = Transformer.from_config({**translator.model.get_config(), "name": "mine"})
    model.compile(keras.optimizers.Adam())
    model.optimizer.build(model.trainable_variables)
    Translator(model, translator.tokenizers).save(tmp_path / "saved")
    saved = Translator.load(tmp_path / "saved").model
    assert getattr(saved, "optimizer", None) is None
    for ours, theirs in zip(model.weights, saved.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with zipfile.ZipFile(tmp_path / "saved" / "model.keras") as archive:
        size = archive.getinfo("model.weights.h5").file_size
    assert size < 2 * 4 * model.count_params() + 2**20  # Adam's would be three times as many numbers


@keras.saving.register_keras_serializable("tests")
class WithAHead(Transformer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.head = keras.layers.Dense(2, name="head")
        self.head.build((None, self.config.d_model))


@pytest.mark.parametrize("kind", ["lora", "subclass"])
def test_a_model_that_has_more_than_the_papers_is_saved_too(translator, tmp_path, kind):
    kept = Transformer if kind == "lora" else WithAHead
    model = kept.from_config(translator.model.get_config())
    plain = translator.model.get_weights()
    model.set_weights(plain if kind == "lora" else [*plain, *model.head.get_weights()])
    if kind == "lora":
        model.decoder[0].feed_forward.inner.enable_lora(2)
    Translator(model, translator.tokenizers).save(tmp_path / "saved")
    saved = Translator.load(tmp_path / "saved")
    assert type(saved.model) is kept
    assert saved.translate(["Anna sleeps."]) == Translator(model, translator.tokenizers).translate(["Anna sleeps."])


def test_a_half_precise_model_with_lora_is_saved_merged(translator, tmp_path):
    model = Transformer.from_config({**translator.model.get_config(), "dtype": "mixed_bfloat16"})
    model.set_weights(translator.model.get_weights())
    dense = model.decoder[0].feed_forward.inner
    dense.enable_lora(2)
    dense.lora_kernel_b.assign(np.ones(dense.lora_kernel_b.shape))
    Translator(model, translator.tokenizers).save(tmp_path)
    saved = Translator.load(tmp_path).model
    assert saved.compute_dtype == "float32" and len(saved.weights) == len(translator.model.weights)
    np.testing.assert_array_equal(saved.decoder[0].feed_forward.inner.kernel, dense.kernel)  # which Keras merges
    assert not np.array_equal(dense.kernel, translator.model.decoder[0].feed_forward.inner.kernel)


def test_equal_tokenizers_are_one_vocabulary(translator, tmp_path):
    model_bytes = translator.tokenizers.source.model_bytes
    Translator(translator.model, Tokenizers(Tokenizer(model_bytes), Tokenizer(model_bytes))).save(tmp_path)
    assert Translator.load(tmp_path).tokenizers.shared


def test_a_model_may_have_more_pieces_and_is_saved(translator, tmp_path):
    sizes = dict(d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1)
    larger = Transformer(translator.model.vocab_size + 1000, **sizes)
    Translator(larger, translator.tokenizers, DecodeConfig(extra_length=5)).save(tmp_path)
    assert Translator.load(tmp_path).model.vocab_size == translator.model.vocab_size + 1000


@pytest.mark.parametrize("xla", [False, True])
def test_pieces_that_only_the_model_has_are_never_written(translator, rng, xla):
    """As where the vocabulary of a model was rounded up: what is written has to have a form, and its score."""
    sizes = dict(d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1)
    larger = Transformer(translator.model.vocab_size + 3000, **sizes)
    for weight in larger.trainable_variables:
        weight.assign(rng.normal(0, 0.5, weight.shape))
    decode = DecodeConfig(extra_length=3)
    padded, texts = Translator(larger, translator.tokenizers, decode, xla=xla), ["Anna sleeps.", "Tom!", "a dog"]
    lists = padded.translate_nbest(texts, 3)
    known = translator.tokenizers.target.vocab_size
    for text, found in zip(texts, lists, strict=True):
        ids = [translator.tokenizers.target.ids(one.pieces) for one in found]
        assert found and max(map(max, ids)) < known
        scored = padded.score([text] * len(found), [one.pieces for one in found])
        assert [one.log_prob for one in scored] == pytest.approx([one.log_prob for one in found], abs=1e-3)
    if not xla:
        drawn = padded.sample(texts * 5, seeds=range(15), temperature=3.0)
        scored = padded.score(texts * 5, [one.pieces for one in drawn])
        assert [one.log_prob for one in scored] == pytest.approx([one.log_prob for one in drawn], abs=1e-3)


def test_a_model_of_fewer_pieces_is_refused(translator):
    sizes = dict(d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1)
    model = Transformer(translator.model.vocab_size - 1, **sizes)
    with pytest.raises(ValueError, match="must have at most the model's"):
        Translator(model, translator.tokenizers)


def test_a_single_tokenizer_is_that_of_both_sides(translator):
    single = Translator(translator.model, translator.tokenizers.target)
    assert single.tokenizers == (translator.tokenizers.target,) * 2


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"model": keras.Sequential()}, "`model` must be a Transformer or Ensemble. Received: <Sequential"),
        ({"tokenizers": ("a", "b")}, r"`tokenizers` must be a Tokenizers. Received: \('a', 'b'\)"),
        ({"decode": {"beam_width": 2}}, "`decode` must be a DecodeConfig. Received: {'beam_width': 2}"),
    ],
)
def test_what_is_no_part_of_a_translator_is_refused(translator, changed, message):
    with pytest.raises(TypeError, match=message):
        Translator(**{"model": translator.model, "tokenizers": translator.tokenizers, **changed})


def test_the_file_of_a_model_is_not_its_folder(finished_run):
    with pytest.raises(NotADirectoryError, match=r"Expected the folder of .* Received: .*model\.keras"):
        Translator.load(finished_run / "model.keras")


def test_batches_of_one_shape_are_announced_and_get_smaller_with_many_beams(finished_run, monkeypatch):
    translator, asked = Translator.load(finished_run, tokens_per_batch=256), []

    def searching(num_hypotheses):
        def search(ids, ahead):
            asked.append((ids.shape, ahead))
            return Translator.searching(translator, num_hypotheses)(ids)

        return search

    monkeypatch.setattr(translator, "searching", searching)
    translator.translate(["Anna sleeps."] * 100 + ["the dog sees the cat and the old man sees the dog"])
    shapes = [padded_shape(*shape) for shape, _ in asked]
    assert len(set(shapes)) < len(shapes) > 3
    assert [ahead for _, ahead in asked] == [shapes[i + 1 :].count(shape) for i, shape in enumerate(shapes)]
    for beams, most in ((8, 256), (16, 64)):
        asked.clear()
        translator.translate_nbest(["Anna sleeps."] * 40, beams)
        assert most / 2 < max(rows * width for (rows, width), _ in asked) <= most


def test_by_itself_a_translator_compiles_where_that_pays(finished_run, monkeypatch):
    monkeypatch.setattr(compilation, "COMPILE_SECONDS", 0.0)
    monkeypatch.setattr(compilation.WhereItPays, "_by_xla", lambda *_: pytest.fail("compiled"))
    for xla, times in ((False, 3), (None, 2)):
        translator = Translator.load(finished_run, xla=xla)
        for _ in range(times):  # tracing, then what says how long it takes, and then it pays
            translator.translate(["Anna sleeps."])
    with pytest.raises(pytest.fail.Exception, match="compiled"):
        translator.translate(["Anna sleeps."])


def test_a_translator_that_has_no_configuration_leaves_a_saved_one_alone(translator, tmp_path):
    translator.save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    two = Tokenizers(Tokenizer.train(["Anna sleeps."] * 9, vocab_size=20), translator.tokenizers.target)
    sizes = dict(d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1)
    with pytest.raises(ConfigError, match="needs one vocabulary"):  # `tied_embeddings` is "all"
        Translator(Transformer(translator.model.vocab_size, **sizes), two).save(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_decode_options_can_be_changed_at_loading(finished_run):
    assert Translator.load(finished_run, beam_width=1).decode.beam_width == 1


# --- more questions


def test_a_prefix_is_what_the_translation_begins_with(translator):
    found = translator.translate_prefix(TEXTS, ["Anna", "Anna", "Der alte", "", "", "Tom"])
    assert found[0].text.startswith("Anna") and found[2].text.startswith("Der alte")
    assert found[1].text == found[3].text == ""  # nothing stays nothing
    free = translator.translate_nbest(TEXTS[4:5], 1)[0][0]
    assert found[4].text == free.text and found[4].score == pytest.approx(free.score, abs=1e-4)
    with pytest.raises(ValueError, match="2 texts, 1 prefixes"):
        translator.translate_prefix(["a", "b"], ["c"])


def test_alternatives_begin_with_the_prefix_too(translator):
    prefixes, width = ["Anna", "Anna", "Der alte", "", "", "Tom"], translator.decode.beam_width
    lists = translator.translate_prefix_nbest(TEXTS, prefixes, width)
    for text, prefix, found, best in zip(
        TEXTS, prefixes, lists, translator.translate_prefix(TEXTS, prefixes), strict=True
    ):
        assert found[0].text == best.text and found[0].score == pytest.approx(best.score, abs=1e-4)
        assert all(one.text.startswith(prefix) for one in found) or not text.strip()
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
        assert len({one.text for one in found}) == len(found)
    free, empty = translator.translate_nbest(TEXTS, width), [""] * len(TEXTS)
    for found, expected in zip(translator.translate_prefix_nbest(TEXTS, empty, width), free, strict=True):
        assert [one.text for one in found] == [one.text for one in expected]
    assert max(map(len, free)) > 1
    with pytest.raises(ValueError, match="`num_hypotheses` must be an integer from 1 to 200. Received: 0."):
        translator.translate_prefix_nbest(TEXTS, prefixes, 0)


def test_a_seed_repeats_and_belongs_to_its_text(translator):
    texts = [f"Anna sees {n} dogs." for n in range(6)]
    drawn = translator.sample(texts, range(6))
    assert drawn == translator.sample(texts, range(6)) != translator.sample(texts, range(6, 12))
    alone = [translator.sample([text], [seed])[0] for seed, text in enumerate(texts)]
    assert [one.text for one in drawn] == [one.text for one in alone]
    assert len({one.text for one in translator.sample(texts[:1] * 6, range(6))}) > 1


def test_a_score_is_the_sum_of_its_pieces_and_that_of_the_search(translator):
    texts = ["Anna sleeps.", "The old man wants to read the book."]
    best = [translations[0] for translations in translator.translate_nbest(texts, 1)]
    for found, scored in zip(best, translator.score(texts, [one.text for one in best]), strict=True):
        assert len(scored.pieces) == len(scored.log_probs) and scored.pieces[-1] == "</s>"
        assert scored.log_prob == pytest.approx(sum(scored.log_probs), abs=1e-4)
        (ids,) = translator.tokenizers.target.encode([found.text])
        assert translator.tokenizers.target.pieces(ids) == scored.pieces
        # The search may have cut the same words into other pieces.
        assert scored.log_prob <= found.log_prob + 1e-4


def test_scores_do_not_depend_on_the_company(translator):
    texts = [f"Anna sees {'very ' * n}big dogs." for n in range(12)]
    together = translator.score(texts, texts[::-1])
    for source, target, scored in zip(texts, texts[::-1], together, strict=True):
        (alone,) = translator.score([source], [target])
        assert scored.log_prob == pytest.approx(alone.log_prob, abs=1e-4)
    with pytest.raises(ValueError, match="1 and 2"):
        translator.score(["a"], ["b", "c"])


def test_scoring_keeps_to_the_size_of_a_batch(finished_run, monkeypatch):
    translator = Translator.load(finished_run, tokens_per_batch=64)
    score, positions = translator._scoring, []

    def noted(source_ids, target_ids):
        positions.append(source_ids.size + target_ids.size)
        return score(source_ids, target_ids)

    monkeypatch.setattr(translator, "_scoring", noted)
    short, long = "Anna", "Anna sees " + "very " * 8 + "big dogs."
    translator.score([short, long] * 10, [long, short] * 10)  # each side of a batch is as long as its longest
    assert max(positions) <= 64 and len(positions) > 5


def test_an_alignment_names_what_its_maps_are_about(translator):
    (found,) = translator.align(["Anna sleeps."], ["Anna schläft."])
    num_layers, num_heads = translator.model.config.num_decoder_layers, translator.model.config.num_heads
    assert found.maps.cross.shape == (num_layers, num_heads, len(found.target_pieces), len(found.source_pieces))
    assert found.source_pieces[-1] == found.target_pieces[-1] == "</s>"


def test_words_are_linked_by_the_upper_half_of_the_layers(translator):
    sources, targets = ["Anna sleeps.", "Tom sees a big dog."], ["Anna schläft.", "Tom sieht einen großen Hund."]
    for found, one in zip(
        translator.word_alignments(sources, targets), translator.align(sources, targets), strict=True
    ):
        words = word_numbers(one.source_pieces), word_numbers(one.target_pieces)
        assert found == links(one.maps.cross[len(one.maps.cross) // 2 :].mean(axis=(0, 1)), *words) != []


def test_links_are_those_of_the_words_whatever_the_batch(finished_run):
    texts = [*TEXTS, *(f"Anna sees {'very ' * n} big dogs." for n in range(9)), "日本 a日", "\u200b"]
    pairs = [(a, b) for a in texts for b in texts]
    found = Translator.load(finished_run).word_alignments(*zip(*pairs, strict=True))
    for (source, target), of_pair in zip(pairs, found, strict=True):
        assert all(i < len(source.split()) and j < len(target.split()) for i, j in of_pair)
        assert bool(of_pair) == bool(source.strip(" \u200b") and target.strip(" \u200b"))
    order = np.random.default_rng(3).permutation(len(pairs))
    small = Translator.load(finished_run, tokens_per_batch=64)
    assert small.word_alignments(*zip(*(pairs[i] for i in order), strict=True)) == [found[i] for i in order]


def test_the_pieces_of_a_translation_are_linked_as_its_text(translator):
    text = "Anna schläft."
    pieces = translator.score(["Anna sleeps."], [text])[0].pieces
    expected = translator.word_alignments(["Anna sleeps."], [text])
    assert translator.word_alignments(["Anna sleeps."], [pieces]) == expected
    assert translator.word_alignments(["Anna sleeps."], [pieces[:-1]]) == expected  # a search that came to its limit


def test_no_word_behind_the_end_of_a_text_that_is_cut_is_linked(finished_run, caplog):
    translator = Translator.load(finished_run, max_input_length=7)
    (found,) = translator.word_alignments(["a " * 20], ["a b"])
    assert "Read 7 of 21 pieces" in caplog.text
    assert found and max(i for i, _ in found) < 6


def test_every_question_is_asked_in_the_vocabularies_of_its_sides():
    source_text, target_text = "the dog sees a cat", "der Hund sieht eine Katze"
    source, target = (
        Tokenizer.train([text] * 9, vocab_size=size) for text, size in ((source_text, 31), (target_text, 37))
    )
    model = Transformer(
        target.vocab_size, source.vocab_size, tied_embeddings="none", d_model=16, d_ff=32, num_heads=2,
        num_encoder_layers=1, num_decoder_layers=1,
    )  # fmt: skip
    translator = Translator(model, Tokenizers(source, target), DecodeConfig(extra_length=3), xla=False)
    source_ids, target_ids = source.encode([source_text]), target.encode([target_text])
    (scored,) = translator.score([source_text], [target_text])
    assert scored.pieces == target.pieces(target_ids[0])
    np.testing.assert_allclose(
        scored.log_probs, inference.token_log_probs(model, np.array(source_ids), np.array(target_ids))[0], atol=1e-5
    )
    (one,) = translator.align([source_text], [target_text])
    assert (one.source_pieces, one.target_pieces) == (source.pieces(source_ids[0]), target.pieces(target_ids[0]))
    (found,) = translator.word_alignments([source_text], [target_text])
    words = word_numbers(one.source_pieces), word_numbers(one.target_pieces)
    assert found == links(one.maps.cross.mean(axis=(0, 1)), *words) != []
    assert translator.translate_prefix([source_text], ["der Hund"])[0].text.startswith("der Hund")


def test_what_is_too_long_is_cut_and_said(finished_run, caplog):
    translator = Translator.load(finished_run, max_input_length=17)
    assert len(translator.translate(["the dog sees the cat " * 1000, "Anna sleeps."])) == 2
    [said] = [record.getMessage() for record in caplog.records if record.name == "keras_transformer.texts"]
    assert said.startswith("Read 17 of 8001 pieces (decode.max_input_length) of: 'the dog")
    translator.score(["Anna sleeps."], ["Anna schläft " * 100])
    assert "(decode.max_input_length + decode.extra_length) of" in caplog.text  # a target may be as long


def test_the_option_that_cuts_is_named_where_several_have_one_value(finished_run, caplog):
    tokenizers, sizes = Translator.load(finished_run).tokenizers, dict(d_model=16, d_ff=32, num_heads=2)
    model = Transformer(
        tokenizers.target.vocab_size, positions="learned", max_positions=17, num_decoder_layers=1, **sizes
    )
    translator = Translator(model, tokenizers, DecodeConfig(max_input_length=17))
    translator.score(["the dog sees the cat " * 9], ["Anna schläft " * 100])
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2 and all("(model.max_positions) of" in line for line in said)


@pytest.mark.parametrize("pieces", [["no such piece"], ["<pad>", "</s>"], ["<s>"], ["</s>", "</s>"]])
def test_pieces_that_no_translation_has_are_refused(translator, pieces):
    with pytest.raises(ValueError, match="Expected (the )?pieces of"):
        translator.score(["Anna sleeps."], [pieces])


@pytest.mark.parametrize("texts", ["one string", b"bytes", [1, 2], [None], ["a", b"b"], np.array("one")])
def test_what_is_no_list_of_strings_is_refused(translator, texts):
    for ask in (translator.translate, lambda texts: translator.score(texts, texts)):
        with pytest.raises(TypeError, match="Expected strings in a list, each a str, not bytes or a tensor. Received:"):
            ask(texts)


def test_pieces_and_numbers_may_come_in_other_types(translator):
    [[best, *_]] = translator.translate_nbest(["Anna sleeps."], np.int8(9))
    [scored] = translator.score(["Anna sleeps."], [tuple(best.pieces)])
    assert scored.pieces == best.pieces


def test_any_iterable_of_strings_will_do(translator):
    assert translator.translate(text for text in TEXTS[:3]) == translator.translate(TEXTS[:3])


def test_seeds_and_temperatures_can_be_given_text_by_text(translator):
    texts = ["Anna sleeps.", "", "Tom!"]
    cold = translator.sample(texts, [1, 2, 3], [0.0, 5.0, 0.0])
    assert [one.text for one in cold] == [one.text for one in translator.sample(texts, 7, 0.0)]
    for wrong in (-1, float("nan"), float("inf"), [1.0, -1.0, 1.0]):
        with pytest.raises(ValueError, match=r"must be at least 0 and finite. Received: (-1.0|nan|inf)\.$"):
            translator.sample(texts, 1, wrong)
    with pytest.raises(ValueError, match="`temperature`"):
        translator.sample([], 1, -1.0)
    for wrong in (1.5, 2**64):
        with pytest.raises(ValueError, match="`seeds` must be 64-bit integers"):
            translator.sample(texts, wrong)
    for name, wrong in [("seeds", dict(seeds=[1, 2])), ("temperature", dict(seeds=1, temperature=[[1.0] * 3]))]:
        with pytest.raises(ValueError, match=f"`{name}` must be one for all texts or one a text, 3. Received: array"):
            translator.sample(texts, **wrong)


def test_the_search_is_the_same_with_xla_and_without(finished_run):
    texts = [f"Anna sees {'very ' * (n % 5)}big dogs and {n} cats." for n in range(21)]
    loaded = Translator.load(finished_run)
    plain, compiled = (Translator(loaded.model, loaded.tokenizers, loaded.decode, xla=xla) for xla in (False, True))
    for a, b in zip(plain.translate_nbest(texts, 3), compiled.translate_nbest(texts, 3), strict=True):
        assert [one.text for one in a] == [one.text for one in b]
        np.testing.assert_allclose([one.score for one in a], [one.score for one in b], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("xla", [False, True])
def test_weights_may_change_between_two_searches(ambiguous, xla):
    """What a compiled search has kept of them changes with them."""
    model = keras.models.clone_model(ambiguous.model)
    translator = Translator(model, ambiguous.tokenizers, ambiguous.decode, xla=xla)
    before = translator.translate_nbest(["ab aaa"], 5)
    for seed in (6, 7):
        keras.utils.set_random_seed(seed)
        model.set_weights(keras.models.clone_model(model).get_weights())
        found = translator.translate_nbest(["ab aaa"], 5)
        expected = Translator(model, ambiguous.tokenizers, ambiguous.decode, xla=False).translate_nbest(["ab aaa"], 5)
        assert [best.text for best in found[0]] == [best.text for best in expected[0]]
        assert [best.score for best in found[0]] == pytest.approx([best.score for best in expected[0]], abs=1e-4)
        assert found != before
        before = found


def test_panels_are_cut_once_for_all_compiled_searches_and_for_no_other(ambiguous, monkeypatch):
    cut = []
    xla_panels = products_by_xla.xla_panels
    monkeypatch.setattr(kept_panels, "xla_panels", lambda layers: cut.append(layers) or xla_panels(layers))
    for xla, times in ((False, 0), (True, 1)):
        translator = Translator(ambiguous.model, ambiguous.tokenizers, ambiguous.decode, xla=xla)
        for texts, num_hypotheses in ((["a"], 1), (["ab a", "aaa"], 1), (["a"], 2)):
            translator.translate_nbest(texts, num_hypotheses)
        assert len(cut) == times * 7  # the vocabulary; query, key and value; five others of the one block


# --- lists of the best


@pytest.fixture(scope="module")
def ambiguous():
    """A translator whose lists hold the same words in several cuts: few pieces, short outputs, an untrained model."""
    tokenizer = Tokenizer.train(["aaa aa a ab ba"] * 9, vocab_size=12)
    keras.utils.set_random_seed(5)
    model = Transformer(
        tokenizer.vocab_size, d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1
    )
    return Translator(model, Tokenizers(tokenizer, tokenizer), DecodeConfig(beam_width=8, extra_length=4))


def test_no_two_of_the_best_are_equal_and_none_is_lost(ambiguous):
    texts, repeated = ["a", "ab", "aaa ba", "ba ab a"], 0
    for text, found in zip(texts, ambiguous.translate_nbest(texts, 30), strict=True):
        ids = np.array(ambiguous.tokenizers.source.encode([text]), np.int32)
        (rows,), (scores,), _, (lengths,) = map(np.asarray, ambiguous.searching(30)(ids))
        cuts = ambiguous.tokenizers.source.decode(
            [row[:length].tolist() for row, length in zip(rows, lengths, strict=True)]
        )
        assert [one.text for one in found] == list(dict.fromkeys(cuts))
        assert [one.score for one in found] == pytest.approx([scores[cuts.index(one.text)] for one in found], abs=1e-5)
        repeated += len(cuts) - len(found)
    assert repeated > 0  # else this test shows nothing


def test_the_scores_of_the_best_are_reproduced_by_their_pieces(ambiguous, translator):
    for one, texts in [(ambiguous, ["a", "ab", "aaa ba"]), (translator, ["Anna sleeps.", "Tom!"])]:
        for text, found in zip(texts, one.translate_nbest(texts, 9), strict=True):
            scored = one.score([text] * len(found), [best.pieces for best in found])
            assert [again.pieces for again in scored] == [best.pieces for best in found]
            assert [again.score for again in scored] == pytest.approx([best.score for best in found], abs=1e-4)


@pytest.mark.parametrize("targets", [[["a", 3]], [{"a", "b"}], "a"])
def test_targets_are_texts_or_lists_of_pieces(translator, targets):
    with pytest.raises(TypeError, match="strings"):
        translator.score(["a"], targets)


@pytest.mark.parametrize("text", ["", " \u00a0\t", "\u200b", "\ufeff", "\u0001"])
def test_nothing_is_made_of_a_text_of_which_no_piece_comes(translator, text):
    assert translator.tokenizers.source.encode([text]) == [[EOS_ID]]
    assert translator.translate([text, "Anna sleeps."])[0] == ""
    assert translator.translate_nbest([text], 2) == [[("", 0.0, 0.0, [])]]
    assert translator.sample([text], 1) == [("", 0.0, 0.0, [])]


def test_a_list_of_a_blank_text_can_be_scored(translator):
    (blank,), (other, *_) = translator.translate_nbest(["", "Anna sleeps."], 2)
    scored = translator.score(["", "Anna sleeps."], [blank.pieces, other.pieces])
    assert [one.score for one in scored] == pytest.approx([0.0, other.score], abs=1e-4)
    assert [one.score for one in translator.score([""], [blank.pieces])] == [0.0]


def test_the_scores_of_long_translations_are_reproduced_too(translator):
    decode = translator.decode.replace(max_input_length=5, extra_length=20, min_length=15)
    long = Translator(translator.model, translator.tokenizers, decode)
    (found,) = long.translate_nbest(["Anna sleeps and Tom sleeps and Mary sleeps."], 2)
    scored = long.score(["Anna sleeps and Tom sleeps and Mary sleeps."] * len(found), [best.pieces for best in found])
    assert min(len(best.pieces) for best in found) >= 15
    assert [one.score for one in scored] == pytest.approx([best.score for best in found], abs=1e-4)


def test_where_nothing_is_found_the_translation_is_empty_and_has_the_lowest_score(ambiguous):
    model = keras.models.clone_model(ambiguous.model)
    model.set_weights([np.full_like(w, np.nan) if w.dtype == np.float32 else w for w in ambiguous.model.get_weights()])
    broken = Translator(model, ambiguous.tokenizers, ambiguous.decode)
    assert broken.translate(["a", ""]) == ["", ""]
    assert [best.score for best, *_ in broken.translate_nbest(["a", ""], 3)] == [float(np.finfo(np.float32).min), 0.0]
    assert broken.translate_prefix(["a"], ["b"])[0].text == broken.sample(["a"], 1)[0].text == ""


@pytest.mark.parametrize("number", [0, -1, True, 1.5, "3", None, 10**9])
def test_the_number_of_hypotheses_is_checked(translator, number):
    with pytest.raises(ValueError, match="num_hypotheses"):
        translator.translate_nbest(["a"], number)
