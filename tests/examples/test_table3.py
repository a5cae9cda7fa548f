"""Table 3, scaled down: the rule, the paper's figures, the verdicts, the table, and a run of two rows."""

import json
import re
from pathlib import Path

import comparison
import keras
import pytest
import row as table_row
import run
from paper import FACTORS, GROUPS, ROWS, WIDTHS, cost, scaled

from keras_transformer import Transformer, load_recipe, preset
from keras_transformer.data.demo import demo_pairs
from keras_transformer.data.prepare import DATA_FILES
from keras_transformer.training.workdir import Workdir
from tests.test_presets import MILLIONS
from tests.test_presets import ROWS as PRINTED

EVERY_ROW = pytest.mark.parametrize("name", ROWS)
SIGNATURE = "nrefs:1|bs:1000|tok:13a"


# --- the rule


@EVERY_ROW
@pytest.mark.parametrize("factor", FACTORS)
def test_every_width_is_divided_and_nothing_else_of_the_model_changes(name, factor):
    paper, ours = preset(ROWS[name].key), scaled(ROWS[name], factor, 50)
    for width in ("d_model", "d_ff", "key_width", "value_width"):
        assert getattr(ours.model, width) * factor == getattr(paper.model, width)
    widths = {width: getattr(paper.model, width) for width in WIDTHS}
    assert ours.model.replace(**widths) == paper.model
    assert ours.train.label_smoothing == paper.train.label_smoothing
    assert ours.data.vocab_size == 37_000 // factor and ours.train.steps == 50


@pytest.mark.parametrize("name", ["base", "A4", "B1", "C4", "E", "big"])
def test_a_row_has_about_one_factor_squared_of_its_weights(name):
    def count(factor):
        config = scaled(ROWS[name], factor, 50)
        with keras.StatelessScope(initialize_variables=False):  # shapes without values
            return Transformer(config.data.vocab_size, **config.model.to_dict()).count_params()

    assert count(4) * 16 == pytest.approx(count(1), rel=0.03)  # norms, biases and learned positions have no square


@EVERY_ROW
def test_the_peak_of_the_learning_rate_is_that_of_4000_warm_up_steps(name):
    for factor, steps in ((1, 1000), (4, 70)):
        config = scaled(ROWS[name], factor, steps)
        train, schedule = config.train, config.train.learning_rate_scale * config.model.d_model**-0.5
        assert train.warmup_steps == steps // 5
        assert schedule * train.warmup_steps**-0.5 == pytest.approx((config.model.d_model * 4000) ** -0.5)


def test_another_factor_is_refused():
    with pytest.raises(ValueError, match="one of 1, 2, 4, 8, 16. Received: 3"):
        scaled(ROWS["base"], 3, 50)


def test_bigger_rows_cost_more():
    costs = {name: cost(scaled(row, 4, 50)) for name, row in ROWS.items()}
    assert costs["C1"] < costs["C2"] < costs["base"] < costs["C3"] < costs["C5"] < costs["big"]
    assert costs["B1"] < costs["B2"] < costs["base"] == costs["A1"] == costs["A4"] == costs["D1"] == costs["E"]


# --- the paper's figures


def test_the_settings_are_those_of_the_presets():
    assert [name.lower() for name in ROWS] == list(PRINTED)
    for name, row in ROWS.items():
        filled = {column: cell or ROWS["base"].cells[column] for column, cell in row.cells.items()}
        filled["steps"] = filled["steps"].replace("K", "000")
        if name == "big":
            filled["d_k"] = filled["d_v"] = "64"
        assert {column: float(cell) for column, cell in filled.items()} == PRINTED[name.lower()]
        assert row.millions == MILLIONS[name.lower()]


