"""Where tests compare bits, a GPU adds up in the same order every time."""

import pytest
from tensorflow.python.framework import config

from keras_transformer.gpu import add_in_order


@pytest.fixture(autouse=True)
def in_order(request):
    if request.config.getoption("gpu"):
        add_in_order()
    yield
    config.disable_op_determinism()
