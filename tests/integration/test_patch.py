"""``--patch``: the diff is applied to the user's source and the pair compares equal, from either side."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

KERAS = """import keras
from keras import layers


def block(x, width, i):
    y = layers.LayerNormalization(name=f"n{i}", epsilon=1e-4)(x)
    y = layers.Dense(width, activation="relu", name=f"d{i}")(y)
    return layers.LeakyReLU(name=f"l{i}")(y)


def build():
    keras.utils.set_random_seed(1)
    x = i = keras.Input((9,))
    x = block(x, 12, 0)  # first
    x = block(x, 12, 1)
    x = layers.LayerNormalization(
        epsilon=1e-3,  # why
        name="out",
    )(x)
    x = keras.ops.gelu(x)
    x = layers.ELU(0.5)(x)
    return keras.Model(i, layers.Dense(3, name="head")(x))
"""
TORCH = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.n0, self.d0 = nn.LayerNorm(9), nn.Linear(9, 12)
        self.n1, self.d1 = nn.LayerNorm(12, 1e-5), nn.Linear(12, 12)
        self.out = nn.LayerNorm(12)
        self.head = nn.Linear(12, 3)
        self.act = nn.LeakyReLU(0.1)
        self.elu = nn.ELU(1.0)

    def forward(self, x):
        x = self.act(torch.relu(self.d0(self.n0(x))))
        x = self.act(torch.relu(self.d1(self.n1(x))))
        return self.head(self.elu(nn.functional.gelu(self.out(x))))


def build():
    torch.manual_seed(0)
    return Net().eval()
"""


def ambidex(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ambidex", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, env=dict(os.environ))


@pytest.mark.parametrize(("reference", "candidate"), [("t.py", "k.py"), ("k.py", "t.py")])
def test_the_patched_source_compares_equal(tmp_path: Path, reference: str, candidate: str) -> None:
    (tmp_path / "k.py").write_text(KERAS)
    (tmp_path / "t.py").write_text(TORCH)
    pair = [f"{reference}:build", f"{candidate}:build", "--signature", "float32[4,9]"]
    done = ambidex(tmp_path, "compare", *pair, "--patch", "fix.diff")
    assert done.returncode == 1 and "fix.diff: 5 findings of 5 mended" in done.stdout, done.stdout + done.stderr
    applied = subprocess.run(["patch", "-p1", "-i", "fix.diff"], cwd=tmp_path, capture_output=True, text=True)
    assert applied.returncode == 0, applied.stdout
    again = ambidex(tmp_path, "compare", *pair, "--patch", "again.diff")
    assert again.returncode == 0 and again.stdout.startswith("EQUAL"), again.stdout + again.stderr
    assert (tmp_path / "again.diff").read_text() == ""
