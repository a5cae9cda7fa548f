"""Requests that a server answers before a version goes live, so that no user is the first.

    assets.extra/tf_serving_warmup_requests     TFRecord of PredictionLog; for every signature one row, then several

A server that fails to answer one of them does not load the version. So they are answered before an export is renamed.
"""

from pathlib import Path

from export.contents import signatures

PATH = Path("assets.extra", "tf_serving_warmup_requests")
MAX_RECORDS = 1000  # of a server
SENTENCES = ["A short sentence.", "", "This sentence is longer than the first one, which has very few words in it."]
ROWS = {  # name of an input: rows
    "text": SENTENCES,
    "source": SENTENCES,
    "target": SENTENCES,
    "prefix": ["A", "", "This sentence"],
    "ids": [[5, 6, 3, 0, 0, 0, 0], [3, 0, 0, 0, 0, 0, 0], [7, 8, 9, 5, 6, 7, 3]],  # 3 ends a sentence
    "temperature": [1.0, 0.0, 0.5],
    "seed": [1, 2, 3],
}
COLD = {"translate_xla"}  # most servers refuse it, and would refuse the whole version


def write(folder: Path):
    """Writes the requests for every signature of the SavedModel in `folder`."""
    import tensorflow as tf

    path = folder / PATH
    path.parent.mkdir(exist_ok=True)
    served = signatures(folder)
    with tf.io.TFRecordWriter(str(path)) as file:
        for name in sorted(served.keys() - COLD):
            for num_rows in (1, len(SENTENCES)):
                file.write(_request(name, served[name]["inputs"], num_rows).SerializeToString(deterministic=True))


def _request(signature, inputs, num_rows):
    import tensorflow as tf
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

    log = PredictionLog()
    request = log.predict_log.request
    request.model_spec.signature_name = signature
    for name, tensor in inputs.items():
        if name not in ROWS:
            raise ValueError(
                f"Every input must have an example in export/warmup.py: {', '.join(sorted(ROWS))}. "
                f"Received: the input {name!r} of the signature {signature!r}."
            )
        request.inputs[name].CopyFrom(tf.make_tensor_proto(ROWS[name][:num_rows], tensor["dtype"]))
    return log
