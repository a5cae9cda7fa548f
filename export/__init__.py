"""From a finished run to a SavedModel that TF Serving loads: strings in, strings out.

python -m export --workdir runs/demo --to served/demo

export_saved_model("runs/demo", "served/demo")  # -> served/demo/1
"""

from export.saved_model import ExportError, export_saved_model
from keras_transformer_cli.importing import use_onednn

use_onednn()

__all__ = ["ExportError", "export_saved_model"]
