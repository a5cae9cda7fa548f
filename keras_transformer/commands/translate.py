"""keras-transformer translate: lines in, as many lines out."""

import sys


def add_arguments(parser):
    parser.add_argument(
        "--workdir", metavar="FOLDER", default="runs/demo", help="folder of a finished run (%(default)s)"
    )
    parser.add_argument("--input", metavar="FILE", help="text, a sentence a line; standard input without it")
    parser.add_argument("--output", metavar="FILE", help="where the translations go; standard output without it")
    parser.add_argument("--beam-width", type=int, metavar="W", help="width of the beam; the run's own without it")


def run(options) -> int:
    from keras_transformer.translator import Translator

    changes = {} if options.beam_width is None else {"beam_width": options.beam_width}
    try:
        translator = Translator.load(options.workdir, **changes)
        lines = read_lines(options.input)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    write_lines(options.output, translator.translate(lines))
    return 0


def read_lines(path):
    """The lines of a file, or of standard input: \\n or \\r\\n ends one, and bytes that are not UTF-8 become U+FFFD."""
    if path is None:
        data = sys.stdin.buffer.read()
    else:
        with open(path, "rb") as file:
            data = file.read()
    lines = data.decode("utf-8-sig", errors="replace").split("\n")
    return [line.removesuffix("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]


def write_lines(path, lines):
    """One line each; a line break inside a translation, which no model should make, becomes a blank."""
    text = "".join(" ".join(line.split("\n")) + "\n" for line in lines).encode()
    if path is None:
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
    else:
        with open(path, "wb") as file:
            file.write(text)
