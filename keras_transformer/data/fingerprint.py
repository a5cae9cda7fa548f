"""What a corpus is, as a short value that changes whenever the text does.

Files count by the SHA-256 of what is stored (of compressed text that of the compressed file), wherever they lie and
whatever they are called. So that a run need not read gigabytes when it starts, the hashes are kept together with each
file's size and time of change. Where these are as they were, the contents are taken to be the same (as git and make
do), except within two seconds of the change: some file systems keep no finer times. TFDS sets count by name, version
and sizes, and the demo corpus by its first sentences.
"""

import hashlib
import itertools
import os
import stat
import time
from pathlib import Path

from keras_transformer.config import TextSource
from keras_transformer.data import sources
from keras_transformer.data.digests import digest
from keras_transformer.data.sources import DataError
from keras_transformer.files import read_json, write_json

RACY = 2_000_000_000  # nanoseconds


def fingerprint(corpus: TextSource, split: str, hashes: "FileHashes"):
    """A JSON value that stands for the text of one split."""
    if corpus == "demo":
        return ["demo", split, digest(list(itertools.islice(sources.read_pairs("demo", split), 1000)))]
    if isinstance(corpus, str) and corpus.startswith("tfds:"):
        if split not in sources.splits(corpus):
            raise DataError(f"{corpus} has no split for {split}.")
        translation = sources.tfds_translation(corpus)
        info = translation.builder.info
        size = info.splits[sources.TFDS_SPLITS[split]]
        return [info.full_name, split, translation.source, translation.target, size.num_examples, size.num_bytes]
    return [hashes.hash(path) for path in sources.files(corpus)]


class FileHashes:
    """SHA-256 of files, remembered in the JSON file `path`."""

    def __init__(self, path: Path):
        self.path = path
        self._known = read_json(path)

    def hash(self, file: Path) -> str:
        now = time.time_ns()
        try:
            found = os.stat(file)
            if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
                raise DataError(
                    f"{file}: expected a file that can be read several times. Received: a pipe or a device."
                )
            state, name = [found.st_size, found.st_mtime_ns], str(file.resolve())
            known = self._known.get(name, {})
            if known.get("state") == state:
                return known["sha256"]
            with open(file, "rb") as opened:
                sha256 = hashlib.file_digest(opened, "sha256").hexdigest()
        except OSError as error:
            raise DataError(f"{file}: expected a readable text file. Received: {error.strerror}.") from error
        if found.st_mtime_ns < now - RACY:
            self._known[name] = {"state": state, "sha256": sha256}
            write_json(self.path, self._known)
        return sha256
