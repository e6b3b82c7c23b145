"""How a weight came to differ: rounded, transposed, gates in another order, another layer's, not loaded."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations

import numpy as np

from ambidex.core.trace import Trace
from ambidex.core.types import Array

_GATES = {"LSTM": ("i", "o", "f", "c"), "GRU": ("z", "r", "h")}


def same(a: Array, b: Array) -> bool:
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=1e-6, atol=_room(a)))


def _room(a: Array) -> float:
    """What a difference of values near zero may be: small beside the largest, whatever the array's scale."""
    return 1e-8 * min(1.0, float(np.abs(a).max(initial=0.0)))


def bfloat16(a: Array) -> Array:
    """Round to nearest even bfloat16, as float32."""
    bits = a.astype(np.float32).view(np.uint32)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    return (rounded & np.uint32(0xFFFF0000)).view(np.float32)


def explain(
    op: str, roles: list[str], ref: dict[str, Array], cand: dict[str, Array], trace: Trace, path: str
) -> tuple[str, str]:
    """(name, text) of how ``cand`` comes from ``ref`` for these roles of one layer."""
    pairs = [(r, ref[r], cand[r]) for r in roles if r in ref and r in cand]
    if not pairs:
        return "values", "the values differ"
    if all(same(b, bfloat16(a)) for _, a, b in pairs):
        return "bfloat16", "rounded to bfloat16"
    if all(same(b, a.astype(np.float16).astype(np.float32)) for _, a, b in pairs):
        return "float16", "rounded to float16"
    if op in _GATES:
        found = _gates(op, pairs)
        if found:
            return found
    owner = _whose(pairs, trace, path)
    if owner:
        return "other_layer", f"these are the weights of the reference's {owner}"
    for role, a, b in pairs:
        if a.ndim >= 2 and role in {"W", "", "R"}:
            if a.shape[0] == a.shape[1] and same(b, a.swapaxes(0, 1)):
                return "transposed", "the kernel is transposed"
            if a.ndim > 2 and same(b, np.flip(a, tuple(range(2, a.ndim)))):
                return "flipped", "the kernel is flipped in space"
            if a.ndim > 3 and same(b, a.swapaxes(-1, -2)):
                return "transposed_space", "height and width of the kernel are exchanged"
            found_rows = _rows(a, b)
            if found_rows:
                return found_rows
    if all(same(b, np.zeros_like(b)) for _, _, b in pairs):
        return "not_loaded", "all zeros: never loaded"
    if op == "BatchNormalization" and all(r in {"mean", "var"} and float(np.ptp(b)) == 0 for r, _, b in pairs):
        return "statistics", "the running statistics are still the initial ones"
    for _, a, b in pairs:
        if a.shape == b.shape and a.size > 2 and same(np.sort(a.ravel()), np.sort(b.ravel())):
            return "permuted", "the same numbers in another order"
    ratios = [_ratio(a, b) for _, a, b in pairs]
    if all(r is not None for r in ratios) and len({round(float(r), 6) for r in ratios if r is not None}) == 1:
        return "scaled", f"{ratios[0]:.6g} times the reference's"
    return "values", "other values (stale, not loaded, or from another checkpoint)"


def _gates(op: str, pairs: list[tuple[str, Array, Array]]) -> tuple[str, str] | None:
    gates = _GATES[op]
    n = len(gates)
    for order in list(permutations(range(n)))[1:]:
        if all(_permuted(a, order, n, 2 if role == "B" else 1, b) for role, a, b in pairs):
            was = ", ".join(gates[i] for i in order)
            return "gate_order", f"the gate blocks stand in the order {was} where {', '.join(gates)} is meant"
    return None


def _permuted(a: Array, order: Iterable[int], n: int, halves: int, b: Array) -> bool:
    if a.shape != b.shape or a.shape[1] % (n * halves):
        return False
    cut = a.reshape(a.shape[0], halves, n, a.shape[1] // (n * halves), *a.shape[2:])
    moved = cut[:, :, list(order)].reshape(a.shape)
    return same(moved, b) or (
        halves == 2
        and same(
            moved[:, : a.shape[1] // 2] + moved[:, a.shape[1] // 2 :], b[:, : a.shape[1] // 2] + b[:, a.shape[1] // 2 :]
        )
    )


def _whose(pairs: list[tuple[str, Array, Array]], trace: Trace, path: str) -> str:
    informative = [(r, b) for r, _, b in pairs if b.size > 1 and float(np.ptp(b)) > 0]
    if not informative:
        return ""
    for other, weights in trace.layer_weights.items():
        if other != path and all(r in weights and same(weights[r], b) for r, b in informative):
            return other
    return ""


def _rows(a: Array, b: Array) -> tuple[str, str] | None:
    if a.shape != b.shape or a.ndim != 2:
        return None
    rows = np.flatnonzero(~np.isclose(a, b, rtol=1e-6, atol=_room(a)).all(1))
    if 0 < len(rows) <= max(1, len(a) // 10):
        zero = (
            "the reference's is zero"
            if not a[rows].any()
            else "the candidate's is zero"
            if not b[rows].any()
            else "others agree"
        )
        return "rows", f"only row {', '.join(map(str, rows[:5]))} differs ({zero})"
    return None


def _ratio(a: Array, b: Array) -> float | None:
    if a.shape != b.shape or not a.any():
        return None
    k = float((a * b).sum() / (a * a).sum())
    return k if k and np.allclose(b, k * a, rtol=1e-5, atol=10 * _room(a)) else None
