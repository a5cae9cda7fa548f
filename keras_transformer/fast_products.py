"""Chooses how the layers of a `Transformer` multiply where speed counts; `layers/products.py` has the ways to do it.

    search_products(model, "xla")           for `model.step`: made once, before the loop of a search
    keep_panels(model)                      for a caller that searches by XLA again and again
    training_products(model, left_out)      for a compiled training step, by `use_products`

The first and the last return {layer: product}; a layer that is not in it multiplies plainly.
"""

from keras_transformer.layers.cache import FewRowsKVCache, kind_for
from keras_transformer.layers.dense import Dense
from keras_transformer.layers.gradients import factor_product
from keras_transformer.layers.kept_panels import KeptPanels
from keras_transformer.layers.products import (
    graph_panel_product,
    is_large,
    is_large_in_graph,
    left_product,
    turned_product,
    xla_products,
)


def search_products(model, loop, few=False, panels=None):
    """The fastest ways to multiply and attend in the steps of a loop. -> {layer: product}

    Args:
        loop: what runs it, as for `model.start_cache`.
        few: whether the loop has few rows; for a graph alone, since XLA's products choose by themselves.
        panels: the model's `KeptPanels`; None: XLA's panels are cut for this loop alone.
    """
    kind_for(loop)  # refuses an unknown one
    vocabulary = model.output_embedding
    if loop == "any":
        return {vocabulary: left_product(vocabulary.cast_kernel())} if is_large(vocabulary.kernel) else {}
    products = {}
    if loop == "graph":
        kernel, in_panels = vocabulary.cast_kernel(), few and is_large_in_graph(vocabulary.kernel)
        products[vocabulary] = graph_panel_product(kernel, transposed=True) if in_panels else turned_product(kernel)
        for block in model.decoder:
            products |= _graph_products(block, few)
        return products
    for layers in _groups_of_step(model):
        products |= xla_products(layers, panels and panels.of(layers))
    return products


def keep_panels(model):
    """The panels of all layers that a step goes through, cut again where weights have changed. -> KeptPanels"""
    return KeptPanels(_groups_of_step(model))


def training_products(model, left_out):
    """The products of a training step that makes the gradients of kernels after the backward pass.

    `left_out` is the list where the backward pass notes them (layers/gradients.py). -> {layer: product}
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
    """The products of a decoder block in a graph without XLA. For an attention the entry is not a product but the kind
    of cache as which it reads its keys and values. -> {layer: product}"""
    itself, cross, network = block.self_attention, block.cross_attention, block.feed_forward
    projections = [itself.query, itself.key, itself.value, itself.output_projection]
    projections += [cross.query, cross.output_projection]
    products = {layer: layer.graph_product() for layer in projections}
    if few and is_large_in_graph(network.inner.kernel):
        products |= {layer: graph_panel_product(layer.cast_kernel()) for layer in (network.inner, network.outer)}
    else:
        products[network] = network.graph_product()
    return products | dict.fromkeys((itself, cross), FewRowsKVCache) if few else products
