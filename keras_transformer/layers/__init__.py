"""The layers of the model, Section 3 of the paper.

Shapes, as the comments at the ends of lines write them:

    B batch   S source length   T target length   D d_model   H heads   K head width   F d_ff   V vocabulary
    W beam width   L slots of a cache: decoding steps * W   R rows and N columns of a product

A mask is boolean and explicit; True means "may attend". Its shape is (B or 1, queries or 1, keys).
Every layer's `call` takes KerasTensors too; methods beside it, such as `project`, `attend` and `logits`, only tensors.
Layers never call a method of a model and know nothing of text.
"""

from keras_transformer.layers.attention import MultiHeadAttention, record_attention
from keras_transformer.layers.blocks import AddNorm, DecoderBlock, EncoderBlock
from keras_transformer.layers.embedding import LearnedPositions, TokenEmbedding, sinusoidal_positions
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.masks import causal_mask, padding_mask

__all__ = [
    "AddNorm",
    "DecoderBlock",
    "EncoderBlock",
    "FeedForward",
    "LearnedPositions",
    "MultiHeadAttention",
    "TokenEmbedding",
    "causal_mask",
    "padding_mask",
    "record_attention",
    "sinusoidal_positions",
]
