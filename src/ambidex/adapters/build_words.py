"""What the builders of small models share, whatever the framework: how sides are written, and drawn weights."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ambidex.core.model import Inspectable
from ambidex.core.rule import Side
from ambidex.core.types import Array

Shape = tuple[int, ...]
Weights = Mapping[str, Mapping[str, Array]]


def numbers(attrs: Mapping[str, Any], name: str, n: int, default: int = 1) -> list[int]:
    """An attribute as one number an axis."""
    value = attrs.get(name, default)
    return [int(v) for v in value] if isinstance(value, Sequence) else [int(value)] * n


def fill(model: Inspectable, sides: Sequence[Side], weights: Weights, seed: Sequence[int]) -> None:
    """Write drawn weights into every layer: positive around one where they are divided by or multiplied, small else."""
    rng = np.random.default_rng(seed)
    for layer in model.layers():
        values = {}
        for role, old in model.layer_weights(layer.path).items():
            drawn = rng.normal(size=old.shape) * (0.5 if old.ndim > 1 else 0.3)
            values[role] = np.abs(drawn) + 0.5 if role in {"var", "scale"} else drawn
        place = re.split("[./]", layer.path)[0].removeprefix("layer_")
        own = sides[int(place)].weights if place.isdigit() and int(place) < len(sides) else sides[0].weights
        given = {**own, **weights.get(place, {})}
        values |= {role: np.asarray(v) for role, v in given.items() if role in values}
        if values:
            model.set_layer_weights(layer.path, {role: v.astype(np.float32) for role, v in values.items()})
