import json

import numpy as np
import pytest

from export.serve import RequestError
from export.serve.tensors import Spec, answer, arrays, read

TEXT = {"text": Spec(np.dtype(object), (None,))}
IDS = {"ids": Spec(np.dtype(np.int32), (None, None))}
SAMPLE = {
    "text": Spec(np.dtype(object), (None,)),
    "temperature": Spec(np.dtype(np.float32), (None,)),
    "seed": Spec(np.dtype(np.int64), (None,)),
}
FLAGS = {"flags": Spec(np.dtype(bool), (None, 2))}


def inputs(specs, **asked):
    return arrays(read(json.dumps(asked).encode()), specs)


def test_rows_and_columns_are_the_same_arrays():
    rows = [{"text": "ä", "temperature": 1, "seed": 2**40}, {"text": "", "temperature": 0.5, "seed": -1}]
    by_rows = inputs(SAMPLE, instances=rows)
    by_columns = inputs(SAMPLE, inputs={name: [row[name] for row in rows] for name in SAMPLE})
    for name, spec in SAMPLE.items():
        assert by_rows[name].dtype == by_columns[name].dtype == spec.dtype
        assert by_rows[name].tolist() == by_columns[name].tolist()
    assert by_rows["text"].tolist() == ["ä".encode(), b""] and by_rows["seed"].tolist() == [2**40, -1]


def test_the_name_of_a_single_input_may_be_left_out():
    for asked in ({"instances": ["a", "b"]}, {"inputs": ["a", "b"]}, {"instances": [{"text": "a"}, {"text": "b"}]}):
        assert inputs(TEXT, **asked)["text"].tolist() == [b"a", b"b"]


def test_bytes_come_as_base64():
    assert inputs(TEXT, instances=[{"b64": "/w=="}])["text"].tolist() == [b"\xff"]
    assert inputs(TEXT, inputs={"text": [{"b64": "/w=="}, "a"]})["text"].tolist() == [b"\xff", b"a"]


def test_empty_dimensions_are_kept():
    assert inputs(IDS, inputs=[[], []])["ids"].shape == (2, 0)
    assert inputs(TEXT, inputs=[])["text"].shape == (0,)


