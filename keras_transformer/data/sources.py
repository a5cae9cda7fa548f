"""Where pairs of sentences come from: line-aligned text files, a TSV, a TFDS translate set, the built-in demo corpus.

    data.train                              pairs
    ["a.en", "a.de"]                        line i of a.en with line i of a.de; `.gz` is decompressed on the way
    [["a.en", "b.en"], ["a.de", "b.de"]]    the same for several files, one after the other
    "a.tsv"                                 columns 1 and 2 of every line; further columns are ignored
    "tfds:wmt14_translate/de-en"            German to English; "en-de" reads the same set the other way round
    "tfds:opus/medical/de-en"               the same, with the builder's config named
    "demo"                                  English to German

Text is UTF-8. A line ends at "\\n" and nowhere else (U+2028, U+0085 and a lone "\\r" are text); a "\\r" before it and a
byte order mark at the start of a file are dropped; the last line may lack its end. What could shift the alignment or
garble the text is refused, with file and line: invalid UTF-8, different numbers of lines, a TSV line of one column. NUL
is valid UTF-8 and comes through, so that no line number shifts; cleaning leaves such pairs out of training.
"""

from collections.abc import Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import NamedTuple

from keras_transformer.config import DataConfig, TextSource
from keras_transformer.data.demo import demo_pairs
from keras_transformer.files import DAMAGED_GZIP, open_binary

Pair = tuple[str, str]  # source text, target text
DEMO_PAIRS = {"train": 40_000, "valid": 1_000, "test": 1_000}  # unless a limit says otherwise
TFDS_SPLITS = {"train": "train", "valid": "validation", "test": "test"}
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class DataError(ValueError):
    """Text that cannot be used: says which file and line, what was expected, then what came."""


def read_pairs(corpus: TextSource, split: str = "train", *, reverse: bool = False, limit: int | None = None):
    """The pairs of `corpus` one at a time, as an iterator of (source text, target text).

    Args:
        split: train, valid or test; it matters for TFDS and demo alone, since files have no splits.
        reverse: Swap the two sides.
        limit: Read no more than the first `limit` pairs.
    """
    if isinstance(corpus, tuple | list):
        pairs = read_aligned(*sides(corpus))
    elif corpus == "demo":
        pairs = demo_pairs(split, limit or DEMO_PAIRS[split])
    elif corpus.startswith("tfds:"):
        pairs = read_tfds(corpus, split)
    else:
        pairs = read_tsv(Path(corpus))
    pairs = islice(pairs, limit)
    return ((second, first) for first, second in pairs) if reverse else pairs


def splits(corpus: TextSource | None) -> set[str]:
    """Which of train, valid and test `corpus` has built in; none where it is made of files, or not known.

    A corpus of TensorFlow Datasets is downloaded and prepared for that, if it has not been.
    """
    if corpus == "demo":
        return set(DEMO_PAIRS)
    if isinstance(corpus, str) and corpus.startswith("tfds:"):
        builder = tfds_translation(corpus).builder
        builder.download_and_prepare()  # nothing to do from the second time on
        return {split for split, name in TFDS_SPLITS.items() if name in builder.info.splits}
    return set()


def evaluation_corpus(data: DataConfig) -> TextSource | None:
    """Where the test set is: `data.test`, or `data.train` where that has one of its own."""
    return data.train if data.test is None and "test" in splits(data.train) else data.test


def files(corpus: TextSource) -> list[Path]:
    """The files that `corpus` is made of, in order; none for TFDS and demo."""
    if isinstance(corpus, tuple | list):
        first, second = sides(corpus)
        return first + second
    return [] if corpus == "demo" or corpus.startswith("tfds:") else [Path(corpus)]


def sides(corpus) -> tuple[list[Path], list[Path]]:
    """The files of the two sides; an error if one side has more than the other."""
    first, second = ([Path(side)] if isinstance(side, str) else [Path(path) for path in side] for side in corpus)
    if len(first) != len(second):
        raise DataError(f"Both sides must have equal numbers of files. Received: {_names(first)} and {_names(second)}.")
    return first, second


def _names(paths) -> str:
    return "[" + ", ".join(map(str, paths)) + "]"


# --- Files --------------------------------------------------------------------------------------------------------


def read_aligned(first_side: list[Path], second_side: list[Path]) -> Iterator[Pair]:
    """Line i of each file with line i of its counterpart."""
    for first_path, second_path in zip(first_side, second_side, strict=True):
        first_lines, second_lines = read_lines(first_path), read_lines(second_path)
        for number, (first, second) in enumerate(zip_longest(first_lines, second_lines)):
            if first is None or second is None:
                rest = 1 + sum(1 for _ in (second_lines if first is None else first_lines))
                counts = (number, number + rest) if first is None else (number + rest, number)
                raise DataError(
                    "The two sides must have the same number of lines. "
                    f"Received: {counts[0]:,} in {first_path}, {counts[1]:,} in {second_path}."
                )
            yield first, second


