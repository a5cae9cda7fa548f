import numpy as np

from keras_transformer.fast.processor import AVX2_ALONE, AVX512


def test_numpy_sees_the_same_processor():
    found = set(np.show_config(mode="dicts")["SIMD Extensions"]["found"])
    assert bool(found & {"AVX512F", "X86_V4"}) == AVX512  # older releases have the first, newer ones a group of several
    assert (bool(found & {"AVX2", "X86_V3"}) and not AVX512) == AVX2_ALONE
