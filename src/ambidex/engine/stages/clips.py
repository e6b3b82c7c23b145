"""Canonical clippings of gradients in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ambidex.core.ops import with_defaults
from ambidex.core.types import Array
from ambidex.errors import UnsupportedError


def clipped(op: str, attrs: Mapping[str, Any], gradients: Mapping[str, Array]) -> dict[str, Array]:
    """The gradients (by weight name, any shapes) as the clipping leaves them.

    ``ClipNorm``: g * min(1, max / (norm + epsilon)), the norm that of all gradients together (``scope`` global) or of
    each on its own (weight). Raises UnsupportedError for an unknown form.
    """
    given = {n: np.asarray(g, np.float64) for n, g in gradients.items()}
    a = with_defaults(op, attrs)
    if op == "":
        return given
    if op == "ClipValue":
        return {n: np.clip(g, -float(a["value"]), float(a["value"])) for n, g in given.items()}
    if op != "ClipNorm":
        raise UnsupportedError(f"no formula is known for the clipping '{op}'")
    most, e = float(a["max_norm"]), float(a["epsilon"])
    norms = {n: float(np.sqrt((g * g).sum())) for n, g in given.items()}
    if a["scope"] == "global":
        norms = dict.fromkeys(given, float(np.sqrt(sum(x * x for x in norms.values()))))
    return {n: g * min(1.0, most / (norms[n] + e)) if norms[n] + e > 0 else g for n, g in given.items()}


def variants(op: str, attrs: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The ways in which a clipping is got wrong: (name, all attributes)."""
    if op != "ClipNorm":
        return []
    other = "weight" if with_defaults(op, attrs)["scope"] == "global" else "global"
    return [("scope", {**attrs, "scope": other})]


def catalogue(likely: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The forms that may stand behind code of the user's own. ``likely``: what the other side declares."""
    limits = dict.fromkeys([*(likely.get(n) for n in ("max_norm", "value") if likely.get(n)), 1.0, 0.5, 5.0, 0.1, 10.0])
    found: list[tuple[str, dict[str, Any]]] = []
    for limit in limits:
        for scope in ("global", "weight"):
            found += [("ClipNorm", {"max_norm": limit, "scope": scope, "epsilon": e}) for e in (0.0, 1e-6)]
        found.append(("ClipValue", {"value": limit}))
    return found
