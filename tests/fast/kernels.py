"""Layers of width D with small kernels of random numbers, for the tests of products."""

from keras_transformer.layers.dense import Dense
from keras_transformer.layers.embedding import TokenEmbedding

D = 24


def dense_layers(*sizes):
    layers = [Dense(size) for size in sizes]
    for layer in layers:
        layer.build((None, D))
    return layers


def vocabularies(*sizes):
    layers = [TokenEmbedding(size, D) for size in sizes]
    for layer in layers:
        layer.build()
    return layers


def dense_and_vocabulary():
    """A layer of each kind. -> [(layer, what calls its product)]"""
    [dense], [vocabulary] = dense_layers(71), vocabularies(71)
    return [(dense, dense), (vocabulary, vocabulary.logits)]
