"""Small questions that all promises ask: which calls to try, and whether two arrays are the same or near."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ambidex.core import floor as floors
from ambidex.core.trace import Trace
from ambidex.core.types import Array, Call

#: float32 against float64 of one call: off by more than this share of its size is another computation
LOOSE = 1e-3
#: a call made again on its own inputs: sums may be taken in another order
AGAIN = 1e-5


def some(trace: Trace, fits: Callable[[Call], bool], count: int = 6) -> list[Call]:
    """At most ``count`` calls that fit, spread over the run: the first, the last and some between."""
    found = [c for c in trace.calls if fits(c)]
    if len(found) <= count:
        return found
    places = sorted({round(i * (len(found) - 1) / (count - 1)) for i in range(count)})
    return [found[i] for i in places]


def main_input(call: Call) -> int:
    return next(i for i, a in enumerate(call.inputs) if is_float(a) and call.origins[i][0] != "weight")


def takes_floats(call: Call) -> bool:
    return any(is_float(a) and o[0] != "weight" for a, o in zip(call.inputs, call.origins, strict=True))


def is_float(array: Array) -> bool:
    return array.dtype.kind == "f"


def same(a: Array, b: Array) -> bool:
    return a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f" and b.dtype.kind == "f")


def size(a: Array) -> float:
    return max(floors.largest(a), 1.0) if a.size and a.dtype != bool else 1.0


def apart(a: Array, b: Array) -> float:
    if a.shape != b.shape:
        return float("inf")
    if not a.size:
        return 0.0
    if a.dtype == bool:
        return float(np.any(a != b))
    same = (a == b) | (np.isnan(a) & np.isnan(b)) if a.dtype.kind == "f" else a == b
    with np.errstate(invalid="ignore"):
        d = np.where(same, 0.0, np.abs(a.astype(np.float64) - b.astype(np.float64)))
    return float(np.where(np.isnan(d), np.inf, d).max())


def near(a: Array, b: Array) -> bool:
    return apart(a, b) <= AGAIN * size(b)


def changed(before: dict[str, Array], now: dict[str, Array]) -> list[str]:
    return [name for name, value in before.items() if name not in now or not same(value, np.asarray(now[name]))]


def is_packing(trace: Trace, *calls: int) -> bool:
    """A packed sequence travels as its data and is told as padded steps and a mask."""
    return any(i < len(trace.calls) and (trace.calls[i].op == "Pack" or "mask" in trace.calls[i].names) for i in calls)
