"""Explanations of a gap that need no trying: a factor, another order, a mask, a constant, another source."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from ambidex.core import floor as floors
from ambidex.core.rule import Cause
from ambidex.core.types import Array, Call
from ambidex.engine.align import PLUMBING
from ambidex.engine.gap import (
    REDUCING,
    Gap,
    guess_factor,
    last_op,
    origin_path,
    producing_op,
)
from ambidex.engine.layout import difference, scale, views
from ambidex.engine.maskvariants import is_mask
from ambidex.engine.replay import Region, replay

if TYPE_CHECKING:
    from ambidex.engine.glue import Glue


def shifted_index(glue: Glue, gap: Gap) -> Cause | None:
    """Integer inputs: ids or positions that are shifted."""
    if gap.wanted.dtype.kind not in "iu" or gap.received.dtype.kind not in "iu":
        return None
    shift = gap.received.astype(np.int64) - gap.wanted.astype(np.int64)
    empty = Region([], gap.candidate_origin, gap.received)
    if shift.size and (shift == shift.flat[0]).all():
        return glue.cause(
            gap,
            empty,
            kind="wiring",
            op="Gather",
            name="index",
            reference=0,
            candidate=int(shift.flat[0]),
            detail={"shift": int(shift.flat[0])},
            proven=True,
            after=float(np.abs(gap.received - gap.wanted - shift.flat[0]).max()),
            proof="with the indices shifted back the layer's inputs are equal",
        )
    return glue.cause(
        gap,
        empty,
        kind="wiring",
        op="Gather",
        name="index",
        detail={"shift": None},
        proven=True,
        proof="the layer was run on the reference's indices",
    )


def constant_factor(glue: Glue, gap: Gap, ref_region: Region, cand_region: Region) -> Cause | None:
    if gap.wanted.shape != gap.received.shape or gap.wanted.size < 3 or not ref_region.calls and not cand_region.calls:
        return None
    a, b = gap.wanted.astype(np.float64).ravel(), gap.received.astype(np.float64).ravel()
    if not (np.isfinite(a).all() and np.isfinite(b).all()) or not a.any():
        return None
    k = float(a @ b / (a @ a))
    if k == 0 or abs(k - 1) < 1e-9 or np.abs(b - k * a).max() > 4 * floors.RATIO * gap.floor * max(1.0, abs(k)):
        return None
    if float(np.abs(b - k * a).max()) > 0.1 * gap.diff:
        return None
    shape = gap.wanted.shape
    guess = guess_factor(k, shape, [*ref_region.calls, *cand_region.calls])
    at = next((c for c in reversed(cand_region.calls) if c.op in {"Mul", "Div"}), None)
    mean, mine = (
        next((c for c in reversed(region.calls) if c.op in REDUCING), None) for region in (ref_region, cand_region)
    )
    if mean is not None and mine is not None and (mean.op == "ReduceSum") != (mine.op == "ReduceSum"):
        kinds = ["ReduceSum" if x.op == "ReduceSum" else "ReduceMean" for x in (mean, mine)]
        return glue.cause(
            gap,
            cand_region,
            mine,
            mean,
            kind="op",
            op=kinds[0],
            name=kinds[1],
            reference=mean.layer.attrs,
            candidate=mine.layer.attrs,
            proven=True,
            after=float(np.abs(b / k - a).max()),
            proof=f"the candidate's value divided by {k:.6g} is the reference's",
        )
    edges = [
        glue.run.calls[o[1]]
        for c in cand_region.calls
        for o in c.origins
        if o[0] == "call" and o[1] in glue.case.alignment.matches
    ]
    for call in [c for c in edges if c.op == "Add"]:  # both directions summed, the sum itself is right
        edges += [glue.run.calls[o[1]] for o in call.origins if o[0] == "call"]
    for call in [c for c in edges if c.op in PLUMBING | {"Flip", "Slice"} and c.origins and c.origins[0][0] == "call"]:
        edges.append(glue.run.calls[call.origins[0][1]])
    edges = [c for c in edges if c.op in {"LSTM", "GRU", "RNN"}]
    if {c.layer.attrs.get("direction") for c in edges} == {"forward", "reverse"}:
        names = ("sum", "ave") if k < 1 else ("ave", "sum")
        return glue.cause(
            gap,
            cand_region,
            at,
            edges[0],
            kind="attr",
            op=edges[0].op,
            name="merge",
            reference=names[0],
            candidate=names[1],
            proven=True,
            after=float(np.abs(b / k - a).max()),
            proof=f"the candidate's value divided by {k:.6g} is the reference's",
        )
    producer = glue.producer(gap) if not cand_region.calls else None
    theirs = next((c for c in reversed(ref_region.calls) if c.op not in PLUMBING), None)
    return glue.cause(
        gap,
        cand_region,
        at or producer,
        theirs,
        kind="scale",
        op=gap.consumer.op if gap.consumer else "",
        name="factor",
        reference=1.0,
        candidate=k,
        proven=True,
        after=float(np.abs(b / k - a).max()),
        proof=f"the candidate's value divided by {k:.6g} is the reference's",
        detail={
            "guess": guess,
            "producer": producing_op(glue.run, gap.candidate_origin),
            "consumer": gap.consumer.op if gap.consumer else "output",
        },
    )


def masked_mean(glue: Glue, gap: Gap, ref_region: Region, cand_region: Region) -> Cause | None:
    """The reference takes the mean over valid steps, the candidate over all of them."""
    for call in ref_region.calls:
        if call.op != "Mul" or len(call.inputs) != 2 or not any(c.op.startswith("Reduce") for c in ref_region.calls):
            continue
        for i in (0, 1):
            mask, x = call.inputs[i], call.inputs[1 - i]
            if not is_mask(mask) or x.ndim < 2 or x.dtype.kind != "f":
                continue
            for axis in range(x.ndim):
                mean = x.mean(axis, dtype=np.float64)
                if mean.size == gap.wanted.size and (after := glue.agrees(gap, mean)) is not None:
                    return glue.cause(
                        gap,
                        cand_region,
                        next((c for c in reversed(cand_region.calls) if c.op.startswith("Reduce")), None),
                        call,
                        kind="mask",
                        op="ReduceMean",
                        name="missing",
                        proven=True,
                        after=after,
                        proof="the reference's mean taken over all steps is exactly what the candidate has",
                    )
    return None


def unmasked_source(glue: Glue, gap: Gap, cand_region: Region) -> Cause | None:
    """A recurrent layer without the reference's mask: valid steps agree, but code behind it reads a padded one."""
    a = glue.case.alignment
    edges = {o[1] for c in cand_region.calls for o in c.origins if o[0] == "call"} | (
        {gap.candidate_origin[1]} if gap.candidate_origin[0] == "call" else set()
    )
    for j in sorted(edges):
        match = a.matches.get(j)
        if match is None:
            continue
        r, c = a.reference.calls[match.reference], glue.run.calls[j]
        if c.op not in {"LSTM", "GRU", "RNN"} or "mask" not in r.names:
            continue
        mask = r.inputs[r.names.index("mask")]
        inputs = [x for x, n in zip(c.inputs, c.names, strict=True) if n != "mask"]
        made = glue.case.candidate.canonical(
            c.op, c.layer.attrs, glue.case.candidate.weights(c), [*inputs, mask], c.layer.layout
        )
        if made is None:
            continue
        value = replay(
            glue.case.candidate,
            cand_region,
            {j: [m.reshape(o.shape) if m.size == o.size else m for m, o in zip(made, c.computed, strict=False)]},
        )
        if (after := glue.agrees(gap, value, candidate=True)) is not None:
            name = "missing" if "mask" not in c.names else "differs"
            return glue.cause(
                gap,
                cand_region,
                c,
                r,
                kind="mask",
                op=c.op,
                name=name,
                proven=True,
                after=after,
                proof="with the reference's mask on this layer the value behind it is the reference's",
            )
    return None


