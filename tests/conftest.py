"""What all tests share: the threads and switches of `make test`, and torch before TensorFlow."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

for _name, _value in {
    "OMP_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "KERAS_BACKEND": "tensorflow",
}.items():
    os.environ.setdefault(_name, _value)

settings.register_profile("ambidex", deadline=None, max_examples=60, print_blob=True)
settings.load_profile("ambidex")

_UNIT = Path(__file__).parent / "unit"


def pytest_configure(config: pytest.Config) -> None:
    """Import torch first when anything but the framework-free tests may run: TensorFlow first can crash."""
    asked = [Path(str(arg).partition("::")[0]).resolve() for arg in config.args]
    if not all(path.is_relative_to(_UNIT) for path in asked):
        import torch  # noqa: F401
