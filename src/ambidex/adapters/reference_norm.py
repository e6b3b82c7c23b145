"""Normalisations, activations and attention in float64.

Own formulas, because the evaluators of ONNX cannot be used here: float attributes of an ONNX node are float32 (an
epsilon of 1e-5 or a slope of 0.01 would carry an error of 1e-8), and LayerNormalization, RMSNormalization and
GroupNormalization cast to float32 on the way (``stash_type``); its LRN counts samples for channels (onnx 1.23).
The formulas are those of the ONNX operator pages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import special

from ambidex.core.types import Array

Attrs = Mapping[str, Any]
Handler = Callable[[Attrs, Mapping[str, Array], Sequence[Array]], list[Array]]


def _affine(y: Array, w: Mapping[str, Array], shape: Sequence[int] | None = None) -> Array:
    scale, bias = w.get("scale"), w.get("B")
    if scale is not None:
        y = y * (scale if shape is None else scale.reshape(shape))
    if bias is not None:
        y = y + (bias if shape is None else bias.reshape(shape))
    return y


def _channels(x: Array) -> list[int]:
    return [1, -1, *[1] * (x.ndim - 2)]


def _deviation(attrs: Attrs, var: Array) -> Array:
    """What a norm divides by; ``epsilon_outside`` describes a hand-written variant."""
    eps = float(attrs.get("epsilon", 1e-5))
    return np.asarray(np.sqrt(var) + eps if attrs.get("epsilon_outside") else np.sqrt(var + eps))


def batch_norm(attrs: Attrs, w: Mapping[str, Array], xs: Sequence[Array]) -> list[Array]:
    """With ``training_mode`` (or without running statistics) over the batch; then also the new running statistics."""
    x, shape = xs[0], _channels(xs[0])
    if not attrs.get("training_mode") and "mean" in w:
        y = (x - w["mean"].reshape(shape)) / _deviation(attrs, w["var"].reshape(shape))
        return [_affine(y, w, shape)]
    axes = (0, *range(2, x.ndim))
    mean, var = x.mean(axes), x.var(axes)
    out = [_affine((x - mean.reshape(shape)) / _deviation(attrs, var.reshape(shape)), w, shape)]
    if "mean" in w:
        count = x.size // x.shape[1]
        seen = var * count / (count - 1) if attrs.get("unbiased") and count > 1 else var
        keep = float(attrs.get("momentum", 0.9))
        out += [keep * w["mean"] + (1 - keep) * mean, keep * w["var"] + (1 - keep) * seen]
    return out


def layer_norm(attrs: Attrs, w: Mapping[str, Array], xs: Sequence[Array]) -> list[Array]:
    """Over ``axis`` and all after it. ``correction`` and ``epsilon_outside`` describe hand-written variants."""
    x = xs[0]
    axes = _trailing(attrs, x)
    var = x.var(axes, keepdims=True, ddof=int(attrs.get("correction", 0)))
    return [_affine((x - x.mean(axes, keepdims=True)) / _deviation(attrs, var), w)]


def rms_norm(attrs: Attrs, w: Mapping[str, Array], xs: Sequence[Array]) -> list[Array]:
    x = xs[0]
    return [_affine(x / _deviation(attrs, np.square(x).mean(_trailing(attrs, x), keepdims=True)), w)]


def _trailing(attrs: Attrs, x: Array) -> tuple[int, ...]:
    axis = attrs.get("axis", -1)
    if isinstance(axis, Sequence):
        return tuple(axis)
    return tuple(range(axis if axis < 0 else axis - x.ndim, 0))


def keras_rms_scaling(attrs: Attrs, w: Mapping[str, Array], xs: Sequence[Array]) -> list[Array]:
    """Keras' LayerNormalization(rms_scaling=True): divided by the deviation, but the mean stays in."""
    x = xs[0]
    return [_affine(x / np.sqrt(x.var(_trailing(attrs, x), keepdims=True) + float(attrs.get("epsilon", 1e-5))), w)]


def group_norm(attrs: Attrs, w: Mapping[str, Array], xs: Sequence[Array]) -> list[Array]:
    x = xs[0]
    grouped = x.reshape(x.shape[0], int(attrs["num_groups"]), -1)
    mean = grouped.mean(-1, keepdims=True)
    var = grouped.var(-1, keepdims=True, ddof=int(attrs.get("correction", 0)))
    y = ((grouped - mean) / _deviation(attrs, var)).reshape(x.shape)
    return [_affine(y, w, _channels(x))]


