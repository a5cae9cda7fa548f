"""The shape of the code: who may import whom, what files may be called, and that the README's map is the tree."""

import ast
import fnmatch
import functools
import graphlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = "keras_transformer"

# The picture of docs/architecture.md: what a module or package may import of this project. A package may import itself.
ALLOWED = {
    "keras_transformer_cli": [],  # but for its `main`, which hands over to `__main__`
    "config": [],
    "presets": ["config"],
    "recipes": ["config", "presets"],
    "gpu": [],
    "processor": [],
    "fast": ["processor"],
    "layers": ["config", "fast"],
    "model": ["layers", "config", "presets"],
    "ensemble": ["model"],
    "model_products": ["layers", "fast"],
    "losses": ["layers.masks", "fast"],
    "metrics": ["losses"],
    "schedule": [],
    "files": [],
    "screen": ["keras_transformer_cli"],
    "progress": ["screen"],
    "subwords": [],
    "adoption": ["config", "subwords"],
    "tokenizer": ["adoption", "config", "files", "processor", "subwords"],
    "decoding": ["fast.xla"],
    "data": ["keras_transformer_cli.lines", "tokenizer", "config", "files", "progress"],
    "inference": ["tokenizer", "decoding", "model_products", "fast.products_in_graph"],
    "alignment": [],
    "compilation": ["processor", "fast.xla"],
    "texts": ["compilation", "tokenizer"],
    "model_folder": ["model", "tokenizer", "config", "files"],
    "translator": [
        "alignment",
        "texts",
        "inference",
        "model_folder",
        "compilation",
        "model_products",
        "ensemble",
        "model",
        "tokenizer",
        "decoding",
        "config",
        "gpu",
    ],
    "plots": [],
    "report": ["plots"],
    "bootstrap": [],
    "suspicion": [],
    "evaluation": ["bootstrap", "processor", "suspicion"],
    # The public names; cheap to import.
    "__init__": [
        "keras_transformer_cli",
        "config",
        "presets",
        "recipes",
        "schedule",
        "losses",
        "metrics",
        "model",
        "ensemble",
        "tokenizer",
        "translator",
        "data.batches",
    ],
    # These may import everything that stands above them in this table, but for what is on top.
    "training": "everything above",
    "export": "everything above",
    "commands": "everything above",
    "__main__": "everything above",
    "train_keras": "everything above",
}
ON_TOP = ["__main__", "train_keras"]  # nobody imports these
TOPS = ["export", "keras_transformer_cli", "train_keras"]  # what stands beside the package

# Libraries that a part of the code must not know.
FORBIDDEN_LIBRARIES = {
    "keras_transformer_cli": ["keras", "tensorflow"],  # comes before what takes seconds to import
    "config": ["keras", "tensorflow"],  # errors come before TensorFlow builds anything
    "presets": ["keras", "tensorflow"],
    "recipes": ["keras", "tensorflow"],
    "decoding": ["keras"],  # knows ids and log-probabilities, and no model
    "report": ["keras", "tensorflow"],
    "plots": ["keras", "tensorflow"],
}

FORBIDDEN_NAMES = ["utils", "util", "helpers", "helper", "misc", "common", "core", "base"]


@functools.cache
def modules():
    """{dotted name, without the package's own: path} of every module of the project that is not a test."""
    files = [path for top in (PACKAGE, *TOPS) for path in sorted((ROOT / top).rglob("*.py"))]
    files += [path for top in TOPS if (path := ROOT / f"{top}.py").exists()]
    return {dotted_name(path): path for path in files}


def dotted_name(path):
    """keras_transformer/layers/masks.py -> layers.masks, keras_transformer/__init__.py -> __init__"""
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[-1] == "__init__" and len(parts) > 1 and parts != (PACKAGE, "__init__"):
        parts = parts[:-1]
    return ".".join(parts[1:] if parts[0] == PACKAGE else parts)


def imports(name, path):
    """(line, full name) of every import, those inside of functions too. A relative name is made absolute."""
    is_package = path.name == "__init__.py"
    package = [PACKAGE, *name.split(".")] if name.split(".")[0] not in TOPS else name.split(".")
    if name == "__init__":
        package = [PACKAGE]
    elif not is_package:
        package = package[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*start, *([node.module] if node.module else [])])
            # `from keras_transformer import report` imports a module, `from keras_transformer import preset` a name.
            yield from ((node.lineno, f"{source}.{alias.name}") for alias in node.names)


def imported_module(full_name):
    """The dotted name of this project's module that `full_name` is or belongs to, or None."""
    parts = full_name.split(".")
    if parts[0] not in (PACKAGE, *TOPS):
        return None
    parts = parts[1:] if parts[0] == PACKAGE else parts
    while parts and ".".join(parts) not in modules():
        parts = parts[:-1]
    return ".".join(parts) or "__init__"


def arrows():
    """(module, line, imported module) of every import inside this project."""
    for name, path in modules().items():
        for line, full_name in imports(name, path):
            if (target := imported_module(full_name)) is not None:
                yield name, line, target


def node_of(name):
    """The key of ALLOWED that a module stands under."""
    return name.split(".")[0]


def allowed(node):
    if ALLOWED[node] != "everything above":
        return [*ALLOWED[node], node]
    names = list(ALLOWED)
    return [*(name for name in names[: names.index(node)] if name not in ON_TOP), node]


def may_import(name, target):
    if (name, target) == ("keras_transformer_cli", "__main__"):
        return True
    return any(target == drawn or target.startswith(f"{drawn}.") for drawn in allowed(node_of(name)))


def test_every_module_stands_in_the_table():
    unknown = sorted({node_of(name) for name in modules()} - set(ALLOWED))
    assert not unknown, f"draw the arrows of {unknown} in ALLOWED and in docs/architecture.md"


