"""Explanations of a gap that need no trying: a shift, a factor, a mask, a constant, a norm written by hand."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from ambidex.core import floor as floors
from ambidex.core.rule import Cause, Variant
from ambidex.core.types import Array, Call
from ambidex.engine import handwritten
from ambidex.engine.align import PLUMBING
from ambidex.engine.gap import (
    REDUCING,
    Gap,
    guess_factor,
    producing_op,
)
from ambidex.engine.layout import views
from ambidex.engine.masks import fit_mask
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
    return _mean_over_padding(glue, gap, ref_region, cand_region)


def _mean_over_padding(glue: Glue, gap: Gap, ref_region: Region, cand_region: Region) -> Cause | None:
    """The candidate's mean over all steps becomes the reference's when it is taken over the valid ones."""
    masks = [*glue.case.masks, *(x for c in ref_region.calls for x in (*c.inputs, *c.computed) if is_mask(x))]
    for call in cand_region.calls:
        if call.op not in {"ReduceMean", "GlobalAveragePool"} or call.inputs[0].ndim < 3:
            continue
        x = call.inputs[0]
        for mask in masks:
            fitted = fit_mask(mask, x.shape)
            axis = next(
                (i for i in (1, 0) if fitted is not None and fitted.shape[i] > 1 and i != _batch(mask, x)), None
            )
            if fitted is None or axis is None or fitted.all() or not fitted.any(axis).all():
                continue
            mean = (x * fitted).sum(axis) / fitted.sum(axis)
            if mean.size != call.computed[0].size:
                continue
            value = replay(glue.case.candidate, cand_region, {call.index: [mean.reshape(call.computed[0].shape)]})
            if (after := glue.agrees(gap, value, candidate=True)) is not None:
                return glue.cause(
                    gap,
                    cand_region,
                    call,
                    kind="mask",
                    op="ReduceMean",
                    name="missing",
                    proven=True,
                    after=after,
                    proof="the candidate's mean taken over the valid steps is the reference's",
                )
    return None


def _batch(mask: Array, x: Array) -> int:
    """The axis of ``x`` that the mask's first axis lies on."""
    return 0 if x.shape[0] == mask.shape[0] else 1


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


#: epsilon of the same norm, by its canonical operator
_NORMS = {"LayerNormalization", "InstanceNormalization", "GroupNormalization", "RMSNormalization"}


def norm_by_hand(glue: Glue, gap: Gap, ref_region: Region, cand_region: Region) -> Cause | None:
    """A norm that is a layer on one side and code on the other: the code's own constant as epsilon, in or outside the
    root, the variance over n or n - 1."""
    for layers, code, mirrored in ((ref_region, cand_region, False), (cand_region, ref_region, True)):
        player = glue.case.candidate if mirrored else glue.case.reference
        numbers = [x for c in code.calls if c.op == "Add" and isinstance(x := handwritten.constant(c), int | float)]
        for call in [c for c in layers.calls if c.op in _NORMS]:
            own = call.layer.attrs.get("epsilon", 1e-5)
            for eps, outside, n in product(dict.fromkeys([*numbers, own]), (False, True), (0, 1)):
                attrs = {**call.layer.attrs, "epsilon": eps, "epsilon_outside": outside, "correction": n}
                way = Variant("variant", "epsilon", eps, call.op, attrs)
                value = replay(player, layers, ways={call.index: way})
                if (after := glue.agrees(gap, value, candidate=mirrored)) is None:
                    continue
                at = next((c for c in code.calls if c.op == "Add" and handwritten.constant(c) == eps), code.calls[-1])
                spots = (call, at) if mirrored else (at, call)
                name = "epsilon_outside" if outside else "correction" if n else "epsilon"
                told = f"standard deviation{' over n - 1' if n else ''} + {eps:g}" if outside else eps if not n else n
                here, there = (own, told) if mirrored else (told, own)
                return glue.cause(
                    gap, cand_region, *spots, kind="attr" if name == "epsilon" else "variant", op=call.op, name=name,
                    reference=there, candidate=here, proven=True, after=after,
                    proof="the norm computed with these settings of the code by hand is exactly the other side",
                )  # fmt: skip
    return None
