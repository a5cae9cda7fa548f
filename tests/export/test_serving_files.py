import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from google.protobuf import text_format
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from export import ExportError, serving_files

NAMES = ["batching.config", "compose.yaml", "kubernetes.yaml", "models.config", "monitoring.config"]
AVAILABLE = (
    '{\n "model_version_status": [\n  {\n   "version": "1",\n   "state": "AVAILABLE",\n   "status": {}\n  }\n ]\n}\n'
)


def export(to, *versions):
    """What an export leaves, in the eyes of `serving_files`."""
    for version in versions:
        (to / str(version)).mkdir(parents=True)
    serving_files.write(to)
    return to / "serving"


def model(to, name="demo"):
    server = text_format.Parse((to / "serving" / "models.config").read_text(encoding="utf-8"), ModelServerConfig())
    (found,) = [model for model in server.model_config_list.config if model.name == name]
    return found


def served(to):
    return list(model(to).model_version_policy.specific.versions), dict(model(to).version_labels)


def test_the_files_are_there_and_the_model_has_the_name_of_its_folder(tmp_path):
    folder = export(tmp_path / "demo", 1)
    assert sorted(path.name for path in folder.iterdir()) == NAMES
    found = model(tmp_path / "demo")
    assert (found.name, found.base_path, found.model_platform) == ("demo", "/models/demo", "tensorflow")
    assert served(tmp_path / "demo") == ([1], {"stable": 1})


def test_an_export_adds_the_newest_version_and_never_moves_the_label(tmp_path):
    to = tmp_path / "demo"
    seen = []
    for version in (1, 2, 3, 4):
        export(to, version)
        seen.append(served(to))
    assert seen == [
        ([1], {"stable": 1}),
        ([1, 2], {"stable": 1}),
        ([1, 2, 3], {"stable": 1}),
        ([1, 3, 4], {"stable": 1}),
    ]


def test_no_label_ever_moves_to_a_version_that_a_running_server_has_yet_to_load(tmp_path):
    """A server refuses such a file as a whole, and each time it looks, so that it would never load the version."""
    to, loaded, labels = tmp_path / "demo", [], {}
    for version in range(1, 6):
        export(to, version)
        now, found = served(to)
        moved = {label: target for label, target in found.items() if labels.get(label, target) != target}
        assert set(moved.values()) <= set(loaded)
        loaded, labels = now, found
        if version == 3:
            promote(to, 3)
            labels = {"stable": 3}
    assert served(to) == ([3, 4, 5], {"stable": 3})


def promote(to, version):
    path = to / "serving" / "models.config"
    text = path.read_text(encoding="utf-8")
    path.write_text(re.sub(r'(key: "stable"\s+value:) \d+', rf"\1 {version}", text), encoding="utf-8")


def test_an_export_that_waits_for_another_one_keeps_its_version(tmp_path):
    to = tmp_path / "demo"
    folder = export(to, 1)
    (to / "2").mkdir()
    with ThreadPoolExecutor(1) as executor:
        with serving_files._locked(folder):
            waiting = executor.submit(serving_files.write, to)
            time.sleep(0.2)
            (to / "3").mkdir()  # by the export that has the lock
        waiting.result()
    assert served(to) == ([1, 2, 3], {"stable": 1})


def test_only_what_models_config_names_is_served(tmp_path):
    to = tmp_path / "demo"
    export(to, 5, 6, 7)
    export(to, 3)
    assert [serving_files.is_served(to / str(version)) for version in (3, 5, 6, 7)] == [False, False, True, True]


def test_a_label_whose_version_was_removed_goes_to_the_older_of_the_newest_two(tmp_path):
    to = tmp_path / "demo"
    export(to, 1, 2, 3)
    for version in (1, 2):
        (to / str(version)).rmdir()
    promote(to, 2)
    export(to, 4)
    assert served(to) == ([3, 4], {"stable": 3})


def test_a_label_waits_for_a_version_that_a_running_server_has(tmp_path):
    to = tmp_path / "demo"
    export(to, 1)
    (to / "1").rmdir()
    export(to, 2)
    assert served(to) == ([2], {})
    export(to, 3)
    assert served(to) == ([2, 3], {"stable": 2})


def test_an_empty_version_list_never_arises_and_gaps_do_no_harm(tmp_path):
    export(tmp_path / "demo", 3, 20)
    assert served(tmp_path / "demo") == ([3, 20], {"stable": 3})


def test_what_was_changed_by_hand_stays(tmp_path):
    to = tmp_path / "demo"
    path = export(to, 1) / "models.config"
    other = 'config { name: "other" base_path: "/models/other" model_platform: "tensorflow" }'
    changed = path.read_text(encoding="utf-8").replace("model_config_list {", "model_config_list {\n" + other)
    changed = changed.replace(
        'base_path: "/models/demo"', 'base_path: "/srv/demo" version_labels {key: "old" value: 1}'
    )
    path.write_text(changed, encoding="utf-8")
    export(to, 2)
    assert model(to, "other").base_path == "/models/other" and model(to).base_path == "/srv/demo"
    assert served(to) == ([1, 2], {"stable": 1, "old": 1})


