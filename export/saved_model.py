"""Makes a finished run a version that a server may load: written, tried and compared, and only then visible.

    the SavedModel -> requests to warm it up -> metadata -> a fresh process answers with it as the run does -> renamed

`versions.py` manages the folder of the versions, `serving_files.py` writes the files beside them.
"""

import contextlib
import json
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from export import metadata, serving_files, warmup
from export.contents import operations
from export.versions import ExportError, free_version, publish
from keras_transformer_cli.errors import reason

CHECK = Path(__file__).with_name("check.py")
TOLERANCE, RELATIVE = 1e-4, 1e-5  # of a score, the larger of them: two processes may add up in different orders
NUM_SENTENCES = 12  # of the validation data
HOSTILE = ["", " \t\u00a0\u2028", "a", "\x00", "\ufffd\u200b", "e\u0301 \ufb01 ½ 👩‍👩‍👧", "</s> <unk> ⁇ ▁", "ab " * 40]


def export_saved_model(
    workdir: str | Path,
    to: str | Path,
    version: int | None = None,
    *,
    ensemble: Sequence[str | Path] = (),
    max_input_bytes: int | None = None,
    xla: bool = False,
    **decode,
) -> Path:
    """Exports the finished run of `workdir` to the directory `to / version`, which is returned.

    Args:
        version: A positive integer; None: the one after the last in `to`.
        ensemble: Further finished runs, whose models translate together with the first.
        max_input_bytes: The most bytes of a sentence; None: the default of `ServingTranslator`.
        xla: Adds the signature `translate_xla`, for servers that allow XLA.
        **decode: Fields of the run's `DecodeConfig` that are to be different.
    """
    import tensorflow as tf  # here, because it takes seconds and --help should not

    from export.module import ServingTranslator
    from keras_transformer.translator import Translator

    (workdir, *others), to = map(Path, [workdir, *ensemble]), Path(to)
    limit = {} if max_input_bytes is None else {"max_input_bytes": max_input_bytes}
    serving_files.check(to)
    free_version(to, version)  # raises an error, before anything is done, if there is none
    with tf.device("CPU"):  # where the check runs
        translator = Translator.load(workdir, *others, **decode)
    served = ServingTranslator(translator, xla=xla, **limit)

    def make(folder):
        write(served, folder)
        warmup.write(folder)
        metadata.write(folder, workdir, translator, served.limits(), others)
        compare(folder, translator, check_sentences(workdir, translator.tokenizers.source), served.max_input_bytes)

    try:
        path = publish(to, version, make)
    except tf.errors.OpError as error:  # as TensorFlow says that the disk is full
        raise ExportError(f"No version could be written to {to}. Received: {reason(error.message)}") from error
    serving_files.write(to)
    return path


# --- writing


def write(served, folder: Path):
    """Writes the SavedModel of a `ServingTranslator`."""
    import tensorflow as tf

    tf.saved_model.save(served, str(folder), signatures=served.signatures())
    forbidden = [name for name in operations(folder) if name.startswith("Xla") or "PyFunc" in name]
    if forbidden:
        raise ExportError(f"A server has no such operations: {', '.join(forbidden)}.")


# --- checking


def check_sentences(workdir: Path, tokenizer) -> list[str]:
    """Sentences of the run's validation data, or of random pieces where there is none; and hostile strings."""
    import numpy as np

    from keras_transformer.data.corpus import Corpus

    with contextlib.suppress(OSError, ValueError):  # a workdir may have been moved without its data
        corpus = Corpus(workdir / "data" / "valid")
        ids = [corpus.pair(index)[0].tolist() for index in range(min(NUM_SENTENCES, len(corpus)))]
        return tokenizer.decode(ids) + HOSTILE
    rng, vocab_size = np.random.default_rng(0), tokenizer.vocab_size
    ids = [rng.integers(4, max(5, vocab_size), 3 + length).tolist() for length in range(NUM_SENTENCES)]
    return tokenizer.decode(ids) + HOSTILE


def compare(folder: Path, translator, texts: list[str], max_input_bytes: int):
    """Raises an error unless the SavedModel, in its own process, translates and scores as the `Translator` does."""
    import tensorflow as tf

    from keras_transformer.translator import LOWEST

    def read(sentences):
        return [what_is_read(sentence, max_input_bytes) for sentence in sentences]

    answers = _answers(folder, texts)
    with tf.device("CPU"):
        nbest = translator.translate_nbest(read(texts), num_hypotheses=translator.decode.beam_width)
        scored = translator.score(read(texts), read(answers["serving_default"]["translation"]))
    expected = [[(one.text, one.score) for one in found] for found in nbest]
    for name in {"serving_default", "translate_xla"} & answers.keys():
        for i, best in enumerate(zip(answers[name]["translation"], answers[name]["score"], strict=True)):
            _agree(name, texts[i], expected[i], [best])
    lists = answers["translate_nbest"]
    for i, found in enumerate(zip(lists["translations"], lists["scores"], strict=True)):
        found = [(text, score) for text, score in zip(*found, strict=True) if text or score > LOWEST] or [("", LOWEST)]
        if abs(len(found) - len(expected[i])) > 1:  # of two that are equally good, the last may be another cut
            raise ExportError(
                f"With translate_nbest, the exported model finds {len(found)} translations of {texts[i]!r}, "
                f"the run's {len(expected[i])}. Nothing was exported."
            )
        _agree("translate_nbest", texts[i], expected[i], found[: len(expected[i])])
    for text, one, log_prob in zip(texts, scored, answers["score"]["log_prob"], strict=True):
        _agree("score", text, [("", one.log_prob / len(one.pieces))], [("", log_prob / len(one.pieces))])


def what_is_read(text: str, max_input_bytes: int) -> str:
    """The first `max_input_bytes` bytes of a text, without a character that is cut in the middle."""
    data = text.encode()
    if len(data) <= max_input_bytes:
        return text
    return re.sub("\ufffd{1,3}\\Z", "", data[:max_input_bytes].decode(errors="replace"))


def _agree(signature, source, expected, found):
    """Raises an error unless `found` has the (text, score) of `expected`; texts of equal scores may change places."""
    for place, (text, score) in enumerate(found):
        is_known = any(text == known and _is_close(score, its) for known, its in expected)
        is_tied = 0 < place == len(expected) - 1  # with one that is not in the list any more
        if not _is_close(score, expected[place][1]) or not (is_known or is_tied):
            raise ExportError(
                f"With {signature}, the exported model gives {text!r} ({score:.6g}) for {source!r}, "
                f"the run's: {expected[place][0]!r} ({expected[place][1]:.6g}). Nothing was exported."
            )


def _is_close(score, expected):
    return math.isclose(score, expected, rel_tol=RELATIVE, abs_tol=TOLERANCE)


def _answers(folder, texts):
    # -P: no file beside check.py is imported by chance.
    command = [sys.executable, "-P", str(CHECK), str(folder)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, input=json.dumps(texts), capture_output=True, text=True, env=environment)
    if done.returncode == -signal.SIGKILL:
        hint = "as the system does where memory runs out"
        raise ExportError(f"The process that checks the exported model was killed, {hint}. Nothing was exported.")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise ExportError(f"The exported model cannot be used in a fresh process: {last}")
    return json.loads(done.stdout)
