"""Which tensor of a call is which tensor of its partner, and how the reference's lies in the candidate's layout."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ambidex.core.trace import Trace
from ambidex.core.types import Array, Call
from ambidex.engine.align import Alignment, family
from ambidex.engine.layout import View, difference, scale, views


@dataclass(slots=True)
class Port:
    """One tensor of a call on both sides, and how the reference's lies in the candidate's layout."""

    reference: int
    candidate: int
    view: View


def is_tensor_input(call: Call, i: int) -> bool:
    return call.origins[i][0] != "weight"


def output_ports(a: Alignment, r: Call, c: Call) -> list[Port]:
    """Outputs that correspond: same number where sizes agree, else the first free one of that size."""
    found: list[Port] = []
    used: set[int] = set()
    hint = (r.layer.layout, c.layer.layout)
    same = _elementwise_view(a, r, c)
    if same is not None:
        return [Port(0, 0, same)]
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
        best = min(scored, key=lambda s: (round(min(s[0] / (1e-4 * scale(r.computed[s[2]])), 1e15)), s[1], s[2]))
        used.add(best[2])
        found.append(Port(best[2], j, best[3]))
    return found


def _elementwise_view(a: Alignment, r: Call, c: Call) -> View | None:
    """An activation's output lies as its input does: its own fault must not decide how the axes lie."""
    if r.op in {"Softmax", "LogSoftmax", "Glu"} or family(r) != "activation" or family(c) != "activation":
        return None
    if not all(x and y and x[0].shape == y[0].shape for x, y in ((r.inputs, r.computed), (c.received, c.computed))):
        return None
    if r.inputs[0].size != c.received[0].size:
        return None
    view = a.layouts.find(r.inputs[0], c.received[0], (r.layer.layout, c.layer.layout))
    agrees = view is not None and difference(view.to(r.inputs[0]), c.received[0]) <= 1e-3 * scale(r.inputs[0])
    return view if agrees else None


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
