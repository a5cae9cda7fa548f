"""benchmarks/limit.py: the counts against counts by hand."""

import sys

import limit
import measure
import pytest
import store
import works

TINY = dict(vocab_size=7, num_encoder_layers=1, num_decoder_layers=2, d_model=2, d_ff=5, num_heads=1)
B, S, T = 1, 3, 4


def test_weights():
    # Matrices (2, 2) are 4 numbers, (2, 5) and (5, 2) are 10 each, (2, 7) is 14.
    assert limit.weights(TINY) == (4 * 4 + 20, 2 * (2 * 4), 2 * (6 * 4 + 20), 14)


def test_a_step_of_training():
    encoder = (
        4 * (S * 2 * 2)  # query, key, value, output: (3, 2) x (2, 2)
        + S * 2 * S + S * S * 2  # scores (3, 2) x (2, 3), and (3, 3) x (3, 2)
        + S * 2 * 5 + S * 5 * 2  # feed-forward
    )  # fmt: skip
    decoder = (
        4 * (T * 2 * 2) + T * 2 * T + T * T * 2  # self-attention
        + 2 * (T * 2 * 2) + 2 * (S * 2 * 2)  # query and output of 4 positions, key and value of 3
        + T * 2 * S + T * S * 2  # scores (4, 2) x (2, 3), and (4, 3) x (3, 2)
        + T * 2 * 5 + T * 5 * 2
    )  # fmt: skip
    assert (encoder, decoder) == (144, 312)
    forward = encoder + 2 * decoder + T * 2 * 7
    work = works.Training("tiny", batch=1, source_length=S, target_length=T, steps=1)
    numbers = 36 + 16 + 88 + 14
    assert limit.training(work, TINY) == (3 * forward, 7 * 4 * numbers)
    doubled = limit.training(work._replace(batch=2), TINY)
    assert doubled == (2 * 3 * forward, 7 * 4 * numbers)  # the weights are read once, whatever the batch


def test_a_call_of_the_search():
    def row(past):  # one beam at one step: 40 of projections and feed-forward, then the two attentions
        layer = 6 * (2 * 2) + 2 * 5 + 5 * 2 + (2 * past + past * 2) + (2 * S + S * 2)
        return 2 * layer + 2 * 7

    encoder = 144 + 2 * (2 * S * 2 * 2)  # with the keys and values for both layers of the decoder
    beams = 1 * row(1) + 3 * row(2) + 3 * row(3) + 3 * row(4)
    work = works.Decoding("tiny", batch=1, source_length=S, num_steps=4, beam_width=3, calls=1)
    assert limit.decoding(work, TINY) == (encoder + beams, 4 * (36 + 16 + 4 * (88 + 14)))


def test_the_best_product_and_all_threads_set_the_floor():
    work = works.WORKS["D1"]
    limits = {"product_numpy": 50.0, "product_tensorflow": 30.0, "product_xla": 40.0, "read_1": 10.0, "read_all": 20.0}
    multiply_adds, num_bytes = limit.cost(work)
    assert limit.floors(work, limits) == pytest.approx((2 * multiply_adds / 50e9, num_bytes / 20e9))


def test_the_limits_and_every_floor_are_reported(run_here):
    records = run_here(limit, "--size", 64, "--mib", 8, "--repeats", 1)
    limits, floors = records[:5], records[5:]
    assert [record["unit"] for record in limits] == ["GFLOP/s"] * 3 + ["GB/s"] * 2
    assert [record["work"] for record in floors] == list(works.WORKS)
    for record in floors:
        assert record["median"] == max(record["products_ms"], record["reading_ms"]) > 0
        work = works.WORKS[record["work"]]
        assert record["rate"] * record["median"] / 1000 == pytest.approx(work.amount, rel=1e-3)
        assert record["rate_unit"] == f"{work.unit}/s"


@pytest.mark.parametrize(
    "script, option", [(limit, "--size"), (limit, "--mib"), (store, "--pairs"), (store, "--vocab-size")]
)
def test_what_is_no_size_is_refused(run_here, capsys, script, option):
    with pytest.raises(SystemExit):
        run_here(script, option, "0")
    assert f"argument {option}: must be at least 1. Received: 0" in capsys.readouterr().err


def test_the_limit_is_a_peer():
    command = f"{sys.executable} {limit.__file__} --work D3a --size 64 --mib 8"
    _, theirs = measure.alternate(lambda: 1.0, command, 2)
    assert min(theirs) > 0
