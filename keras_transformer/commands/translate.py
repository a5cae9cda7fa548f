"""keras-transformer translate: lines in, as many lines out."""

import argparse
import contextlib
import json
import sys

from keras_transformer.commands.lines import (
    BUFFER_LINES,
    at_terminal,
    chunks,
    count_lines,
    open_output,
    read_line_pairs,
    read_lines,
)
from keras_transformer.commands.options import add_buffer_lines, add_workdir, files_of_runs, load_translator
from keras_transformer.config import MAX_BEAMS, ConfigError
from keras_transformer.data.digests import text_digest
from keras_transformer.progress import Progress
from keras_transformer_cli.options import add_decode, add_ensemble, add_file, non_negative_number, positive_integer

MAX_TRANSLATIONS = 10 * BUFFER_LINES  # held at once: with long n-best lists, fewer lines are taken together
MAX_SEED = 2**62  # any number would do: a line's seed is made of its digits

EPILOG = """\
One line in is one line out, whatever it holds; a blank line gives an empty one. Translations go to standard output,
everything else to standard error. A program that waits for each answer needs --buffer-lines 1."""


def add_arguments(parser):
    parser.epilog = EPILOG
    add_workdir(parser)
    add_ensemble(parser)
    add_file(parser, "--input", "text, a sentence a line; standard input without it")
    add_file(parser, "--output", "where the translations go; standard output without it")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--nbest", metavar="N", type=_nbest, help="the N best and their scores, as JSON lines")
    kind.add_argument("--sample", metavar="SEED", type=_seed, help="a random translation; the same for the same seed")
    add_file(parser, "--prefixes", "how each translation begins, a line each; empty: as it likes")
    parser.add_argument("--temperature", metavar="T", type=non_negative_number, help="of --sample; 1 without it")
    add_decode(parser)
    add_buffer_lines(parser, "translated")


def _nbest(text):
    if (number := positive_integer(text)) > MAX_BEAMS:
        raise argparse.ArgumentTypeError(f"must be at most {MAX_BEAMS}. Received: {text!r}")
    return number


def _seed(text):
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else -1
    if not 0 <= number < MAX_SEED:
        raise argparse.ArgumentTypeError(f"must be an integer from 0 to 2^62 - 1. Received: {text!r}")
    return number


def run(options) -> int:
    if options.temperature is not None and options.sample is None:
        raise ConfigError("--temperature belongs to --sample. Received: no --sample.")
    if options.prefixes is not None and options.sample is not None:
        raise ConfigError("--prefixes go with a search. Received: --sample, too.")
    translator = load_translator(options)
    answers, first = answering(translator, options), 0
    typed = options.input is None and at_terminal()
    buffer_lines = max(1, min(BUFFER_LINES, MAX_TRANSLATIONS // (options.nbest or 1)))
    num_lines = options.buffer_lines or (1 if typed else buffer_lines)
    rows, inputs = zip(read_lines(options.input)), [options.input]
    if options.prefixes is not None:
        rows = read_line_pairs(input=options.input, prefixes=options.prefixes)
        inputs.append(options.prefixes)
    output = open_output(options.output, *inputs, kept=files_of_runs(options.workdir, *options.ensemble))
    with output as write, _progress(options, typed) as count:
        for chunk in chunks(rows, num_lines):
            write(answers(first, *zip(*chunk, strict=True)))
            first += len(chunk)
            count(len(chunk))
    return 0


def answering(translator, options):
    """The function that gives the output line of every input line, and prefix; `first` is the number of the first."""
    if options.nbest:
        search = translator.translate_nbest if options.prefixes is None else translator.translate_prefix_nbest
        return lambda first, *columns: map(_as_json, search(*columns, options.nbest))
    if options.sample is not None:
        temperature = 1.0 if options.temperature is None else options.temperature

        def draw(first, lines):
            # A digest: of SEED + number, line 1 with SEED 2 would draw what line 2 draws with SEED 1.
            seeds = [text_digest(f"{options.sample} {first + i}") >> 1 for i in range(len(lines))]
            return [drawn.text for drawn in translator.sample(lines, seeds, temperature)]

        return draw
    if options.prefixes is not None:
        return lambda first, *pairs: [found.text for found in translator.translate_prefix(*pairs)]
    return lambda first, lines: translator.translate(lines)


def _as_json(translations):
    return json.dumps({"translations": [found._asdict() for found in translations]}, ensure_ascii=False)


def _progress(options, typed):
    """Counts lines on standard error, unless a person is typing or reading there."""
    if typed or (options.output is None and sys.stdout.isatty()):
        return contextlib.nullcontext(lambda number: None)

    return _counting(Progress("Translating", "lines", count_lines(options.input)))


@contextlib.contextmanager
def _counting(progress):
    with progress:
        yield progress.add
