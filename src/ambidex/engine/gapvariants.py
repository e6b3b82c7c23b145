"""Explanations of a gap by trying: one or two calls of its region computed in another way, on either side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ambidex.core.rule import Cause
from ambidex.core.types import Array, Call
from ambidex.engine.align import PLUMBING
from ambidex.engine.gap import (
    Gap,
    counterpart,
    producing_op,
    worded,
)
from ambidex.engine.layout import difference
from ambidex.engine.measure import visible
from ambidex.engine.replay import Region, replay
from ambidex.engine.variants import of_call
from ambidex.engine.varied import vary
from ambidex.rules import variants as rule_variants

if TYPE_CHECKING:
    from ambidex.engine.glue import Glue


def reference_side(
    glue: Glue, gap: Gap, ref_region: Region, cand_region: Region, base: dict[int, Sequence[Array]]
) -> Cause | None:
    for call in reversed(ref_region.calls):
        if call.op in PLUMBING and call.op != "Cast" or call.index in base:
            continue
        for v in [*of_call(call), *rule_variants(call)]:
            out = vary(glue.case.reference, call, call.inputs, v)
            if out is None:
                continue
            value = (
                out[0]
                if gap.reference_origin == ("call", call.index, 0)
                else replay(glue.case.reference, ref_region, {**base, call.index: out})
            )
            if (after := glue.agrees(gap, value)) is not None:
                glue.known[call.index] = v
                at = counterpart(call, cand_region, v.name)
                return glue.cause(
                    gap,
                    cand_region,
                    at,
                    call,
                    **worded(v, call, ref_region, mirrored=False),
                    proven=True,
                    after=after,
                    proof="the reference computed in this way gives exactly what the candidate has",
                )
    return None


def candidate_side(glue: Glue, gap: Gap, ref_region: Region, cand_region: Region) -> Cause | None:
    for call in reversed(cand_region.calls):
        if call.op in PLUMBING and call.op != "Cast":
            continue
        for v in [*of_call(call), *rule_variants(call)]:
            out = vary(glue.case.candidate, call, call.inputs, v)
            if out is None:
                continue
            value = replay(
                glue.case.candidate,
                cand_region,
                {
                    call.index: [
                        x.reshape(y.shape) if x.size == y.size else x for x, y in zip(out, call.computed, strict=False)
                    ]
                },
            )
            if (after := glue.agrees(gap, value, candidate=True)) is not None:
                told = worded(v, call, cand_region, mirrored=True)
                if v.kind == "wiring" and producing_op(glue.run, call.origins[0]) in {"LSTM", "GRU", "RNN"}:
                    told |= {"op": producing_op(glue.run, call.origins[0]), "name": "state"}
                return glue.cause(
                    gap,
                    cand_region,
                    call,
                    counterpart(call, ref_region),
                    **told,
                    proven=True,
                    after=after,
                    proof="the candidate computed in this way gives the reference's value",
                )
    return None


def two_variants(glue: Glue, gap: Gap, ref_region: Region, cand_region: Region) -> Cause | None:
    """Two variants together (two faults in one region): the pair that explains it; the second becomes known."""
    singles: list[tuple[float, Call, Any, Sequence[Array]]] = []
    for call in ref_region.calls:
        if call.op in PLUMBING:
            continue
        for v in [*of_call(call), *rule_variants(call)]:
            out = vary(glue.case.reference, call, call.inputs, v)
            value = replay(glue.case.reference, ref_region, {call.index: out}) if out is not None else None
            if out is None or value is None or value.size != gap.wanted.size:
                continue
            d = difference(visible(gap.view.to(value.reshape(gap.view.source)), gap.softmax), gap.received)
            if np.isfinite(d):
                singles.append((d, call, v, out))
    singles.sort(key=lambda s: s[0])
    for n, (_, call, v, made) in enumerate(singles[:25]):
        for _, other, w, _ in singles[:60]:
            if (
                other.index == call.index
                and n == 0
                and len(ref_region.calls) > 1
                or (other.index == call.index and v.kind == w.kind)
            ):
                continue
            both = _both(glue, call, v, made, other, w)
            after = None if both is None else glue.agrees(gap, replay(glue.case.reference, ref_region, both))
            if after is not None:
                first = glue.cause(
                    gap,
                    cand_region,
                    counterpart(call, cand_region, v.name),
                    call,
                    **worded(v, call, ref_region, mirrored=False),
                    proven=True,
                    after=after,
                    proof="the reference computed with both changes gives exactly what the candidate has",
                )
                second = glue.cause(
                    gap,
                    cand_region,
                    counterpart(other, cand_region, w.name),
                    other,
                    **worded(w, other, ref_region, mirrored=False),
                    proven=True,
                    after=after,
                    proof="the reference computed with both changes gives exactly what the candidate has",
                )
                glue.known[call.index], glue.known[other.index] = v, w
                glue.causes.append(second)
                return first
    return None


def _both(
    glue: Glue, call: Call, v: Any, out: Sequence[Array], other: Call, w: Any
) -> dict[int, Sequence[Array]] | None:
    if call.index == other.index:
        if v.attrs is not None and w.feed is not None:
            fed = list(w.feed(list(call.inputs)))
        elif w.attrs is not None and v.feed is not None:
            fed, v = list(v.feed(list(call.inputs))), w
        elif v.attrs is not None and w.attrs is not None and v.op == w.op == call.op:
            merged = {
                **call.layer.attrs,
                **{k: x for x_ in (v, w) for k, x in x_.attrs.items() if x != call.layer.attrs.get(k)},
            }
            merged.pop("scale_name", None)
            made = glue.case.reference.canonical(
                call.op, merged, glue.case.reference.weights(call), call.inputs, call.layer.layout
            )
            return None if made is None else {call.index: made}
        else:
            return None
        attrs = {k: x for k, x in v.attrs.items() if k != "scale_name"}
        made = glue.case.reference.canonical(v.op, attrs, glue.case.reference.weights(call), fed, call.layer.layout)
        return None if made is None else {call.index: made}
    first, second = (call, other) if call.index < other.index else (other, call)
    fv, sv = (v, w) if call.index < other.index else (w, v)
    a = out if first is call else vary(glue.case.reference, first, first.inputs, fv)
    if a is None:
        return None
    inputs = [
        a[o[2]].reshape(x.shape)
        if o[0] == "call" and o[1] == first.index and o[2] < len(a) and a[o[2]].size == x.size
        else x
        for o, x in zip(second.origins, second.inputs, strict=True)
    ]
    b = vary(glue.case.reference, second, inputs, sv)
    return None if b is None else {first.index: a, second.index: b}
