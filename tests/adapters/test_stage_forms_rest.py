"""Canonical clippings, schedules and metrics against torch's, Keras' and scikit-learn's formulas, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as sched

import keras  # isort: skip  (torch first)
import tensorflow as tf  # isort: skip

from ambidex.engine.stages import clips, metrics, schedules

RNG = np.random.default_rng(7)
SHAPES = {"a": (4, 3), "b": (5,), "c": (1,)}


def gradients(scale: float) -> dict[str, np.ndarray]:
    return {n: scale * RNG.standard_normal(s) for n, s in SHAPES.items()}


def by_torch(clip: Callable[[list[nn.Parameter]], Any], given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    made = {n: nn.Parameter(torch.zeros(g.shape, dtype=torch.float64)) for n, g in given.items()}
    for n, p in made.items():
        p.grad = torch.tensor(given[n])
    clip(list(made.values()))
    return {n: p.grad.numpy() for n, p in made.items() if p.grad is not None}


def by_keras(option: dict[str, float], given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What an optimizer with this option takes off a weight of zeros at a rate of 1."""
    variables = {n: keras.Variable(np.zeros(g.shape), dtype="float64") for n, g in given.items()}
    keras.optimizers.SGD(1.0, **option).apply([tf.constant(g) for g in given.values()], list(variables.values()))
    return {n: -v.numpy() for n, v in variables.items()}


def each(p: list[nn.Parameter]) -> None:
    for one in p:
        nn.utils.clip_grad_norm_([one], 0.5)


Clip = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]
CLIPS: dict[str, tuple[str, dict[str, Any], Clip]] = {
    "norm": ("ClipNorm", {"max_norm": 0.5, "epsilon": 1e-6},
             lambda g: by_torch(lambda p: nn.utils.clip_grad_norm_(p, 0.5), g)),
    "tiny norm": ("ClipNorm", {"max_norm": 1e-6, "epsilon": 1e-6},
                  lambda g: by_torch(lambda p: nn.utils.clip_grad_norm_(p, 1e-6), g)),
    "norm of each": ("ClipNorm", {"max_norm": 0.5, "epsilon": 1e-6, "scope": "weight"}, lambda g: by_torch(each, g)),
    "value": ("ClipValue", {"value": 0.3}, lambda g: by_torch(lambda p: nn.utils.clip_grad_value_(p, 0.3), g)),
    "k global_clipnorm": ("ClipNorm", {"max_norm": 0.5}, lambda g: by_keras({"global_clipnorm": 0.5}, g)),
    "k clipnorm": ("ClipNorm", {"max_norm": 0.5, "scope": "weight"}, lambda g: by_keras({"clipnorm": 0.5}, g)),
    "k clipvalue": ("ClipValue", {"value": 0.25}, lambda g: by_keras({"clipvalue": 0.25}, g)),
}  # fmt: skip


@pytest.mark.parametrize("name", CLIPS)
def test_clippings(name: str) -> None:
    op, attrs, run = CLIPS[name]
    for scale in (0.0, 1e-5, 0.05, 1.0, 1e4):
        given = gradients(scale)
        got, want = clips.clipped(op, attrs, given), run(given)
        assert got.keys() == want.keys()
        for n in given:
            np.testing.assert_allclose(got[n], want[n], rtol=1e-9, atol=1e-12 * scale)


def test_a_custom_clipping_is_found_in_the_catalogue() -> None:
    given = gradients(10.0)
    want = by_torch(each, given)
    found = [
        form
        for form in clips.catalogue({"max_norm": 0.5})
        if all(np.allclose(g, want[n], rtol=1e-9) for n, g in clips.clipped(*form, given).items())
    ]
    assert found == [("ClipNorm", {"max_norm": 0.5, "scope": "weight", "epsilon": 1e-6})]


# ------------------------------------------------------------------------------------------------------------ schedules
BASE, COUNT = 0.125, 40


def torch_rates(make: Callable[[Any], Any]) -> list[float]:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], BASE)
    scheduler, found = make(optimizer), []
    for _ in range(COUNT):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


