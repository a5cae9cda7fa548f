"""A server of TF Serving's gRPC API on a free port, which runs a SavedModel in this process."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, predict_pb2
from tensorflow_serving.apis import model_service_pb2_grpc as models
from tensorflow_serving.apis import prediction_service_pb2_grpc as predictions


class Service(predictions.PredictionServiceServicer, models.ModelServiceServicer):
    """Serves a version of the model "demo", which is number 1 and has the label "stable".

    `accidents` are what happens to the next predictions in place of an answer: the name of a status, or an event that
    is waited for.
    """

    def __init__(self, folder):
        self.folder, self.loaded = folder, tf.saved_model.load(str(folder))
        self.accidents, self.num_rows = [], []

    def Predict(self, request, context):  # noqa: N802 - gRPC's names
        self._check(request.model_spec, context)
        self._suffer(context)
        name = request.model_spec.signature_name
        inputs = {name: tf.constant(tf.make_ndarray(tensor)) for name, tensor in request.inputs.items()}
        try:
            outputs = self.loaded.signatures[name](**inputs)
        except Exception as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        self.num_rows.append(len(next(iter(inputs.values()))))
        return predict_pb2.PredictResponse(
            outputs={name: tf.make_tensor_proto(value.numpy()) for name, value in outputs.items()}
        )

    def GetModelMetadata(self, request, context):  # noqa: N802
        self._check(request.model_spec, context)
        graph = SavedModel.FromString((self.folder / "saved_model.pb").read_bytes()).meta_graphs[0]
        answer = get_model_metadata_pb2.GetModelMetadataResponse(model_spec=request.model_spec)
        signatures = get_model_metadata_pb2.SignatureDefMap(signature_def=graph.signature_def)
        answer.metadata["signature_def"].Pack(signatures)
        return answer

    def GetModelStatus(self, request, context):  # noqa: N802
        self._check(request.model_spec, context)
        status = get_model_status_pb2.ModelVersionStatus(version=1, state="AVAILABLE")
        return get_model_status_pb2.GetModelStatusResponse(model_version_status=[status])

    def _check(self, spec, context):
        if spec.name != "demo" or spec.version.value not in (0, 1):
            context.abort(grpc.StatusCode.NOT_FOUND, f"Servable not found for request: {spec.name}")
        if spec.version_label not in ("", "stable"):
            reason = f"Unrecognized servable version label: {spec.version_label}"
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, reason)

    def _suffer(self, context):
        accident = self.accidents.pop(0) if self.accidents else None
        if isinstance(accident, threading.Event):
            accident.wait(20)
        elif accident:
            context.abort(grpc.StatusCode[accident], f"said {accident}")


@contextlib.contextmanager
def serving(service, port=0):
    """The target of a server with this service."""
    with ThreadPoolExecutor(8) as threads:
        server = grpc.server(threads)
        predictions.add_PredictionServiceServicer_to_server(service, server)
        models.add_ModelServiceServicer_to_server(service, server)
        port = server.add_insecure_port(f"127.0.0.1:{port}")
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(None).wait()
