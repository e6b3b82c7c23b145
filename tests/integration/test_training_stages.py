"""``--training``: loss, gradients, updates and so on of both sides from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import ambidex

PAIR = """import keras, numpy as np, torch
from keras import layers
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 16), nn.Linear(16, 4)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


def reference():
    torch.manual_seed(0)
    return Net().eval()


def candidate():
    i = keras.Input((6,))
    return keras.Model(i, layers.Dense(4, name="b")(layers.Dense(16, activation="relu", name="a")(i)))


def inputs():
    return np.random.default_rng(0).standard_normal((32, 6)).astype("float32")


def targets(x):
    return np.random.default_rng(1).integers(0, 4, len(x))


def right():
    return {"reference": {"loss": nn.CrossEntropyLoss(), "optimizer": lambda p: torch.optim.SGD(p, lr=0.1)},
            "candidate": {"loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                          "optimizer": keras.optimizers.SGD(0.1)}}


def wrong():
    w = torch.tensor([1.0, 2.0, 0.5, 3.0])
    return {
        "reference": {
            "loss": nn.CrossEntropyLoss(weight=w),
            "optimizer": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        },
        "candidate": {
            "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            "class_weight": {0: 1.0, 1: 2.0, 2: 0.5, 3: 3.0},
            "optimizer": keras.optimizers.SGD(0.01, momentum=0.9),
        },
    }
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "pair.py").write_text(PAIR)
    command = [sys.executable, "-m", "ambidex", "compare", "pair.py:reference", "pair.py:candidate", "--inputs",
               "pair.py:inputs", *arguments]  # fmt: skip
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def test_a_right_recipe_is_equal_in_every_stage(tmp_path: Path) -> None:
    done = run(tmp_path, "--training", "pair.py:right", "--json", "r.json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "stages  data same, weights same, forward same, loss same, gradient same" in done.stdout
    assert len(done.stdout.splitlines()) <= 10
    stages = {s["stage"]: s["status"] for s in json.loads((tmp_path / "r.json").read_text())["stages"]}
    assert stages == {"data": "same", "weights": "same", "forward": "same", "loss": "same", "gradient": "same",
                      "clip": "not_defined", "update": "same", "schedule": "not_defined", "metric": "not_defined",
                      "steps": "same"}  # fmt: skip


def test_a_wrong_recipe_is_told_with_its_lines_and_mended_by_the_patch(tmp_path: Path) -> None:
    done = run(tmp_path, "--training", "pair.py:wrong", "--json", "r.json", "--html", "r.html", "--patch", "fix.diff")
    assert done.returncode == 1, done.stdout + done.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    found = {f["code"]: f for f in report["findings"]}
    assert set(found) == {"AMB320", "AMB330"} and all(f["proven"] for f in found.values())
    assert (
        report["first_stage"] == "loss" and found["AMB320"]["stage"] == "loss" and found["AMB330"]["stage"] == "update"
    )
    lines = PAIR.splitlines()
    assert "SparseCategoricalCrossentropy" in lines[found["AMB320"]["where"]["line"] - 1]
    assert "keras.optimizers.SGD(0.01" in lines[found["AMB330"]["where"]["line"] - 1]
    assert "loss DIFFERENT (first)" in done.stdout and "training differs" in done.stdout
    page = (tmp_path / "r.html").read_text()
    assert 'id="stages"' in page and "<polyline" in page
    subprocess.run(["patch", "-p1", "-i", "fix.diff"], cwd=tmp_path, check=True, capture_output=True)
    mended = (tmp_path / "pair.py").read_text()
    assert "keras.optimizers.SGD(0.1, momentum=0.9)" in mended and "mean_with_sample_weight" in mended


def test_only_the_stages_that_are_asked_for(tmp_path: Path) -> None:
    done = run(tmp_path, "--training", "pair.py:wrong", "--stage", "update", "--json", "r.json")
    report = json.loads((tmp_path / "r.json").read_text())
    assert done.returncode == 1 and [f["code"] for f in report["findings"]] == ["AMB330"]
    assert [s["stage"] for s in report["stages"]] == ["data", "weights", "forward", "update"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--training", "pair.py:nothing"], "nothing"),
        (["--training", "nowhere.py:right"], "nowhere.py"),
        (["--training", "pair.py:inputs"], "it gave ndarray"),
        (["--training", "pair.py:right", "--stage", "los"], "los"),
        (["--targets", "t.npy"], "nothing to train with"),
    ],
)
def test_what_cannot_be_followed_is_one_sentence(tmp_path: Path, arguments: list[str], words: str) -> None:
    np.save(tmp_path / "t.npy", np.zeros(32, np.int64))
    done = run(tmp_path, *arguments)
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr, done.stderr


def compiled(rate: float) -> keras.Model:
    keras.utils.set_random_seed(1)
    i = keras.Input((6,))
    model = keras.Model(i, keras.layers.Dense(3)(i))
    model.compile(keras.optimizers.SGD(rate), "mse")
    return model


def test_two_compiled_models_say_themselves_what_they_are_trained_with() -> None:
    x = np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)
    assert ambidex.compare(compiled(0.1), compiled(0.1), inputs=[x]).verdict == "equal"
    report = ambidex.compare(compiled(0.1), compiled(0.2), inputs=[x])
    assert [f.code for f in report.findings] == ["AMB330"] and report.first_stage == "update"
    stages: dict[str, Any] = {s.stage: s for s in report.stages}
    assert stages["loss"].status == "not_judged" and "targets" in stages["loss"].note


