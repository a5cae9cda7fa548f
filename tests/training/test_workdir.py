"""One folder, one run, one configuration."""

import errno
import json
import subprocess
import sys

import pytest

from keras_transformer import Config
from keras_transformer.training.workdir import Workdir, WorkdirError


def test_a_second_process_is_refused(tmp_path):
    workdir = Workdir(tmp_path / "run")
    workdir.lock()
    program = "import sys; from keras_transformer.training.workdir import Workdir; Workdir(sys.argv[1]).lock()"
    second = subprocess.run([sys.executable, "-c", program, workdir.path], capture_output=True, text=True, check=False)
    workdir.unlock()
    assert second.returncode == 1
    assert "WorkdirError" in second.stderr and "one run at a time" in second.stderr


def test_a_file_is_no_workdir(tmp_path):
    path = tmp_path / "train.en"
    path.write_text("Anna sleeps.")
    with pytest.raises(WorkdirError, match=f"must be a folder that can be written. Received: {path}: "):
        Workdir(path).lock()


def test_a_file_system_without_locks_is_not_taken_for_another_process(tmp_path, monkeypatch):
    def unsupported(file, operation):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr("keras_transformer.training.workdir.fcntl.flock", unsupported)
    with pytest.raises(WorkdirError, match="file system with locks .* Operation not supported"):
        Workdir(tmp_path).lock()


def test_before_the_first_checkpoint_a_mistake_can_be_mended(tmp_path):
    workdir = Workdir(tmp_path)
    workdir.claim(Config())
    changed = Config().replace(data=dict(train=["a.en", "a.de"]))
    workdir.claim(changed)
    assert workdir.load_config() == changed


def test_a_model_without_its_training_is_no_run(tmp_path):
    config = Config()
    saved = {section: values for section, values in config.to_dict().items() if section != "train"}
    (tmp_path / "config.json").write_text(json.dumps(saved))
    (tmp_path / "model.keras").write_bytes(b"")
    assert Workdir(tmp_path).load_config() == config
    with pytest.raises(WorkdirError, match=f"saved or packed without its training.*train.start_from={tmp_path}"):
        Workdir(tmp_path).claim(config)


OTHERS = ["model.keras", "tokenizer.model", "source.model", "target.model"]
OTHERS += ["log.jsonl", "config.json", "model.json", "report.html"]
OTHERS += ["data/tokenizer.json", "data/held_out.source"]


@pytest.mark.parametrize("name", OTHERS)
def test_a_folder_of_something_else_is_left_as_it_is(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text('{"architectures": ["MarianMTModel"]}')
    with pytest.raises(WorkdirError, match="another --workdir|not a configuration"):
        Workdir(tmp_path).claim(Config())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / name]
    assert (tmp_path / name).read_text() == '{"architectures": ["MarianMTModel"]}'


def test_a_changed_configuration_is_refused_with_the_difference(tmp_path):
    workdir = Workdir(tmp_path)
    workdir.claim(Config())
    workdir.checkpoints.mkdir()
    (workdir.checkpoints / "step-00000001.npz").touch()
    workdir.claim(Config())
    changed = Config().replace(model=dict(d_ff=1024), data=dict(max_pairs=7, train=["a.en", "a.de"]))
    with pytest.raises(WorkdirError) as caught:
        workdir.claim(changed)
    assert "model.d_ff: 2048 -> 1024" in str(caught.value)
    assert "data.max_pairs: None -> 7" in str(caught.value)
    assert "data.train" not in str(caught.value)  # that may lie elsewhere; what it says is compared by `prepare`
    assert "dropout" not in str(caught.value)


def test_what_changes_no_step_that_was_made_may_differ(tmp_path):
    workdir = Workdir(tmp_path)
    before = Config().replace(train=dict(steps=100, cooldown_steps=20))
    workdir.claim(before)
    workdir.checkpoints.mkdir()
    (workdir.checkpoints / "step-00000080.npz").touch()
    after = before.replace(train=dict(steps=200, log_steps=7))
    assert workdir.claim(after) == ["train.log_steps: 20 -> 7", "train.steps: 100 -> 200"]
    assert workdir.load_config() == before
    with pytest.raises(WorkdirError, match="at step 81. .* fall after step 80, .* after step 180"):
        workdir.change_config(after, 81)
    assert workdir.load_config() == before
    workdir.change_config(after, 80)
    assert workdir.load_config() == after
    workdir.change_config(after.replace(train=dict(log_steps=3)), 190)  # in the cooldown, which stays
    with pytest.raises(WorkdirError, match="at step 181"):  # begins where it did, and falls faster
        workdir.change_config(after.replace(train=dict(steps=190, cooldown_steps=10)), 181)


@pytest.mark.parametrize("section, field", [("train", "start_from"), ("data", "tokenizer_model")])
def test_what_was_read_before_the_first_step_may_lie_elsewhere(tmp_path, section, field):
    workdir = Workdir(tmp_path)
    before, after = (Config().replace(**{section: {field: place}}) for place in "ab")
    workdir.claim(before)
    workdir.checkpoints.mkdir()
    (workdir.checkpoints / "step-00000080.npz").touch()
    assert workdir.claim(after) == [f"{section}.{field}: 'a' -> 'b'"]
    with pytest.raises(WorkdirError, match=f"{section}.{field}: 'a' -> None"):
        workdir.claim(Config())


def test_the_configuration_survives_its_file(tmp_path):
    config = Config().replace(
        model=dict(neighbourhood=5), data=dict(train=[["a.en", "b.en"], "a.de"]), train=dict(clip_norm=1)
    )
    workdir = Workdir(tmp_path)
    workdir.claim(config)
    assert workdir.load_config() == config


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"model": {"d_moddel": 3}}', '{"model": [1]}', "\xff"])
def test_a_broken_configuration_names_its_file(tmp_path, content):
    workdir = Workdir(tmp_path)
    workdir.config_path.write_text(content, encoding="latin-1")
    with pytest.raises(WorkdirError, match="config.json"):
        workdir.load_config()


@pytest.mark.parametrize("content", ["", "{", "[1]", "\xff"])
def test_a_broken_description_of_the_model_names_its_file(tmp_path, content):
    workdir = Workdir(tmp_path)
    workdir.model_path.touch()
    workdir.metadata_path.write_text(content, encoding="latin-1")
    with pytest.raises(WorkdirError, match="model.json"):
        workdir.load_metadata()


def test_a_folder_that_is_no_workdir_says_so(tmp_path):
    with pytest.raises(WorkdirError, match="config.json"):
        Workdir(tmp_path).load_config()


def test_a_file_is_refused_before_anything_is_locked(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(WorkdirError, match="must be a folder that can be written. Received: .*file, a file."):
        Workdir(tmp_path / "file").refuse_other_files()