def test_the_figures_are_those_of_the_design(shared_data):
    path = shared_data.parent / "design" / "paper.md"
    if not path.exists():
        pytest.skip(f"{path} is missing")
    lines = re.findall(r"^\| (base|big|[A-E]\d?) \|(.*)\|$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert [name for name, _ in lines] == list(ROWS)
    for name, cells in lines:
        *settings, perplexity, bleu, millions = (cell.strip() for cell in cells.split("|"))
        row = ROWS[name]
        assert (float(perplexity), float(bleu)) == (row.perplexity, row.bleu)
        assert millions == str(row.millions or "")
        if name != "E":
            assert settings == list(row.cells.values())


def test_what_the_paper_concludes_is_in_its_figures():
    bleu = {name: row.bleu for name, row in ROWS.items()}
    assert comparison.difference_of(ROWS["A1"]) == -0.9 == round(bleu["A1"] - max(bleu[f"A{i}"] for i in (2, 3)), 1)
    assert bleu["A4"] < bleu["base"] and bleu["B1"] < bleu["B2"] < bleu["base"]
    assert bleu["C1"] < bleu["C2"] < bleu["base"] and bleu["C4"] < bleu["base"] < bleu["C5"] < bleu["C7"]
    assert bleu["D1"] < bleu["base"] and bleu["D3"] < bleu["base"] and ROWS["D3"].perplexity < ROWS["base"].perplexity
    assert bleu["big"] == max(bleu.values())
    assert {row.group for row in ROWS.values()} - {"b"} == set(GROUPS)


# --- verdicts and the table


@pytest.mark.parametrize(
    ("theirs", "interval", "expected"),
    [
        (-0.9, (-2.0, -0.4), "agrees"),
        (-0.9, (0.4, 2.0), "disagrees"),
        (-0.9, (-2.0, 0.4), "undecided"),
        (0.4, (0.1, 2.0), "agrees"),
        (0.4, (0.0, 2.0), "undecided"),
        (0.0, (-0.3, 0.2), "agrees"),
        (-0.1, (-0.3, 0.2), "agrees"),
        (-0.1, (-0.3, -0.2), "disagrees"),
    ],
)
def test_the_verdict_is_about_the_sign_and_knows_noise(theirs, interval, expected):
    assert comparison.verdict(theirs, interval) == expected


def made_up(name, perplexity, bleu, difference=None):
    interval = difference and {"value": difference[1], "interval": [difference[0], difference[2]], "p_value": 0.01}
    scores = {"value": bleu, "interval": [bleu - 1, bleu + 1], "signature": SIGNATURE}
    return {"row": name, "perplexity": perplexity, "bleu": scores, "difference": interval, "parameters": 3_942_000}


RESULTS = [
    made_up("base", 10.0, 30.0),
    made_up("A1", 11.0, 28.0, (-3.0, -2.0, -1.0)),
    made_up("C4", 9.0, 31.0, (0.5, 1.0, 1.5)),
    made_up("E", 10.5, 30.2, (-0.1, 0.2, 0.5)),
    made_up("big", 9.5, 30.1, (-0.5, 0.1, 0.6)),
]


def test_the_table_has_both_sides_of_every_row():
    text = comparison.markdown(RESULTS, factor=4, steps=1500, about="Made up.")
    lines = [line for line in text.split("\n") if line.startswith("|")]
    assert len({len(line) for line in lines}) == 1 and len(lines) == 2 + len(RESULTS)
    head, _, base, a1, _, e, big = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    base, a1, e, big = (dict(zip(head, cells, strict=True)) for cells in (base, a1, e, big))
    assert base["d_model"] == "512 → 128" and base["steps"] == "100K → 1,500" and base["verdict"] == ""
    assert (base["PPL paper"], base["PPL"], base["params paper"], base["params"]) == ("4.92", "10.00", "65 M", "3.94 M")
    assert base["BLEU (95 %)"] == "30.0 (29.0 to 31.0)"
    assert (a1["N"], a1["h"], a1["d_k"], a1["d_v"]) == ("", "1", "512 → 128", "512 → 128")
    assert (a1["to base, paper"], a1["to base (95 %)"]) == ("-0.9", "-2.0 (-3.0 to -1.0)")
    assert a1["verdict"] == "agrees" and a1["params paper"] == ""
    assert e["row"] == "E (learned positions)" and e["verdict"] == "agrees"
    assert big["steps"] == "300K → 1,500" and big["d_k"] == "" and big["verdict"] == "undecided"
    assert SIGNATURE in text and "One seed" in text and "three times as many" in text


def test_what_agrees_is_said_for_every_group_and_in_all():
    said = comparison.agreement(RESULTS).split("\n")
    assert len(said) == 5
    assert said[0].startswith("- **A, number of heads**") and said[0].endswith("-2.0 (-3.0 to -1.0) here, agrees.")
    assert "C4 -1.3 in the paper, +1.0 (+0.5 to +1.5) here, disagrees" in said[1]
    assert "2 agree, 1 undecided, 1 disagree" in said[-1]
    assert "2 of 3 differences" in said[-1]  # A1 and big; C4 has the other sign, E none in the paper


def test_a_row_without_any_bleu_agrees_with_nobody():
    nothing = made_up("C3", None, 0.0, (-9.5, -8.8, -8.0))  # None: its loss was no number
    nothing["bleu"]["interval"] = [0.0, 0.0]
    assert "| inf " in comparison.markdown([RESULTS[0], nothing], factor=4, steps=1500, about="Made up.")
    assert comparison.judge(nothing) == "not learned"
    assert "0 agree, 0 undecided, 0 disagree, 1 not learned" in comparison.agreement([RESULTS[0], nothing])


def test_base_alone_makes_a_table_too():
    assert "0 agree" in comparison.markdown(RESULTS[:1], factor=8, steps=7, about="")


# --- the command


def test_steps_that_fit_into_the_minutes():
    assert run.affordable(1000, step=0.5, start=50, relative_costs=[1, 3]) == (1000 - 200) / (0.5 * 4)
    assert run.affordable(100, step=0.5, start=50, relative_costs=[1, 3]) == 0


def test_the_settings_of_a_row():
    plan = {"data": "/data", "languages": ["en", "de"], "factor": 4, "steps": 70, "seed": 3, "set": ["train.xla=false"]}
    found = table_row.settings_of("A1", plan)
    assert {"preset=table3_a1", "model.d_model=128", "model.d_k=128", "train.steps=70", "train.seed=3"} <= set(found)
    assert 'data.valid=["/data/valid.en", "/data/valid.de"]' in found and found[-1] == "train.xla=false"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--set", "model.d_model=8"], "Received: model.d_model=8"),
        (["--set", "train.xla=false", "--set", "train.label_smoothing=0.3"], "Received: train.label_smoothing=0.3"),
        (["--set", "data.reverse=true"], "Received: data.reverse=true"),
        (["--set", "train.nonsense=1"], "nonsense"),
        (["--set", " train.seed=2"], "Received:  train.seed=2"),
        (["--steps", "0"], "at least 1"),
        (["--seed", "-3"], "seed=-3"),
        (["--set", "train.cooldown_steps=50"], "cooldown_steps"),
        (["--data", "nothing"], "must hold train.en"),
    ],
)
def test_a_wrong_call_leaves_no_plan(wrong, said, tmp_path, capsys):
    for name in ("train.en", "train.de", "valid.en", "valid.de"):
        (tmp_path / name).touch()
    with pytest.raises(SystemExit) as stopped:
        run.main(["--data", str(tmp_path), "--workdir", str(tmp_path / "work"), "--steps", "9", *wrong])
    assert said in capsys.readouterr().err + str(stopped.value)
    assert not (tmp_path / "work" / "plan.json").exists()


