"""Panels that outlive a search.

Cutting the panels of all kernels takes an XLA program as long as several steps of its search, and they stay valid until
the weights change. So a caller that searches again and again keeps them:

    panels = KeptPanels([(query, key, value), (output,)])
    panels.refresh()                                                     # before every search: cuts what has changed
    xla_products((query, key, value), panels.of((query, key, value)))    # in a program
"""

import threading
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.fast.products_by_xla import xla_panels

COMPARABLE = tf.float16, tf.float32, tf.float64  # NumPy sees where their numbers lie


class Cut(NamedTuple):
    """A kernel as it was when it was cut."""

    kernel: keras.Variable
    handle: tf.Tensor
    value: tf.Tensor
    address: int

    @classmethod
    def of(cls, kernel):
        """The `Cut` of a kernel, or None where no address can be seen: it is not a variable, is distributed by a
        strategy, lies on a GPU, or has a dtype that NumPy cannot read."""
        variable = kernel.value if isinstance(kernel, keras.Variable) else None
        if variable is None or isinstance(variable, tf.distribute.DistributedValues):
            return None
        if "CPU" not in variable.device or variable.dtype not in COMPARABLE:
            return None
        # A variable whose rows have been written to one by one copies itself whenever it is read, until it is told that
        # the value will be held for long.
        tf.raw_ops.DisableCopyOnRead(resource=variable.handle)
        value = read(variable.handle, variable.dtype)
        return cls(kernel, variable.handle, value, address(value))

    def is_still(self, kernel):
        """Whether `kernel` is the same and has not changed. In few steps, because every search waits for it.

        (The variable inside of a Keras variable is never replaced.)
        """
        return kernel is self.kernel and address(read(self.handle, self.value.dtype)) == self.address


class KeptPanels:
    """The `xla_panels` of groups of layers, cut again where a kernel has changed.

    A change shows in the kernel's address. The value that was cut is held here, so nothing else is put into its memory,
    and TensorFlow never writes into memory that is held by anything besides the variable: a value that is assigned or
    added is put elsewhere. Where no address can be seen, nothing is kept, and every search cuts its own panels.
    """

    def __init__(self, groups):
        self._groups = tuple(groups)  # tuples of layers that multiply the same rows
        self._cuts = {}  # {layers: a Cut each, or None}
        self._panels = {}  # {layers: variables}
        self._one_at_a_time = threading.Lock()

    def refresh(self):
        """Cuts the kernels that have changed. To be called eagerly."""
        with self._one_at_a_time:
            for layers in self._groups:
                cuts = self._cuts.get(layers)
                if cuts is None or not all(map(Cut.is_still, cuts, [layer.kernel for layer in layers])):
                    self._cut_again(layers)

    def of(self, layers):
        """The `xla_panels` of a group, or None where none are kept."""
        kept = self._panels.get(layers)
        return kept and tuple(variable.value() for variable in kept)

    def _cut_again(self, layers):
        cuts = [Cut.of(layer.kernel) for layer in layers]
        if None in cuts:
            if layers in self._panels:  # by LoRA; traced functions still have the old kernel
                raise ValueError("A kernel is no longer the variable that a search used. Make a new Translator.")
            return
        self._cuts[layers] = None  # so that they are cut again after an interruption
        panels = xla_panels(layers)
        if layers not in self._panels:
            self._panels[layers] = tuple(tf.Variable(array, trainable=False) for array in panels)
        else:
            for variable, array in zip(self._panels[layers], panels, strict=True):
                variable.assign(array)
        self._cuts[layers] = cuts


def read(handle, dtype):
    """The value of a variable as it lies in memory. `value()` takes twice as long."""
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)


def address(value):
    """Where the numbers of an eager tensor lie."""
    return np.asarray(memoryview(value)).ctypes.data
