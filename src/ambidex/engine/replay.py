"""Replaying recorded code with one thing changed: the region of calls that makes one value, on either side.

A side replays its calls live when its model is at hand, else by the float64 reference of the canonical operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ambidex.core import ops
from ambidex.core.model import Inspectable
from ambidex.core.rule import Variant
from ambidex.core.trace import Trace
from ambidex.core.types import Array, Call, Origin
from ambidex.errors import AmbidexError

Evaluate = Callable[..., Sequence[Array]]


@dataclass
class Player:
    """One side: its trace, its live model if there is one, the canonical evaluator."""

    trace: Trace
    model: Inspectable | None
    evaluate: Evaluate

    def weights(self, call: Call) -> dict[str, Array]:
        return self.trace.layer_weights.get(call.path, {})

    def compute(self, call: Call, inputs: Sequence[Array]) -> list[Array] | None:
        """The call on other inputs; None when it cannot be computed."""
        if self.model is not None:
            try:
                return self.model.call(call.path, inputs, like=call)
            except AmbidexError:
                pass
        return self.canonical(call.op, call.layer.attrs, self.weights(call), inputs, call.layer.layout)

    def canonical(
        self,
        op: str,
        attrs: dict[str, Any],
        weights: dict[str, Array],
        inputs: Sequence[Array],
        layout: str = "",
    ) -> list[Array] | None:
        """The canonical operator in float64; None when it is not to be had for these."""
        if not ops.known(op):
            return None
        if op == "Attention" and layout == "BTE":
            return self._attention(attrs, inputs)
        try:
            return [np.asarray(v) for v in self.evaluate(op, attrs, weights, list(inputs), layout=layout)]
        except (
            AmbidexError,
            ValueError,
            TypeError,
            IndexError,
            RuntimeError,
            KeyError,
            ZeroDivisionError,
            NotImplementedError,
        ):
            return None

    def vary(self, call: Call, inputs: Sequence[Array], way: Variant) -> list[Array] | None:
        """The call computed in another way; None when it cannot be."""
        try:
            if way.compute is not None:
                return [np.asarray(x) for x in way.compute(list(inputs))]
            if way.feed is not None:
                inputs = list(way.feed(list(inputs)))
                if way.attrs is None:
                    return self.compute(call, inputs)
        except (ValueError, IndexError, TypeError):
            return None
        attrs = {k: x for k, x in (way.attrs or {}).items() if k != "scale_name"}
        return self.canonical(way.op, attrs, self.weights(call), inputs, call.layer.layout)

    def _attention(self, attrs: dict[str, Any], inputs: Sequence[Array]) -> list[Array] | None:
        """Attention whose heads still lie side by side in the last axis."""
        heads = int(attrs.get("num_heads") or 1)
        cut = [x.reshape(*x.shape[:2], heads, -1) for x in inputs[:3]]
        made = self.canonical("Attention", attrs, {}, [*cut, *inputs[3:]], "BTHD")
        return None if made is None else [made[0].reshape(*made[0].shape[:2], -1), *made[1:]]


@dataclass
class Region:
    """The unmatched calls that make one value, in order, and where that value is taken."""

    calls: list[Call]
    target: Origin
    value: Array

    @property
    def ops(self) -> list[str]:
        return [c.op or c.layer.cls for c in self.calls]


def region_of(trace: Trace, origin: Origin, value: Array, matched: set[int]) -> Region:
    """The calls behind a value, back to matched calls, inputs and weights."""
    found: set[int] = set()
    waiting = [origin]
    while waiting:
        kind, where, _ = waiting.pop()
        if kind != "call" or where in found or where in matched:
            continue
        found.add(where)
        waiting += trace.calls[where].origins
    return Region([trace.calls[i] for i in sorted(found)], origin, value)


def replay(
    player: Player,
    region: Region,
    changed: Mapping[int, Sequence[Array]] | None = None,
    ways: Mapping[int, Variant] | None = None,
) -> Array | None:
    """The region's value when the calls in ``changed`` (by index) give these outputs and those in ``ways`` are computed
    in another way; None when it cannot be had."""
    new: dict[int, Sequence[Array]] = dict(changed or {})
    ways = ways or {}
    for call in region.calls:
        if call.index in new:
            continue
        touched = call.index in ways
        inputs: list[Array] = []
        for i, (kind, where, number) in enumerate(call.origins):
            if kind == "call" and where in new and number < len(new[where]):
                given, own = new[where][number], call.inputs[i]
                if given.size == own.size:
                    given = given.reshape(own.shape)
                elif (
                    given.ndim != own.ndim
                ):  # of another size (a part left out) it must still be the same kind of array
                    return None
                inputs.append(given.astype(own.dtype) if own.dtype.kind == "f" else given)
                touched = True
            else:
                inputs.append(call.inputs[i])
        if not touched:
            continue
        made = player.vary(call, inputs, ways[call.index]) if call.index in ways else player.compute(call, inputs)
        if made is None:
            return None
        new[call.index] = [
            x.reshape(y.shape) if x.size == y.size else x for x, y in zip(made, call.computed, strict=False)
        ]
    kind, where, number = region.target
    if kind != "call" or where not in new or number >= len(new[where]):
        return None
    return new[where][number]