def instance_norm(attrs: Attrs, w: Mapping[str, Array], xs: Sequence[Array]) -> list[Array]:
    """Over the spatial axes of one sample; with running statistics (torch) those are used instead."""
    x, shape = xs[0], _channels(xs[0])
    if "mean" in w:
        return batch_norm(attrs, w, xs)
    axes = tuple(range(2, x.ndim))
    var = x.var(axes, keepdims=True, ddof=int(attrs.get("correction", 0)))
    return [_affine((x - x.mean(axes, keepdims=True)) / _deviation(attrs, var), w, shape)]


def local_response_norm(attrs: Attrs, w: Mapping[str, Array], xs: Sequence[Array]) -> list[Array]:
    """x / (bias + alpha / size * sum of squares over ``size`` channels)^beta; ``before`` of them lie before."""
    x = xs[0]
    size = int(attrs.get("size", 5))
    before = attrs.get("before")
    before = (size - 1) // 2 if before is None else int(before)
    square = np.pad(np.square(x), [(0, 0), (before, size - 1 - before), *[(0, 0)] * (x.ndim - 2)])
    total = sum(square[:, i : i + x.shape[1]] for i in range(size))
    below = float(attrs.get("bias", 1.0)) + float(attrs.get("alpha", 1e-4)) / size * np.asarray(total)
    return [x / below ** float(attrs.get("beta", 0.75))]


def lp_norm(attrs: Attrs, w: Mapping[str, Array], xs: Sequence[Array]) -> list[Array]:
    x, p = xs[0], float(attrs.get("p", 2))
    norm = (np.abs(x) ** p).sum(attrs.get("axis", -1), keepdims=True) ** (1 / p)
    return [x / np.maximum(norm, float(attrs.get("epsilon", 0.0)))]


# ---------------------------------------------------------------------- activations
def softmax(x: Array, axis: int = -1) -> Array:
    shifted = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis, keepdims=True))


def _log_softmax(x: Array, axis: int = -1) -> Array:
    shifted = x - x.max(axis, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis, keepdims=True)))


def _gelu(x: Array, a: Attrs) -> Array:
    if a.get("approximate", "none") == "tanh":
        return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))
    if a.get("approximate") == "sigmoid":  # OpenAI's quick GELU
        return np.asarray(x * special.expit(1.702 * x))
    return np.asarray(0.5 * x * special.erfc(-x / math.sqrt(2)))


def _softplus(x: Array, a: Attrs) -> Array:
    beta, threshold = float(a.get("beta", 1.0)), a.get("threshold")
    y = np.logaddexp(0.0, beta * x) / beta
    return y if threshold is None else np.where(beta * x > float(threshold), x, y)


def _elu(x: Array, a: Attrs) -> Array:
    alpha = float(a.get("alpha", 1.0))
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _celu(x: Array, a: Attrs) -> Array:
    alpha = float(a.get("alpha", 1.0))
    return np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(np.minimum(x, 0) / alpha))


def _selu(x: Array, a: Attrs) -> Array:
    alpha, gamma = float(a.get("alpha", 1.6732632423543772)), float(a.get("gamma", 1.0507009873554805))
    return gamma * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _clip(x: Array, a: Attrs) -> Array:
    low, high = a.get("min"), a.get("max")
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def _glu(x: Array, a: Attrs) -> Array:
    left, right = np.split(x, 2, axis=a.get("axis", -1))
    return np.asarray(left * special.expit(right))


def _shrink(x: Array, a: Attrs) -> Array:
    lambd = float(a.get("lambd", 0.5))
    return np.sign(x) * np.maximum(np.abs(x) - lambd, 0)


ACTIVATIONS: dict[str, Callable[[Array, Attrs], Array]] = {
    "Relu": lambda x, a: np.maximum(x, 0),
    "Sigmoid": lambda x, a: special.expit(x),
    "Tanh": lambda x, a: np.tanh(x),
    "Identity": lambda x, a: x,
    "Softsign": lambda x, a: x / (1 + np.abs(x)),
    "HardSwish": lambda x, a: x * np.clip(x / 6 + 0.5, 0, 1),
    "HardSigmoid": lambda x, a: np.clip(float(a.get("alpha", 0.2)) * x + float(a.get("beta", 0.5)), 0, 1),
    "Swish": lambda x, a: x * special.expit(float(a.get("alpha", 1.0)) * x),
    "Mish": lambda x, a: x * np.tanh(np.logaddexp(0.0, x)),
    "LogSigmoid": lambda x, a: -np.logaddexp(0.0, -x),
    "TanhShrink": lambda x, a: x - np.tanh(x),
    "Gelu": _gelu,
    "Softplus": _softplus,
    "Elu": _elu,
    "Celu": _celu,
    "Selu": _selu,
    "LeakyRelu": lambda x, a: np.where(x >= 0, x, float(a.get("alpha", 0.01)) * x),
    "RRelu": lambda x, a: np.where(x >= 0, x, (float(a.get("lower", 1 / 8)) + float(a.get("upper", 1 / 3))) / 2 * x),
    "ThresholdedRelu": lambda x, a: np.where(x > float(a.get("alpha", 1.0)), x, 0.0),
    "Threshold": lambda x, a: np.where(x > float(a.get("threshold", 0.0)), x, float(a.get("value", 0.0))),
    "HardShrink": lambda x, a: np.where(np.abs(x) > float(a.get("lambd", 0.5)), x, 0.0),
    "SoftShrink": _shrink,
    "Clip": _clip,
    "Glu": _glu,
    "Softmax": lambda x, a: softmax(x, a.get("axis", -1)),
    "LogSoftmax": lambda x, a: _log_softmax(x, a.get("axis", -1)),
    "Softmin": lambda x, a: softmax(-x, a.get("axis", -1)),
    "Dropout": lambda x, a: x,
    "AlphaDropout": lambda x, a: x,
}


