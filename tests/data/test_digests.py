from keras_transformer.data.digests import digest, text_digest


def test_a_digest_does_not_depend_on_the_order_of_keys():
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1}) != digest({"a": 1, "b": [3]})


def test_a_digest_is_the_same_on_every_machine():
    assert text_digest("naïve") == 0xBEF26892EEEB4CDC
    assert 0 <= text_digest("") < 2**64
    assert text_digest("\ud800") >= 0  # a lone surrogate, which has no UTF-8
