import errno
import itertools
import json
import os

import numpy as np
import pytest

from keras_transformer.config import DataConfig
from keras_transformer.data import corpus as corpus_module
from keras_transformer.data.cleaning import Cleaning
from keras_transformer.data.columns import ColumnWriter
from keras_transformer.data.corpus import Corpus, build_corpus, ids_dtype, tokenise
from keras_transformer.data.sources import DataError
from keras_transformer.tokenizer import Tokenizer

ENCODE, APPEND = Tokenizer.encode, ColumnWriter.append


@pytest.fixture(scope="module")
def folder(tmp_path_factory, pairs, tokenizers):
    folder = tmp_path_factory.mktemp("corpus") / "train"
    build_corpus(folder, pairs, tokenizers, Cleaning(DataConfig()), key="k")
    return folder


@pytest.fixture
def build(tmp_path, tokenizers):
    def build_small(pairs, key="k", **options):
        cleaning = Cleaning(DataConfig(**options))
        return build_corpus(tmp_path / "train", cleaning.clean(pairs), tokenizers, cleaning, key=key)

    return build_small


def sequences_of(column):
    return [column[i].tolist() for i in range(len(column))]


@pytest.mark.parametrize("name", ["train", "train.partial"])
def test_files_of_somebody_else_are_not_removed(tmp_path, build, pairs, name):
    (tmp_path / name).mkdir()
    (tmp_path / name / "train.en").write_text("precious\n")
    with pytest.raises(DataError, match=r"holds train\.en.*another --workdir"):
        build(pairs)
    assert (tmp_path / name / "train.en").read_text() == "precious\n"


def test_what_is_left_of_a_store_is_replaced(tmp_path, build, pairs):
    for name in ("train", "train.partial"):
        (tmp_path / name).mkdir()
        for part in ("meta.json.partial", "source.values", "source.offsets"):
            (tmp_path / name / part).write_text("damaged")
    assert len(build(pairs)) == len(pairs)
    assert [path.name for path in tmp_path.iterdir()] == ["train"]


def test_a_link_is_replaced_by_the_store(tmp_path, build, pairs):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "train").symlink_to(tmp_path / "elsewhere")
    assert len(build(pairs)) == len(pairs)
    assert not (tmp_path / "train").is_symlink() and (tmp_path / "elsewhere").is_dir()


class TestStore:
    def test_it_gives_back_every_pair_in_order(self, folder, pairs, tokenizers):
        corpus = Corpus(folder)
        sources, targets = zip(*pairs, strict=True)
        assert len(corpus) == len(pairs)
        assert sequences_of(corpus.source) == tokenizers.source.encode(sources)
        assert sequences_of(corpus.target) == tokenizers.target.encode(targets)
        source, target = corpus.pair(13)
        assert tokenizers.source.decode([source, target]) == list(pairs[13])

    def test_it_knows_the_lengths(self, folder, tokenizers, pairs):
        corpus = Corpus(folder)
        assert corpus.source_lengths.dtype == corpus.target_lengths.dtype == np.int32
        assert corpus.source_lengths.tolist() == [len(corpus.pair(i)[0]) for i in range(len(corpus))]
        assert corpus.target_lengths.tolist() == [len(corpus.pair(i)[1]) for i in range(len(corpus))]

    def test_chunks_do_not_show(self, folder, pairs, build, tmp_path, monkeypatch):
        monkeypatch.setattr(corpus_module, "CHUNK_PAIRS", 11)
        again = build(pairs)
        for name in again.meta["files"]:
            assert (tmp_path / "train" / name).read_bytes() == (folder / name).read_bytes()
        assert again.meta["files"] == Corpus(folder).meta["files"]

    def test_memory_is_bounded_by_pairs_and_characters(self, tokenizers, monkeypatch):
        monkeypatch.setattr(corpus_module, "CHUNK_PAIRS", 5)
        monkeypatch.setattr(corpus_module, "CHUNK_CHARACTERS", 100)
        pairs = [("a", "b")] * 12 + [("c" * 99, "dd"), ("e", "f")]
        parts = list(tokenise(iter(pairs), tokenizers, Cleaning(DataConfig())))
        assert [len(part) for part in parts] == [5, 5, 2, 1, 1]

    def test_a_chunk_is_tokenised_and_written_before_the_next_one_is_read(self, build, pairs, monkeypatch):
        monkeypatch.setattr(corpus_module, "CHUNK_PAIRS", 5)
        read, read_when_tokenised, read_when_written = [], [], []

        def encode(tokenizer, texts):
            read_when_tokenised.append(len(read))
            return ENCODE(tokenizer, texts)

        def append(writer, sequences):
            read_when_written.append(len(read))
            return APPEND(writer, sequences)

        monkeypatch.setattr(Tokenizer, "encode", encode)
        monkeypatch.setattr(ColumnWriter, "append", append)
        build(read.append(pair) or pair for pair in pairs[:12])
        assert read_when_tokenised == read_when_written == [5, 5, 10, 10, 12, 12]  # for source and target

    def test_its_progress_is_shown(self, pairs, tokenizers, tmp_path, monkeypatch, capsys):
        seconds = itertools.count()
        monkeypatch.setattr("keras_transformer.progress.time.monotonic", lambda: float(next(seconds)))
        build_corpus(tmp_path / "train", iter(pairs[:30]), tokenizers, Cleaning(DataConfig()), key="k", total=30)
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) > 1 and all(line.startswith("Tokenising train [==") for line in lines)
        assert lines[-1].startswith(f"Tokenising train [{'=' * 30}] 30 pairs, ")

    def test_ids_take_two_bytes_where_the_vocabulary_allows(self):
        class Size:
            def __init__(self, vocab_size):
                self.vocab_size = vocab_size

        assert [ids_dtype(Size(2**16)), ids_dtype(Size(2**16 + 1))] == ["uint16", "int32"]

    def test_pairs_that_do_not_fit_are_left_out_and_counted(self, build, pairs):
        corpus = build([*pairs[:20], (pairs[0][0] * 20, "x"), ("", "y")], max_length=40)
        assert len(corpus) == 20
        assert "1  longer than 40 pieces" in corpus.meta["report"]
        assert "1  empty side" in corpus.meta["report"]

    def test_a_corpus_of_nothing_is_refused_with_the_reasons(self, build, tmp_path):
        with pytest.raises(DataError, match=r"(?s)No pair is left after cleaning\..*2  empty side"):
            build([("", "x"), ("y", "")])
        assert list(tmp_path.iterdir()) == []