def test_batches_of_both_sides_are_followed() -> None:
    rng = np.random.default_rng(0)
    batches = [(rng.standard_normal((8, 6)).astype(np.float32), rng.standard_normal((8, 3)).astype(np.float32))
               for _ in range(3)]  # fmt: skip
    given = {"reference": {}, "candidate": {}, "batches": batches}
    report = ambidex.compare(compiled(0.1), compiled(0.1), inputs=[batches[0][0]], training=given)
    steps = next(s for s in report.stages if s.stage == "steps")
    assert report.verdict == "equal" and steps.status == "same" and len(steps.curves["reference"]) == 3


def test_an_unused_weight_is_not_decayed_on_either_side() -> None:
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(6, 3), nn.Linear(6, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.unused(x)
            return self.used(x)

    class KerasNet(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = keras.layers.Dense(3, name="used"), keras.layers.Dense(2, name="unused")

        def call(self, x: Any) -> Any:
            self.unused(x)
            return self.used(x)

    x = np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)
    candidate = KerasNet()
    candidate(x)
    given = {
        "reference": {
            "loss": nn.MSELoss(),
            "optimizer": lambda p: torch.optim.AdamW(p, 0.01, eps=1e-30, weight_decay=0.1),
        },
        "candidate": {"loss": "mse", "optimizer": keras.optimizers.AdamW(0.01, epsilon=1e-30, weight_decay=0.1)},
    }
    report = ambidex.compare(Net(), candidate, inputs=[x], training=given, targets=x[:, :3])
    assert report.verdict == "equal", report.findings


def test_a_gradient_that_is_not_finite_on_one_side_is_told() -> None:
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self, guarded: bool) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.a, self.guarded = nn.Linear(6, 3, bias=False), guarded

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.a(x) ** 2  # zero for a row of zeros: the root has no slope there
            if self.guarded:
                return torch.where(y > 0, torch.where(y > 0, y, torch.ones_like(y)).sqrt(), torch.zeros_like(y))
            return y.sqrt()

    x = np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)
    x[0] = 0.0
    given = {side: {"loss": nn.MSELoss()} for side in ("reference", "candidate")}
    for guarded in (False, True):
        report = ambidex.compare(Net(guarded), Net(not guarded), inputs=[x], training=given, targets=x[:, :3])
        assert [f.code for f in report.findings] == ["AMB375"], report.findings
        assert (
            ambidex.compare(Net(guarded), Net(guarded), inputs=[x], training=given, targets=x[:, :3]).verdict == "equal"
        )


def test_a_stage_that_cannot_run_leaves_it_undecided() -> None:
    def broken(y: Any, out: Any) -> Any:
        raise ValueError("no such class")

    x = np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)
    given = {"reference": {"loss": "mse"}, "candidate": {"loss": broken}}
    report = ambidex.compare(compiled(0.1), compiled(0.1), inputs=[x], training=given, targets=x[:, :3])
    assert report.verdict == "undecided" and report.exit_code == 2
    loss = next(s for s in report.stages if s.stage == "loss")
    assert loss.status == "could_not_run" and "no such class" in loss.note
