"""The works are those that the peers' scripts do."""

import json

import pytest
import works

from keras_transformer.config import ModelConfig, TrainConfig


@pytest.fixture
def spec(shared_data):
    path = shared_data.parent / "bench" / "spec.json"
    if not path.exists():
        pytest.skip(f"no definition of the works to compare with: {path} is missing")
    return json.loads(path.read_text())


def test_models_are_those_of_the_peers(spec):
    names = {
        "vocab": "vocab_size",
        "enc_layers": "num_encoder_layers",
        "dec_layers": "num_decoder_layers",
        "d_model": "d_model",
        "d_ff": "d_ff",
        "heads": "num_heads",
    }
    expected = {
        model: {ours: spec["models"][model][theirs] for theirs, ours in names.items()} for model in spec["models"]
    }
    assert expected == works.MODELS
    for model in spec["models"].values():
        assert (model["norm"], model["dropout"]) == (ModelConfig.norm, ModelConfig.dropout)
    assert spec["train"]["label_smoothing"] == TrainConfig.label_smoothing


def test_works_are_those_of_the_peers(spec):
    def ours(work):
        if work["kind"] == "train":
            return works.Training(*(work[key] for key in ("model", "batch", "src_len", "tgt_len", "steps")))
        return works.Decoding(*(work[key] for key in ("model", "batch", "src_len", "gen_len", "beam", "calls")))

    assert {name: ours(work) for name, work in spec["works"].items()} == works.WORKS
    assert spec["special_ids"]["first_random_id"] == works.FIRST_ID and spec["special_ids"]["eos"] == works.EOS_ID


@pytest.mark.parametrize("name", works.names(works.Decoding))
def test_a_source_has_no_padding_and_one_end(name):
    work = works.WORKS[name]
    [ids] = works.sources(work, 1, 11)
    assert ids.shape == (work.batch, work.source_length)
    assert (ids[:, -1] == works.EOS_ID).all() and (ids[:, :-1] >= works.FIRST_ID).all()
    assert work.amount == work.batch


def test_pairs_are_drawn_source_and_target_in_turn():
    work = works.Training("small", batch=3, source_length=7, target_length=5, steps=1)
    assert work.amount == 15
    shapes = [(source.shape, target.shape) for source, target in works.pairs(work, 2, 11)]
    assert shapes == [((3, 7), (3, 5))] * 2