S = keras.optimizers.schedules
TORCH: dict[str, tuple[str, dict[str, Any], Callable[[Any], Any]]] = {
    "step": ("Step", {"step_size": 5, "gamma": 0.5}, lambda o: sched.StepLR(o, 5, 0.5)),
    "exponential": ("Step", {"step_size": 1, "gamma": 0.9, "staircase": False}, lambda o: sched.ExponentialLR(o, 0.9)),
    "multi": ("MultiStep", {"boundaries": [5, 10], "factors": [1.0, 0.1, 0.01]},
              lambda o: sched.MultiStepLR(o, [5, 10], 0.1)),
    "constant": ("MultiStep", {"boundaries": [4], "factors": [0.25, 1.0]}, lambda o: sched.ConstantLR(o, 0.25, 4)),
    "linear": ("Linear", {}, sched.LinearLR),
    "cosine": ("Cosine", {"steps": 8, "alpha": 0.08, "periodic": True},
               lambda o: sched.CosineAnnealingLR(o, 8, eta_min=0.01)),
    "restarts": ("CosineRestarts", {"steps": 4, "t_mul": 2, "alpha": 0.08},
                 lambda o: sched.CosineAnnealingWarmRestarts(o, 4, 2, 0.01)),
    "equal restarts": ("CosineRestarts", {"steps": 5}, lambda o: sched.CosineAnnealingWarmRestarts(o, 5)),
    "polynomial": ("Polynomial", {"steps": 10, "power": 2.0}, lambda o: sched.PolynomialLR(o, 10, 2.0)),
    "inverse": ("InverseTime", {"steps": 5, "rate": 0.5}, lambda o: sched.LambdaLR(o, lambda t: 1 / (1 + 0.5 * t / 5))),
    "warm cosine": ("Cosine", {"steps": 10, "warmup_steps": 5, "warmup_from": 0.1, "periodic": True},
                    lambda o: sched.SequentialLR(
                        o, [sched.LinearLR(o, 0.1, 1.0, 5), sched.CosineAnnealingLR(o, 10)], [5])),
}  # fmt: skip
KERAS: dict[str, tuple[str, dict[str, Any], Any]] = {
    "staircase": ("Step", {"step_size": 5, "gamma": 0.5}, S.ExponentialDecay(BASE, 5, 0.5, staircase=True)),
    "exponential": ("Step", {"step_size": 5, "gamma": 0.5, "staircase": False}, S.ExponentialDecay(BASE, 5, 0.5)),
    "piecewise": ("MultiStep", {"boundaries": [6, 11], "factors": [1.0, 0.5, 0.25]},
                  S.PiecewiseConstantDecay([5, 10], [BASE, BASE / 2, BASE / 4])),
    "cosine": ("Cosine", {"steps": 8, "alpha": 0.1}, S.CosineDecay(BASE, 8, alpha=0.1)),
    "warm cosine": ("Cosine", {"steps": 10, "alpha": 0.1, "warmup_steps": 5, "warmup_from": 0.25},
                    S.CosineDecay(BASE / 4, 10, alpha=0.1, warmup_target=BASE, warmup_steps=5)),
    "restarts": ("CosineRestarts", {"steps": 4, "t_mul": 2.0, "m_mul": 0.5, "alpha": 0.1},
                 S.CosineDecayRestarts(BASE, 4, m_mul=0.5, alpha=0.1)),
    "polynomial": ("Polynomial", {"steps": 10, "power": 2.0, "end": 0.25}, S.PolynomialDecay(BASE, 10, BASE / 4, 2.0)),
    "polynomial again": ("Polynomial", {"steps": 6, "end": 0.25, "cycle": True},
                         S.PolynomialDecay(BASE, 6, BASE / 4, cycle=True)),
    "inverse": ("InverseTime", {"steps": 5, "rate": 0.5}, S.InverseTimeDecay(BASE, 5, 0.5)),
    "inverse, staircase": ("InverseTime", {"steps": 5, "rate": 0.5, "staircase": True},
                           S.InverseTimeDecay(BASE, 5, 0.5, staircase=True)),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:The epoch parameter")
@pytest.mark.parametrize("name", TORCH)
def test_schedules_of_torch(name: str) -> None:
    op, attrs, make = TORCH[name]
    np.testing.assert_allclose(schedules.rates(op, attrs, BASE, COUNT), torch_rates(make), rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("name", KERAS)
def test_schedules_of_keras(name: str) -> None:
    """They compute in float32, whatever the weights are."""
    op, attrs, schedule = KERAS[name]
    got = [float(schedule(step)) for step in range(COUNT)]
    np.testing.assert_allclose(schedules.rates(op, attrs, BASE, COUNT), got, rtol=2e-6, atol=1e-7 * BASE)


# -------------------------------------------------------------------------------------------------------------- metrics
SCORES, TRUE = RNG.uniform(0, 1, (200, 1)), RNG.integers(0, 2, (200, 1)).astype(float)
RARE = SCORES / 500
LOGITS, IDS = RNG.standard_normal((50, 6)), RNG.integers(0, 6, 50)
REAL, OTHER = RNG.standard_normal((50, 3)), RNG.standard_normal((50, 3))
MANY, BITS = RNG.uniform(0, 1, (50, 3)), RNG.integers(0, 2, (50, 3)).astype(float)
WEIGHTS = RNG.uniform(0.2, 2.0, 200)
M = keras.metrics
METRICS: dict[str, tuple[str, dict[str, Any], Callable[[], Any], np.ndarray, np.ndarray]] = {
    "roc": ("AUC", {"thresholds": 200}, M.AUC, SCORES, TRUE),
    "roc of rare events": ("AUC", {"thresholds": 200}, M.AUC, RARE, TRUE),
    "pr": ("AUC", {"thresholds": 200, "curve": "PR"}, lambda: M.AUC(curve="PR"), SCORES, TRUE),
    "roc of logits": ("AUC", {"thresholds": 50, "from_logits": True},
                      lambda: M.AUC(50, from_logits=True), 4 * SCORES - 2, TRUE),
    "binary": ("Accuracy", {"kind": "binary"}, M.BinaryAccuracy, MANY, BITS),
    "binary on logits": ("Accuracy", {"kind": "binary", "threshold": 0.0}, lambda: M.BinaryAccuracy(threshold=0.0),
                         REAL, BITS),
    "sparse": ("Accuracy", {"kind": "sparse"}, M.SparseCategoricalAccuracy, LOGITS, IDS),
    "categorical": ("Accuracy", {"kind": "categorical"}, M.CategoricalAccuracy, LOGITS, np.eye(6)[IDS]),
    "top": ("TopK", {"k": 2}, lambda: M.SparseTopKCategoricalAccuracy(2), LOGITS, IDS),
    "top of one-hot": ("TopK", {"k": 3}, lambda: M.TopKCategoricalAccuracy(3), LOGITS, np.eye(6)[IDS]),
    "precision": ("Precision", {}, M.Precision, SCORES, TRUE),
    "recall": ("Recall", {"threshold": 0.3}, lambda: M.Recall(thresholds=0.3), SCORES, TRUE),
    "f1": ("F1", {}, lambda: M.F1Score(average="micro", threshold=0.5), SCORES, TRUE),
    "mse": ("MeanSquaredError", {}, M.MeanSquaredError, REAL, OTHER),
    "mae": ("MeanAbsoluteError", {}, M.MeanAbsoluteError, REAL, OTHER),
    "rmse": ("RootMeanSquaredError", {}, M.RootMeanSquaredError, REAL, OTHER),
    "r2": ("R2", {}, M.R2Score, REAL[:, :1], OTHER[:, :1]),
    "r2 of several": ("R2", {}, M.R2Score, REAL, OTHER),
}  # fmt: skip


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", METRICS)
def test_metrics_of_keras(name: str, weighted: bool) -> None:
    op, attrs, make, outputs, targets = METRICS[name]
    weights = WEIGHTS[: len(outputs)] if weighted else None
    metric = make()
    metric.update_state(targets.astype(np.float32) if targets.dtype.kind == "f" else targets,
                        outputs.astype(np.float32), sample_weight=weights)  # fmt: skip
    want = float(np.asarray(keras.ops.convert_to_numpy(metric.result())).reshape(-1)[0])
    assert metrics.value(op, attrs, outputs, targets, weights) == pytest.approx(want, rel=1e-5)


def test_areas_as_scikit_learn_defines_them() -> None:
    """roc_auc_score: pairs in order, ties half, by weight; average_precision_score: sum of (R_n - R_n-1) P_n."""
    scores, y = np.round(SCORES[:, 0], 1), TRUE[:, 0]
    for w in (np.ones(200), WEIGHTS):
        pairs = np.where(scores[:, None] > scores, 1.0, np.where(scores[:, None] == scores, 0.5, 0.0))
        both = (w * y)[:, None] * (w * (1 - y))
        assert metrics.value("AUC", {}, scores, y, w) == pytest.approx((pairs * both).sum() / both.sum(), rel=1e-9)
        area, recall = 0.0, 0.0
        for cut in np.unique(scores)[::-1]:
            said = scores >= cut
            now = (w * y)[said].sum() / (w * y).sum()
            area += (now - recall) * (w * y)[said].sum() / w[said].sum()
            recall = now
        assert metrics.value("AUC", {"curve": "PR"}, scores, y, w) == pytest.approx(area, rel=1e-9)


def test_areas_of_many_scores_are_those_of_few() -> None:
    """The sorted computation (many scores) and the one score by score are one."""
    scores, y = np.tile(SCORES[:, 0], 30), np.tile(TRUE[:, 0], 30)
    for curve in ("ROC", "PR"):
        few = metrics.value("AUC", {"curve": curve}, SCORES, TRUE)
        assert metrics.value("AUC", {"curve": curve}, scores, y) == pytest.approx(few, rel=1e-9)


def test_metrics_refuse_what_has_no_value() -> None:
    with pytest.raises(ValueError, match="both classes"):
        metrics.value("AUC", {}, SCORES, np.ones((200, 1)))
    with pytest.raises(ValueError, match="one target"):
        metrics.value("AUC", {}, SCORES, TRUE[:10])
    assert metrics.value("Precision", {}, np.zeros((4, 1)), np.ones((4, 1))) == 0.0
    assert math.isclose(metrics.value("TopK", {"k": 1}, np.zeros((2, 3)), np.array([0, 2])), 1.0)  # ties count as in
