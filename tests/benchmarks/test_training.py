"""benchmarks/training.py"""

import math

import pytest
import training
import works


# One device: the collectives of a second MirroredStrategy in this process would meet those of tests/training. Over
# replicas it runs in the processes of test_growth.py.
def test_an_update_sees_the_whole_batch(monkeypatch):
    tiny = dict(vocab_size=31, num_encoder_layers=1, num_decoder_layers=1, d_model=10, d_ff=13, num_heads=2)
    monkeypatch.setitem(works.MODELS, "tiny", tiny)
    work = works.Training("tiny", batch=6, source_length=7, target_length=5, steps=1)
    update = training.updates(work, False, "one_device")
    assert update(1) == pytest.approx(work.amount * math.log(31), rel=0.4)  # the loss, summed over the tokens
