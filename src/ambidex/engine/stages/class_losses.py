"""Items of the losses over classes: cross-entropy of many classes and of two, and the focal loss.

Each gives (value of every item, the way back to the output's gradient, weight of every item, which items count,
whether the values hold the weights already).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ambidex.core.types import Array

Found = tuple[Array, Callable[[Array], Array], Array | None, Array | None, bool]


def log_softmax(x: Array) -> Array:
    top = x - x.max(-1, keepdims=True)
    made: Array = top - np.log(np.exp(top).sum(-1, keepdims=True))
    return made


def sigmoid(x: Array) -> Array:
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def _log_probabilities(a: Mapping[str, Any], x: Array) -> tuple[Array, Callable[[Array], Array]]:
    """log p by class (last axis), and the way back from its gradient to the one of ``x``."""
    if a["from_logits"]:
        p = np.exp(log_softmax(x))
        logp = log_softmax(x)

        def back(g: Array) -> Array:
            made: Array = g - p * g.sum(-1, keepdims=True)
            return made

        if not a["softmax_twice"]:
            return logp, back
        inner, outer_p = p, np.exp(log_softmax(p))

        def back_twice(g: Array) -> Array:
            middle = g - outer_p * g.sum(-1, keepdims=True)
            made: Array = inner * (middle - (inner * middle).sum(-1, keepdims=True))
            return made

        return log_softmax(inner), back_twice
    if a["log_input"]:  # x is log-probabilities (torch's NLLLoss)
        return x, lambda g: g
    total = x.sum(-1, keepdims=True)
    before, after = a["renormalise"] == "before", a["renormalise"] == "after"
    p = x / total if before else x
    e = float(a["epsilon"])
    added = bool(a["epsilon_added"])  # log(p + epsilon), as people write it by hand
    cut = p + e if added else np.clip(p, e, 1 - e) if e else p
    size = cut.sum(-1, keepdims=True) if after else np.ones_like(total)

    def back_probabilities(g: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = g / cut - (g.sum(-1, keepdims=True) / size if after else 0.0)
            slope = np.where((p >= e) & (p <= 1 - e), slope, 0.0) if e and not added else slope
            if not before:
                return slope
            made: Array = slope / total - (slope * x).sum(-1, keepdims=True) / total**2
            return made

    with np.errstate(divide="ignore"):
        return np.log(cut / size), back_probabilities


def cross_entropy(a: Mapping[str, Any], x: Array, targets: Array) -> Found:
    """-sum_c t_c log p_c, t from class numbers or a distribution, with label smoothing t (1 - s) + s / C."""
    axis = int(a["axis"])
    moved = np.moveaxis(x, axis, -1)
    logp, back_log = _log_probabilities(a, moved)
    classes = moved.shape[-1]
    t, counted = _distribution(a, np.asarray(targets), moved.shape, axis)
    weights = None if a["class_weights"] is None else np.asarray(a["class_weights"], np.float64)
    if weights is not None and weights.size != classes:
        raise ValueError(f"{weights.size} class weights for {classes} classes")
    s = float(a["label_smoothing"])
    smooth = t * (1 - s) + s / classes
    by_item, weighted = None, False
    if weights is not None and a["smooth_weighted"]:
        # torch: each class's share of the smoothed target has that class's weight, also where the item's own is 0
        by_item, weighted, smooth = (t * weights).sum(-1), True, smooth * weights
    elif weights is not None:
        by_item = weights[t.argmax(-1)]  # Keras: the weight of the likeliest class
    values = -(smooth * logp).sum(-1)

    def back(share: Array) -> Array:
        g = -share[..., None] * smooth
        if a["sums_to_one"] and a["from_logits"]:
            # TensorFlow's softmax_cross_entropy_with_logits: softmax - t, whatever t adds up to
            return np.moveaxis(share[..., None] * np.exp(logp) + g, -1, axis)
        return np.moveaxis(back_log(g), -1, axis)

    return values, back, by_item, counted, weighted


def _distribution(
    a: Mapping[str, Any], targets: Array, shape: tuple[int, ...], axis: int
) -> tuple[Array, Array | None]:
    """Targets as a distribution over the last axis, and which items count."""
    if targets.ndim == len(shape) and targets.size == int(np.prod(shape)) and shape[-1] > 1:
        return np.moveaxis(np.asarray(targets, np.float64), axis, -1).reshape(shape), None
    ids = targets.reshape(shape[:-1]).astype(np.int64)
    ignored = a["ignore_index"]
    counted = None if ignored is None else (ids != int(ignored)).astype(np.float64)
    safe = ids if counted is None else np.where(counted > 0, ids, 0)
    if safe.size and (safe.min() < 0 or safe.max() >= shape[-1]):
        raise ValueError("a target is no class")
    made = np.eye(shape[-1])[safe]
    return made, counted if counted is None or not counted.all() else None


def binary(a: Mapping[str, Any], x: Array, targets: Array) -> Found:
    """-(w t log p + (1 - t) log (1 - p)), w = pos_weight; on logits, or on probabilities clipped to epsilon (Keras) or
    with the logarithm cut at ``clamp`` (torch)."""
    t0 = np.asarray(targets, np.float64).reshape(x.shape)
    s = float(a["label_smoothing"])
    t = t0 * (1 - s) + 0.5 * s
    w = 1.0 if a["pos_weight"] is None else np.asarray(a["pos_weight"], np.float64)
    weights = None
    if a["class_weights"] is not None:
        two = np.asarray(a["class_weights"], np.float64)
        weights = two[np.rint(t0).astype(np.int64)]
    if a["from_logits"]:
        z, inner = x, np.ones_like(x)
        if a["softmax_twice"]:
            z = sigmoid(x)
            inner = z * (1 - z)
        values = w * t * np.logaddexp(0, -z) + (1 - t) * np.logaddexp(0, z)
        slope = inner * ((1 - t) * sigmoid(z) - w * t * sigmoid(-z))
        return values, lambda share: share * slope, weights, None, False
    e, floor = float(a["epsilon"]), a["clamp"]
    top = float(np.float32(1 - e))  # as float32 holds it: what is left to 1 is 1.2e-7 then, not 1e-7
    added = bool(a["epsilon_added"])  # log(p + epsilon) and log(1 - p + epsilon), as people write it by hand
    cut = e > 0 and not added
    p, rest = (np.clip(x, e, top), 1 - np.clip(x, e, top)) if cut else (x + e, 1 - x + e) if added else (x, 1 - x)
    kept = (x >= e) & (x <= top) if cut else np.ones(x.shape, bool)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_p, log_q = np.log(p), np.log(rest)
        slope = np.where(kept, -w * t / p + (1 - t) / rest, 0.0)
    if floor is not None:
        log_p, log_q = np.maximum(log_p, floor), np.maximum(log_q, floor)
        slope = (x - t) / np.maximum(x * (1 - x), 1e-12) if a["pos_weight"] is None else slope
    return -(w * t * log_p + (1 - t) * log_q), lambda share: share * slope, weights, None, False


def focal(a: Mapping[str, Any], x: Array, targets: Array) -> Found:
    """(1 - p_t)^gamma times the binary cross-entropy, ``balanced``: times alpha (t = 1) or 1 - alpha (Lin 2017)."""
    t = np.asarray(targets, np.float64).reshape(x.shape)
    gamma, alpha = float(a["gamma"]), float(a["alpha"])
    z_given = bool(a["from_logits"])
    e = float(a["epsilon"])
    p = sigmoid(x) if z_given else np.clip(x, e, 1 - e)
    with np.errstate(divide="ignore", invalid="ignore"):
        if z_given:
            entropy, d_entropy = t * np.logaddexp(0, -x) + (1 - t) * np.logaddexp(0, x), p - t
        else:
            entropy = -(t * np.log(p) + (1 - t) * np.log(1 - p))
            d_entropy = (p - t) / (p * (1 - p))
    d_p = p * (1 - p) if z_given else 1.0
    p_t = t * p + (1 - t) * (1 - p)
    factor = (1 - p_t) ** gamma
    d_factor = -gamma * (1 - p_t) ** (gamma - 1) * (2 * t - 1) * d_p if gamma else 0.0
    balance = t * alpha + (1 - t) * (1 - alpha) if a["balanced"] else 1.0
    slope = balance * (factor * d_entropy + d_factor * entropy)
    if not z_given:
        slope = np.where((x >= e) & (x <= 1 - e), slope, 0.0)
    return balance * factor * entropy, lambda share: share * slope, None, None, False


def categorical_hinge(a: Mapping[str, Any], x: Array, targets: Array) -> Found:
    """max(max over the wrong classes - the right one + 1, 0)."""
    t, _ = _distribution({"ignore_index": None}, np.asarray(targets), x.shape, -1)
    right = (t * x).sum(-1)
    wrong = np.where(t > 0, 0.0, x) if a["zero_for_right"] else np.where(t > 0, -np.inf, x)
    best = wrong.argmax(-1)
    values = np.maximum(np.take_along_axis(wrong, best[..., None], -1)[..., 0] - right + 1, 0.0)
    active = (values > 0).astype(np.float64)[..., None]
    slope = active * (np.eye(x.shape[-1])[best] * (t <= 0) - t)
    return values, lambda share: share[..., None] * slope, None, None, False


ITEMS: dict[str, Callable[..., Found]] = {
    "CrossEntropy": cross_entropy,
    "BinaryCrossEntropy": binary,
    "FocalBinary": focal,
    "CategoricalHinge": categorical_hinge,
}
