import pytest
import tensorflow as tf

from export import contents


def test_the_contents_are_read_without_loading(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.int32, "ids")])
    def doubled(ids):
        return {"ids": ids * 2, "name": tf.as_string(ids[:, 0])}

    module = tf.Module()
    module.doubled = doubled
    tf.saved_model.save(module, str(tmp_path), signatures={"double": doubled})
    found = contents.signatures(tmp_path)["double"]
    assert found["inputs"] == {"ids": {"dtype": "int32", "shape": [None, 3]}}
    assert {name: (tensor["dtype"], tensor["shape"]) for name, tensor in found["outputs"].items()} == {
        "ids": ("int32", [None, 3]),
        "name": ("string", [None]),
    }
    assert set(contents.signatures(tmp_path)) == {"double"}
    operations = contents.operations(tmp_path)
    assert "AsString" in operations and operations == sorted(set(operations))


def test_a_file_without_a_graph_is_refused(tmp_path):
    (tmp_path / "saved_model.pb").touch()  # its copying has just begun
    with pytest.raises(ValueError, match=r"saved_model.pb must have a graph with the tag serve. Received: 0 graphs"):
        contents.operations(tmp_path)
