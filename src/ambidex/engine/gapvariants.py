"""Explanations of a gap by trying: one or two calls of its region computed in another way, on either side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ambidex.core.rule import Cause, Variant
from ambidex.core.types import Call
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
from ambidex.rules import variants as rule_variants

if TYPE_CHECKING:
    from ambidex.engine.glue import Glue


def reference_side(
    glue: Glue, gap: Gap, ref_region: Region, cand_region: Region, base: dict[int, Variant]
) -> Cause | None:
    for call, v in _variants(ref_region):
        if call.index in base:
            continue
        value = replay(glue.case.reference, ref_region, ways={**base, call.index: v})
        if (after := glue.agrees(gap, value)) is not None:
            glue.known[call.index] = v
            return glue.cause(
                gap,
                cand_region,
                counterpart(call, cand_region, v.name),
                call,
                **worded(v, call, ref_region, mirrored=False),
                proven=True,
                after=after,
                proof="the reference computed in this way gives exactly what the candidate has",
            )
    return None


def candidate_side(
    glue: Glue, gap: Gap, ref_region: Region, cand_region: Region, base: dict[int, Variant]
) -> Cause | None:
    for call, v in _variants(cand_region):
        if call.index in base:
            continue
        value = replay(glue.case.candidate, cand_region, ways={**base, call.index: v})
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


def everywhere(
    glue: Glue,
    gap: Gap,
    ref_region: Region,
    cand_region: Region,
    base: dict[int, Variant],
    repaired: dict[int, Variant],
) -> Cause | None:
    """The same variant at every call of its operator in the region: both vectors of a cosine left as they are."""
    for region, mirrored, known in ((ref_region, False, base), (cand_region, True, repaired)):
        player = glue.case.candidate if mirrored else glue.case.reference
        groups: dict[tuple[str, str, str, str], dict[int, Variant]] = {}
        for call, v in _variants(region):
            groups.setdefault((call.op, v.kind, v.name, str(v.value)), {})[call.index] = v
        for ways in groups.values():
            if len(ways) < 2 or ways.keys() & known.keys():
                continue
            value = replay(player, region, ways={**known, **ways})
            if (after := glue.agrees(gap, value, candidate=mirrored)) is None:
                continue
            calls = [c for c in region.calls if c.index in ways]
            if not mirrored:
                glue.known.update(ways)
            other = counterpart(calls[-1], cand_region if not mirrored else ref_region)
            at, theirs = (calls[-1], other) if mirrored else (other, calls[-1])
            told = worded(ways[calls[-1].index], calls[-1], region, mirrored=mirrored)
            told["detail"] = {**told["detail"], "places": len(calls)}
            return glue.cause(
                gap, cand_region, at, theirs, **told, proven=True, after=after,
                proof=f"changed so in all {len(calls)} places, both sides agree",
            )  # fmt: skip
    return None


def _variants(region: Region) -> Iterator[tuple[Call, Variant]]:
    """Every other way to compute one call of the region, the last call first."""
    for call in reversed(region.calls):
        if call.op in PLUMBING and call.op != "Cast":
            continue
        for v in [*of_call(call), *rule_variants(call)]:
            yield call, v


def two_variants(glue: Glue, gap: Gap, ref_region: Region, cand_region: Region) -> Cause | None:
    """Two variants together (two faults in one region): the pair that explains it; the second becomes known."""
    singles: list[tuple[float, Call, Variant]] = []
    for call, v in _variants(ref_region):
        value = replay(glue.case.reference, ref_region, ways={call.index: v})
        if value is None or value.size != gap.wanted.size:
            continue
        d = difference(visible(gap.view.to(value.reshape(gap.view.source)), gap.softmax), gap.received)
        if np.isfinite(d):
            singles.append((d, call, v))
    singles.sort(key=lambda s: s[0])
    for n, (_, call, v) in enumerate(singles[:25]):
        for _, other, w in singles[:60]:
            if (
                other.index == call.index
                and n == 0
                and len(ref_region.calls) > 1
                or (other.index == call.index and v.kind == w.kind)
            ):
                continue
            both = {call.index: v, other.index: w} if call.index != other.index else _merged(call, v, w)
            after = None if both is None else glue.agrees(gap, replay(glue.case.reference, ref_region, ways=both))
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


def _merged(call: Call, v: Variant, w: Variant) -> dict[int, Variant] | None:
    """Two variants of one call as one."""
    if v.attrs is not None and w.attrs is not None and v.op == w.op == call.op:
        own = call.layer.attrs
        changed = {k: x for way in (v, w) for k, x in (way.attrs or {}).items() if x != own.get(k)}
        return {call.index: replace(v, attrs={**own, **changed}, feed=None)}
    if v.feed is not None and w.attrs is not None:
        v, w = w, v
    if v.attrs is None or w.feed is None:
        return None
    return {call.index: Variant(v.kind, v.name, v.value, v.op, v.attrs, compute=None, feed=w.feed)}
