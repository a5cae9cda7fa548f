"""What the documents say is what is there: figures, commands, paths, extras."""

import importlib
import re
import runpy
import shlex
import sys
from argparse import ArgumentParser
from functools import cache
from types import SimpleNamespace

import ablation
import pytest
import yaml

from keras_transformer import __main__ as console
from keras_transformer import load_recipe
from tests.integration.runs import ROOT

RESULTS = ROOT / "docs" / "results.md"
EXAMPLES = sorted((ROOT / "examples").rglob("README.md"))
DOCS = sorted({*(ROOT / "docs").glob("*.md")} - {ROOT / "docs" / "log.md"})  # which tells of former commands


def read(path):
    return path.read_text(encoding="utf-8")


def rows(text):
    """Those of the first table behind its head, as lists of cells."""
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)[0]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in table.splitlines()[2:]]


# --- figures


def figures(text):
    """All with an interval, such as 41.42 (39.71 to 42.94), with their signs."""
    number = r"[+-]?\d+\.\d\d"
    found = re.findall(rf"{number} \((?:95 %: )?{number} to {number}\)", " ".join(text.split()))
    return {figure.replace("95 %: ", "") for figure in found}


def results_of_the_ablation():
    return read(RESULTS).partition("\nThe ablation (")[2]


@pytest.mark.parametrize("path", [ROOT / "README.md", RESULTS], ids=lambda path: path.name)
def test_a_figure_with_its_interval_is_that_of_an_example(path):
    known = set().union(*(figures(read(example)) for example in EXAMPLES))
    if path == RESULTS:  # which alone has the table of the ablation
        known |= {row[-1] for row in rows(results_of_the_ablation())}
    assert figures(read(path)) <= known and len(figures(read(path))) > 5


def test_the_minutes_of_the_readme_are_those_of_the_results():
    results = [line.partition(score) for line in read(RESULTS).split("\n") for score in figures(line)]
    for _, score, minutes in rows(read(ROOT / "README.md").partition("\n## Quality\n")[2]):
        number = re.match(r"\d+", minutes)[0]
        assert any(found == score and re.search(rf"\b{number}\b", behind) for _, found, behind in results), score


def test_the_table_of_the_ablation_agrees_with_its_rows_and_with_itself():
    (_, _, _, recipe, _), *others = table = rows(results_of_the_ablation())
    assert {name: change for name, change, *_ in table} == {k: ", ".join(v) for k, v in ablation.CHANGES.items()}
    for name, _, _, test, compared in others:
        difference, low, high = map(float, re.findall(r"[+-][\d.]+", compared) or (0, -1, 1))
        assert difference == pytest.approx(float(test) - float(recipe), abs=0.011) and low < difference < high, name


def test_the_command_of_the_ablations_table_stands_beside_it_and_in_its_readme():
    settings = re.match(r"`examples/ablation/ablation\.py (--set .*?)`", results_of_the_ablation())[1]
    assert any(settings in " ".join(words) for words, _ in commands(read(ROOT / "examples/ablation/README.md")))


# --- commands


def commands(text):
    """The words and the comments of the shell blocks' commands for Python and for the console command."""
    for block in re.findall(r"^```bash\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", "").splitlines():
            lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            command = []
            for word in (*lexer, ";"):
                if word in ("&&", "|", ";"):
                    if command and command[0] in ("python", "keras-transformer"):
                        yield command, line.partition(" # ")[2]
                    command = []
                else:
                    command.append(word)


@cache
def main_of(*program):
    if program[0] == "-m":
        return importlib.import_module(f"{program[1]}.__main__").main
    return runpy.run_path(str(ROOT / program[0]))["main"]


def program_of(words):
    """-> its main, its arguments"""
    words = [word for i, word in enumerate(words) if not {"<", ">"} & {word, words[i - 1]}]
    match words:
        case ["keras-transformer", *arguments]:
            return console.main, arguments
        case ["python", "train_keras.py", *arguments]:  # has no main; its options are these
            return console.main, ["train", *arguments]
        case ["python", "-m", module, *arguments]:
            return main_of("-m", module), arguments
        case ["python", script, *arguments]:
            return main_of(script), arguments


