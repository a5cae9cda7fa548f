"""What README.md shows in Python runs as it stands there, on a smaller model."""

import re

from tests.integration.runs import ROOT


def test_the_python_of_the_readme_runs(finished_run):
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    for shown, here in (('"runs/demo"', repr(str(finished_run))), ('"base"', '"tiny"')):
        assert code.count(shown) == 1
        code = code.replace(shown, here)
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    assert names["model"].optimizer.iterations.numpy() == 1
    assert names["labels"][0, -1] == 3 and names["target_ids"][0, 0] == 2