def baked_constant(glue: Glue, gap: Gap, ref_region: Region, cand_region: Region) -> Cause | None:
    """A layer that was evaluated when the model was built: its value is a constant of the graph now."""
    trace = glue.case.reference.trace
    root = glue.case.alignment.root(trace, gap.reference_origin)
    lonely = [c for c in ref_region.calls if c.layer.weights and c.computed]
    if gap.candidate_origin[0] == "const" and (lonely or root[0] == "call" and trace.calls[root[1]].layer.weights):
        made_by = lonely[-1] if lonely else trace.calls[root[1]]
        return glue.cause(
            gap,
            cand_region,
            gap.consumer,
            made_by,
            kind="constant",
            op=made_by.op,
            name=made_by.path,
            proven=True,
            proof="with the reference's value in place of the constant the layer is at its floor",
        )
    edges = {o[1] for c in ref_region.calls for o in c.origins if o[0] == "call"} - {c.index for c in ref_region.calls}
    lonely += [trace.calls[i] for i in sorted(edges) if trace.calls[i].layer.weights and trace.calls[i].computed]
    if not lonely:
        return None
    spots: list[tuple[Call, int]] = [
        (c, i)
        for c in cand_region.calls
        for i, o in enumerate(c.origins)
        if o[0] == "const" and c.inputs[i].dtype.kind == "f"
    ]
    for call, i in spots:
        for r in lonely:
            value = r.computed[0]
            if value.size != call.inputs[i].size:
                continue
            view = next(views(value.shape, call.inputs[i].shape), None)
            if view is None:
                continue
            given = list(call.inputs)
            given[i] = view.to(value).astype(given[i].dtype)
            made = glue.case.candidate.compute(call, given)
            if made is None:
                continue
            after = replay(glue.case.candidate, cand_region, {call.index: made})
            if (distance := glue.agrees(gap, after, candidate=True)) is not None:
                return glue.cause(
                    gap,
                    cand_region,
                    call,
                    r,
                    kind="constant",
                    op=r.op,
                    name=r.path,
                    proven=True,
                    after=distance,
                    proof="with the reference's value in place of the constant both sides agree",
                )
    return None


