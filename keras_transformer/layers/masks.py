"""Who may attend to whom: boolean masks of shape (B or 1, queries or 1, keys), True = may attend."""

from keras import ops

PAD_ID = 0  # fills up short sequences, source and target; the tokenizer, which layers do not know, has the same


def padding_mask(ids):
    """Every query may attend to every key that is not padding. (B, S) -> (B, 1, S)"""
    return ops.expand_dims(ops.not_equal(ids, PAD_ID), axis=1)


def causal_mask(length):
    """Position i may attend to positions j <= i: the future stays unseen, Section 3.2.3. -> (1, T, T)"""
    positions = ops.arange(length, dtype="int32")  # and not floatx, which may have no range
    return (positions[:, None] >= positions[None, :])[None]


def neighbourhood_mask(query_positions, key_positions, size):
    """Restricted self-attention, Table 1: `size` positions centred on the query's own (even: one more). -> (1, T, S)"""
    distance = ops.abs(query_positions[:, None] - key_positions[None, :])
    return (distance <= size // 2)[None]
