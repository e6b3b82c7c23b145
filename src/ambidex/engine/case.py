"""What diagnosing needs, and the small questions it asks about calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ambidex.core.model import Inspectable
from ambidex.core.rule import Cause
from ambidex.core.types import Array, Call
from ambidex.engine.align import Alignment
from ambidex.engine.masks import mask_number, off
from ambidex.engine.measure import Measured
from ambidex.engine.ports import Port
from ambidex.engine.replay import Player
from ambidex.engine.weights import Pairing


@dataclass
class Case:
    """What diagnosing needs: both players, the alignment, the weight pairing, masks of positions that count."""

    alignment: Alignment
    reference: Player
    candidate: Player
    pairing: Pairing
    masks: list[Array] = field(default_factory=list)
    weights: str = "carry"
    ports: dict[int, list[Port]] = field(default_factory=dict)  # output ports by candidate call, from the forced run

    @property
    def model(self) -> Inspectable:
        assert self.candidate.model is not None
        return self.candidate.model

    def cause(self, m: Measured, **given: Any) -> Cause:
        made = Cause(**given)
        made.reference_path, made.candidate_path = m.reference.path, m.candidate.path
        made.source = made.source or m.candidate.layer.source
        made.framework, made.candidate_cls = self.candidate.trace.framework, m.candidate.layer.cls
        made.reference_framework = self.reference.trace.framework
        made.before = m.shadow if made.before is None else made.before
        made.floor = made.floor or m.floor
        return made


def shortened(tried: list[str]) -> list[str]:
    return list(dict.fromkeys(tried))[:12]


def masks_differ(a: Array, b: Array) -> str:
    """How two boolean masks differ: inverted, causal (only one hides the future) or just differs; "" if not."""
    if a.dtype != bool or b.dtype != bool:
        return ""
    if a.ndim != b.ndim:
        a, b = ((x[:, None, None] if x.ndim == 2 else x[:, None] if x.ndim == 3 else x) for x in (a, b))
    try:
        a, b = np.broadcast_arrays(a, b)
    except ValueError:
        return "differs"
    if np.array_equal(a, b):
        return ""
    if np.array_equal(a, ~b):
        return "inverted"
    tri = np.tril(np.ones(a.shape[-2:], bool))
    if np.array_equal(b, a & tri):
        return "causal_extra"
    return "causal_missing" if np.array_equal(a, b & tri) else "differs"


def explicit_padding(case: Case, m: Measured) -> str | None:
    """The path of a padding layer in front of this call of the candidate that the reference has not."""
    if m.before_padding is None:
        return None
    r, c = m.before_padding
    return c.path if c is not m.candidate and r is m.reference else None


def padding_of(call: Call) -> Any:
    attrs = call.layer.attrs
    return attrs.get("auto_pad") if attrs.get("auto_pad", "NOTSET") != "NOTSET" else attrs.get("pads")


def _spatial(call: Call) -> tuple[int, ...] | None:
    layout, shape = call.layer.layout, call.inputs[0].shape if call.inputs else ()
    if len(layout) != len(shape) or "C" not in layout or "N" not in layout:
        return None
    return tuple(n for n, axis in zip(shape, layout, strict=True) if axis not in "NC")


def has_mask(call: Call) -> bool:
    return mask_number(call) is not None


def mask_of(call: Call) -> Array:
    number = mask_number(call)
    assert number is not None
    return call.inputs[number]


def forced_inputs(m: Measured, *, unpadded: bool = False) -> list[Array]:
    """The candidate's inputs as the reference's values; ``unpadded``: also where a padding layer stands in front."""
    made = [np.asarray(v) for v in m.candidate.inputs]
    for a in m.arrived:
        if m.before_padding is not None and a.port.candidate == 0:
            if unpadded:
                made[0] = a.wanted.astype(made[0].dtype)
            continue
        made[a.port.candidate] = a.wanted.astype(made[a.port.candidate].dtype)
    return made


def worst(m: Measured, outputs: Sequence[Array] | None, masks: list[Array]) -> float | None:
    """The largest difference of these candidate outputs to the reference's."""
    if outputs is None:
        return None
    found = 0.0
    for port in m.outputs:
        wanted = port.view.to(m.reference.outputs[port.reference])
        if port.candidate >= len(outputs) or outputs[port.candidate].size != wanted.size:
            return None
        found = max(found, off(wanted, outputs[port.candidate].reshape(wanted.shape), masks))
    if not m.outputs:  # shapes differed: any output of the reference's size, under the plainest view
        from ambidex.engine.measure import forced_view

        wanted = m.reference.outputs[0]
        layouts = _layout_names(m)
        moved = wanted.transpose([layouts[0].index(ch) for ch in layouts[1]]) if layouts else wanted
        if not outputs or outputs[0].shape != moved.shape:
            return None
        del forced_view
        found = off(moved, outputs[0], masks)
    return found


def _layout_names(m: Measured) -> tuple[str, str] | None:
    a, b = m.reference.layer.layout, m.candidate.layer.layout
    ok = len(a) == len(b) == m.reference.outputs[0].ndim and set(a) == set(b)
    return (a, b) if ok else None
