import os
import shutil

import pytest

from export import ExportError, export_saved_model, saved_model

TEXTS = ["the dog sees the cat .", ""]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_next_version_is_the_next_integer(quick, finished_run, tmp_path):
    (tmp_path / "9").mkdir()
    (tmp_path / "12x").mkdir()
    assert export_saved_model(finished_run, tmp_path) == tmp_path / "10"
    assert export_saved_model(finished_run, tmp_path, 3) == tmp_path / "3"
    assert names(tmp_path) == ["10", "12x", "3", "9"]
    assert (tmp_path / "10" / "saved_model.pb").exists()


def test_a_version_that_exists_is_refused(quick, finished_run, tmp_path):
    (tmp_path / "2").mkdir()
    with pytest.raises(ExportError, match="Version 2 exists"):
        export_saved_model(finished_run, tmp_path, 2)
    with pytest.raises(ExportError, match="positive integer. Received: 0"):
        export_saved_model(finished_run, tmp_path, 0)


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, ExportError, OSError])
def test_an_interrupted_export_leaves_nothing(quick, finished_run, tmp_path, monkeypatch, interruption):
    seen = []

    def interrupt(folder, *_):
        seen.extend(names(tmp_path))
        raise interruption

    monkeypatch.setattr(saved_model, "compare", interrupt)
    with pytest.raises(interruption):
        export_saved_model(finished_run, tmp_path)
    assert seen == [f".writing-1-{os.getpid()}"]  # no integer: a server does not see it
    assert names(tmp_path) == []


def test_two_exports_of_one_version_do_not_mix(quick, exported, finished_run, tmp_path, monkeypatch):
    monkeypatch.setattr(saved_model, "compare", lambda *_: shutil.copytree(exported, tmp_path / "1"))
    with pytest.raises(ExportError, match="in the meantime"):
        export_saved_model(finished_run, tmp_path)
    assert names(tmp_path) == ["1"]


def test_what_killed_exports_have_left_is_removed(no_process, tmp_path):
    (tmp_path / f".writing-1-{no_process}" / "variables").mkdir(parents=True)
    (tmp_path / f".writing-1-{os.getppid()}").mkdir()
    saved_model.remove_stale(tmp_path)
    assert names(tmp_path) == [f".writing-1-{os.getppid()}"]


@pytest.mark.parametrize(("text", "score"), [(" ", 0.0), ("", 2e-4), ("", float("nan"))])
def test_another_translation_or_score_is_refused(translator, monkeypatch, text, score):
    def answers(*_):
        expected = [best for best, *_ in translator.translate_nbest(TEXTS, 1)]
        found = [best.text + text for best in expected], [best.score + score for best in expected]
        return dict(zip(("translations", "scores"), found, strict=True))

    monkeypatch.setattr(saved_model, "_answers", answers)
    with pytest.raises(ExportError, match="Nothing was exported"):
        saved_model.compare(None, translator, TEXTS)


def test_what_does_not_load_is_refused(translator, tmp_path):
    with pytest.raises(ExportError, match="fresh process: .*SavedModel"):
        saved_model.compare(tmp_path, translator, TEXTS)


def test_the_sentences_of_the_check_come_with_or_without_data(finished_run, translator, tmp_path):
    with_data = saved_model.check_sentences(finished_run, translator)
    without = saved_model.check_sentences(tmp_path, translator)
    assert len(with_data) == len(without) == saved_model.NUM_SENTENCES + len(saved_model.HOSTILE)
    assert with_data != without and all(with_data[: saved_model.NUM_SENTENCES])
