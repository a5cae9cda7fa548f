import gzip
import os
import time

import pytest

from keras_transformer.data import fingerprint as module
from keras_transformer.data.fingerprint import FileHashes, fingerprint
from keras_transformer.data.sources import DataError


@pytest.fixture
def hashes(tmp_path):
    return FileHashes(tmp_path / "files.json")


def age(path, seconds=60):
    """Sets the time of the last change into the past."""
    then = time.time_ns() - seconds * 10**9
    os.utime(path, ns=(then, then))


def test_it_changes_with_the_text_alone(write, hashes):
    first, second = write("a", ["x", "y"]), write("b", ["u", "v"])
    copy = write("c", ["x", "y"])
    expected = fingerprint((first, second), "train", hashes)
    assert fingerprint((copy, second), "train", hashes) == expected
    assert fingerprint((second, first), "train", hashes) != expected
    write("a", ["x", "z"])  # the same size
    assert fingerprint((first, second), "train", hashes) != expected


def test_the_demo_corpus_counts_by_split():
    values = [fingerprint("demo", split, None) for split in ("train", "valid", "train")]
    assert values[0] == values[2] != values[1]


def test_files_are_not_read_again_while_they_look_the_same(write, tmp_path, hashes, monkeypatch):
    path = write("a.gz", gzip.compress(b"x\n"))
    age(path)
    expected = fingerprint(path, "train", hashes)
    monkeypatch.setattr(module.hashlib, "file_digest", None)  # reading would fail
    assert fingerprint(path, "train", FileHashes(tmp_path / "files.json")) == expected


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_change_right_after_the_hash_is_noticed_even_if_the_clock_stands_still(write, hashes, seconds):
    path = write("a", ["x"])
    age(path, seconds)
    stat = os.stat(path)
    before = fingerprint(path, "train", hashes)
    write("a", ["y"])
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert fingerprint(path, "train", hashes) != before


def test_a_later_change_is_noticed(write, hashes):
    path = write("a", ["x"])
    age(path)
    before = fingerprint(path, "train", hashes)
    write("a", ["y"])
    assert fingerprint(path, "train", hashes) != before


def test_lost_or_damaged_records_cost_time_only(write, tmp_path):
    path = write("a", ["x"])
    age(path)
    expected = fingerprint(path, "train", FileHashes(tmp_path / "files.json"))
    write("files.json", b"{damaged")
    assert fingerprint(path, "train", FileHashes(tmp_path / "files.json")) == expected


def test_a_missing_file_is_named(hashes, tmp_path):
    with pytest.raises(DataError, match="missing.tsv.*No such file"):
        fingerprint(str(tmp_path / "missing.tsv"), "train", hashes)


def test_a_pipe_is_refused(tmp_path, hashes):
    os.mkfifo(tmp_path / "p.en")
    with pytest.raises(DataError, match="p.en: expected a file that can be read several times"):
        fingerprint((str(tmp_path / "p.en"), str(tmp_path / "p.en")), "train", hashes)
