"""keras-transformer evaluate: translates a test set, or takes translations, and scores them."""

import sys
import typing
from pathlib import Path

from keras_transformer import evaluation, report
from keras_transformer.commands.lines import check_output, naming_full_disk, open_output
from keras_transformer.commands.options import WORKDIR, add_workdir, files_of_runs, load_translator
from keras_transformer.config import BleuTokenizer, ConfigError, DataConfig
from keras_transformer.data.sources import evaluation_corpus, read_lines, read_pairs
from keras_transformer.files import open_binary
from keras_transformer.screen import warn
from keras_transformer.training.workdir import Workdir
from keras_transformer_cli.options import add_decode, add_ensemble, add_file

EPILOG = """\
Without --source and --reference the test set of the run is taken (data.test of its configuration). A page of --html
shows no attention of an ensemble."""


def add_arguments(parser):
    parser.epilog = EPILOG
    add_workdir(parser, default=None)
    add_ensemble(parser)
    add_file(parser, "--source", "sentences to translate, a line each")
    add_file(parser, "--reference", "their translations, a line each")
    add_file(parser, "--hypotheses", "score these lines, translations of --source that were made before")
    add_file(parser, "--other", "another system's lines, for a paired bootstrap test")
    parser.add_argument("--lowercase", action="store_true", help="score without case")
    parser.add_argument(
        "--tokenize",
        choices=typing.get_args(BleuTokenizer),
        help="how BLEU splits text; none: only at blanks (default: that of the run; 13a for files without --workdir)",
    )
    add_file(parser, "--json", "the whole evaluation as JSON")
    add_file(parser, "--html", "the whole evaluation as one page, with pictures")
    add_file(parser, "--output", "the translations")
    add_decode(parser)


def run(options) -> int:
    for name in ("set", "ensemble"):
        if getattr(options, name) and options.hypotheses:
            raise ConfigError(
                f"--{name} changes how to translate, but --hypotheses are translations already. Received: both."
            )
    if bool(options.source) != bool(options.reference):
        raise ConfigError("--source and --reference belong together. Received: one of them.")
    if not (options.source and options.hypotheses):
        options.workdir = options.workdir or WORKDIR  # files alone need no run
    _check_outputs(options)
    if sys.stdout is None and not (options.json or options.html):
        raise ValueError("Scores need an open stdout, --json or --html. Received: a closed stdout.")

    evaluation, hypotheses, translator = _evaluated(options)
    try:
        with naming_full_disk("standard output"):
            print(report.text(evaluation), flush=True)
    finally:  # even if nobody reads; and the scores come first, should a file fail to be written
        _write(options, evaluation, hypotheses, translator)
    return 0


def _check_outputs(options):
    """Raises an error if an output could not be written, before the work and not after it."""
    given = [options.source, options.reference, options.hypotheses, options.other]
    inputs = [path for path in given if path] + files_of_runs(options.workdir, *options.ensemble)
    for path in (options.output, options.json, options.html):
        if path is not None:
            check_output(path, *inputs)
    outputs = [Path(path).resolve() for path in (options.output, options.json, options.html) if path]
    if len(set(outputs)) < len(outputs):
        raise ConfigError("--output, --json and --html must be different files. Received: the same for two of them.")


def _evaluated(options):
    """Evaluates. -> Evaluation, the hypotheses, and the `Translator` that has written them or None"""
    sources, references, data = _test_set(options)
    settings = dict(data.score_options)
    if options.lowercase:
        settings["lowercase"] = True
    if options.tokenize:
        settings["tokenize"] = options.tokenize
    settings["other"] = list(read_lines(options.other)) if options.other else None
    system = options.hypotheses or ", ".join([options.workdir, *options.ensemble])
    title = f"Evaluation of {system}"
    test_set = f"{options.source} and {options.reference}" if options.source else f"that of {options.workdir}"
    if options.hypotheses:
        hypotheses = list(read_lines(options.hypotheses))
        about = evaluation.About(title=title, details=evaluation.provenance(test_set))
        return evaluation.evaluate(sources, hypotheses, references, about=about, **settings), hypotheses, None
    translator = load_translator(options, xla=False)  # figures that do not depend on when XLA begins to pay
    found = evaluation.evaluate_translator(translator, sources, references, title=title, test_set=test_set, **settings)
    return *found, translator


def _test_set(options):
    """-> sources, references, the `DataConfig` that says how they are scored: that of the run, where there is one"""
    data = Workdir(options.workdir).load_config().data if options.workdir else DataConfig()
    if options.source:
        return list(read_lines(options.source)), list(read_lines(options.reference)), data
    test = evaluation_corpus(data)
    if test is None:
        raise ValueError(f"{options.workdir} has no test set (data.test). Give --source and --reference.")
    pairs = list(read_pairs(test, "test", reverse=data.reverse))
    return [source for source, _ in pairs], [target for _, target in pairs], data


def _write(options, evaluation, hypotheses, translator):
    if options.output:
        with open_output(options.output) as write:
            write(hypotheses)
    if options.json:
        _write_text(options.json, evaluation.to_json() + "\n")
    if options.html:
        align = translator.align if translator and not options.ensemble else None
        _write_text(options.html, report.illustrated(evaluation, align, warn))


def _write_text(path, text):
    with naming_full_disk(path), open_binary(path, "wb") as file:
        file.write(text.encode("utf-8"))
