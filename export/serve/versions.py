"""Which version of a model is loaded, and what became of the others.

    served/demo/1   END         unloaded when version 2 was there and its last request was answered
    served/demo/2   AVAILABLE
    served/demo/3   END         with an error: it is broken. Tried again when its files change

The newest version that can be loaded is served. It is loaded before the one before it is unloaded.
"""

import asyncio
import contextlib
import gc
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from export.serve import RequestError

POLL = 1.0  # seconds, as TF Serving


class State(NamedTuple):
    name: str  # LOADING, AVAILABLE, UNLOADING, END
    error: str = ""


class Versions:
    """The versions in `folder`.

    Args:
        load: the path of a version to what serves it; called in a thread, may raise anything.
        report: told in a line what happens.
    """

    def __init__(self, name: str, folder: Path, load: Callable, report: Callable[[str], None]):
        self.name = name
        self._folder, self._load, self._report = folder, load, report
        # Not asyncio's own threads: these are waited for when the loop ends, and loading may take a minute.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="load")
        self._states: dict[int, State] = {}
        self._broken: dict[int, frozenset] = {}  # the files that could not be loaded
        self._loaded = None
        self._version = None
        self._num_requests: dict[int, int] = {}  # under way, by version
        self._complaint = None

    async def watch(self):
        """Until it is cancelled."""
        while True:
            try:
                await self.poll()
            except OSError as error:  # the folder cannot be read; it may come back
                self._complain(str(error))
            await asyncio.sleep(POLL)

    async def poll(self):
        """Looks once, and loads and unloads."""
        wanted = await asyncio.to_thread(self._wanted)
        if wanted is None and self._version is None:
            self._complain(f"waiting for a version, a folder with a number for a name, in {self._folder}")
        if wanted is None or wanted == self._version:
            return
        loaded = await self._try_to_load(wanted)
        if loaded is None:
            return
        old, self._version, self._loaded = self._version, wanted, loaded  # the last request of the old one frees it
        self._states[wanted] = State("AVAILABLE")
        if old is not None:
            await self._unload(old)

    def states(self, version: int | None = None) -> list[tuple[int, State]]:
        """Of one version or of all, newest first."""
        if version is not None and version not in self._states:
            raise RequestError(404, f"Could not find version {version} of model {self.name}")
        if not self._states:
            raise RequestError(404, f"Could not find any versions of model {self.name}")
        asked = sorted(self._states, reverse=True) if version is None else [version]
        return [(each, self._states[each]) for each in asked]

    @contextlib.contextmanager
    def use(self, version: int | None = None) -> Iterator:
        """What serves a version, or the one that is loaded; it is not unloaded in the meantime."""
        loaded, used = self._find(version), self._version
        self._num_requests[used] = self._num_requests.get(used, 0) + 1
        try:
            yield loaded
        finally:
            self._num_requests[used] -= 1

    def _find(self, version):
        if self._loaded is not None and version in (None, self._version):
            return self._loaded
        loading = [each for each, state in self._states.items() if state.name == "LOADING"]
        if loading and (version in loading or (version is None and self._loaded is None)):
            raise RequestError(503, f"Version {loading[0]} of model {self.name} is being loaded")
        which = f"Latest({self.name})" if version is None else f"Specific({self.name}, {version})"
        raise RequestError(404, f"Servable not found for request: {which}")

    def _wanted(self):
        """The newest version that is not known to be broken."""
        for version, folder in sorted(_folders(self._folder).items(), reverse=True):
            if version not in self._broken or self._broken[version] != _files(folder):
                return version
        return None

    async def _try_to_load(self, version):
        folder, start = self._folder / str(version), time.monotonic()
        files = await asyncio.to_thread(_files, folder)  # before the loading: what comes later may repair it
        self._states[version] = State("LOADING")
        self._report(f"loading version {version}")
        try:
            loaded = await asyncio.get_running_loop().run_in_executor(self._thread, self._load, folder)
        except Exception as error:
            message = " ".join(f"{type(error).__name__}: {error}".split())
            self._states[version] = State("END", message)
            self._broken[version] = files
            self._report(f"version {version} is broken: {message}")
            return None
        self._report(f"version {version} is available after {time.monotonic() - start:.1f} s")
        return loaded

    async def _unload(self, version):
        self._states[version] = State("UNLOADING")
        while self._num_requests.get(version):
            await asyncio.sleep(0.02)
        self._num_requests.pop(version, None)
        self._states[version] = State("END")
        gc.collect()  # a SavedModel has cycles, and its weights are large
        self._report(f"version {version} is unloaded")

    def _complain(self, message):
        if message != self._complaint:  # not each second
            self._complaint = message
            self._report(message)


def _folders(folder):
    """The folders of versions: those with a positive integer for a name."""
    names = [path.name for path in folder.iterdir() if path.is_dir()]
    return {int(name): folder / name for name in names if name.isascii() and name.isdecimal() and name[0] != "0"}


def _files(folder):
    """What changes when a version is repaired."""
    paths = [os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names]
    found = set()
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(path)
            found.add((path, status.st_size, status.st_mtime_ns))
    return frozenset(found)
