"""Round-off floors: how far two correct float32 computations of one thing may be apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ambidex.core.types import Array, Call

EPS32 = float(np.finfo(np.float32).eps)

#: shadow / floor above this is a fault. Two right float32 results differ by at most the sum of their own errors
#: (2 floors when both are known); the factor leaves room for floors known from one side only.
RATIO = 10.0


#: what an operator may round to when float64 could be had on neither side, in units of the largest value's last place
UNMEASURED = 64.0


def wide(values: Array) -> Array:
    """The values in double precision; complex ones stay complex."""
    return values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)


def unmeasured(values: Array) -> float:
    """A wide floor for a call whose own round-off could not be measured: rather miss a small fault than accuse."""
    return UNMEASURED * least(values)


def unit(meta: Mapping[str, Any]) -> float:
    """The unit in the last place of 1 that a side computes with: wider than float32 where it has half precision."""
    return max(EPS32, float(meta.get("eps", EPS32)))


def least(values: Array, eps: float = EPS32) -> float:
    """The smallest floor that makes sense for values of this size: half a unit in the last place of the largest."""
    if values.size == 0 or values.dtype == bool:
        return 0.0
    return 0.5 * eps * max(largest(values), 1e-30)


def largest(values: Array) -> float:
    """The largest finite absolute value."""
    if values.dtype.kind == "f":
        ends = (float(values.min()), float(values.max()))  # NaN if there is any
        if np.isfinite(ends).all():
            return max(abs(ends[0]), abs(ends[1]))
        values = values[np.isfinite(values)]
    return float(np.abs(values).max()) if values.size else 0.0


def of_call(call: Call, number: int = 0) -> float | None:
    """|float32 - float64| of one output of a call, None when float64 could not be had."""
    if call.floors is None:
        call.floors = [_of_output(call, n) for n in range(len(call.computed))]
    return call.floors[number] if number < len(call.floors) else None


#: a float32 result further from float64 than this share of its largest value is no rounding any more: the code itself
#: loses the digits (1e9 added to scores), and that must not hide its faults
BREAKDOWN = 1e-3


def within(call: Call, number: int, eps: float) -> float | None:
    """``of_call``, but no larger than what rounding explains. ``eps``: the unit that the side computes with."""
    found = of_call(call, number)
    if found is None or number >= len(call.computed):
        return found
    return min(
        found, max(BREAKDOWN, UNMEASURED * eps if eps > EPS32 else 0.0) * max(largest(call.computed[number]), 1e-30)
    )


def keep_only(calls: Iterable[Call]) -> None:
    """Find all floors and let the float64 arrays go: they are twice the size of what was recorded."""
    for call in calls:
        of_call(call)
        call.exact = None


def _of_output(call: Call, number: int) -> float | None:
    if call.exact is None or number >= len(call.exact):
        return None
    a, b = call.computed[number], call.exact[number]
    if a.shape != b.shape or a.dtype == bool:
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        d = np.abs(wide(a) - b)
    worst = float(d.max()) if d.size else 0.0
    if not np.isfinite(worst):
        d = d[np.isfinite(d)]
        worst = float(d.max()) if d.size else 0.0
    return max(worst, least(a))
