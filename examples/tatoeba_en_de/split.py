"""Splits the English-German pairs of manythings.org/anki so that valid and test share no sentence with train.

    python examples/tatoeba_en_de/split.py --from data/deu.txt --to data/tatoeba_ende      # of deu-eng.zip, unpacked

A line is English, a tab, German, and perhaps a tab and its attribution, which is left out: keep deu.txt or _about.txt
beside the text, for the licence wants it. Which sentences are held out depends on a hash of the English side alone, so
a later version of the file moves few of them.
"""

import argparse
import hashlib
from pathlib import Path

NUM_HELD_OUT = 1500  # pairs of valid and of test each


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="pairs", metavar="FILE", required=True, help="deu.txt")
    parser.add_argument("--to", metavar="FOLDER", required=True, help="for train.en, train.de, valid.en and so on")
    options = parser.parse_args(arguments)
    lines = Path(options.pairs).read_bytes().decode("utf-8-sig").removesuffix("\n").split("\n")
    folder = Path(options.to)
    folder.mkdir(parents=True, exist_ok=True)
    for name, pairs in split([tuple(line.split("\t")[:2]) for line in lines], NUM_HELD_OUT).items():
        for language, side in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
            text = "".join(f"{sentence}\n" for sentence in side)
            (folder / f"{name}.{language}").write_text(text, encoding="utf-8", newline="\n")
        print(f"{name}: {len(pairs):,} pairs")


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
