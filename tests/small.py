"""The small network and the few sentences of the tests. Sizes are distinct primes: no swapped axis passes by luck.

`d_model` alone is none: it must be even for the sinusoids, and a multiple of `num_heads` where no other width is given.
"""

import functools
import shutil

import numpy as np

from keras_transformer import Transformer, Translator
from keras_transformer.tokenizer import EOS_ID

B, S, T = 3, 11, 7  # batch, source length, target length
W = 5  # beam width
V = 31  # target vocabulary
PAD, BOS, EOS = 0, 1, 2

SMALL = dict(num_encoder_layers=2, num_decoder_layers=3, d_model=26, d_ff=29, num_heads=2)
ROW_B = dict(d_k=5, d_v=17)

# Everything that changes the forward pass.
VARIANTS = {
    "post": {},
    "pre": dict(norm="pre"),
    "row_b": ROW_B,
    "learned": dict(positions="learned", max_positions=13, d_model=23, **ROW_B),
    "neighbourhood": dict(neighbourhood=5),
    "even_neighbourhood": dict(neighbourhood=2),
    "additive": dict(scoring="additive"),
    "dot_product": dict(scoring="dot_product"),
    "untied": dict(tied_embeddings="none", source_vocab_size=37),
    "target_tied": dict(tied_embeddings="target", source_vocab_size=37),
    "everything": dict(
        norm="pre",
        positions="learned",
        max_positions=13,
        d_model=23,
        **ROW_B,
        scoring="additive",
        neighbourhood=3,
        tied_embeddings="none",
        source_vocab_size=37,
        attention_dropout=0.2,
        feed_forward_dropout=0.3,
        norm_epsilon=1e-3,
    ),
}


def small_model(**changes):
    """A small Transformer all of whose weights are random: biases and norms too, which start as zeros and ones."""
    model = Transformer(**{"vocab_size": V, **SMALL, **changes})
    randomise(model)
    return model


def randomise(layer, seed=5):
    rng = np.random.default_rng(seed)
    for weight in layer.trainable_variables:
        centre = 1.0 if weight.name == "gamma" else 0.0
        weight.assign(rng.normal(centre, 0.2, weight.shape))  # 0.2: about d_model^-0.5, the scale of a fresh matrix


@functools.cache
def variant(name, dtype=None):
    """The small network with the options of VARIANTS[name]. Tests share it: they must not change its weights."""
    return small_model(**VARIANTS[name], dtype=dtype)


def sentences(lengths, width, *, vocab_size=V, first=None, seed=7):
    """Random ids, (len(lengths), width), padded from each length on; they begin with `first` where it is given."""
    ids = np.random.default_rng(seed).integers(EOS + 1, vocab_size, (len(lengths), width), dtype="int32")
    if first is not None:
        ids[:, 0] = first
    return np.where(np.arange(width) < np.array(lengths)[:, None], ids, PAD)


SOURCE_LENGTHS, TARGET_LENGTHS = (11, 7, 2), (5, 7, 3)


def padded_pairs():
    """source_ids (B, S) and target_ids (B, T), with padding on both sides."""
    return sentences(SOURCE_LENGTHS, S), sentences(TARGET_LENGTHS, T, first=BOS, seed=11)


def ending_run(run, folder):
    """A copy of the finished run with a model that ends sentences early, late and at the limit. -> the folder

    The tests' own run of 14 steps never ends a sentence, and a search that always runs to its limit proves little.
    """
    shutil.copytree(run, folder)
    sizes = dict(num_encoder_layers=1, num_decoder_layers=1, d_model=16, d_ff=32, num_heads=2, tied_embeddings="none")
    model, rng = Transformer(Translator.load(run).model.vocab_size, **sizes), np.random.default_rng(10)
    for weight in model.trainable_variables:
        if len(weight.shape) == 2:
            scale = 1 if "embedding" in weight.path else 4 / weight.shape[0] ** 0.5
            weight.assign(rng.normal(0, scale, weight.shape))
    eos, shift = model.output_embedding.embeddings[EOS_ID], model.decoder[-1].feed_forward_norm.layer_norm.beta
    shift.assign(eos / np.linalg.norm(eos))  # makes eos likelier everywhere
    model.save(folder / "model.keras")
    return folder
