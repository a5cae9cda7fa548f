import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.data.columns import Column, ColumnWriter
from keras_transformer.tokenizer import PAD_ID

SEQUENCES = st.lists(st.lists(st.integers(1, 2**16 - 1), max_size=9), min_size=1, max_size=9).filter(any)


def sequences_of(column):
    return [column[i].tolist() for i in range(len(column))]


def stored(folder, chunks, dtype="uint16"):
    with ColumnWriter(folder, "ids", dtype) as writer:
        for chunk in chunks:
            writer.append(tuple(chunk))
        sizes = writer.finish()
    assert sizes == {name: (folder / name).stat().st_size for name in ("ids.values", "ids.offsets")}
    return Column(folder, "ids", dtype)


@settings(max_examples=50, deadline=None)
@given(chunks=st.lists(SEQUENCES, min_size=1, max_size=4))
def test_what_is_written_is_what_is_read(tmp_path_factory, chunks):
    column = stored(tmp_path_factory.mktemp("column"), chunks)
    sequences = [sequence for chunk in chunks for sequence in chunk]
    assert sequences_of(column) == sequences
    assert column.lengths.tolist() == list(map(len, sequences))
    assert column.lengths.dtype == np.int32


@pytest.mark.parametrize("dtype, largest", [("uint16", 2**16 - 1), ("int32", 2**31 - 1)])
def test_the_largest_id_survives(tmp_path, dtype, largest):
    column = stored(tmp_path, [[[1, largest], [2]], [[largest]]], dtype)
    assert sequences_of(column) == [[1, largest], [2], [largest]]
    assert column.values.itemsize == np.dtype(dtype).itemsize


@settings(max_examples=50, deadline=None)
@given(sequences=SEQUENCES, data=st.data(), extra=st.integers(0, 5))
def test_padding_many_equals_padding_one_by_one(tmp_path_factory, sequences, data, extra):
    column = stored(tmp_path_factory.mktemp("column"), [sequences])
    rows = data.draw(st.lists(st.integers(0, len(sequences) - 1), max_size=9))
    width = max((len(sequences[row]) for row in rows), default=0) + extra
    padded = column.padded(np.array(rows, np.int64), width)
    assert padded.dtype == np.int32
    assert padded.shape == (len(rows), width)
    assert padded.tolist() == [sequences[row] + [PAD_ID] * (width - len(sequences[row])) for row in rows]


def test_it_is_mapped_and_not_read(tmp_path):
    column = stored(tmp_path, [[[5, 6], [7]]])
    for array in (column.values, column.offsets):
        assert not array.flags.owndata
        assert not array.flags.writeable
