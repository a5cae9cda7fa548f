"""keras-transformer score: how likely the model finds given translations."""

import json

from keras_transformer.commands.pairs import add_pairs, answer_pairs

EPILOG = """\
Pairs come from two files, or from one with a pair per line, SOURCE TAB TARGET (default: standard input). A line of
output is the log-probability of all pieces of the target, end of sentence included; with --json an object with the
score that the search sorts by, the pieces and the log-probability of each. A program that waits for each answer needs
--buffer-lines 1."""


def add_arguments(parser):
    parser.epilog = EPILOG
    add_pairs(parser, "scores", "scored")
    parser.add_argument("--json", action="store_true", help="a JSON object per line, with every piece")


def run(options) -> int:
    form = _as_json if options.json else _as_number
    return answer_pairs(options, lambda translator, *sides: map(form, translator.score(*sides)))


def _as_number(scored):
    return f"{scored.log_prob:.6f}"


def _as_json(scored):
    return json.dumps(scored._asdict(), ensure_ascii=False)
