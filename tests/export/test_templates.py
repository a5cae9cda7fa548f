"""What the templates have a server run does run, and they say the same of one server."""

import http.server
import re
import subprocess
import threading
from pathlib import Path

import pytest
import yaml
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format, wrappers_pb2

from export import serving_files

# Protos of TensorFlow Serving that tensorflow-serving-api leaves out: session_bundle_config, monitoring_config.
SCHEMA = """
name: "left_out.proto" package: "tensorflow.serving" syntax: "proto3" dependency: "google/protobuf/wrappers.proto"
message_type {
  name: "BatchingParameters"
  field { name: "max_batch_size" number: 1 type: TYPE_MESSAGE type_name: ".google.protobuf.Int64Value" }
  field { name: "batch_timeout_micros" number: 2 type: TYPE_MESSAGE type_name: ".google.protobuf.Int64Value" }
  field { name: "max_enqueued_batches" number: 3 type: TYPE_MESSAGE type_name: ".google.protobuf.Int64Value" }
  field { name: "num_batch_threads" number: 4 type: TYPE_MESSAGE type_name: ".google.protobuf.Int64Value" }
  field { name: "thread_pool_name" number: 5 type: TYPE_MESSAGE type_name: ".google.protobuf.StringValue" }
  field { name: "allowed_batch_sizes" number: 6 type: TYPE_INT64 label: LABEL_REPEATED }
  field { name: "pad_variable_length_inputs" number: 7 type: TYPE_BOOL }
  field { name: "enable_large_batch_splitting" number: 8 type: TYPE_MESSAGE type_name: ".google.protobuf.BoolValue" }
}
message_type {
  name: "PrometheusConfig"
  field { name: "enable" number: 1 type: TYPE_BOOL }
  field { name: "path" number: 2 type: TYPE_STRING }
}
message_type {
  name: "MonitoringConfig"
  field { name: "prometheus_config" number: 1 type: TYPE_MESSAGE type_name: ".tensorflow.serving.PrometheusConfig" }
}
"""
AVAILABLE = '{"model_version_status": [{"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK"}}]}'


def export(to):
    """What the first export leaves, in the eyes of `serving_files`."""
    (to / "1").mkdir(parents=True)
    serving_files.write(to)
    return to / "serving"


def parsed(path, name):
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(text_format.Parse(SCHEMA, descriptor_pb2.FileDescriptorProto()))
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tensorflow.serving.{name}"))
    return text_format.Parse(path.read_text(encoding="utf-8"), message())


def test_the_memory_that_is_proposed_is_that_of_the_limits(tmp_path):
    limits = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    batch = float(re.search(r"= ([\d.]+) GB\s+for 32 rows of a base model", limits)[1])
    folder = export(tmp_path / "demo")
    for name, limit in (("compose.yaml", r"mem_limit: (\d+)g"), ("kubernetes.yaml", r"limits: .*memory: (\d+)Gi")):
        text = (folder / name).read_text(encoding="utf-8")
        said = float(re.search(r"about ([\d.]+) ?[gG]B? each for a base model", text)[1])
        assert batch <= said < batch + 0.1
        assert 4 * batch + 4 * 0.25 + 1 < int(re.search(limit, text)[1])  # batches, versions, the server


def test_nothing_that_aborts_a_server_is_in_the_batching(tmp_path):
    batching = parsed(export(tmp_path / "demo") / "batching.config", "BatchingParameters")
    assert not batching.allowed_batch_sizes and batching.max_batch_size.value == 32
    assert not batching.pad_variable_length_inputs and not batching.HasField("enable_large_batch_splitting")
    assert batching.batch_timeout_micros.value == 5000
    assert batching.max_enqueued_batches.value * batching.max_batch_size.value == 2048  # rows that may wait
    assert batching.num_batch_threads.value == 4


def test_metrics_are_where_prometheus_is_told_to_look(tmp_path):
    folder = export(tmp_path / "demo")
    monitoring = parsed(folder / "monitoring.config", "MonitoringConfig")
    deployment, _ = manifests(folder)
    annotations = deployment["spec"]["template"]["metadata"]["annotations"]
    assert monitoring.prometheus_config.enable
    assert monitoring.prometheus_config.path == annotations["prometheus.io/path"]


# --- compose.yaml and kubernetes.yaml


