"""python -m export.client --model demo [--rest http://127.0.0.1:8501 | --grpc 127.0.0.1:8500] < source.txt

Lines in, as many lines out; see export/client/lines.py. With --json each line is an object with all outputs of the
signature. Signatures with other inputs than `text` have them in columns between TABs:

python -m export.client --model demo --signature score --columns source,target --json < pairs.tsv

Exit codes: see keras_transformer_cli/errors.py.
"""

import argparse
import os
import sys

from export.client.rows import BATCH_SIZE, TIMEOUT
from keras_transformer_cli.errors import exit_code_of
from keras_transformer_cli.importing import importing_tensorflow
from keras_transformer_cli.options import positive_integer, positive_seconds


def main(arguments=None) -> int:
    return exit_code_of(lambda: _run(_parser().parse_args(arguments)))


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m export.client", description="Translates lines with a model on TF Serving or export.serve."
    )
    parser.add_argument("--model", required=True, metavar="NAME", help="the model's name on the server")
    server = parser.add_mutually_exclusive_group()
    server.add_argument("--rest", type=_url, metavar="URL", default="http://127.0.0.1:8501", help="REST (%(default)s)")
    server.add_argument("--grpc", type=_target, metavar="HOST:PORT", help="gRPC, in place of REST")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--version", type=int, metavar="N", help="of the model; the newest without it")
    which.add_argument("--label", metavar="NAME", help="of the version, such as stable")
    parser.add_argument("--signature", metavar="NAME", default="serving_default", help="what is asked (%(default)s)")
    parser.add_argument(
        "--columns",
        type=_columns,
        metavar="NAME,NAME",
        default="text",
        help="inputs of the signature in each line, separated by TABs (%(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print all outputs of a line as a JSON object")
    parser.add_argument(
        "--batch-size",
        type=positive_integer,
        default=BATCH_SIZE,
        metavar="N",
        help="lines of a request, at most (%(default)s)",
    )
    parser.add_argument(
        "--timeout", type=positive_seconds, default=TIMEOUT, metavar="SECONDS", help="limit for a request (%(default)s)"
    )
    return parser


def _url(text):
    if not text.lower().startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"must begin with http:// or https://. Received: {text!r}")
    return text


def _target(text):
    if ":" not in text:  # gRPC would ask port 443; and '', as of a variable that is not set, would mean REST
        raise argparse.ArgumentTypeError(f"must be HOST:PORT. Received: {text!r}")
    return text


def _columns(text):
    names = text.split(",")
    if not all(names) or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(f"must be different names with commas between them. Received: {text!r}")
    return names


def _run(options):
    for name in ("stdin", "stdout"):
        if getattr(sys, name) is None:
            raise ValueError(f"{name} is closed: lines are read from standard input and written to standard output.")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    with importing_tensorflow(with_warnings=False):
        client = _client(options)
    with client:
        _translate(client, options)
    return 0


def _client(options):
    import export.client as clients  # each brings its packages

    kind, server = (clients.GrpcClient, options.grpc) if options.grpc else (clients.RestClient, options.rest)
    limits = {"batch_size": options.batch_size, "timeout": options.timeout}
    return kind(server, options.model, version=options.version, label=options.label, **limits)


def _translate(client, options):
    from export.client.lines import batches, read_rows
    from keras_transformer_cli.lines import read_lines

    size = 1 if sys.stdin.isatty() else client.batch_size  # who types wants to see an answer
    for batch in batches(read_rows(read_lines(sys.stdin.buffer), options.columns), size):
        outputs = client.predict({name: [row[name] for row in batch] for name in options.columns}, options.signature)
        answers = _objects(outputs) if options.json else _best(outputs)
        sys.stdout.buffer.write("".join(f"{answer}\n" for answer in answers).encode(errors="replace"))
        sys.stdout.buffer.flush()


def _objects(outputs):
    import json

    rows = zip(*outputs.values(), strict=True)
    return [json.dumps(dict(zip(outputs, row, strict=True)), ensure_ascii=False) for row in rows]


def _best(outputs):
    if "translations" in outputs:
        best = [translations[0] for translations in outputs["translations"]]
    elif "translation" in outputs:
        best = outputs["translation"]
    else:
        raise ValueError(f"The signature returns no translation, only {', '.join(outputs)}: --json prints that.")
    return [" ".join(text.split("\n")) for text in best]


if __name__ == "__main__":
    sys.exit(main())
