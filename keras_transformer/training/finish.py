"""The end of a run: the candidates for the finished model are compared, and one becomes `model.keras`.

Candidates are the last weights, the average of the newest checkpoints (Section 6.1), the moving average, and the best
checkpoint of the run; the best validation BLEU wins, at a tie, or where nothing is translated, the lower perplexity.
Only the winner sees the test set. A model that is finished already is recognised, and left as it is.
"""

import dataclasses
import math

from keras_transformer import evaluation, report
from keras_transformer.files import save_model, write_json, write_text
from keras_transformer.plots import learning_curve, sparkline
from keras_transformer.progress import duration
from keras_transformer.training.checkpoints import average_weights, whole
from keras_transformer.training.journal import read_log
from keras_transformer.training.variables import set_weights
from keras_transformer.training.workdir import WorkdirError


def candidates(run):
    """{name: {variable path: weights}} of everything that the finished model could be."""
    variables = run.trainee.transformer.trainable_variables
    regular = whole(run.checkpoints.regular()[-run.config.train.average_checkpoints :], run.say)
    found = {}
    if len(regular) > 1:
        found[f"average of {len(regular)}"] = average_weights(regular)
    if run.trainee.ema:
        found["moving average"] = run.trainee.judged_weights()
    found["last"] = {v.path: v.numpy() for v in variables}
    best = run.checkpoints.best_path
    if best.exists() and whole([best], run.say):
        found["best"] = average_weights([best], "average" if run.trainee.ema else "model")
    return found


def finish(run, step):
    """Chooses, scores and writes the finished model, unless it is there; returns its metadata."""
    if is_finished(run, step):
        return _as_it_is(run)
    scores, weights = {}, candidates(run)
    for name in weights:
        scores[name] = run.judge.verdict(weights[name]).record()
    winner = best_of(scores)
    run.say(f"Weights, by {'perplexity' if scores[winner]['bleu'] is None else 'BLEU'} on the validation set:")
    for name, record in scores.items():
        mark, perplexity = "*" if name == winner else " ", _or_infinity(record["perplexity"])
        bleu = "" if record["bleu"] is None else f"BLEU {record['bleu']:6.2f}  "
        run.say(f"  {mark} {name:<16} {bleu}perplexity {perplexity:.3f}")
    model = run.judge.translator.model
    set_weights(model, weights[winner])
    metadata = {
        "weights": winner,
        "step": step,
        "patience": run.config.train.patience if step < run.config.train.steps else None,  # that has ended the run
        "judged_on": run.judged_on,
        "parameters": model.count_params(),
        "validation": scores,
        "test": _test(run),
    }
    save_model(model, run.workdir.model_path)
    run.workdir.metadata_path.unlink(missing_ok=True)  # of the model before; a kill must not leave it beside this one
    _draw(run)
    write_json(run.workdir.metadata_path, metadata)  # last: with it the run is finished
    return metadata


def best_of(scores):
    """The name of the candidate with the highest BLEU, at a tie or without BLEU with the lowest perplexity."""
    return max(scores, key=lambda name: (scores[name]["bleu"] or 0.0, -_or_infinity(scores[name]["perplexity"])))


def _or_infinity(perplexity):
    """A perplexity from a record, where None stands for one that is not finite."""
    return math.inf if perplexity is None else perplexity


def _test(run):
    """Scores on the test set, or None without one; the report is written beside the model."""
    pairs = run.data.test_text
    if not pairs:
        for path in (run.workdir.page_path, run.workdir.report_path):  # of a test set that it had
            path.unlink(missing_ok=True)
        return None
    sources, references = [source for source, _ in pairs], [target for _, target in pairs]
    title, translator = f"Evaluation of {run.workdir.path}", run.judge.translator
    found, _ = evaluation.evaluate_translator(
        translator, sources, references, title=title, test_set="that of the run", **run.config.data.score_options
    )
    seconds = len(pairs) / found.about.sentences_per_second
    run.say(f"Test set, {len(pairs):,} sentences, translated in {duration(seconds)}:")
    for score in (found.scores.bleu, found.scores.chrf, found.scores.ter):
        low, high = score.interval
        run.say(f"  {score.name} {score.value:.2f} (95 %: {low:.2f} to {high:.2f})  {score.signature}")
    run.say(f"  exact match {100 * found.scores.exact_match:.1f} %")
    write_text(run.workdir.page_path, report.illustrated(found, translator.align, run.say))
    write_text(run.workdir.report_path, found.to_json() + "\n")
    return dataclasses.asdict(found.scores)


def _draw(run):
    records = read_log(run.workdir.log_path)
    losses = [record["loss"] for record in records if record["kind"] == "train" and record["loss"] is not None]
    if not losses:  # stopped before the first record, or every step was skipped
        return
    first = f"{losses[0]:.2f} -> " if len(losses) > 1 else ""
    run.say(f"Training loss {first}{losses[-1]:.2f}  {sparkline(losses)}")
    try:
        learning_curve(records, run.workdir.curve_path)
    except (ImportError, OSError) as error:
        run.say(f"No {run.workdir.curve_path.name}: {error}")


# --- what is finished already


def is_finished(run, step):
    """Whether the finished model is that of `step`, and was judged as it would be now."""
    metadata = run.workdir.load_metadata() or {}
    return metadata.get("step") == step and metadata.get("judged_on") == run.judged_on


def has_only_the_model(run, step):
    """Whether there is a finished model and no checkpoint of its last step, from which it could be made again.

    `step` is that of the newest checkpoint, or None.
    """
    if not run.workdir.model_path.exists():
        return False
    metadata = run.workdir.load_metadata() or {}
    return step is None or (step < metadata.get("step", 0) and _is_at_its_end(run, metadata))


def accept_the_model(run):
    """Takes a finished model as it is whose last checkpoints were removed; refuses one of other origin.

    -> its step, its metadata
    """
    metadata = run.workdir.load_metadata()
    if metadata is None or "step" not in metadata:
        raise WorkdirError(
            f"A run begins in a new folder, or where its checkpoints are. {run.workdir.path} has a model.keras "
            "that was not trained there; give another --workdir."
        )
    step, train = metadata["step"], run.config.train
    if not _is_at_its_end(run, metadata):
        raise WorkdirError(
            f"Going on after step {step}, where the run was finished, needs a checkpoint; {run.workdir.checkpoints} no "
            f"longer has one. Received: train.steps={train.steps}, train.patience={train.patience}. To go on from its "
            f"weights, give another --workdir and train.start_from={run.workdir.path}."
        )
    run.take_changes(step)
    if run.is_chief and not is_finished(run, step):
        run.say(
            "It would be judged otherwise now, but the checkpoint of its last step is gone: model, scores and "
            "export stay as they were; keras-transformer evaluate scores the model, python -m export exports it."
        )
    return step, _as_it_is(run)


def _as_it_is(run):
    """The metadata of the finished model, which is left alone."""
    metadata = run.workdir.load_metadata()
    run.say(f"Finished at step {metadata['step']}: {run.workdir.model_path}")
    return metadata


def _is_at_its_end(run, metadata):
    """Whether a run whose model has this metadata has no more to train: it has its steps, or patience ended it."""
    train, ended_it = run.config.train, metadata.get("patience")
    by_patience = None not in (train.patience, ended_it) and train.patience <= ended_it
    return metadata["step"] == train.steps or by_patience
