import contextlib
import itertools
import json
import os
import shutil
import threading

import pytest

from keras_transformer.config import ConfigError, DataConfig
from keras_transformer.data import prepare as module
from keras_transformer.data.demo import demo_pairs
from keras_transformer.data.prepare import draw, prepare
from keras_transformer.data.sources import DataError
from keras_transformer.tokenizer import Tokenizer, Tokenizers


@pytest.fixture
def files(write, pairs):
    """The paths of two aligned files."""
    return tuple(write(name, list(side)) for name, side in zip(("a.en", "a.de"), zip(*pairs, strict=True), strict=True))


@pytest.fixture
def config(files):
    return DataConfig(train=files, vocab_size=400, valid_pairs=20)


@pytest.fixture
def work(monkeypatch):
    """What was made, in order: "tokenizer", "train", "valid"."""
    made = []
    train, build = Tokenizer.train, module.build_corpus

    def train_and_note(*args, **options):
        made.append("tokenizer")
        return train(*args, **options)

    def build_and_note(folder, *args, **options):
        made.append(folder.name)
        return build(folder, *args, **options)

    monkeypatch.setattr(module.Tokenizer, "train", train_and_note)
    monkeypatch.setattr(module, "build_corpus", build_and_note)
    return made


@pytest.fixture
def run(tmp_path):
    """Prepares in a folder of this test; returns what was prepared and the lines of the report."""

    def prepare_here(config, folder="work"):
        lines = []
        prepared = prepare(config, tmp_path / folder, say=lines.append)
        return prepared, "\n".join(lines)

    return prepare_here


def text_of(corpus, tokenizers):
    """The text that a corpus stands for, as the tokenizer writes it."""
    sides = zip(*(corpus.pair(i) for i in range(len(corpus))), strict=True)
    return list(zip(*(tokenizer.decode(side) for tokenizer, side in zip(tokenizers, sides, strict=True)), strict=True))


class TestDemo:
    def test_the_three_splits_come_from_the_grammar(self, run):
        prepared, report = run(DataConfig(max_pairs=300, vocab_size=400))
        assert text_of(prepared.train, prepared.tokenizers) == list(demo_pairs("train", 300))
        assert text_of(prepared.valid, prepared.tokenizers) == prepared.valid_text == list(demo_pairs("valid", 1000))
        assert prepared.test_text == list(demo_pairs("test", 1000))
        assert "train: 300 pairs read, 300 kept" in report


