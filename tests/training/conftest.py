"""Where tests compare bits, a GPU adds up in the same order every time."""

import pytest

from keras_transformer.gpu import add_in_order


@pytest.fixture(autouse=True)
def in_order(request, default_order):
    if request.config.getoption("gpu"):
        add_in_order()
