from export.__main__ import main


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


def test_the_command_has_one_line_for_an_error(tmp_path, capsys):
    assert main(["--workdir", str(tmp_path), "--to", str(tmp_path / "demo")]) == 1
    captured = capsys.readouterr()
    assert (
        captured.err.startswith("error: A finished run, or a saved translator, holds a model.keras")
        and captured.err.count("\n") == 1
    )
    assert not (tmp_path / "demo").exists()
