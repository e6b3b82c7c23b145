"""Resize in float64: one small matrix an axis, applied axis by axis.

Sources: the coordinate transformations of the ONNX Resize page; torch ``UpSampleKernel.cpp`` for the antialiased
window; TensorFlow ``ScaleAndTranslate`` for the rule that weights outside the image are left out and the rest
divided by its sum (``exclude_outside``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ambidex.core.types import Array
from ambidex.errors import UnsupportedError

Attrs = Mapping[str, Any]
_RADIUS = {"linear": 1.0, "cubic": 2.0, "lanczos3": 3.0, "lanczos5": 5.0}


def _filter(mode: str, t: Array, a: float) -> Array:
    t = np.abs(t)
    if mode == "linear":
        return np.maximum(1 - t, 0)
    if mode == "cubic":
        near = ((a + 2) * t - (a + 3)) * t * t + 1
        far = a * (((t - 5) * t + 8) * t - 4)
        return np.where(t <= 1, near, np.where(t < 2, far, 0.0))
    r = _RADIUS[mode]
    return np.where(t < r, np.sinc(t) * np.sinc(t / r), 0.0)


def _coordinates(how: str, n: int, m: int, scale: float) -> Array:
    """Where each of ``m`` output positions lies on the ``n`` input positions."""
    x = np.arange(m, dtype=np.float64)
    if how == "align_corners":
        return x * (n - 1) / (m - 1) if m > 1 else np.zeros(m)
    if how == "asymmetric":
        return x / scale
    if how == "pytorch_half_pixel":
        return (x + 0.5) / scale - 0.5 if m > 1 else np.zeros(m)
    if how == "half_pixel":
        return (x + 0.5) / scale - 0.5
    if how == "half_pixel_symmetric":
        return n / 2 * (1 - m / (scale * n)) + (x + 0.5) / scale - 0.5
    if how == "tf_half_pixel_for_nn":
        return (x + 0.5) / scale
    raise UnsupportedError(f"Resize with coordinate_transformation_mode {how!r} has no reference")


def _nearest(attrs: Attrs, n: int, m: int, scale: float) -> Array:
    x = _coordinates(attrs.get("coordinate_transformation_mode", "half_pixel"), n, m, scale)
    x = np.round(x, 9)  # the coordinate is a fraction of small integers: no rounding error may move it over an edge
    how = attrs.get("nearest_mode", "round_prefer_floor")
    rounding: dict[str, Callable[[Array], Array]] = {
        "floor": np.floor,
        "ceil": np.ceil,
        "round_prefer_floor": lambda v: np.ceil(v - 0.5),
        "round_prefer_ceil": lambda v: np.floor(v + 0.5),
    }
    index = rounding[how](x)
    matrix = np.zeros((m, n))
    matrix[np.arange(m), np.clip(index, 0, n - 1).astype(int)] = 1
    return matrix


def _area(attrs: Attrs, n: int, m: int) -> Array:
    """torch: the mean over the touched pixels (adaptive pooling); TensorFlow ("asymmetric"): weighted by overlap."""
    matrix = np.zeros((m, n))
    exact = attrs.get("coordinate_transformation_mode") == "asymmetric"
    for i in range(m):
        low, high = i * n / m, (i + 1) * n / m
        for j in range(i * n // m, -(-(i + 1) * n // m)):
            matrix[i, j] = min(high, j + 1) - max(low, j) if exact else 1.0
    return matrix / matrix.sum(1, keepdims=True)


def _matrix(attrs: Attrs, n: int, m: int, scale: float) -> Array:
    mode = attrs.get("mode", "nearest")
    if mode == "nearest":
        return _nearest(attrs, n, m, scale)
    if mode == "area":
        return _area(attrs, n, m)
    if mode not in _RADIUS:
        raise UnsupportedError(f"Resize mode {mode!r} has no reference")
    a, radius = float(attrs.get("cubic_coeff_a", -0.75)), _RADIUS[mode]
    x = _coordinates(attrs.get("coordinate_transformation_mode", "half_pixel"), n, m, scale)
    matrix = np.zeros((m, n))
    if attrs.get("antialias"):
        wide = max(1 / scale, 1.0)
        for i, at in enumerate(x):
            low = max(math.floor(at + 1 - radius * wide), 0)
            cells = np.arange(low, min(math.floor(at + 1 + radius * wide), n))
            weights = _filter(mode, (cells - at) / wide, a)
            matrix[i, cells] = weights / weights.sum()
        return matrix
    for i, at in enumerate(x):
        first = math.floor(at) - int(radius) + 1
        cells = np.arange(first, first + 2 * int(radius))
        part = at - math.floor(at)
        if attrs.get("coefficient_steps"):  # TensorFlow's bicubic without antialias looks its weights up in a table
            part = np.rint(part * int(attrs["coefficient_steps"])) / int(attrs["coefficient_steps"])
        weights = _filter(mode, cells - (math.floor(at) + part), a)
        if attrs.get("exclude_outside") or mode.startswith("lanczos"):  # only TensorFlow has Lanczos
            weights = np.where((cells >= 0) & (cells < n), weights, 0.0)
            weights = weights / weights.sum()
        np.add.at(matrix[i], np.clip(cells, 0, n - 1), weights)  # the border pixel stands for what lies outside
    return matrix


def resize(attrs: Attrs, w: Mapping[str, Array], xs: Sequence[Array]) -> list[Array]:
    """Over the spatial axes of (N, C, *spatial). ``sizes`` or ``scales``: a number an axis; scales are used as
    given, not recomputed from the rounded output size (unless ``recompute``)."""
    y = xs[0]
    n = y.ndim - 2
    sizes, scales = attrs.get("sizes"), attrs.get("scales")
    if sizes is not None:
        sizes = [int(sizes)] * n if isinstance(sizes, int) else list(sizes)[-n:]
    if scales is not None:
        scales = [float(scales)] * n if isinstance(scales, int | float) else list(scales)[-n:]
    for i in range(n):
        size = y.shape[2 + i]
        out = int(sizes[i]) if sizes is not None else math.floor(size * scales[i])  # type: ignore[index]
        scale = float(scales[i]) if scales is not None and not attrs.get("recompute") else out / size
        y = np.moveaxis(np.tensordot(_matrix(attrs, size, out, scale), y, axes=(1, 2 + i)), 0, 2 + i)
    return [y]
