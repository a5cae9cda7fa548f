"""Every example has a recipe that loads and a README that names its commands; the scripts that make the data."""

import hashlib
import json
import re
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest

from keras_transformer import load_recipe, preset
from keras_transformer.__main__ import COMMANDS, main
from keras_transformer.translator import Translator

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "examples").glob("*/*.toml"))
FOLDERS = sorted(path for path in (ROOT / "examples").iterdir() if path.is_dir() and path.name != "__pycache__")
EVERY_RECIPE = pytest.mark.parametrize("path", RECIPES, ids=lambda path: f"{path.parent.name}/{path.name}")
EVERY_FOLDER = pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)


def readme(folder):
    return (folder / "README.md").read_text(encoding="utf-8")


def commands(text):
    """The lines of the shell blocks; one that ends with a backslash goes on in the next."""
    blocks = re.findall(r"^```bash\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.replace("\\\n", "").split("\n") if line.strip()]


def flat(corpus):
    return [corpus] if isinstance(corpus, str) else [path for part in corpus for path in flat(part)]


def suffixes(corpus):
    """That of both sides, of which every file of a side has the same."""
    return [list(dict.fromkeys(Path(name).suffix for name in flat([side]))) for side in corpus]


@EVERY_RECIPE
def test_a_recipe_loads_and_looks_for_its_text_in_one_place(path):
    data = load_recipe(path).data
    for corpus in (data.train, data.valid, data.test):
        if corpus is not None and not str(corpus).startswith("tfds:"):
            assert all(Path(name).resolve().is_relative_to(ROOT / "data") for name in flat(corpus))
            assert suffixes(corpus) == suffixes(data.train)


@EVERY_RECIPE
def test_the_result_of_a_recipe_is_the_same_wherever_it_stands(path):
    found = re.search(r"^# Result: BLEU ([\d.]+ \([\d.]+ to [\d.]+\))", path.read_text(encoding="utf-8"), re.MULTILINE)
    if path.parent.name.startswith("wmt14"):
        assert found is None  # not run
    else:
        for text in (ROOT / "README.md", ROOT / "docs" / "results.md", path.parent / "README.md"):
            assert found[1] in text.read_text(encoding="utf-8"), text


@EVERY_RECIPE
def test_a_recipe_is_found_by_the_command_in_its_header_and_in_its_readme(path):
    name = path.relative_to(ROOT)
    workdir = f"runs/{path.parent.name}" + ("" if path.stem == "recipe" else f"_{path.stem}")
    command = f"python train_keras.py --recipe {name} --workdir {workdir}"
    assert command in commands(readme(path.parent))
    assert f"#   {command}\n" in path.read_text(encoding="utf-8")
    assert any(f"evaluate --workdir {workdir} " in line for line in commands(readme(path.parent)))


@EVERY_FOLDER
def test_a_readme_names_nothing_that_is_not_there(folder):
    text = readme(folder)
    for path in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert (folder / path).exists(), path
    for line in commands(text):
        words = line.split()
        assert words[0] in ("python", "pip", "keras-transformer"), line
        if words[0] == "keras-transformer":
            assert words[1] in COMMANDS
    for path in re.findall(r"(?:examples|benchmarks)/[\w/.]+\.\w+", text):
        assert (ROOT / path).exists(), path


def test_the_list_of_examples_is_complete_and_its_links_are_there():
    text = readme(ROOT / "examples")
    assert {folder.name for folder in FOLDERS} == set(re.findall(r"^\| \[(\w+)\]", text, flags=re.MULTILINE))
    assert all((ROOT / "examples" / path).exists() for path in re.findall(r"\]\((?!http)([^)#]+)", text))


def test_the_recipes_of_multi30k_are_alike():
    recipes = [load_recipe(path) for path in RECIPES if path.parent.name.startswith("multi30k")]
    assert len(recipes) == 4
    for config in recipes:
        is_tokenised = "multi30k_tok" in str(config.data.train)
        assert config.data.bleu_tokenizer == ("none" if is_tokenised else "13a")
    no_data = dict(train="demo", valid=None, test=None, bleu_tokenizer="13a")
    assert len({str(config.replace(data=no_data, decode=dict(alpha=1.0))) for config in recipes}) == 1
    assert recipes[0].model == preset("tiny").model


def test_english_and_german_files_stand_on_their_sides():
    for path in RECIPES:
        if match := re.search(r"_(\w\w)_(\w\w)$", path.parent.name):
            data = load_recipe(path).data
            if not str(data.train).startswith("tfds:"):
                assert suffixes(data.train) == [[f".{language}"] for language in match.groups()]


def test_data_is_not_part_of_the_repository():
    assert "/data" in (ROOT / ".gitignore").read_text().split("\n")


# --- WMT 2014

# The paper: Sections 5.1 to 5.4 and 6.1, and Table 3.
EN_DE = {
    "model": dict(
        num_encoder_layers=6, num_decoder_layers=6, d_model=512, d_ff=2048, num_heads=8, dropout=0.1, norm="post"
    ),
    "data": dict(tokenizer="bpe", vocab_size=37_000, shared_vocab=True, subword_sampling=0.0),
    "train": dict(
        steps=100_000, tokens_per_batch=25_000, optimizer="adam", warmup_steps=4000, learning_rate_scale=1.0,
        cooldown_steps=0, label_smoothing=0.1, clip_norm=None, ema_decay=None, checkpoint_minutes=10.0,
        checkpoint_steps=None, average_checkpoints=5,
    ),
    "decode": dict(beam_width=4, alpha=0.6, extra_length=50),
}  # fmt: skip
EN_FR = {
    "model": EN_DE["model"] | dict(d_model=1024, d_ff=4096, num_heads=16, dropout=0.1),
    "data": EN_DE["data"] | dict(tokenizer="unigram", vocab_size=32_000),
    "train": EN_DE["train"] | dict(steps=300_000, average_checkpoints=20),
    "decode": EN_DE["decode"],
}


@pytest.mark.parametrize(("name", "paper"), [("en_de", EN_DE), ("en_fr", EN_FR)])
def test_the_recipes_of_wmt14_are_the_papers_settings(name, paper):
    recipe = load_recipe(ROOT / f"examples/wmt14_{name}/recipe.toml").to_dict()
    found = {section: {field: recipe[section][field] for field in fields} for section, fields in paper.items()}
    assert found == paper


# --- Tatoeba


def test_no_sentence_of_valid_or_test_is_in_train(tmp_path):
    script = runpy.run_path(str(ROOT / "examples/tatoeba_en_de/split.py"))
    lines = [f"{i // 2} e\t{i % 31} g\tattribution" for i in range(100)]
    (tmp_path / "deu.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    script["main"].__globals__["NUM_HELD_OUT"] = 5
    script["main"](["--from", str(tmp_path / "deu.txt"), "--to", str(tmp_path / "out")])
    sets = {
        split: [(tmp_path / "out" / f"{split}.{language}").read_text().split("\n")[:-1] for language in ("en", "de")]
        for split in ("train", "valid", "test")
    }
    assert len(sets["valid"][0]) == len(sets["test"][0]) == 5
    written = ["\t".join(pair) for sides in sets.values() for pair in zip(*sides, strict=True)]
    assert {f"{pair}\tattribution" for pair in written} <= set(lines)
    for side in (0, 1):
        assert not set(sets["train"][side]) & {*sets["valid"][side], *sets["test"][side]}
    assert not set(sets["valid"][0]) & set(sets["test"][0])
    assert len(sets["train"][0]) > 50


def test_what_is_held_out_does_not_depend_on_the_order():
    split = runpy.run_path(str(ROOT / "examples/tatoeba_en_de/split.py"))["split"]
    pairs = [(str(i), f"{i} g") for i in range(50)]
    held_out = split(pairs, 4)["test"]
    assert held_out == split(pairs[::-1], 4)["test"] and held_out != pairs[:4]
    assert len(set(held_out) - set(split([*pairs, ("x", "y")], 4)["test"])) <= 1  # a new sentence moves few


def test_a_packed_run_is_a_small_translator_that_knows_nothing_of_its_machine(finished_run, tmp_path, capsys):
    pack = runpy.run_path(str(ROOT / "examples/tatoeba_en_de/pack.py"))["main"]
    command = ["--workdir", str(finished_run), "--to", str(tmp_path / "model")]
    assert pack(command) == 0
    packed = {path.name: path for path in (tmp_path / "model").iterdir()}
    assert packed.keys() == {"model.keras", "config.json", "tokenizer.model"}
    assert packed["model.keras"].stat().st_size < 0.65 * (finished_run / "model.keras").stat().st_size
    config = packed["config.json"].read_text()
    assert json.loads(config).keys() == {"data", "model", "decode"} and "/" not in config
    whole, small = (Translator.load(folder) for folder in (finished_run, tmp_path / "model"))
    for a, b in zip(whole.model.trainable_variables, small.model.trainable_variables, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2**-11, atol=2**-25)
    texts = ["Anna sleeps.", "The old man sees a dog."]
    close = zip(whole.score(texts, texts), small.score(texts, texts), strict=True)
    assert all(a.log_prob == pytest.approx(b.log_prob, rel=0.01) for a, b in close)
    assert small.decode == whole.decode
    with pytest.raises(SystemExit):
        pack(command)
    assert "must be an empty folder" in capsys.readouterr().err


def test_packing_goes_through_after_a_kill_and_leaves_nothing_after_an_error(finished_run, tmp_path, capsys):
    partial = tmp_path / "model" / ".partial"
    partial.mkdir(parents=True)
    (partial / "plain.keras").write_bytes(b"half")
    pack = runpy.run_path(str(ROOT / "examples/tatoeba_en_de/pack.py"))["main"]
    assert pack(["--workdir", str(finished_run), "--to", str(tmp_path / "model")]) == 0
    assert {path.name for path in (tmp_path / "model").iterdir()} == {"model.keras", "config.json", "tokenizer.model"}
    run = shutil.copytree(finished_run, tmp_path / "run", ignore=shutil.ignore_patterns("data", "checkpoints"))
    (run / "model.keras").write_bytes(b"damaged")
    refused = refusal("tatoeba_en_de/pack.py", capsys, "--workdir", run, "--to", tmp_path / "other")
    assert "model.keras" in refused and not (tmp_path / "other").exists()


def test_the_translator_in_the_repository_is_small_and_translates(capsys):
    folder = ROOT / "examples/tatoeba_en_de/model"
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 8_000_000
    found = Translator.load(folder).translate(["Good morning.", "Where is the station?"])
    assert found == ["Guten Morgen!", "Wo ist der Bahnhof?"]
    assert main(["evaluate", "--workdir", str(folder)]) == 1  # its test set is elsewhere
    assert "Give --source and --reference" in capsys.readouterr().err


def refusal(script, capsys, *arguments):
    """What a script says of a call that it refuses."""
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(ROOT / "examples" / script))["main"](list(map(str, arguments)))
    assert stopped.value.code == 2
    return capsys.readouterr().err


def test_wrong_calls_are_refused_in_one_line_and_leave_nothing(tmp_path, capsys):
    out = tmp_path / "out"
    for text, said in (
        (None, "readable text file"),
        ("", "an empty file"),
        ("one column\n", "column"),
        ("a\tb\n", "more than 3,000 sentences"),
    ):
        if text is not None:
            (tmp_path / "pairs").write_text(text)
        assert said in refusal("tatoeba_en_de/split.py", capsys, "--from", tmp_path / "pairs", "--to", out)
    assert "finished run" in refusal("tatoeba_en_de/pack.py", capsys, "--workdir", tmp_path, "--to", out)
    assert "train.xx" in refusal(
        "multi30k_en_fr/tokenise.py", capsys, "--from", tmp_path, "--to", out, "--languages", "xx"
    )
    (tmp_path / "train.xx").write_bytes(b"\xff\n")
    for split in ("valid", "test2016"):
        (tmp_path / f"{split}.xx").touch()
    (tmp_path / "pairs").write_text("".join(f"a{n}\tb{n}\n" for n in range(3001)))
    for words in (
        ["tatoeba_en_de/split.py", "--from", tmp_path / "pairs"],
        ["multi30k_en_fr/tokenise.py", "--from", tmp_path, "--languages", "xx"],
    ):
        assert "File exists" in refusal(words[0], capsys, *words[1:], "--to", tmp_path / "pairs")
    assert "nonsense" in refusal("ablation/ablation.py", capsys, "--workdir", out, "--set", "train.nonsense=1")
    assert not out.exists()


# --- Multi30k


@pytest.mark.parametrize("language", ["en", "de"])
def test_tokenised_text_is_that_of_the_dataset(language, shared_data, tmp_path):
    script = runpy.run_path(str(ROOT / "examples/multi30k_en_fr/tokenise.py"))
    script["main"].__globals__["SPLITS"] = ("valid", "test2016")
    script["main"](["--from", str(shared_data / "multi30k"), "--to", str(tmp_path), "--languages", language])
    for split in ("valid", "test2016"):
        name = f"{split}.lc.norm.tok.{language}"
        ours, theirs = ((folder / name).read_bytes() for folder in (tmp_path, shared_data / "multi30k_tok"))
        assert hashlib.sha256(ours).digest() == hashlib.sha256(theirs).digest()