class TestFiles:
    def test_a_validation_set_is_held_out_and_nothing_is_lost(self, run, config, pairs):
        prepared, report = run(config)
        train = text_of(prepared.train, prepared.tokenizers)
        assert len(prepared.valid_text) == 20
        assert text_of(prepared.valid, prepared.tokenizers) == prepared.valid_text
        assert sorted(train + prepared.valid_text) == sorted(pairs)
        assert "so 20 pairs are held out of train" in report
        assert prepared.test_text is None

    def test_no_text_is_an_error(self, run):
        with pytest.raises(ConfigError, match="`data.train` must be the text to train on. Received: None"):
            run(DataConfig(train=None))

    def test_a_test_set_that_can_be_read_only_once_is_refused(self, run, config, tmp_path):
        os.mkfifo(tmp_path / "p.en")
        with pytest.raises(DataError, match="p.en: expected a file that can be read several times"):
            run(config.replace(test=(str(tmp_path / "p.en"),) * 2))

    def test_without_case_a_source_is_held_out_however_it_is_written(self, run, write, pairs):
        both = [*pairs, *((source.upper(), target.upper()) for source, target in pairs)]
        train = tuple(write(name, list(side)) for name, side in zip("ab", zip(*both, strict=True), strict=True))
        prepared, _ = run(DataConfig(train=train, vocab_size=400, valid_pairs=20, lowercase=True))
        held_out = {source.casefold() for source, _ in prepared.valid_text}
        assert len(held_out) == len(prepared.valid_text) / 2 > 5
        assert held_out.isdisjoint(source for source, _ in text_of(prepared.train, prepared.tokenizers))

    def test_with_a_validation_set_nothing_is_held_out(self, run, config, write, pairs):
        valid = (write("v.en", ["The dog sleeps.", ""]), write("v.de", ["Der Hund schläft.", "\0"]))
        prepared, _ = run(config.replace(valid=valid, test=valid))
        assert len(prepared.train) == len(pairs)
        assert len(prepared.valid) == 1
        assert prepared.valid_text == prepared.test_text == [("The dog sleeps.", "Der Hund schläft."), ("", "\0")]

    def test_reverse_turns_everything_round(self, run, config, files):
        straight, _ = run(config.replace(valid=files, test=files))
        turned, _ = run(config.replace(valid=files, test=files, reverse=True), "turned")
        held_out, _ = run(config.replace(reverse=True), "held_out")
        assert turned.valid_text == turned.test_text == [pair[::-1] for pair in straight.valid_text]
        assert text_of(turned.train, turned.tokenizers) == [
            pair[::-1] for pair in text_of(straight.train, straight.tokenizers)
        ]
        assert set(held_out.valid_text) <= set(turned.valid_text)

    def test_max_pairs_reads_the_first_ones(self, run, config, pairs):
        prepared, _ = run(config.replace(max_pairs=60))
        assert sorted(text_of(prepared.train, prepared.tokenizers) + prepared.valid_text) == sorted(pairs[:60])
        assert len(prepared.valid_text) == 3  # one in twenty

    def test_cleaning_is_reported(self, run, write):
        train = (write("c.en", ["a b", "a b", "", "x " * 99, "x"]), write("c.de", ["c d", "c d", "e", "x", "x"]))
        config = DataConfig(train=train, valid=train, vocab_size=50, drop_duplicates=True, max_length=30)
        prepared, report = run(config)
        assert len(prepared.train) == 2
        assert "train: 5 pairs read, 2 kept\n         1  duplicate\n         1  empty side\n" in report
        assert "         1  longer than 30 pieces" in report
        assert "valid: 5 pairs read, 3 kept" in report  # duplicates stay

    def test_a_corpus_too_small_to_hold_anything_out_asks_for_a_validation_set(self, run, write):
        with pytest.raises(DataError, match=r"(?s)too few different.*Give `data.valid`.*2 pairs read, 2 kept"):
            run(DataConfig(train=(write("a", ["x", "x"]), write("b", ["y", "y"])), vocab_size=50))

    def test_nothing_left_is_refused_with_the_reasons(self, run, write):
        train = (write("a", ["", ""]), write("b", ["x", "y"]))
        with pytest.raises(DataError, match="(?s)No pair is left.*2  empty side"):
            run(DataConfig(train=train, valid=train, vocab_size=50))

    def test_a_vocabulary_that_is_too_small_is_an_error_of_the_configuration(self, run, config):
        with pytest.raises(ConfigError, match="must be at least .* for this text"):
            run(config.replace(vocab_size=10))


