"""Which versions of a model are loaded, and what became of the others.

    served/demo/1   AVAILABLE   it has the label `stable`
    served/demo/2   END         unloaded when version 3 was there and its last request was answered
    served/demo/3   AVAILABLE   the newest: it answers requests that name no version
    served/demo/4   END         with an error: it is broken. Tried again when its files change

A version whose SavedModel is replaced, as by an export after its folder was removed, is loaded again.
The newest version that can be loaded is, and so are those with a label; TF Serving has the one before the newest too. A
version is loaded before another is unloaded for it, and a label moves once its new version is loaded.
"""

import asyncio
import contextlib
import gc
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from export.serve import RequestError
from export.versions import versions

POLL = 1.0  # seconds, as TF Serving
LOADING = 5  # seconds after which a client should ask again


class State(NamedTuple):
    name: str  # LOADING, AVAILABLE, UNLOADING, END
    error: str = ""


class Versions:
    """The versions in `folder`.

    Args:
        load: turns the path of a version into what serves it; called in a thread, may raise anything.
        report: called with a line for everything that happens.
        labels: returns the labels and their versions; called in a thread, may raise OSError and ValueError.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        load: Callable,
        report: Callable[[str], None],
        labels: Callable[[], Mapping[str, int]] = dict,
    ):
        self.name = name
        self._folder, self._load, self._report, self._read_labels = folder, load, report, labels
        # Not asyncio's own threads: these are waited for when the loop ends, and loading may take a minute.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="load")
        self._states: dict[int, State] = {}
        self._broken: dict[int, frozenset] = {}  # the files that could not be loaded
        self._loaded = {}  # by version
        self._stamps: dict[int, tuple] = {}  # of those that are loaded, see `_stamp`
        self._newest: int | None = None  # of those that are loaded
        self._labels: dict[str, int] = {}
        self._num_requests: dict[int, int] = {}  # under way, by version
        self._has_looked = False
        self._complaints: dict[str, str | None] = {}  # the last one about each subject

    async def watch(self):
        """Polls until it is cancelled."""
        while True:
            try:
                await self.poll()
                self._complain("folder", None)
            except Exception as error:  # the folder cannot be read, which may pass; whatever it is, go on looking
                self._complain("folder", _in_one_line(error))
            await asyncio.sleep(POLL)

    async def poll(self):
        """Looks at the folder once, and loads and unloads versions."""
        try:
            await self._poll()
        finally:
            self._has_looked = True

    async def _poll(self):
        found, labels = await asyncio.get_running_loop().run_in_executor(self._thread, self._look)
        hint = f"; those of a run are in {self._folder / 'export'}" if (self._folder / "export").is_dir() else ""
        waiting = f"waiting for a version, a folder with a number for a name, in {self._folder}{hint}"
        self._complain("versions", None if found or self._loaded else waiting)
        if not found:
            return
        self._label(labels)
        for version in found:  # the newest that can be loaded
            if await self._load_once(version, found):
                self._newest = version
                break
        for version in sorted(set(labels.values())):
            await self._load_once(version, found)
        self._label(labels)
        for version in self._loaded.keys() - {self._newest, *self._labels.values()}:
            await self._unload(version)

    def _label(self, labels):
        """A new label is there at once; one that moves stays where it is until its new version is loaded."""
        self._labels = {
            label: version if version in self._loaded else self._labels.get(label, version)
            for label, version in labels.items()
        }

    def states(self, version: int | None = None) -> list[tuple[int, State]]:
        """The states of one version or of all, newest first."""
        self._require_a_look()
        if version is not None and version not in self._states:
            raise RequestError(404, f"Could not find version {version} of model {self.name}")
        if not self._states:
            raise RequestError(404, f"Could not find any versions of model {self.name}")
        asked = sorted(self._states, reverse=True) if version is None else [version]
        return [(each, self._states[each]) for each in asked]

    @contextlib.contextmanager
    def use(self, version: int | None = None, label: str | None = None) -> Iterator:
        """What serves a version, given by number or label, or the newest; it is not unloaded in the meantime."""
        used = self._find(version if label is None else self._version_of(label))
        self._num_requests[used] = self._num_requests.get(used, 0) + 1
        try:
            yield self._loaded[used]
        finally:
            self._num_requests[used] -= 1

    def _version_of(self, label):
        if label not in self._labels:
            raise RequestError(400, f"Unrecognized servable version label: {label}")
        return self._labels[label]

    def _find(self, version):
        """The version that answers: the newest for None."""
        asked = self._newest if version is None else version
        if asked in self._loaded:
            return asked
        loading = [each for each, state in self._states.items() if state.name == "LOADING"]
        if version in loading or (self._newest is None and loading):
            which = version if version in loading else loading[0]
            raise RequestError(503, f"Version {which} of model {self.name} is being loaded", retry_after=LOADING)
        self._require_a_look()
        which = f"Latest({self.name})" if version is None else f"Specific({self.name}, {version})"
        raise RequestError(404, f"Servable not found for request: {which}")

    def _require_a_look(self):
        if not self._has_looked:
            raise RequestError(503, f"The versions of model {self.name} are being looked for", retry_after=LOADING)

    def _look(self):
        """The versions that are loaded or not known to be broken, newest first, with what tells their SavedModels from
        others; and the labels, which stay as they were where these are damaged."""
        sound = [each for each in versions(self._folder) if each in self._loaded or self._is_sound(each)]
        found = {version: _stamp(self._folder / str(version)) for version in sorted(sound, reverse=True)}
        try:
            labels = self._read_labels()
        except (OSError, ValueError) as error:
            self._complain("labels", _in_one_line(error))
            return found, self._labels
        self._complain("labels", None)
        return found, labels

    def _is_sound(self, version):
        return version not in self._broken or self._broken[version] != _files(self._folder / str(version))

    async def _load_once(self, version, found):
        """Loads a version that was found, unless it is loaded or known to be broken. -> whether it is loaded now"""
        stamp = found.get(version)
        is_new = version in found and (version not in self._loaded or stamp not in (None, self._stamps[version]))
        if is_new and await asyncio.to_thread(self._is_sound, version):
            loaded = await self._try_to_load(version)
            if loaded is not None:
                self._loaded[version], self._stamps[version] = loaded, stamp
                gc.collect()  # see `_unload`: it may have replaced another one
            if version in self._loaded:  # else it goes on as it was
                self._states[version] = State("AVAILABLE")
        return version in self._loaded

    async def _try_to_load(self, version):
        folder, start = self._folder / str(version), time.monotonic()
        self._states[version] = State("LOADING")
        files = await asyncio.to_thread(_files, folder)  # before the loading: what comes later may repair it
        self._report(f"loading version {version}")
        loaded = await asyncio.get_running_loop().run_in_executor(self._thread, self._loaded_or_error, folder)
        if isinstance(loaded, Exception):
            message = _in_one_line(loaded)
            self._states[version] = State("END", message)
            self._broken[version] = files
            self._report(f"version {version} is broken: {message}")
            return None
        self._report(f"version {version} is available after {time.monotonic() - start:.1f} s")
        return loaded

    def _loaded_or_error(self, folder):
        """What serves the version in `folder`, or the error: asyncio never hands on a StopIteration that is raised."""
        try:
            return self._load(folder)
        except Exception as error:
            return error

    async def _unload(self, version):
        self._states[version] = State("UNLOADING")
        del self._loaded[version], self._stamps[version]  # the last request frees it
        while self._num_requests.get(version):
            await asyncio.sleep(0.02)
        self._num_requests.pop(version, None)
        self._states[version] = State("END")
        gc.collect()  # a SavedModel has cycles, and its weights are large
        self._report(f"version {version} is unloaded")

    def _complain(self, subject, message):
        """Reports what is wrong with a subject, None if nothing is, where that has changed: not each second."""
        if message not in (None, self._complaints.get(subject)):
            self._report(message)
        self._complaints[subject] = message


def _in_one_line(error):
    return " ".join(f"{type(error).__name__}: {error}".split())


def _stamp(folder):
    """What tells the SavedModel in a folder from another one in its place; None where there is none."""
    with contextlib.suppress(OSError):
        status = os.stat(folder / "saved_model.pb")
        return status.st_size, status.st_mtime_ns
    return None


def _files(folder):
    """The files of a version with sizes and times, which change when it is repaired."""
    paths = [os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names]
    found = set()
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(path)
            found.add((path, status.st_size, status.st_mtime_ns))
    return frozenset(found)
