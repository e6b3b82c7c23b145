"""The forced run: every matched call of the candidate computes on the reference's inputs and hands on its outputs.

One run gives, for every pair, the *shadow* difference (the layer's own fault) and the difference of what *arrived*
(a fault in the code between the layers), because everything upstream already carries the reference's values.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from ambidex.core import floor as floors
from ambidex.core.model import Inspectable
from ambidex.core.trace import Trace
from ambidex.core.types import Array, Call, Plan
from ambidex.engine.align import Alignment
from ambidex.engine.layout import View, difference, views
from ambidex.engine.masks import off, rnn_mask, rows_without_keys, spread, valid_steps
from ambidex.engine.ports import Padded, Port, forced_view, input_ports, output_ports, padded_port
from ambidex.errors import RunError


@dataclass(slots=True)
class Arrived:
    """What reached one input of a candidate call, against what reached the reference's."""

    port: Port
    wanted: Array
    received: Array
    diff: float
    floor: float
    softmax: int | None = None  # the axis, where a softmax takes it: what it cannot see is left out

    @property
    def ratio(self) -> float:
        return self.diff / self.floor if self.floor else (0.0 if self.diff == 0 else np.inf)


def visible(scores: Array, axis: int | None) -> Array:
    """Scores as a softmax sees them: what lies more than 104 below the largest has weight zero in float32 (exp(-104)),
    whether it is -1e9, -inf or the smallest number."""
    if axis is None or scores.dtype.kind != "f" or not scores.ndim:
        return scores
    top = scores.max(axis, keepdims=True)
    return np.where(np.isfinite(top), np.maximum(scores, top - 104), np.float32(0)).astype(scores.dtype)


@dataclass(slots=True)
class Measured:
    """One pair of calls after the forced run."""

    reference: Call
    candidate: Call  # of the forced run
    how: str
    outputs: list[Port] = field(default_factory=list)
    arrived: list[Arrived] = field(default_factory=list)
    chained: float | None = None
    shadow: float | None = None
    floor: float = 0.0
    padded_only: bool = False
    before_padding: tuple[Call, Call] | None = (
        None  # the calls (reference's, candidate's) whose input was compared instead
    )

    @property
    def ratio(self) -> float:
        if self.shadow is None:
            return 0.0
        return self.shadow / self.floor if self.floor else (0.0 if self.shadow == 0 else np.inf)

    @property
    def faulty(self) -> bool:
        return self.ratio > floors.RATIO

    @property
    def glue(self) -> list[Arrived]:
        return [a for a in self.arrived if a.ratio > floors.RATIO]


@dataclass
class Forced:
    """A forced run and what was measured in it."""

    trace: Trace
    pairs: dict[int, Measured]  # by candidate call index
    sinks: list[Sink] = field(default_factory=list)


@dataclass(slots=True)
class Sink:
    """One output of the whole model on both sides in the forced run."""

    reference: str
    candidate: str
    arrived: Arrived


Ports = dict[int, tuple[list[Port], list[Port], Padded | None]]


#: layers worth skipping where only what follows them is of interest
_COSTLY = {"Gemm", "Einsum", "Conv", "ConvTranspose"}


def _one_view(view: View) -> bool:
    """Whether no other axis order fits the sizes, so that computing the call could not show another."""
    return len(list(islice(views(view.source, view.shape), 2))) == 1


def plan_for(a: Alignment, base: Trace, *, force_inputs: bool, same_shapes: bool = False) -> tuple[Plan, Ports]:
    """The plan that forces every match. ``base``: the candidate run whose shapes and values views are found on."""
    plan = Plan()
    ports: Ports = {}
    for j, match in a.matches.items():
        if j >= len(base.calls):
            continue
        r, c = a.reference.calls[match.reference], base.calls[j]
        outs = output_ports(a, r, c)
        ins = input_ports(a, r, c, match.how) if force_inputs else []
        padded = padded_port(a, base, r, c, ins) if force_inputs else None
        ports[j] = (ins, outs, padded)
        if padded is not None:
            value = padded.view.to(padded.reference.inputs[padded.reference_input])
            plan.inputs.setdefault(padded.candidate.key, [None] * len(padded.candidate.received))[
                padded.candidate_input
            ] = value
        values: list[Array | None] = [None] * len(c.computed)
        for port in outs:
            values[port.candidate] = port.view.to(r.outputs[port.reference]).astype(c.computed[port.candidate].dtype)
        if not outs and not same_shapes and r.outputs and c.computed and c.computed[0].dtype.kind == "f":
            values[0] = forced_view(a, r, c, r.outputs[0], c.computed[0])
        mask = rnn_mask(r, c)
        if mask is not None and values[0] is not None:
            plan.replace[c.key] = valid_steps(values, mask, repeat=True)
        elif any(v is not None for v in values):
            plan.outputs[c.key] = values
            if not force_inputs and len(outs) == len(values) == 1 and c.op in _COSTLY and _one_view(outs[0].view):
                plan.skip.add(c.key)
        given: list[Array | None] = [None] * len(c.received)
        for port in ins:
            if c.received[port.candidate].dtype.kind in "fciu":
                given[port.candidate] = port.view.to(r.inputs[port.reference])
        if any(v is not None for v in given):
            plan.inputs[c.key] = [
                g if g is not None else o for g, o in zip(given, plan.inputs.get(c.key, given), strict=True)
            ]
    return plan, ports


