"""Progress on stderr: one line that is rewritten in a terminal, a line now and then in a log."""

import sys
import time

from keras_transformer.screen import warn

WIDTH = 30  # of the bar


class StatusLine:
    """The line that tells how far something is, written over in a terminal.

    Args:
        in_terminal: Seconds between two lines there.
        in_log: Seconds between two lines elsewhere.
    """

    def __init__(self, in_terminal: float, in_log: float):
        self._is_terminal = sys.stderr is not None and sys.stderr.isatty()
        self.interval = in_terminal if self._is_terminal else in_log

    def show(self, text: str):
        start, end = ("\r\033[K", "") if self._is_terminal else ("", "\n")
        warn(start + text, end=end)

    def clear(self):
        if self._is_terminal:
            warn("\r\033[K", end="")

    def end(self):
        if self._is_terminal:
            warn()


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
        self._line = StatusLine(in_terminal=0.2, in_log=10.0)
        self._begin = self._shown = time.monotonic()

    def __enter__(self):
        return self

    def add(self, number: int):
        self.done += number
        if time.monotonic() - self._shown >= self._line.interval:
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
            self._line.end()

    def _show(self):
        self._shown, self._done_shown = time.monotonic(), self.done
        speed = self.done / (self._shown - self._begin)
        self._line.show(f"{self.title} {self._bar()}{self.done:,} {self.unit}, {speed:,.{0 if speed >= 10 else 1}f}/s")

    def _bar(self) -> str:
        if not self.total:
            return ""
        filled = min(WIDTH, WIDTH * self.done // self.total)
        return f"[{'=' * filled}{' ' * (WIDTH - filled)}] "


def duration(seconds: float) -> str:
    """65 -> 1:05, 3605 -> 1:00:05"""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
