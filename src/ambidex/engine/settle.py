"""From paired weights to a settled alignment: forced runs, second thoughts about pairings, float64 floors."""

from __future__ import annotations

from dataclasses import replace

from ambidex.core import floor as floors
from ambidex.core.model import Batch
from ambidex.core.trace import Trace
from ambidex.engine import align
from ambidex.engine import carry as carrying
from ambidex.engine import weights as weighting
from ambidex.engine.job import Job
from ambidex.engine.layout import View
from ambidex.engine.measure import Forced, run_forced
from ambidex.engine.names import alike
from ambidex.engine.outputs import pair_outputs
from ambidex.engine.recording import with_weights
from ambidex.errors import AlignError, AmbidexError


def lined_up(
    job: Job,
    ref: Trace,
    chained: Trace,
    pairing: weighting.Pairing,
    batch: Batch,
    banned: frozenset[View] = frozenset(),
) -> tuple[align.Alignment, Forced]:
    a = align.start(ref, chained, pairing, job.user_map, banned)
    if job.weights == "carry":
        a.arrays = {}  # carried over, they are equal now
    for trace, side in ((ref, "reference"), (chained, "candidate")):
        if not trace.calls:
            raise AlignError(
                f"the {side} ran no layer and no operator that could be recorded",
                "there is nothing to line the other side up with",
                "Does it use its inputs? A compiled or traced function cannot be looked into",
            )
    align.through_crops(a)
    align.by_value(a, chained)
    align.by_order(a, frozenset({"pool", "resize"}))
    forced = run_forced(job.candidate, batch, a, chained, job.masks, force_inputs=False)
    for _ in range(12):
        added = align.by_value(a, forced.trace)
        added += align.by_order(a) or align.by_overlap(a)
        if not added:
            break
        forced = run_forced(job.candidate, batch, a, chained, job.masks, force_inputs=False)
    return a, run_forced(job.candidate, batch, a, forced.trace, job.masks, force_inputs=True)


def turned_one_way(
    job: Job, ref: Trace, chained: Trace, pairing: weighting.Pairing, batch: Batch, a: align.Alignment, forced: Forced
) -> tuple[align.Alignment, Forced]:
    """Where values lie in one axis order at one place and in another at the next (two axes of equal size exchanged),
    one of the places may be a fault that only looks right when turned: each order is tried alone, the fewest faults
    decide."""
    least = count_faults(forced)
    choices = [counts for counts in a.layouts.seen.values() if least and len(counts) > 1]
    for counts in choices[:3]:
        for kept in sorted(counts, key=lambda v: -counts[v])[:3]:
            try:
                b, other = lined_up(job, ref, chained, pairing, batch, a.layouts.banned | (counts.keys() - {kept}))
                b, other = without_harmless(job, b, other, batch)
            except AmbidexError:
                continue
            if count_faults(other) < least and len(other.pairs) >= len(forced.pairs):
                least, a, forced = count_faults(other), b, other
    return a, forced


def count_faults(forced: Forced) -> int:
    return sum(m.faulty or bool(m.glue) for m in forced.pairs.values())


#: families that mean something by themselves: where such a pair differs, it is a fault and no other way to go
_MEANT = {"activation", "norm", "conv", "pool", "attention", "resize", "rnn", "regularize"}


def _trouble(job: Job, a: align.Alignment, forced: Forced) -> set[object]:
    found: set[object] = {j for j, m in forced.pairs.items() if m.faulty or m.glue}
    return found | {p.reference for p in pair_outputs(a, forced.trace, job.masks) if p.gap is not None}


def without_harmless(job: Job, a: align.Alignment, forced: Forced, batch: Batch) -> tuple[align.Alignment, Forced]:
    """Give up matches by order between functional operators that differ without any consequence: hand-written code
    may go another way to the same value (a softmax that subtracts another maximum). Tried by leaving them alone."""

    def on_the_way(j: object) -> bool:
        m = forced.pairs.get(j) if isinstance(j, int) else None
        return (
            m is not None
            and m.how in {"order", "value"}
            and not any(o[0] == "weight" and o[1] in a.arrays for o in m.candidate.origins)
            and m.reference.layer.functional
            and m.candidate.layer.functional
            and align.family(m.reference) not in _MEANT
        )

    suspects = [j for j, m in forced.pairs.items() if m.how == "order" and (m.faulty or m.glue) and on_the_way(j)]
    for group in [suspects, *([j] for j in suspects[:8])] if len(suspects) > 1 else [[j] for j in suspects]:
        removed = {j for j in group if j in a.matches}
        known = _trouble(job, a, forced)
        for _ in range(8 if removed else 0):
            other = replace(a, matches=dict(a.matches), by_reference=dict(a.by_reference))
            for j in removed:
                other.by_reference.pop(other.matches.pop(j).reference)
            try:
                run = run_forced(job.candidate, batch, other, forced.trace, job.masks, force_inputs=True)
            except AmbidexError:
                break
            more = _trouble(job, other, run) - (known - removed)
            if not more:
                a, forced = other, run
                break
            if not all(on_the_way(j) for j in more):
                break
            removed |= {j for j in more if isinstance(j, int)}
    return a, forced


