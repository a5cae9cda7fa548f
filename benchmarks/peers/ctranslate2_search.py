"""The decoding works by CTranslate2: a model of the same sizes with random weights, float32, two threads.

python -m venv ct2 && ct2/bin/pip install ctranslate2 numpy
python benchmarks/decoding.py --peer "CTranslate2=ct2/bin/python benchmarks/peers/ctranslate2_search.py {work}"

On a processor of Intel's it chooses MKL; with CT2_USE_MKL=0 in the environment it takes oneDNN and may be much faster.
"""

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import ctranslate2
import measure
import numpy as np
import works
from ctranslate2.specs import TransformerSpec

PIECES = ["<pad>", "<unk>", "<s>", "</s>"]


def positions(width, length=512):
    """Sines and cosines. Where CTranslate2 makes them itself, its search may take seven times as long."""
    angles = np.arange(length)[:, None] * 10_000.0 ** (-np.arange(0, width, 2) / width)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def specification(vocab_size, num_encoder_layers, num_decoder_layers, d_model, d_ff, num_heads):
    """Post-norm, sinusoidal positions, all weights random and the vocabulary's the same three times."""
    rng = np.random.default_rng(0)

    def dense(layer, outputs, inputs=d_model):
        layer.weight = rng.normal(0, inputs**-0.5, (outputs, inputs)).astype(np.float32)
        layer.bias = np.zeros(outputs, np.float32)

    def norm(layer):
        layer.gamma, layer.beta = np.ones(d_model, np.float32), np.zeros(d_model, np.float32)

    def feed_forward(layer):
        dense(layer.linear_0, d_ff)
        dense(layer.linear_1, d_model, d_ff)
        norm(layer.layer_norm)

    def attention(layer, *widths):
        for linear, width in zip(layer.linear, widths, strict=True):
            dense(linear, width * d_model)
        norm(layer.layer_norm)

    spec = TransformerSpec.from_config((num_encoder_layers, num_decoder_layers), num_heads, pre_norm=False)
    for block in spec.encoder.layer:
        attention(block.self_attention, 3, 1)
        feed_forward(block.ffn)
    for block in spec.decoder.layer:
        attention(block.self_attention, 3, 1)
        attention(block.attention, 1, 2, 1)
        feed_forward(block.ffn)
    vocabulary = rng.normal(0, d_model**-0.5, (vocab_size, d_model)).astype(np.float32)
    for coder in spec.encoder, spec.decoder:
        coder.position_encodings.encodings = positions(d_model)
    spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight = spec.decoder.projection.weight = vocabulary
    pieces = PIECES + [f"p{i}" for i in range(len(PIECES), vocab_size)]
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    return spec, pieces


def load(sizes):
    spec, pieces = specification(**sizes)
    with tempfile.TemporaryDirectory() as folder:
        spec.validate()
        spec.optimize()
        spec.save(folder)
        options = dict(compute_type="float32", inter_threads=1, intra_threads=measure.cores())
        return ctranslate2.Translator(folder, device="cpu", **options), pieces


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=works.names(works.Decoding))
    work = works.WORKS[parser.parse_args().work]
    sizes = works.MODELS[work.model]
    translator, pieces = load(sizes)
    batches = works.sources(work, work.calls, sizes["vocab_size"])
    length = dict(min_decoding_length=work.num_steps, max_decoding_length=work.num_steps)

    def call(ids):
        tokens = [[pieces[i] for i in row] for row in ids]
        search = dict(beam_size=work.beam_width, length_penalty=0.6 if work.beam_width > 1 else 0)
        return translator.translate_batch(tokens, **search, **length, max_batch_size=0)

    assert all(len(found.hypotheses[0]) == work.num_steps for found in call(batches[0])), "of another length"

    def repeat():
        return len(batches) * work.amount / measure.timed(lambda: [call(ids) for ids in batches])

    repeat()
    measure.answer(repeat)


if __name__ == "__main__":
    main()
