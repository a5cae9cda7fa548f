"""A validation set where none was given: some pairs are held out of train.

Which ones is decided by a hash of the source text. So it depends neither on the order of the lines (a corpus may be
sorted by length or by topic) nor on the run's seed, and all translations of one source fall on the same side.
"""

import heapq
import itertools
from collections.abc import Iterable
from typing import NamedTuple

from keras_transformer.data.digests import text_digest

SHARE = 20  # no more than one pair in so many


class HeldOut(NamedTuple):
    """The pairs whose source has a digest from `first` to `last`."""

    first: int
    last: int

    def takes(self, source: str) -> bool:
        return self.first <= text_digest(source) <= self.last


NOTHING = HeldOut(0, -1)


def choose_held_out(sources: Iterable[str], most: int) -> HeldOut:
    """Chooses the pairs to hold out by their sources: at most `most` and one in SHARE, but at least one source, if
    there are two.

    It takes the smallest digests as long as their pairs are not too many. With at most 3 of many pairs:

        digest       12  35  41  77       12 is left out, it has too many pairs itself;
        pairs         9   1   2   4       35 and 41 have 3 together: HeldOut(35, 41)

    Reads all sources once.
    """
    numbers = {}  # of the `most` + 1 smallest digests: how many pairs have it
    largest = []  # the same digests negated, a heap whose first is the largest of them
    num_pairs = 0
    for source in sources:
        num_pairs += 1
        digest = text_digest(source)
        if digest in numbers:
            numbers[digest] += 1
        elif len(largest) <= most or digest < -largest[0]:
            heapq.heappush(largest, -digest)
            numbers[digest] = 1
            if len(largest) > most + 1:
                del numbers[-heapq.heappop(largest)]
    if len(numbers) < 2:
        return NOTHING
    wanted, digests = min(most, max(1, num_pairs // SHARE)), sorted(numbers)
    few = [digest for digest in digests if numbers[digest] <= wanted]
    if not few:  # all of these sources have many translations
        fewest = min(digests, key=numbers.get)
        return HeldOut(fewest, fewest)
    digests = digests[digests.index(few[0]) :]
    totals = itertools.accumulate(numbers[digest] for digest in digests)
    return HeldOut(few[0], max(digest for digest, total in zip(digests, totals, strict=True) if total <= wanted))
