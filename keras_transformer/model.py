"""The Transformer: Figure 1 as a Keras model. The forward pass exists once.

    source_ids --encode--> memory --project--> keys and values --.
                                                                 +--> decoder blocks --> logits
    target_ids --------- teacher forcing (decode), or -----------'
                         one position at a time with a cache (step)

`step` runs the same blocks as `decode`. The beams of one sentence stand side by side where `decode` has its target
positions, so the memory is never tiled; the cache is never reordered either: a beam is a path through its slots, kept
as one row of the boolean `Cache.path`, and `reorder` moves those rows and nothing else.

    slot              0    1    2    3    4    5         L = max_length * W slots, W = 2
    holds         t0 w0 t0 w1 t1 w0 t1 w1 t2 w0 t2 w1    keys and values of step t, beam w
    path of w0:       x         .    x    x    .         at step 2 beam 0 continues beam 1 of step 1, which
    path of w1:       .    x    x    .    .    x         continued beam 0 of step 0
"""

import math
from typing import NamedTuple, Self

import keras
import tensorflow as tf
from keras import ops

from keras_transformer.config import ConfigError, ModelConfig, plain_number
from keras_transformer.layers.attention import record_attention
from keras_transformer.layers.blocks import DecoderBlock, EncoderBlock
from keras_transformer.layers.cache import KVCache
from keras_transformer.layers.dense import LayerNormalization
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.embedding import LearnedPositions, TokenEmbedding, sinusoidal_positions
from keras_transformer.layers.masks import causal_mask, neighbourhood_mask, padding_mask
from keras_transformer.layers.search_caches import kind_for
from keras_transformer.presets import preset


class Cache(NamedTuple):
    """What decoding keeps between steps. Axis 0 of everything is the batch."""

    past: tuple[KVCache, ...]  # one for each layer, L slots as its kind keeps them: slot t * W + w has step t of beam w
    path: tf.Tensor  # (B, W, L), the slots on the path of each beam
    memory: tuple[KVCache, ...]  # one for each layer: the projected output of the encoder, S slots
    memory_mask: tf.Tensor  # (B, 1, S)

    def as_kind(self, kind) -> Self:
        """The same cache, which `kind` writes and reads; it must keep keys and values as the present kind does."""
        past, memory = (tuple(kind(*part) for part in parts) for parts in (self.past, self.memory))
        return self._replace(past=past, memory=memory)


class AttentionMaps(NamedTuple):
    """Attention weights of every layer and head."""

    encoder: tf.Tensor  # (layers, B, H, S, S)
    decoder: tf.Tensor  # (layers, B, H, T, T)
    cross: tf.Tensor  # (layers, B, H, T, S)


