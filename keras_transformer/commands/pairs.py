"""What `score` and `align` share: pairs of sentences in, a line of output for each.

Pairs come from two files, or from one with a pair per line, SOURCE TAB TARGET.
"""

from keras_transformer.commands.lines import BUFFER_LINES, at_terminal, chunks, open_output, read_line_pairs, read_lines
from keras_transformer.commands.options import add_buffer_lines, add_workdir, files_of_runs, load_translator
from keras_transformer.config import ConfigError
from keras_transformer_cli.options import add_decode, add_ensemble, add_file


def add_pairs(parser, answers, done):
    """The options: `answers` is what goes to the output, `done` what is done to pairs."""
    add_workdir(parser)
    add_ensemble(parser)
    add_file(parser, "--source", "sentences, a line each")
    add_file(parser, "--target", "their translations, a line each")
    add_file(parser, "--input", "instead of both: SOURCE TAB TARGET, a pair a line")
    add_file(parser, "--output", f"where the {answers} go; standard output without it")
    add_decode(parser)
    add_buffer_lines(parser, done)


def answer_pairs(options, answer) -> int:
    """Writes the lines `answer(translator, sources, targets)` for all pairs, some at a time. -> exit code"""
    pairs, translator = read_pairs(options), load_translator(options)
    typed = not (options.source or options.input) and at_terminal()
    num_lines = options.buffer_lines or (1 if typed else BUFFER_LINES)
    inputs, kept = (options.source, options.target, options.input), files_of_runs(options.workdir, *options.ensemble)
    with open_output(options.output, *inputs, kept=kept) as write:
        for chunk in chunks(pairs, num_lines):
            write(answer(translator, *zip(*chunk, strict=True)))
    return 0


def read_pairs(options):
    """The pairs (source, target), one after the other."""
    if not (options.source or options.target):
        return _of_one_file(options.input)
    if not (options.source and options.target) or options.input:
        raise ConfigError("Expected --source and --target, or --input alone. Received: another combination of them.")
    return read_line_pairs(source=options.source, target=options.target)


def _of_one_file(path):
    for number, line in enumerate(read_lines(path), start=1):
        pair = tuple(line.split("\t"))
        if len(pair) != 2:
            raise ValueError(f"Line {number} must be SOURCE TAB TARGET. Received: {len(pair) - 1} tabs.")
        yield pair
