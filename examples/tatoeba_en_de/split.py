"""Splits the English-German pairs of manythings.org/anki so that valid and test share no sentence with train.

    python examples/tatoeba_en_de/split.py --from data/deu.txt --to data/tatoeba_ende      # of deu-eng.zip, unpacked

A line is English, a tab, German, and perhaps a tab and its attribution, which is left out: keep deu.txt or _about.txt
beside the text, as the licence requires. Which sentences are held out depends on a hash of the English side alone, so
a later version of the file moves few of them.
"""

import argparse
import hashlib
from pathlib import Path

from keras_transformer_cli.importing import importing_tensorflow

with importing_tensorflow():
    from keras_transformer.data.sources import DataError, read_lines

NUM_HELD_OUT = 1500  # pairs of valid and of test each


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="pairs", metavar="FILE", required=True, help="deu.txt")
    parser.add_argument("--to", metavar="FOLDER", required=True, help="for train.en, train.de, valid.en and so on")
    options = parser.parse_args(arguments)
    try:
        pairs = list(read(Path(options.pairs)))
    except DataError as error:
        parser.error(str(error))
    parts = split(pairs, NUM_HELD_OUT)
    if not parts["train"]:
        parser.error(f"--from must hold more than {2 * NUM_HELD_OUT:,} sentences. Received: {len(pairs):,} pairs.")
    folder = Path(options.to)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(str(error))
    for name, pairs in parts.items():
        for language, side in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
            text = "".join(f"{sentence}\n" for sentence in side)
            (folder / f"{name}.{language}").write_text(text, encoding="utf-8", newline="\n")
        print(f"{name}: {len(pairs):,} pairs")


def read(path):
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.split("\t")
        if len(columns) < 2:
            raise DataError(f"{path}, line {number}: expected two columns and a tab between. Received: {line!r:.80}.")
        yield columns[0], columns[1]


def split(pairs, num_held_out):
    """-> {"train": pairs, "valid": pairs, "test": pairs}; the first translation of a sentence that is held out."""
    first = {}
    for english, german in pairs:
        first.setdefault(english, german)
    chosen = sorted(first, key=lambda english: hashlib.sha256(english.encode()).digest())[: 2 * num_held_out]
    held_out = [(english, first[english]) for english in chosen]
    known = {english for english, _ in held_out}, {german for _, german in held_out}
    train = [pair for pair in pairs if pair[0] not in known[0] and pair[1] not in known[1]]
    return {"train": train, "valid": held_out[:num_held_out], "test": held_out[num_held_out:]}


if __name__ == "__main__":
    main()
