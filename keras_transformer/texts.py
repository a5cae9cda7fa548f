"""Texts as users give them: checked, made ids of a bounded length, put into batches of similar lengths."""

import logging
from collections.abc import Iterator, Sequence

import numpy as np

from keras_transformer.compilation import padded_shape
from keras_transformer.tokenizer import BOS_ID, EOS_ID, PAD_ID

log = logging.getLogger(__name__)


def listed(texts, or_pieces=False) -> list:
    """The texts as a list, some of them, with `or_pieces`, as lists of pieces. A single string is refused."""
    try:
        found = None if isinstance(texts, str | bytes) else list(texts)
    except TypeError:  # a single tensor or array
        found = None
    if found is None or not all(isinstance(text, str) or (or_pieces and _are_pieces(text)) for text in found):
        raise TypeError(f"Expected strings in a list, each a str, not bytes or a tensor. Received: {texts!r:.80}")
    return found


def encode(tokenizer, texts: list, *, limit: int, limited_by: str) -> list[list[int]]:
    """The ids of the texts, or of their pieces; what is longer than `limit` is cut, the end of sentence kept.

    Args:
        tokenizer: the `Tokenizer` of their side.
        texts: as `listed` returns them.
        limit: the most pieces, end of sentence included.
        limited_by: what the limit is called in the warning about a text that is cut.
    """
    encoded = tokenizer.encode([text if isinstance(text, str) else "" for text in texts])
    found = []
    for ids, text in zip(encoded, texts, strict=True):
        ids = ids if isinstance(text, str) else _ids(tokenizer, text)
        if len(ids) > limit:
            log.warning("Read %d of %d pieces (%s) of: %s", limit, len(ids), limited_by, _shortened(text))
            ids = [*ids[: limit - 1], EOS_ID]
        found.append(ids)
    return found


def one_a_text(name: str, values: np.ndarray, texts: list) -> np.ndarray:
    """One value for every text, where `values` are as many or a single one."""
    if values.shape not in ((), (len(texts),)):
        raise ValueError(f"`{name}` must be one for all texts or one a text, {len(texts)}. Received: {values!r:.80}")
    return np.broadcast_to(values, (len(texts),))


def batches_by_length(lengths: Sequence[int], tokens: int) -> Iterator[np.ndarray]:
    """Row numbers in batches of similar lengths, longest first.

    A batch holds at most `tokens`, padding included, and 1, 2, 4, 8, ... rows, except the last, so that shapes are few.
    """
    order = np.argsort(-np.asarray(lengths, np.int64), kind="stable")
    start = 0
    while start < len(order):
        _, width = padded_shape(1, lengths[order[start]])
        rows = 1 << (max(1, tokens // width).bit_length() - 1)
        yield order[start : start + rows]
        start += rows


def _are_pieces(value):
    return isinstance(value, list | tuple) and all(isinstance(piece, str) for piece in value)


def _ids(tokenizer, pieces):
    """The ids of the pieces of a translation. Refuses padding, a begin of sentence, and anything behind the end."""
    ids = tokenizer.ids(pieces)
    if PAD_ID in ids or BOS_ID in ids or EOS_ID in ids[:-1]:
        raise ValueError(f"Expected the pieces of a translation. Received: {pieces!r:.80}.")
    return ids


def _shortened(text):
    return repr(text) if len(text) <= 60 else f"{text[:60]!r}..."
