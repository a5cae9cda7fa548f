"""python -m export.serve --model served/demo [--name demo] [--host 127.0.0.1] [--port 8501]

A server for a laptop, which answers as TF Serving's REST API does; production is TF Serving. It serves the newest
version and those that have a label in FOLDER/serving/models.config. Ends after Ctrl-C (exit code 130) or SIGTERM (143)
when the requests under way are answered.
"""

import argparse
import contextlib
import os
import sys
from pathlib import Path

from export.serve import RequestLimits
from export.versions import MODEL_NAME, name_of
from keras_transformer_cli.errors import exit_code_of
from keras_transformer_cli.importing import use_tensorflow, without_notes
from keras_transformer_cli.interruption import exit_on_interrupt
from keras_transformer_cli.options import add_folder, port, positive_seconds


def main(arguments=None) -> int:
    return exit_code_of(lambda: _run(_parser().parse_args(arguments)))


def _run(options):
    import signal

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    model = Path(options.model)
    if not model.is_dir():
        raise ValueError(f"--model must be a folder with a folder for each version. Received: {model}")
    if (model / "saved_model.pb").exists():
        raise ValueError(f"--model must be the folder of the versions. Received one of them: {model}")
    folder = model.resolve()  # a link that leads elsewhere later changes nothing
    name = options.name or name_of(folder)
    server = _server(folder, name, RequestLimits(timeout=options.timeout))
    listener = _listen(options.host, options.port)
    host = f"[{options.host}]" if ":" in options.host else options.host
    where = f"http://{host}:{listener.getsockname()[1]}/v1/models/{name}"
    _report(f"serving {model} at {where}, for trying out; use TF Serving in production")
    signal.signal(signal.SIGTERM, _terminate)  # after the last request uvicorn lets a signal do what it would do
    try:
        server.run(sockets=[listener])
    except SystemExit as end:
        return end.code
    return 0


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m export.serve",
        description="Serves exported models as TF Serving's REST API does: a server for a laptop, not for production.",
    )
    add_folder(parser, "--model", "the folder of the versions", required=True)
    parser.add_argument("--name", type=_name, help="of the model in paths; default: the folder's")
    parser.add_argument("--host", type=_host, default="127.0.0.1", help="address to listen at (%(default)s)")
    parser.add_argument("--port", type=port, default=8501, help="0: any free port (%(default)s)")
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        default=RequestLimits.timeout,
        metavar="SECONDS",
        help="limit for a request (%(default)s)",
    )
    return parser


def _host(text):
    if not text:  # which would be every address of the machine
        raise argparse.ArgumentTypeError("must be an address. Received: ''")
    return text


def _name(text):
    if not MODEL_NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"must be letters, digits, . _ -, first a letter or digit. Received: {text!r}")
    return text


def _listen(host, port):
    import socket

    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=512)
    except (OSError, OverflowError) as error:
        reason = str(getattr(error, "strerror", None) or error).split(" (")[0]  # Python adds the address in brackets
        raise OSError(f"cannot listen at {host}:{port}: {reason}") from error
    # asyncio does this for sockets that it makes itself; without it each answer comes 40 ms late.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _server(folder, name, limits):
    try:
        with exit_on_interrupt():
            from concurrent.futures import ThreadPoolExecutor

            import uvicorn

            from export import serving_files
            from export.serve.application import asgi
            from export.serve.batching import BatchSettings
            from export.serve.versions import Versions
    except ModuleNotFoundError as error:
        raise ImportError(f'no package {error.name}: pip install -e ".[server]"') from error
    use_tensorflow()
    settings = BatchSettings()
    executor = ThreadPoolExecutor(settings.num_threads, thread_name_prefix="batch")

    notes = contextlib.ExitStack()
    notes.enter_context(without_notes())  # here, for it forks, and there are no threads yet

    def load(path):
        with notes:  # in a thread: importing TensorFlow takes seconds, in which the server answers already
            from export.serve.servable import Servable
        return Servable(path, executor, settings)

    versions = Versions(name, folder, load, _report, lambda: serving_files.labels(folder))
    config = uvicorn.Config(
        asgi(versions, executor, limits),
        loop="asyncio",
        http="h11",
        ws="none",
        lifespan="on",
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(limits.timeout) + 1,
    )
    return uvicorn.Server(config)


def _terminate(*_):
    raise SystemExit(143)


def _report(line):
    """Prints a line on standard error. If it cannot be written, or nobody reads it, the server goes on."""
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    # Without waiting for threads: for a model half loaded, or a call whose clients know that it took too long.
    os._exit(main())
