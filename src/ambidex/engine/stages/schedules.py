"""Canonical learning-rate schedules: the rate of each update."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ambidex.core.ops import with_defaults
from ambidex.errors import UnsupportedError


def rates(op: str, attrs: Mapping[str, Any], base: float, count: int) -> list[float]:
    """The learning rate of the first ``count`` updates; ``base`` is the rate that the schedule starts from (with a
    warm-up: leads up to). Raises UnsupportedError for an unknown schedule, ValueError for settings without sense."""
    made = _FACTORS.get(op)
    if made is None:
        raise UnsupportedError(f"no formula is known for the schedule '{op or 'of the user'}'")
    a = with_defaults(op, attrs)
    stride, offset = float(a.get("stride", 1.0)), int(a.get("offset", 0))
    return [base * made(a, max(0, math.floor(k * stride + 1e-9) + offset)) for k in range(count)]


def _step(a: Mapping[str, Any], t: int) -> float:
    share = t / float(a["step_size"])
    return float(a["gamma"]) ** (math.floor(share) if a["staircase"] else share)


def _multi_step(a: Mapping[str, Any], t: int) -> float:
    return float(a["factors"][sum(t >= b for b in a["boundaries"])])


def _cosine(a: Mapping[str, Any], t: int) -> float:
    warm, steps, alpha = int(a["warmup_steps"]), float(a["steps"]), float(a["alpha"])
    if t < warm:
        start = float(a["warmup_from"])
        return start + (1 - start) * t / warm
    t -= warm
    share = t / steps if a["periodic"] else min(t / steps, 1.0)
    return alpha + (1 - alpha) * 0.5 * (1 + math.cos(math.pi * share))


def _restarts(a: Mapping[str, Any], t: int) -> float:
    length, size, left = float(a["steps"]), 1.0, float(t)
    if length <= 0 or float(a["t_mul"]) <= 0:
        raise UnsupportedError("a cosine of no length has no rate")
    while left >= length:
        if length < 1e-9:  # periods that shrink add up to a finite time
            raise UnsupportedError("the periods of the cosine end before this update")
        left -= length
        length *= float(a["t_mul"])
        size *= float(a["m_mul"])
    alpha = float(a["alpha"])
    return alpha + (1 - alpha) * size * 0.5 * (1 + math.cos(math.pi * left / length))


def _polynomial(a: Mapping[str, Any], t: int) -> float:
    steps, end = float(a["steps"]), float(a["end"])
    if a["cycle"]:
        steps *= max(1, math.ceil(t / steps))
    return end + (1 - end) * (1 - min(t, steps) / steps) ** float(a["power"])


def _inverse(a: Mapping[str, Any], t: int) -> float:
    share = t / float(a["steps"])
    return 1 / (1 + float(a["rate"]) * (math.floor(share) if a["staircase"] else share))


def _linear(a: Mapping[str, Any], t: int) -> float:
    start, end, steps = float(a["start"]), float(a["end"]), float(a["steps"])
    return start + (end - start) * min(t, steps) / steps


_FACTORS: dict[str, Callable[[Mapping[str, Any], int], float]] = {
    "Constant": lambda a, t: float(a["factor"]),
    "Step": _step,
    "MultiStep": _multi_step,
    "Cosine": _cosine,
    "CosineRestarts": _restarts,
    "Polynomial": _polynomial,
    "InverseTime": _inverse,
    "Linear": _linear,
}


def variants(op: str, attrs: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The ways in which a schedule is got wrong: (name, all attributes)."""
    a, full = dict(attrs), with_defaults(op, attrs)
    found: list[tuple[str, dict[str, Any]]] = []
    if "stride" not in full:
        return found
    for name, called in (("staircase", "staircase"), ("periodic", "periodic")):
        if name in full:
            found.append((called, {**a, name: not full[name]}))
    found += [("one_late", {**a, "offset": -1}), ("one_early", {**a, "offset": 1})]
    if full.get("boundaries"):
        found += [("boundary", {**a, "boundaries": [b + d for b in full["boundaries"]]}) for d in (1, -1)]
    found += [("per_micro_step", {**a, "stride": float(n), "offset": d}) for n in range(2, 17) for d in (n - 1, 0)]
    found += [("per_epoch", {**a, "stride": 1.0 / n}) for n in range(2, 25)]
    return found
