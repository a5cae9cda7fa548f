"""gRPC, on tensorflow_serving.apis, which brings TensorFlow: both are imported when a client is made."""

import json

from export.client.rows import BATCH_SIZE, TIMEOUT, Client, ServingError, VersionStatus

MAX_MESSAGE_BYTES = 64 << 20  # gRPC's own limit is 4 MiB, which the attention of a batch of long sentences exceeds
MAX_RETRIES = 4  # gRPC makes five attempts at most, whatever it is told


class GrpcClient(Client):
    """A client of the gRPC API, port 8500.

    Args:
        target: "127.0.0.1:8500".
        version: which one is asked; without it and without a label the newest.
        label: of the version that is asked, such as "stable".
        timeout: seconds, of one request with all its attempts.
        batch_size: rows of one request, at most.
        retries: attempts after the first, at most 4, where the server is UNAVAILABLE or its resources EXHAUSTED; gRPC
            makes them itself.
    """

    def __init__(
        self,
        target: str,
        model: str,
        *,
        version: int | None = None,
        label: str | None = None,
        timeout: float = TIMEOUT,
        batch_size: int = BATCH_SIZE,
        retries: int = MAX_RETRIES,
    ):
        super().__init__(model, version=version, label=label, batch_size=batch_size)
        if not 0 <= retries <= MAX_RETRIES:
            raise ValueError(f"`retries` must be from 0 to {MAX_RETRIES}. Received: {retries}.")
        try:
            import grpc
            from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc
        except ModuleNotFoundError as error:
            raise ImportError(f"no package {error.name}: pip install tensorflow-serving-api") from error
        self._target, self._timeout = target, timeout
        self._channel = grpc.insecure_channel(target, options=_options(retries))
        self._predictions = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._models = model_service_pb2_grpc.ModelServiceStub(self._channel)
        self._signatures = {}  # as the server described them

    def status(self) -> list[VersionStatus]:
        from tensorflow_serving.apis import get_model_status_pb2 as messages

        answer = self._ask(self._models.GetModelStatus, self._request(messages.GetModelStatusRequest))
        state = messages.ModelVersionStatus.State
        found = [
            VersionStatus(each.version, state.Name(each.state), each.status.error_message)
            for each in answer.model_version_status
        ]
        return sorted(found, reverse=True)

    def close(self):
        self._channel.close()

    def _predict(self, inputs, signature):
        import tensorflow as tf
        from tensorflow_serving.apis.predict_pb2 import PredictRequest

        request = self._request(PredictRequest)
        request.model_spec.signature_name = signature
        dtypes = self._dtypes(signature)
        for name, values in inputs.items():
            # A name that the signature does not have is the server's to refuse.
            request.inputs[name].CopyFrom(_tensor(name, values, dtypes.get(name)))
        outputs = self._ask(self._predictions.Predict, request).outputs
        return {name: _values(name, tf.make_ndarray(tensor)) for name, tensor in outputs.items()}

    def _dtypes(self, signature):
        """The dtypes of a signature's inputs: a list of Python's numbers does not say how many bits they have."""
        from tensorflow_serving.apis import get_model_metadata_pb2 as messages

        if signature not in self._signatures:  # yet, or in the version before
            request = self._request(messages.GetModelMetadataRequest)
            request.metadata_field.append("signature_def")
            answer = self._ask(self._predictions.GetModelMetadata, request)
            signatures = messages.SignatureDefMap()
            answer.metadata["signature_def"].Unpack(signatures)
            self._signatures = signatures.signature_def
        if signature not in self._signatures:
            names = ", ".join(sorted(name for name in self._signatures if not name.startswith("__")))
            raise ServingError("INVALID_ARGUMENT", f"no signature {signature!r}; the model has {names}")
        return {name: info.dtype for name, info in self._signatures[signature].inputs.items()}

    def _request(self, kind):
        request = kind()
        request.model_spec.name = self.model
        if self.version is not None:
            request.model_spec.version.value = self.version
        if self.label is not None:
            request.model_spec.version_label = self.label
        return request

    def _ask(self, method, request):
        import grpc

        try:
            return method(request, timeout=self._timeout)
        except grpc.RpcError as error:
            code, message = error.code().name, error.details()
            if code == "DEADLINE_EXCEEDED":
                message = f"no answer from {self._target} within {self._timeout:g} s"
            raise ServingError(code, message) from error


def _options(retries):
    policy = {
        "maxAttempts": retries + 1,
        "initialBackoff": "0.3s",
        "maxBackoff": "5s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"],
    }
    options = [
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.enable_retries", int(retries > 0)),
    ]
    if retries:
        options.append(("grpc.service_config", json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": policy}]})))
    return options


def _values(name, array):
    """Lists, with text for strings, as over REST."""
    if array.dtype.kind != "O" or name.endswith("_bytes"):
        return array.tolist()
    return _text(array.tolist())


def _text(values):
    return [_text(value) for value in values] if isinstance(values, list) else values.decode(errors="replace")


def _tensor(name, values, dtype):
    """The values as a message. What does not fit is refused as over REST by a server; integers would wrap around."""
    import numpy as np
    import tensorflow as tf

    try:
        if dtype and tf.as_dtype(dtype).is_integer and np.size(values):
            least, most, limits = np.min(values), np.max(values), tf.as_dtype(dtype)
            if not limits.min <= least <= most <= limits.max:
                raise ValueError(f"from {limits.min} to {limits.max}. Received: {least} to {most}")
        return tf.make_tensor_proto(values, dtype)
    except (TypeError, ValueError) as error:
        raise ServingError("INVALID_ARGUMENT", f"input {name!r}: {error}") from error