def fused_order(glue: Glue, gap: Gap, ref_region: Region, cand_region: Region) -> Cause | None:
    """Projections that are one layer on one side: its parts are taken in another order than the other side's."""
    for fused in glue.case.pairing.packed:
        near = {c.index for c in ref_region.calls} | {
            o[1] for c in ref_region.calls for o in c.origins if o[0] == "call"
        }
        makers = [glue.case.reference.trace.calls[i] for i in sorted(near)]
        calls = [c for path in fused.parts for c in makers if c.path == path] if fused.mirrored else []
        split = (
            []
            if fused.mirrored
            else [c for c in ref_region.calls if c.op == "Split" and len(c.computed) == len(fused.parts)]
        )
        values = [c.computed[0] for c in calls] if calls else list(split[0].computed) if split else []
        if len(values) != len(fused.parts) or len({v.shape for v in values}) != 1:
            continue
        for order in list(permutations(range(len(values))))[1:]:
            moved = [values[i] for i in order]
            changed: dict[int, Sequence[Array]] = {c.index: [m] for c, m in zip(calls, moved, strict=False)}
            if split:
                changed[split[0].index] = moved
            if (after := glue.agrees(gap, replay(glue.case.reference, ref_region, changed))) is not None:
                at = next(
                    (c for c in cand_region.calls if c.op == "Split" or c.path in {fused.whole, *fused.parts}), None
                )
                return glue.cause(
                    gap,
                    cand_region,
                    at,
                    (calls or split)[0],
                    kind="order",
                    op="Concat",
                    name="concat",
                    candidate=order,
                    proven=True,
                    after=after,
                    proof="with the parts in this order the reference gives what the candidate has",
                )
    return None


