"""Loads a SavedModel in a process of its own and answers sentences as a server would.

    python export/check.py served/demo/1 < texts.json > answers.json

Like a server, it knows TensorFlow, tensorflow-text and the protos of TF Serving, and nothing of this project.
"""

import json
import os
import sys

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 - its operations
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

TRANSLATING = ("serving_default", "translate_nbest", "translate_xla")  # what takes texts alone; the last is optional
WARM_UP = os.path.join("assets.extra", "tf_serving_warmup_requests")


def answers(path, texts):
    """What the signatures answer for the texts, once the warm-up requests are answered. -> {signature: outputs}"""
    loaded = tf.saved_model.load(path)
    signatures = loaded.signatures
    replay(signatures, os.path.join(path, WARM_UP))
    text = tf.constant([text.encode() for text in texts], tf.string)
    found = {name: signatures[name](text=text) for name in TRANSLATING if name in signatures}
    found["score"] = signatures["score"](source=text, target=found["serving_default"]["translation"])
    return {name: {key: _plain(value.numpy()) for key, value in outputs.items()} for name, outputs in found.items()}


def _plain(array):
    """An array as JSON has it; bytes become text."""
    strings = array.dtype.kind in "OS"
    return np.vectorize(bytes.decode, otypes=[object])(array).tolist() if strings else array.tolist()


def replay(signatures, path):
    """Answers the warm-up requests. A server that fails on one of them does not load the version. -> how many"""
    found = requests(path)
    for signature, inputs in found:
        signatures[signature](**{name: tf.constant(value) for name, value in inputs.items()})
    return len(found)


def requests(path):
    """The requests in a TFRecord of PredictionLog: [(signature, {input: array})]."""
    records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    logs = [PredictionLog.FromString(record).predict_log.request for record in records]
    return [
        (log.model_spec.signature_name, {name: tf.make_ndarray(tensor) for name, tensor in log.inputs.items()})
        for log in logs
    ]


if __name__ == "__main__":
    json.dump(answers(sys.argv[1], json.load(sys.stdin)), sys.stdout)
