"""Explanations of a gap by order or place: parts in another order, another axis order, another source."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from ambidex.core import floor as floors
from ambidex.core.rule import Cause
from ambidex.core.types import Array, Call
from ambidex.engine.gap import Gap, last_op, origin_path
from ambidex.engine.layout import difference, scale, views
from ambidex.engine.replay import Region, replay

if TYPE_CHECKING:
    from ambidex.engine.glue import Glue


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
                    detail={"from_op": call.op if call else "input", "exchanged": _of_same_call(glue, gap, value)},
                )
    return None


def _of_same_call(glue: Glue, gap: Gap, value: Array) -> bool:
    """Whether this is what the reference's partner of the consumer takes as another input: two inputs exchanged."""
    match = glue.case.alignment.matches.get(gap.consumer.index) if gap.consumer is not None else None
    if match is None:
        return False
    call = glue.case.alignment.reference.calls[match.reference]
    others = [x for x, o in zip(call.inputs, call.origins, strict=True) if o != gap.reference_origin]
    return any(x.size == value.size and np.array_equal(x.ravel(), value.ravel()) for x in others)


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
    elif (cut := _halves(gap.wanted, gap.received, limit)) is not None:
        name = cut
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


def _halves(wanted: Array, received: Array, limit: float) -> str | None:
    """Whether the last axis is interleaved on one side and cut in two halves on the other; what ``received`` is."""
    n = wanted.shape[-1] if wanted.shape == received.shape and wanted.ndim else 0
    if n < 4 or n % 2:
        return None
    for name, a, b in (("halves", wanted, received), ("interleaved", received, wanted)):
        if difference(np.concatenate([a[..., 0::2], a[..., 1::2]], -1), b) <= limit:
            return name
    return None
