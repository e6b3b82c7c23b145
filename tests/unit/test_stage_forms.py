"""Canonical forms of training without a framework: slopes, what changes nothing, what the catalogue finds, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ambidex.core import ops
from ambidex.core.training_ops import FORMS, inert
from ambidex.engine.stages import clips, losses, metrics, optimizers, schedules
from ambidex.errors import UnsupportedError

RNG = np.random.default_rng(5)
X = RNG.standard_normal((6, 4))
IDS = np.array([0, 3, 1, 2, 2, 1])
ONE_HOT = np.eye(4)[IDS]
SOFT = RNG.dirichlet(np.ones(4), 6)
P = RNG.dirichlet(np.ones(4), 6)
SIGMOID = RNG.uniform(0.05, 0.95, (6, 4))
BITS = RNG.integers(0, 2, (6, 4)).astype(float)
REAL = RNG.standard_normal((6, 4))
SIZES = [0.5, 2.0, 0.0, 3.0]
SAMPLES = RNG.uniform(0.5, 2.0, 6)
PLAIN = {"from_logits": False, "renormalise": "no"}

#: form, attributes, outputs, targets
SLOPES: list[tuple[str, dict[str, Any], np.ndarray, np.ndarray]] = [
    ("CrossEntropy", {}, X, IDS),
    ("CrossEntropy", {"class_weights": SIZES, "label_smoothing": 0.25}, X, IDS),
    ("CrossEntropy", {"class_weights": SIZES, "label_smoothing": 0.25, "smooth_weighted": False}, X, IDS),
    ("CrossEntropy", {"class_weights": SIZES, "weights_by": "count"}, X, SOFT),
    ("CrossEntropy", {"class_weights": SIZES, "ignore_index": 1}, X, IDS),
    ("CrossEntropy", {"ignore_index": 1, "count_ignored": True}, X, IDS),
    ("CrossEntropy", {"softmax_twice": True, "reduction": "sum"}, X, IDS),
    ("CrossEntropy", {"from_logits": False, "log_input": True}, np.log(P), IDS),
    ("CrossEntropy", {"from_logits": False}, 0.7 * P, SOFT),
    ("CrossEntropy", {"from_logits": False, "renormalise": "after"}, 0.7 * P, IDS),
    ("CrossEntropy", {**PLAIN, "epsilon": 0.0}, P, IDS),
    ("CrossEntropy", {**PLAIN, "epsilon": 0.01, "epsilon_added": True}, P, IDS),
    ("CrossEntropy", {"axis": 1}, RNG.standard_normal((2, 3, 4)), RNG.integers(0, 3, (2, 4))),
    ("CrossEntropy", {}, X, BITS),
    ("BinaryCrossEntropy", {"pos_weight": 5.0, "label_smoothing": 0.1}, X, BITS),
    ("BinaryCrossEntropy", {"class_weights": [1.0, 4.0], "weights_by": "sum"}, X, BITS),
    ("BinaryCrossEntropy", {"softmax_twice": True}, X, BITS),
    ("BinaryCrossEntropy", {"from_logits": False}, SIGMOID, BITS),
    ("BinaryCrossEntropy", {"from_logits": False, "epsilon": 0.0, "clamp": -100.0}, SIGMOID, BITS),
    ("BinaryCrossEntropy", {"from_logits": False, "epsilon": 0.01, "epsilon_added": True}, SIGMOID, BITS),
    ("FocalBinary", {"gamma": 1.5, "balanced": True}, X, BITS),
    ("FocalBinary", {"from_logits": False}, SIGMOID, BITS),
    ("MSE", {"reduction": "sum_of_means", "factor": 0.5}, X, REAL),
    ("MSE", {"broadcast": True}, X[:, :1], REAL[:, 0]),
    ("MSE", {"broadcast": "flat"}, X[:, :1], REAL[:, :1]),
    ("MAE", {"reduction": "batchmean"}, X, REAL),
    ("Huber", {"delta": 0.5}, X, REAL),
    ("SmoothL1", {"beta": 0.5}, X, REAL),
    ("LogCosh", {}, X, REAL),
    ("Hinge", {}, X, BITS),
    ("Hinge", {}, X, RNG.integers(-1, 2, (6, 4)).astype(float)),
    ("Poisson", {}, SIGMOID, np.abs(REAL)),
    ("Poisson", {"log_input": True}, X, np.abs(REAL)),
    ("KLDiv", {}, P, SOFT),
    ("KLDiv", {"from_logs": True, "log_target": True, "reduction": "batchmean"}, np.log(P), np.log(SOFT)),
    ("CosineLoss", {"sign": -1.0, "offset": 1.0}, X, REAL),
    ("CategoricalHinge", {}, X, ONE_HOT),
    ("CategoricalHinge", {"zero_for_right": False}, X, IDS),
]


@pytest.mark.parametrize("number", range(len(SLOPES)), ids=lambda i: f"{SLOPES[i][0]}-{i}")
@pytest.mark.parametrize("weighted", [False, True])
def test_the_gradient_is_that_of_the_value(number: int, weighted: bool) -> None:
    """Against central differences: a wrong formula is wrong by far more than their error."""
    op, attrs, x, t = SLOPES[number]
    weights = SAMPLES[: len(x)] if weighted and attrs.get("broadcast") is None else None
    found = losses.gradient(op, attrs, x, t, weights)
    assert found.shape == x.shape and found.dtype == np.float64
    step, slope = 1e-6, np.empty(x.shape)
    for at in np.ndindex(*x.shape):
        near = [np.array(x), np.array(x)]
        near[0][at] += step
        near[1][at] -= step
        above, below = (losses.value(op, attrs, n, t, weights) for n in near)
        slope[at] = (above - below) / (2 * step)
    np.testing.assert_allclose(found, slope, rtol=1e-6, atol=1e-7 * max(1.0, np.abs(slope).max()))


def test_every_loss_has_a_slope_tested_here() -> None:
    assert {op for op, entry in FORMS.items() if entry.family == "loss"} == {row[0] for row in SLOPES}


def test_tensorflow_takes_targets_for_distributions() -> None:
    """softmax_cross_entropy_with_logits: the value of any targets, the gradient of those that sum to one."""
    share = np.exp(X) / np.exp(X).sum(-1, keepdims=True)
    given = {"sums_to_one": True}
    assert losses.value("CrossEntropy", given, X, BITS) == losses.value("CrossEntropy", {}, X, BITS)
    np.testing.assert_allclose(losses.gradient("CrossEntropy", given, X, BITS), (share - BITS) / 6)
    both = [losses.gradient("CrossEntropy", a, X, SOFT) for a in (given, {})]
    np.testing.assert_allclose(*both, atol=1e-15)


def test_weights_of_classes_divide_by_their_sum_or_by_the_count() -> None:
    item = -np.log(np.exp(X) / np.exp(X).sum(-1, keepdims=True))[np.arange(6), IDS]
    w = np.array(SIZES)[IDS]
    for by, size in (("sum", w.sum()), ("count", 6)):
        attrs = {"class_weights": SIZES, "weights_by": by}
        assert losses.value("CrossEntropy", attrs, X, IDS) == pytest.approx((w * item).sum() / size, rel=1e-12)


def test_what_is_left_out_counts_in_no_mean_or_in_all() -> None:
    item = -np.log(np.exp(X) / np.exp(X).sum(-1, keepdims=True))[np.arange(6), IDS]
    kept = item[IDS != 2].sum()
    given: dict[str, Any] = {"ignore_index": 2}
    assert losses.value("CrossEntropy", given, X, IDS) == pytest.approx(kept / 4, rel=1e-12)
    assert losses.value("CrossEntropy", {**given, "count_ignored": True}, X, IDS) == pytest.approx(kept / 6, rel=1e-12)


# ------------------------------------------------------------------------------------------------- the user's own code
def _log_softmax(x: np.ndarray) -> np.ndarray:
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


PADDED = np.where(IDS == 2, -100, IDS)
#: code, outputs, targets, weights that the other side declares, the form that it is
Own = tuple[Callable[[np.ndarray], float], np.ndarray, np.ndarray, list[float] | None, str, dict[str, Any]]
OWN: dict[str, Own] = {
    "mean": (lambda x: -_log_softmax(x)[np.arange(6), IDS].mean(), X, IDS, None, "CrossEntropy", {"reduction": "mean"}),
    "sum": (lambda x: -_log_softmax(x)[np.arange(6), IDS].sum(), X, IDS, None, "CrossEntropy", {"reduction": "sum"}),
    "log of probabilities": (lambda p: -np.log(p)[np.arange(6), IDS].mean(), 0.7 * P, IDS, None, "CrossEntropy",
                             {"from_logits": False, "renormalise": "no"}),
    "softmax twice": (lambda x: -_log_softmax(np.exp(_log_softmax(x)))[np.arange(6), IDS].mean(), X, IDS, None,
                      "CrossEntropy", {"softmax_twice": True}),
    "smoothed": (lambda x: -(_log_softmax(x) * (0.9 * ONE_HOT + 0.025)).sum(-1).mean(), X, ONE_HOT, None,
                 "CrossEntropy", {"label_smoothing": 0.1}),
    "weights by count": (lambda x: -(_log_softmax(x)[np.arange(6), IDS] * np.array(SIZES)[IDS]).mean(), X, IDS, SIZES,
                         "CrossEntropy", {"class_weights": SIZES, "weights_by": "count"}),
    "padding left out": (lambda x: -_log_softmax(x)[np.arange(6), IDS][IDS != 2].mean(), X, PADDED, None,
                         "CrossEntropy", {"ignore_index": -100}),
    "mean over padding": (lambda x: -(_log_softmax(x)[np.arange(6), IDS] * (IDS != 2)).mean(), X, PADDED, None,
                          "CrossEntropy", {"ignore_index": -100, "count_ignored": True}),
    "several at once": (lambda x: -(_log_softmax(x) * BITS).sum(-1).mean(), X, BITS, None, "CrossEntropy", {}),
    "positive weight": (lambda x: (5 * BITS * np.logaddexp(0, -x) + (1 - BITS) * np.logaddexp(0, x)).mean(), X, BITS,
                        [5.0], "BinaryCrossEntropy", {"pos_weight": 5.0}),
    "half the square": (lambda x: 0.5 * ((x - REAL) ** 2).mean(), X, REAL, None, "MSE", {"factor": 0.5}),
    "sum of squares by sample": (lambda x: ((x - REAL) ** 2).sum() / 6, X, REAL, None, "MSE",
                                 {"reduction": "batchmean"}),
    "one column against a row": (lambda x: ((x - REAL[:, 0]) ** 2).mean(), X[:, :1], REAL[:, 0], None, "MSE",
                                 {"broadcast": True}),
    "one minus cosine": (lambda x: (1 - (x * REAL).sum(-1) / np.linalg.norm(x, axis=-1)
                                    / np.linalg.norm(REAL, axis=-1)).mean(), X, REAL, None, "CosineLoss",
                         {"offset": 1.0}),
    "divergence": (lambda p: (SOFT * np.log(SOFT / p)).sum(-1).mean(), P, SOFT, None, "KLDiv", {"from_logs": False}),
}  # fmt: skip


@pytest.mark.parametrize("name", OWN)
def test_code_of_the_users_own_is_found_by_its_numbers(name: str) -> None:
    """The first form of the catalogue with the code's value and gradient is the one that the code is."""
    code, x, t, known, op, attrs = OWN[name]
    slope = np.empty(x.shape)
    for at in np.ndindex(*x.shape):
        near = [np.array(x), np.array(x)]
        near[0][at] += 1e-6
        near[1][at] -= 1e-6
        slope[at] = (code(near[0]) - code(near[1])) / 2e-6

    def agrees(form: tuple[str, dict[str, Any]]) -> bool:
        try:
            given = (*form, x, t)
            close = np.isclose(losses.value(*given), code(x), rtol=1e-9)
            return bool(close) and np.allclose(losses.gradient(*given), slope, rtol=1e-6, atol=1e-8)
        except (UnsupportedError, ValueError):  # what the engine takes for "not this one"
            return False

    found = next(form for form in losses.catalogue(x, t, None, known) if agrees(form))
    assert found[0] == op
    full = ops.with_defaults(*found)
    assert {n: full[n] for n in attrs} == attrs


