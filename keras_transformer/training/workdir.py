"""The folder of one run: everything that the run reads and writes, and the rule that one process writes it at a time.

config.json           the whole configuration, as it was resolved
tokenizer.model       SentencePiece (source.model and target.model where the vocabularies are separate)
data/                 the tokenised corpora, and what they were made of
checkpoints/          see training/checkpoints.py
log.jsonl             the course of the run, one JSON object a line
tensorboard/          the same for TensorBoard
learning_curve.png    the same as a picture
model.keras           the finished model
model.json            which weights it has, how they score, which others there were
report.html           its evaluation on the test set, where there is one, as a page
report.json           and as data
export/               the finished model as a SavedModel
lock                  held by the process that trains
"""

import dataclasses
import fcntl
import json
from pathlib import Path

from keras_transformer.config import Config, DecodeConfig, differences
from keras_transformer.data.prepare import DATA_FILES
from keras_transformer.files import write_json
from keras_transformer.model_folder import read_config
from keras_transformer.tokenizer import TOKENIZER_FILES
from keras_transformer.training.checkpoints import Checkpoints

# What may change when a run goes on, because no step made so far depended on it. Text may lie elsewhere: that of train
# is compared by its contents, validation and test sets may be others. The numbers of replicas and of micro-batches may
# change if their product does not, see `Training._check_parts`.
CHANGEABLE = {
    "data.train", "data.valid", "data.test", "data.bleu_tokenizer", "train.steps", "train.cooldown_steps",
    "train.checkpoint_steps", "train.checkpoint_minutes", "train.keep_checkpoints", "train.average_checkpoints",
    "train.valid_steps", "train.valid_sentences", "train.patience", "train.log_steps", "train.export",
    "train.strategy", "train.accumulation", "train.deterministic",
    *(f"decode.{field.name}" for field in dataclasses.fields(DecodeConfig)),
}  # fmt: skip


def may_change(key, old, new):
    """Whether a field may change. What was read before the first step may lie elsewhere, too."""
    return key in CHANGEABLE or (key in ("train.start_from", "data.tokenizer_model") and None not in (old, new))


class WorkdirError(ValueError):
    """A workdir that cannot be used as asked."""


class Workdir:
    """The paths of a run, below `path`."""

    def __init__(self, path):
        self.path = Path(path)
        self.config_path = self.path / "config.json"
        self.checkpoints = self.path / "checkpoints"
        self.log_path = self.path / "log.jsonl"
        self.model_path = self.path / "model.keras"
        self.metadata_path = self.path / "model.json"
        self.curve_path = self.path / "learning_curve.png"
        self.page_path, self.report_path = self.path / "report.html", self.path / "report.json"
        self._lock = None

    def lock(self):
        """Keeps other processes from training here, until the end of this one, however it comes."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = open(self.path / "lock", "a+")  # noqa: SIM115 - open as long as the process
        except OSError as error:
            raise WorkdirError(
                f"A workdir must be a folder that can be written. Received: {error.filename}: {error.strerror}."
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.unlock()
            raise WorkdirError(
                f"{self.path} must belong to one run at a time. Another process trains there; wait for it or give "
                "another --workdir."
            ) from error
        except OSError as error:
            self.unlock()
            raise WorkdirError(
                f"{self.path} must lie on a file system with locks (flock). Received: {error.strerror}."
            ) from error

    def unlock(self):
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @property
    def has_begun(self) -> bool:
        """Whether there is a step or a model that the configuration must fit to."""
        return self.model_path.exists() or bool(Checkpoints(self.checkpoints).all())

    def claim(self, config: Config) -> list[str]:
        """Writes the configuration, or compares it with that of the run so far. -> what has changed, if it may"""
        if not (self.config_path.exists() and self.has_begun):
            self.refuse_other_files()
            write_json(self.config_path, config.to_dict())
            return []
        if not self.tells_its_training():
            raise WorkdirError(
                f"A run goes on where its checkpoints are. {self.path} holds a model that was saved or packed without "
                f"its training; give another --workdir, and train.start_from={self.path} to begin with its weights."
            )
        found = differences(self.load_config().to_dict(), config.to_dict())
        described = {key: f"{key}: {old!r} -> {new!r}" for key, (old, new) in found.items()}
        if refused := [f"    {described[key]}" for key in found if not may_change(key, *found[key])]:
            raise WorkdirError(
                f"A run is resumed with the configuration that it began with. {self.path} differs in:\n"
                + "\n".join(refused)
                + "\nGive another --workdir, or the old values."
            )
        return list(described.values())

    def refuse_other_files(self):
        """Refuses a folder that holds files that a run would write, unless there is the configuration of a run."""
        if self.path.exists() and not self.path.is_dir():
            raise WorkdirError(f"A workdir must be a folder that can be written. Received: {self.path}, a file.")
        if self.config_path.exists():
            self.load_config()
            return
        paths = [self.model_path, self.log_path, self.curve_path, self.metadata_path, self.page_path, self.report_path]
        paths += [self.path / name for name in (*TOKENIZER_FILES, *DATA_FILES)]
        if others := [path.relative_to(self.path) for path in paths if path.exists()]:
            raise WorkdirError(
                f"A run begins in a folder without files that it would write. {self.path} holds {others[0]}, but no "
                "config.json of a run; give another --workdir."
            )

    def change_config(self, config: Config, step: int):
        """Writes the configuration for the steps after `step`; refuses one that has other learning rates before."""
        old, new = self.load_config().train, config.train
        starts = [each.cooldown_start for each in (old, new)]
        is_changed = (old.steps, old.cooldown_steps) != (new.steps, new.cooldown_steps)
        if is_changed and step > min(starts):
            raise WorkdirError(
                f"The learning rates of steps already made cannot change: {self.path} is at step {step:,}. With "
                f"steps={old.steps}, cooldown_steps={old.cooldown_steps} they fall after step {starts[0]:,}, with "
                f"steps={new.steps}, cooldown_steps={new.cooldown_steps} after step {starts[1]:,}."
            )
        write_json(self.config_path, config.to_dict())

    def tells_its_training(self) -> bool:
        """Whether there is the configuration of a run, rather than that of a model that was saved or packed."""
        return "train" in self._read_config()[0]

    def load_config(self) -> Config:
        return self._read_config()[1]

    def _read_config(self):
        try:
            return read_config(self.config_path)
        except FileNotFoundError as error:
            raise WorkdirError(
                f"A workdir holds a config.json, written by train_keras.py. There is none in {self.path}."
            ) from error
        except ValueError as error:
            raise WorkdirError(str(error)) from error

    def load_metadata(self) -> dict | None:
        """What is written about the finished model, or None before there is one."""
        if not (self.metadata_path.exists() and self.model_path.exists()):
            return None
        try:
            metadata = json.loads(self.metadata_path.read_text(encoding="utf-8"))
            if not isinstance(metadata, dict):
                raise ValueError(f"expected a JSON object. Received: {type(metadata).__name__}.")
        except ValueError as error:
            raise WorkdirError(
                f"{self.metadata_path} says nothing about a model: {error} Without the file, training writes it again."
            ) from error
        return metadata
