"""``--shrink``: a layer that no cause explains becomes a pair of its own that still differs."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.numpy import load_file
from tests.integration.test_patch import ambidex

TORCH = """import torch
from torch import nn


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.linspace(0.5, 2, 8))

    def forward(self, x):
        return torch.sin(x * self.w) + 0.3 * torch.cos(3 * x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.odd, self.b = nn.Linear(6, 8), Odd(), nn.Linear(8, 3)

    def forward(self, x):
        return self.b(self.odd(self.a(x)))


def build():
    return Net().eval()
"""
KERAS = """import keras
from keras import layers, ops


class Odd(layers.Layer):
    def build(self, shape):
        self.w = self.add_weight(name="w", shape=(shape[-1],))

    def call(self, x):
        return ops.sin(x * self.w) * ops.exp(-0.1 * ops.abs(x)) + 0.25 * ops.cos(3.1 * x)


def build():
    i = keras.Input((6,))
    x = layers.Dense(8, name="a")(i)
    return keras.Model(i, layers.Dense(3, name="b")(Odd(name="odd")(x)))
"""


@pytest.mark.parametrize(("reference", "candidate"), [("t.py:build", "k.py:build"), ("k.py:build", "t.py:build")])
def test_the_small_pair_runs_by_itself_and_still_differs(tmp_path: Path, reference: str, candidate: str) -> None:
    (tmp_path / "t.py").write_text(TORCH)
    (tmp_path / "k.py").write_text(KERAS)
    done = ambidex(tmp_path, "compare", reference, candidate, "--signature", "float32[7,6]", "--shrink", "small")
    assert done.returncode == 1 and "shrunk: cd small/odd" in done.stdout, done.stdout + done.stderr
    folder = tmp_path / "small" / "odd"
    arrays = load_file(folder / "arrays.safetensors")
    assert arrays["reference/0"].shape == (1, 8)
    again = ambidex(folder, "compare", "pair.py:reference", "pair.py:candidate", "--inputs", "pair.py:inputs")
    assert again.returncode == 1 and "AMB100" in again.stdout, again.stdout + again.stderr


def test_nothing_unexplained_nothing_written(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(TORCH)
    done = ambidex(tmp_path, "compare", "t.py:build", "t.py:build", "--signature", "float32[7,6]", "--shrink", "small")
    assert done.returncode == 0 and "nothing to shrink" in done.stdout and not (tmp_path / "small").exists()
