"""Cuts words at random into other pieces: subword regularisation.

    ▁lower  --BPE-->      ▁lo we r    some of its merges are left out (Provilkov et al. 2020)
            --unigram-->  ▁l ower     one of all ways, the likely ones more often (Kudo 2018)

SentencePiece can do that too, but its random numbers may differ from process to process, and a run that was stopped has
to go on with the batches that it would have had. Here they come from `random.Random`, which Python promises to keep.
"""

import heapq
import math
from bisect import bisect
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate

from sentencepiece import sentencepiece_model_pb2

SPACE = "▁"  # begins a word
KEPT_WORDS = 2**14  # of what is known about words; of long ones that are some kB each


class Subwords:
    """The pieces of a SentencePiece model.

    Args:
        model_bytes: The serialised model, of the kind bpe or unigram.
    """

    def __init__(self, model_bytes: bytes):
        self._model_bytes = model_bytes
        model = sentencepiece_model_pb2.ModelProto.FromString(model_bytes)
        normal = {id_: piece for id_, piece in enumerate(model.pieces) if piece.type == piece.NORMAL}
        self._pieces = {id_: piece.piece for id_, piece in normal.items()}
        self._ids = {piece: id_ for id_, piece in self._pieces.items()}
        self._scores = {piece.piece: piece.score for piece in normal.values()}
        self._inside = {id_ for id_, piece in self._pieces.items() if not piece.startswith(SPACE)}  # of a word
        self._longest = max(map(len, self._ids), default=0)
        self._is_bpe = model.trainer_spec.model_type == model.trainer_spec.BPE
        self._known = lru_cache(KEPT_WORDS)(self._known)
        self._ways = lru_cache(KEPT_WORDS)(self._ways)

    def __reduce__(self):
        return Subwords, (self._model_bytes,)

    def sample(self, ids: Sequence[int], amount: float, random: Callable[[], float]) -> list[int]:
        """The ids of one text, every word cut anew.

        What is not a piece of the vocabulary, an unknown character or a byte, stays and splits its word.

        Args:
            ids: As SentencePiece cuts the text.
            amount: The probability of leaving out a merge, or how much a likely path is preferred.
            random: Gives a number from 0 to 1, 1 excluded.
        """
        ids, sampled, begin = list(ids), [], 0
        for end in range(1, len(ids) + 1):
            if end == len(ids) or ids[end] not in self._inside or ids[end - 1] not in self._pieces:
                sampled += self._cut(tuple(ids[begin:end]), amount, random)
                begin = end
        return sampled

    def _cut(self, ids, amount, random):
        word = self._known(ids)
        if word is None:
            return ids
        pieces = self._merged(word, amount, random) if self._is_bpe else self._path(word, amount, random)
        return [self._ids[piece] for piece in pieces]

    def _known(self, ids):
        """The written form of a word, or None if one of its characters is no piece: it could not be cut there."""
        word = "".join(self._pieces.get(id_, "") for id_ in ids)
        return word if len(word) > 1 and all(character in self._ids for character in word) else None

    def _merged(self, word, amount, random):
        """Cuts a word by the merges of BPE, the best first; each is left out with probability `amount`. -> pieces"""
        pieces = list(word)  # one that has been merged into the one before it becomes ""
        left, right = list(range(-1, len(word) - 1)), list(range(1, len(word) + 1))
        merges = []  # (how late, place, what comes of it)

        def consider(place):
            after = right[place]
            if place >= 0 and after < len(pieces) and (both := pieces[place] + pieces[after]) in self._scores:
                heapq.heappush(merges, (-self._scores[both], place, both))

        for place in range(len(word) - 1):
            consider(place)
        while merges:
            _, place, both = heapq.heappop(merges)
            after = right[place]
            if not pieces[place] or after == len(pieces) or pieces[place] + pieces[after] != both:
                continue  # one of the two has been merged otherwise
            if random() < amount:
                continue
            pieces[place], pieces[after] = both, ""
            right[place] = right[after]
            if right[place] < len(pieces):
                left[right[place]] = place
            consider(left[place])
            consider(place)
        return [piece for piece in pieces if piece]

    def _path(self, word, amount, random):
        """A way through the word, with a probability in proportion to those of its pieces to the power of `amount`."""
        ways, pieces, end = self._ways(word, amount), [], len(word)
        while end:
            begins, shares = ways[end]
            begin = begins[min(bisect(shares, random() * shares[-1]), len(begins) - 1)]
            pieces.append(word[begin:end])
            end = begin
        return pieces[::-1]

    def _ways(self, word, amount):
        """For every end of a piece, where that piece may begin, and the cumulated shares of these beginnings."""
        totals, ways = [0.0], [None]  # totals: log of all ways up to there
        for end in range(1, len(word) + 1):
            begins = [begin for begin in range(max(0, end - self._longest), end) if word[begin:end] in self._ids]
            logs = [totals[begin] + amount * self._scores[word[begin:end]] for begin in begins]
            highest = max(logs)
            shares = list(accumulate(math.exp(log - highest) for log in logs))
            totals.append(highest + math.log(shares[-1]))
            ways.append((begins, shares))
        return ways
