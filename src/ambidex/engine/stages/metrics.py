"""Canonical metrics in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ambidex.core.ops import with_defaults
from ambidex.core.types import Array
from ambidex.engine.stages.class_losses import sigmoid
from ambidex.errors import UnsupportedError


def value(op: str, attrs: Mapping[str, Any], outputs: Array, targets: Array, weights: Array | None = None) -> float:
    """The metric on ``outputs`` and ``targets``; ``weights`` by sample.

    Raises UnsupportedError for an unknown metric, ValueError for shapes that it does not take.
    """
    made = _VALUES.get(op)
    if made is None:
        raise UnsupportedError(f"no formula is known for the metric '{op or 'of the user'}'")
    a = with_defaults(op, attrs)
    x, t = np.asarray(outputs, np.float64), np.asarray(targets)
    if a.get("from_logits") and a.get("kind") in (None, "binary"):
        x = sigmoid(x)
    w = None if weights is None else np.asarray(weights, np.float64).reshape(-1)
    return float(made(a, x, t, w))


def _mean(values: Array, w: Array | None) -> float:
    flat = np.asarray(values, np.float64)
    if w is None:
        return float(flat.mean())
    by_sample = flat.reshape(len(w), -1).mean(1)
    return float((by_sample * w).sum() / w.sum()) if w.sum() else 0.0


def _accuracy(a: Mapping[str, Any], x: Array, t: Array, w: Array | None) -> float:
    if a["kind"] == "binary":
        return _mean((x > float(a["threshold"])) == (t.reshape(x.shape) > 0.5), w)
    right = t.argmax(-1) if a["kind"] == "categorical" else t.reshape(x.shape[:-1])
    return _mean(x.argmax(-1) == right, w)


def _top_k(a: Mapping[str, Any], x: Array, t: Array, w: Array | None) -> float:
    ids = t.argmax(-1) if t.shape == x.shape else t.reshape(x.shape[:-1])
    own = np.take_along_axis(x, ids[..., None].astype(np.int64), -1)
    return _mean((x > own).sum(-1) < int(a["k"]), w)


def _auc(a: Mapping[str, Any], x: Array, t: Array, w: Array | None) -> float:
    """Area under the curve: exact over all scores, or over ``thresholds`` evenly spaced ones (Keras)."""
    scores, positive = x.reshape(-1), t.reshape(-1) > 0.5
    if scores.size != positive.size:
        raise ValueError("an area needs one target for each score")
    weight = np.ones(scores.size) if w is None else np.repeat(w, scores.size // w.size)
    if a["thresholds"] is None:
        cuts = np.concatenate([[-np.inf], np.unique(scores)])
        above = scores[None, :] > cuts[:, None] if scores.size <= 4096 else None
        if above is None:
            order = np.argsort(-scores, kind="stable")
            tp = np.cumsum((weight * positive)[order])
            fp = np.cumsum((weight * ~positive)[order])
            last = np.append(np.diff(scores[order]) != 0, True)
            tp, fp = np.append(tp[last][::-1], 0.0), np.append(fp[last][::-1], 0.0)
        else:
            tp = (above * (weight * positive)).sum(1)
            fp = (above * (weight * ~positive)).sum(1)
    else:
        n = int(a["thresholds"])
        cuts = np.array([-1e-7, *((i + 1) / (n - 1) for i in range(n - 2)), 1 + 1e-7])
        tp = np.array([(weight * positive)[scores > c].sum() for c in cuts])
        fp = np.array([(weight * ~positive)[scores > c].sum() for c in cuts])
    p, n_all = float((weight * positive).sum()), float((weight * ~positive).sum())
    if not p or not n_all:
        raise ValueError("an area needs targets of both classes")
    if a["curve"] == "ROC":
        return float(np.sum((fp[:-1] - fp[1:]) / n_all * (tp[:-1] + tp[1:]) / (2 * p)))
    if a["thresholds"] is None:  # average precision: a step a score
        with np.errstate(invalid="ignore"):
            precision = np.where(tp + fp > 0, tp / np.maximum(tp + fp, 1e-300), 1.0)
        return float(np.sum((tp[:-1] - tp[1:]) / p * precision[:-1]))
    # Davis and Goadrich 2006, section 4: precision between two points is no straight line
    both = tp + fp
    d_tp, d_both = tp[:-1] - tp[1:], both[:-1] - both[1:]
    slope = np.where(d_both > 0, d_tp / np.where(d_both > 0, d_both, 1.0), 0.0)
    start = tp[1:] - slope * both[1:]
    ratio = np.where((both[:-1] > 0) & (both[1:] > 0), both[:-1] / np.where(both[1:] > 0, both[1:], 1.0), 1.0)
    return float(np.sum(slope * (d_tp + start * np.log(ratio)) / p))


def _counts(a: Mapping[str, Any], x: Array, t: Array, w: Array | None) -> tuple[float, float, float]:
    positive, said = t.reshape(-1) > 0.5, x.reshape(-1) > float(a["threshold"])
    weight = np.ones(said.size) if w is None else np.repeat(w, said.size // w.size)
    pairs = (positive & said, ~positive & said, positive & ~said)
    tp, fp, fn = (float((weight * c).sum()) for c in pairs)
    return tp, fp, fn


def _precision(a: Mapping[str, Any], x: Array, t: Array, w: Array | None) -> float:
    tp, fp, _ = _counts(a, x, t, w)
    return tp / (tp + fp) if tp + fp else 0.0


def _recall(a: Mapping[str, Any], x: Array, t: Array, w: Array | None) -> float:
    tp, _, fn = _counts(a, x, t, w)
    return tp / (tp + fn) if tp + fn else 0.0


def _f1(a: Mapping[str, Any], x: Array, t: Array, w: Array | None) -> float:
    tp, fp, fn = _counts(a, x, t, w)
    return 2 * tp / (2 * tp + fp + fn) if tp else 0.0


def _r2(a: Mapping[str, Any], x: Array, t: Array, w: Array | None) -> float:
    """Of each output, then their mean (Keras' and scikit-learn's default); one that never varies counts 0."""
    y = np.asarray(t, np.float64).reshape(len(x), -1)
    weight = (np.ones(len(x)) if w is None else w)[:, None]
    mean = (weight * y).sum(0) / weight.sum()
    left, whole = (weight * (y - x.reshape(y.shape)) ** 2).sum(0), (weight * (y - mean) ** 2).sum(0)
    return float(np.where(whole > 0, 1 - left / np.where(whole > 0, whole, 1.0), 0.0).mean())


_VALUES: dict[str, Callable[[Mapping[str, Any], Array, Array, Array | None], float]] = {
    "Accuracy": _accuracy,
    "TopK": _top_k,
    "AUC": _auc,
    "Precision": _precision,
    "Recall": _recall,
    "F1": _f1,
    "R2": _r2,
    "MeanSquaredError": lambda a, x, t, w: _mean((x - t.reshape(x.shape)) ** 2, w),
    "MeanAbsoluteError": lambda a, x, t, w: _mean(np.abs(x - t.reshape(x.shape)), w),
    "RootMeanSquaredError": lambda a, x, t, w: np.sqrt(_mean((x - t.reshape(x.shape)) ** 2, w)),
}


def variants(op: str, attrs: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The ways in which a metric of this kind is got wrong: (name, all attributes)."""
    a, full = dict(attrs), with_defaults(op, attrs)
    found: list[tuple[str, dict[str, Any]]] = []
    if op == "AUC":
        other = 200 if full["thresholds"] is None else None
        found.append(("thresholds", {**a, "thresholds": other}))
        found.append(("curve", {**a, "curve": "PR" if full["curve"] == "ROC" else "ROC"}))
    if "from_logits" in full:
        found.append(("from_logits", {**a, "from_logits": not full["from_logits"]}))
    if "threshold" in full and full.get("kind") in (None, "binary"):
        found += [("threshold", {**a, "threshold": v}) for v in (0.0, 0.5) if v != float(full["threshold"])]
    return found


def catalogue() -> list[tuple[str, dict[str, Any]]]:
    """The forms that may stand behind code of the user's own."""
    found: list[tuple[str, dict[str, Any]]] = []
    for logits in (False, True):
        for thresholds in (None, 200):
            for curve in ("ROC", "PR"):
                found.append(("AUC", {"curve": curve, "thresholds": thresholds, "from_logits": logits}))
    found += [("Accuracy", {"kind": kind}) for kind in ("sparse", "categorical")]
    for threshold in (0.5, 0.0):
        found += [
            ("Accuracy", {"kind": "binary", "threshold": threshold}),
            ("Precision", {"threshold": threshold}),
            ("Recall", {"threshold": threshold}),
            ("F1", {"threshold": threshold}),
        ]
    found += [(name, {}) for name in ("MeanSquaredError", "MeanAbsoluteError", "RootMeanSquaredError", "R2")]
    found += [("TopK", {"k": k}) for k in (5, 3, 10)]
    return found
