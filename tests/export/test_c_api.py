"""A stock server can load the export: its loader and its session in C++, without Python's TensorFlow, without XLA."""

import json
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text

from export import check, contents, warmup

SCRIPT = Path(__file__).with_name("c_api.py")
MISSING = 77  # its exit code


def libraries():
    """Those of TensorFlow and the one of tensorflow-text that has SentencePiece."""
    tensorflow = Path(tf.__file__).parent
    text = Path(tensorflow_text.__file__).parent / "python" / "ops" / "_sentencepiece_tokenizer.so"
    return [tensorflow / "libtensorflow_framework.so.2", tensorflow / "libtensorflow_cc.so.2", text]


def run(folder, requests):
    """The answers of the loader in C++ to [(signature, {input: rows})]."""
    asked = json.dumps({"signatures": signatures_with_names(folder), "requests": requests})
    command = [sys.executable, SCRIPT, folder, *libraries()]
    done = subprocess.run([*map(str, command)], input=asked, capture_output=True, text=True)
    if done.returncode == MISSING and (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip(f"this build of TensorFlow cannot be used from C: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def signatures_with_names(folder):
    """`contents.signatures`, every tensor with its name in the graph, "tensor"."""
    found, served = contents.signatures(folder), contents.meta_graph(folder).signature_def
    for signature, sides in found.items():
        for side, tensors in sides.items():
            for name, tensor in tensors.items():
                tensor["tensor"] = getattr(served[signature], side)[name].name
    return found


def rows(array):
    return [text.decode() for text in array.tolist()] if array.dtype == object else array.tolist()


def test_a_server_answers_every_signature_as_python_does(exported, signatures):
    requests = [
        (name, {key: rows(value) for key, value in inputs.items()})
        for name, inputs in check.requests(exported / warmup.PATH)
    ]
    texts = ["the dog sees the cat .", "", "\udcff\udcfe broken", "\x00", "👩‍👩‍👧 ½", "ab " * 40]
    requests.append(("serving_default", {"text": texts}))
    answers = run(exported, requests)
    assert {name for name, _ in requests} == set(contents.signatures(exported))
    for (name, inputs), answer in zip(requests, answers, strict=True):
        expected = signatures[name](**{key: constant(value) for key, value in inputs.items()})
        assert set(answer) == set(expected)
        for key, value in expected.items():
            assert_same(np.array(answer[key], value.dtype), value)


def constant(value):
    if isinstance(value[0], str):
        return tf.constant([text.encode("utf-8", "surrogateescape") for text in value], tf.string)
    dtypes = {float: tf.float32, int: tf.int64, list: tf.int32}
    return tf.constant(value, dtypes[type(value[0])])


def assert_same(answer, expected):
    assert answer.shape == expected.shape
    if expected.dtype == object:
        assert answer.tolist() == tf.nest.map_structure(bytes.decode, expected.tolist())
    else:
        np.testing.assert_allclose(answer, expected, atol=1e-4)


def test_what_python_alone_can_run_is_refused(tmp_path):
    """So the test above would notice: XLA is off as it is in a server."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")], jit_compile=True)
    def compiled(x):
        return {"y": x + 1.0}

    module = tf.Module()
    module.compiled = compiled
    tf.saved_model.save(module, str(tmp_path), signatures={"serving_default": compiled})
    with pytest.raises(AssertionError, match="XLA compilation disabled"):
        run(tmp_path, [("serving_default", {"x": [1.0]})])
