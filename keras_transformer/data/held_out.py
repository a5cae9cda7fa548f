"""A validation set where none was given: some pairs are held out of train.

Which ones is decided by a hash of the source text. So it depends neither on the order of the lines (a corpus may be
sorted by length or by topic) nor on the run's seed, and all translations of one source fall on the same side.
"""

import heapq
from collections.abc import Iterable
from typing import NamedTuple

from keras_transformer.data.cleaning import text_digest
from keras_transformer.data.sources import Pair

SHARE = 20  # no more than one pair in so many


class HeldOut(NamedTuple):
    """The pairs whose source has a digest of at most `threshold`."""

    threshold: int

    def takes(self, pair: Pair) -> bool:
        return text_digest(pair[0]) <= self.threshold


def choose_held_out(pairs: Iterable[Pair], most: int) -> HeldOut:
    """Reads all pairs once; at most `most` of them and one in SHARE are taken, but at least one, if sources differ."""
    smallest, num_pairs = [], 0  # a heap of the `most` + 1 smallest digests, negative: the largest is on top
    for source, _ in pairs:
        num_pairs += 1
        digest = -text_digest(source)
        if len(smallest) <= most:
            heapq.heappush(smallest, digest)
        elif digest > smallest[0]:
            heapq.heapreplace(smallest, digest)
    digests = sorted(-digest for digest in smallest)
    wanted = min(most, max(1, num_pairs // SHARE))
    if len(digests) <= wanted:
        return HeldOut(-1)
    beyond = digests[wanted]  # where equal sources would not all fit, none of them is taken
    return HeldOut(max((digest for digest in digests[:wanted] if digest < beyond), default=-1))
