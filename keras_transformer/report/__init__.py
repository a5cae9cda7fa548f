"""An `Evaluation` to read: plain text for a terminal, one self-contained HTML page for everywhere else."""

from keras_transformer.report.page import html
from keras_transformer.report.pictures import illustrated, pictures
from keras_transformer.report.plain import text

__all__ = ["html", "illustrated", "pictures", "text"]