@pytest.mark.parametrize("targets", [IDS, ONE_HOT, SOFT, BITS, REAL, PADDED], ids=lambda t: f"{t.dtype}{t.shape}")
def test_the_catalogue_is_short_and_says_nothing_twice(targets: np.ndarray) -> None:
    found = [(op, ops.with_defaults(op, a)) for op, a in losses.catalogue(X, targets, SAMPLES, [1.0, 2.0, 3.0, 4.0])]
    assert 0 < len(found) <= 200
    assert all(form not in found[:i] for i, form in enumerate(found))


# --------------------------------------------------------------------------------------------------- words and refusals
FAMILIES: dict[str, Any] = {
    "loss": losses,
    "optimizer": optimizers,
    "clip": clips,
    "schedule": schedules,
    "metric": metrics,
}


@pytest.mark.parametrize("op", FORMS)
def test_a_form_left_at_its_defaults_is_the_form_with_them_written_out(op: str) -> None:
    assert ops.differing_attrs(op, {}, dict(FORMS[op].attrs)) == {}


@pytest.mark.parametrize("op", FORMS)
def test_variants_differ_from_what_they_are_variants_of(op: str) -> None:
    given = {
        "class_weights": [1.0, 2.0], "ignore_index": 0, "label_smoothing": 0.1, "weight_decay": 0.1, "momentum": 0.9,
        "boundaries": [2], "factors": [1.0, 0.1], "steps": 4, "step_size": 2, "max_norm": 1.0, "value": 1.0,
        "rate": 0.5,
    }  # fmt: skip
    attrs = {n: given[n] for n in FORMS[op].attrs if n in given}
    for name, changed in FAMILIES[FORMS[op].family].variants(op, attrs):
        assert name and ops.differing_attrs(op, attrs, changed), (name, changed)
        known = {*FORMS[op].attrs, *FORMS[op].ignored}
        assert changed.keys() <= known, name


