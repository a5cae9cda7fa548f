"""benchmarks/store.py"""

import store

FIGURES = ["tokenizer", "build", "on disk", "open", "plan", "batch 1,000,000", "batch nearby", "peak memory"]
UNITS = ["s", "pairs/s", "bytes a pair", "ms", "ms", "ms", "ms", "MiB"]


def test_every_figure_of_the_built_in_grammar(run_script):
    records = run_script("store.py", "--pairs", 300, "--repeats", 2, "--tokens-per-batch", 512)
    assert [record["work"] for record in records] == FIGURES
    assert [record["unit"] for record in records] == UNITS
    for record in records:
        assert 0 < record["min"] <= record["median"] <= record["max"]
        assert record["machine"] and record["date"]
    tokenizer, build, *_, memory = records
    assert tokenizer["pairs"] == build["pairs"] == 300
    assert memory["median"] >= memory["imported_mib"]


def test_files_of_text(run_here, tmp_path):
    for side in ("source", "target"):
        (tmp_path / side).write_text("".join(f"{side} sentence {i}\n" for i in range(53)))
    files = "--source", tmp_path / "source", "--target", tmp_path / "target"
    records = run_here(store, *files, "--vocab-size", 60, "--repeats", 1)
    assert [record["work"] for record in records] == FIGURES
    assert records[0]["vocab_size"] <= 60 and records[1]["pairs"] == 53
