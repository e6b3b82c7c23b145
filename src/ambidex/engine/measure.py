"""The forced run: every matched call of the candidate computes on the reference's inputs and hands on its outputs.

One run gives, for every pair, the *shadow* difference (the layer's own fault) and the difference of what *arrived*
(a fault in the code between the layers), because everything upstream already carries the reference's values.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np

from ambidex.core import floor as floors
from ambidex.core.model import Inspectable
from ambidex.core.trace import Trace
from ambidex.core.types import Array, Call, Plan, Replacement
from ambidex.engine.align import Alignment
from ambidex.engine.layout import View, difference, scale, views
from ambidex.errors import RunError


@dataclass(slots=True)
class Port:
    """One tensor of a call on both sides, and how the reference's lies in the candidate's layout."""

    reference: int
    candidate: int
    view: View


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


def is_tensor_input(call: Call, i: int) -> bool:
    return call.origins[i][0] != "weight"


def output_ports(a: Alignment, r: Call, c: Call) -> list[Port]:
    """Outputs that correspond: same number where sizes agree, else the first free one of that size."""
    found: list[Port] = []
    used: set[int] = set()
    hint = (r.layer.layout, c.layer.layout)
    for j, value in enumerate(c.computed):
        if value.dtype.kind not in "fc":
            continue
        options = [
            i for i, v in enumerate(r.computed) if i not in used and v.size == value.size and v.dtype.kind in "fc"
        ]
        options = [i for i in options if next(views(r.computed[i].shape, value.shape), None) is not None]
        if not options:
            continue
        scored = []
        for i in options:
            turned = _turned_axis(r, c, r.computed[i])
            ref = r.computed[i] if turned is None else np.flip(r.computed[i], turned)
            view = a.layouts.find(ref, value, hint)
            if view is not None and turned is not None:
                view = replace(view, flip=(turned,))
            if view is not None:
                scored.append((difference(view.to(r.computed[i]), value), i != j, i, view))
        if not scored:
            continue
        best = min(scored, key=lambda s: (round(s[0] / (1e-4 * scale(r.computed[s[2]]))), s[1], s[2]))
        used.add(best[2])
        found.append(Port(best[2], j, best[3]))
    return found


def _turned_axis(r: Call, c: Call, value: Array) -> int | None:
    """The time axis of a backward recurrent layer's steps when one side hands them on in reverse."""
    if bool(r.layer.attrs.get("keep_reversed")) == bool(c.layer.attrs.get("keep_reversed")) or value.ndim != 3:
        return None
    if (
        r.op not in {"LSTM", "GRU", "RNN"}
        or "T" not in r.layer.layout
        or value.shape[0] == 1
        and "TNF" == r.layer.layout
    ):
        return None
    steps = r.inputs[0].shape[r.layer.layout.index("T")]
    axis = r.layer.layout.index("T")
    return axis if value.shape[axis] == steps else None


def input_ports(a: Alignment, r: Call, c: Call, how: str = "") -> list[Port]:
    """Tensor inputs that correspond: by where they come from, by name, by position; sizes must agree.

    Calls that were matched by value may be the ends of two different computations of it (one operator here, a chain
    there): then only inputs that come from the same place or hold the same numbers correspond."""
    found: list[Port] = []
    used: set[int] = set()
    hint = (r.layer.layout, c.layer.layout)
    ref_in = [i for i in range(len(r.inputs)) if is_tensor_input(r, i)]
    cand_in = [j for j in range(len(c.received)) if is_tensor_input(c, j)]
    loose = r.op != c.op and (
        len(ref_in) > 1 or len(cand_in) > 1
    )  # matched by its value: the inputs need not correspond
    for step in ("origin", "value") if loose else ("origin", "value", "name", "position", "any"):
        for j in cand_in:
            if any(p.candidate == j for p in found):
                continue
            for i in ref_in:
                if i in used or not _compatible(r.inputs[i], c.received[j]):
                    continue
                if step == "origin" and not _same_origin(a, r, i, c, j):
                    continue
                if step == "name" and (r.names[i] != c.names[j] or r.names[i].isdigit()):
                    continue
                if step == "position" and ref_in.index(i) != cand_in.index(j):
                    continue
                if step in {"position", "any"} and (r.names[i] == "mask") != (c.names[j] == "mask"):
                    continue
                view = a.layouts.find(r.inputs[i], c.received[j], hint)
                if view is not None and how == "value" and step != "origin":
                    wanted = view.to(r.inputs[i])
                    view = view if difference(wanted, c.received[j]) <= 1e-3 * scale(wanted) else None
                if view is not None:
                    used.add(i)
                    found.append(Port(i, j, view))
                    break
    return sorted(found, key=lambda p: p.candidate)


