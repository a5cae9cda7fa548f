"""Leaves out unfit training pairs, and accounts for them.

train: 29,000 pairs read, 28,871 kept
       118  duplicate
        11  longer than 256 pieces
       245  of 801,118 pieces are unknown to the tokenizer
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from keras_transformer.config import DataConfig
from keras_transformer.data.digests import text_digest
from keras_transformer.data.sources import Pair
from keras_transformer.tokenizer import UNK_ID


class Cleaning:
    """The rules of a `DataConfig`, and the counts of what they left out and of unknown pieces.

    `clean` judges the text and `fits` the ids, which are known later. Duplicates are recognised by 64 bits of each
    pair, in about 100 bytes of memory a pair; the chance that two of 4.5 million different pairs have the same bits is
    one in a million.
    """

    def __init__(self, data: DataConfig):
        self.data = data
        self.num_read = self.num_pieces = self.num_unknown = 0
        self.dropped: Counter[str] = Counter()
        self._seen: set[int] = set()

    def clean(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        for pair in pairs:
            self.num_read += 1
            reason = self._objection(*pair)
            if reason is None:
                yield pair
            else:
                self.dropped[reason] += 1

    def _objection(self, source: str, target: str) -> str | None:
        """Why the pair must go, or None."""
        if not source or not target or source.isspace() or target.isspace():
            return "empty side"
        if "\0" in source or "\0" in target:
            return "NUL character"
        same_source, same_target = self.data.folded(source), self.data.folded(target)
        if self.data.drop_identical and same_source == same_target:
            return "identical sides"
        longest, shortest = max(len(source), len(target)), min(len(source), len(target))
        if self.data.max_length_ratio is not None and longest > self.data.max_length_ratio * shortest:
            return f"lengths beyond a ratio of {self.data.max_length_ratio:g}"
        if self.data.drop_duplicates:
            digest = text_digest(f"{same_source}\0{same_target}")
            if digest in self._seen:
                return "duplicate"
            self._seen.add(digest)
        return None

    def fits(self, source_ids: list[int], target_ids: list[int]) -> bool:
        """Whether the tokenised pair stays. The ids include the end of sentence."""
        if max(len(source_ids), len(target_ids)) > self.data.max_length:
            self.dropped[f"longer than {self.data.max_length} pieces"] += 1
            return False
        if min(len(source_ids), len(target_ids)) < 2:  # nothing but characters that the tokenizer drops
            self.dropped["empty side"] += 1
            return False
        self.num_pieces += len(source_ids) + len(target_ids)
        self.num_unknown += source_ids.count(UNK_ID) + target_ids.count(UNK_ID)
        return True

    def hold_out(self):
        """Counts a pair that goes to the validation set instead."""
        self.dropped["held out for validation"] += 1

    def summary(self, name: str) -> str:
        kept = self.num_read - sum(self.dropped.values())
        lines = [f"{name}: {self.num_read:,} pairs read, {kept:,} kept"]
        counts = self.dropped.most_common()
        if self.num_unknown:
            counts.append((f"of {self.num_pieces:,} pieces are unknown to the tokenizer", self.num_unknown))
        return "\n".join(lines + [f"{count:>10,}  {what}" for what, count in counts])
