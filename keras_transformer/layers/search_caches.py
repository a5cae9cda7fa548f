"""The kinds of caches that searches have of their own.

Which kind is fastest in a loop depends on what runs it, because the same operation costs a graph and XLA differently:

    KVCache         plain: works everywhere
    GraphKVCache    for a graph without XLA, as TensorFlow Serving runs it: overwritten in place
    FewRowsKVCache  the same as a step for few rows reads it: one query at a time, by operations that bypass oneDNN
    XLAKVCache      for a loop that XLA compiles: keys lie as the product with a query reads them; two arrays for
                    several beams
"""

import tensorflow as tf
from keras import ops

from keras_transformer.fast.products_in_graph import transpose_in_graph
from keras_transformer.layers.cache import KVCache, with_more


class XLAKVCache(KVCache):
    """A cache for a loop that XLA compiles, where it is updated in place. `key` and `value` are tuples of arrays.

    The keys are (B, H, d_k, S): in a search of one sentence, the product of a few queries with keys of (B, H, S, d_k)
    takes XLA ten times as long.

    A cache that grows for several beams is two arrays, one after the other, because XLA multiplies by the two at the
    same time, a thread each. With one array it multiplies by one matrix after the other and divides each among threads.
    """

    AXES = 3, 2  # of the slots, in keys and in values

    @classmethod
    def of(cls, cache):
        return cls((_transposed(cache.key),), (cache.value,))

    def grow(self, steps, width):
        return type(self)(*(_grown(arrays, steps, width, axis) for arrays, axis in zip(self, self.AXES, strict=True)))

    def write(self, fresh, index):
        fresh, slot = (_transposed(fresh.key), fresh.value), index * fresh.key.shape[2]
        parts = zip(self, fresh, self.AXES, strict=True)
        return type(self)(*(_replaced(arrays, update, slot, axis) for arrays, update, axis in parts))

    def dot_product(self, query):
        return tf.concat([tf.matmul(query, key) for key in self.key], axis=3)

    def weighted_sum(self, weights):
        parts = tf.split(weights, [tf.shape(value)[2] for value in self.value], axis=3)
        return tf.add_n([tf.matmul(*pair) for pair in zip(parts, self.value, strict=True)])

    @property
    def key_by_position(self):
        return _transposed(tf.concat(self.key, axis=3))


class GraphKVCache(KVCache):
    """A cache for a loop in a graph without XLA. It is overwritten in place: an older state must not be read again.

    In such a graph `KVCache.write` copies the whole cache; here an operation that XLA does not have writes in place.
    Where there is one query a sentence, the cache is read without oneDNN, whose batched products are slow in that case.
    """

    @classmethod
    def start(cls, batch, heads, slots, widths, dtype):
        # This op is stateful, so TensorFlow does not merge several of the same shape into one.
        return cls(*(tf.raw_ops.Empty(shape=(batch, heads, slots, width), dtype=dtype, init=True) for width in widths))

    def place(self, index, width):
        """The numbers of the rows that are overwritten: of all sentences and heads the one of that step."""
        batch, heads, slots, _ = tf.unstack(tf.shape(self.key))
        return tf.range(batch * heads) * (slots // width) + index

    def write(self, fresh, place):
        return type(self)(*(_overwritten(old, new, place) for old, new in zip(self, fresh, strict=True)))

    def dot_product(self, query):
        return _one_by_one(query, self.key, adj_y=True) if query.shape[2] == 1 else super().dot_product(query)

    def weighted_sum(self, weights):
        return _one_by_one(weights, self.value) if weights.shape[2] == 1 else super().weighted_sum(weights)

    @staticmethod
    def swapped(x):
        if 1 in x.shape[1:3] and None not in x.shape[1:3]:
            return tf.reshape(x, (-1, x.shape[2], x.shape[1], x.shape[3]))
        return transpose_in_graph(x, (0, 2, 1, 3))


class FewRowsKVCache(GraphKVCache):
    """A `GraphKVCache` as a step for few rows reads it: by operations that bypass oneDNN.

    oneDNN's take a fixed time however little there is to do: attention of one sentence to 24 keys takes 160 us with
    them and 67 us without.
    """

    def dot_product(self, query):
        return _one_by_one(query, self.key, adj_y=True)

    def weighted_sum(self, weights):
        return _one_by_one(weights, self.value)

    @staticmethod
    def softmax(scores):
        exponentials = tf.exp(scores - tf.reduce_max(scores, axis=-1, keepdims=True))
        return exponentials / tf.reduce_sum(exponentials, axis=-1, keepdims=True)


KINDS = {"any": KVCache, "graph": GraphKVCache, "xla": XLAKVCache}  # by what runs the loop


def kind_for(loop):
    if loop not in KINDS:
        raise ValueError(f"`loop` must be one of {', '.join(map(repr, KINDS))}. Received: loop={loop!r}.")
    return KINDS[loop]


def _one_by_one(rows, matrix, adj_y=False):
    """The product of every row with the matrix of its head. (B, H, T, N), (B, H, ., .) -> (B, H, T, .)

    `BatchMatMulV3` computes what `tf.matmul`, which is V2, computes, but is unknown to oneDNN. Rows get an axis of
    their own: of several together TensorFlow would make larger products, slowly, each divided among all threads.
    """
    if rows.dtype.size == 2:  # V3 has no float16 on a CPU; bfloat16 was not measured
        return tf.matmul(rows, matrix, transpose_b=adj_y)
    # Not by indexing: a slice takes twice as long, and three constants.
    x, y = tf.expand_dims(rows, 3), tf.expand_dims(matrix, 2)
    return tf.squeeze(tf.raw_ops.BatchMatMulV3(x=x, y=y, Tout=rows.dtype, adj_y=adj_y), 3)


def _grown(arrays, steps, width, axis):
    """The consecutive arrays with room for `steps` more steps at the end: as two of about equal size, or as one."""
    whole = with_more(tf.concat(arrays, axis), steps * width, axis)
    # One array for 16 bits: on a CPU, XLA turns what `_replaced` reads into float32 and copies the array for that.
    if width == 1 or whole.dtype.size == 2:
        return (whole,)
    size = tf.shape(whole)[axis]
    half = (size // width + 1) // 2 * width
    return tuple(tf.split(whole, [half, size - half], axis=axis))


def _replaced(arrays, update, slot, axis):
    """One array, or two consecutive ones, with `update` written from `slot` on, which lies in one of them.

    Both are written to in every step, because in a branch XLA would copy them. The one that is not meant gets a write
    without effect: the first array what it already holds, the second array `update` in slots that are still empty and
    will be overwritten before they are read.
    """
    *first, last = arrays
    written = []
    for array in first:
        size, place = tf.shape(array)[axis], [0] * 4
        place[axis] = tf.minimum(slot, size - update.shape[axis])
        kept = tf.slice(array, place, tf.shape(update))
        written.append(ops.slice_update(array, place, tf.where(slot < size, update, kept)))
        slot -= size
    place = [0] * 4
    place[axis] = tf.maximum(slot, 0)
    return (*written, ops.slice_update(last, place, update))  # by an op of XLA's own, which has no gradient


def _transposed(x):
    """(B, H, S, K) -> (B, H, K, S), and back."""
    return tf.transpose(x, (0, 1, 3, 2))


def _overwritten(buffer, update, place):
    size = update.shape[2] * update.shape[3]  # of a row: what one sentence and head have of a step
    rows = tf.raw_ops.InplaceUpdate(x=tf.reshape(buffer, (-1, size)), i=place, v=tf.reshape(update, (-1, size)))
    return tf.reshape(rows, tf.shape(buffer))
