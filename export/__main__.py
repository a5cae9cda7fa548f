"""python -m export --workdir runs/demo --to served/demo [--ensemble runs/other ...] [--version N] [--xla]
[--set decode.FIELD=VALUE]"""

import argparse
import contextlib
import shlex
import sys
from pathlib import Path

from export.saved_model import export_saved_model
from export.serving_files import MODELS, is_served
from export.versions import name_of, versions
from keras_transformer_cli.errors import exit_code_of
from keras_transformer_cli.importing import importing_tensorflow
from keras_transformer_cli.interruption import keep_interrupt
from keras_transformer_cli.options import add_decode, add_ensemble, add_folder, positive_integer


def main(arguments=None) -> int:
    return exit_code_of(lambda: _run(_parser().parse_args(arguments)))


def _parser():
    parser = argparse.ArgumentParser(prog="python -m export", description="Exports a finished run for TF Serving.")
    add_folder(parser, "--workdir", "of a finished run", required=True)
    add_folder(parser, "--to", "of the served model's versions", required=True)
    add_ensemble(parser)
    parser.add_argument(
        "--version",
        type=positive_integer,
        help="an integer (default: one more than the newest); a server has the two newest",
    )
    parser.add_argument(
        "--max-input-bytes", type=positive_integer, metavar="N", help="limit for a sentence; the rest is cut off"
    )
    parser.add_argument("--xla", action="store_true", help="add the signature translate_xla, compiled by XLA")
    add_decode(parser)
    return parser


def _run(options):
    with importing_tensorflow(with_warnings=False):
        from keras_transformer.recipes import parse_decode  # here, because it brings TensorFlow

    to = Path(options.to)
    known = _versions(to)  # before
    try:
        with keep_interrupt():  # here, so that what native code makes of it is one below, too
            path = export_saved_model(
                options.workdir,
                to,
                options.version,
                ensemble=options.ensemble,
                max_input_bytes=options.max_input_bytes,
                xla=options.xla,
                **parse_decode(options.set),
            )
        _tell(path)
    except KeyboardInterrupt:
        print(f"interrupted, {_published_since(known, to)}", file=sys.stderr)
        raise
    return 0


def _tell(path):
    """Says where the version is, and how a server gets it."""
    print(path)
    if is_served(path):
        print("To start TensorFlow Serving and send it a request:")
        print(f"  docker compose -f {shlex.quote(str(path.parent / 'serving' / 'compose.yaml'))} up --wait")
        url = f"http://localhost:8501/v1/models/{name_of(path.parent)}:predict"
        print(f"""  curl -d '{{"inputs": {{"text": ["..."]}}}}' {url}""")
    else:
        print("It is older than the two newest versions, which a server has. To have it served as well, add")
        print(f"  versions: {path.name}")
        print(f"in {path.parent / 'serving' / MODELS}, and once it is loaded a label, which exports leave there.")


def _versions(to):
    return set(versions(to)) if to.is_dir() else set()


def _published_since(known, to):
    """What an interrupted export has left: it may have come as far as the server's files."""
    with contextlib.suppress(OSError):
        if new := _versions(to) - known:
            return f"version {max(new)} is there, and the next export renews the server's files"
    return "nothing was exported"


if __name__ == "__main__":
    sys.exit(main())
