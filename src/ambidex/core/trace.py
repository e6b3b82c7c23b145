"""What one run recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ambidex.core.types import Array, Call, Layer, Origin


@dataclass(slots=True)
class Trace:
    """The calls of one run in order, and the model's outputs by name ("0", "1", ... or dictionary keys).

    ``outputs`` and the arrays of the calls are numpy in the framework's own layout. ``output_origins`` says which
    call made an output. In an ``exact`` run, :attr:`Call.exact` of a layer is its output in float64 on the recorded
    float32 inputs; of a functional operator it is float64 all the way since the last layers, so that a chain of
    functional code has one floor. ``updates`` are weights that a training-mode run changed (after values).
    """

    framework: str
    versions: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, Array] = field(default_factory=dict)
    outputs: dict[str, Array] = field(default_factory=dict)
    output_origins: dict[str, Origin] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    layers: list[Layer] = field(default_factory=list)
    weights: dict[str, Array] = field(default_factory=dict)
    layer_weights: dict[str, dict[str, Array]] = field(default_factory=dict)
    updates: dict[str, Array] = field(default_factory=dict)
    masks: dict[str, Array] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)

    def by_key(self) -> dict[str, Call]:
        return {call.key: call for call in self.calls}
