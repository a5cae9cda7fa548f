"""The log of a run: a line on the screen, `log.jsonl` and TensorBoard, all from the same sums.

A line of `log.jsonl` is a record, one JSON object of kind "train" (means over the steps since the previous one) or
"valid". A resumed run drops the records after its checkpoint, so its file differs from that of an uninterrupted run
only in the fields of time: `seconds`, which go on from the last record that is kept, and `tokens_per_second`.
"""

import contextlib
import functools
import importlib.util
import json
import math
import time

import tensorflow as tf

from keras_transformer.files import sync, write_text
from keras_transformer.metrics import perplexity
from keras_transformer.progress import StatusLine, duration
from keras_transformer.screen import say, warn
from keras_transformer_cli.errors import reason


class Journal:
    """The records of one run.

    Args:
        workdir: where `log.jsonl` and `tensorboard/` lie.
        total_steps: for the progress line.
        enabled: False in the workers that are not the chief; they keep the sums and write nothing.
    """

    def __init__(self, workdir, total_steps, *, enabled=True):
        self.path, self.total_steps, self.enabled = workdir / "log.jsonl", total_steps, enabled
        self.sums = dict.fromkeys(("loss", "nll", "tokens", "skipped"), 0.0)
        self.num_skipped = self.skipped_in_a_row = 0
        self._progress = TrainingProgress(total_steps) if enabled else None
        self._started = time.monotonic()
        self.begin()

    @functools.cached_property
    def _tensorboard(self):
        self.clear_line()  # for a warning
        return _tensorboard(self.path.parent / "tensorboard")

    def state(self):
        return {"sums": self.sums, "num_skipped": self.num_skipped, "skipped_in_a_row": self.skipped_in_a_row}

    def restore(self, state, step):
        """Goes on from the records of a run that stood at `step`."""
        self.sums, self.num_skipped = dict(state["sums"]), state["num_skipped"]
        self.skipped_in_a_row = state["skipped_in_a_row"]
        if self.enabled:
            kept = [record for record in read_log(self.path) if record["step"] <= step]
            rewrite_log(self.path, kept)
            self._started -= max((record.get("seconds", 0.0) for record in kept), default=0.0)

    def begin(self):
        """Starts measuring the speed of training: time and tokens count from now on."""
        self._window_started, self._window_tokens = time.monotonic(), 0.0

    def add(self, step, logs, learning_rate):
        """Adds what one step gave: sums over its tokens."""
        skipped = int(logs["skipped"])
        self.num_skipped += skipped
        self.skipped_in_a_row = self.skipped_in_a_row + 1 if skipped else 0
        self.sums["skipped"] += skipped
        self._window_tokens += float(logs["tokens"])
        if not skipped:
            for name in ("loss", "nll", "tokens"):
                self.sums[name] += float(logs[name])
        if self.enabled:
            self._progress.show(
                step, {**self.means(), "learning_rate": learning_rate, "skipped": self.num_skipped}, self._speed()
            )

    def means(self):
        tokens = self.sums["tokens"]
        if not tokens:  # nothing but skipped steps
            return {"loss": None, "perplexity": None}
        return {"loss": self.sums["loss"] / tokens, "perplexity": perplexity(self.sums["nll"] / tokens)}

    def write_train(self, step, learning_rate, gradient_norm):
        """Writes one record of the steps since the last one, and sets their sums back to 0."""
        record = {
            "kind": "train",
            "step": step,
            **self.means(),
            "learning_rate": learning_rate,
            "gradient_norm": gradient_norm if math.isfinite(gradient_norm) else None,
            "tokens": int(self.sums["tokens"]),
            "skipped": int(self.sums["skipped"]),
            "tokens_per_second": round(self._speed(), 1),
        }
        self.sums = dict.fromkeys(self.sums, 0.0)
        self.write(record)
        self.begin()

    def write(self, record):
        """Appends one record, and the seconds that the run has taken, to the log and to TensorBoard."""
        if not self.enabled:
            return
        record = {**record, "seconds": round(self._seconds(), 3)}
        is_new = not self.path.exists()
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        for path in [self.path, self.path.parent][: 1 + is_new]:  # no checkpoint may survive a power cut without them
            sync(path)
        if self._tensorboard is not None:
            self._show_in_tensorboard(record)

    def _show_in_tensorboard(self, record):
        try:
            with self._tensorboard.as_default(step=record["step"]):
                for name, value in record.items():
                    if name not in ("kind", "step") and isinstance(value, int | float):
                        tf.summary.scalar(f"{record['kind']}/{name}", value)
        except tf.errors.OpError as error:
            self._tensorboard = None
            self.clear_line()
            warn(f"TensorBoard gets no more records: {reason(error.message)}")

    @contextlib.contextmanager
    def pause_clock(self):
        """Time spent inside does not count against the speed of training."""
        began = time.monotonic()
        yield
        self._window_started += time.monotonic() - began

    def say(self, text):
        if self.enabled:
            self.clear_line()
            say(text)

    def clear_line(self):
        """Removes the progress line from a terminal."""
        if self.enabled:
            self._progress.line.clear()

    def _seconds(self):
        return time.monotonic() - self._started

    def _speed(self):
        return self._window_tokens / max(time.monotonic() - self._window_started, 1e-9)


def _tensorboard(folder):
    """A writer to a folder, or None where TensorBoard is not installed or the folder cannot be written."""
    if not importlib.util.find_spec("tensorboard"):  # without it tf.summary fails
        return None
    try:
        return tf.summary.create_file_writer(str(folder))
    except tf.errors.OpError as error:
        warn(f"TensorBoard gets no records: {folder}: {reason(error.message)}")
        return None


class TrainingProgress:
    """Tells how far the run is, how it learns and how long it will take."""

    def __init__(self, total_steps):
        self.total_steps, self.shown, self.first = total_steps, 0.0, None
        self.line = StatusLine(in_terminal=0.25, in_log=20.0)

    def show(self, step, figures, speed):
        now = time.monotonic()
        self.first = self.first or (step - 1, now)
        if now - self.shown < self.line.interval and step != self.total_steps:
            return
        self.shown = now
        rate = (step - self.first[0]) / max(now - self.first[1], 1e-9)
        left = duration((self.total_steps - step) / rate) if rate > 0 and step > self.first[0] + 1 else "?"
        means = "no finite gradient"
        if figures["loss"] is not None:
            means = f"loss {figures['loss']:.3f}  perplexity {figures['perplexity']:.2f}"
        skipped = f"  {figures['skipped']} skipped" if figures["skipped"] else ""
        self.line.show(
            f"step {step:>6}/{self.total_steps}  {100 * step // self.total_steps:>3}%  {means}{skipped}  "
            f"learning rate {figures['learning_rate']:.1e}  {speed:,.0f} target tokens/s  {left} left"
        )


def read_log(path):
    """The records of a log. Anything else is left out: a last line that was cut off by a kill, or damage."""
    if not path.exists():
        return []
    records = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        with contextlib.suppress(json.JSONDecodeError):
            record = json.loads(line)
            if isinstance(record, dict) and {"kind", "step"} <= record.keys():
                records.append(record)
    return records


def rewrite_log(path, records):
    write_text(path, "".join(json.dumps(record) + "\n" for record in records))
