"""Padding, pooling, cropping and resizing over Keras tensors, with the settings of ONNX that Keras layers lack."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from keras import ops

from ambidex.core.ops import same_pads
from ambidex.core.types import Array
from ambidex.errors import UnsupportedError


def spatial_axes(n: int, data_format: str | None) -> list[int]:
    """The numbers of ``n`` spatial axes."""
    first = 2 if data_format == "channels_first" else 1
    return list(range(first, first + n))


def pad(x: Any, axes: Sequence[int], pads: Sequence[int], mode: str = "constant", value: float = 0.0) -> Any:
    """``pads`` begin..., end... over ``axes``; negative ones cut off."""
    n = len(axes)
    x = crop(x, axes, [(max(-pads[i], 0), max(-pads[n + i], 0)) for i in range(n)])
    if mode == "constant":
        width = [[0, 0] for _ in x.shape]
        for i, axis in enumerate(axes):
            width[axis] = [max(pads[i], 0), max(pads[n + i], 0)]
        return ops.pad(x, width, constant_values=value) if any(map(any, width)) else x
    for i, axis in enumerate(axes):
        around = (max(pads[i], 0), max(pads[n + i], 0))
        if any(around):
            index = np.pad(np.arange(x.shape[axis]), around, mode=mode)  # type: ignore[call-overload]
            x = ops.take(x, index, axis=axis)
    return x


def crop(x: Any, axes: Sequence[int], amounts: Sequence[tuple[int, int]]) -> Any:
    """Cut (begin, end) off each of ``axes``."""
    index = [slice(None)] * len(x.shape)
    for axis, (begin, end) in zip(axes, amounts, strict=True):
        index[axis] = slice(begin, x.shape[axis] - end)
    return x[tuple(index)]


def _resolved(x: Any, axes: Sequence[int], attrs: Mapping[str, Any]) -> list[int]:
    auto = attrs["auto_pad"]
    if auto == "VALID":
        return [0] * (2 * len(axes))
    if auto == "NOTSET":
        return list(attrs["pads"])
    size = [int(x.shape[a]) for a in axes]
    return same_pads(size, attrs["kernel_shape"], attrs["strides"], attrs["dilations"], auto == "SAME_LOWER")


def pad_window(x: Any, axes: Sequence[int], attrs: Mapping[str, Any]) -> Any:
    """The input of a convolution, padded as its attributes say."""
    return pad(x, axes, _resolved(x, axes, attrs), attrs.get("pad_mode", "constant"))


def _ceil_rest(n: int, k: int, s: int, begin: int, end: int) -> int:
    """What ceil mode needs at the end; the last window has to start inside the input or its left padding."""
    count = -(-(n + begin + end - k) // s) + 1
    if (count - 1) * s >= n + begin:
        count -= 1
    return max((count - 1) * s + k - (n + begin + end), 0)


def pool(x: Any, axes: Sequence[int], attrs: Mapping[str, Any], mode: str, data_format: str) -> Any:
    """A max or average pool with any pads, ceil mode and way of counting the padding."""
    n = len(axes)
    kernel, strides = tuple(attrs["kernel_shape"]), tuple(attrs["strides"])
    pads = _resolved(x, axes, attrs)
    rest = [0] * n
    if attrs["ceil_mode"]:
        rest = [_ceil_rest(int(x.shape[a]), kernel[i], strides[i], pads[i], pads[n + i]) for i, a in enumerate(axes)]
    beyond = [0] * n + rest
    if mode == "max":
        padded = pad(pad(x, axes, pads, value=-math.inf), axes, beyond, value=-math.inf)
        return ops.max_pool(padded, kernel, strides, "valid", data_format)

    def mean(values: Any, border: float) -> Any:
        values = pad(pad(values, axes, pads, value=border), axes, beyond)
        return ops.average_pool(values, kernel, strides, "valid", data_format)

    counted = mean(ops.ones_like(x), 1.0 if attrs["count_include_pad"] else 0.0)
    return mean(x, 0.0) / counted


# ---------------------------------------------------------------- resize


def _coordinates(how: str, n: int, m: int, scale: float) -> Array:
    at = np.arange(m, dtype="float64")
    match how:
        case "align_corners":
            return at * (n - 1) / (m - 1) if m > 1 else np.zeros(m)
        case "asymmetric":
            return at / scale
        case "half_pixel":
            return (at + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            return (at + 0.5) / scale - 0.5 if m > 1 else np.zeros(m)
    raise UnsupportedError(f"resize coordinates {how!r} cannot be put into a Keras layer")


def matrix(attrs: Mapping[str, Any], n: int, m: int, scale: float) -> Array:
    """(m, n): how each of ``m`` outputs is made of ``n`` inputs."""
    at = np.round(_coordinates(attrs["coordinate_transformation_mode"], n, m, scale), 9)
    made = np.zeros((m, n))
    rows = np.arange(m)
    if attrs["mode"] == "nearest":
        rounded = {
            "floor": np.floor(at),
            "ceil": np.ceil(at),
            "round_prefer_floor": np.ceil(at - 0.5),
            "round_prefer_ceil": np.floor(at + 0.5),
        }[attrs["nearest_mode"]]
        made[rows, np.clip(rounded, 0, n - 1).astype(int)] = 1.0
        return made
    first = np.floor(at).astype(int)
    if attrs.get("coordinate_steps") and attrs["mode"] == "cubic":
        at = first + np.rint((at - first) * attrs["coordinate_steps"]) / attrs["coordinate_steps"]
    if attrs["mode"] == "linear":
        taps = [(first, 1 - (at - first)), (first + 1, at - first)]
    else:
        a = float(attrs.get("cubic_coeff_a", -0.75))
        taps = []
        for k in range(-1, 3):
            t = np.abs(at - (first + k))
            near = (a + 2) * t**3 - (a + 3) * t**2 + 1
            far = a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a
            taps.append((first + k, np.where(t <= 1, near, np.where(t < 2, far, 0.0))))
    for cell, weight in taps:
        inside = (cell >= 0) & (cell < n)
        if attrs.get("exclude_outside"):
            weight = np.where(inside, weight, 0.0)
        np.add.at(made, (rows, np.clip(cell, 0, n - 1)), weight)
    return made / made.sum(1, keepdims=True) if attrs.get("exclude_outside") else made


def resize(x: Any, axes: Sequence[int], attrs: Mapping[str, Any]) -> Any:
    """ONNX Resize over ``axes``, one matrix an axis."""
    for i, axis in enumerate(axes):
        n = int(x.shape[axis])
        if attrs.get("sizes") is not None:
            m = int(attrs["sizes"][i])
            scale = m / n
        else:
            scale = float(attrs["scales"][i])
            m = math.floor(n * scale)
        weight = ops.cast(ops.convert_to_tensor(matrix(attrs, n, m, scale)), x.dtype)
        x = ops.moveaxis(ops.tensordot(x, weight, axes=[[axis], [1]]), -1, axis)
    return x