def test_what_changes_nothing_is_told() -> None:
    assert {"decoupled"} <= inert("Adam", {"decoupled": True})
    assert "decoupled" not in inert("Adam", {"weight_decay": 0.1})
    assert {"momentum", "learning_rate"}.isdisjoint(inert("SGD", {"momentum": 0.0}))
    assert {"rate_in_buffer", "nesterov", "dampening"} <= inert("SGD", {"momentum": 0.0})
    assert {"weights_by", "count_ignored", "epsilon_added", "renormalise"} <= inert("CrossEntropy", {})
    assert "sums_to_one" in inert("CrossEntropy", {"from_logits": False})
    assert "count_ignored" not in inert("CrossEntropy", {"ignore_index": 0})


def test_kerass_relative_step_is_no_setting() -> None:
    """Keras 3 cuts the step of Adafactor at 1 / sqrt(t) with and without it (tests/adapters measures that)."""
    assert ops.differing_attrs("Adafactor", {"relative_step": True}, {"relative_step": False}) == {}
    assert ops.differing_attrs("Adafactor", {}, {"relative_step": False}) == {}


def test_what_has_no_formula_is_refused() -> None:
    for call in (
        lambda: losses.value("", {}, X, IDS),
        lambda: losses.gradient("Triplet", {}, X, IDS),
        lambda: losses.value("MSE", {"reduction": "median"}, X, REAL),
        lambda: optimizers.updates("LBFGS", {}, X, [X], [0.1]),
        lambda: clips.clipped("Scale", {}, {"a": X}),
        lambda: schedules.rates("OneCycle", {}, 0.1, 3),
        lambda: metrics.value("IoU", {}, X, IDS),
    ):
        with pytest.raises(UnsupportedError):
            call()
    with pytest.raises(ValueError, match="class weights"):
        losses.value("CrossEntropy", {"class_weights": [1.0]}, X, IDS)
    with pytest.raises(ValueError, match="no class"):
        losses.value("CrossEntropy", {}, X, IDS + 1)


