"""A validation set where none was given: some pairs are held out of train.

Which ones is decided by a hash of the source text. So it depends neither on the order of the lines (a corpus may be
sorted by length or by topic) nor on the run's seed, and all translations of one source fall on the same side.
"""

import heapq
from collections.abc import Iterable

from keras_transformer.data.digests import text_digest

ONE_PAIR_IN = 20  # no more than one pair in so many
FREQUENT_ONE_IN = 10  # a source with more than one in so many of these pairs is taken only where others are too few


class HeldOut(frozenset):
    """The digests of the sources whose pairs are held out."""

    def takes(self, source: str) -> bool:
        return text_digest(source) in self


NOTHING = HeldOut()


def choose_held_out(sources: Iterable[str], most: int) -> HeldOut:
    """Chooses the pairs to hold out by their sources: at most `most` and one in twenty, but one source at least, if
    there are two.

    Of the `most` + 1 sources with the smallest digests it takes one after the other, rare ones first, and leaves out
    those whose pairs are too many. With at most 3 of many pairs:

        digest       12  35  41  77       35, 41 and 77 have 3 together
        pairs         9   1   1   1       12 stays in train

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
    wanted, digests = min(most, max(1, num_pairs // ONE_PAIR_IN)), sorted(numbers)
    left, chosen = wanted, []
    for digest in sorted(digests, key=lambda digest: numbers[digest] * FREQUENT_ONE_IN > wanted):
        if numbers[digest] <= left:
            chosen.append(digest)
            left -= numbers[digest]
    return HeldOut(chosen or [min(digests, key=numbers.get)])  # where all of these sources have many translations