class TestSafety:
    def test_it_is_not_there_before_it_is_whole(self, build, tmp_path, pairs):
        def breaking():
            yield from pairs[:5]
            raise RuntimeError("power cut")

        with pytest.raises(RuntimeError, match="power cut"):
            build(breaking())
        with pytest.raises(DataError, match=r"no corpus is stored here \(meta.json is missing\)"):
            Corpus(tmp_path / "train")
        assert len(build(pairs[:5])) == 5  # over what the accident left behind
        assert [path.name for path in tmp_path.iterdir()] == ["train"]

    def test_a_full_disk_is_named_and_leaves_the_old_one_whole(self, build, pairs, tmp_path, monkeypatch):
        build(pairs[:5], key="old")

        def no_space(*_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(corpus_module.os, "fsync", no_space)
        with pytest.raises(DataError, match="cannot be stored: No space left on device"):
            build(pairs[5:])
        assert Corpus(tmp_path / "train").key == "old"
        assert [path.name for path in tmp_path.iterdir()] == ["train"]

    def test_a_new_one_takes_the_place_of_the_old_one(self, build, pairs):
        old = build(pairs[:5], key="old")
        new = build(pairs[5:12], key="new")
        assert (len(new), new.key) == (7, "new")
        assert len(sequences_of(old.source)) == 5  # what is open stays readable

    @pytest.mark.parametrize("name", ["source.values", "target.offsets"])
    @pytest.mark.parametrize("change", ["cut", "longer", "gone"])
    def test_a_file_of_another_size_is_noticed(self, build, pairs, tmp_path, name, change):
        build(pairs[:5])
        path = tmp_path / "train" / name
        if change == "gone":
            path.unlink()
        else:
            size = path.stat().st_size
            os.truncate(path, size - 2 if change == "cut" else size + 8)
        with pytest.raises(DataError, match=f"{name}"):
            Corpus(tmp_path / "train")

    @pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"files": 3}', '"x"', "\xff"])
    def test_a_broken_description_is_noticed(self, build, pairs, tmp_path, content):
        build(pairs[:5])
        (tmp_path / "train" / "meta.json").write_text(content, encoding="latin-1")
        with pytest.raises(DataError, match="damaged"):
            Corpus(tmp_path / "train")

    def test_the_description_is_for_people_too(self, folder):
        meta = json.loads((folder / "meta.json").read_text())
        assert meta["columns"]["source"] == "uint16"
        assert meta["key"] == "k"

    def test_it_only_opens_and_does_not_read(self, folder):
        corpus = Corpus(folder)
        for array in (corpus.source.values, corpus.target.offsets):
            assert not array.flags.owndata
            assert not array.flags.writeable


class TestSampling:
    def test_it_cuts_the_text_of_the_rows_anew(self, folder, pairs, tokenizers):
        corpus, rows = Corpus(folder, tokenizers), [5, 3, 600]
        sources, targets = corpus.sample(rows, 0.3, (1, 2))
        assert tokenizers.source.decode(sources) == [pairs[row][0] for row in rows]
        assert tokenizers.target.decode(targets) == [pairs[row][1] for row in rows]
        assert sources != [corpus.pair(row)[0].tolist() for row in rows]
        assert corpus.sample(rows, 0.3, (1, 2)) == [sources, targets]
