import subprocess
import sys
from pathlib import Path

import pytest

from export.__main__ import main
from tests.processes import environment


def test_the_command_says_where_it_is_and_how_to_ask(quick, finished_run, tmp_path, capsys):
    assert main(["--workdir", str(finished_run), "--to", str(tmp_path / "demo"), "--version", "4"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{tmp_path / 'demo' / '4'}\n")
    assert "/v1/models/demo:predict" in out and "curl" in out


def test_an_export_beside_its_run_is_asked_for_by_the_name_of_the_run(quick, finished_run, tmp_path, capsys):
    to = tmp_path / "mine" / "export"
    assert main(["--workdir", str(finished_run), "--to", str(to)]) == 0
    out = capsys.readouterr().out
    assert "/v1/models/mine:predict" in out and f"{to}/serving/compose.yaml" in out
    assert "mine" in (to / "serving" / "compose.yaml").read_text()


def test_a_version_that_no_server_will_have_is_said_to_be_so(quick, finished_run, tmp_path, capsys):
    for version in (4, 5):
        (tmp_path / "demo" / str(version)).mkdir(parents=True)
    assert main(["--workdir", str(finished_run), "--to", str(tmp_path / "demo"), "--version", "3"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{tmp_path / 'demo' / '3'}\n") and "older than the two newest" in out and "curl" not in out


@pytest.mark.parametrize(
    "error, code, message",
    [(BrokenPipeError(), 141, ""), (OSError(28, "No space left on device"), 1, "error: [Errno 28] No space left")],
)
def test_an_output_that_cannot_be_written_is_no_traceback(monkeypatch, tmp_path, capsys, error, code, message):
    def refuse(*_):
        raise error

    monkeypatch.setattr("export.__main__.export_saved_model", lambda workdir, to, *_, **__: to / "1")
    monkeypatch.setattr("export.__main__.is_served", lambda path: True)
    monkeypatch.setattr("builtins.print", lambda *args, file=None: file.write(str(args[0])) if file else refuse())
    monkeypatch.setattr("keras_transformer_cli.errors.silence", lambda stream: None)
    assert main(["--workdir", "x", "--to", str(tmp_path / "demo")]) == code
    assert capsys.readouterr().err.startswith(message)


def test_the_options_reach_the_export(monkeypatch, tmp_path):
    asked = []

    def export(workdir, to, version, **options):
        asked.append((workdir, to, version, options))
        return to / "1"

    monkeypatch.setattr("export.__main__.export_saved_model", export)
    monkeypatch.setattr("export.__main__.is_served", lambda path: True)
    named, to = ["--workdir", "a", "--to", str(tmp_path / "demo")], tmp_path / "demo"
    more = ["--ensemble", "b", "--version", "3", "--max-input-bytes", "9", "--xla", "--set", "decode.alpha=1.5"]
    assert main(named) == main([*named, *more]) == 0
    assert asked[0] == ("a", to, None, dict(ensemble=[], max_input_bytes=None, xla=False))
    assert asked[1] == ("a", to, 3, dict(ensemble=["b"], max_input_bytes=9, xla=True, alpha=1.5))


def test_a_package_that_cannot_be_imported_is_no_traceback(monkeypatch, tmp_path, capsys):
    def export(*_, **__):
        raise ImportError("libtensorflow_text.so: undefined symbol")

    monkeypatch.setattr("export.__main__.export_saved_model", export)
    assert main(["--workdir", "x", "--to", str(tmp_path / "demo")]) == 1
    assert capsys.readouterr().err == "error: libtensorflow_text.so: undefined symbol\n"


def test_a_version_is_not_the_folder_of_versions(finished_run, tmp_path, capsys):
    version = tmp_path / "demo" / "1"
    version.mkdir(parents=True)
    (version / "saved_model.pb").touch()
    assert main(["--workdir", str(finished_run), "--to", str(version)]) == 1
    assert f"exported to their folder. Received one of them: {version}" in capsys.readouterr().err
    assert [path.name for path in version.iterdir()] == ["saved_model.pb"]


@pytest.mark.parametrize("published", [False, True])
def test_an_interruption_says_what_is_there(monkeypatch, tmp_path, capsys, published):
    def export(workdir, to, *_, **__):
        if published:
            (to / "1").mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr("export.__main__.export_saved_model", export)
    assert main(["--workdir", "x", "--to", str(tmp_path / "demo")]) == 130
    found = "interrupted, version 1 is there, and" if published else "interrupted, nothing was exported"
    assert capsys.readouterr().err.startswith(found)


def test_the_command_has_one_line_for_an_error(tmp_path, capsys):
    assert main(["--workdir", str(tmp_path), "--to", str(tmp_path / "demo")]) == 1
    captured = capsys.readouterr()
    assert (
        captured.err.startswith("error: A finished run, or a saved translator, holds a model.keras")
        and captured.err.count("\n") == 1
    )
    assert not (tmp_path / "demo").exists()


def test_no_path_is_no_folder(capsys):
    with pytest.raises(SystemExit):
        main(["--workdir", "", "--to", "x"])
    assert "must be a folder. Received: ''" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ["export", "--workdir", "nowhere", "--to", "x"],
        ["export.client", "--model", "x", "--rest", "http://127.0.0.1:1"],
        ["export.serve", "--model", "nowhere", "--port", "0"],
    ],
)
def test_an_error_is_no_output_where_standard_error_is_closed(command, tmp_path):
    shell = ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-m", *command]
    of_child = environment(Path(__file__).parents[2])
    done = subprocess.run(shell, input=b"a line", stdout=subprocess.PIPE, cwd=tmp_path, env=of_child, timeout=120)
    assert (done.returncode, done.stdout) == (1, b"")
