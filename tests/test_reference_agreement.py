"""The whole model against the equations of the paper in float64 NumPy (tests/reference.py)."""

import numpy as np
import pytest

from tests import reference
from tests.small import VARIANTS, padded_pairs, variant


def reference_weights(model):
    """The model's weights under the names of tests/reference.py."""
    weights = {
        "source_embedding": model.source_embedding.embeddings,
        "target_embedding": model.target_embedding.embeddings,
        "output_embedding": model.output_embedding.embeddings,
    }
    if model.config.positions == "learned":
        weights["source_positions"] = model.source_positions.table
        weights["target_positions"] = model.target_positions.table
    if model.config.norm == "pre":
        weights |= norm_weights(model.encoder_norm, "encoder_norm") | norm_weights(model.decoder_norm, "decoder_norm")
    for side, blocks in (("encoder", model.encoder), ("decoder", model.decoder)):
        for i, block in enumerate(blocks):
            weights |= block_weights(block, f"{side}/{i}")
    return {name: weight.numpy() for name, weight in weights.items()}


def block_weights(block, path):
    network = block.feed_forward
    weights = {
        f"{path}/feed_forward/inner_kernel": network.inner.kernel,
        f"{path}/feed_forward/inner_bias": network.inner.bias,
        f"{path}/feed_forward/outer_kernel": network.outer.kernel,
        f"{path}/feed_forward/outer_bias": network.outer.bias,
    }
    weights |= norm_weights(block.feed_forward_norm.layer_norm, f"{path}/feed_forward_norm")
    for name in ("self_attention", "cross_attention"):
        if hasattr(block, name):
            attention = getattr(block, name)
            weights |= {
                f"{path}/{name}/query": attention.query.kernel,
                f"{path}/{name}/key": attention.key.kernel,
                f"{path}/{name}/value": attention.value.kernel,
                f"{path}/{name}/output": attention.output_projection.kernel,
            }
            if attention.scoring == "additive":
                weights[f"{path}/{name}/score"] = attention.score_vector
            weights |= norm_weights(getattr(block, f"{name}_norm").layer_norm, f"{path}/{name}_norm")
    return weights


def norm_weights(norm, path):
    return {f"{path}/gamma": norm.gamma, f"{path}/beta": norm.beta}


def reference_logits(model, source_ids, target_ids):
    options = ("num_encoder_layers", "num_decoder_layers", "num_heads", "d_model")
    options += ("norm", "positions", "scoring", "neighbourhood", "norm_epsilon")
    chosen = {name: getattr(model.config, name) for name in options}
    return reference.transformer(reference_weights(model), source_ids, target_ids, **chosen)


def assert_agree(model, source_ids, target_ids, tolerance):
    """The same logits wherever the target is not padding; what padding would predict is nobody's business."""
    live = target_ids != reference.PAD
    logits = np.asarray(model((source_ids, target_ids)))[live]
    assert np.abs(logits - reference_logits(model, source_ids, target_ids)[live]).max() < tolerance
    assert logits.std() > 0.1  # of a size that makes the tolerance mean something


@pytest.mark.parametrize("name", VARIANTS)
def test_the_model_agrees_with_the_paper_on_random_weights_and_padded_sentences(name):
    assert_agree(variant(name), *padded_pairs(), tolerance=1e-5)


@pytest.mark.parametrize("name", ["post", "everything"])
def test_a_model_in_float64_agrees_as_far_as_its_float32_positions_allow(name):
    assert_agree(variant(name, dtype="float64"), *padded_pairs(), tolerance=1e-6)


@pytest.mark.parametrize(("name", "shared"), [("post", 2), ("target_tied", 1), ("everything", 0)])
def test_the_reference_is_given_every_weight_of_the_model_and_nothing_else(name, shared):
    assert len(reference_weights(variant(name))) == len(variant(name).trainable_variables) + shared
