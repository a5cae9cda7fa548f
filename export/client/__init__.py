"""Clients of TF Serving, and of `python -m export.serve`.

with RestClient("http://127.0.0.1:8501", "demo", label="stable") as client:    # needs the package requests
    client.translate(["Anna sleeps."])
    client.predict({"text": [...]}, "translate_nbest")         # {"translations": [[...]], "scores": [[...]]}

GrpcClient("127.0.0.1:8500", "demo")                           # the same; needs tensorflow-serving-api

python -m export.client --model demo < source.txt > target.txt
"""

from export.client.rows import ServingError, VersionStatus

__all__ = ["GrpcClient", "RestClient", "ServingError", "VersionStatus"]


def __getattr__(name):
    """Imports a client when it is first asked for: the command starts at once, and each needs only its own packages."""
    if name == "RestClient":
        from export.client.rest import RestClient as Client
    elif name == "GrpcClient":
        from export.client.grpc import GrpcClient as Client
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return Client
