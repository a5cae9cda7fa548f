"""The Transformer's forward pass, from the equations of "Attention Is All You Need", in float64 NumPy.

An oracle for the tests. It shares no code with the package and is written to be obviously right rather
than fast: one sentence at a time, one head at a time. So there is no batch axis inside `transformer`, and a
sequence is a matrix with a row per position.

T positions that ask  S positions that are asked  D d_model  H heads  K key width  M value width  V vocabulary
A mask's True means "may attend". Kernels are (in, out). Sections and equations are the paper's.
"""

import numpy as np

PAD = 0
Array = np.ndarray
Weights = dict[str, Array]


def transformer(
    weights: Weights,
    source_ids: Array,
    target_ids: Array,
    *,
    num_encoder_layers: int,
    num_decoder_layers: int,
    num_heads: int,
    d_model: int,
    norm: str = "post",
    positions: str = "sinusoidal",
    scoring: str = "scaled_dot_product",
    neighbourhood: int | None = None,
    norm_epsilon: float = 1e-6,
) -> Array:
    """Logits (B, T, V) of source_ids (B, S) and the decoder's input target_ids (B, T): Figure 1.

    `target_ids` is already shifted right. `norm` is "post" (the paper) or "pre", `positions` "sinusoidal" or
    "learned" (Table 3, row E), `scoring` one of `compatibility`, and `neighbourhood` the r of Table 1.
    """
    weights = {name: np.asarray(value, np.float64) for name, value in weights.items()}
    source_ids, target_ids = np.asarray(source_ids), np.asarray(target_ids)

    def normalize(x, name):
        return layer_norm(x, weights[f"{name}/gamma"], weights[f"{name}/beta"], norm_epsilon)

    def add_and_norm(x, sublayer, name):
        """The residual connection and normalization around a sub-layer, Section 3.1."""
        if norm == "post":
            return normalize(x + sublayer(x), name)
        if norm == "pre":
            return x + sublayer(normalize(x, name))
        raise ValueError(f"`norm` must be 'post' or 'pre'. Received: norm={norm!r}.")

    def attention_sublayer(x, memory, mask, name):
        """Queries from x; keys and values from `memory`, or where it is None from x too, Section 3.2.3."""

        def sublayer(x):
            asked, here = x if memory is None else memory, within(weights, name)
            return multi_head_attention(here, x, asked, mask, num_heads=num_heads, scoring=scoring)

        return add_and_norm(x, sublayer, f"{name}_norm")

    def feed_forward_sublayer(x, name):
        return add_and_norm(x, lambda x: feed_forward(within(weights, name), x), f"{name}_norm")

    def embed(ids, side):
        """Sections 3.4 and 3.5: embedding rows times sqrt(d_model), plus positions."""
        tokens = weights[f"{side}_embedding"][ids] * np.sqrt(d_model)
        if positions == "sinusoidal":
            return tokens + sinusoids(len(ids), d_model)
        if positions == "learned":
            return tokens + weights[f"{side}_positions"][np.arange(len(ids))]
        raise ValueError(f"`positions` must be 'sinusoidal' or 'learned'. Received: positions={positions!r}.")

    def encode(source):
        mask = self_attention_mask(source, causal=False, neighbourhood=neighbourhood)
        x = embed(source, "source")
        for i in range(num_encoder_layers):
            x = attention_sublayer(x, None, mask, f"encoder/{i}/self_attention")
            x = feed_forward_sublayer(x, f"encoder/{i}/feed_forward")
        return normalize(x, "encoder_norm") if norm == "pre" else x

    def decode(target, memory, source):
        mask = self_attention_mask(target, causal=True, neighbourhood=neighbourhood)
        memory_mask = np.tile(source != PAD, (len(target), 1))  # (T, S)
        x = embed(target, "target")
        for i in range(num_decoder_layers):
            x = attention_sublayer(x, None, mask, f"decoder/{i}/self_attention")
            x = attention_sublayer(x, memory, memory_mask, f"decoder/{i}/cross_attention")
            x = feed_forward_sublayer(x, f"decoder/{i}/feed_forward")
        return normalize(x, "decoder_norm") if norm == "pre" else x

    logits = []
    for source, target in zip(source_ids, target_ids, strict=True):
        decoded = decode(target, encode(source), source)  # (T, D)
        logits.append(decoded @ weights["output_embedding"].T)  # (T, V), Section 3.4
    return np.stack(logits)


def within(weights: Weights, name: str) -> Weights:
    """The weights whose names begin with "name/", without that beginning."""
    return {key[len(name) + 1 :]: value for key, value in weights.items() if key.startswith(f"{name}/")}


def sinusoids(length: int, d_model: int) -> Array:
    """The positional encoding (length, d_model) of Section 3.5, sine and cosine interleaved."""
    encoding = np.zeros((length, d_model))
    for position in range(length):
        for dimension in range(d_model):
            i = dimension // 2  # dimensions 2i and 2i+1 share a wavelength
            angle = position / 10000 ** (2 * i / d_model)
            encoding[position, dimension] = np.sin(angle) if dimension % 2 == 0 else np.cos(angle)
    return encoding


