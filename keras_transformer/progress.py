"""A progress bar on stderr: one line that is rewritten in a terminal, a line now and then in a log."""

import sys
import time

from keras_transformer.screen import warn

WIDTH = 30  # of the bar


class Progress:
    """A progress bar. Use it as a context, so that its last line is ended; what takes only a moment shows nothing.

    Args:
        title: What is going on.
        unit: What is counted.
        total: Where the count ends, if that is known.
    """

    def __init__(self, title: str, unit: str, total: int | None = None):
        self.title, self.unit, self.total = title, unit, total
        self.done = self._done_shown = 0
        self._is_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._interval = 0.2 if self._is_terminal else 10.0  # seconds
        self._begin = self._shown = time.monotonic()

    def __enter__(self):
        return self

    def add(self, number: int):
        self.done += number
        if time.monotonic() - self._shown >= self._interval:
            self._show()

    def count(self, items):
        """Hands the items on and counts them."""
        with self:
            for item in items:
                self.add(1)
                yield item

    def __exit__(self, *_):
        if self._shown > self._begin:
            if self.done != self._done_shown:
                self._show()
            if self._is_terminal:
                warn()

    def _show(self):
        self._shown, self._done_shown = time.monotonic(), self.done
        speed = self.done / (self._shown - self._begin)
        line = f"{self.title} {self._bar()}{self.done:,} {self.unit}, {speed:,.{0 if speed >= 10 else 1}f}/s"
        start, end = ("\r", "") if self._is_terminal else ("", "\n")
        warn(start + line, end=end)

    def _bar(self) -> str:
        if not self.total:
            return ""
        filled = min(WIDTH, WIDTH * self.done // self.total)
        return f"[{'=' * filled}{' ' * (WIDTH - filled)}] "
