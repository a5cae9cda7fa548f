"""The fixed work that is measured, the same for everybody: random ids, no padding, float32.

Training: one step is forward, label-smoothed loss, backward and Adam, dropout 0.1. Decoding: ids to ids, the encoder
and the search's bookkeeping included, exactly `num_steps` pieces a sentence: its end is not allowed earlier.
"""

from typing import NamedTuple

import numpy as np

FIRST_ID, EOS_ID = 4, 3  # of random ids; pad, unk, bos and eos come before

MODELS = {
    "small": dict(vocab_size=8_000, num_encoder_layers=3, num_decoder_layers=3, d_model=256, d_ff=1024, num_heads=4),
    "base": dict(vocab_size=32_000, num_encoder_layers=6, num_decoder_layers=6, d_model=512, d_ff=2048, num_heads=8),
}


class Training(NamedTuple):
    model: str
    batch: int
    source_length: int
    target_length: int
    steps: int  # of a repeat
    unit = "target tokens"

    @property
    def amount(self):
        """The units of a step."""
        return self.batch * self.target_length


class Decoding(NamedTuple):
    model: str
    batch: int
    source_length: int
    num_steps: int
    beam_width: int
    calls: int  # of a repeat
    unit = "sentences"

    @property
    def amount(self):
        """The units of a call."""
        return self.batch


WORKS = {
    "T1": Training("small", batch=64, source_length=20, target_length=20, steps=20),
    "T2": Training("base", batch=32, source_length=32, target_length=32, steps=8),
    "D1": Decoding("base", batch=1, source_length=25, num_steps=32, beam_width=4, calls=10),
    "D2": Decoding("base", batch=32, source_length=25, num_steps=32, beam_width=4, calls=2),
    "D3a": Decoding("small", batch=1, source_length=25, num_steps=32, beam_width=4, calls=20),
    "D3b": Decoding("small", batch=32, source_length=25, num_steps=32, beam_width=4, calls=5),
    "G1": Decoding("base", batch=32, source_length=25, num_steps=32, beam_width=1, calls=3),
}


def names(kind):
    """Of the works of a kind."""
    return [name for name, work in WORKS.items() if isinstance(work, kind)]


def sources(work, number, vocab_size):
    """`number` batches of sentences that end with eos. -> [(B, S) int32]"""
    rng = np.random.default_rng(1234)
    batches = [rng.integers(FIRST_ID, vocab_size, (work.batch, work.source_length)) for _ in range(number)]
    for ids in batches:
        ids[:, -1] = EOS_ID
    return [ids.astype(np.int32) for ids in batches]


def pairs(work, number, vocab_size):
    """`number` batches of sentence pairs. -> [((B, S) int32, (B, T) int32)]"""
    rng = np.random.default_rng(1234)
    shapes = (work.batch, work.source_length), (work.batch, work.target_length)
    draws = (rng.integers(FIRST_ID, vocab_size, shape).astype(np.int32) for _ in range(number) for shape in shapes)
    return list(zip(draws, draws, strict=True))
