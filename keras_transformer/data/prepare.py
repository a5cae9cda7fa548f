"""Everything between a `DataConfig` and the first batch, made once and kept in the workdir.

    tokenizer.model           SentencePiece (source.model and target.model where the vocabularies are separate)
    data/
      train/, valid/          the tokenised corpora (data/corpus.py)
      held_out.source         the validation set where none was given: pairs taken out of train, one a line
      held_out.target
      held_out.json           which pairs these are
      tokenizer.json          what the tokenizer was made of
      files.json              hashes of the text files (data/fingerprint.py)
      lock                    held while a process prepares; others wait, and then find everything done

Each product is stored with a key, a hash of all that it is made of: text, options, tokenizer. As long as its key is the
same it is used again; otherwise it is made anew.
"""

import fcntl
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from random import Random
from typing import NamedTuple

from keras_transformer.config import ConfigError, DataConfig
from keras_transformer.data import sources
from keras_transformer.data.cleaning import Cleaning
from keras_transformer.data.corpus import FORMAT, Corpus, build_corpus
from keras_transformer.data.digests import digest
from keras_transformer.data.fingerprint import FileHashes, fingerprint
from keras_transformer.data.held_out import NOTHING, HeldOut, choose_held_out
from keras_transformer.data.sources import DataError, Pair, read_pairs
from keras_transformer.files import read_json, write_json, write_text
from keras_transformer.progress import Progress
from keras_transformer.tokenizer import Tokenizer, Tokenizers

DATA_FILES = tuple(f"data/{name}" for name in ("tokenizer.json", "files.json"))  # that would be written over
DATA_FILES += tuple(f"data/held_out.{end}" for end in ("json", "source", "target"))
# The fields of `DataConfig` that each product depends on, besides the text.
CLEANING = ("max_length_ratio", "drop_duplicates", "drop_identical")
TOKENIZER = (
    "tokenizer", "vocab_size", "shared_vocab", "byte_fallback", "lowercase", "character_coverage", "tokenizer_pairs"
)  # fmt: skip
HELD_OUT_FORMAT = 2  # of held_out.json: a list of digests; 1 was the first and the last of a range
CANNOT_CHANGE_VALID = (
    "cannot be added or removed later, because without it pairs are held out of train. Give another --workdir, or the "
    "old value."
)


class Prepared(NamedTuple):
    """The tokenizers and the text of a run, prepared."""

    tokenizers: Tokenizers
    train: Corpus
    valid: Corpus
    valid_text: list[Pair]  # every pair of the validation set, as it is written
    test_text: list[Pair] | None