def _activation(fn: Callable[[Array, Attrs], Array]) -> Handler:
    return lambda attrs, w, xs: [np.asarray(fn(xs[0], attrs))]


def prelu(attrs: Attrs, w: Mapping[str, Array], xs: Sequence[Array]) -> list[Array]:
    """A slope of one axis belongs to the channels; one of more axes broadcasts from the right (Keras)."""
    x, slope = xs[0], w["slope"]
    if slope.ndim == 1 and slope.size > 1 and x.ndim > 1:
        slope = slope.reshape(_channels(x))
    return [np.where(x >= 0, x, slope * x)]


# ---------------------------------------------------------------------- attention
def attention(attrs: Attrs, w: Mapping[str, Array], xs: Sequence[Array], layout: str = "") -> list[Array]:
    """softmax(scale * q k^T + mask) v over heads.

    ``layout`` BHTD (also the default of rank 4), BTHD, or BTE with ``num_heads``; rank 3 without heads is one head.
    A boolean mask says True = may be seen, any other is added. A rank-3 mask is (B, T, S), but broadcasts as
    it stands in BHTD (and in "" unless only the batch fits). ``softmax_axis`` is an axis of the scores (B, H, T, S).
    """
    q, k, v = xs[:3]
    heads = attrs.get("num_heads")
    flat = q.ndim == 3
    if flat:
        heads = int(heads) if heads and layout != "BTD" else 1
        q, k, v = (t.reshape(*t.shape[:2], heads, -1) for t in (q, k, v))
    if flat or layout == "BTHD":
        q, k, v = (t.swapaxes(1, 2) for t in (q, k, v))
    if k.shape[1] != q.shape[1]:  # grouped queries: every key head serves several query heads
        k, v = (np.repeat(t, q.shape[1] // t.shape[1], axis=1) for t in (k, v))
    scale = attrs.get("scale")
    scores = np.matmul(q, k.swapaxes(-1, -2)) * (1 / math.sqrt(q.shape[-1]) if scale is None else float(scale))
    if attrs.get("softcap"):
        scores = float(attrs["softcap"]) * np.tanh(scores / float(attrs["softcap"]))
    seen = np.ones(scores.shape[-2:], dtype=bool)
    if attrs.get("is_causal"):
        seen = np.tril(seen)
    for mask in xs[3:]:
        per_batch = layout != "BHTD" and (flat or layout == "BTHD" or mask.shape[0] == q.shape[0] != q.shape[1])
        if mask.ndim == 3 and per_batch:
            mask = mask[:, None]
        if mask.dtype == bool:
            seen = seen & mask
        else:
            scores = scores + mask
    scores = np.where(seen, scores, -np.inf)
    axis = int(attrs.get("softmax_axis", -1))
    empty = np.isneginf(scores.max(axis, keepdims=True))
    row = attrs.get("masked_row", "uniform")
    probs = softmax(np.where(empty, 0.0, scores), axis)
    if row != "uniform":
        probs = np.where(empty, 0.0 if row == "zero" else np.nan, probs)
    y = np.matmul(probs, v)
    if flat or layout == "BTHD":
        y = y.swapaxes(1, 2)
    if flat:
        y = y.reshape(*y.shape[:2], -1)
    return [y, probs] if attrs.get("return_weights") else [y]


OPS: dict[str, Handler] = {
    "BatchNormalization": batch_norm,
    "LayerNormalization": layer_norm,
    "LayerNormalizationRmsScaling": keras_rms_scaling,
    "RMSNormalization": rms_norm,
    "GroupNormalization": group_norm,
    "InstanceNormalization": instance_norm,
    "LRN": local_response_norm,
    "LpNormalization": lp_norm,
    "PRelu": prelu,
    **{name: _activation(fn) for name, fn in ACTIVATIONS.items()},
}
