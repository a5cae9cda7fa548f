import numpy as np
import pytest
import tensorflow as tf

from export import check, contents, warmup


def test_every_signature_is_asked_for_one_row_and_for_several(exported):
    found = check.requests(exported / warmup.PATH)
    sizes = {}
    for signature, inputs in found:
        sizes.setdefault(signature, []).append({len(rows) for rows in inputs.values()})
    assert set(sizes) == set(contents.signatures(exported))
    assert all(size == [{1}, {3}] for size in sizes.values())
    assert len(found) <= warmup.MAX_RECORDS


def test_every_request_has_the_inputs_of_its_signature_and_their_types(exported):
    signatures = contents.signatures(exported)
    for signature, inputs in check.requests(exported / warmup.PATH):
        expected = {name: tf.as_dtype(tensor["dtype"]) for name, tensor in signatures[signature]["inputs"].items()}
        assert {name: tf.as_dtype(rows.dtype) for name, rows in inputs.items()} == expected


def test_all_requests_are_answered(exported, signatures):
    assert check.replay(signatures, exported / warmup.PATH) == 2 * len(list(signatures))


def test_two_exports_have_the_same_requests(exported, tmp_path):
    (tmp_path / "saved_model.pb").write_bytes((exported / "saved_model.pb").read_bytes())
    warmup.write(tmp_path)
    assert (tmp_path / warmup.PATH).read_bytes() == (exported / warmup.PATH).read_bytes()


def saved(folder, name, input_name="text", dtype=tf.string):
    """A SavedModel of one signature that returns its input."""

    @tf.function(input_signature=[tf.TensorSpec([None], dtype, input_name)])
    def same(value):
        return {"same": value}

    module = tf.Module()
    module.same = same
    tf.saved_model.save(module, str(folder), signatures={name: same})
    return folder


def test_an_input_without_an_example_is_refused(tmp_path):
    with pytest.raises(ValueError, match="Every input must have an example.*Received: the input 'picture' of .* 'see'"):
        warmup.write(saved(tmp_path, "see", "picture"))


def test_what_a_server_may_refuse_to_compile_is_not_asked_for(tmp_path):
    warmup.write(saved(tmp_path, "translate_xla"))
    assert check.requests(tmp_path / warmup.PATH) == []


def test_a_request_that_fails_is_an_error(tmp_path):
    warmup.write(saved(tmp_path, "echo"))

    def broken(**_):
        raise tf.errors.InvalidArgumentError(None, None, "broken")

    with pytest.raises(tf.errors.InvalidArgumentError, match="broken"):
        check.replay({"echo": broken}, tmp_path / warmup.PATH)


def test_every_example_has_as_many_rows_of_different_lengths():
    assert {len(rows) for rows in warmup.ROWS.values()} == {3}
    assert len({len(text) for text in warmup.SENTENCES}) == 3
    assert len({np.flatnonzero(np.array(row) == 3)[0] for row in warmup.ROWS["ids"]}) == 3
