"""What the clients of both protocols share: many rows become several requests, and their answers one.

rows         0 .. 31      32 .. 63      64 .. 70
requests     [.......]    [.......]     [...]
ids          (32, 9)      (32, 12)      (7, 8)       -> (71, 12), filled up with 0 as in one large request
"""

import abc
from collections.abc import Mapping, Sequence
from typing import NamedTuple

TIMEOUT = 30.0  # seconds, as TF Serving's own
BATCH_SIZE = 32  # rows


class ServingError(RuntimeError):
    """The server answered with an error, or not at all.

    `code` is one of gRPC's names, over both protocols: INVALID_ARGUMENT, NOT_FOUND, RESOURCE_EXHAUSTED, UNAVAILABLE,
    DEADLINE_EXCEEDED, ... `message` is the server's, where there is one, with all its lines.
    """

    exit_code = 1  # of a command that it ends

    def __init__(self, code: str, message: str):
        super().__init__(f"{code}: {' '.join(message.split())}")
        self.code, self.message = code, message


class VersionStatus(NamedTuple):
    version: int
    state: str  # LOADING, AVAILABLE, UNLOADING, END
    error: str  # empty where there is none


class Client(abc.ABC):
    """A model on a server. A context manager, which closes the connections.

    Args:
        version, label: which one is asked; the newest without them.
        batch_size: rows of one request, at most.
    """

    def __init__(self, model: str, *, version: int | None, label: str | None, batch_size: int):
        if batch_size < 1:
            raise ValueError(f"`batch_size` must be at least 1. Received: {batch_size}.")
        if version is not None and label is not None:
            raise ValueError(f"A request has a version or a label. Received: version={version}, label={label!r}.")
        self.model, self.version, self.label, self.batch_size = model, version, label, batch_size

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def translate(self, texts: Sequence[str]) -> list[str]:
        """A translation for each text."""
        found = self.predict({"text": texts}).get("translation") if len(texts) else []
        if found is None or not all(isinstance(text, str) for text in found):
            raise ServingError("INTERNAL", "the answer has no output `translation` with a text for every row")
        return found

    def predict(self, inputs: Mapping[str, Sequence], signature: str = "serving_default") -> dict[str, list]:
        """The outputs by name, a list with a value for each row; {} for no rows, which the server is not asked about.

        Args:
            inputs: by name; lists or arrays of equally many rows.
        """
        num_rows = _num_rows(inputs)
        inputs = {name: _unicode(values) for name, values in inputs.items()}
        answers = []
        for start in range(0, num_rows, self.batch_size):
            rows = slice(start, start + self.batch_size)
            answer = self._predict({name: values[rows] for name, values in inputs.items()}, signature)
            _check_rows(answer, min(self.batch_size, num_rows - start))
            answers.append(answer)
        return {name: join([answer[name] for answer in answers]) for name in answers[0]} if answers else {}

    @abc.abstractmethod
    def status(self) -> list[VersionStatus]:
        """The states of the model's versions on this server, newest first."""

    @abc.abstractmethod
    def close(self):
        """Closes the connections."""

    @abc.abstractmethod
    def _predict(self, inputs, signature):
        """One request."""


def join(parts: list[list]) -> list:
    """Concatenates batches. Lists in them get the length of the longest, filled up with 0, "" or False."""
    return _even([row for part in parts for row in part])


def _even(values):
    if not (values and isinstance(values[0], list)):
        return values
    longest = max(map(len, values))
    inner = [value for row in values for value in row]
    empty = type(inner[0])() if inner else None  # [] at all depths but the last
    filled = _even([value for row in values for value in row + [empty] * (longest - len(row))])
    return [filled[index * longest : (index + 1) * longest] for index in range(len(values))]


def _unicode(values):
    """Half a surrogate pair, as in a file's name that is not UTF-8, becomes U+FFFD, as a translator takes it."""
    if isinstance(values, str):
        return values.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return [_unicode(value) for value in values] if isinstance(values, list | tuple) else values


def _num_rows(inputs):
    for name, values in inputs.items():
        if isinstance(values, str | bytes):
            raise ValueError(f"Input {name!r} must be a list with a value for each row. Received: {values!r}.")
    sizes = {name: len(values) for name, values in inputs.items()}
    if len(set(sizes.values())) != 1:
        raise ValueError(f"There must be inputs, all with the same number of rows. Received: {sizes}.")
    return next(iter(sizes.values()))


def _check_rows(answer, num_rows):
    sizes = {name: len(rows) if isinstance(rows, list) else type(rows).__name__ for name, rows in answer.items()}
    if any(size != num_rows for size in sizes.values()):
        raise ServingError("INTERNAL", f"the answer to {num_rows} rows has other sizes: {sizes}")
