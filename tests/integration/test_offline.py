"""A reference recorded where only its framework is installed compares elsewhere as if it were there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

MODELS = """
import os


def torch_model(eps=1e-5, slope=0.01):
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 6, 3, stride=2, padding=0)
            self.norm = nn.BatchNorm2d(6, eps=eps)
            self.act = nn.LeakyReLU(slope)
            self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
            self.ln = nn.LayerNorm(6, eps=eps)
            self.head = nn.Linear(6, 4)

        def forward(self, x):
            x = self.act(self.norm(self.conv(x)))
            x = x.flatten(2).transpose(1, 2)
            y, _ = self.attention(x, x, x, need_weights=False)
            x = self.ln(x + y)
            return self.head(nn.functional.gelu(x).mean(1))

    torch.manual_seed(5)
    net = Net()
    with torch.no_grad():
        net.norm.running_var.uniform_(0.02, 0.5)
        net.norm.running_mean.normal_()
    return net.eval()


def keras_model(eps=1e-5, slope=0.01):
    import keras
    from keras import layers

    keras.utils.set_random_seed(7)
    inputs = keras.Input((9, 11, 3))
    x = layers.Conv2D(6, 3, strides=2, name="conv")(inputs)
    x = layers.BatchNormalization(
        epsilon=eps, moving_variance_initializer=keras.initializers.RandomUniform(0.02, 0.5), name="norm"
    )(x)
    x = layers.LeakyReLU(slope, name="act")(x)
    x = layers.Reshape((20, 6))(x)
    y = layers.MultiHeadAttention(2, 3, name="attention")(x, x)
    x = layers.LayerNormalization(epsilon=eps, name="ln")(layers.Add()([x, y]))
    x = keras.activations.gelu(x)
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(inputs, layers.Dense(4, name="head")(x))


def bad_torch():
    return torch_model(slope=0.2)


def bad_keras():
    return keras_model(slope=0.2)
"""

#: runs the command line where the named packages cannot be imported
WITHOUT = """
import sys

class Without:
    def __init__(self, inner):
        self.inner = inner

    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] in {blocked!r} else self.inner.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.inner, name)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
from ambidex.cli import main
sys.exit(main({arguments!r}))
"""
TORCH, KERAS = ("torch",), ("tensorflow", "keras", "tf_keras", "jax")


def ambidex(folder: Path, *arguments: str, without: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "PYTHONWARNINGS": "ignore"}
    code = WITHOUT.format(blocked=set(without), arguments=list(arguments))
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def findings(file: Path) -> list[tuple[str, str, str, bool]]:
    report = json.loads(file.read_text())
    return sorted(
        (f["code"], f["where"]["reference"] or "", f["where"]["candidate"] or "", f["proven"])
        for f in report["findings"]
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "models.py").write_text(MODELS)
    x = np.random.default_rng(0).normal(size=(2, 3, 9, 11)).astype(np.float32)
    np.savez(tmp_path / "torch.npz", x)
    np.savez(tmp_path / "keras.npz", x.transpose(0, 2, 3, 1))
    return tmp_path


@pytest.mark.parametrize(
    ("reference", "candidate", "clean", "inputs", "own", "other"),
    [
        ("torch_model", "bad_keras", "keras_model", "torch.npz", TORCH, KERAS),
        ("keras_model", "bad_torch", "torch_model", "keras.npz", KERAS, TORCH),
    ],
    ids=["torch recorded", "keras recorded"],
)
def test_offline_finds_what_live_finds(
    folder: Path, reference: str, candidate: str, clean: str, inputs: str, own: tuple[str, ...], other: tuple[str, ...]
) -> None:
    done = ambidex(folder, "record", f"models.py:{reference}", "--inputs", inputs, "--out", "recorded", without=other)
    assert done.returncode == 0, done.stderr

    done = ambidex(folder, "compare", "recorded", f"models.py:{candidate}", "--json", "offline.json", without=own)
    assert done.returncode == 1, done.stderr + done.stdout
    offline = findings(folder / "offline.json")
    assert any("act" in f[2] and f[3] for f in offline), offline

    done = ambidex(
        folder, "compare", f"models.py:{reference}", f"models.py:{candidate}", "--inputs", inputs, "--json", "live.json"
    )
    assert done.returncode == 1, done.stderr
    assert offline == findings(folder / "live.json")

    report = json.loads((folder / "offline.json").read_text())
    assert report["whole_model"]["after_fixes"] < 1e-4 < report["whole_model"]["max_abs"]

    done = ambidex(folder, "compare", "recorded", f"models.py:{clean}", "--json", "clean.json", without=own)
    assert done.returncode == 0, done.stdout
    assert findings(folder / "clean.json") == []


def test_the_blocked_framework_is_really_missing(folder: Path) -> None:
    """Otherwise the test above would prove nothing."""
    done = ambidex(
        folder, "record", "models.py:torch_model", "--inputs", "torch.npz", "--out", "recorded", without=TORCH
    )
    assert done.returncode == 2
    assert "torch" in done.stderr and not (folder / "recorded").exists()