def test_a_finished_row_is_not_touched_and_the_plan_is_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(table_row, "run_logged", lambda command, folder: pytest.fail("it ran"))
    data, workdir = tmp_path / "data", tmp_path / "work"
    plan = {"data": str(data), "languages": ["en", "de"], "factor": 8, "seed": 1, "set": [], "steps": 7}
    workdir.mkdir()
    (workdir / "plan.json").write_text(json.dumps(plan))
    for result in RESULTS[:2]:
        finish_by_hand(workdir / result["row"], result)
    command = ["--data", str(data), "--workdir", str(workdir), "--factor", "8", "--rows", "A1"]
    assert run.main(command) == 0
    said = capsys.readouterr().out
    assert said.count("was there") == 2 and "-2.0 (-3.0 to -1.0)" in said
    assert json.loads((workdir / "table3.json").read_text())["rows"] == RESULTS[:2]
    assert (workdir / "table3.md").read_text() in said
    assert run.main([*command[:-2], "--rows", "base"]) == 0  # fewer rows: what is finished stays in the table
    assert json.loads((workdir / "table3.json").read_text())["rows"] == RESULTS[:2]
    for other in (["--steps", "8"], ["--seed", "2"], ["--set", "train.xla=false"]):
        with pytest.raises(SystemExit, match="was made with another"):
            run.main([*command, *other])