def read_tsv(path: Path) -> Iterator[Pair]:
    if ".tsv" not in [suffix.lower() for suffix in path.suffixes[-2:]]:
        raise DataError(
            "A corpus must be a pair of text files, one .tsv file, 'tfds:NAME/SOURCE-TARGET' or 'demo'. "
            f"Received: {str(path)!r}."
        )
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.split("\t")
        if len(columns) < 2:
            raise DataError(f"{path}, line {number}: expected two columns with a tab between. Received: {line[:80]!r}.")
        yield columns[0], columns[1]


def read_lines(path: Path) -> Iterator[str]:
    """The lines of one UTF-8 file, plain or .gz, without their ends."""
    number = 0
    try:
        with open_binary(path) as file:
            for number, line in enumerate(file, start=1):  # a binary file splits at b"\n" alone
                if number == 1:
                    line = line.removeprefix(BYTE_ORDER_MARK)
                yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        is_utf16 = number == 1 and error.object[:2] in (b"\xff\xfe", b"\xfe\xff")
        raise DataError(
            f"{path}, line {number}: expected UTF-8. "
            f"Received: byte 0x{error.object[error.start]:02x} at column {error.start + 1}"
            + (". The file looks like UTF-16." if is_utf16 else ".")
        ) from error
    except DAMAGED_GZIP as error:
        raise DataError(f"{path}: the gzip file is damaged after line {number}: {error}.") from error
    except OSError as error:
        raise DataError(f"{path}: expected a readable text file. Received: {error.strerror}.") from error
    if number == 0:
        raise DataError(f"{path}: expected at least one line. Received: an empty file.")


# --- TFDS ---------------------------------------------------------------------------------------------------------


class TfdsTranslation(NamedTuple):
    """A TFDS builder and the direction that was asked for."""

    name: str  # wmt14_translate/de-en
    builder: object  # tfds.core.DatasetBuilder
    source: str  # de
    target: str  # en


def tfds_translation(corpus: str) -> TfdsTranslation:
    """'tfds:NAME/SOURCE-TARGET' or 'tfds:NAME/CONFIG/SOURCE-TARGET' -> the builder that has the two languages."""
    tfds = import_tfds()
    path, _, direction = corpus.removeprefix("tfds:").rpartition("/")
    name, *config = path.split("/")
    source, dash, target = direction.partition("-")
    if not name or not dash or len(config) > 1:
        raise DataError(f"A TFDS corpus must be 'tfds:NAME/SOURCE-TARGET'. Received: {corpus!r}.")
    try:
        if not config:
            config = usual_config(tfds.builder_cls(name).builder_configs, source, target)
        name = "/".join([name, *config])
        builder = tfds.builder(name)
    except ValueError as error:  # no such set or config; TFDS goes on to list all that it has
        raise DataError(f"TFDS does not know {corpus!r}: {str(error).splitlines()[0]}") from error
    languages = list(builder.info.features)
    if not {source, target} <= set(languages):
        raise DataError(f"{corpus!r} must name two languages of {name}: {', '.join(languages)}.")
    return TfdsTranslation(name, builder, source, target)


def usual_config(known, source: str, target: str) -> list[str]:
    """The config for a pair of languages as TFDS names them: de-en, de_to_en, deen; in either order."""
    orders = ((source, target), (target, source))
    names = [first + sign + second for first, second in orders for sign in ("-", "_to_", "")]
    found = [name for name in names if name in known][:1]
    if known and not found:
        raise ValueError(f"none of its configs is for {source} and {target}: {', '.join(known)}")
    return found


def import_tfds():
    try:
        import importlib_resources  # noqa: F401 - TFDS 4.9.10 needs it and does not say so (tensorflow/datasets 11212)
        import tensorflow_datasets
    except ImportError as error:
        raise DataError(f'TFDS corpora need more packages: pip install -e ".[tfds]" ({error}).') from error
    return tensorflow_datasets


def read_tfds(corpus: str, split: str) -> Iterator[Pair]:
    """The pairs of one split, in the order of the files. Downloads and prepares the set where that was not done yet."""
    tfds = import_tfds()
    name, _, source, target = tfds_translation(corpus)
    try:
        examples = tfds.load(name, split=TFDS_SPLITS[split], shuffle_files=False)
    except ValueError as error:  # no such split
        raise DataError(f"{corpus} cannot be read: {str(error).splitlines()[0]}") from error
    for number, example in enumerate(tfds.as_numpy(examples)):
        try:  # a newline would break the sentence in two wherever it is written as a line
            yield tuple(example[side].decode("utf-8").replace("\n", " ") for side in (source, target))
        except UnicodeDecodeError as error:
            raise DataError(f"{corpus}, {split}, example {number}: expected UTF-8. Received: {error}.") from error
