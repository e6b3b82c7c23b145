"""Canonical losses in float64: value and gradient with respect to the model's output.

A loss is a value for each item (sample, pixel, element) and a reduction over the items. Formulas of the items are those
that both frameworks document; where they differ the attribute says which is meant (``docs/canonical.md``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ambidex.core.ops import with_defaults
from ambidex.core.types import Array
from ambidex.engine.stages import class_losses
from ambidex.engine.stages.loss_candidates import catalogue as catalogue
from ambidex.engine.stages.loss_candidates import variants as variants
from ambidex.errors import UnsupportedError


@dataclass(slots=True)
class Items:
    """Loss of each item, the weight by which it counts, and the way back: from items' gradients to the output's."""

    values: Array
    back: Callable[[Array], Array]
    weights: Array | None = None  # of classes, and 0 for ignored items
    counted: Array | None = None  # which items exist at all (ignored ones do not)
    weighted: bool = False  # the values hold the weights already; then those only say how much the items count


def value(op: str, attrs: Mapping[str, Any], outputs: Array, targets: Array, weights: Array | None = None) -> float:
    """The loss on ``outputs`` and ``targets`` (their shapes as the loss takes them), ``weights`` by sample.

    Raises UnsupportedError for an unknown loss, ValueError for shapes that it does not take.
    """
    return _both(op, attrs, outputs, targets, weights)[0]


def gradient(op: str, attrs: Mapping[str, Any], outputs: Array, targets: Array, weights: Array | None = None) -> Array:
    """The gradient of :func:`value` with respect to ``outputs``: float64, their shape."""
    return _both(op, attrs, outputs, targets, weights)[1]


def _both(
    op: str, attrs: Mapping[str, Any], outputs: Array, targets: Array, weights: Array | None
) -> tuple[float, Array]:
    made = _ITEMS.get(op)
    if made is None:
        raise UnsupportedError(f"no formula is known for the loss '{op or 'of the user'}'")
    a = with_defaults(op, attrs)
    x = np.asarray(outputs, np.float64)
    items = made(a, x, np.asarray(targets))
    share, total = _reduced(a, items, weights)
    factor = float(a.get("factor", 1.0))
    return factor * total, factor * np.asarray(items.back(share)).reshape(x.shape)


def _reduced(a: Mapping[str, Any], items: Items, weights: Array | None) -> tuple[Array, float]:
    """By how much each item counts in the loss, and the loss."""
    values = items.values
    counts = np.ones_like(values)
    sizes = np.ones_like(values)
    if items.weights is not None:
        sizes = sizes * items.weights
        counts = counts if items.weighted else counts * items.weights
    if weights is not None:
        w = np.asarray(weights, np.float64)
        w = w.reshape(w.shape + (1,) * (values.ndim - w.ndim))
        counts, sizes = counts * w, sizes * w
    if items.counted is not None:
        counts, sizes = counts * items.counted, sizes * items.counted
    reduction = a.get("reduction", "mean")
    if reduction in ("sum", "none"):
        size = 1.0
    elif reduction == "sum_of_means":  # Keras' "sum": the mean over the last axis, then the sum
        size = float(values.shape[-1]) if values.ndim > 1 else 1.0
    elif reduction == "batchmean":
        size = float(values.shape[0]) if values.ndim else 1.0
    elif reduction == "mean_of_sums":  # summed over the last axis, then the mean (Keras' divergence)
        size = float(np.prod(values.shape[:-1]))
    elif reduction == "mean":
        if a.get("weights_by", "count") == "sum" and not a.get("count_ignored"):
            size = float(sizes.sum())
        else:
            every = items.counted is None or a.get("count_ignored")
            size = float(values.size if every or items.counted is None else items.counted.sum())
    else:
        raise UnsupportedError(f"no reduction '{reduction}' is known")
    share = counts / size if size else counts * np.nan
    # an ignored item may hold anything; it counts for nothing all the same
    return share, float(np.sum(np.where(share == 0, 0.0, share * values)))


# ------------------------------------------------------------------------------------------------ element by element
def _alike(x: Array, targets: Array, broadcast: bool | str) -> tuple[Array, Array, Callable[[Array], Array]]:
    """Outputs and targets of one shape. (N, 1) against (N,) is one column unless the loss broadcasts to N x N;
    "flat": the targets lose their last axis on the way, and then it broadcasts."""
    t = np.asarray(targets, np.float64)
    if broadcast == "flat":
        t = t.reshape(-1)
    if x.shape == t.shape:
        return x, t, lambda g: g
    if not broadcast and x.size == t.size:
        return x, t.reshape(x.shape), lambda g: g
    if not broadcast:
        raise ValueError(f"outputs of shape {x.shape} against targets of shape {t.shape}")
    wide, wt = np.broadcast_arrays(x, t)
    lead = wide.ndim - x.ndim
    axes = tuple(range(lead)) + tuple(i + lead for i, n in enumerate(x.shape) if n == 1 and wide.shape[i + lead] != 1)
    return np.array(wide), np.array(wt), lambda g: g.sum(axes, keepdims=True).reshape(x.shape) if axes else g


def _elementwise(of: Callable[[Mapping[str, Any], Array, Array], tuple[Array, Array]]) -> Callable[..., Items]:
    def items(a: Mapping[str, Any], x: Array, targets: Array) -> Items:
        wide, t, back = _alike(x, targets, a.get("broadcast", False))
        values, slope = of(a, wide, t)
        return Items(values, lambda share: back(share * slope))

    return items


def _mse(a: Mapping[str, Any], x: Array, t: Array) -> tuple[Array, Array]:
    return (x - t) ** 2, 2 * (x - t)


def _mae(a: Mapping[str, Any], x: Array, t: Array) -> tuple[Array, Array]:
    return np.abs(x - t), np.sign(x - t)


def _huber(a: Mapping[str, Any], x: Array, t: Array) -> tuple[Array, Array]:
    delta, d = float(a["delta"]), x - t
    inside = np.abs(d) <= delta
    values = np.where(inside, 0.5 * d**2, delta * (np.abs(d) - 0.5 * delta))
    return values, np.where(inside, d, delta * np.sign(d))


def _smooth_l1(a: Mapping[str, Any], x: Array, t: Array) -> tuple[Array, Array]:
    beta, d = float(a["beta"]), x - t
    if beta == 0:
        return np.abs(d), np.sign(d)
    inside = np.abs(d) < beta
    values = np.where(inside, 0.5 * d**2 / beta, np.abs(d) - 0.5 * beta)
    return values, np.where(inside, d / beta, np.sign(d))


def _log_cosh(a: Mapping[str, Any], x: Array, t: Array) -> tuple[Array, Array]:
    d = x - t
    return d + np.logaddexp(0.0, -2 * d) - np.log(2.0), np.tanh(d)


def _hinge(a: Mapping[str, Any], x: Array, t: Array) -> tuple[Array, Array]:
    sign = 2 * t - 1 if np.isin(t, (0, 1)).all() else t  # Keras takes 0/1 as -1/1, where there is nothing else
    margin = 1 - sign * x
    return np.maximum(margin, 0.0), np.where(margin > 0, -sign, 0.0)


def _poisson(a: Mapping[str, Any], x: Array, t: Array) -> tuple[Array, Array]:
    if a["log_input"]:
        return np.exp(x) - t * x, np.exp(x) - t
    e = float(a["epsilon"])
    return x - t * np.log(x + e), 1 - t / (x + e)


def _kl(a: Mapping[str, Any], x: Array, targets: Array) -> Items:
    """sum t (log t - log x) over the last axis; ``from_logs``: x is log-probabilities already (torch)."""
    t = np.asarray(targets, np.float64)
    if a["log_target"]:
        t = np.exp(t)
    if a["from_logs"]:
        values, slope = np.where(t > 0, t * (np.log(np.where(t > 0, t, 1.0)) - x), 0.0), -t
    else:
        e = float(a["epsilon"])
        p, tt = np.clip(x, e, 1.0), np.clip(t, e, 1.0)
        values, slope = tt * np.log(tt / p), np.where((x >= e) & (x <= 1), -tt / p, 0.0)
    return Items(values, lambda share: share * slope)


def _cosine(a: Mapping[str, Any], x: Array, targets: Array) -> Items:
    axis, e = int(a["axis"]), 1e-12
    t = np.asarray(targets, np.float64)
    size = np.sqrt(np.maximum((x**2).sum(axis, keepdims=True), e))
    unit = t / np.sqrt(np.maximum((t**2).sum(axis, keepdims=True), e))
    cosine = (x / size * unit).sum(axis)
    slope = (unit - np.expand_dims(cosine, axis) * x / size) / size
    sign = float(a["sign"])
    return Items(float(a["offset"]) + sign * cosine, lambda share: np.expand_dims(share, axis) * sign * slope)


_ITEMS: dict[str, Callable[..., Items]] = {
    "MSE": _elementwise(_mse),
    "MAE": _elementwise(_mae),
    "Huber": _elementwise(_huber),
    "SmoothL1": _elementwise(_smooth_l1),
    "LogCosh": _elementwise(_log_cosh),
    "Hinge": _elementwise(_hinge),
    "Poisson": _elementwise(_poisson),
    "KLDiv": _kl,
    "CosineLoss": _cosine,
}


def _classes(of: Callable[..., class_losses.Found]) -> Callable[..., Items]:
    return lambda a, x, t: Items(*of(a, x, t))


for _op, _of in class_losses.ITEMS.items():
    _ITEMS[_op] = _classes(_of)
