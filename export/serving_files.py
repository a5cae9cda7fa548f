"""Writes the files that a server is started with, beside the versions: TF Serving looks only at integer names there.

    served/demo/serving/models.config        the versions that are served, and which of them is `stable`
    served/demo/serving/batching.config      how requests are joined
    served/demo/serving/monitoring.config    metrics for Prometheus
    served/demo/serving/compose.yaml         the server as a container
    served/demo/serving/kubernetes.yaml      the same in a cluster

Every export renews models.config and keeps what else was changed in it. The others are written once. A request that
names no version gets the newest one; `stable` moves only by hand, or where its version was removed:

    there is         stable        served
    1                1             1
    1 2 3 4          1             1 3 4
    1 2 3 4 5        4 by hand     4 5

The newest version has no label, because a server that is told to load a version and to move a label to it at the same
time refuses both (`ServerCore::UpdateModelVersionLabelMap`) and would never load it.
"""

import contextlib
import fcntl
import os
import re
import string
from pathlib import Path

from export.versions import MODEL_NAME, ExportError, name_of, versions

TEMPLATES = Path(__file__).with_name("templates")
MODELS = "models.config"
HEADER = """\
# Renewed by every export, which keeps what was changed here, comments excepted. The server looks every 10 seconds.
# To promote a version: give the label `stable` its number. To take it back: the old number, while that is served.
"""


def model_name(to: Path) -> str:
    """`name_of(to)`, which must be one that a server can have."""
    name = name_of(to)
    if not MODEL_NAME.fullmatch(name):
        raise ValueError(
            "The folder of the versions names the model; it must consist of letters, digits, '.', '_' and '-' "
            f"and begin with a letter or a digit. Received: {name!r} ({to})."
        )
    return name


def check(to: Path):
    """Raises an error if `write(to)` would fail: better before an export than after it."""
    if file := next((path for path in (to, *to.parents) if os.path.lexists(path) and not path.is_dir()), None):
        raise ValueError(f"Versions are exported to a folder. Received: {to}, where {file} is no folder.")
    if (to / "checkpoints").is_dir() or (to / "model.keras").exists():
        raise ValueError(
            f"Versions are exported to a folder of their own, which a server gets as a whole. Received that of a run "
            f"or a model: {to}. Take {to / 'export'}, for example."
        )
    if (to / "saved_model.pb").exists():
        raise ValueError(f"Versions are exported to their folder. Received one of them: {to}")
    path, name = to / "serving" / MODELS, model_name(to)
    models = [model.name for model in _read(path).model_config_list.config]
    if models and name not in models:
        raise ValueError(
            f"{path} must have the model that its folder names, {name}. Received: {', '.join(models)}. If the folder "
            f"was renamed, give it back its old name or remove {path.parent}, which the export then makes anew."
        )


def write(to: Path):
    """Renews models.config for the versions in `to` and writes the other files that are not there.

    Its error says that the version, which has been published before, is there all the same.
    """
    folder = to / "serving"
    try:
        _write(folder, model_name(to), to)
    except (OSError, ValueError) as error:
        raise ExportError(
            f"The version is published in {to}, but the configuration of the server in {folder} could not be "
            f"renewed, so a server that reads it there does not load the version. The next export renews it. "
            f"Received: {error}"
        ) from error


def complete(to: Path, version: Path):
    """Does what is left to do where an export ended between publishing a version and the end of `write`."""
    path = to / "serving" / MODELS
    if not path.exists() or path.stat().st_mtime < version.stat().st_mtime:
        check(to)
        write(to)


def labels(to: Path) -> dict[str, int]:
    """The labels in models.config, and the versions that have them; none where there is no such file.

    ValueError where it has only other models, as in a folder that was renamed.
    """
    path = to / "serving" / MODELS
    if not path.exists():
        return {}
    name = name_of(to)
    models = {model.name: model.version_labels for model in _read(path).model_config_list.config}
    if models and name not in models:
        raise ValueError(f"{path} must have the model {name}. Received: {', '.join(models)}. No label is known.")
    return dict(models.get(name, {}))


def is_served(version: Path) -> bool:
    """Whether models.config names a version; where another policy was chosen by hand, that decides."""
    to = version.parent
    for model in _read(to / "serving" / MODELS).model_config_list.config:
        if model.name == name_of(to):
            policy = model.model_version_policy
            return not policy.HasField("specific") or int(version.name) in policy.specific.versions
    return False


def _write(folder, name, to):
    from keras_transformer.files import write_text

    folder.mkdir(exist_ok=True)
    with _locked(folder):
        for template in sorted(TEMPLATES.iterdir()):
            if not (folder / template.name).exists():
                write_text(folder / template.name, _filled(template, name))
        # Last, see `complete`. Which versions there are is asked here, where no other export writes what it has seen.
        write_text(folder / MODELS, _renewed(folder / MODELS, name, versions(to)))


@contextlib.contextmanager
def _locked(folder):
    """Locks the folder: two exports that end at the same time would each write only what it has seen."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _filled(template, name):
    words = string.Template(template.read_text(encoding="utf-8"))
    return words.substitute(model=name, resource=_resource(name))


def _resource(name):
    """A name as Kubernetes wants it: at most 63 of a-z, 0-9 and "-", a letter first, no "-" at the end."""
    return "translator-" + re.sub(r"[^a-z0-9]+", "-", name.lower())[:52].strip("-")


# --- models.config


def _read(path):
    """The ModelServerConfig in a file; an empty one where there is no file."""
    from google.protobuf import text_format
    from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

    try:
        return text_format.Parse(path.read_text(encoding="utf-8"), ModelServerConfig())
    except FileNotFoundError:
        return ModelServerConfig()
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} must be a ModelServerConfig in text form. Received: {error}.") from error


def _renewed(path, name, there):
    from google.protobuf import text_format

    server = _read(path)
    models = server.model_config_list.config
    model = next((model for model in models if model.name == name), None) or models.add(name=name)
    model.base_path = model.base_path or f"/models/{name}"
    model.model_platform = model.model_platform or "tensorflow"
    _renew(model, there)
    return HEADER + text_format.MessageToString(server)


def _renew(model, there):
    """Renews the versions and labels of one model; `there` are the versions that exist."""
    for label in [label for label, version in model.version_labels.items() if version not in there]:
        del model.version_labels[label]
    policy = model.model_version_policy
    if "stable" not in model.version_labels:
        # A server refuses a label for a version that it has yet to load, and with it all versions.
        served = there if not policy.specific.versions else [each for each in there if each in policy.specific.versions]
        if served:  # else the next export can give it
            model.version_labels["stable"] = served[-2:][0]
    if policy.WhichOneof("policy_choice") in (None, "specific"):  # another one was chosen by hand
        policy.specific.versions[:] = sorted({*there[-2:], *model.version_labels.values()})