def fused_bias(glue: Glue, gap: Gap, ref_region: Region, cand_region: Region) -> Cause | None:
    """Projections that are one layer on one side, and only one side has their biases."""
    player = glue.case.reference
    for fused in glue.case.pairing.packed:
        paths = set(fused.parts if fused.mirrored else [fused.whole])
        calls = [c for c in ref_region.calls if c.path in paths and "B" in player.weights(c)]
        other = glue.case.candidate.trace.layer_weights.get(fused.whole if fused.mirrored else fused.parts[0], {})
        if not calls or "B" in other:
            continue
        changed: dict[int, Sequence[Array]] = {}
        for call in calls:
            bare = {r: w for r, w in player.weights(call).items() if r != "B"}
            made = player.canonical(call.op, call.layer.attrs, bare, call.inputs, call.layer.layout)
            if made is None:
                return None
            changed[call.index] = [made[0].reshape(call.computed[0].shape).astype(call.computed[0].dtype)]
        if (after := glue.agrees(gap, replay(player, ref_region, changed))) is not None:
            at = next((c for c in cand_region.calls if c.path in {fused.whole, *fused.parts}), None)
            return glue.cause(
                gap,
                cand_region,
                at,
                calls[0],
                kind="parameter",
                op="Gemm",
                name="B",
                proven=True,
                after=after,
                reference=calls[0].layer.weights.get("B"),
                detail={"effect": True},
                proof="the reference without these biases gives exactly what the candidate has",
            )
    return None


def wired_elsewhere(glue: Glue, gap: Gap, cand_region: Region) -> Cause | None:
    """The candidate takes the value of another place of the reference."""
    if (
        gap.received.size < 4
        or gap.received.dtype.kind != "f"
        or float(np.ptp(gap.received)) <= 1e-6 * scale(gap.received)
    ):
        return None
    total = float(np.abs(gap.received.astype(np.float64)).sum())
    places: list[tuple[str, Array, Call | None]] = [
        (f"input {n}", v, None) for n, v in glue.case.reference.trace.inputs.items()
    ]
    places += [(c.path, v, c) for c in glue.case.reference.trace.calls for v in c.outputs if v.dtype.kind == "f"]
    for path, value, call in places:
        if value.size != gap.received.size or abs(float(np.abs(value.astype(np.float64)).sum()) - total) > 1e-4 * total:
            continue
        for option in views(value.shape, gap.received.shape):
            if (after := difference(option.to(value), gap.received)) <= floors.RATIO * gap.floor:
                return glue.cause(
                    gap,
                    cand_region,
                    kind="wiring",
                    op=gap.consumer.op if gap.consumer else "",
                    name="input",
                    reference=origin_path(glue.case.reference.trace, gap.reference_origin),
                    candidate=path,
                    proven=True,
                    after=after,
                    proof="what arrives is exactly the reference's value of that other place",
                    detail={"from_op": call.op if call else "input"},
                )
    return None


def other_order(glue: Glue, gap: Gap, ref_region: Region, cand_region: Region) -> Cause | None:
    """The same numbers, elsewhere: a flatten in another axis order, heads cut in another way."""
    if gap.wanted.size != gap.received.size or gap.wanted.dtype.kind != "f" or gap.wanted.size < 4:
        return None
    a, b = np.sort(gap.wanted.ravel()), np.sort(gap.received.ravel())
    if float(np.abs(a - b).max()) > floors.RATIO * gap.floor:
        return None
    limit = floors.RATIO * gap.floor
    name = "values"
    if any(_flattened(c, gap.received, limit) for c in ref_region.calls) or any(
        _flattened(c, gap.wanted, limit) for c in cand_region.calls
    ):
        name = "flatten"
    elif any(c.op == "Concat" for c in ref_region.calls + cand_region.calls):
        name = "concat"
    elif any(c.op in {"Attention", "MatMul"} for c in ref_region.calls):
        name = "heads"
    return glue.cause(
        gap,
        cand_region,
        kind="order",
        op="Flatten" if name == "flatten" else last_op(ref_region),
        name=name,
        proven=True,
        after=float(np.abs(a - b).max()),
        proof="both sides hold the same numbers, in another order",
    )


def _flattened(call: Call, target: Array, limit: float) -> bool:
    """Whether this flattening, done on axes in another order, gives ``target``."""
    if call.op not in {"Flatten", "Reshape"} or not call.inputs:
        return False
    before = call.inputs[0]
    if not 2 < before.ndim <= 5 or before.size != target.size:
        return False
    orders = list(permutations(range(1, before.ndim)))[1:]
    return any(difference(before.transpose(0, *p).reshape(target.shape), target) <= limit for p in orders)