def finish_by_hand(folder, result):
    """The files of a finished row that its result is read from."""
    folder.mkdir()
    difference = result["difference"]
    differences = [{"name": "BLEU", "difference": difference["value"], **difference}] if difference else []
    (folder / "dev.json").write_text(json.dumps({"scores": {"bleu": result["bleu"]}, "differences": differences}))
    validation = {"last": {"perplexity": result["perplexity"]}}
    (folder / "model.json").write_text(json.dumps({"validation": validation, "parameters": result["parameters"]}))
    (folder / "tokenizer.model").write_bytes(b"the same")


def test_another_tokenizer_is_refused(tmp_path):
    for result in RESULTS[:2]:
        finish_by_hand(tmp_path / result["row"], result)
    (tmp_path / "A1" / "tokenizer.model").write_bytes(b"another")
    with pytest.raises(SystemExit, match="a different tokenizer from base"):
        table_row.result("A1", tmp_path)


def test_a_command_that_fails_ends_it_with_its_exit_code_and_its_last_words(tmp_path, capsys):
    program = "print('first'); raise SystemExit(3)"
    with pytest.raises(SystemExit) as stopped:
        table_row.run_logged([table_row.sys.executable, "-c", program], tmp_path / "A1")
    assert stopped.value.code == 3 and "first" in (tmp_path / "A1.log").read_text()
    assert "first" in capsys.readouterr().err


def test_a_row_begins_in_a_folder_that_a_run_takes(tmp_path, monkeypatch):
    for split in ("train", "valid"):
        (tmp_path / "base" / "data" / split).mkdir(parents=True)
    for name in ("tokenizer.model", *DATA_FILES):
        (tmp_path / "base" / name).touch()

    def command(_, folder):
        Workdir(folder).claim(preset("tiny"))
        (folder / "dev.json.partial").touch()

    monkeypatch.setattr(table_row, "run_logged", command)
    plan = {"data": "/data", "languages": ["en", "de"], "factor": 4, "steps": 70, "seed": 3, "set": []}
    table_row.train("A1", plan, tmp_path)
    assert (tmp_path / "A1" / "data" / "train").is_dir() and table_row.is_finished(tmp_path / "A1")


def test_base_is_timed_without_a_cooldown_for_more_steps(tmp_path, monkeypatch):
    words = []

    def run_logged(command, folder):
        words.extend(word for word in map(str, command) if "=" in word)
        raise SystemExit

    monkeypatch.setattr(run, "run_logged", run_logged)
    plan = {"data": "/data", "languages": ["en", "de"], "factor": 4, "steps": 900, "seed": 3}
    with pytest.raises(SystemExit):
        run.time_base(plan | {"set": ["train.cooldown_steps=500"]}, tmp_path / "timing")
    assert load_recipe(None, words).train.steps == run.TIMED_STEPS


@pytest.mark.slow
def test_two_rows_are_trained_scored_and_compared(tmp_path, capsys):
    data, workdir = tmp_path / "data", tmp_path / "work"
    write_corpus(data)
    command = ["--data", data, "--workdir", workdir, "--steps", 12, "--factor", 16, "--rows", "C1"]
    for setting in ("data.vocab_size=300", "train.tokens_per_batch=512", "train.xla=false", "decode.extra_length=3"):
        command += ["--set", setting]
    command = list(map(str, command))
    assert run.main(command) == 0
    found = json.loads((workdir / "table3.json").read_text())
    base, c1 = found["rows"]
    assert (base["row"], c1["row"]) == ("base", "C1") and base["difference"] is None
    assert base["parameters"] > c1["parameters"] and c1["difference"]["interval"][0] <= c1["difference"]["value"]
    assert "tok:13a" in base["bleu"]["signature"] and base["perplexity"] > 1
    before = {path: path.stat().st_mtime_ns for path in Path(workdir).rglob("*") if path.name[:6] != "table3"}
    assert "was there" not in capsys.readouterr().out
    assert run.main(command) == 0  # again: nothing is left to do
    assert capsys.readouterr().out.count("was there") == 2
    assert before == {path: path.stat().st_mtime_ns for path in before}


def write_corpus(folder):
    folder.mkdir()
    for split, number in (("train", 300), ("valid", 20)):
        for language, lines in zip(("en", "de"), zip(*demo_pairs(split, number), strict=True), strict=True):
            (folder / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
