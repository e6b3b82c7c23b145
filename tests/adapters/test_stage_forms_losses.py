"""Canonical losses against torch (autograd) and Keras (tape) in float64: value and gradient to 1e-9."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

import keras  # isort: skip  (torch first)
import tensorflow as tf  # isort: skip

from ambidex.engine.stages import losses

RNG = np.random.default_rng(11)
LOGITS = 3 * RNG.standard_normal((8, 5))
IDS = np.array([0, 1, 2, 3, 4, 2, 2, 0])
PADDED = np.where(IDS == 2, -100, IDS)
ONE_HOT = np.eye(5)[IDS]
SOFT, P = RNG.dirichlet(np.ones(5), 8), RNG.dirichlet(np.ones(5), 8)
BITS = RNG.integers(0, 2, (8, 5)).astype(float)
BITS[:, 0] = 1.0
SIGMOID = RNG.uniform(0.02, 0.98, (8, 5))
REAL, OTHER = RNG.standard_normal((8, 5)), RNG.standard_normal((8, 5))
SIGNS = RNG.integers(-1, 2, (8, 5)).astype(float)
IMAGES, LABELS = RNG.standard_normal((2, 4, 3, 3)), RNG.integers(0, 4, (2, 3, 3))
SIZES = [0.5, 2.0, 0.0, 3.0, 0.25]
W = torch.tensor(SIZES, dtype=torch.float64)
SAMPLES = RNG.uniform(0.25, 2.0, 8)

Row = tuple[str, dict[str, Any], np.ndarray, np.ndarray, Callable[..., Any]]
CE: dict[str, Any] = {"axis": 1, "weights_by": "sum", "ignore_index": -100}
TORCH: dict[str, Row] = {
    "cross-entropy": ("CrossEntropy", CE, LOGITS, IDS, F.cross_entropy),
    "large logits": ("CrossEntropy", CE, 200 * LOGITS, IDS, F.cross_entropy),
    "sum": ("CrossEntropy", {**CE, "reduction": "sum"}, LOGITS, IDS,
            lambda x, t: F.cross_entropy(x, t, reduction="sum")),
    "class weights": ("CrossEntropy", {**CE, "class_weights": SIZES}, LOGITS, IDS,
                      lambda x, t: F.cross_entropy(x, t, W)),
    "class weights, sum": ("CrossEntropy", {**CE, "class_weights": SIZES, "reduction": "sum"}, LOGITS, IDS,
                           lambda x, t: F.cross_entropy(x, t, W, reduction="sum")),
    "smoothing": ("CrossEntropy", {**CE, "label_smoothing": 0.1}, LOGITS, IDS,
                  lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1)),
    "smoothing and weights, one of them 0": (
        "CrossEntropy", {**CE, "class_weights": SIZES, "label_smoothing": 0.1}, LOGITS, IDS,
        lambda x, t: F.cross_entropy(x, t, W, label_smoothing=0.1)),
    "ignored": ("CrossEntropy", CE, LOGITS, PADDED, F.cross_entropy),
    "ignored, weights, smoothing": (
        "CrossEntropy", {**CE, "class_weights": SIZES, "label_smoothing": 0.1}, LOGITS, PADDED,
        lambda x, t: F.cross_entropy(x, t, W, label_smoothing=0.1)),
    "soft": ("CrossEntropy", CE, LOGITS, SOFT, F.cross_entropy),
    # with targets as probabilities torch divides by the number of samples
    "soft, weights": ("CrossEntropy", {**CE, "class_weights": SIZES, "weights_by": "count"}, LOGITS, SOFT,
                      lambda x, t: F.cross_entropy(x, t, W)),
    "soft, weights, smoothing": (
        "CrossEntropy", {**CE, "class_weights": SIZES, "weights_by": "count", "label_smoothing": 0.1}, LOGITS, SOFT,
        lambda x, t: F.cross_entropy(x, t, W, label_smoothing=0.1)),
    "several classes at once": ("CrossEntropy", CE, LOGITS, BITS, F.cross_entropy),
    "images": ("CrossEntropy", CE, IMAGES, LABELS, F.cross_entropy),
    "softmax twice": ("CrossEntropy", {**CE, "softmax_twice": True}, LOGITS, IDS,
                      lambda x, t: F.cross_entropy(x.softmax(1), t)),
    "nll": ("CrossEntropy", {**CE, "from_logits": False, "log_input": True}, np.log(P), IDS, F.nll_loss),
    "nll, weights": ("CrossEntropy", {**CE, "from_logits": False, "log_input": True, "class_weights": SIZES}, np.log(P),
                     PADDED, lambda x, t: F.nll_loss(x, t, W)),
    "log of probabilities": ("CrossEntropy", {"from_logits": False, "renormalise": "no", "epsilon": 0.0}, 0.7 * P, SOFT,
                             lambda x, t: -(t * x.log()).sum(-1).mean()),
    "log of probabilities and epsilon": (
        "CrossEntropy", {"from_logits": False, "renormalise": "no", "epsilon_added": True}, 0.7 * P, SOFT,
        lambda x, t: -(t * (x + 1e-7).log()).sum(-1).mean()),
    "mean over padding": ("CrossEntropy", {**CE, "count_ignored": True}, LOGITS, PADDED,
                          lambda x, t: F.cross_entropy(x, t, reduction="none").mean()),
    "binary": ("BinaryCrossEntropy", {}, 20 * REAL, BITS, F.binary_cross_entropy_with_logits),
    "binary, sum": ("BinaryCrossEntropy", {"reduction": "sum"}, REAL, BITS,
                    lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction="sum")),
    "binary, one weight": ("BinaryCrossEntropy", {"pos_weight": 5.0}, REAL, BITS, lambda x, t:
                           F.binary_cross_entropy_with_logits(x, t, pos_weight=torch.tensor(5.0))),
    "binary, weights": ("BinaryCrossEntropy", {"pos_weight": SIZES}, REAL, BITS,
                        lambda x, t: F.binary_cross_entropy_with_logits(x, t, pos_weight=W)),
    "binary, probabilities": ("BinaryCrossEntropy", {"from_logits": False, "epsilon": 0.0, "clamp": -100.0}, SIGMOID,
                              BITS, F.binary_cross_entropy),
    "binary, sigmoid twice": ("BinaryCrossEntropy", {"softmax_twice": True}, REAL, BITS,
                              lambda x, t: F.binary_cross_entropy_with_logits(x.sigmoid(), t)),
    "binary, epsilon": ("BinaryCrossEntropy", {"from_logits": False, "epsilon_added": True}, SIGMOID, BITS, lambda x, t:
                        -(t * (x + 1e-7).log() + (1 - t) * (1 - x + 1e-7).log()).mean()),
    "mse": ("MSE", {}, REAL, OTHER, F.mse_loss),
    "mse, sum": ("MSE", {"reduction": "sum"}, REAL, OTHER, lambda x, t: F.mse_loss(x, t, reduction="sum")),
    "mse, column against row": ("MSE", {"broadcast": True}, REAL[:, :1], OTHER[:, 0], F.mse_loss),
    "mae": ("MAE", {}, REAL, OTHER, F.l1_loss),
    "huber": ("Huber", {"delta": 0.5}, REAL, OTHER, lambda x, t: F.huber_loss(x, t, delta=0.5)),
    "smooth l1": ("SmoothL1", {"beta": 0.5}, REAL, OTHER, lambda x, t: F.smooth_l1_loss(x, t, beta=0.5)),
    "divergence": ("KLDiv", {"from_logs": True, "reduction": "mean"}, np.log(P), SOFT, F.kl_div),
    "divergence by batch": ("KLDiv", {"from_logs": True, "reduction": "batchmean"}, np.log(P), SOFT,
                            lambda x, t: F.kl_div(x, t, reduction="batchmean")),
    "divergence, both logs": ("KLDiv", {"from_logs": True, "log_target": True, "reduction": "sum"}, np.log(P),
                              np.log(SOFT), lambda x, t: F.kl_div(x, t, reduction="sum", log_target=True)),
    "cosine": ("CosineLoss", {"sign": -1.0, "offset": 1.0}, REAL, OTHER,
               lambda x, t: F.cosine_embedding_loss(x, t, torch.ones(8, dtype=torch.float64))),
    "poisson": ("Poisson", {"log_input": True}, REAL, np.abs(OTHER), F.poisson_nll_loss),
    "poisson, rate": ("Poisson", {"epsilon": 1e-8}, SIGMOID, np.abs(OTHER),
                      lambda x, t: F.poisson_nll_loss(x, t, log_input=False)),
    "hinge": ("Hinge", {}, REAL, SIGNS, lambda x, t: (1 - t * x).clamp(min=0).mean()),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("name", TORCH)
def test_torch(name: str) -> None:
    op, attrs, outputs, targets, loss = TORCH[name]
    x = torch.tensor(outputs, requires_grad=True)
    value = loss(x, torch.tensor(targets))
    value.backward()
    assert losses.value(op, attrs, outputs, targets) == pytest.approx(value.item(), rel=1e-9)
    slope = x.grad.numpy()  # type: ignore[union-attr]
    found = losses.gradient(op, attrs, outputs, targets)
    np.testing.assert_allclose(found, slope, rtol=1e-9, atol=1e-9 * np.abs(slope).max())


def test_the_clamped_logarithm_of_torch() -> None:
    """BCELoss: -100 for the logarithm of 0; its slope divides by p (1 - p), at least 1e-12."""
    p, t = np.array([[0.0, 1.0, 1e-9, 0.5]]), np.array([[1.0, 0.0, 1.0, 0.25]])
    x = torch.tensor(p, requires_grad=True)
    loss = F.binary_cross_entropy(x, torch.tensor(t))
    loss.backward()
    attrs = {"from_logits": False, "epsilon": 0.0, "clamp": -100.0}
    assert losses.value("BinaryCrossEntropy", attrs, p, t) == pytest.approx(loss.item(), rel=1e-9)
    found = losses.gradient("BinaryCrossEntropy", attrs, p, t)
    np.testing.assert_allclose(found, x.grad.numpy(), rtol=1e-8)  # type: ignore[union-attr]


KL = keras.losses
KCE: dict[str, Any] = {"weights_by": "count", "smooth_weighted": False}
ON_P: dict[str, Any] = {**KCE, "from_logits": False}
BINARY_P: dict[str, Any] = {"from_logits": False}


def wide(cls: Any, **given: Any) -> Any:
    return cls(dtype="float64", **given)


KERAS: dict[str, tuple[str, dict[str, Any], np.ndarray, np.ndarray, Any]] = {
    "sparse": ("CrossEntropy", KCE, LOGITS, IDS, wide(KL.SparseCategoricalCrossentropy, from_logits=True)),
    "sparse, probabilities": ("CrossEntropy", {**ON_P, "renormalise": "after"}, 0.7 * P, IDS,
                              wide(KL.SparseCategoricalCrossentropy)),
    "sparse, ignored": ("CrossEntropy", {**KCE, "ignore_index": 2}, LOGITS, IDS,
                        wide(KL.SparseCategoricalCrossentropy, from_logits=True, ignore_class=2)),
    "sparse, weights by sum": ("CrossEntropy", {**KCE, "weights_by": "sum"}, LOGITS, IDS, wide(
        KL.SparseCategoricalCrossentropy, from_logits=True, reduction="mean_with_sample_weight")),
    "sparse, images": ("CrossEntropy", KCE, np.moveaxis(IMAGES, 1, -1), LABELS,
                       wide(KL.SparseCategoricalCrossentropy, from_logits=True)),
    "categorical": ("CrossEntropy", KCE, LOGITS, SOFT, wide(KL.CategoricalCrossentropy, from_logits=True)),
    "categorical, smooth": ("CrossEntropy", {**KCE, "label_smoothing": 0.1}, LOGITS, ONE_HOT,
                            wide(KL.CategoricalCrossentropy, from_logits=True, label_smoothing=0.1)),
    "categorical, sum": ("CrossEntropy", {**KCE, "reduction": "sum"}, LOGITS, ONE_HOT,
                         wide(KL.CategoricalCrossentropy, from_logits=True, reduction="sum")),
    "categorical, probabilities": ("CrossEntropy", ON_P, 0.7 * P, SOFT, wide(KL.CategoricalCrossentropy)),
    "several classes at once": ("CrossEntropy", {**KCE, "sums_to_one": True}, LOGITS, BITS,
                                wide(KL.CategoricalCrossentropy, from_logits=True)),
    "binary": ("BinaryCrossEntropy", {}, 20 * REAL, BITS, wide(KL.BinaryCrossentropy, from_logits=True)),
    "binary, smooth": ("BinaryCrossEntropy", {"label_smoothing": 0.2}, REAL, BITS,
                       wide(KL.BinaryCrossentropy, from_logits=True, label_smoothing=0.2)),
    "binary, sum": ("BinaryCrossEntropy", {"reduction": "sum_of_means"}, REAL, BITS,
                    wide(KL.BinaryCrossentropy, from_logits=True, reduction="sum")),
    "binary, probabilities": ("BinaryCrossEntropy", BINARY_P, SIGMOID, BITS, wide(KL.BinaryCrossentropy)),
    "focal": ("FocalBinary", BINARY_P, SIGMOID, BITS, wide(KL.BinaryFocalCrossentropy)),
    "focal, logits": ("FocalBinary", {"gamma": 1.5, "alpha": 0.3, "balanced": True}, 10 * REAL, BITS, wide(
        KL.BinaryFocalCrossentropy, from_logits=True, gamma=1.5, alpha=0.3, apply_class_balancing=True)),
    "mse": ("MSE", {}, REAL, OTHER, wide(KL.MeanSquaredError)),
    "mse, sum": ("MSE", {"reduction": "sum_of_means"}, REAL, OTHER, wide(KL.MeanSquaredError, reduction="sum")),
    "mse, weights by sum": ("MSE", {"weights_by": "sum"}, REAL, OTHER,
                            wide(KL.MeanSquaredError, reduction="mean_with_sample_weight")),
    "mse, column against row": ("MSE", {}, REAL[:, :1], OTHER[:, 0], wide(KL.MeanSquaredError)),
    "mae": ("MAE", {}, REAL, OTHER, wide(KL.MeanAbsoluteError)),
    "huber": ("Huber", {"delta": 0.5}, REAL, OTHER, wide(KL.Huber, delta=0.5)),
    "log cosh": ("LogCosh", {}, REAL, OTHER, wide(KL.LogCosh)),
    "hinge": ("Hinge", {}, REAL, BITS, wide(KL.Hinge)),
    "hinge, three signs": ("Hinge", {}, REAL, SIGNS, wide(KL.Hinge)),
    "categorical hinge": ("CategoricalHinge", {}, LOGITS, ONE_HOT, wide(KL.CategoricalHinge)),
    "poisson": ("Poisson", {}, SIGMOID, np.abs(OTHER), wide(KL.Poisson)),
    "divergence": ("KLDiv", {}, P, SOFT, wide(KL.KLDivergence)),
    "divergence, sum": ("KLDiv", {"reduction": "sum"}, P, SOFT, wide(KL.KLDivergence, reduction="sum")),
    "cosine": ("CosineLoss", {}, REAL, OTHER, wide(KL.CosineSimilarity)),
}  # fmt: skip

#: the logarithm of 2 in it went through float32
ROUNDED = {"log cosh": 1e-8}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", KERAS)
def test_keras(name: str, weighted: bool) -> None:
    """With and without weights of the samples."""
    op, attrs, outputs, targets, loss = KERAS[name]
    weights = SAMPLES[: len(outputs)] if weighted else None
    x = tf.constant(outputs)
    given = weights if weights is None or outputs.ndim == 2 else np.broadcast_to(weights[:, None, None], targets.shape)
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = loss(tf.constant(targets), x, sample_weight=given)
    slope = tape.gradient(value, x).numpy()
    near = ROUNDED.get(name, 1e-9)
    assert losses.value(op, attrs, outputs, targets, weights) == pytest.approx(float(value), rel=near)
    found = losses.gradient(op, attrs, outputs, targets, weights)
    np.testing.assert_allclose(found, slope, rtol=1e-9, atol=1e-9 * np.abs(slope).max())


@pytest.mark.parametrize("targets", [IDS, ONE_HOT, SOFT], ids=["ids", "one-hot", "soft"])
def test_class_weights_of_keras(targets: np.ndarray) -> None:
    """fit(class_weight=...): each sample has the weight of its likeliest class; the mean is over the samples."""
    cls = KL.SparseCategoricalCrossentropy if targets.ndim == 1 else KL.CategoricalCrossentropy
    model = keras.Sequential([keras.Input((5,), dtype="float64"), keras.layers.Identity(dtype="float64")])
    model.compile(loss=cls(from_logits=True, dtype="float64"))
    logs = model.fit(LOGITS, targets, batch_size=8, class_weight=dict(enumerate(SIZES)), verbose=0).history
    attrs = {**KCE, "class_weights": SIZES}
    assert losses.value("CrossEntropy", attrs, LOGITS, targets) == pytest.approx(logs["loss"][0], rel=1e-6)


def test_saturated_probabilities_of_keras_in_float32() -> None:
    """Cut to [1e-7, 1 - 1e-7], the upper end as float32 holds it; no gradient outside."""
    p, t = np.array([[0.0, 1.0, 1.0, 0.5]], np.float32), np.array([[1.0, 0.0, 1.0, 1.0]], np.float32)
    x = tf.constant(p)
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = KL.BinaryCrossentropy()(tf.constant(t), x)
    assert losses.value("BinaryCrossEntropy", BINARY_P, p, t) == pytest.approx(float(value), rel=1e-6)
    found = losses.gradient("BinaryCrossEntropy", BINARY_P, p, t)
    np.testing.assert_allclose(found, tape.gradient(value, x).numpy(), rtol=1e-6)
