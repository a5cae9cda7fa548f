"""Panels that outlive a search.

Cutting the panels of all kernels takes a program of XLA's as long as several steps of its search, and they stay right
until the weights change. So whoever searches again and again keeps them:

    panels = KeptPanels(layers)
    panels.refresh()                                    # before every search: cuts what has changed
    panel_product(kernel, panels=panels.of(layer))      # in a program
"""

import threading
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

COMPARABLE = tf.float16, tf.float32, tf.float64  # NumPy sees where their numbers lie


class Cut(NamedTuple):
    """A kernel as it was when it was cut."""

    kernel: keras.Variable
    handle: tf.Tensor
    value: tf.Tensor
    address: int

    @classmethod
    def of(cls, kernel):
        """None where no address is to be seen: of what is no variable, or several of a strategy's, or on a GPU."""
        variable = kernel.value if isinstance(kernel, keras.Variable) else None
        if variable is None or isinstance(variable, tf.distribute.DistributedValues):
            return None
        if "CPU" not in variable.device or variable.dtype not in COMPARABLE:
            return None
        # A variable whose rows have been written to one by one copies itself for whoever reads it, until it is told
        # that somebody will hold the value for long.
        tf.raw_ops.DisableCopyOnRead(resource=variable.handle)
        value = read(variable.handle, variable.dtype)
        return cls(kernel, variable.handle, value, address(value))

    def is_still(self, kernel):
        """Whether `kernel` is the same and has not changed. In few steps: whoever searches waits for it."""
        return kernel is self.kernel and address(read(self.handle, self.value.dtype)) == self.address


class KeptPanels:
    """The `xla_panels` of layers, cut again where a kernel has changed.

    Whether it has, its address tells. Here the value that was cut is held, so nothing else comes to lie in its memory,
    and TensorFlow writes into no memory that somebody holds beside the variable: what is assigned, or added, comes to
    lie elsewhere. Where no address is to be seen nothing is kept, and every search cuts for itself.
    """

    def __init__(self, layers):
        self._layers = tuple(layers)
        self._cut = {}  # {layer: Cut}
        self._panels = {}  # {layer: variables}
        self._one_at_a_time = threading.Lock()

    def refresh(self):
        """Cuts the kernels that have changed. For whoever runs eagerly."""
        with self._one_at_a_time:
            for layer in self._layers:
                cut, kernel = self._cut.get(layer), layer.kernel
                if cut is None or not cut.is_still(kernel):
                    self._cut_again(layer, Cut.of(kernel))

    def of(self, layer):
        """The panels of a layer, or None where none are kept. -> arrays of (P, D, columns)"""
        kept = self._panels.get(layer)
        return kept and tuple(variable.value() for variable in kept)

    def _cut_again(self, layer, cut):
        if cut is None and layer not in self._panels:
            return
        self._cut[layer] = cut
        panels = layer.xla_panels()
        if layer not in self._panels:
            self._panels[layer] = tuple(tf.Variable(array, trainable=False) for array in panels)
        else:
            for variable, array in zip(self._panels[layer], panels, strict=True):
                variable.assign(array)


def read(handle, dtype):
    """The value of a variable as it lies in memory. `value()` takes twice as long."""
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)


def address(value):
    """Where the numbers of an eager tensor lie."""
    return np.asarray(memoryview(value)).ctypes.data
