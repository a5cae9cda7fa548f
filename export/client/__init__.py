"""Clients of TF Serving, and of `python -m export.serve`.

with RestClient("http://127.0.0.1:8501", "demo") as client:    # needs the package requests
    client.translate(["the dog sees the cat ."])
    client.predict({"text": [...]}, "translate_nbest")         # {"translations": [[...]], "scores": [[...]]}

GrpcClient("127.0.0.1:8500", "demo")                           # the same; needs tensorflow-serving-api

python -m export.client --model demo < source.txt > target.txt
"""

from export.client.grpc import GrpcClient
from export.client.rest import RestClient
from export.client.rows import ServingError, VersionStatus

__all__ = ["GrpcClient", "RestClient", "ServingError", "VersionStatus"]
