"""python -m export --workdir runs/demo --to served/demo [--version N] [--xla] [--set decode.FIELD=VALUE]"""

import argparse
import contextlib
import os
import shlex
import sys
from pathlib import Path

from export.options import add_decode, folder_path, positive_integer
from export.saved_model import ExportError, export_saved_model
from export.serving_files import MODELS, is_served
from export.versions import name_of, versions
from keras_transformer_cli import importing_tensorflow, interruption_counts, open_streams


def main(arguments=None) -> int:
    open_streams()
    parser = argparse.ArgumentParser(prog="python -m export", description="Exports a finished run for TF Serving.")
    parser.add_argument("--workdir", type=folder_path, required=True, help="of a finished run")
    parser.add_argument("--to", type=folder_path, required=True, help="the directory of the served model's versions")
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
    options = parser.parse_args(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    to, known = Path(options.to), None  # the versions before
    try:
        with importing_tensorflow():
            from keras_transformer.recipes import parse_decode  # here, because it brings TensorFlow

        known = _versions(to)
        with interruption_counts():
            path = export_saved_model(
                options.workdir,
                to,
                options.version,
                max_input_bytes=options.max_input_bytes,
                xla=options.xla,
                **parse_decode(options.set),
            )
        _tell(path)
    except BrokenPipeError:  # the version is there all the same
        from keras_transformer.screen import silence

        silence(sys.stdout)
        return 141
    except (ExportError, ImportError, OSError, ValueError, MemoryError) as error:
        from keras_transformer.config import ConfigError

        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        print(f"interrupted, {_published_since(known, to)}", file=sys.stderr)
        return 130
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
    sys.stdout.flush()  # here a reader that is gone is found out


def _versions(to):
    return set(versions(to)) if to.is_dir() else set()


def _published_since(known, to):
    """What an interrupted export has left: it may have come as far as the server's files."""
    with contextlib.suppress(OSError):
        if known is not None and (new := _versions(to) - known):
            return f"version {max(new)} is there, and the next export renews the server's files"
    return "nothing was exported"


if __name__ == "__main__":
    sys.exit(main())
