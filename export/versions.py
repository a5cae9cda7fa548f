"""The versions of a model in its folder: a server sees each of them as a whole, at any moment, or not at all.

    served/demo/.writing-2-4711-amber/     version 2, which process 4711 of the machine amber writes and checks
    served/demo/2/                         renamed, once all of it is on the disk

TF Serving looks for integers every second and loads what it finds, half-written or not.
"""

import contextlib
import os
import platform
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

WRITING = re.compile(r"\.writing-\d+-(\d+)-(.*)")  # version, process, machine
MAX_SECONDS = 24 * 3600.0  # seconds that another machine is given for an export
MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # of a model: it stands in URLs, command lines and YAML
MAX_VERSION = 2**63 - 1  # a server keeps it in 64 bits and takes no notice of a folder with a larger number


class ExportError(RuntimeError):
    """An export that failed: its result is not what it should be, or there is no place for it."""

    exit_code = 1  # of a command that it ends


def name_of(to: Path) -> str:
    """The name of a model: that of the folder of its versions, or for WORKDIR/export that of the run."""
    to = Path(os.path.realpath(to))  # a link has the name of what it leads to
    return to.parent.name if to.name == "export" and MODEL_NAME.fullmatch(to.parent.name) else to.name


def versions(to: Path) -> list[int]:
    """The versions in a folder that can be served: its folders with the names 1, 2 and so on."""
    names = [path.name for path in to.iterdir() if path.is_dir()]
    return sorted(number for number in _numbers(names) if number and str(number) in names)


def _numbers(names):
    """The numbers that TF Serving takes names for: 007 is one."""
    numbers = {int(name) for name in names if name.isascii() and name.isdecimal()}
    return {number for number in numbers if number <= MAX_VERSION}


def free_version(to: Path, version: int | None) -> int:
    """`version`, if that number is free; for None the number after the last."""
    taken = _numbers([path.name for path in to.iterdir()] if to.is_dir() else [])  # by files too
    if version is None:
        version = max(taken, default=0) + 1
    if not 1 <= version <= MAX_VERSION:
        raise ExportError(f"A version is a positive integer of at most {MAX_VERSION}. Received: {version}.")
    if version in taken:
        raise ExportError(f"Version {version} exists in {to}; a server may be using it. Give another number, or none.")
    return version


def publish(to: Path, version: int | None, write: Callable[[Path], None]) -> Path:
    """Lets `write(folder)` make a folder, then makes it `version`; for None the one after the last that there is then.

    After an error or a signal nothing is left.
    """
    from keras_transformer.files import sync  # here, because it brings TensorFlow, which takes seconds

    to.mkdir(parents=True, exist_ok=True)
    remove_stale(to)
    writing = to / f".writing-{free_version(to, version)}-{os.getpid()}-{platform.node()}"
    try:
        write(writing)
        for path in [*writing.rglob("*"), writing]:
            sync(path)
        final = _rename(writing, to, version)
        sync(to)
    finally:
        shutil.rmtree(writing, ignore_errors=True)
    return final


def _rename(writing, to, version):
    while True:
        final = to / str(version or free_version(to, None))
        try:
            os.rename(writing, final)
            return final
        except OSError as error:
            if not final.is_dir():
                raise
            if version:
                raise ExportError(f"Another export has written {final} in the meantime ({error.strerror}).") from error


def remove_stale(to: Path):
    """Removes what exports that were killed have left."""
    for path in to.iterdir():
        writing = WRITING.fullmatch(path.name)
        if writing and not _may_be_written(path, int(writing[1]), machine=writing[2]):
            shutil.rmtree(path, ignore_errors=True)


def _may_be_written(path, process, machine):
    if machine == platform.node():
        return _is_alive(process)
    with contextlib.suppress(FileNotFoundError):  # or its export has just ended
        return time.time() - path.stat().st_mtime < MAX_SECONDS
    return False


def _is_alive(process):
    if process == os.getpid():
        return False  # its number has come round: this process has not begun to write
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is someone else's
        return True
    return True