def test_periods_that_shrink_end() -> None:
    """4 + 2 + 1 + ... updates: the eighth has no rate, and nothing waits for one."""
    assert len(schedules.rates("CosineRestarts", {"steps": 4, "t_mul": 0.5}, 0.1, 8)) == 8
    with pytest.raises(UnsupportedError):
        schedules.rates("CosineRestarts", {"steps": 4, "t_mul": 0.5}, 0.1, 12)


def test_a_schedule_counts_from_its_first_update() -> None:
    for op, attrs in (
        ("Step", {"step_size": 3}), ("MultiStep", {"boundaries": [2], "factors": [1.0, 0.1]}), ("Cosine", {"steps": 5}),
        ("CosineRestarts", {"steps": 5}), ("Polynomial", {"steps": 5}), ("InverseTime", {"rate": 0.5}),
    ):  # fmt: skip
        plain = schedules.rates(op, attrs, 0.25, 12)
        assert plain[0] == 0.25
        assert schedules.rates(op, {**attrs, "offset": 1}, 0.25, 11) == plain[1:]
        assert schedules.rates(op, {**attrs, "stride": 2.0}, 0.25, 6) == plain[::2]


def test_a_norm_below_the_limit_is_left_alone() -> None:
    g = {"a": np.array([3.0, 0.0]), "b": np.array([4.0])}
    assert clips.clipped("ClipNorm", {"max_norm": 5.0}, g)["b"][0] == 4.0
    halved = clips.clipped("ClipNorm", {"max_norm": 2.5}, g)
    np.testing.assert_allclose([halved["a"][0], halved["b"][0]], [1.5, 2.0])
    each = clips.clipped("ClipNorm", {"max_norm": 3.5, "scope": "weight"}, g)
    np.testing.assert_allclose([each["a"][0], each["b"][0]], [3.0, 3.5])
