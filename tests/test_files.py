import contextlib
import errno
import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_transformer import Transformer, files
from keras_transformer.files import (
    filling,
    may_be_filled,
    read_json,
    replacing,
    save_model,
    sync,
    write_json,
    write_text,
)


def test_what_is_written_is_what_is_read(tmp_path):
    value = {"text": "naïve\u2028", "name of a file": "\udcff", "numbers": [1, 2.5, None]}
    write_json(tmp_path / "a.json", value)
    assert read_json(tmp_path / "a.json") == value


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff", b"null"])
def test_what_is_not_an_object_reads_as_an_empty_one(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    assert read_json(tmp_path / "a.json") == {}
    assert read_json(tmp_path / "missing.json") == {}


def test_text_is_utf8_with_plain_newlines(tmp_path):
    write_text(tmp_path / "a", "ä\n\r\n\u2028")
    assert (tmp_path / "a").read_bytes() == "ä\n\r\n\u2028".encode()


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    write_json(tmp_path / "a.json", {"old": 1})
    with pytest.raises(UnicodeEncodeError):
        write_text(tmp_path / "a.json", "\ud800")
    assert read_json(tmp_path / "a.json") == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_file_is_the_old_one_until_all_of_the_new_one_is_written(tmp_path, error):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(error), replacing(path) as aside:
        aside.write_bytes(b"half")
        assert path.read_bytes() == b"old"
        raise error
    assert path.read_bytes() == b"old" and [file.name for file in tmp_path.iterdir()] == ["a"]
    with replacing(path, tmp_path / "b") as aside:
        assert aside == tmp_path / "b"
        aside.write_bytes(b"new")
    assert path.read_bytes() == b"new" and [file.name for file in tmp_path.iterdir()] == ["a"]


def test_a_file_is_on_the_disk_before_its_name_and_its_name_before_the_block_is_left(tmp_path, monkeypatch):
    fsync, replace, events = os.fsync, os.replace, []

    def flushed(descriptor):
        fsync(descriptor)
        events.append(os.fstat(descriptor).st_ino)

    def renamed(old, new):
        replace(old, new)
        events.append("renamed")

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "replace", renamed)
    with replacing(tmp_path / "a") as aside:
        aside.write_bytes(b"new")
        assert events == []
    assert events == [(tmp_path / "a").stat().st_ino, "renamed", tmp_path.stat().st_ino]


def test_an_error_of_writing_names_the_file(tmp_path):
    with pytest.raises(OSError, match=f"No space left on device: '{tmp_path / 'a'}'"), replacing(tmp_path / "a"):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError, match="named"), replacing(tmp_path / "a"):
        raise OSError(errno.ENOSPC, "No space left on device", "named")


@pytest.mark.parametrize(("number", "is_an_error"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_file_system_need_not_flush_the_names_of_a_folder(tmp_path, monkeypatch, number, is_an_error):
    monkeypatch.setattr(os, "fsync", lambda descriptor: (_ for _ in ()).throw(OSError(number, "refused")))
    with pytest.raises(OSError, match="refused") if is_an_error else contextlib.nullcontext():
        sync(tmp_path)
    (tmp_path / "a").touch()
    with pytest.raises(OSError, match="refused"):
        sync(tmp_path / "a")


NAMES = "a", "b", "last"
KILLED = """
import os, runpy, signal, sys
from pathlib import Path

filling = runpy.run_path({files!r})["filling"]  # without the package, which would bring TensorFlow
folder, calls_left = Path(sys.argv[1]), int(sys.argv[2])

def counted(call):
    def made(*arguments, **options):
        global calls_left
        calls_left -= 1
        if calls_left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **options)
    return made

for name in ("mkdir", "replace", "unlink", "fsync", "rmdir"):
    setattr(os, name, counted(getattr(os, name)))
with filling(folder, {names}) as aside:
    for name in ("b", "last"):
        (aside / name).write_text("new")
"""


def fill(folder, content, names):
    with filling(folder, NAMES) as aside:
        for name in names:
            (aside / name).write_text(content)


def contents(folder):
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


def test_a_folder_is_filled_as_a_whole(tmp_path):
    folder = tmp_path / "new" / "folder"
    assert may_be_filled(folder, NAMES)
    for content, names in {"1": ("a", "last"), "2": ("b", "last")}.items():
        fill(folder, content, names)
        assert contents(folder) == dict.fromkeys(names, content)
        assert not may_be_filled(folder, NAMES)
    with pytest.raises(OSError, match="full"), filling(folder, NAMES) as aside:
        (aside / "last").write_text("3")
        raise OSError("full")
    assert contents(folder) == {"b": "2", "last": "2"} and len(list(folder.iterdir())) == 2


@pytest.mark.parametrize(
    "found, may", [((), True), (("a", ".partial"), True), (("a",), False), (("notes", ".partial"), False),
                   (("last", ".partial"), False)]
)  # fmt: skip
def test_only_what_a_killed_process_left_may_be_filled_again(tmp_path, found, may):
    for name in found:
        (tmp_path / name).mkdir()
    assert may_be_filled(tmp_path, NAMES) == may
    (tmp_path / "file").touch()
    assert not may_be_filled(tmp_path / "file", NAMES)


@pytest.mark.parametrize("is_new", [True, False])
def test_a_process_killed_anywhere_leaves_old_or_new_files_or_none_of_the_last_name(tmp_path, is_new):
    old, new = {} if is_new else {"a": "old", "last": "old"}, {"b": "new", "last": "new"}
    found = []
    for calls in itertools.count():
        folder = tmp_path / str(calls)
        if not is_new:
            fill(folder, "old", old)
        program = KILLED.format(names=NAMES, files=files.__file__)
        child = subprocess.run([sys.executable, "-c", program, folder, str(calls)], timeout=60)
        state = contents(folder) if folder.exists() else {}
        assert state in (old, new) or "last" not in state
        found.append(state)
        if child.returncode == 0:
            break
        assert child.returncode == -signal.SIGKILL
        assert state in (old, new) or may_be_filled(folder, NAMES)
        fill(folder, "again", ("a", "last"))
        assert contents(folder) == {"a": "again", "last": "again"}
    assert found[0] == old and found[-1] == new and len(found) > 8


def test_a_saved_model_replaces_the_old_one_at_once(tmp_path):
    path = tmp_path / "model.keras"
    for seed in (1, 2):
        keras.utils.set_random_seed(seed)
        model = Transformer(31, d_model=8, d_ff=11, num_heads=2, num_encoder_layers=1, num_decoder_layers=1)
        save_model(model, path)
        loaded = keras.saving.load_model(path)
        for ours, theirs in zip(model.get_weights(), loaded.get_weights(), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert [file.name for file in tmp_path.iterdir()] == ["model.keras"]


def test_a_model_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "model.keras"
    model = Transformer(31, d_model=8, d_ff=11, num_heads=2, num_encoder_layers=1, num_decoder_layers=1)
    save_model(model, path)
    before = path.read_bytes()

    def run_out(self, aside):
        Path(aside).write_bytes(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Transformer, "save", run_out)
    with pytest.raises(OSError, match="No space left"):
        save_model(model, path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["model.keras"]
