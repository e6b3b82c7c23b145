"""Round-off floors: how far two correct float32 computations of one thing may be apart."""

from __future__ import annotations

import numpy as np

from ambidex.core.types import Array, Call

EPS32 = float(np.finfo(np.float32).eps)

#: shadow / floor above this is a fault. Two right float32 results differ by at most the sum of their own errors
#: (2 floors when both are known); the factor leaves room for floors known from one side only.
RATIO = 10.0


def least(values: Array) -> float:
    """The smallest floor that makes sense for values of this size: half a unit in the last place of the largest."""
    if values.size == 0 or values.dtype == bool:
        return 0.0
    finite = values[np.isfinite(values)] if not np.isfinite(values).all() else values
    return 0.5 * EPS32 * max(float(np.abs(finite).max()) if finite.size else 0.0, 1e-30)


def of_call(call: Call, number: int = 0) -> float | None:
    """|float32 - float64| of one output of a call, None when float64 could not be had."""
    if call.exact is None or number >= len(call.exact) or number >= len(call.computed):
        return None
    a, b = call.computed[number], call.exact[number]
    if a.shape != b.shape or a.dtype == bool:
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        d = np.abs(a.astype(np.float64) - b)
    d = d[np.isfinite(d)]
    return max(float(d.max()) if d.size else 0.0, least(a))
