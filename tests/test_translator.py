"""Strings to strings."""

import numpy as np
import pytest

from keras_transformer import Transformer
from keras_transformer.translator import Translator, batches_by_length, pad

TEXTS = ["Anna sleeps.", "", "The old man wants to read the book because it is good.", "   ", "Tom!", "x" * 300]


@pytest.fixture(scope="module")
def translator(finished_run):
    return Translator.load(finished_run)


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
    assert translator.translate([]) == []


def test_loading_says_what_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match="model.keras"):
        Translator.load(tmp_path)


def test_learned_positions_limit_what_is_read_and_written(translator):
    model = Transformer(
        translator.model.vocab_size, d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1,
        positions="learned", max_positions=13,
    )  # fmt: skip
    found = Translator(model, translator.tokenizers).translate(["a few words " * 20, "Anna sleeps."])
    assert len(found) == 2


def test_decode_options_can_be_changed_at_loading(finished_run):
    assert Translator.load(finished_run, beam_width=1).decode.beam_width == 1


def test_batches_hold_every_row_once_within_their_budget():
    lengths = np.random.default_rng(5).integers(1, 97, 211)
    batches = list(batches_by_length(lengths, 512))
    assert sorted(np.concatenate(batches)) == list(range(211))
    for rows in batches:
        assert len(rows) == 1 or len(rows) * lengths[rows].max() <= 512


def test_padding_fills_up_with_zeros():
    np.testing.assert_array_equal(pad([[5, 6, 7], [8]]), [[5, 6, 7], [8, 0, 0]])
