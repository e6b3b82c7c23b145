"""Paddings of convolutions and pools, in words and as code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ambidex.core.rule import Cause


def is_same(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("SAME")


def dims(cause: Cause) -> int:
    """The number of spatial axes: from a list of pads, else from the class's name, else two."""
    for value in (cause.reference, cause.candidate):
        if isinstance(value, Sequence) and not isinstance(value, str) and len(value) >= 2:
            return len(value) // 2 if cause.name in {"pads", "auto_pad"} else len(value)
    found = [int(ch) for ch in cause.candidate_cls if ch in "123"]
    return found[0] if found else 2


def in_words(value: Any) -> str:
    """A padding: 'same', 'valid', or how much before and after each axis."""
    if is_same(value):
        return "'same' (as much as needed, an odd rest at the end: it depends on the input's size)"
    if value in {"VALID"} if isinstance(value, str) else not any(_pads(value)):
        return "no padding"
    pads = _pads(value)
    n = len(pads) // 2
    if n and pads[:n] == pads[n:]:
        return f"{pads[0] if len(set(pads)) == 1 else tuple(pads[:n])} on both sides"
    return f"{tuple(pads[:n])} before and {tuple(pads[n:])} after"


def _pads(value: Any) -> list[int]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [int(v) for v in value] * (2 if len(value) == 1 else 1)
    return [int(value or 0)] * 2 if not isinstance(value, str) else [0, 0]


def setting(cause: Cause, name: str) -> list[int]:
    """One per-axis attribute of the reference, as far as the cause tells it."""
    attrs = cause.detail.get("reference_attrs", {})
    value = attrs.get(name, 1)
    n = dims(cause)
    return [int(v) for v in value] if isinstance(value, Sequence) else [int(value)] * n


def keras_padding(value: Any) -> str:
    """The argument of ZeroPadding for these pads: 1, (1, 2) or ((0, 1), (0, 1)); of one axis: 1 or (0, 1)."""
    pads = _pads(value)
    n = len(pads) // 2
    if len(set(pads)) == 1:
        return str(pads[0])
    pairs = [(pads[i], pads[n + i]) for i in range(n)]
    if n == 1:
        return str(pairs[0])
    return str(tuple(p[0] for p in pairs)) if all(a == b for a, b in pairs) else str(tuple(pairs))


def torch_padding(value: Any) -> str:
    """The list of F.pad for these pads: last axis first, before and after."""
    pads = _pads(value)
    n = len(pads) // 2
    return "(" + ", ".join(f"{pads[i]}, {pads[n + i]}" for i in reversed(range(n))) + ")"


def symmetric(value: Any) -> bool:
    pads = _pads(value)
    n = len(pads) // 2
    return not isinstance(value, str) and pads[:n] == pads[n:]


def torch_same(cause: Cause, value: str = "") -> str:
    """F.pad as TensorFlow's 'same' pads, for whatever size comes in."""
    n, strides, dilations = dims(cause), setting(cause, "strides"), setting(cause, "dilations")
    kernels = setting(cause, "kernel_shape")
    known = "kernel_shape" in cause.detail.get("reference_attrs", {})
    lines = []
    for i in reversed(range(n)):
        s, d = strides[i % len(strides)], dilations[i % len(dilations)]
        k = str((kernels[i % len(kernels)] - 1) * d + 1) if known else f"{d} * (k - 1) + 1" if d > 1 else "k"
        lines.append(f"max((-(-x.shape[{i - n}] // {s}) - 1) * {s} + {k} - x.shape[{i - n}], 0)")
    fill = f", value={value}" if value else ""
    return f"pads = [p for t in ({', '.join(lines)},) for p in (t // 2, t - t // 2)]; x = F.pad(x, pads{fill})"
