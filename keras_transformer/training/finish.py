"""The end of a run: the candidates for the finished model are compared, and one becomes `model.keras`.

Candidates are the last weights, the average of the newest checkpoints (Section 6.1), the moving average, and the best
checkpoint of the run; the best validation BLEU wins, at a tie, or where nothing is translated, the lower perplexity.
Only the winner sees the test set.
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
    """Chooses, scores and writes the finished model; returns its metadata."""
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
