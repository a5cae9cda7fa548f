import os
import platform
import time

import pytest

from export.versions import MAX_SECONDS, ExportError, free_version, publish, remove_stale, versions
from keras_transformer import files


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def fill(folder):
    (folder / "variables").mkdir(parents=True)
    (folder / "variables" / "variables.index").write_text("7", encoding="utf-8")


def test_versions_are_the_folders_that_a_server_takes_for_them(tmp_path):
    for name in ("10", "9", "0", "007", "12x", "-3", "1.5", "²", "serving", ".writing-11-1", str(2**63)):
        (tmp_path / name).mkdir()
    (tmp_path / "11").touch()
    assert versions(tmp_path) == [9, 10]


def test_the_next_version_is_the_one_after_the_last(tmp_path):
    assert free_version(tmp_path, None) == 1
    (tmp_path / "9").mkdir()
    assert (free_version(tmp_path, None), free_version(tmp_path, 3)) == (10, 3)
    (tmp_path / "0012").mkdir()  # TF Serving takes it for version 12
    (tmp_path / "13").touch()
    assert free_version(tmp_path, None) == 14


def test_a_version_that_exists_is_refused(tmp_path):
    (tmp_path / "2").mkdir()
    with pytest.raises(ExportError, match="Version 2 exists"):
        free_version(tmp_path, 2)


@pytest.mark.parametrize("version", [0, -1, 2**63, 10**23])
def test_a_version_that_a_server_cannot_count_is_refused(tmp_path, version):
    with pytest.raises(ExportError, match=f"a positive integer of at most {2**63 - 1}. Received: {version}"):
        free_version(tmp_path, version)
    assert free_version(tmp_path, 2**63 - 1) == 2**63 - 1


def test_after_the_last_number_there_is_no_next_one(tmp_path):
    (tmp_path / str(2**63 - 1)).mkdir()
    with pytest.raises(ExportError, match=f"Received: {2**63}"):
        free_version(tmp_path, None)
    assert free_version(tmp_path, 3) == 3


def test_a_version_appears_when_all_of_it_is_written(tmp_path):
    seen = []

    def write(folder):
        fill(folder)
        seen.extend(names(tmp_path))

    path = publish(tmp_path, 4, write)
    assert seen == [f".writing-4-{os.getpid()}-{platform.node()}"]  # no integer: a server does not see it
    assert path == tmp_path / "4" and names(tmp_path) == ["4"]
    assert (path / "variables" / "variables.index").read_text(encoding="utf-8") == "7"


def test_a_version_appears_when_all_of_it_is_on_the_disk(tmp_path, monkeypatch):
    done = []
    sync, rename = files.sync, os.rename

    def note(name, function):
        return lambda path, *to: (done.append((name, path)), function(path, *to))

    monkeypatch.setattr(files, "sync", note("sync", sync))
    monkeypatch.setattr(os, "rename", note("rename", rename))
    publish(tmp_path, 4, fill)
    writing = tmp_path / f".writing-4-{os.getpid()}-{platform.node()}"
    parts = {writing, writing / "variables", writing / "variables" / "variables.index"}
    assert {path for _, path in done[:3]} == parts and {name for name, _ in done[:3]} == {"sync"}
    assert done[3:] == [("rename", writing), ("sync", tmp_path)]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, ExportError, OSError])
def test_an_interruption_leaves_nothing(tmp_path, interruption):
    def write(folder):
        fill(folder)
        raise interruption

    with pytest.raises(interruption):
        publish(tmp_path, 1, write)
    assert names(tmp_path) == []


def test_a_version_that_came_in_the_meantime_stays_as_it_is(tmp_path):
    def write(folder):
        fill(folder)
        fill(tmp_path / "1")
        (tmp_path / "1" / "theirs").touch()

    with pytest.raises(ExportError, match="in the meantime"):
        publish(tmp_path, 1, write)
    assert names(tmp_path) == ["1"] and names(tmp_path / "1") == ["theirs", "variables"]


def test_of_two_exports_without_a_number_the_slower_is_the_next_version(tmp_path):
    def write(folder):
        fill(folder)
        fill(tmp_path / "1")

    assert publish(tmp_path, None, write) == tmp_path / "2"
    assert names(tmp_path) == ["1", "2"]


def test_a_version_that_cannot_be_renamed_is_an_error(tmp_path, monkeypatch):
    def rename(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(OSError, match="Permission denied"):
        publish(tmp_path, None, fill)
    assert names(tmp_path) == []


def test_what_killed_exports_have_left_is_removed_and_what_others_write_is_not(no_process, tmp_path):
    here, there = platform.node(), "another-machine"
    (tmp_path / f".writing-1-{no_process}-{here}" / "variables").mkdir(parents=True)
    (tmp_path / f".writing-1-{os.getpid()}-{here}").mkdir()  # of an earlier process with this one's number
    (tmp_path / f".writing-1-{os.getppid()}-{here}").mkdir()
    (tmp_path / f".writing-2-{os.getpid()}-{there}").mkdir()
    (tmp_path / f".writing-3-{no_process}-{there}").mkdir()
    yesterday = time.time() - MAX_SECONDS - 1
    (tmp_path / f".writing-4-{os.getppid()}-{there}").mkdir()
    os.utime(tmp_path / f".writing-4-{os.getppid()}-{there}", (yesterday, yesterday))
    remove_stale(tmp_path)
    kept = [
        f".writing-1-{os.getppid()}-{here}",
        f".writing-2-{os.getpid()}-{there}",
        f".writing-3-{no_process}-{there}",
    ]
    assert names(tmp_path) == kept
