"""A server for a laptop without Docker, which answers as the REST API of TF Serving does.

python -m export.serve --model served/demo [--name demo] [--host 127.0.0.1] [--port 8501]

    __main__      the command: socket, signals, exit codes
    application   paths, methods, limits and HTTP statuses
    tensors       JSON to arrays and back
    versions      which version is loaded, and what became of the others
    servable      one version: a SavedModel, its signatures, a batcher for each
    batching      the requests of several clients in one call
"""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class RequestLimits:
    """What one request may cost."""

    timeout: float = 30.0  # seconds, as TF Serving's
    max_body_bytes: int = 4 << 20


class RequestError(Exception):
    """What a client is told in place of predictions: an HTTP status, a message, perhaps seconds to wait."""

    def __init__(self, status: int, message: str, retry_after: int | None = None):
        super().__init__(message)
        self.status, self.retry_after = status, retry_after