def prepare(
    data: DataConfig,
    folder: str | Path,
    say: Callable[[str], None] = print,
    begun: bool = False,
    given: Tokenizers | None = None,
) -> Prepared:
    """Makes what is missing or out of date below `folder`, opens the rest, and reports on both.

    Where training has `begun`, its text and tokenizer must be what they were: a model means nothing with other ids.
    Tokenizers that are `given`, or that `data.tokenizer_model` names, are taken instead of being trained. Files of
    these are not needed any more once it has begun.
    """
    if data.train is None:
        raise ConfigError("`data.train` must be the text to train on. Received: None.")
    folder = Path(folder)
    (folder / "data").mkdir(parents=True, exist_ok=True)
    with open(folder / "data" / "lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _Preparation(data, folder, say, begun, given).run()


class _Preparation:
    def __init__(
        self, data: DataConfig, folder: Path, say: Callable[[str], None], begun: bool, given: Tokenizers | None
    ):
        self.data, self.folder, self.say, self.begun, self.given = data, folder, say, begun, given
        self.hashes = FileHashes(folder / "data" / "files.json")
        self.held_out = NOTHING
        if data.tokenizer_files:
            is_gone = begun and not all(Path(path).exists() for path in data.tokenizer_files)
            self.given = (load_tokenizers(folder) if is_gone else None) or adopt(data)
        self.num_pairs = None  # of train, for the progress bar, once they were counted

    def run(self) -> Prepared:
        data, built_in = self.data, sources.splits(self.data.train)
        text = fingerprint(data.train, "train", self.hashes)
        train_of = [text, data.reverse, data.max_pairs, self._options(CLEANING)]  # what the training pairs are made of
        train_of += ["lowercase"] if data.lowercase else []
        test = sources.evaluation_corpus(data)
        test_text = None if test is None else self._small(test, "test", data.reverse)
        if data.valid is not None or "valid" in built_in:
            self._hold_nothing_out()
            valid, reverse = data.valid or data.train, data.reverse
        else:
            self.held_out, valid = self._hold_out(digest([train_of, data.valid_pairs, HELD_OUT_FORMAT]))
            reverse = False
            train_of.append(sorted(self.held_out))
        valid_text = self._small(valid, "valid", reverse)
        options = TOKENIZER + (("symbols",) if data.symbols else ())
        tokenizers_of = model_hashes(self.given) if self.given else self._options(options)
        tokenizers = self._tokenizers(digest([train_of, tokenizers_of]))
        train_corpus = self._corpus("train", train_of, self._train_pairs, tokenizers, data)
        valid_corpus = self._corpus(
            "valid",
            [fingerprint(valid, "valid", self.hashes), reverse],
            lambda cleaning: cleaning.clean(read_pairs(valid, "valid", reverse=reverse)),
            tokenizers,
            DataConfig(max_length=data.max_length),
        )
        return Prepared(tokenizers, train_corpus, valid_corpus, valid_text, test_text)

    def _small(self, corpus, split, reverse) -> list[Pair]:
        """The pairs of a small set. One that is given is read before the training text is cleaned."""
        for path in sources.files(corpus):
            self.hashes.hash(path)  # refuses a pipe, which a run that goes on would wait for
        return list(read_pairs(corpus, split, reverse=reverse))

    def _options(self, names) -> dict:
        return {name: getattr(self.data, name) for name in names}

    def _train_pairs(self, cleaning: Cleaning) -> Iterator[Pair]:
        pairs = read_pairs(self.data.train, "train", reverse=self.data.reverse, limit=self.data.max_pairs)
        for pair in cleaning.clean(pairs):
            if self.held_out.takes(self.data.folded(pair[0])):
                cleaning.hold_out()
            else:
                yield pair

    def _hold_nothing_out(self):
        files = [self.folder / "data" / f"held_out.{end}" for end in ("json", "source", "target")]
        if self.begun and files[0].exists() and self.data.valid is not None:
            raise DataError(
                f"`data.valid` {CANNOT_CHANGE_VALID} Received: data.valid={self.data.valid!r} for a run without one."
            )
        for path in [] if self.begun else files:
            path.unlink(missing_ok=True)

    def _hold_out(self, key: str) -> tuple[HeldOut, tuple[str, str]]:
        """Chooses the pairs to hold out, or reads which they were. -> the pairs, the two files that hold them"""
        paths = [self.folder / "data" / f"held_out.{side}" for side in ("source", "target")]
        record = self.folder / "data" / "held_out.json"
        known = read_json(record)
        if self.begun and not known and read_json(self.folder / "data" / "tokenizer.json"):
            raise DataError(
                f"`data.valid` {CANNOT_CHANGE_VALID} Received: none, for a run with one, or whose text had one of its "
                f"own, or whose {record} is lost."
            )
        self._refuse_change(known, key)
        if known.get("key") == key and all(path.exists() for path in paths):
            return HeldOut(known["digests"]), tuple(map(str, paths))
        progress = Progress("Choosing the validation set", "pairs")
        pairs, folded = progress.count(self._train_pairs(Cleaning(self.data))), self.data.folded
        held_out = choose_held_out((folded(source) for source, _ in pairs), self.data.valid_pairs)
        cleaning = Cleaning(self.data)
        taken = [pair for pair in self._train_pairs(cleaning) if held_out.takes(folded(pair[0]))]
        if not taken:
            raise DataError(
                "`data.train` has too few different source sentences to hold some out. Give `data.valid`.\n"
                + cleaning.summary("train")
            )
        for path, lines in zip(paths, zip(*taken, strict=True), strict=True):
            write_text(path, "".join(f"{line}\n" for line in lines))
        write_json(record, {"key": key, "digests": sorted(held_out)})
        self.say(f"valid: `data.valid` is not given, so {len(taken):,} pairs are held out of train")
        return held_out, tuple(map(str, paths))

    def _refuse_change(self, known: dict, key: str):
        if not self.begun or known.get("key") == key:
            return
        wrong = (
            f"The training text or the tokenizer of {self.folder} has changed since; compressing text changes it, too. "
            "Give another --workdir, or what it was."
        )
        if not known:
            wrong = f"That text is no longer known: {self.folder / 'data'} is incomplete. Give another --workdir."
        raise DataError(f"A run is resumed with the text and the tokenizer that it began with. {wrong}")

    def _tokenizers(self, key: str) -> Tokenizers:
        record = self.folder / "data" / "tokenizer.json"
        known = read_json(record)
        self._refuse_change(known, key)
        tokenizers = load_tokenizers(self.folder)
        if tokenizers is None or known != {"key": key, "models": model_hashes(tokenizers)}:
            tokenizers = self.given or self._train_tokenizers()
            if self.begun and model_hashes(tokenizers) != known["models"]:
                raise DataError(f"A run is resumed with its tokenizer. That of {self.folder} is missing or different.")
            tokenizers.save(self.folder)
            write_json(record, {"key": key, "models": model_hashes(tokenizers)})
        sizes = [f"{tokenizer.vocab_size:,}" for tokenizer in dict.fromkeys(tokenizers)]
        kind = "given" if self.given else self.data.tokenizer
        self.say(f"tokenizer: {kind}, {' and '.join(sizes)} pieces")
        return tokenizers

    def _train_tokenizers(self) -> Tokenizers:
        data, cleaning = self.data, Cleaning(self.data)
        progress = Progress("Reading for the tokenizer", "pairs")
        sample, self.num_pairs = draw(progress.count(self._train_pairs(cleaning)), data.tokenizer_pairs)
        if not sample:
            raise DataError(f"No pair is left after cleaning. {cleaning.summary('train')}")

        def train(sentences: Iterable[str]) -> Tokenizer:
            return Tokenizer.train(
                sentences,
                vocab_size=data.vocab_size,
                kind=data.tokenizer,
                byte_fallback=data.byte_fallback,
                lowercase=data.lowercase,
                character_coverage=data.character_coverage,
                symbols=data.symbols,
            )

        try:
            if data.shared_vocab:
                return Tokenizers(*[train(chain.from_iterable(sample))] * 2)
            return Tokenizers(*(train(side) for side in zip(*sample, strict=True)))
        except ValueError as error:
            raise ConfigError(str(error)) from error

    def _corpus(self, name: str, made_of, pairs, tokenizers: Tokenizers, data: DataConfig) -> Corpus:
        """Opens data/`name`, or builds it from what `pairs` gives, cleaned by the rules of `data`."""
        folder = self.folder / "data" / name
        key = digest([FORMAT, made_of, model_hashes(tokenizers), data.max_length])
        corpus = open_corpus(folder, tokenizers, key, self.say)
        if corpus is None:
            cleaning = Cleaning(data)
            total = self.num_pairs if name == "train" else None
            corpus = build_corpus(folder, pairs(cleaning), tokenizers, cleaning, key=key, total=total)
        self.say(corpus.meta["report"])
        return corpus


def open_corpus(folder: Path, tokenizers: Tokenizers, key: str, say) -> Corpus | None:
    """The stored corpus, or None where it must be built, with the reason reported if there was one before."""
    if not folder.exists():
        return None
    try:
        corpus = Corpus(folder, tokenizers)
    except DataError as error:
        say(f"{error} Building it again.")
        return None
    if corpus.key != key:
        say(f"{folder}: text, tokenizer, options or version have changed. Building the corpus again.")
        return None
    return corpus


def adopt(data: DataConfig) -> Tokenizers:
    """The tokenizers of `data.tokenizer_model`."""
    try:
        found = [Tokenizer.adopt(path) for path in data.tokenizer_files]
    except OSError as error:
        received = f"{error.filename} ({error.strerror})"
        raise DataError(f"`data.tokenizer_model` must be readable. Received: {received}.") from error
    except ValueError as error:
        raise DataError(f"`data.tokenizer_model`: {error}") from error
    if any(tokenizer.lowercase != data.lowercase for tokenizer in found):
        folds = " and ".join("folds case" if tokenizer.lowercase else "keeps case" for tokenizer in found)
        raise DataError(
            f"`data.lowercase` must be what the models of `data.tokenizer_model` do. Received: "
            f"data.lowercase={data.lowercase}, and {', '.join(data.tokenizer_files)} {folds}."
        )
    return Tokenizers(found[0], found[-1])


def load_tokenizers(folder: Path) -> Tokenizers | None:
    try:
        return Tokenizers.load(folder)
    except (OSError, ValueError):  # there is none, or it is damaged
        return None


def model_hashes(tokenizers: Tokenizers) -> list[str]:
    return [tokenizer.model_hash for tokenizer in tokenizers]


def draw(pairs: Iterable[Pair], most: int) -> tuple[list[Pair], int]:
    """At most `most` of the pairs, each with the same chance, and how many there were (Vitter's algorithm R)."""
    sample, num_pairs, random = [], 0, Random(0).random
    for num_pairs, pair in enumerate(pairs, start=1):
        if len(sample) < most:
            sample.append(pair)
        else:
            place = int(random() * num_pairs)
            if place < most:
                sample[place] = pair
    return sample, num_pairs
