"""Convolution, transposed convolution, pooling, padding and resizing in float64.

All arrays are channels first (N, C, *spatial). Every window operation loops over the positions of the kernel and
works on whole strided slices, so that memory stays near the size of the output. ONNX's own evaluators give the same
values (the tests say so) but loop over single pixels in Python.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ambidex.core.ops import per_axis, resolved_pads
from ambidex.core.types import Array
from ambidex.errors import InputError

Attrs = Mapping[str, Any]
Handler = Callable[[Attrs, Mapping[str, Array], Sequence[Array]], list[Array]]


def _pairs(pads: Sequence[int]) -> list[tuple[int, int]]:
    n = len(pads) // 2
    return list(zip(pads[:n], pads[n:], strict=True))


def padded(x: Array, pads: Sequence[int], mode: str = "constant", value: float = 0.0) -> Array:
    """Pad the spatial axes (all but the first two); a negative pad cuts off."""
    pairs = _pairs(pads)
    cut = tuple(slice(max(-lo, 0), n - max(-hi, 0)) for n, (lo, hi) in zip(x.shape[2:], pairs, strict=True))
    x = x[(slice(None), slice(None), *cut)]
    width = [(0, 0), (0, 0), *((max(lo, 0), max(hi, 0)) for lo, hi in pairs)]
    if not any(map(any, width)):
        return x
    if mode == "constant":
        return np.pad(x, width, constant_values=value)
    return np.pad(x, width, mode=mode)  # type: ignore[call-overload]


def _positions(kernel: Sequence[int], out: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Any:
    """For every kernel position: its index, and the slices of the padded input that it sees, over all outputs."""
    for at in itertools.product(*map(range, kernel)):
        yield (
            at,
            tuple(
                slice(p * d, p * d + (n - 1) * s + 1, s) for p, n, s, d in zip(at, out, strides, dilations, strict=True)
            ),
        )


def conv(attrs: Attrs, w: Mapping[str, Array], xs: Sequence[Array]) -> list[Array]:
    """ONNX Conv, with other ways to fill the border (``pad_mode``)."""
    x = xs[0]
    weight, bias = w["W"], w.get("B")
    kernel = weight.shape[2:]
    n = len(kernel)
    single = x.ndim == n + 1
    x = x[None] if single else x
    strides, dilations = per_axis(attrs.get("strides", 1), n), per_axis(attrs.get("dilations", 1), n)
    group = int(attrs.get("group", 1))
    pads = resolved_pads(attrs, x.shape[2:], kernel)
    assert pads is not None
    x = padded(x, pads, attrs.get("pad_mode", "constant"))
    out = [
        (size - (k - 1) * d - 1) // s + 1 for size, k, s, d in zip(x.shape[2:], kernel, strides, dilations, strict=True)
    ]
    if x.shape[1] != weight.shape[1] * group or min(out) < 0:
        raise InputError(f"Conv with weight {weight.shape} and group {group} cannot take an input of shape {x.shape}")
    batch, rows = x.shape[0], math.prod(out)
    kernels = weight.reshape(group, weight.shape[0] // group, weight.shape[1], *kernel)
    y = np.zeros((batch, group, weight.shape[0] // group, rows))
    for at, cut in _positions(kernel, out, strides, dilations):
        seen = x[(slice(None), slice(None), *cut)].reshape(batch, group, -1, rows)
        y += np.matmul(kernels[(slice(None),) * 3 + at], seen)
    y = y.reshape(batch, -1, *out)
    if bias is not None:
        y = y + bias.reshape(-1, *[1] * n)
    return [y[0] if single else y]


def conv_transpose(attrs: Attrs, w: Mapping[str, Array], xs: Sequence[Array]) -> list[Array]:
    """ONNX ConvTranspose. SAME crops as TensorFlow does: output n * stride, from (k - s) // 2 of the full result."""
    x = xs[0]
    weight, bias = w["W"], w.get("B")
    kernel = weight.shape[2:]
    n = len(kernel)
    single = x.ndim == n + 1
    x = x[None] if single else x
    strides, dilations = per_axis(attrs.get("strides", 1), n), per_axis(attrs.get("dilations", 1), n)
    extra = per_axis(attrs.get("output_padding", 0), n)
    group = int(attrs.get("group", 1))
    size = x.shape[2:]
    full = [(m - 1) * s + (k - 1) * d + 1 for m, s, k, d in zip(size, strides, kernel, dilations, strict=True)]
    batch, count = x.shape[0], math.prod(size)
    kernels = weight.reshape(group, weight.shape[0] // group, weight.shape[1], *kernel)
    y = np.zeros((batch, group * weight.shape[1], *full))
    flat = x.reshape(batch, group, -1, count)
    for at, _ in _positions(kernel, size, strides, dilations):
        # here the roles are swapped: a position of the kernel scatters every input into a strided slice
        part = np.matmul(kernels[(slice(None),) * 3 + at].transpose(0, 2, 1), flat)
        where = tuple(
            slice(p * d, p * d + (m - 1) * s + 1, s) for p, m, s, d in zip(at, size, strides, dilations, strict=True)
        )
        y[(slice(None), slice(None), *where)] += part.reshape(batch, -1, *size)
    auto = attrs.get("auto_pad", "NOTSET") or "NOTSET"
    wanted = attrs.get("output_shape")
    if auto.startswith("SAME") or wanted is not None:
        target = list(wanted) if wanted is not None else [m * s for m, s in zip(size, strides, strict=True)]
        total = [max(f + e - t, 0) for f, e, t in zip(full, extra, target, strict=True)]
        begin = [t - t // 2 if auto == "SAME_LOWER" else t // 2 for t in total]
    else:
        pads = [0] * (2 * n) if auto == "VALID" else per_axis(attrs.get("pads", 0), 2 * n)
        begin = pads[:n]
        target = [f + e - lo - hi for f, e, lo, hi in zip(full, extra, pads[:n], pads[n:], strict=True)]
    end = [b + t - f for b, t, f in zip(begin, target, full, strict=True)]
    y = padded(y, [-b for b in begin] + end)
    if bias is not None:
        y = y + bias.reshape(-1, *[1] * n)
    return [y[0] if single else y]


def _pool_plan(attrs: Attrs, size: Sequence[int]) -> tuple[list[int], ...]:
    """kernel, strides, dilations, pads, output size, and what ceil_mode needs beyond the padded input."""
    n = len(size)
    kernel = per_axis(attrs["kernel_shape"], n)
    strides, dilations = per_axis(attrs.get("strides") or 1, n), per_axis(attrs.get("dilations", 1), n)
    pads = resolved_pads({**attrs, "strides": strides}, size, kernel)
    assert pads is not None
    out, beyond = [], []
    for i, m in enumerate(size):
        span = m + pads[i] + pads[n + i] - dilations[i] * (kernel[i] - 1) - 1
        count = (-(-span // strides[i]) if attrs.get("ceil_mode") else span // strides[i]) + 1
        if attrs.get("ceil_mode") and (count - 1) * strides[i] >= m + pads[i]:
            count -= 1  # the last window has to start inside the input or its left padding
        out.append(count)
        need = (count - 1) * strides[i] + dilations[i] * (kernel[i] - 1) + 1
        beyond.append(max(need - m - pads[i] - pads[n + i], 0))
    return kernel, strides, dilations, pads, out, beyond


def _batched(fn: Callable[[Attrs, Array, int], Array]) -> Handler:
    """Give a pool a batch axis when it comes without one (rank known from the kernel)."""

    def run(attrs: Attrs, w: Mapping[str, Array], xs: Sequence[Array]) -> list[Array]:
        x = xs[0]
        shape = attrs.get("kernel_shape", attrs.get("output_size"))
        n = len(shape) if isinstance(shape, Sequence) else x.ndim - 2
        single = x.ndim == n + 1
        y = fn(attrs, x[None] if single else x, n)
        return [y[0] if single else y]

    return run


def _max_pool(attrs: Attrs, x: Array, n: int) -> Array:
    kernel, strides, dilations, pads, out, beyond = _pool_plan(attrs, x.shape[2:])
    x = padded(x.astype(np.float64, copy=False), pads, value=-np.inf)
    x = padded(x, [0] * n + beyond, value=-np.inf)
    y = np.full((*x.shape[:2], *out), -np.inf)
    for _, cut in _positions(kernel, out, strides, dilations):
        y = np.maximum(y, x[(slice(None), slice(None), *cut)])
    return y


def _windowed_sum(x: Array, kernel: list[int], out: list[int], strides: list[int], dilations: list[int]) -> Array:
    y = np.zeros((*x.shape[:2], *out))
    for _, cut in _positions(kernel, out, strides, dilations):
        y += x[(slice(None), slice(None), *cut)]
    return y


def _average_pool(attrs: Attrs, x: Array, n: int) -> Array:
    kernel, strides, dilations, pads, out, beyond = _pool_plan(attrs, x.shape[2:])
    ones = padded(np.ones((1, 1, *x.shape[2:])), pads, value=1.0 if attrs.get("count_include_pad") else 0.0)
    more = [0] * n + beyond  # positions that only ceil_mode adds are never counted
    total = _windowed_sum(padded(padded(x, pads), more), kernel, out, strides, dilations)
    if attrs.get("divisor_override"):
        return total / float(attrs["divisor_override"])
    return total / _windowed_sum(padded(ones, more), kernel, out, strides, dilations)


def _lp_pool(attrs: Attrs, x: Array, n: int) -> Array:
    """(sum |x|^p)^(1/p); ``signed`` (torch) leaves the absolute value out and keeps averages over clipped windows."""
    p = float(attrs.get("p", 2.0))
    if attrs.get("signed"):
        mean = _average_pool({**attrs, "count_include_pad": True}, x**p, n)
        return np.asarray((mean * math.prod(per_axis(attrs["kernel_shape"], n))) ** (1 / p))
    kernel, strides, dilations, pads, out, beyond = _pool_plan(attrs, x.shape[2:])
    x = padded(padded(np.abs(x) ** p, pads), [0] * n + beyond)
    return np.asarray(_windowed_sum(x, kernel, out, strides, dilations) ** (1 / p))


def _adaptive(reduce: Callable[..., Array]) -> Callable[[Attrs, Array, int], Array]:
    def run(attrs: Attrs, x: Array, n: int) -> Array:
        sizes = attrs["output_size"]
        sizes = [sizes] * n if isinstance(sizes, int) or sizes is None else list(sizes)
        for i, m in enumerate(sizes):
            axis = i - n
            size = x.shape[axis]
            m = size if m is None else int(m)
            cuts = [range(j * size // m, -(-(j + 1) * size // m)) for j in range(m)]
            x = np.stack([reduce(np.take(x, cut, axis=axis), axis=axis) for cut in cuts], axis=axis)
        return x

    return run


def _global(reduce: Callable[..., Array]) -> Handler:
    """Over all spatial axes. A boolean second input (N, T) leaves masked steps of a sequence out."""

    def run(attrs: Attrs, w: Mapping[str, Array], xs: Sequence[Array]) -> list[Array]:
        x = xs[0]
        axes = tuple(range(2, x.ndim))
        keep = bool(attrs.get("keepdims", True))
        if len(xs) > 1 and reduce is np.mean:
            mask = xs[1].astype(np.float64)[:, None]
            return [np.asarray((x * mask).sum(axes, keepdims=keep) / mask.sum(-1, keepdims=keep))]
        return [np.asarray(reduce(x, axis=axes, keepdims=keep))]

    return run


def pad(attrs: Attrs, w: Mapping[str, Array], xs: Sequence[Array]) -> list[Array]:
    """Pads over the last axes of the input (as many as ``pads`` names)."""
    x = xs[0]
    given = attrs["pads"]
    pads = [int(v) for v in given] if isinstance(given, Sequence) else [int(given)] * (2 * (x.ndim - 2))
    n = len(pads) // 2
    lead = x.shape[: x.ndim - n]
    y = padded(
        x.reshape(1, math.prod(lead), *x.shape[x.ndim - n :]),
        pads,
        attrs.get("mode", "constant"),
        attrs.get("value") or 0.0,
    )
    return [y.reshape(*lead, *y.shape[2:])]


OPS: dict[str, Handler] = {
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "MaxPool": _batched(_max_pool),
    "AveragePool": _batched(_average_pool),
    "LpPool": _batched(_lp_pool),
    "AdaptiveAveragePool": _batched(_adaptive(np.mean)),
    "AdaptiveMaxPool": _batched(_adaptive(np.max)),
    "GlobalAveragePool": _global(np.mean),
    "GlobalMaxPool": _global(np.max),
    "Pad": pad,
}