@keras.saving.register_keras_serializable("keras_transformer")
class Transformer(keras.Model):
    """The model of "Attention Is All You Need". Without options it is the paper's base model.

    >>> model = Transformer(vocab_size=8000, d_model=128, d_ff=256, num_heads=4)
    >>> logits = model((source_ids, target_ids))  # (B, S), (B, T) -> (B, T, V)
    >>> memory, memory_mask = model.encode(source_ids)
    >>> cache = model.start_cache(memory, memory_mask, max_length=50)
    >>> logits, cache = model.step(ids, 0, cache)  # (B, 1) -> (B, 1, V)

    Args:
        vocab_size: number of target ids (and of source ids, if `source_vocab_size` is not given).
        source_vocab_size: number of source ids, where the two languages have separate vocabularies.
        name, dtype, trainable: as for every Keras layer; `dtype` may be "mixed_bfloat16".
        frozen: the layers whose `trainable` is off, by paths as `get_config` has them; Keras would forget them.
        num_encoder_layers, num_decoder_layers: N, 6 each.
        d_model: width of every sub-layer's output, 512.
        d_ff: inner width of the feed-forward networks, 2048.
        num_heads: h, 8.
        d_k, d_v: widths of a head's keys and values; `d_model / num_heads`.
        dropout: P_drop, 0.1.
        norm: "post", the paper's, or "pre".
        tied_embeddings: "all", "target" or "none".
        **hyperparameters: the fields of `ModelConfig`: those named above and a few more, with the defaults given there.

    Call arguments:
        inputs: the pair of integer tensors `source_ids` (B, S) and `target_ids` (B, T), filled up with 0.
        training: whether dropout is on.

    Returns:
        The logits of the next piece at every target position, (B, T, V), float32.
    """

    def __init__(
        self,
        vocab_size,
        source_vocab_size=None,
        *,
        name=None,
        dtype=None,
        trainable=True,
        frozen=(),
        **hyperparameters,
    ):
        super().__init__(name=name, dtype=dtype, trainable=trainable)
        self.autocast = False  # ids that come as floats, as Keras's inputs are, keep their digits
        self.config = ModelConfig.from_dict(hyperparameters)
        self.vocab_size = plain_number(vocab_size)
        self.source_vocab_size = self.vocab_size if source_vocab_size is None else plain_number(source_vocab_size)
        self._check_vocabularies()
        c, policy = self.config, self.dtype_policy
        self.target_embedding = TokenEmbedding(self.vocab_size, c.d_model, dtype=policy, name="target_embedding")
        if c.tied_embeddings == "all":
            self.source_embedding = self.target_embedding
        else:
            self.source_embedding = TokenEmbedding(
                self.source_vocab_size, c.d_model, dtype=policy, name="source_embedding"
            )
        if c.tied_embeddings == "none":
            self.output_embedding = TokenEmbedding(self.vocab_size, c.d_model, dtype=policy, name="output_embedding")
        else:
            self.output_embedding = self.target_embedding
        if c.positions == "learned":
            self.source_positions = LearnedPositions(c.max_positions, c.d_model, dtype=policy, name="source_positions")
            self.target_positions = LearnedPositions(c.max_positions, c.d_model, dtype=policy, name="target_positions")
        self.source_dropout = Dropout(c.dropout, dtype=policy, name="source_dropout")
        self.target_dropout = Dropout(c.dropout, dtype=policy, name="target_dropout")
        self.encoder = [EncoderBlock(c, dtype=policy, name=f"encoder_{i}") for i in range(c.num_encoder_layers)]
        self.decoder = [DecoderBlock(c, dtype=policy, name=f"decoder_{i}") for i in range(c.num_decoder_layers)]
        if c.norm == "pre":  # the residual stream of pre-norm has not been normalised when it leaves the stack
            self.encoder_norm = self._final_norm("encoder_norm")
            self.decoder_norm = self._final_norm("decoder_norm")
        self.build()
        layers = self._flatten_layers(include_self=False)
        self._own_paths = frozenset(self._path_inside(layer) for layer in layers)  # a subclass may add others
        self._freeze(set(frozen))

    def _freeze(self, frozen):
        if strangers := sorted(frozen - self._own_paths):
            raise ConfigError(f'`frozen` must hold paths of layers, such as "encoder_0". Received: {strangers}.')
        for layer in self._flatten_layers(include_self=False) if frozen else []:  # a layer comes before those in it
            layer.trainable = self._path_inside(layer) not in frozen

    def _lock_state(self):
        """Does nothing: Keras would refuse the layers, metrics and weights that a subclass adds to a built model."""

    @classmethod
    def from_preset(cls, name, /, vocab_size, **changes):
        """The model of a preset ("tiny", "base", "table3_c4", ...), with other values for some of its fields.

        `changes` may also hold `source_vocab_size`, `dtype` and `name`.
        """
        return cls(vocab_size, **{**preset(name).model.to_dict(), **changes})

    def _check_vocabularies(self):
        for name in ("vocab_size", "source_vocab_size"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ConfigError(f"`{name}` must be a positive integer. Received: {name}={value!r}.")
        if self.config.tied_embeddings == "all" and self.source_vocab_size != self.vocab_size:
            raise ConfigError(
                '`tied_embeddings="all"` needs one vocabulary; use "target" or "none" for two. '
                f"Received: vocab_size={self.vocab_size}, source_vocab_size={self.source_vocab_size}."
            )

    def _final_norm(self, name):
        return LayerNormalization(epsilon=self.config.norm_epsilon, dtype=self.dtype_policy, name=name)

    @property
    def position_limit(self) -> float:
        """The most positions of a source or a target; infinity without learned positions."""
        return self.config.max_positions if self.config.positions == "learned" else math.inf

    def build(self, input_shape=None):
        if self.built:
            return
        for layer in self.layers:
            if isinstance(layer, TokenEmbedding):
                layer.build((None, None))
            elif isinstance(layer, LearnedPositions):
                layer.build((None,))
            else:
                layer.build((None, None, self.config.d_model))
        self.built = True

    # --- the forward pass

    def call(self, inputs, training=False):
        """The forward pass. (source_ids (B, S), target_ids (B, T)) -> logits (B, T, V)

        The target starts with bos, shifted right. Keras passes `training` on to the layers inside, but only where the
        outermost `call` has it as an argument. So `encode` and `decode` apply no dropout when called by themselves.
        """
        source_ids, target_ids = _pair(inputs)
        return self.decode(target_ids, *self.encode(source_ids))

    def encode(self, source_ids):
        """Encodes the source. (B, S) -> memory (B, S, D), memory_mask (B, 1, S)"""
        positions = _range(ops.shape(source_ids)[1])
        memory_mask = padding_mask(source_ids)
        mask = self._restrict(memory_mask, positions, positions)
        vectors = ops.add(self.source_embedding(source_ids), self._position_vectors(positions, "source"))
        x = self.source_dropout(ops.cast(vectors, self.compute_dtype))
        for block in self.encoder:
            x = block(x, mask)
        return (self.encoder_norm(x) if self.config.norm == "pre" else x), memory_mask

    def decode(self, target_ids, memory, memory_mask):
        """Decodes a whole target by teacher forcing. (B, T), (B, S, D), (B, 1, S) -> logits (B, T, V), float32"""
        positions = _range(ops.shape(target_ids)[1])
        mask = ops.logical_and(causal_mask(ops.shape(target_ids)[1]), padding_mask(target_ids))
        mask = self._restrict(mask, positions, positions)
        logits, _ = self._decoder_pass(target_ids, positions, mask, self._project(memory), memory_mask)
        return logits

    # --- one position at a time

    def start_cache(self, memory, memory_mask, max_length, beam_width=1, loop="any"):
        """The cache before the first step, with room for `max_length` steps of `beam_width` beams a sentence.

        `loop` says what runs the steps: "graph" for a graph without XLA, "xla" for a program that XLA compiles; "any"
        works everywhere.
        """
        c, batch, slots = self.config, ops.shape(memory)[0], max_length * beam_width
        kind, widths = kind_for(loop), (c.key_width, c.value_width)
        past = tuple(kind.start(batch, c.num_heads, slots, widths, self.compute_dtype) for _ in self.decoder)
        projected = tuple(kind.of(part) for part in self._project(memory))
        return Cache(past, ops.zeros((batch, beam_width, slots), "bool"), projected, memory_mask)

    def grow(self, cache, max_length):
        """The cache with room for `max_length` steps, at least two; these may not be fewer than it has room for now."""
        width = cache.path.shape[1]
        more = ops.maximum(max_length, 2) - ops.shape(cache.path)[2] // width  # two: an XLAKVCache has two arrays
        path = tf.pad(cache.path, [[0, 0], [0, 0], [0, more * width]])
        return cache._replace(past=tuple(part.grow(more, width) for part in cache.past), path=path)

    def step(self, ids, index, cache):
        """Decodes one position: the logits after `ids`, which stand at `index`.

        (B, W), scalar, Cache -> (B, W, V), Cache
        """
        index = ops.cast(index, "int32")
        beam_width, slots = cache.path.shape[1], ops.shape(cache.path)[2]
        slot = index * beam_width + _range(beam_width)  # (W,)
        path = ops.logical_or(cache.path, ops.equal(_range(slots)[None, :], slot[:, None])[None])
        positions = ops.reshape(index, (1,))
        mask = self._restrict(path, positions, _range(slots) // beam_width)
        place = cache.past[0].place(index, beam_width)
        logits, past = self._decoder_pass(
            ids, positions, mask, cache.memory, cache.memory_mask, past=cache.past, place=place
        )
        return logits, cache._replace(past=past, path=path)

    def reorder(self, cache, parents):
        """The cache after beam w has become a continuation of beam parents[b, w]. Cache, (B, W) -> Cache"""
        return cache._replace(path=tf.gather(cache.path, parents, batch_dims=1))

    # --- looking inside

    def attention_maps(self, source_ids, target_ids):
        """The attention weights of all layers and heads for pairs of sentences. (B, S), (B, T) -> AttentionMaps"""
        with record_attention() as record:
            self((source_ids, target_ids), training=False)
        weights = [layer_weights for _, layer_weights in record]
        depth = len(self.encoder)
        parts = weights[:depth], weights[depth::2], weights[depth + 1 :: 2]  # a decoder block: itself, then the memory
        return AttentionMaps(*(ops.stack(part) for part in parts))

    # --- the parts of the pass

    def _decoder_pass(self, ids, positions, mask, memory, memory_mask, *, past=None, place=None):
        vectors = ops.add(self.target_embedding(ids), self._position_vectors(positions, "target"))
        x = self.target_dropout(ops.cast(vectors, self.compute_dtype))
        present = []
        for i, block in enumerate(self.decoder):
            x, kv = block(x, mask, memory[i], memory_mask, past=past and past[i], place=place)
            present.append(kv)
        if self.config.norm == "pre":
            x = self.decoder_norm(x)
        return self.output_embedding.logits(x), tuple(present)

    def _project(self, memory):
        return tuple(block.cross_attention.project(memory) for block in self.decoder)

    def _position_vectors(self, positions, side):
        if self.config.positions == "sinusoidal":
            return sinusoidal_positions(positions, self.config.d_model)
        return (self.source_positions if side == "source" else self.target_positions)(positions)

    def _restrict(self, mask, query_positions, key_positions):
        if self.config.neighbourhood is None:
            return mask
        return ops.logical_and(mask, neighbourhood_mask(query_positions, key_positions, self.config.neighbourhood))

    # --- Keras

    def quantize(self, *args, **options):
        raise NotImplementedError("The layers of `Transformer` cannot be quantized. Convert an exported SavedModel.")

    def export(self, filepath, *args, input_signature=None, **options):
        """Exports, as every Keras model does, logits from ids of any shape. `python -m export` exports a translator."""
        ids = tf.TensorSpec((None, None), tf.int32)
        return super().export(filepath, *args, input_signature=input_signature or [(ids, ids)], **options)

    def compute_output_shape(self, input_shape):
        return (*input_shape[1], self.vocab_size)

    def compute_output_spec(self, inputs, training=False):
        shape = self.compute_output_shape([ids.shape for ids in _pair(inputs)])
        return keras.KerasTensor(shape, dtype=keras.backend.result_type(self.compute_dtype, "float32"))

    def get_config(self):
        base = super().get_config()
        kept = {key: base[key] for key in ("name", "dtype", "trainable") if key in base}
        vocabularies = {"vocab_size": self.vocab_size, "source_vocab_size": self.source_vocab_size}
        layers = self._flatten_layers(include_self=False)
        frozen = [self._path_inside(layer) for layer in layers if not layer.trainable]
        frozen = [path for path in frozen if path and path in self._own_paths]
        kept |= {"frozen": frozen} if frozen and self.trainable else {}
        return {**kept, **vocabularies, **self.config.to_dict()}

    def _path_inside(self, layer):
        """The path of a layer below this model; None of one without weights."""
        return layer.path and layer.path.removeprefix(f"{self.path}/")


def _range(size):
    """(size,) int32; the default of Keras is floatx, and for 16 bits TensorFlow has no range."""
    return ops.arange(size, dtype="int32")


def _pair(inputs):
    found = [getattr(x, "shape", ()) for x in inputs] if isinstance(inputs, tuple | list) else type(inputs).__name__
    if not (isinstance(found, list) and len(found) == 2 and all(tf.TensorShape(s).rank in (2, None) for s in found)):
        raise ValueError(f"`inputs` must be the pair source_ids (B, S), target_ids (B, T). Received: {found}.")
    return inputs