def compose(folder):
    (server,) = yaml.safe_load((folder / "compose.yaml").read_text(encoding="utf-8"))["services"].values()
    return server


def manifests(folder):
    return list(yaml.safe_load_all((folder / "kubernetes.yaml").read_text(encoding="utf-8")))


def test_both_start_the_same_server_with_the_files_that_are_there(tmp_path):
    folder = export(tmp_path / "demo")
    deployment, _ = manifests(folder)
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    server = compose(folder)
    assert container["args"] == server["command"] and container["image"] == server["image"]
    assert container["command"] == server["entrypoint"]
    assert server["environment"] == {"TF_ENABLE_ONEDNN_OPTS": "1"}
    assert container["env"] == [{"name": name, "value": value} for name, value in server["environment"].items()]
    flags = dict(flag.removeprefix("--").split("=") for flag in server["command"])
    files = [path for path in flags.values() if path.startswith("/models/demo/")]
    assert len(files) == 3
    assert all((tmp_path / path.removeprefix("/models/")).is_file() for path in files)
    assert all(volume["target"] == "/models/demo" and volume["read_only"] for volume in server["volumes"])


def test_a_server_that_is_to_end_is_given_the_time_of_a_request(tmp_path):
    folder = export(tmp_path / "demo")
    deployment, _ = manifests(folder)
    pod, server = deployment["spec"]["template"]["spec"], compose(folder)
    seconds = next(int(flag.split("=")[1]) for flag in server["command"] if "timeout_in_ms" in flag) / 1000
    _, sleep = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert seconds < int(sleep) < pod["terminationGracePeriodSeconds"]
    assert seconds < int(server["stop_grace_period"].removesuffix("s"))


def test_a_container_may_do_little_and_is_reached_from_this_machine_alone(tmp_path):
    server = compose(export(tmp_path / "demo"))
    assert server["init"] and server["read_only"] and server["cap_drop"] == ["ALL"]
    assert server["security_opt"] == ["no-new-privileges:true"] and not server["user"].startswith("0")
    assert all(port.startswith("127.0.0.1:") for port in server["ports"])


def test_names_in_a_cluster_are_such_as_it_allows(tmp_path):
    for name in ("demo", "My_Model.v2", "9-lives", "x" * 200, "a" * 51 + "--b", "A"):
        deployment, service = manifests(export(tmp_path / name))
        resource = deployment["metadata"]["name"]
        assert re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", resource)
        assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"] == {"app": resource}
        path = deployment["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]["httpGet"]["path"]
        assert path == f"/v1/models/{name}"


# --- the health check


class Status(http.server.BaseHTTPRequestHandler):
    """GET /v1/models/demo as TensorFlow Serving answers it."""

    def do_GET(self):
        found = self.path == "/v1/models/demo"
        body = (self.server.body if found else '{"error": "Could not find any versions of model"}').encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Status) as server:
        server.body = AVAILABLE
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def healthy(folder, port):
    command, shell, option, script = compose(folder)["healthcheck"]["test"]
    assert (command, shell, option) == ("CMD", "bash", "-c")
    assert subprocess.run(["bash", "-n", "-c", script]).returncode == 0
    script = script.replace("/8501", f"/{port}")
    return subprocess.run(["bash", "-c", script], capture_output=True, timeout=30).returncode == 0


def test_the_health_check_finds_a_model_that_is_available(tmp_path, server):
    assert healthy(export(tmp_path / "demo"), server.server_port)


@pytest.mark.parametrize("body", [AVAILABLE.replace("AVAILABLE", "LOADING"), AVAILABLE.replace("AVAILABLE", "END"), ""])
def test_the_health_check_fails_while_no_version_is_available(tmp_path, server, body):
    server.body = body
    assert not healthy(export(tmp_path / "demo"), server.server_port)


def test_the_health_check_fails_without_the_model_or_the_server(tmp_path, server):
    assert not healthy(export(tmp_path / "another"), server.server_port)
    server.shutdown()
    server.server_close()
    assert not healthy(export(tmp_path / "demo"), server.server_port)


def test_a_container_has_as_long_to_start_as_a_pod(tmp_path):
    folder = export(tmp_path / "demo")
    probe = manifests(folder)[0]["spec"]["template"]["spec"]["containers"][0]["startupProbe"]
    assert compose(folder)["healthcheck"]["start_period"] == f"{probe['periodSeconds'] * probe['failureThreshold']}s"