def test_another_policy_that_was_chosen_by_hand_stays(tmp_path):
    to = tmp_path / "demo"
    path = export(to, 1) / "models.config"
    text = re.sub(r"specific \{[^}]*\}", "all {}", path.read_text(encoding="utf-8"))
    path.write_text(text, encoding="utf-8")
    export(to, 2)
    assert model(to).model_version_policy.WhichOneof("policy_choice") == "all"


def test_the_other_files_are_written_once(tmp_path):
    folder = export(tmp_path / "demo", 1)
    for name in NAMES:
        if name != "models.config":
            (folder / name).write_text("mine", encoding="utf-8")
    (folder / "compose.yaml").unlink()
    export(tmp_path / "demo", 2)
    assert [name for name in NAMES if (folder / name).read_text(encoding="utf-8") == "mine"] == [
        "batching.config",
        "kubernetes.yaml",
        "monitoring.config",
    ]
    assert "demo" in (folder / "compose.yaml").read_text(encoding="utf-8")


def test_a_damaged_models_config_is_refused_before_the_export(tmp_path):
    path = export(tmp_path / "demo", 1) / "models.config"
    path.write_text("model_config_list { config { nme: 'demo' } }", encoding="utf-8")
    with pytest.raises(ValueError, match="must be a ModelServerConfig in text form. Received: .*nme"):
        serving_files.check(tmp_path / "demo")


@pytest.mark.parametrize("to", ["file", "file/export"])
def test_a_file_or_a_link_to_nothing_is_no_folder_of_versions(tmp_path, to):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=f"Received: .*{to}, where .*file is no folder"):
        serving_files.check(tmp_path / to)
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(ValueError, match="where .*link is no folder"):
        serving_files.check(tmp_path / "link")


@pytest.mark.parametrize("held", ["checkpoints", "model.keras"])
def test_the_folder_of_a_run_is_not_that_of_its_versions(tmp_path, held):
    (tmp_path / "run" / held).mkdir(parents=True)
    with pytest.raises(ValueError, match="Received that of a run or a model: .*Take .*run/export, for example"):
        serving_files.check(tmp_path / "run")
    serving_files.check(tmp_path / "run" / "export")


def test_a_renamed_folder_is_refused_before_the_export_adds_a_second_model(tmp_path):
    export(tmp_path / "demo", 1)
    serving_files.check(tmp_path / "demo")
    (tmp_path / "demo").rename(tmp_path / "news")
    with pytest.raises(ValueError, match="must have the model that its folder names, news. Received: demo. .*remove"):
        serving_files.check(tmp_path / "news")


def test_where_the_files_cannot_be_written_it_is_said_that_the_version_is_there_all_the_same(tmp_path, monkeypatch):
    def write_text(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("keras_transformer.files.write_text", write_text)
    message = r"The version is published in .*demo, but the configuration .*demo/serving.*No space left on device"
    with pytest.raises(ExportError, match=message):
        export(tmp_path / "demo", 1)


def test_a_folder_with_a_number_that_no_server_reads_does_no_harm(tmp_path):
    export(tmp_path / "demo", 1, 10**23)
    assert served(tmp_path / "demo") == ([1], {"stable": 1})


def test_the_labels_are_those_of_the_model_that_the_folder_names(tmp_path):
    to = tmp_path / "demo"
    assert serving_files.labels(to) == {}
    path = export(to, 1, 2) / "models.config"
    assert serving_files.labels(to) == {"stable": 1}
    path.write_text(path.read_text(encoding="utf-8").replace('name: "demo"', 'name: "other"'), encoding="utf-8")
    with pytest.raises(ValueError, match="must have the model demo. Received: other. No label is known."):
        serving_files.labels(to)
    path.write_text("no config", encoding="utf-8")
    with pytest.raises(ValueError, match="must be a ModelServerConfig"):
        serving_files.labels(to)


@pytest.mark.parametrize("name", ["my model", "größe", "a:b", "$HOME", "-x", ".x", 'a"b', "a%s", "x" + "\n"])
def test_a_name_that_a_server_or_a_shell_would_misread_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="names the model; it must consist of letters.*Received"):
        serving_files.check(tmp_path / name)


def test_the_name_is_that_of_the_folder_however_it_is_written(tmp_path, monkeypatch):
    (tmp_path / "demo" / "1").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "demo")
    assert {serving_files.model_name(path) for path in (tmp_path / "demo", ".", "1/..", "../demo/")} == {"demo"}


def test_a_link_has_the_name_of_what_it_leads_to(tmp_path):
    export(tmp_path / "a" / "export", 1)
    for link, target in (("b", "a"), ("c", "a/export")):
        (tmp_path / link).symlink_to(tmp_path / target)
    for to in (tmp_path / "b" / "export", tmp_path / "c"):
        assert serving_files.model_name(to) == "a" and serving_files.labels(to) == {"stable": 1}


def test_an_export_inside_of_a_run_is_named_after_the_run(tmp_path):
    assert serving_files.model_name(tmp_path / "a" / "export") == "a"
    assert serving_files.model_name(tmp_path / "my run" / "export") == "export"  # that no server could have
    export(tmp_path / "a" / "export", 1)
    assert model(tmp_path / "a" / "export", "a").base_path == "/models/a"
    assert serving_files.labels(tmp_path / "a" / "export") == {"stable": 1}
