"""Panels that outlive a search.

Cutting the panels of all kernels takes a program of XLA's as long as several steps of its search, and they stay right
until the weights change. So whoever searches again and again keeps them:

    panels = KeptPanels(layers)
    panels.refresh()                                    # before every search: cuts what has changed
    panel_product(kernel, panels=panels.of(layer))      # in a program
"""

import numpy as np
import tensorflow as tf


class KeptPanels:
    """The `xla_panels` of layers, cut again where a kernel has changed.

    Whether it has, its address tells. Here the value that was cut is held, so nothing else is ever put into its memory,
    and TensorFlow writes into no memory that somebody holds beside the variable: what is assigned, or added, comes to
    lie elsewhere. Where no address is to be seen nothing is kept, and every search cuts for itself.
    """

    def __init__(self, layers):
        self._layers = tuple(layers)
        self._cut = {}  # {layer: (the value of its kernel that was cut, its address)}
        self._panels = {}  # {layer: variables}

    def refresh(self):
        """Cuts the kernels that have changed. For whoever runs eagerly."""
        for layer in self._layers:
            value = value_of(layer.kernel.value)
            place, (_, place_of_cut) = address(value), self._cut.get(layer, (None, None))
            if place == place_of_cut:
                continue
            if layer in self._panels:
                for variable, array in zip(self._panels[layer], layer.xla_panels(), strict=True):
                    variable.assign(array)
            else:
                self._panels[layer] = tuple(tf.Variable(array, trainable=False) for array in layer.xla_panels())
            self._cut[layer] = value, place

    def of(self, layer):
        """The panels of a layer, or None where none are kept. -> arrays of (P, D, columns)"""
        kept = self._panels.get(layer)
        return kept and tuple(variable.value() for variable in kept)


def value_of(variable):
    """The value of a variable as it lies in memory, or None where a strategy keeps several."""
    if isinstance(variable, tf.distribute.DistributedValues):
        return None
    return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)  # `value()` takes twice as long


def address(value):
    """Where the numbers of an eager tensor lie. None: of nothing, on a GPU, of a dtype that NumPy does not have."""
    if value is None or "CPU" not in value.device or value.dtype == tf.bfloat16:
        return None
    return np.asarray(memoryview(value)).ctypes.data
