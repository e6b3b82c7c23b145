"""The command line on real models of both frameworks, each command in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

TORCH = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 8)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 4)

    def forward(self, ids):
        return self.head(torch.relu(self.norm(self.embed(ids))))

def make():
    print("a print of the factory")
    torch.manual_seed(0)
    return Net()

def broken():
    net = Net()
    with torch.no_grad():
        net.head.weight[0, 0] = float("nan")
    return net

def needs(size):
    return Net()

def raises():
    return Net().nothing
"""
KERAS = """
import keras
from keras import layers

def build(epsilon):
    ids = keras.Input((None,), dtype="int64")
    x = layers.Embedding(50, 8)(ids)
    x = layers.LayerNormalization(epsilon=epsilon)(x)
    x = layers.ReLU()(x)
    return keras.Model(ids, layers.Dense(4)(x))

def same():
    return build(1e-5)

def other():
    return build(1e-3)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models")
    (path / "net_torch.py").write_text(TORCH)
    (path / "net_keras.py").write_text(KERAS)
    np.save(path / "ids.npy", np.arange(35).reshape(5, 7))
    return path


def ambidex(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ambidex", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def test_a_faulty_pair_names_the_line_and_exits_1(folder: Path) -> None:
    done = ambidex(
        folder, "compare", "net_torch.py:make", "net_keras.py:other", "--signature", "int64[None,None]<50",
        "--json", "r.json", "--html", "r.html",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert len(done.stdout.splitlines()) <= 40 and done.stderr == "a print of the factory\n"
    (finding,) = json.loads((folder / "r.json").read_text())["findings"]
    assert finding["code"] == "AMB101" and finding["proven"] is True
    assert Path(finding["where"]["file"]).name == "net_keras.py"
    assert "LayerNormalization" in KERAS.splitlines()[finding["where"]["line"] - 1]
    assert "</html>" in (folder / "r.html").read_text()


def test_a_clean_pair_is_short_and_exits_0(folder: Path) -> None:
    done = ambidex(folder, "compare", "net_keras.py:same", "net_torch.py:make", "--inputs", "ids.npy")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) <= 10


def test_a_recorded_reference_compares_offline(folder: Path) -> None:
    done = ambidex(folder, "record", "net_torch.py:make", "--inputs", "ids.npy", "--out", "rec", "--json", "-")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["framework"] == "torch"
    done = ambidex(folder, "compare", "rec", "net_keras.py:other", "--json", "-")
    report = json.loads(done.stdout)
    assert done.returncode == 1 and [f["code"] for f in report["findings"]] == ["AMB101"]


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["net_torch.py:needs", "net_keras.py:same"], "'net_torch.py:needs' needs the argument 'size'"),
        (
            ["net_torch.py:raises", "net_keras.py:same"],
            "'net_torch.py:raises' raised: AttributeError in net_torch.py:30",
        ),
        (["net_torch.py:make", "net_kears.py:same"], "Did you mean 'net_keras.py'?"),
        (["net_torch.py:broken", "net_keras.py:same", "--inputs", "ids.npy"], "head.weight"),
        (["net_torch.py:make", "net_keras.py:same", "--signature", "int64[None]<50, int64[2]<50"], ""),
        (["rec2", "net_keras.py:same"], "trace.json"),
    ],
)
def test_failures_are_one_sentence_and_exit_2(folder: Path, arguments: list[str], sentence: str) -> None:
    (folder / "rec2").mkdir(exist_ok=True)
    (folder / "rec2" / "trace.json").write_text("{")
    before = set(folder.iterdir())
    done = ambidex(folder, "compare", *arguments)
    said = [line for line in done.stderr.splitlines() if line.startswith("ambidex: ")]
    assert done.returncode == 2 and done.stdout == "" and "Traceback" not in done.stderr
    assert len(said) == 1 and sentence in said[0] and "this is a bug" not in said[0]
    assert {p for p in folder.iterdir() if p.name != "__pycache__"} <= before
