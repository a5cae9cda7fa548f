"""Installs the packages keras_transformer, keras_transformer_cli and export, and the console command."""

import re
from pathlib import Path

from setuptools import find_packages, setup

extras = {
    "tfds": ["tensorflow-datasets>=4.9.7", "importlib_resources"],  # the first imports the second and does not name it
    "plots": ["matplotlib>=3.8", "tensorboard>=2.19"],
    "server": ["starlette>=0.40", "uvicorn>=0.30"],
}
tests = ["pytest>=8", "pytest-xdist>=3.5", "hypothesis>=6.100", "pyyaml>=6", "sacremoses>=0.1", "ruff>=0.13"]

package = Path("keras_transformer", "__init__.py")  # which setup must not import: it needs what is to be installed

setup(
    name="keras-transformer",
    version=re.search(r'^__version__ = "(.+)"', package.read_text(encoding="utf-8"), re.MULTILINE)[1],
    description="'Attention Is All You Need' for Keras 3 on TensorFlow, from text files to a translation service",
    long_description=Path("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.11,<3.14",
    packages=find_packages(include=["keras_transformer*", "export*"]),
    package_data={"export": ["templates/*"]},
    install_requires=[
        "tensorflow==2.21.*",
        "tensorflow-text==2.21.*",  # its minor version must be TensorFlow's
        "keras>=3.15,<3.16",
        "sentencepiece>=0.2",
        "numpy>=1.26",
        "sacrebleu>=2.4",
        "tensorflow-serving-api==2.21.*",  # the protos of what is exported with the model, and of the gRPC client
        "requests>=2.31",
        "urllib3>=2",  # of requests; its 1.26 has no jitter between attempts
    ],
    extras_require={**extras, "dev": [*tests, *(name for names in extras.values() for name in names)]},
    entry_points={"console_scripts": ["keras-transformer = keras_transformer_cli:main"]},
)
