"""One version of a model: a SavedModel, what its signatures take and give, and a batcher for each."""

from concurrent.futures import Executor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 - the operations of the tokenizers

from export.contents import meta_graph
from export.serve import RequestError
from export.serve.batching import Arrays, Batcher, BatchSettings
from export.serve.tensors import Spec
from keras_transformer.gpu import multiply_in_float32

PREDICT = "tensorflow/serving/predict"  # the method of a signature that takes and gives tensors


class Signature(NamedTuple):
    inputs: dict[str, Spec]
    outputs: dict[str, Spec]

    @property
    def merges(self) -> bool:
        """Whether requests may share a call: only if no size but the batch is open, or rows of strangers would change
        the shape of an answer."""
        return all(None not in spec.shape[1:] for spec in [*self.inputs.values(), *self.outputs.values()])


class Servable:
    """Loads the SavedModel of `folder`, which is named by its version; takes seconds.

    Args:
        executor: runs the calls.
    """

    def __init__(self, folder: Path, executor: Executor, settings: BatchSettings):
        multiply_in_float32()
        self.version = int(folder.name)
        self.signature_defs = dict(meta_graph(folder).signature_def)
        self.signatures = {
            name: Signature(_specs(signature.inputs), _specs(signature.outputs))
            for name, signature in self.signature_defs.items()
            if signature.method_name == PREDICT
        }
        self._loaded = tf.saved_model.load(str(folder))
        self._batchers = {
            name: Batcher(self._caller(name), executor, settings, signature.merges)
            for name, signature in self.signatures.items()
        }

    def signature(self, name: str) -> Signature:
        if name not in self.signatures:
            shown = name.encode(errors="backslashreplace").decode()  # half a surrogate pair would not go into an answer
            raise RequestError(400, f'Serving signature name: "{shown}" not found in signature def')
        return self.signatures[name]

    async def predict(self, name: str, inputs: Arrays) -> Arrays:
        return await self._batchers[name].submit(inputs)

    def _caller(self, name):
        function = self._loaded.signatures[name]
        dtypes = {key: tf.as_dtype(info.dtype) for key, info in self.signature_defs[name].inputs.items()}

        def call(inputs):
            try:
                outputs = function(**{key: tf.constant(inputs[key], dtypes[key]) for key in dtypes})
            except tf.errors.InvalidArgumentError as error:
                raise RequestError(400, error.message) from error
            except tf.errors.ResourceExhaustedError as error:
                raise RequestError(429, error.message) from error
            return {key: value.numpy() for key, value in outputs.items()}

        return call


def _specs(infos):
    return {
        name: Spec(
            np.dtype(tf.as_dtype(info.dtype).as_numpy_dtype),
            tuple(None if dim.size < 0 else dim.size for dim in info.tensor_shape.dim),
        )
        for name, info in sorted(infos.items())
    }