class TestTokenizers:
    def test_separate_vocabularies_are_trained_on_their_sides(self, run, config, pairs):
        prepared, report = run(config.replace(shared_vocab=False, valid=config.train))
        for tokenizer, side in zip(prepared.tokenizers, zip(*pairs, strict=True), strict=True):
            assert tokenizer.model_hash == Tokenizer.train(side, vocab_size=400).model_hash
        assert "tokenizer: bpe, 400 and 400 pieces" in report

    def test_a_tokenizer_learns_nothing_of_the_pairs_that_are_held_out(self, run, config):
        prepared, _ = run(config)
        train = itertools.chain.from_iterable(text_of(prepared.train, prepared.tokenizers))
        assert prepared.tokenizers.source.model_hash == Tokenizer.train(train, vocab_size=400).model_hash

    def test_every_option_reaches_the_model(self, run, config):
        options = [{}, {"tokenizer": "unigram"}, {"byte_fallback": True}, {"lowercase": True}]
        options += [{"symbols": ["<2de>"]}, {"vocab_size": 390}, {"character_coverage": 0.98}, {"tokenizer_pairs": 300}]
        hashes = {run(config.replace(**option))[0].tokenizers.source.model_hash for option in options}
        assert len(hashes) == len(options)

    def test_models_from_elsewhere_are_taken_and_none_is_trained(self, run, config, pairs, tmp_path, work):
        paths = [str(tmp_path / f"{side}.model") for side in ("source", "target")]
        for path, side in zip(paths, zip(*pairs, strict=True), strict=True):
            Tokenizer.train(side, vocab_size=300).save(path)
        work.clear()
        one, two = config.replace(tokenizer_model=paths[0]), config.replace(tokenizer_model=paths, shared_vocab=False)
        prepared, report = run(two)
        assert work == ["train", "valid"] and "tokenizer: given, 300 and 300 pieces" in report
        assert list(prepared.tokenizers) == [Tokenizer.load(path) for path in paths]
        prepared, report = run(one, "one")
        assert prepared.tokenizers.shared and "tokenizer: given, 300 pieces" in report
        again = prepare(one, tmp_path / "one", say=list, begun=True)
        assert again.train.key == prepared.train.key
        gone = one.replace(tokenizer_model=str(tmp_path / "gone.model"))
        again = prepare(gone, tmp_path / "one", say=list, begun=True)  # the tokenizer of the run is enough
        assert again.train.key == prepared.train.key and again.tokenizers == prepared.tokenizers
        with pytest.raises(DataError, match="must be readable"):
            run(gone, "two")
        with pytest.raises(DataError, match="or the tokenizer of .* has changed since"):
            prepare(config.replace(tokenizer_model=paths[1]), tmp_path / "one", say=list, begun=True)

    def test_what_is_no_such_model_is_refused_before_the_text_is_read(self, run, config, write, tmp_path, work):
        folding = tmp_path / "folding.model"
        Tokenizer.train(["some text"], vocab_size=30, lowercase=True).save(folding)
        work.clear()
        for path, message in (
            ("nowhere.model", "`data.tokenizer_model` must be readable. Received: nowhere.model"),
            (write("text.model", ["no model"]), "`data.tokenizer_model`: .*text.model: Expected a SentencePiece model"),
            (str(folding), "Received: data.lowercase=False, and .*folding.model folds case"),
        ):
            with pytest.raises(DataError, match=message):
                run(config.replace(tokenizer_model=path))
        keeping = str(tmp_path / "keeping.model")
        Tokenizer.train(["some text"], vocab_size=30).save(keeping)
        work.clear()
        for paths in ((keeping, str(folding)), (str(folding), keeping)):
            with pytest.raises(DataError, match="folds case and keeps case|keeps case and folds case"):
                run(config.replace(tokenizer_model=paths, shared_vocab=False))
        assert work == []
        assert run(config.replace(tokenizer_model=str(folding), lowercase=True))[0].tokenizers.source.lowercase

    def test_a_sample_is_drawn_evenly(self):
        sample, number = draw(((str(i), "") for i in range(10_000)), 1000)
        assert number == 10_000
        assert len(set(sample)) == 1000
        assert sum(int(source) < 5000 for source, _ in sample) == pytest.approx(500, abs=80)
        assert draw(iter([("a", "b")]), 5) == ([("a", "b")], 1)
        assert draw(iter([]), 5) == ([], 0)

    @pytest.mark.parametrize("name", ["valid", "test"])
    def test_a_mistake_in_a_small_set_does_not_wait_for_the_training_text(self, run, config, files, write, work, name):
        for wrong in ("nowhere.de", write("short.de", ["one line"])):
            with pytest.raises(DataError, match="nowhere|short"):
                run(config.replace(**{name: (files[0], wrong)}))
        assert work == []


