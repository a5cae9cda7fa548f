import numpy as np
import pytest

from export.client import RestClient
from export.client.rows import Client, ServingError, join


class Local(Client):
    """Keeps the sizes of its requests; the answer is as wide as the request is long."""

    def __init__(self, batch_size):
        super().__init__("local", version=None, label=None, batch_size=batch_size)
        self.sizes = []

    def _predict(self, inputs, signature):
        texts = list(inputs["text"])
        self.sizes.append(len(texts))
        if signature == "short":
            return {"translation": texts[:-1]}
        return {"translation": texts, "ids": [[1] * len(texts) for _ in texts]}

    def status(self):
        return []

    def close(self):
        self.sizes = None


def test_many_rows_are_asked_for_a_few_at_a_time_and_answered_in_order():
    client, texts = Local(3), [str(n) for n in range(7)]
    answer = client.predict({"text": texts})
    assert client.sizes == [3, 3, 1]
    assert answer == {"translation": texts, "ids": [[1, 1, 1]] * 6 + [[1, 0, 0]]}
    assert client.translate(texts) == texts


def test_no_rows_are_not_asked_for():
    client = Local(3)
    assert client.predict({"text": []}) == {} and client.translate([]) == [] and client.sizes == []


def test_arrays_are_rows_too():
    assert Local(3).translate(np.array(["a"] * 5)) == ["a"] * 5


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"text": "a text"}, "'text' must be a list with a value for each row. Received: 'a text'"),
        ({"text": ["a"], "seed": [1, 2]}, r"the same number of rows. Received: {'text': 1, 'seed': 2}"),
        ({}, r"Received: {}"),
    ],
)
def test_inputs_that_are_no_rows_are_refused(inputs, message):
    with pytest.raises(ValueError, match=message):
        Local(3).predict(inputs)


def test_a_batch_has_at_least_one_row():
    with pytest.raises(ValueError, match="at least 1. Received: 0"):
        Local(0)


@pytest.mark.parametrize(("version", "label"), [(3, "stable"), (0, "stable"), (3, "")])
def test_a_version_and_a_label_are_one_too_many(version, label):
    with pytest.raises(ValueError, match=f"a version or a label. Received: version={version}, label={label!r}"):
        RestClient("http://a", "demo", version=version, label=label)


def test_an_answer_with_too_few_rows_is_an_error():
    with pytest.raises(ServingError, match="INTERNAL: the answer to 2 rows has other sizes: {'translation': 1}"):
        Local(3).predict({"text": ["a", "b"]}, "short")


def test_a_client_is_closed_at_the_end_of_its_block():
    with Local(3) as client:
        assert client.sizes == []
    assert client.sizes is None


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([["a"], ["b", "c"]], ["a", "b", "c"]),
        ([[[1, 2]], [[3]]], [[1, 2], [3, 0]]),
        ([[["a"]], [["b", "c"]]], [["a", ""], ["b", "c"]]),
        ([[[]], [[0.5]]], [[0.0], [0.5]]),
        ([[[[1.5], [2.5]]], [[[1.5, 2.5, 3.5]]]], [[[1.5, 0.0, 0.0], [2.5, 0.0, 0.0]], [[1.5, 2.5, 3.5], [0.0] * 3]]),
        ([[[], []]], [[], []]),
        ([[], []], []),
    ],
)
def test_lists_get_the_length_of_the_longest(parts, expected):
    assert join(parts) == expected
