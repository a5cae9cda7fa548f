"""benchmarks/decoding.py"""

import decoding
import pytest
import works


@pytest.mark.parametrize("num_steps", [5, 11, 13], ids=["shorter", "as long", "longer"])
def test_a_translation_has_the_wanted_length_whatever_that_of_its_source(monkeypatch, num_steps):
    tiny = dict(vocab_size=31, num_encoder_layers=1, num_decoder_layers=1, d_model=10, d_ff=13, num_heads=2)
    monkeypatch.setitem(works.MODELS, "tiny", tiny)
    work = works.Decoding("tiny", batch=3, source_length=11, num_steps=num_steps, beam_width=2, calls=1)
    [ids] = works.sources(work, 1, 31)
    assert decoding.translator(work, False).num_ids == 31  # a search that knew fewer pieces would do less
    assert (decoding.graph(work)(ids) > 0).sum(axis=1).tolist() == [num_steps] * 3
    if num_steps == 11:  # its ids are longer than what is read of a text
        assert (decoding.xla(work)(ids) > 0).sum(axis=1).tolist() == [num_steps] * 3


@pytest.mark.parametrize("how", ["graph", "saved_model"])
def test_a_measurement_has_the_times_of_its_calls(monkeypatch, run_here, how):
    tiny = dict(vocab_size=31, num_encoder_layers=1, num_decoder_layers=1, d_model=10, d_ff=13, num_heads=2)
    monkeypatch.setitem(works.MODELS, "tiny", tiny)
    work = works.Decoding("tiny", batch=2, source_length=5, num_steps=7, beam_width=2, calls=3)
    monkeypatch.setitem(works.WORKS, "D1", work)
    (record,) = run_here(decoding, "--work", "D1", "--how", how, "--repeats", 2)
    assert record["how"] == how and record["build_s"] > 0 < record["first_call_s"]
    assert 0 < record["latency_ms"]["median"] <= record["latency_ms"]["p90"]
    assert record["median"] == pytest.approx(2000 / record["latency_ms"]["median"], rel=0.9)