class TestAgain:
    def test_the_second_time_nothing_is_made(self, run, config, work):
        first, _ = run(config)
        assert work == ["tokenizer", "train", "valid"]
        second, report = run(config)
        assert work == ["tokenizer", "train", "valid"]
        assert second.tokenizers.source.model_hash == first.tokenizers.source.model_hash
        assert second.valid_text == first.valid_text
        assert "20  held out for validation" in report  # the account is kept with the store

    def test_files_may_be_touched_moved_and_copied(self, run, config, work, files, tmp_path):
        run(config)
        os.utime(files[0])
        moved = str(tmp_path / "moved.de")
        shutil.move(files[1], moved)
        run(config.replace(train=(files[0], moved)))
        assert work == ["tokenizer", "train", "valid"]

    @pytest.mark.parametrize(
        "change, remade",
        [
            ({"max_length": 60}, ["train", "valid"]),
            ({"subword_sampling": 0.1}, []),
            ({"vocab_size": 380}, ["tokenizer", "train", "valid"]),
            ({"drop_duplicates": True}, ["tokenizer", "train", "valid"]),  # the text of train may be another
            ({"valid_pairs": 10}, ["tokenizer", "train", "valid"]),
            ({"buckets": 3}, []),
        ],
    )
    def test_only_what_depends_on_an_option_is_made_again(self, run, config, work, change, remade):
        run(config)
        work.clear()
        run(config.replace(**change))
        # Another text often gives the same tokenizer; then what is made of the tokenizer stays.
        assert set(work) <= set(remade)
        assert work[:1] == remade[:1]

    @pytest.mark.parametrize("with_valid", [False, True])
    @pytest.mark.parametrize(
        "name, value",
        dict(lowercase=True, reverse=True, max_pairs=60, drop_identical=True, max_length_ratio=1.1).items(),
    )
    def test_what_a_folder_held_before_changes_nothing(self, run, write, pairs, name, value, with_valid):
        both = [*pairs[:100], *(("same", "same"),) * 9]
        files = tuple(write(letter, list(side)) for letter, side in zip("ab", zip(*both, strict=True), strict=True))
        config = DataConfig(train=files, vocab_size=150, valid_pairs=5, valid=files if with_valid else None)
        before, _ = run(config)
        changed = config.replace(**{name: value})
        (found, _), (fresh, _) = run(changed), run(changed, "fresh")
        assert found.tokenizers == fresh.tokenizers and found.valid_text == fresh.valid_text
        texts = [text_of(each.train, each.tokenizers) for each in (found, fresh, before)]
        assert texts[0] == texts[1] != texts[2]
        assert text_of(found.valid, found.tokenizers) == text_of(fresh.valid, fresh.tokenizers)

    def test_a_changed_text_is_noticed(self, run, config, work, files, write, pairs):
        run(config)
        work.clear()
        write("a.de", [*[german for _, german in pairs[:-1]], "Etwas anderes!"])
        prepared, report = run(config)
        assert work[:2] == ["tokenizer", "train"]
        assert "have changed. Building the corpus again" in report
        assert "Etwas anderes!" in {target for _, target in text_of(prepared.train, prepared.tokenizers)}

    @pytest.mark.parametrize("name", ["train/source.values", "train/meta.json", "valid/target.offsets"])
    def test_a_damaged_store_is_built_again(self, run, config, work, tmp_path, name):
        expected, _ = run(config)
        expected = text_of(expected.train, expected.tokenizers)
        path = tmp_path / "work" / "data" / name
        os.truncate(path, path.stat().st_size // 2)
        work.clear()
        prepared, report = run(config)
        assert work == [name.partition("/")[0]]
        assert "damaged" in report
        assert text_of(prepared.train, prepared.tokenizers) == expected

    @pytest.mark.parametrize("damage", ["cut", "gone", "other"])
    def test_a_damaged_tokenizer_is_trained_again_to_the_same_one(self, run, config, work, tmp_path, damage):
        first, _ = run(config)
        path = tmp_path / "work" / "tokenizer.model"
        if damage == "cut":
            os.truncate(path, path.stat().st_size // 2)
        elif damage == "gone":
            path.unlink()
        else:
            Tokenizer.train(["something", "else"], vocab_size=30).save(path)
        work.clear()
        second, _ = run(config)
        assert work == ["tokenizer"]
        assert second.tokenizers.source.model_hash == first.tokenizers.source.model_hash

    @pytest.mark.parametrize("name", ["held_out.source", "held_out.json", "tokenizer.json"])
    def test_lost_notes_are_written_again(self, run, config, tmp_path, name):
        first, _ = run(config)
        (tmp_path / "work" / "data" / name).unlink()
        second, _ = run(config)
        assert second.valid_text == first.valid_text
        assert second.train.key == first.train.key
        assert (tmp_path / "work" / "data" / name).exists()

    def test_a_run_that_has_begun_keeps_its_text_and_tokenizer(self, config, tmp_path):
        for options in ({}, {"valid": config.train}):
            started = config.replace(**options)
            folder = tmp_path / f"begun {len(options)}"
            first = prepare(started, folder, say=list)
            again = prepare(started, folder, say=list, begun=True)
            assert again.train.key == first.train.key
            with pytest.raises(DataError, match="has changed since"):
                prepare(started.replace(max_pairs=600), folder, say=list, begun=True)
            assert Tokenizers.load(folder).source.model_hash == first.tokenizers.source.model_hash

    def test_a_run_that_has_begun_gets_no_validation_set_and_loses_none(self, config, write, tmp_path):
        given = config.replace(valid=(write("v.en", ["The dog sleeps."]), write("v.de", ["Der Hund schläft."])))
        for before, after in ((config, given), (given, config)):
            folder = tmp_path / f"with {before.valid}".replace("/", "")
            prepare(after, folder, say=list)
            prepare(before, folder, say=list)
            with pytest.raises(DataError, match="`data.valid` cannot be added or removed later"):
                prepare(after, folder, say=list, begun=True)
            prepare(before, folder, say=list, begun=True)
            assert (folder / "data" / "held_out.source").exists() == (before.valid is None)
            with pytest.raises(DataError, match="text .* has changed since"):
                prepare(before.replace(train="demo"), folder, say=list, begun=True)

    def test_a_run_that_has_begun_gets_no_other_tokenizer(self, config, tmp_path):
        first = prepare(config, tmp_path, say=list)
        model, record = tmp_path / "tokenizer.model", tmp_path / "data" / "tokenizer.json"
        model.unlink()
        again = prepare(config, tmp_path, say=list, begun=True)  # the same text makes the same one
        assert again.tokenizers.source.model_hash == first.tokenizers.source.model_hash
        known = json.loads(record.read_text())
        record.write_text(json.dumps({**known, "models": ["of another version of SentencePiece"]}))
        model.unlink()
        with pytest.raises(DataError, match="with its tokenizer"):
            prepare(config, tmp_path, say=list, begun=True)
        assert not model.exists()
        record.unlink()
        with pytest.raises(DataError, match="no longer known"):
            prepare(config, tmp_path, say=list, begun=True)

    def test_tokenizers_that_are_given_are_taken(self, config, tmp_path):
        given = prepare(config, tmp_path / "first", say=list).tokenizers
        other = config.replace(vocab_size=500, max_pairs=400)
        found = prepare(other, tmp_path / "second", say=list, given=given)
        assert [each.model_hash for each in found.tokenizers] == [each.model_hash for each in given]
        again = prepare(other, tmp_path / "second", say=list, begun=True, given=Tokenizers.load(tmp_path / "second"))
        assert again.train.key == found.train.key
        with pytest.raises(DataError, match="has changed since"):
            prepare(other.replace(max_pairs=300), tmp_path / "second", say=list, begun=True, given=given)

    def test_after_a_crash_anywhere_it_goes_on(self, run, config, tmp_path, monkeypatch):
        expected, _ = run(config, "expected")
        for name, place in itertools.product(("build_corpus", "choose_held_out", "write_json"), (0, 1)):
            calls, original = itertools.count(), getattr(module, name)

            def crash(*args, calls=calls, place=place, original=original, **options):
                if next(calls) == place:
                    raise KeyboardInterrupt
                return original(*args, **options)

            with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
                patch.setattr(module, name, crash)
                run(config, f"crash {name} {place}")
            prepared, _ = run(config, f"crash {name} {place}")
            assert prepared.train.key == expected.train.key
            assert prepared.valid_text == expected.valid_text

    def test_two_at_once_do_the_work_once(self, run, config, work):
        results = []
        threads = [threading.Thread(target=lambda: results.append(run(config)[0])) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert work == ["tokenizer", "train", "valid"]
        assert {prepared.train.key for prepared in results} == {results[0].train.key}


class TestTfds:
    def test_its_own_validation_set_is_used(self, run, tiny_set):
        config = DataConfig(train=f"{tiny_set}/en-de", vocab_size=50)
        prepared, _ = run(config)
        assert sorted(prepared.valid_text) == [(f"sentence {i}", f"Satz {i} \u2028") for i in range(5)]
        assert len(prepared.train) == 23
        assert prepared.test_text is None
        turned, _ = run(config.replace(train=f"{tiny_set}/de-en"))
        assert text_of(turned.train, turned.tokenizers) == [
            pair[::-1] for pair in text_of(prepared.train, prepared.tokenizers)
        ]

    def test_a_split_that_is_not_there_is_refused(self, run, config, tiny_set):
        with pytest.raises(DataError, match="Unknown split 'test'"):
            run(config.replace(test=f"{tiny_set}/en-de"))
