import pytest

from keras_transformer.data.demo import demo_pairs
from keras_transformer.tokenizer import Tokenizer, Tokenizers


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


@pytest.fixture(scope="session")
def tfds():
    return pytest.importorskip("tensorflow_datasets", reason="tensorflow-datasets is not installed")


@pytest.fixture(scope="session")
def tiny_set(tfds, tmp_path_factory):
    """A set of ours, prepared and read by the real loader, in a folder of this test."""

    class TinyTranslate(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.Translation(["de", "en"]))

        def _split_generators(self, _):
            return {"train": self._generate_examples(23), "validation": self._generate_examples(5)}

        def _generate_examples(self, number):
            for i in range(number):
                yield i, {"de": f"Satz\n{i} \u2028", "en": f"sentence {i}"}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path_factory.mktemp("tfds")))
        yield "tfds:tiny_translate"