class Accepted(Exception):  # noqa: N818
    pass


@pytest.mark.parametrize(
    "path",
    [path for path in (ROOT / "README.md", *DOCS, *EXAMPLES) if any(commands(read(path)))],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_every_command_in_a_document_is_accepted_by_its_parser(path, monkeypatch):
    def accept(parser, options):
        raise Accepted(parser, options)

    parse = ArgumentParser.parse_args
    monkeypatch.setattr(ArgumentParser, "parse_args", lambda parser, *_: accept(parser, parse(parser)))
    monkeypatch.setattr(console, "exit_code_of", lambda _, options: accept(options.refuse.__self__, options))
    for words, comment in commands(read(path)):
        main, arguments = program_of(words)
        monkeypatch.setattr(sys, "argv", ["program", *arguments])
        with pytest.raises(Accepted) as accepted:
            main()
        parser, options = accepted.value.args
        load_recipe(None, [*getattr(options, "set", []), *getattr(options, "helper", [])])
        known = re.findall(r"--[\w-]+", parser.format_help())
        assert set(re.findall(r"(?<!\S)--[\w-]+", comment)) <= set(known), comment


def test_the_test_command_of_the_readme_is_what_ci_runs():
    [command] = re.findall(r'^pip install -e "\.\[dev\]" && pytest', read(ROOT / "README.md"), re.MULTILINE)
    assert re.search(rf"^{re.escape(command)}( \|\| exit 1)?$", read(ROOT / ".ci/run"), re.MULTILINE)
    assert f"\n    {command} " in read(ROOT / "CONTRIBUTING.md")
    assert "bash .ci/run\n" in read(ROOT / ".github/workflows/ci.yml")


def test_the_slow_tests_run_every_week():
    workflow = yaml.safe_load(read(ROOT / ".github/workflows/slow.yml"))
    _, _, *day_of_month_and_month, weekday = workflow[True]["schedule"][0]["cron"].split()  # True: YAML's "on"
    assert day_of_month_and_month == ["*", "*"] and weekday.isdigit()
    [job] = workflow["jobs"].values()
    assert job["steps"][-1]["run"] == 'pip install -e ".[dev]" && pytest -m slow' and job["timeout-minutes"] >= 60


# --- packages


@pytest.fixture
def package(monkeypatch):
    """What setup.py says."""
    said = {}
    tools = SimpleNamespace(setup=lambda **arguments: said.update(arguments), find_packages=lambda **_: [])
    monkeypatch.setitem(sys.modules, "setuptools", tools)
    monkeypatch.chdir(ROOT)
    runpy.run_path("setup.py")
    return said


def test_what_a_test_skips_without_is_part_of_the_extra_dev(package):
    names = {re.match(r"[\w-]+", name)[0].replace("-", "_") for name in package["extras_require"]["dev"]}
    tests = "".join(map(read, (ROOT / "tests").rglob("*.py")))
    found = set(re.findall(r'importorskip\("(\w+)', tests))
    assert "matplotlib" in found <= names and "sacremoses" in names


def test_all_of_tensorflow_has_one_minor_version(package):
    versions = dict(name.split("==") for name in package["install_requires"] if name.startswith("tensorflow"))
    assert {"tensorflow", "tensorflow-text"} < set(versions) and len(set(versions.values())) == 1
    assert set(re.findall(r'"tensorflow\[and-cuda\]==(.*?)"', read(ROOT / "README.md"))) == set(versions.values())


# --- paths


def test_every_path_in_the_page_about_the_paper_is_there():
    found = re.findall(r"`([\w/]+(?:\.py|/\w*))`(?: \(((?:`\w+`,? ?)+)\))?", read(ROOT / "docs" / "paper.md"))
    assert len(found) > 15
    for path, names in found:
        [here] = [folder / path for folder in (ROOT, ROOT / "keras_transformer") if (folder / path).exists()]
        for name in re.findall(r"\w+", names):
            assert re.search(rf"^(class|def) {name}\b", read(here), re.MULTILINE), name