def run_forced(
    model: Inspectable,
    batch: object,
    a: Alignment,
    base: Trace,
    masks: list[Array],
    *,
    force_inputs: bool,
    exact: bool | Collection[str] = False,
) -> Forced:
    """Run the candidate with every match forced, and measure."""
    plan, ports = plan_for(a, base, force_inputs=force_inputs)
    try:
        trace = model.run(batch, plan, exact=exact)  # type: ignore[arg-type]
    except RunError:  # values of other sizes do not fit the candidate's own code: force only what fits
        plan, ports = plan_for(a, base, force_inputs=force_inputs, same_shapes=True)
        trace = model.run(batch, plan, exact=exact)  # type: ignore[arg-type]
    floors.keep_only(trace.calls)
    keys = {c.key: c for c in trace.calls}
    pairs: dict[int, Measured] = {}
    for j, match in a.matches.items():
        r, old = a.reference.calls[match.reference], base.calls[j]
        c = keys.get(old.key)
        if c is None or j not in ports:
            continue
        ins, outs, padded = ports[j]
        pairs[j] = _measure(a, r, c, match.how, ins, outs, masks, trace)
        before = keys.get(padded.candidate.key) if padded is not None else None
        if padded is not None and before is not None:
            value = padded.reference.inputs[padded.reference_input]
            wanted, received = padded.view.to(value), before.received[padded.candidate_input]
            pairs[j].before_padding = (padded.reference, before)
            pairs[j].arrived.append(
                Arrived(
                    Port(0, 0, padded.view),
                    wanted,
                    received,
                    off(wanted, received, masks),
                    max(
                        input_floor(a.reference, padded.reference, padded.reference_input),
                        input_floor(trace, before, padded.candidate_input),
                    ),
                )
            )
    forced = Forced(trace, pairs)
    return forced


def _measure(
    a: Alignment, r: Call, c: Call, how: str, ins: list[Port], outs: list[Port], masks: list[Array], trace: Trace
) -> Measured:
    m = Measured(r, c, how, outs)
    for port in ins:
        value = r.inputs[port.reference]
        if value.dtype.kind not in "fciu":
            continue
        wanted, received = port.view.to(value), c.received[port.candidate]
        floor = max(input_floor(a.reference, r, port.reference), input_floor(trace, c, port.candidate))
        given = c.layer.attrs.get("axis", -1)  # Keras takes several axes as well
        axis = given if r.op == c.op in {"Softmax", "LogSoftmax"} and isinstance(given, int) else None
        if axis is not None:
            wanted, received = visible(wanted, axis), visible(received, axis)
            floor = min(floor, floors.unmeasured(wanted))
        m.arrived.append(Arrived(port, wanted, received, off(wanted, received, masks), floor, axis))
    rows = rows_without_keys(r)
    if rows is None:
        rows = rows_without_keys(c)
    if outs:
        m.shadow, m.floor = 0.0, 0.0
        worst = -1.0
        for port in outs:
            wanted, got = port.view.to(r.outputs[port.reference]), c.computed[port.candidate]
            d = off(wanted, got, masks if rows is None else [*masks, *spread(rows, wanted.shape)])
            known = [
                x
                for x in (own_floor(a.reference, r, port.reference), own_floor(trace, c, port.candidate))
                if x is not None
            ]
            f = max(*known, floors.least(wanted)) if known else floors.unmeasured(wanted)
            ratio = d / f if f else float(d > 0)  # no floor: an empty array
            if ratio > worst:
                worst, m.shadow, m.floor = ratio, d, f
            if d > floors.RATIO * f or difference(wanted, got) > floors.RATIO * f:
                m.padded_only = d <= floors.RATIO * f
    elif r.outputs and c.computed and c.computed[0].dtype.kind == "f" and r.outputs[0].dtype.kind == "f":
        m.shadow, m.floor = float("inf"), floors.least(r.outputs[0])  # the shapes differ
    return m


def own_floor(trace: Trace, call: Call, number: int) -> float | None:
    return floors.within(call, number, floors.unit(trace.meta))


def input_floor(trace: Trace, call: Call, i: int) -> float:
    """The round-off of what arrives: zero from a layer (its own floor counts there), functional code has its own."""
    kind, where, number = call.origins[i]
    value = call.received[i]
    if value.dtype.kind in "iu":
        return 0.0
    least = floors.least(value, floors.unit(trace.meta))
    if kind == "call" and trace.calls[where].layer.functional:
        found = own_floor(trace, trace.calls[where], number)
        return max(least, found or 0.0)
    return least


def refresh_floors(forced: Forced, exact: Forced) -> None:
    """Take the candidate's own float64 floors into account (the larger floor of the two sides counts)."""
    for j, m in forced.pairs.items():
        e = exact.pairs.get(j)
        if e is not None:
            forced.pairs[j] = e if e.shadow is not None else m