def settled(
    job: Job,
    ref: Trace,
    first: Trace,
    chained: Trace,
    pairing: weighting.Pairing,
    batch: Batch,
    a: align.Alignment,
    forced: Forced,
) -> tuple[align.Alignment, Forced, weighting.Pairing, Trace]:
    """Where names and shapes left a choice between weights, the measured difference decides."""
    if job.weights != "carry":
        return a, forced, pairing, chained
    best = count_faults(forced)
    tried = False
    for change in carrying.alternatives(pairing, ref, first, forced.pairs.values()):
        if best == 0:
            break
        tried = True
        carrying.carry(change, ref, job.candidate, first)
        try:
            run = with_weights(job.candidate, job.candidate.run(batch))
            other, other_forced = lined_up(job, ref, run, change, batch)
        except AmbidexError:
            continue
        count = count_faults(other_forced)
        if count < best:
            best, a, forced, pairing, chained = count, other, other_forced, change, run
            for entry in pairing.report:
                entry.how = (
                    entry.how.replace("order", "trial")
                    if entry in change.report and entry.how == "order"
                    else entry.how
                )
    if tried:
        carrying.carry(pairing, ref, job.candidate, first)
    return a, forced, pairing, chained


def by_structure(
    job: Job, ref: Trace, chained: Trace, pairing: weighting.Pairing, batch: Batch, a: align.Alignment, forced: Forced
) -> tuple[align.Alignment, Forced, weighting.Pairing]:
    """Loaded weights that agree crosswise: pair the layers by their place instead, when that leaves less unexplained
    between the layers (then it is the weights that are exchanged, not the layers)."""
    other = weighting.pair(ref, chained, job.user_map, by_value=False)
    if {x[:2] for x in other.layers} == {x[:2] for x in pairing.layers} and {
        (p.reference, p.candidate) for p in other.raw
    } == {(p.reference, p.candidate) for p in pairing.raw}:
        return a, forced, pairing
    b, second = lined_up(job, ref, chained, other, batch)
    b, second = without_harmless(job, b, second, batch)
    second = with_floors(job, b, second, batch, chained)
    before, after = count_faults(forced), count_faults(second)
    likeness = [
        sum(alike(r, c) for r, c, _ in p.layers) + sum(alike(x.reference, x.candidate) for x in p.raw)
        for p in (pairing, other)
    ]
    if sum(bool(m.glue) for m in second.pairs.values()) < sum(bool(m.glue) for m in forced.pairs.values()) or (
        after <= before and likeness[1] > likeness[0]
    ):
        return b, second, other
    return a, forced, pairing


def with_floors(job: Job, a: align.Alignment, forced: Forced, batch: Batch, chained: Trace) -> Forced:
    """Where a difference looks like a fault, the candidate's own float64 floor decides with the reference's."""
    if not count_faults(forced):
        return forced
    if _floors_alone(job, forced):
        return forced
    faulty = {m.candidate.key for m in forced.pairs.values() if m.faulty}
    return run_forced(job.candidate, batch, a, forced.trace, job.masks, force_inputs=True, exact=faulty)


def _floors_alone(job: Job, forced: Forced) -> bool:
    """The floors of the calls in question, each made once more in float64, where that is all that is asked for: nothing
    differs between the layers, and every call has one output and all its inputs from the reference."""
    faulty = [m for m in forced.pairs.values() if m.faulty]
    if any(m.glue for m in forced.pairs.values()):
        return False
    for m in faulty:
        given = {a.port.candidate for a in m.arrived}
        moving = {
            i for i, x in enumerate(m.candidate.inputs) if x.dtype.kind == "f" and m.candidate.origins[i][0] == "call"
        }
        if len(m.outputs) != 1 or len(m.candidate.computed) != 1 or not moving <= given:
            return False
    try:
        found = [job.candidate.call(m.candidate.path, m.candidate.inputs, like=m.candidate, exact=True) for m in faulty]
    except AmbidexError:
        return False
    for m, exact in zip(faulty, found, strict=True):
        m.candidate.exact, m.candidate.floors = exact, None
        m.floor = max(m.floor, floors.within(m.candidate, 0, floors.unit(forced.trace.meta)) or 0.0)
        m.candidate.exact = None
    return True