def test_every_import_follows_an_arrow_that_is_drawn():
    wrong = [
        f"{modules()[name].relative_to(ROOT)}:{line} imports {target}, not one of {allowed(node_of(name))}"
        for name, line, target in arrows()
        if node_of(name) in ALLOWED and not may_import(name, target)
    ]
    assert not wrong, "\n".join(wrong)


def test_every_arrow_that_is_drawn_is_used():
    used = {(node_of(name), target) for name, _, target in arrows()}
    unused = [
        f"{node} -> {drawn}"
        for node, targets in ALLOWED.items()
        if targets != "everything above"
        for drawn in targets
        if not any(target == drawn or target.startswith(f"{drawn}.") for name, target in used if name == node)
    ]
    assert not unused


def test_the_arrows_of_the_table_point_in_one_direction():
    graph = {node: [node_of(target) for target in allowed(node) if node_of(target) != node] for node in ALLOWED}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError


def test_nobody_imports_what_is_on_top():
    for node in ALLOWED:
        assert not (set(allowed(node)) - {node}) & set(ON_TOP), node


@pytest.mark.parametrize("node", FORBIDDEN_LIBRARIES)
def test_a_part_does_not_know_the_libraries_that_it_must_not_know(node):
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {full_name}"
        for name, path in modules().items()
        if node_of(name) == node
        for line, full_name in imports(name, path)
        if full_name.split(".")[0] in FORBIDDEN_LIBRARIES[node]
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("name", "source", "expected"),
    [
        ("losses", "from keras_transformer.layers.masks import PAD_ID", ["layers.masks"]),
        ("losses", "from keras_transformer.layers import masks", ["layers.masks"]),
        ("losses", "from .layers import masks", ["layers.masks"]),
        ("losses", "from . import model", ["model"]),
        ("layers.blocks", "from ..config import ModelConfig", ["config"]),
        ("layers.blocks", "from .attention import attention", ["layers.attention"]),
        ("losses", "import keras_transformer.model as m", ["model"]),
        ("losses", "def f():\n    from keras_transformer.model import Transformer", ["model"]),
        ("losses", "from keras_transformer import preset", ["__init__"]),
        ("losses", "import keras, keras_transformer_plus", []),
    ],
)
def test_this_test_sees_an_import_however_it_is_written(tmp_path, name, source, expected):
    path = tmp_path / "module.py"
    path.write_text(source, encoding="utf-8")
    found = [imported_module(full_name) for _, full_name in imports(name, path)]
    assert [target for target in found if target is not None] == expected


# --- files and their names


def test_no_module_has_a_name_that_says_nothing():
    folders = (PACKAGE, *TOPS, "tests")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix == ".py" or path.is_dir()]
    wrong = [str(path.relative_to(ROOT)) for path in paths if path.stem.strip("_").lower() in FORBIDDEN_NAMES]
    assert not wrong


def has_code(path):
    """Whether any function of the file does something: more than a docstring, `...` or `pass`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body:
                is_constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
                if not is_constant and not isinstance(statement, ast.Pass):
                    return True
    return False


def places_of_tests(path):
    """Where the tests of a module may stand: keras_transformer/x/y.py -> tests/x/test_y.py, or tests/test_x.py"""
    folder = path.relative_to(ROOT).parent
    inside = Path(*folder.parts[1:]) if folder.parts[:1] == (PACKAGE,) else folder
    if path.stem == "demo_lexicon":  # the words of the grammar, which is tested as a whole
        yield ROOT / "tests" / inside / "test_demo.py"
    stem = path.stem.strip("_") if path.stem != "__init__" else (inside.name or "package")
    yield ROOT / "tests" / inside / f"test_{stem}.py"
    if inside.parts:
        yield ROOT / "tests" / inside.parent / f"test_{inside.name}.py"


def test_every_module_with_code_has_its_tests():
    untested = [
        f"{path.relative_to(ROOT)}: no {next(places_of_tests(path)).relative_to(ROOT)}"
        for name, path in modules().items()
        if name != "train_keras" and has_code(path) and not any(place.exists() for place in places_of_tests(path))
    ]
    assert not untested, "\n".join(untested)


def test_there_is_no_package_below_tests():
    # A tests/export/__init__.py would hide the package export from its own tests.
    assert not list((ROOT / "tests").rglob("__init__.py"))


# --- the map in the README


def readme_map():
    """The paths of the block below the heading "## Map": the first word of every line."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"^## Map\b.*?^```\w*\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    assert block, "README.md needs a heading `## Map` and below it a fenced block of lines `path  description`"
    return [line.split()[0] for line in block[1].splitlines() if line.strip()]


def is_ignored(path):
    patterns = [line.strip("/") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()]
    return path.name.startswith(".") or any(fnmatch.fnmatch(path.name, pattern) for pattern in patterns if pattern)


def test_every_path_of_the_map_exists():
    missing = [path for path in readme_map() if not (ROOT / path).exists()]
    assert not missing


def test_no_path_stands_twice_in_the_map():
    listed = [path.rstrip("/") for path in readme_map()]
    assert len(set(listed)) == len(listed)


def test_every_module_of_the_package_and_every_top_level_entry_is_on_the_map():
    """A listed folder stands for what is in it; the package itself is listed part by part."""
    listed = {Path(path.rstrip("/")) for path in readme_map()}
    top_level = {Path(path.name) for path in ROOT.iterdir() if not is_ignored(path)} - {Path(PACKAGE)}
    needed = top_level | {path.relative_to(ROOT) for path in modules().values()} - {Path(PACKAGE, "__init__.py")}
    assert not sorted(str(path) for path in needed if not {path, *path.parents} & listed)