def _compatible(a: Array, b: Array) -> bool:
    if a.size != b.size or (a.dtype == bool) != (b.dtype == bool):
        return False
    return next(views(a.shape, b.shape), None) is not None


def _same_origin(a: Alignment, r: Call, i: int, c: Call, j: int) -> bool:
    ro, co = a.root(a.reference, r.origins[i]), a.root(a.candidate, c.origins[j])
    if ro[0] == "call" and co[0] == "call":
        match = a.matches.get(co[1])
        return match is not None and match.reference == ro[1] and ro[2] == co[2]
    return False


def behind_padding(a: Alignment, trace: Trace, call: Call, i: int) -> Call | None:
    """The unmatched padding call that makes this input of a convolution or pooling call."""
    kind, where, _ = call.origins[i]
    matched = a.by_reference if trace is a.reference else a.matches
    if kind == "call" and where not in matched and trace.calls[where].op == "Pad" and trace.calls[where].inputs:
        return trace.calls[where]
    return None


@dataclass(slots=True)
class Padded:
    """One input that an explicit padding layer stands in front of, on one side only: the value before the padding."""

    reference: Call
    reference_input: int
    candidate: Call
    candidate_input: int
    view: View


def padded_port(a: Alignment, base: Trace, r: Call, c: Call, ins: list[Port]) -> Padded | None:
    """Where the main input has no port because one side pads in a layer of its own: the port before that layer."""
    if not r.inputs or not c.received or any(p.candidate == 0 for p in ins) or not is_tensor_input(r, 0):
        return None
    pr, pc = behind_padding(a, a.reference, r, 0), behind_padding(a, base, c, 0)
    hint = (r.layer.layout, c.layer.layout)
    for rc, cc in ((r, pc), (pr, c), (pr, pc)):
        if (
            rc is not None
            and cc is not None
            and (rc is not r or cc is not c)
            and _compatible(rc.inputs[0], cc.received[0])
        ):
            view = a.layouts.find(rc.inputs[0], cc.received[0], hint)
            if view is not None:
                return Padded(rc, 0, cc, 0, view)
    return None


def forced_view(a: Alignment, r: Call, c: Call, value: Array, like: Array) -> Array | None:
    """The reference's value in the candidate's axis order even where sizes differ (a faulty shape)."""
    names = (r.layer.layout, c.layer.layout)
    if len(names[0]) == value.ndim == like.ndim and len(names[1]) == value.ndim and set(names[0]) == set(names[1]):
        return value.transpose([names[0].index(ch) for ch in names[1]])
    perm = a.layouts.ranks.get((value.ndim, like.ndim))
    if perm is not None and value.ndim == like.ndim:
        return value.transpose(perm)
    return value if value.ndim == like.ndim else None


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
            plan.replace[c.key] = _valid_steps(values, mask, repeat=True)
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
                    _compare(wanted, received, masks),
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
        axis = int(c.layer.attrs.get("axis", -1)) if r.op == c.op in {"Softmax", "LogSoftmax"} else None
        if axis is not None:
            wanted, received = visible(wanted, axis), visible(received, axis)
            floor = min(floor, floors.unmeasured(wanted))
        m.arrived.append(Arrived(port, wanted, received, _compare(wanted, received, masks), floor, axis))
    rows = rows_without_keys(r)
    if rows is None:
        rows = rows_without_keys(c)
    if outs:
        m.shadow, m.floor = 0.0, 0.0
        worst = -1.0
        for port in outs:
            wanted, got = port.view.to(r.outputs[port.reference]), c.computed[port.candidate]
            d = _compare(wanted, got, masks if rows is None else [*masks, *_spread(rows, wanted.shape)])
            known = [x for x in (floors.of_call(r, port.reference), floors.of_call(c, port.candidate)) if x is not None]
            f = max(*known, floors.least(wanted)) if known else floors.unmeasured(wanted)
            if d / f > worst:
                worst, m.shadow, m.floor = d / f, d, f
            if d > floors.RATIO * f or difference(wanted, got) > floors.RATIO * f:
                m.padded_only = d <= floors.RATIO * f
    elif r.outputs and c.computed and c.computed[0].dtype.kind == "f" and r.outputs[0].dtype.kind == "f":
        m.shadow, m.floor = float("inf"), floors.least(r.outputs[0])  # the shapes differ
    return m


def _compare(wanted: Array, got: Array, masks: list[Array]) -> float:
    """Largest difference; positions that a mask leaves out do not count when the plain difference is large."""
    d = difference(wanted, got)
    if d <= 1e-6 * scale(wanted) or not masks:
        return d
    for mask in masks:
        fitted = fit_mask(mask, wanted.shape)
        if fitted is not None:
            d = min(d, difference(wanted, got, fitted))
    return d