def test_the_signature_has_a_default():
    assert read(b'{"inputs": []}').signature == "serving_default"
    assert read(b'{"inputs": [], "signature_name": ""}').signature == "serving_default"
    assert read(b'{"inputs": [], "signature_name": "score"}').signature == "score"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "The document is empty"),
        (b"{", "JSON Parse error"),
        (b'{"inputs": ["\xff"]}', "JSON Parse error"),
        (b'{"inputs": [NaN]}', "NaN is not a JSON value"),
        (b'{"inputs": [-Infinity]}', "-Infinity is not a JSON value"),
        (b'{"inputs": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply|Input 'text'"),
        *(
            (b'{"inputs": ' + b"[" * depth + b"7" + b"]" * depth + b"}", "nested too deeply|'text' must be")
            for depth in range(880, 1000, 7)
        ),
        (b'{"inputs": [' + b"1" * 5000 + b"]}", "JSON Parse error"),
        (b"[]", r"Expecting a JSON object. Received: \[\]"),
        (b"{}", "Missing 'inputs' or 'instances' key"),
        (b'{"inputs": [], "instances": []}', "only one of"),
        (b'{"instances": []}', "a list with values"),
        (b'{"instances": "a"}', "a list with values. Received: 'a'"),
        (b'{"inputs": [], "signature_name": 7}', "must be a string value. Received: 7"),
    ],
)
def test_a_body_that_makes_no_sense_is_refused(body, message):
    with pytest.raises(RequestError, match=message) as caught:
        arrays(read(body), TEXT)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("specs", "asked", "message"),
    [
        (TEXT, {"inputs": {"txt": ["a"]}}, "must be 'text'. Received: 'txt'"),
        (TEXT, {"inputs": {"text": ["a"], "more": ["a"]}}, "Received: 'more', 'text'"),
        (TEXT, {"instances": [{"text": "a"}, {}]}, "element 1 of 'instances' must be 'text'. Received: none"),
        (TEXT, {"instances": [{"text": "a"}, "b"]}, "element 1 .* Received: 'b'"),
        (SAMPLE, {"instances": ["a"]}, "a plain list, but the signature has the inputs 'seed', 'temperature', 'text'"),
        (SAMPLE, {"inputs": ["a"]}, "a plain value"),
        (SAMPLE, {"inputs": {"text": ["a"], "temperature": [1, 2], "seed": [1]}}, "the same number of rows"),
        (TEXT, {"inputs": "a"}, r"must be string \[\?\]. Received shape: \[\]"),
        (TEXT, {"inputs": [["a"]]}, r"Received shape: \[1, 1\]"),
        (TEXT, {"inputs": ["a", ["b"]]}, r"Received: \['b'\]"),
        (TEXT, {"inputs": ["a", None]}, "Received: None"),
        (TEXT, {"inputs": [7]}, "Received: 7"),
        (TEXT, {"inputs": ["\ud800"]}, "half a surrogate"),
        (TEXT, {"inputs": [{"b64": "?"}]}, "not base64"),
        (TEXT, {"inputs": [{"b64": "ä"}]}, "not base64"),
        (TEXT, {"inputs": ["a", {"b65": ""}]}, "b65"),
        (IDS, {"inputs": [[1, 2], [3]]}, r"rows of different sizes: expecting 2 values at \[3\]"),
        (IDS, {"instances": [[1], 2]}, "rows of different sizes"),
        (IDS, {"inputs": [1, 2]}, r"must be int32 \[\?,\?\]"),
        (IDS, {"inputs": [[1.0]]}, "Received: 1.0"),
        (IDS, {"inputs": [[True]]}, "Received: True"),
        (IDS, {"inputs": [[2**31]]}, "Received: 2147483648"),
        (SAMPLE, {"inputs": {"text": ["a"], "temperature": [1e39], "seed": [1]}}, "'temperature'.* Received: 1e.39"),
        (SAMPLE, {"inputs": {"text": ["a"], "temperature": ["1"], "seed": [1]}}, "'temperature'.* Received: '1'"),
        (SAMPLE, {"inputs": {"text": ["a"], "temperature": [2**24 + 1], "seed": [1]}}, "16777217, which would lose"),
        (FLAGS, {"inputs": [[1, 0]]}, "'flags' must be bool"),
        (FLAGS, {"inputs": [[True]]}, r"must be bool \[\?,2\]. Received shape: \[1, 1\]"),
    ],
)
def test_what_does_not_fit_the_signature_is_refused(specs, asked, message):
    with pytest.raises(RequestError, match=message) as caught:
        inputs(specs, **asked)
    assert caught.value.status == 400


def test_a_number_too_large_for_python_is_refused():
    with pytest.raises(RequestError, match="Received: inf"):
        arrays(read(b'{"inputs": {"text": ["a"], "temperature": [1e999], "seed": [1]}}'), SAMPLE)


def test_answers_have_the_form_of_the_request():
    outputs = {"text": np.array([b"a", b"\xff"], object), "score": np.array([0.1, -2], np.float32)}
    columns = {"text": ["a", "\ufffd"], "score": [0.1, -2.0]}
    assert answer(outputs, by_rows=False) == {"outputs": columns}
    assert answer(outputs, by_rows=True) == {
        "predictions": [{"text": "a", "score": 0.1}, {"text": "\ufffd", "score": -2.0}]
    }


def test_a_single_output_loses_its_name():
    outputs = {"ids": np.array([[1, 2], [3, 4]], np.int32)}
    assert answer(outputs, by_rows=False) == {"outputs": [[1, 2], [3, 4]]}
    assert answer(outputs, by_rows=True) == {"predictions": [[1, 2], [3, 4]]}


def test_the_name_of_an_output_says_that_it_is_bytes():
    assert answer({"raw_bytes": np.array([b"\xff"], object)}, by_rows=True) == {"predictions": [{"b64": "/w=="}]}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_output_that_json_cannot_say_is_an_error(value):
    with pytest.raises(RequestError, match="'score' has values that are not finite") as caught:
        answer({"score": np.array([1, value], np.float32)}, by_rows=True)
    assert caught.value.status == 500


def test_the_largest_numbers_survive():
    extremes = np.array([np.finfo(np.float32).min, np.finfo(np.float32).tiny], np.float32)
    assert np.array(answer({"score": extremes}, by_rows=False)["outputs"], np.float32).tolist() == extremes.tolist()
