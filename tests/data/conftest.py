import os
from pathlib import Path

import pytest

from keras_transformer.data.demo import demo_pairs
from keras_transformer.tokenizer import Tokenizer, Tokenizers


@pytest.fixture(scope="session")
def shared_data():
    """The folder of real corpora, which are not part of this repository."""
    folder = Path(os.environ.get("KERAS_TRANSFORMER_DATA") or Path(__file__).parents[3] / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no real corpora: {folder} is missing; KERAS_TRANSFORMER_DATA may name another folder")
    return folder


@pytest.fixture(scope="session")
def pairs():
    """Different pairs of text."""
    return list(demo_pairs("train", 700))


@pytest.fixture(scope="session")
def tokenizers(pairs):
    shared = Tokenizer.train((text for pair in pairs for text in pair), vocab_size=500)
    return Tokenizers(shared, shared)


@pytest.fixture
def write(tmp_path):
    """Writes bytes or lines to a file and returns its path as a string."""

    def write_file(name, content):
        if isinstance(content, list):
            content = "".join(f"{line}\n" for line in content)
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(tmp_path / name)

    return write_file
