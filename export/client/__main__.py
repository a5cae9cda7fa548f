"""python -m export.client --model demo [--rest http://127.0.0.1:8501 | --grpc 127.0.0.1:8500] < source.txt

Lines in, as many lines out: \\n or \\r\\n ends one, and bytes that are not UTF-8 become U+FFFD. With --json each
line is an object with all outputs of the signature.
"""

import argparse
import itertools
import json
import os
import sys
from collections.abc import Iterator

from export.client import GrpcClient, RestClient, ServingError
from export.client.rows import TIMEOUT


def main(arguments=None) -> int:
    options = _parser().parse_args(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        with _client(options) as client:
            _translate(client, options)
    except (ServingError, ImportError, ValueError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # head has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at the end
        return 0
    except KeyboardInterrupt:
        return 130
    return 0


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m export.client", description="Translates lines by a model on TF Serving or export.serve."
    )
    parser.add_argument("--model", required=True, metavar="NAME", help="of the model on the server")
    server = parser.add_mutually_exclusive_group()
    server.add_argument("--rest", metavar="URL", default="http://127.0.0.1:8501", help="REST (%(default)s)")
    server.add_argument("--grpc", metavar="HOST:PORT", help="gRPC, in place of REST")
    parser.add_argument("--version", type=int, metavar="N", help="of the model; the newest without it")
    parser.add_argument("--signature", metavar="NAME", default="serving_default", help="what is asked (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print all outputs of a line as a JSON object")
    parser.add_argument("--timeout", type=float, default=TIMEOUT, metavar="SECONDS", help="of a request (%(default)s)")
    return parser


def _client(options):
    kind, server = (GrpcClient, options.grpc) if options.grpc else (RestClient, options.rest)
    return kind(server, options.model, version=options.version, timeout=options.timeout)


def _translate(client, options):
    size = 1 if sys.stdin.isatty() else client.batch_size  # who types wants to see an answer
    lines = read_lines(sys.stdin.buffer)
    while batch := list(itertools.islice(lines, size)):
        outputs = client.predict({"text": batch}, options.signature)
        answers = _objects(outputs) if options.json else _best(outputs)
        sys.stdout.buffer.write("".join(f"{answer}\n" for answer in answers).encode())
        sys.stdout.buffer.flush()


def read_lines(file) -> Iterator[str]:
    """The lines of a binary file, without their ends."""
    for line in file:  # which ends at \n alone
        yield line.removesuffix(b"\n").removesuffix(b"\r").decode(errors="replace")


def _objects(outputs):
    rows = zip(*outputs.values(), strict=True)
    return [json.dumps(dict(zip(outputs, row, strict=True)), ensure_ascii=False) for row in rows]


def _best(outputs):
    if "translations" in outputs:
        best = [translations[0] for translations in outputs["translations"]]
    elif "translation" in outputs:
        best = outputs["translation"]
    else:
        raise ValueError(f"The signature gives no translation but {', '.join(outputs)}: --json prints these.")
    return [" ".join(text.split("\n")) for text in best]


if __name__ == "__main__":
    sys.exit(main())
