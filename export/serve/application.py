"""The paths of TF Serving's REST API, and what is answered when something is wrong.

GET  /v1/models/NAME[WHICH]            which versions there are, and in what state
GET  /v1/models/NAME[WHICH]/metadata   their signatures
POST /v1/models/NAME[WHICH]:predict    see export/serve/tensors.py

WHICH is /versions/N or /labels/LABEL. The labels are those of models.config. As in TF Serving, a label that does not
exist is a 400, one whose version is not loaded a 404, and with a label the states of all versions are returned.

400 wrong request   404 no such model or version   413 body too large   429 no memory
503 queue full, or the model is being loaded       504 took too long
"""

import asyncio
import contextlib
import gzip
import io
import json
import re
import zlib
from concurrent.futures import Executor
from typing import NamedTuple

from google.protobuf.json_format import MessageToDict
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount

from export.serve import RequestError, RequestLimits, tensors
from export.serve.versions import Versions

MODEL = r"/v1/models/(?P<name>[^/:]+)(?:/versions/(?P<version>[0-9]{1,19})|/labels/(?P<label>[^/:]+))?"
ROUTES = {
    ("GET", "status"): re.compile(MODEL),
    ("GET", "metadata"): re.compile(MODEL + "/metadata"),
    ("POST", "predict"): re.compile(MODEL + ":predict"),
}
DISCARDED = 16  # too large bodies are read up to so many times the limit: a client that is still sending sees no answer


class _Model(NamedTuple):
    """The model that a path names; without version and label, its newest version."""

    name: str
    version: int | None
    label: str | None


class Application:
    """Answers HTTP requests for one model."""

    def __init__(self, versions: Versions, limits: RequestLimits):
        self._versions, self._limits = versions, limits

    async def __call__(self, scope, receive, send):
        request = Request(scope, receive)
        with contextlib.suppress(ClientDisconnect):
            response = await self._respond(request)
            await response(scope, receive, send)

    async def _respond(self, request):
        try:
            async with asyncio.timeout(self._limits.timeout):
                return _json(200, await self._answer(request))
        except RequestError as error:
            response = _json(error.status, {"error": str(error)})
            if error.retry_after is not None:
                response.headers["Retry-After"] = str(error.retry_after)
            return response
        except TimeoutError:
            return _json(504, {"error": f"Deadline exceeded: {self._limits.timeout:g} seconds"})
        except ClientDisconnect:
            raise
        except Exception as error:  # of this server, or of the model
            return _json(500, {"error": f"{type(error).__name__}: {error}"})

    async def _answer(self, request):
        path = request.scope["path"]
        for (method, answer), pattern in ROUTES.items():
            found = pattern.fullmatch(path) if request.method == method else None
            if found:
                version = found["version"] and int(found["version"])
                model = _Model(found["name"], version, found["label"])
                return await getattr(self, f"_{answer}")(request, model)
        if not path.startswith("/v1/"):
            raise RequestError(404, "Not Found")
        raise RequestError(400, f"Malformed request: {request.method} {path}")

    async def _status(self, _, model):
        if model.name != self._versions.name:
            raise RequestError(404, f"Could not find any versions of model {model.name}")
        return {
            "model_version_status": [
                {
                    "version": str(number),
                    "state": state.name,
                    "status": {"error_code": "UNKNOWN" if state.error else "OK", "error_message": state.error},
                }
                for number, state in self._versions.states(model.version)
            ]
        }

    async def _metadata(self, _, model):
        with self._use(model) as servable:
            signatures = {key: _plain(signature) for key, signature in servable.signature_defs.items()}
            return {
                "model_spec": {"name": model.name, "signature_name": "", "version": str(servable.version)},
                "metadata": {"signature_def": {"signature_def": signatures}},
            }

    async def _predict(self, request, model):
        body = await self._body(request)
        with self._use(model) as servable:
            asked = tensors.read(body)
            inputs = tensors.arrays(asked, servable.signature(asked.signature).inputs)
            outputs = await servable.predict(asked.signature, inputs)
        return tensors.answer(outputs, asked.by_rows)

    def _use(self, model):
        name, version, label = model
        if name == self._versions.name:
            return self._versions.use(version, label)
        if label is not None:
            raise RequestError(400, f"Unrecognized servable version label: {label}")
        which = f"Latest({name})" if version is None else f"Specific({name}, {version})"
        raise RequestError(404, f"Servable not found for request: {which}")

    async def _body(self, request):
        limit, size, chunks = self._limits.max_body_bytes, 0, []
        async for chunk in request.stream():
            size += len(chunk)
            if size <= limit:
                chunks.append(chunk)
            elif size > DISCARDED * limit:
                break
        if size > limit:
            raise RequestError(413, f"The body of a request may have at most {limit} bytes")
        body = b"".join(chunks)
        return _decompressed(body, limit) if "gzip" in request.headers.get("content-encoding", "") else body


def _decompressed(body, limit):
    """What is compressed by gzip, as TensorFlow Serving takes it too."""
    try:
        with gzip.open(io.BytesIO(body)) as file:
            text = file.read(limit + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise RequestError(400, f"The body must be compressed by gzip, as its headers say: {error}") from error
    if len(text) > limit:
        raise RequestError(413, f"The body of a request may have at most {limit} bytes")
    return text


def asgi(versions: Versions, executor: Executor, limits: RequestLimits) -> Starlette:
    """The application, together with the task that watches its versions."""

    @contextlib.asynccontextmanager
    async def lifespan(_):
        watching = asyncio.create_task(versions.watch())
        yield
        watching.cancel()
        executor.shutdown(wait=False, cancel_futures=True)

    return Starlette(routes=[Mount("/", app=Application(versions, limits))], lifespan=lifespan)


def _plain(signature):
    return MessageToDict(signature, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)


def _json(status, content):
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text, status, media_type="application/json")
