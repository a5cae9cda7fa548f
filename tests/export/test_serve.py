"""The server as a process of its own, with a model that was really exported."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import requests

from export import serving_files
from export.serve import RequestLimits
from tests.export.local_server import Process, post
from tests.processes import environment

TEXTS = [f"the dog sees the {'very ' * (n % 7)}small cat {n} ." for n in range(39)] + [""]


@pytest.fixture(scope="module")
def folder(exported, tmp_path_factory):
    """The versions that the server sees, which tests may change."""
    folder = tmp_path_factory.mktemp("server") / "demo"
    shutil.copytree(exported, folder / "1")
    serving_files.write(folder)
    return folder


@pytest.fixture(scope="module")
def process(folder):
    process = Process(folder)
    process.wait_for("version 1 is available")
    yield process
    process.end(signal.SIGKILL)


@pytest.fixture(scope="module")
def url(process):
    return f"{process.url}/v1/models/demo"


def states(url):
    return {int(each["version"]): each for each in requests.get(url, timeout=10).json()["model_version_status"]}


def wait_for_state(url, version, state):
    for _ in range(1000):
        found = states(url).get(version)
        if found and found["state"] == state:
            return found
        time.sleep(0.03)
    raise AssertionError(f"no {state} in {found}")


def test_the_start_says_where_and_that_it_is_for_trying_out(process):
    assert process.lines[0].endswith("/v1/models/demo, for trying out; use TF Serving in production\n")


def test_tensorflow_notes_nothing_between(process):
    assert [line.split(" after ")[0].strip() for line in process.lines[1:3]] == [
        "loading version 1",
        "version 1 is available",
    ]


def test_rows_and_columns_are_answered_as_the_model_does(url, signatures):
    expected = signatures["serving_default"](text=["the dog", ""])
    translations = [text.decode() for text in expected["translation"]]
    by_rows = post(f"{url}:predict", instances=[{"text": "the dog"}, {"text": ""}]).json()["predictions"]
    by_columns = post(f"{url}/versions/1:predict", inputs={"text": ["the dog", ""]}).json()["outputs"]
    assert [row["translation"] for row in by_rows] == by_columns["translation"] == translations
    assert [row["score"] for row in by_rows] == by_columns["score"]
    assert by_columns["score"] == pytest.approx(expected["score"].tolist(), rel=1e-4)


def test_the_second_half_of_an_answer_does_not_wait_for_the_first(url):
    def seconds():
        start = time.perf_counter()
        session.get(url, timeout=10)
        return time.perf_counter() - start

    with requests.Session() as session:
        assert min(seconds() for _ in range(10)) < 0.03  # TCP would wait for 0.04


def test_every_signature_is_served(url, signatures):
    nbest = post(f"{url}:predict", signature_name="translate_nbest", instances=["the dog"]).json()["predictions"]
    assert [text.encode() for text in nbest[0]["translations"]] == [
        *signatures["translate_nbest"](text=["the dog"])["translations"][0]
    ]
    rows = [{"source": "the dog", "target": "der Hund"}]
    assert post(f"{url}:predict", signature_name="score", instances=rows).json()["predictions"][0]["log_prob"] < 0
    ids = post(f"{url}:predict", signature_name="translate_ids", inputs=[[5, 6, 3]]).json()["outputs"]
    assert len(ids["ids"][0]) == ids["lengths"][0]


def test_the_metadata_are_the_signatures(url):
    for path in ("/metadata", "/versions/1/metadata", "/labels/stable/metadata"):
        found = requests.get(url + path, timeout=10).json()
        assert found["model_spec"] == {"name": "demo", "signature_name": "", "version": "1"}
        text = found["metadata"]["signature_def"]["signature_def"]["serving_default"]["inputs"]["text"]
        assert text["dtype"] == "DT_STRING" and text["tensor_shape"]["dim"] == [{"size": "-1", "name": ""}]


def test_requests_at_the_same_time_get_the_answers_of_single_ones(url):
    def ask(text):
        return post(f"{url}:predict", instances=[text]).json()["predictions"]

    alone = [ask(text)[0] for text in TEXTS]
    with ThreadPoolExecutor(len(TEXTS)) as threads:
        together = [answer[0] for answer in threads.map(ask, TEXTS)]
    assert [answer["translation"] for answer in together] == [answer["translation"] for answer in alone]
    assert [answer["score"] for answer in together] == pytest.approx([answer["score"] for answer in alone], rel=1e-4)


def test_more_rows_than_tf_serving_takes_are_refused_here_too(url):
    for rows, status in ((32, 200), (33, 400)):
        assert post(f"{url}:predict", instances=[""] * rows).status_code == status


def test_wrong_requests_fail_alone(url):
    def ask(number):
        text = 7 if number % 5 == 0 else "the dog"
        return post(f"{url}:predict", instances=[text]).status_code

    with ThreadPoolExecutor(20) as threads:
        assert list(threads.map(ask, range(20))) == [400, 200, 200, 200, 200] * 4


def test_a_broken_version_is_survived_and_a_good_one_loaded(url, folder, process):
    shutil.copytree(folder / "1", folder / ".writing")
    (folder / ".writing" / "saved_model.pb").write_bytes(b"no protocol buffer")
    (folder / ".writing").rename(folder / "2")
    broken = wait_for_state(url, 2, "END")
    assert broken["status"]["error_code"] == "UNKNOWN" and broken["status"]["error_message"]
    assert states(url)[1]["state"] == "AVAILABLE"
    assert post(f"{url}:predict", instances=["the dog"]).status_code == 200

    shutil.copytree(folder / "1", folder / ".writing")
    (folder / ".writing").rename(folder / "3")
    wait_for_state(url, 3, "AVAILABLE")
    assert states(url)[1]["state"] == "AVAILABLE"  # it is stable
    assert post(f"{url}/labels/stable:predict", instances=["the dog"]).status_code == 200
    config = folder / "serving" / "models.config"
    config.write_text(re.sub(r"(stable.*\n.*value:) 1", r"\1 3", config.read_text(encoding="utf-8")), encoding="utf-8")
    wait_for_state(url, 1, "END")
    assert post(f"{url}/labels/stable:predict", instances=["the dog"]).status_code == 200
    assert states(url)[3]["state"] == "AVAILABLE"
    assert post(f"{url}:predict", instances=["the dog"]).status_code == 200
    assert post(f"{url}/versions/1:predict", instances=["the dog"]).status_code == 404
    process.wait_for("version 1 is unloaded")


def test_a_port_in_use_is_one_line(process, folder):
    port = process.url.split(":")[-1]
    command = [sys.executable, "-m", "export.serve", "--model", str(folder), "--port", port]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, f"error: cannot listen at 127.0.0.1:{port}: Address already in use\n")


def test_a_signal_lets_the_requests_under_way_finish(process, url):
    """Last, because it ends the process."""
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(post, f"{url}:predict", instances=["the dog " * 60] * 30) for _ in range(4)]
        time.sleep(0.3)  # they are under way
        start = time.monotonic()
        assert process.end(signal.SIGTERM) == 143
    assert [each.result().status_code for each in asked] == [200] * 4
    assert time.monotonic() - start < 15
    assert not any("Traceback" in line for line in process.lines), process.lines


def test_a_folder_without_versions_is_waited_for_and_the_server_can_be_interrupted(tmp_path):
    process = Process(tmp_path, "--name", "other")
    process.wait_for("waiting for a version")
    assert post(f"{process.url}/v1/models/other:predict", instances=[""]).status_code == 404
    assert requests.get(f"{process.url}/v1/models/other", timeout=10).status_code == 404
    assert process.end(signal.SIGINT) == 130
    assert len(process.said()) == 2


def test_a_model_that_is_being_loaded_is_not_waited_for(exported):
    process = Process(exported.parent)
    process.wait_for("loading version 1")
    start = time.monotonic()
    assert process.end(signal.SIGTERM) == 143
    assert time.monotonic() - start < 3  # TensorFlow alone takes longer
    assert len(process.said()) == 2


def test_what_nobody_reads_does_not_end_the_server(monkeypatch):
    from export.serve.__main__ import _report

    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        _report("version 2 is available")
        monkeypatch.setattr(sys, "stderr", None)
        _report("version 3 is available")
        os.dup2(os.open(os.devnull, os.O_WRONLY), writer)


def test_the_options_reach_the_server(tmp_path, monkeypatch):
    from export.serve.__main__ import main

    made = []

    def server(folder, name, limits):
        made.append((folder, name, limits.timeout))
        return SimpleNamespace(run=lambda sockets: sockets[0].close())

    monkeypatch.setattr("export.serve.__main__._server", server)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    for options in ([], ["--name", "mine", "--timeout", "7.5"]):
        assert main(["--model", str(tmp_path), "--port", "0", *options]) == 0
    assert made == [(tmp_path, tmp_path.name, RequestLimits.timeout), (tmp_path, "mine", 7.5)]


def test_a_folder_that_is_not_there_is_one_line(tmp_path, capsys):
    from export.serve.__main__ import main

    assert main(["--model", str(tmp_path / "no")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: --model must be a folder") and error.count("\n") == 1


def test_a_version_is_not_taken_for_the_folder_of_the_versions(tmp_path, capsys):
    from export.serve.__main__ import main

    (tmp_path / "saved_model.pb").touch()
    assert main(["--model", str(tmp_path)]) == 1
    assert "must be the folder of the versions. Received one of them" in capsys.readouterr().err


def test_a_missing_package_is_one_line(tmp_path, capsys, monkeypatch):
    from export.serve.__main__ import main

    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["--model", str(tmp_path), "--port", "0"]) == 1
    assert capsys.readouterr().err == 'error: no package uvicorn: pip install -e ".[server]"\n'


@pytest.mark.parametrize("name", ["", "a/b", "de:mo", "-x"])
def test_a_name_that_no_path_can_have_is_refused(tmp_path, name, capsys):
    from export.serve.__main__ import main

    with pytest.raises(SystemExit) as caught:
        main(["--model", str(tmp_path), f"--name={name}"])
    assert caught.value.code == 2 and f"Received: {name!r}" in capsys.readouterr().err


@pytest.mark.parametrize("package", ["uvicorn", "numpy"])
def test_an_interruption_of_the_imports_is_quiet(tmp_path, package):
    (tmp_path / f"{package}.py").write_text("raise KeyboardInterrupt", encoding="utf-8")
    command = [sys.executable, "-m", "export.serve", "--model", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, env=environment(tmp_path), timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.parametrize(("option", "expected"), [("--host", "an address"), ("--model", "a folder")])
def test_a_variable_that_is_not_set_is_no_address_and_no_folder(tmp_path, capsys, option, expected):
    from export.serve.__main__ import main

    with pytest.raises(SystemExit) as caught:
        main(["--model", str(tmp_path), "--port", "0", option, ""])
    assert caught.value.code == 2 and f"{option}: must be {expected}. Received: ''" in capsys.readouterr().err
