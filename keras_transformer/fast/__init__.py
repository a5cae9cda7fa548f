"""The same numbers sooner: products, gradients and sums in forms that XLA and TensorFlow compute fast.

Layers, losses and the search use these and are written as if they were not there: without them every number is the
same but for rounding. Nothing here knows a layer beyond its kernel. Which form which layer of a model uses is decided
in model_products.py.
"""
