"""What README.md shows in Python runs as it stands there, on a smaller model."""

import re

from tests.integration.runs import ROOT


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch):
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    folder = "examples/tatoeba_en_de/model"
    for shown, here in ((f'"{folder}"', repr(str(ROOT / folder))), ('"small"', '"tiny"')):
        assert code.count(shown) == 1
        code = code.replace(shown, here)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    assert names["model"].optimizer.iterations.numpy() == 1
    assert 3 in names["labels"][0] and names["inputs"].target_ids[0, 0] == 2
    assert names["maps"].cross.shape[:2] == (4, 16)
    assert (tmp_path / "runs" / "saved" / "model.keras").is_file()
    assert names["translator"].translate(["Anna sleeps."])[0].startswith("Anna")
