"""Why the code between layers differs: what arrives at a layer although everything upstream carries right values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ambidex.core import floor as floors
from ambidex.core.rule import Cause, Variant
from ambidex.core.trace import Trace
from ambidex.core.types import Array, Call
from ambidex.engine.align import PLUMBING
from ambidex.engine.carry import named_weight
from ambidex.engine.case import Case
from ambidex.engine.gap import Gap, last_op, op_names
from ambidex.engine.gapcauses import (
    baked_constant,
    constant_factor,
    masked_mean,
    norm_by_hand,
    shifted_index,
    unmasked_source,
)
from ambidex.engine.gaporder import fused_bias, fused_order, other_order, wired_elsewhere
from ambidex.engine.gapvariants import candidate_side, everywhere, reference_side, two_variants
from ambidex.engine.masks import off, rows_without_keys, spread
from ambidex.engine.measure import visible
from ambidex.engine.replay import Region, region_of, replay


@dataclass
class Glue:
    """Explains gaps one after another; causes found earlier are applied to later regions that hold the same call."""

    case: Case
    run: Trace  # the forced run of the candidate
    known: dict[int, Variant] = field(default_factory=dict)  # reference call -> how the candidate computes it
    reloaded: dict[int, Variant] = field(default_factory=dict)  # candidate call -> the same with the right weights
    seen: set[tuple[Any, ...]] = field(default_factory=set)
    causes: list[Cause] = field(default_factory=list)
    rewired: list[str] = field(default_factory=list)  # scopes of explained rewirings
    unsure: set[int] = field(
        default_factory=set
    )  # faulty recurrent calls: what they hand on at padded steps is not known
    random: set[int] = field(default_factory=set)  # calls that draw: what they feed is theirs
    inside: set[tuple[str, int]] = field(default_factory=set)  # calls compared as part of a region
    masks: list[Array] = field(default_factory=list)  # of the gap at hand: rows of an attention without a key as well
    spots: dict[int, int] = field(default_factory=dict)  # cause -> the candidate's call that it is told of
    regions: list[tuple[str, str, Gap]] = field(default_factory=list)  # gaps as rows of the report

    def __post_init__(self) -> None:
        """Calls that take single arrays whose loaded values differ: the same calls with the reference's values."""
        if self.case.weights != "keep":
            return
        for pair in self.case.pairing.raw_unequal:
            value = pair.view.to(named_weight(self.case.reference.trace, pair.reference))
            for call in self.run.calls:
                for i, origin in enumerate(call.origins):
                    if origin == ("weight", pair.candidate, 0) and call.inputs[i].size == value.size:
                        own = call.inputs[i]
                        right = value.reshape(own.shape).astype(own.dtype)
                        before = self.reloaded.get(call.index)
                        feed = partial(_with_input, i=i, value=right, before=before.feed if before else None)
                        self.reloaded[call.index] = Variant("weight", pair.candidate, feed=feed)

    def explain(self, gap: Gap) -> Cause | None:
        """The cause of one gap; None when an earlier one already accounts for it."""
        a = self.case.alignment
        ref_region = region_of(a.reference, gap.reference_origin, gap.wanted, set(a.by_reference))
        cand_region = region_of(self.run, gap.candidate_origin, gap.received, set(a.matches))
        if any(c.index in self.random for c in cand_region.calls):
            return None
        rows = [r for c in (*ref_region.calls, *cand_region.calls) if (r := rows_without_keys(c)) is not None]
        self.masks = [*self.case.masks, *(m for r in rows for m in spread(r, gap.wanted.shape))]
        spot = ("gap", gap.reference_origin, gap.candidate_origin)
        if spot in self.seen:
            return None
        self.seen.add(spot)
        if ref_region.calls and cand_region.calls:
            steps = [
                [c for c in region.calls if c.op not in PLUMBING] or region.calls
                for region in (ref_region, cand_region)
            ]
            self.regions.append((steps[0][-1].path, steps[1][-1].path, gap))
            self.inside |= {("r", c.index) for c in ref_region.calls} | {("c", c.index) for c in cand_region.calls}
        repaired = {c.index: self.reloaded[c.index] for c in cand_region.calls if c.index in self.reloaded}
        if repaired:  # what the loaded weights do here is told of the weights: look at what is left
            value = replay(self.case.candidate, cand_region, ways=repaired)
            if self.agrees(gap, value, candidate=True) is not None:
                return None
            if value is not None and value.shape == gap.received.shape:
                gap = replace(gap, received=visible(value, gap.softmax))
        base = {c.index: self.known[c.index] for c in ref_region.calls if c.index in self.known}
        if base and self.agrees(gap, replay(self.case.reference, ref_region, ways=base)) is not None:
            return None
        found = (
            shifted_index(self, gap)
            or masked_mean(self, gap, ref_region, cand_region)
            or unmasked_source(self, gap, cand_region)
            or constant_factor(self, gap, ref_region, cand_region)
            or baked_constant(self, gap, ref_region, cand_region)
            or fused_bias(self, gap, ref_region, cand_region)
            or fused_order(self, gap, ref_region, cand_region)
            or norm_by_hand(self, gap, ref_region, cand_region)
            or reference_side(self, gap, ref_region, cand_region, base)
            or candidate_side(self, gap, ref_region, cand_region, repaired)
            or everywhere(self, gap, ref_region, cand_region, base, repaired)
            or other_order(self, gap, ref_region, cand_region)
            or wired_elsewhere(self, gap, cand_region)
            or two_variants(self, gap, ref_region, cand_region)
        )
        if (found is None or found.kind == "wiring" and found.name == "input" and self.rewired) and self._follows(
            gap, cand_region
        ):
            return None
        if found is None:
            found = self.cause(
                gap,
                cand_region,
                kind="unknown",
                op=last_op(ref_region) or (gap.consumer.op if gap.consumer else ""),
                name="between layers",
            )
            found.detail = {"reference_ops": op_names(ref_region), "candidate_ops": op_names(cand_region)}
        at = self.spots.pop(id(found), None)
        key = (
            found.kind,
            found.op,
            found.name,
            *((at,) if at is not None else (found.candidate_path, found.reference_path)),
        )
        if key in self.seen:
            return None
        self.seen.add(key)
        self.causes.append(found)
        if found.kind == "wiring" and gap.consumer is not None:
            self.rewired.append(gap.consumer.scope)
        return found

    def _follows(self, gap: Gap, cand_region: Region) -> bool:
        """Whether the code of this gap stands in a block that an explained rewiring has changed already."""
        edges = {o[1] for c in cand_region.calls for o in c.origins if o[0] == "call"}
        if edges & self.unsure:
            return True
        if gap.candidate_origin[0] == "call":
            edges.add(gap.candidate_origin[1])
        scopes = {c.scope for c in cand_region.calls if c.scope} | {
            self.run.calls[e].scope for e in edges if self.run.calls[e].scope
        }
        return any(
            scope and (w == scope or w.startswith((scope + "/", scope + "."))) for scope in scopes for w in self.rewired
        )

    def cause(
        self, gap: Gap, cand_region: Region, at: Call | None = None, reference_at: Call | None = None, **given: Any
    ) -> Cause:
        steps = [c for c in cand_region.calls if c.op not in PLUMBING] or cand_region.calls
        spot = at or (steps[-1] if steps else gap.consumer)
        made = Cause(**given)
        made.candidate_path = spot.path if spot is not None else gap.candidate_path
        if spot is not None and spot is not gap.consumer:
            self.spots[id(made)] = spot.index
        made.reference_path = reference_at.path if reference_at is not None else gap.reference_path
        if reference_at is not None and reference_at.layer.functional and at is None and spot is gap.consumer:
            made.detail.setdefault("before", gap.candidate_path)
        source = spot.layer.source if spot is not None else None
        made.source = (
            source
            or next((c.layer.source for c in reversed(cand_region.calls) if c.layer.source), None)
            or (gap.consumer.layer.source if gap.consumer else None)
        )
        made.framework = self.case.candidate.trace.framework
        made.reference_framework = self.case.reference.trace.framework
        made.candidate_cls = spot.layer.cls if spot is not None else ""
        made.before, made.floor = gap.diff, gap.floor
        made.detail.setdefault("consumer", gap.consumer.op if gap.consumer else "output")
        return made

    def producer(self, gap: Gap) -> Call | None:
        """The candidate's call whose value arrives."""
        return self.run.calls[gap.candidate_origin[1]] if gap.candidate_origin[0] == "call" else None

    def agrees(self, gap: Gap, value: Array | None, *, candidate: bool = False) -> float | None:
        """How far a replayed value is from explaining the gap, when that is within rounding; None when it is not.

        The reference's variant must give what was received, the candidate's what was wanted.
        """
        if value is None or value.size != gap.wanted.size:
            return None
        if candidate:
            if value.shape != gap.wanted.shape:
                return None
            distance = off(gap.wanted, visible(value, gap.softmax), self.masks)
        else:
            seen = visible(gap.view.to(value.reshape(gap.view.source)), gap.softmax)
            distance = off(seen, gap.received, self.masks)
        # what arrives may be far larger than what was wanted, and so its last place
        floor = gap.floor if candidate else max(gap.floor, floors.least(gap.received))
        return distance if distance <= floors.RATIO * floor else None


def _with_input(
    inputs: Sequence[Array], i: int, value: Array, before: Callable[[Sequence[Array]], Sequence[Array]] | None
) -> Sequence[Array]:
    made = list(inputs if before is None else before(inputs))
    made[i] = value
    return made
