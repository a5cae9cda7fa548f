"""keras_transformer: "Attention Is All You Need" for Keras 3 on TensorFlow, from text to a translation service."""

import contextlib as _contextlib

from keras_transformer_cli import importing as _importing

with (
    _importing.importing_tensorflow(with_warnings=_importing.asks_for_training())
    if _importing.is_starting("keras_transformer")
    else _contextlib.nullcontext()
):
    _importing.use_onednn()
    import keras as _keras

if _keras.backend.backend() != "tensorflow":
    raise ImportError(
        "keras_transformer needs Keras on its TensorFlow backend. "
        f"Received: backend={_keras.backend.backend()!r}. Set the environment variable KERAS_BACKEND=tensorflow "
        "before Keras is imported."
    )

from keras_transformer.config import Config, ConfigError, DataConfig, DecodeConfig, ModelConfig, TrainConfig
from keras_transformer.data.batches import shifted
from keras_transformer.ensemble import Ensemble
from keras_transformer.losses import SmoothedCrossEntropy
from keras_transformer.metrics import NegativeLogLikelihood, Perplexity, TokenAccuracy
from keras_transformer.model import Transformer
from keras_transformer.presets import PRESETS, preset
from keras_transformer.recipes import load_recipe
from keras_transformer.schedule import TransformerSchedule
from keras_transformer.tokenizer import Tokenizer, Tokenizers, pad
from keras_transformer.translator import Translator

__version__ = "0.1.0"

__all__ = [
    "PRESETS",
    "Config",
    "ConfigError",
    "DataConfig",
    "DecodeConfig",
    "Ensemble",
    "ModelConfig",
    "NegativeLogLikelihood",
    "Perplexity",
    "SmoothedCrossEntropy",
    "TokenAccuracy",
    "Tokenizer",
    "Tokenizers",
    "TrainConfig",
    "Transformer",
    "TransformerSchedule",
    "Translator",
    "load_recipe",
    "pad",
    "preset",
    "shifted",
]
