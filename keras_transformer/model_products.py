"""Chooses how the layers of a `Transformer` multiply where speed counts; `fast/` has the ways to do it.

    search_step(model, "xla")               the step of a search, with kernels prepared before its loop
    search_products(model, "xla")           its products
    keep_panels(model)                      for a caller that searches by XLA again and again
    training_products(model, left_out)      for a compiled training step

Products are {layer: product}, for `use_products`; a layer that is not in it multiplies plainly. A search may be that of
an `Ensemble`; then these are the products of all its members.
"""

from keras import ops

from keras_transformer.fast.gradients import factor_product
from keras_transformer.fast.kept_panels import KeptPanels
from keras_transformer.fast.products import left_product, use_products
from keras_transformer.fast.products_by_xla import gpu_products, is_large, xla_products
from keras_transformer.fast.products_in_graph import (
    graph_panel_product,
    is_large_in_graph,
    summed_network,
    summed_product,
    turned_product,
)
from keras_transformer.fast.xla import on_gpu
from keras_transformer.layers.dense import Dense
from keras_transformer.layers.search_caches import FewRowsKVCache, GraphKVCache, kind_for


def search_step(model, loop, few=False, panels=None):
    """`model.step` for a loop, as fast as the loop allows; options as in `search_products`. -> StepFn"""
    products = search_products(model, loop, few, panels)

    def step(ids, index, cache):
        with use_products(products):
            return model.step(ids, index, cache)

    def step_of_few(ids, index, cache):
        logits, cache = step(ids, index, cache.as_kind(FewRowsKVCache))
        return logits, cache.as_kind(GraphKVCache)

    return step_of_few if few and loop == "graph" else step


def search_products(model, loop, few=False, panels=None):
    """The fastest ways to multiply in the steps of a loop. -> {layer: product}

    Args:
        loop: what runs it, as for `model.start_cache`.
        few: whether the loop has few rows; for a graph alone, since XLA's products choose by themselves.
        panels: the model's `KeptPanels`; None: XLA's panels are cut for this loop alone. On a GPU there are none.
    """
    kind_for(loop)  # refuses an unknown one
    products = {}
    for member in members(model):
        products |= _products_of_one(member, loop, few, panels)
    return products


def members(model):
    """The `Transformer`s whose layers a step of `model` goes through: those of an `Ensemble`, or the model itself."""
    return getattr(model, "members", (model,))


def _products_of_one(model, loop, few, panels):
    """The `search_products` of a `Transformer`."""
    vocabulary = model.output_embedding
    if loop == "any":
        return {vocabulary: left_product(vocabulary.cast_kernel())} if is_large([vocabulary]) else {}
    products = {}
    if loop == "graph":
        kernel, in_panels = vocabulary.cast_kernel(), few and is_large_in_graph(vocabulary.kernel)
        products[vocabulary] = graph_panel_product(kernel, transposed=True) if in_panels else turned_product(kernel)
        for block in model.decoder:
            products |= _graph_products(block, few)
        return products
    for layers in _groups_of_step(model):
        products |= gpu_products(layers) if on_gpu() else xla_products(layers, panels and panels.of(layers))
    return products


def keep_panels(model):
    """The panels of all layers that a step goes through, cut again where weights have changed. -> KeptPanels"""
    return KeptPanels(group for member in members(model) for group in _groups_of_step(member))


def training_products(model, left_out):
    """The products of a training step that makes the gradients of kernels after the backward pass.

    `left_out` is the list where the backward pass notes them (fast/gradients.py). -> {layer: product}
    """
    layers = [model.output_embedding, *(layer for layer in model._flatten_layers() if isinstance(layer, Dense))]
    trainable = {id(variable) for variable in model.trainable_variables}
    return {layer: factor_product(layer, left_out) for layer in layers if id(layer.kernel) in trainable}


def _groups_of_step(model):
    """The layers that a step goes through, in groups of those that multiply the same rows.

    These are all of the decoder's but the two that project the memory.
    """
    groups = [(model.output_embedding,)]
    for block in model.decoder:
        itself, cross, network = block.self_attention, block.cross_attention, block.feed_forward
        groups.append((itself.query, itself.key, itself.value))
        alone = itself.output_projection, cross.query, cross.output_projection, network.inner, network.outer
        groups += [(layer,) for layer in alone]
    return groups


def _graph_products(block, few):
    """The products of a decoder block in a graph without XLA. -> {layer: product}"""
    itself, cross, network = block.self_attention, block.cross_attention, block.feed_forward
    projections = [itself.query, itself.key, itself.value, itself.output_projection]
    projections += [cross.query, cross.output_projection]
    products = {layer: summed_product(layer.cast_kernel(), gaps=not few) for layer in projections}
    if few and is_large_in_graph(network.inner.kernel):
        products |= {layer: graph_panel_product(layer.cast_kernel()) for layer in (network.inner, network.outer)}
    else:
        b1, b2 = (ops.cast(layer.bias, layer.compute_dtype) for layer in (network.inner, network.outer))
        w1, w2 = network.inner.cast_kernel(), network.outer.cast_kernel()
        products[network] = summed_network(w1, b1, w2, b2, gaps=not few)
    return products