def layer_norm(x: Array, gamma: Array, beta: Array, epsilon: float) -> Array:
    """Layer normalization over the last axis (Section 3.1; Ba et al., 2016), variance over N, not N - 1."""
    x = np.asarray(x, np.float64)
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return gamma * (x - mean) / np.sqrt(variance + epsilon) + beta


def feed_forward(weights: Weights, x: Array) -> Array:
    """FFN(x) = max(0, x W1 + b1) W2 + b2, equation 2 of Section 3.3."""
    inner = np.maximum(0, x @ weights["inner_kernel"] + weights["inner_bias"])
    return inner @ weights["outer_kernel"] + weights["outer_bias"]


def self_attention_mask(ids: Array, *, causal: bool, neighbourhood: int | None = None) -> Array:
    """The mask (T, T): row i is True at each j that i may attend to.

    Never padding; under `causal` never the future (Section 3.2.3); under a neighbourhood r only the positions
    of "a neighborhood of size r in the input sequence centered around the respective output position"
    (Section 4), read as |i - j| <= r // 2.
    """
    mask = np.zeros((len(ids), len(ids)), bool)
    for i in range(len(ids)):
        for j in range(len(ids)):
            past = not causal or j <= i
            near = neighbourhood is None or abs(i - j) <= neighbourhood // 2
            mask[i, j] = ids[j] != PAD and past and near
    return mask


def compatibility(query: Array, key: Array, scoring: str, score_vector: Array | None = None) -> Array:
    """How well queries (T, K) and keys (S, K) of one head go together (T, S): Section 3.2.1.

    "additive" is v . tanh(q_i + k_j), the one hidden layer network of Bahdanau et al. after the projections;
    v is `score_vector` (K,).
    """
    query, key = np.asarray(query, np.float64), np.asarray(key, np.float64)
    if scoring == "scaled_dot_product":
        return query @ key.T / np.sqrt(query.shape[-1])
    if scoring == "dot_product":
        return query @ key.T
    if scoring == "additive":
        return np.array([[score_vector @ np.tanh(q + k) for k in key] for q in query])
    raise ValueError(f"Unknown `scoring`. Received: scoring={scoring!r}.")


def masked_softmax(scores: Array, mask: Array) -> Array:
    """Softmax of each row over the entries its mask allows; the others are zero, as is a row of none.

    The same as setting the others to minus infinity (Section 3.2.3), without the arithmetic of infinities.
    """
    weights = np.zeros(scores.shape)
    for row, allowed, result in zip(scores, np.asarray(mask, bool), weights, strict=True):
        if allowed.any():
            exponentials = np.exp(row[allowed] - row[allowed].max())
            result[allowed] = exponentials / exponentials.sum()
    return weights


def attention_weights(query: Array, key: Array, mask: Array, scoring: str, score_vector: Array | None = None) -> Array:
    """The weights (T, S) on the values for one head's queries (T, K), keys (S, K) and mask (T, S)."""
    return masked_softmax(compatibility(query, key, scoring, score_vector), mask)


def multi_head_attention(
    weights: Weights, x: Array, memory: Array, mask: Array, *, num_heads: int, scoring: str
) -> Array:
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O, Section 3.2.2: x (T, D) asks memory (S, D).

    `weights` are "query", "key", "value" and "output", and "score" (H, K) for additive scoring.
    """
    d_k = weights["query"].shape[1] // num_heads
    d_v = weights["value"].shape[1] // num_heads
    heads = []
    for h in range(num_heads):
        query = x @ weights["query"][:, h * d_k : (h + 1) * d_k]  # (T, K)
        key = memory @ weights["key"][:, h * d_k : (h + 1) * d_k]  # (S, K)
        value = memory @ weights["value"][:, h * d_v : (h + 1) * d_v]  # (S, M)
        score_vector = weights["score"][h] if scoring == "additive" else None
        heads.append(attention_weights(query, key, mask, scoring, score_vector) @ value)  # (T, M)
    return np.concatenate(heads, axis=-1) @ weights["output"]  # (T, H * M) to (T, D)


def smoothed_cross_entropy(logits: Array, labels: Array, label_smoothing: float) -> Array:
    """Loss (B, T) of logits (B, T, V) at labels (B, T), padding included: -sum q log p, Section 5.4.

    q = (1 - epsilon) one_hot + epsilon / V, the label smoothing of Szegedy et al. over the whole vocabulary.
    """
    logits = np.asarray(logits, np.float64)
    num_classes = logits.shape[-1]
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_probs = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    one_hot = np.eye(num_classes)[np.asarray(labels)]  # (B, T, V)
    smoothed = (1 - label_smoothing) * one_hot + label_smoothing / num_classes
    return -(smoothed * log_probs).sum(axis=-1)