def fit_mask(mask: Array, shape: tuple[int, ...]) -> Array | None:
    """A (batch, steps) mask spread over an array that has those axes: batch first and the steps on the first axis of
    their number, both merged into one, or (steps, batch)."""
    if mask.ndim == len(shape) and mask.shape == shape:
        return mask.astype(bool)
    if mask.ndim != 2 or len(shape) < 2:
        return None
    rows, steps = mask.shape
    if shape[0] == rows and steps in shape[1:]:
        at = shape.index(steps, 1)
        return mask.astype(bool).reshape(rows, *(steps if i == at else 1 for i in range(1, len(shape))))
    tail = (1,) * (len(shape) - 2)
    if shape[:2] == (steps, rows):
        return mask.T.astype(bool).reshape(steps, rows, *tail)
    if shape[0] == rows * steps:
        return mask.astype(bool).reshape(rows * steps, 1, *tail)
    return None


def mask_number(call: Call) -> int | None:
    """Which input of an attention or recurrent call is its mask."""
    for i, name in enumerate(call.names):
        if name in {"mask", "attn_mask", "attention_mask"}:
            return i
    return 3 if call.op == "Attention" and len(call.inputs) > 3 else None


def rows_without_keys(call: Call) -> Array | None:
    """(batch, queries) of an attention call: True where some key may be seen. None: every row sees one."""
    i = mask_number(call)
    if call.op != "Attention" or i is None:
        return None
    mask = call.inputs[i]
    seen = mask if mask.dtype == bool else mask > -1e3
    rows = seen.any(-1)
    while rows.ndim > 2:
        rows = rows.any(1)
    batch = call.inputs[0].shape[0]
    if rows.ndim != 2 or rows.all():
        return None
    return np.broadcast_to(rows, (batch, rows.shape[1])) if rows.shape[0] in (1, batch) else None


def _spread(rows: Array, shape: tuple[int, ...]) -> list[Array]:
    """Rows as a full mask of an attention output whose queries stand in axis 1 or 2."""
    for axis in (1, 2):
        if len(shape) > axis and shape[0] == rows.shape[0] and shape[axis] == rows.shape[1]:
            size = [1] * len(shape)
            size[0], size[axis] = rows.shape
            return [np.broadcast_to(rows.reshape(size), shape)]
    return []


def rnn_mask(r: Call, c: Call) -> Array | None:
    """The (batch, steps) mask of a recurrent pair, the reference's first."""
    if r.op not in {"LSTM", "GRU", "RNN"}:
        return None
    for call in (r, c):
        if "mask" in call.names:
            mask = call.inputs[call.names.index("mask")]
            return mask.astype(bool) if mask.ndim == 2 else None
    return None


def _valid_steps(values: list[Array | None], mask: Array, *, repeat: bool) -> Replacement:
    """Hand on the reference's values at valid steps only: what stands at padded ones is the layer's own habit (zero, or
    the last valid value again), and code behind it may rely on that."""

    def compute(call: Call, inputs: Sequence[Array]) -> Sequence[Array]:
        made: list[Array] = []
        for i, own in enumerate(call.computed):
            value = values[i] if i < len(values) else None
            if value is None or value.shape != own.shape:
                made.append(own if value is None else value)
                continue
            fitted = fit_mask(mask, own.shape)
            if fitted is None:
                made.append(value)
                continue
            merged = np.where(fitted, value, own)
            if own.shape[:2] == mask.shape and repeat:
                for b in range(mask.shape[0]):
                    steps = np.flatnonzero(mask[b])
                    if len(steps) and steps[-1] + 1 < mask.shape[1]:
                        last = steps[-1]
                        again = own[b, last + 1 :] == own[b, last]
                        merged[b, last + 1 :] = np.where(again, merged[b, last], merged[b, last + 1 :])
            made.append(merged.astype(own.dtype))
        return made

    return compute


def input_floor(trace: Trace, call: Call, i: int) -> float:
    """The round-off of what arrives: zero from a layer (its own floor counts there), functional code has its own."""
    kind, where, number = call.origins[i]
    value = call.received[i]
    if value.dtype.kind in "iu":
        return 0.0
    least = floors.least(value)
    if kind == "call" and trace.calls[where].layer.functional:
        found = floors.of_call(trace.calls[where], number)
        return max(least, found or 0.0)
    return least


def refresh_floors(forced: Forced, exact: Forced) -> None:
    """Take the candidate's own float64 floors into account (the larger floor of the two sides counts)."""
    for j, m in forced.pairs.items():
        e = exact.pairs.get(j)
        if e is not None:
            forced.pairs[j] = e if e.shadow is not None else m
