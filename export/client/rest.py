"""REST, on requests. TensorFlow is not needed."""

import base64
import json
import re
from urllib.parse import quote

import requests
from urllib3.exceptions import ReadTimeoutError
from urllib3.util import Retry

from export.client.rows import BATCH_SIZE, TIMEOUT, Client, ServingError, VersionStatus

CODES = {
    400: "INVALID_ARGUMENT",
    404: "NOT_FOUND",
    412: "FAILED_PRECONDITION",
    413: "RESOURCE_EXHAUSTED",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
CONNECT_TIMEOUT = 5.0  # seconds; a server that is there accepts at once
MAX_RETRY_AFTER = 60.0  # seconds; a server that wants a longer wait is asked earlier


class RestClient(Client):
    """A client of the REST API, port 8501.

    Args:
        url: of the server, "http://127.0.0.1:8501".
        version: which one is asked; without it and without a label the newest.
        label: of the version that is asked, such as "stable".
        timeout: seconds of one attempt without a sign of the server.
        batch_size: rows of one request, at most.
        retries: attempts after the first, where a connection is refused or breaks, or the answer is 429 or 503. The
            waiting times double, with jitter; the server's Retry-After takes precedence.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        version: int | None = None,
        label: str | None = None,
        timeout: float = TIMEOUT,
        batch_size: int = BATCH_SIZE,
        retries: int = 4,
    ):
        super().__init__(model, version=version, label=label, batch_size=batch_size)
        if not url.lower().startswith(("http://", "https://")):
            raise ValueError(f"`url` must begin with http:// or https://. Received: {url}.")
        self._model_url = f"{url.rstrip('/')}/v1/models/{quote(model, safe='')}"
        self._shown_url = re.sub("//[^/]*@", "//", self._model_url)  # without a password
        self._path = _path(version, label)
        self._timeout = timeout
        self._session = _session(retries)
        self._output_names: dict[str, list[str]] = {}  # by signature

    def status(self) -> list[VersionStatus]:
        found = self._answer("GET", "", "model_version_status")
        try:
            return [VersionStatus(int(one["version"]), one["state"], one["status"]["error_message"]) for one in found]
        except (KeyError, TypeError, ValueError) as error:
            raise self._foreign(f"model_version_status: {found!r}") from error

    def close(self):
        self._session.close()

    def _predict(self, inputs, signature):
        content = {"signature_name": signature, "inputs": inputs}
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, default=_to_json)
        outputs = self._answer("POST", ":predict", "outputs", text.encode())
        if isinstance(outputs, dict):
            return outputs
        return {self._single_output(signature): outputs}

    def _single_output(self, signature):
        """The name of the only output of a signature, which the answer leaves out."""
        if signature not in self._output_names:
            metadata = self._answer("GET", "/metadata", "metadata")
            try:
                signatures = metadata["signature_def"]["signature_def"]
                self._output_names = {name: list(one.get("outputs", {})) for name, one in signatures.items()}
            except (AttributeError, KeyError, TypeError) as error:
                raise self._foreign(f"metadata: {metadata!r}") from error
        return self._output_names[signature][0]

    def _answer(self, method, what, name, body=None):
        """The value of `name` in the server's answer."""
        content = self._ask(method, what, body)
        if name not in content:  # JSON, of somebody else
            raise self._foreign(f"no {name!r}")
        return content[name]

    def _foreign(self, what):
        message = f"{self._shown_url} does not answer as TensorFlow Serving: {what}"
        return ServingError("INTERNAL", message[:400])

    def _ask(self, method, what, body=None):
        url, shown = (start + self._path + what for start in (self._model_url, self._shown_url))
        headers = {"Content-Type": "application/json"} if body is not None else {}
        timeout = (min(CONNECT_TIMEOUT, self._timeout), self._timeout)
        try:
            response = self._session.request(
                method, url, data=body, headers=headers, timeout=timeout, allow_redirects=False
            )
        except requests.ConnectTimeout as error:
            raise ServingError("UNAVAILABLE", f"cannot reach {shown}: no connection within {timeout[0]:g} s") from error
        except requests.Timeout as error:
            raise ServingError("DEADLINE_EXCEEDED", f"no answer from {shown} within {self._timeout:g} s") from error
        except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError) as error:
            if isinstance(_cause(error), ReadTimeoutError):  # after the headers
                raise ServingError("DEADLINE_EXCEEDED", f"no answer from {shown} within {self._timeout:g} s") from error
            raise ServingError("UNAVAILABLE", f"cannot reach {shown}: {_cause(error)}") from error
        except requests.RequestException as error:
            raise ServingError("UNKNOWN", f"{shown}: {error}") from error
        return _content(response)


def _path(version, label):
    if label is not None:
        return f"/labels/{quote(label, safe='')}"
    return "" if version is None else f"/versions/{version}"


class PatientRetry(Retry):
    """Asks again, but not a server that was too slow: it may still be at work on the first attempt."""

    def increment(self, method=None, url=None, response=None, error=None, *rest, **more):
        if isinstance(error, ReadTimeoutError):
            raise error
        return super().increment(method, url, response, error, *rest, **more)

    def get_retry_after(self, response):
        seconds = super().get_retry_after(response)
        return None if seconds is None else min(seconds, MAX_RETRY_AFTER)


def _session(retries):
    session = requests.Session()
    adapter = requests.adapters.HTTPAdapter(max_retries=_retry(retries))
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    return session


def _retry(retries):
    return PatientRetry(
        total=retries,
        backoff_factor=0.3,
        backoff_max=10.0,
        backoff_jitter=0.1,
        status_forcelist=[429, 503],
        allowed_methods=None,  # POST too: a prediction changes nothing
        raise_on_status=False,  # the last answer has the server's message
    )


def _content(response):
    text = response.content.decode(errors="replace")  # TF Serving does not look at the bytes of a string
    try:
        content = json.loads(text, object_hook=_from_json)
    except (ValueError, RecursionError):
        content = None
    if response.status_code == 200 and isinstance(content, dict):
        return content
    message = content.get("error") if isinstance(content, dict) else None
    code = CODES.get(response.status_code, "UNKNOWN")
    raise ServingError(code, message or f"HTTP status {response.status_code}: {' '.join(text.split())[:200]}")


def _to_json(value):
    """Turns bytes, and the arrays and numbers of NumPy, into what JSON has."""
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    if hasattr(value, "tolist"):
        return value.tolist()
    raise ValueError(f"An input must be text, bytes, numbers or lists of them. Received: {value!r}.")


def _from_json(value):
    return base64.b64decode(value["b64"]) if value.keys() == {"b64"} else value


def _cause(error):
    """The end of a chain of exceptions, each of which repeats the one before."""
    inner = error
    while isinstance(inner, Exception):
        error = inner
        inner = error.args[0] if error.args and isinstance(error.args[0], Exception) else getattr(error, "reason", None)
    return error
