"""Writes a version that a server may load at any moment: all of it, and checked, or none of it.

    served/demo/.writing-2-4711/     written, loaded back in a fresh process, compared, on the disk
    served/demo/2/                   renamed: a server sees a version appear as a whole

TF Serving looks for integers every second and loads what it finds, half-written or not.
"""

import contextlib
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

TOLERANCE = 1e-4  # of a score, between two processes that add up in different orders
NUM_SENTENCES = 12  # of the validation data
HOSTILE = ["", " \t\u00a0\u2028", "a", "\x00", "\ufffd\u200b", "e\u0301 \ufb01 ½ 👩‍👩‍👧", "</s> <unk> ⁇ ▁", "ab " * 40]
WRITING = re.compile(r"\.writing-\d+-(\d+)")  # version, process


class ExportError(RuntimeError):
    """What was exported is not what was to be exported, or there is no place for it."""


def export_saved_model(
    workdir: str | Path,
    to: str | Path,
    version: int | None = None,
    *,
    max_input_bytes: int | None = None,
    max_input_tokens: int | None = None,
) -> Path:
    """Exports the finished run of `workdir` to the directory `to / version`, which is returned.

    Args:
        version: A positive integer; without it the one after the last in `to`.
        max_input_bytes, max_input_tokens: Of a sentence; see `export.module.Limits`, which has the defaults.
    """
    import tensorflow as tf  # here, because it takes seconds and --help should not

    from export.module import Limits, ServingTranslator
    from keras_transformer.translator import Translator

    workdir, to = Path(workdir), Path(to)
    given = {"max_input_bytes": max_input_bytes, "max_input_tokens": max_input_tokens}
    limits = dataclasses.replace(Limits(), **{name: value for name, value in given.items() if value is not None})
    version = _free_version(to, version)
    with tf.device("CPU"):  # where the check runs: a GPU may round its products to fewer digits (TF32)
        translator = Translator.load(workdir)
    to.mkdir(parents=True, exist_ok=True)
    remove_stale(to)
    writing, final = to / f".writing-{version}-{os.getpid()}", to / str(version)
    try:
        served = ServingTranslator(translator, limits)
        write(served, writing)
        _write_metadata(writing, workdir, translator, served)
        compare(writing, translator, check_sentences(workdir, translator))
        _sync(writing)
        _rename(writing, final)
    finally:
        shutil.rmtree(writing, ignore_errors=True)
    return final


# --- versions


def versions(to: Path) -> list[int]:
    """The versions that a server would see."""
    names = [path.name for path in to.iterdir()] if to.is_dir() else []
    return sorted(int(name) for name in names if name.isascii() and name.isdecimal())


def _free_version(to, version):
    taken = versions(to)
    if version is None:
        return max(taken, default=0) + 1
    if version < 1:
        raise ExportError(f"A version is a positive integer. Received: {version}.")
    if version in taken:
        raise ExportError(f"Version {version} exists in {to}; a server may be using it. Give another number, or none.")
    return version


def remove_stale(to: Path):
    """Removes what exports that were killed have left."""
    for path in to.iterdir():
        writing = WRITING.fullmatch(path.name)
        if writing and not _is_alive(int(writing[1])):
            shutil.rmtree(path, ignore_errors=True)


def _is_alive(process):
    if process == os.getpid():
        return False  # its number has come round: this process has not begun to write
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is someone else's
        return True
    return True


def _rename(writing, final):
    try:
        os.rename(writing, final)
    except OSError as error:
        raise ExportError(f"Another export has written {final} in the meantime ({error.strerror}).") from error
    _sync_one(final.parent)


def _sync(folder):
    """All of the folder is on the disk when this returns."""
    for path in [*folder.rglob("*"), folder]:
        _sync_one(path)


def _sync_one(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- writing


def write(served, folder: Path):
    """The SavedModel of a `ServingTranslator`."""
    import tensorflow as tf

    tf.saved_model.save(served, str(folder), signatures=served.signatures())
    forbidden = [name for name in operations(folder) if name.startswith("Xla") or "PyFunc" in name]
    if forbidden:
        raise ExportError(f"A server has no such operations: {', '.join(forbidden)}.")


def operations(folder: Path) -> list[str]:
    """The names of all operations of a SavedModel."""
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    graph = SavedModel.FromString((folder / "saved_model.pb").read_bytes()).meta_graphs[0].graph_def
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    return sorted({node.op for node in nodes} - {function.signature.name for function in graph.library.function})


def _write_metadata(folder, workdir, translator, served):
    import tensorflow as tf
    import tensorflow_text

    config, result = workdir / "config.json", workdir / "model.json"
    tokenizers = translator.tokenizers
    metadata = {
        "tensorflow": tf.__version__,
        "tensorflow_text": tensorflow_text.__version__,
        "operations": operations(folder),
        "limits": served.limits(),
        "decode": translator.decode.to_dict(),
        "tokenizers": {"source": tokenizers.source.model_hash, "target": tokenizers.target.model_hash},
        "num_parameters": translator.model.count_params(),
        "config": json.loads(config.read_text(encoding="utf-8")),
        "model": json.loads(result.read_text(encoding="utf-8")) if result.exists() else None,  # its scores
    }
    path = folder / "assets.extra" / "metadata.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(metadata, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


# --- checking


def check_sentences(workdir: Path, translator) -> list[str]:
    """Sentences of the run's validation data, or of random pieces where there is none; and hostile strings."""
    import numpy as np

    from keras_transformer.data.corpus import Corpus

    with contextlib.suppress(OSError, ValueError):  # a workdir may have been moved without its data
        corpus = Corpus(workdir / "data" / "valid")
        ids = [corpus.pair(index)[0].tolist() for index in range(min(NUM_SENTENCES, len(corpus)))]
        return translator.tokenizers.source.decode(ids) + HOSTILE
    rng, vocab_size = np.random.default_rng(0), translator.tokenizers.source.vocab_size
    ids = [rng.integers(4, max(5, vocab_size), 3 + length).tolist() for length in range(NUM_SENTENCES)]
    return translator.tokenizers.source.decode(ids) + HOSTILE


def compare(folder: Path, translator, texts: list[str]):
    """An error unless the SavedModel, in a process of its own, translates as the `Translator` does."""
    import tensorflow as tf

    answers = _answers(folder, texts)
    with tf.device("CPU"):
        expected = [best for best, *_ in translator.translate_nbest(texts, num_hypotheses=1)]
    for text, best, *answer in zip(texts, expected, answers["translations"], answers["scores"], strict=True):
        translation, score = answer
        if translation != best.text or not abs(score - best.score) <= TOLERANCE:
            raise ExportError(
                f"The exported model translates {text!r} as {translation!r} ({score:.6g}), "
                f"the run's as {best.text!r} ({best.score:.6g}). Nothing was exported."
            )


def _answers(folder, texts):
    # -P: nothing of this project is importable by chance.
    command = [sys.executable, "-P", str(Path(__file__).with_name("check.py")), str(folder)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, input=json.dumps(texts), capture_output=True, text=True, env=environment)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise ExportError(f"The exported model cannot be used in a fresh process: {last}")
    return json.loads(done.stdout)
