"""Servers on free ports of 127.0.0.1, in a thread or in a process of their own."""

import contextlib
import os
import re
import subprocess
import sys
import threading
import time

import requests
import uvicorn


@contextlib.contextmanager
def in_thread(application):
    """The URL of an ASGI application."""
    config = uvicorn.Config(
        application, port=0, loop="asyncio", http="h11", ws="none", lifespan="on", log_level="error"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


class Process:
    """python -m export.serve, on a free port."""

    def __init__(self, folder, *arguments):
        command = [sys.executable, "-m", "export.serve", "--model", str(folder), "--port", "0", *arguments]
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
        self.lines = []
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        self._reading = threading.Thread(target=self._read)
        self._reading.start()
        self.url = re.search(r"http://[\d.:]+", self.wait_for("^serving "))[0]

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)

    def wait_for(self, pattern, seconds=60):
        """The first line that the pattern is found in."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for line in list(self.lines):
                if re.search(pattern, line):
                    return line
            assert self.process.poll() is None, "".join(self.lines)
            time.sleep(0.02)
        raise AssertionError(f"no line with {pattern!r} in {self.lines}")

    def said(self):
        """All lines but TensorFlow's own."""
        return [line for line in self.lines if not re.match(r"[IWE]0000 |WARNING: All log|To enable", line)]

    def end(self, signal=None):
        """The exit code."""
        if signal is not None:
            self.process.send_signal(signal)
        try:
            return self.process.wait(20)
        finally:
            self.process.kill()
            self._reading.join()
            self.process.stderr.close()


def post(url, timeout=30, **content):
    return requests.post(url, json=content, timeout=timeout)
