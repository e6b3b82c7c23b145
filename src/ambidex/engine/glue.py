"""Why the code between layers differs: what arrives at a layer although everything upstream carries right values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import numpy as np

from ambidex.core import floor as floors
from ambidex.core.rule import Cause
from ambidex.core.trace import Trace
from ambidex.core.types import Array, Call, Origin
from ambidex.engine.align import PLUMBING
from ambidex.engine.diagnose import Case, _vary, describe_variant
from ambidex.engine.layout import View, difference, scale, views
from ambidex.engine.measure import _compare, visible
from ambidex.engine.replay import Player, Region, region_of, replay
from ambidex.engine.variants import is_causal, is_mask, of_call
from ambidex.rules import variants as rule_variants


@dataclass(slots=True)
class Gap:
    """One place where another value arrives: the consumer on both sides and the value on both sides."""

    reference_origin: Origin
    candidate_origin: Origin
    wanted: Array  # in the candidate's layout
    received: Array
    view: View
    floor: float
    reference_path: str
    candidate_path: str
    consumer: Call | None
    diff: float
    softmax: int | None = None  # the consumer's axis, where it is a softmax: wanted and received are as it sees them


@dataclass
class Glue:
    """Explains gaps one after another; causes found earlier are applied to later regions that hold the same call."""

    case: Case
    run: Trace  # the forced run of the candidate
    known: dict[int, Any] = field(default_factory=dict)  # reference call index -> variant that the candidate computes
    seen: set[tuple[Any, ...]] = field(default_factory=set)
    causes: list[Cause] = field(default_factory=list)
    rewired: list[str] = field(default_factory=list)  # scopes of explained rewirings
    unsure: set[int] = field(
        default_factory=set
    )  # faulty recurrent calls: what they hand on at padded steps is not known
    random: set[int] = field(default_factory=set)  # calls that draw: what they feed is theirs
    inside: set[tuple[str, int]] = field(default_factory=set)  # calls compared as part of a region
    regions: list[tuple[str, str, Gap]] = field(default_factory=list)  # gaps as rows of the report

    def explain(self, gap: Gap) -> Cause | None:
        """The cause of one gap; None when an earlier one already accounts for it."""
        a = self.case.alignment
        ref_region = region_of(a.reference, gap.reference_origin, gap.wanted, set(a.by_reference))
        cand_region = region_of(self.run, gap.candidate_origin, gap.received, set(a.matches))
        if any(c.index in self.random for c in cand_region.calls):
            return None
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
        base = self._known_changes(ref_region)
        if base and self._agrees(gap, replay(self.case.reference, ref_region, base)):
            return None
        found = (
            self._index(gap)
            or self._masked_mean(gap, ref_region, cand_region)
            or self._unmasked_source(gap, cand_region)
            or self._factor(gap, ref_region, cand_region)
            or self._constant(gap, ref_region, cand_region)
            or self._fused_bias(gap, ref_region, cand_region)
            or self._fused_order(gap, ref_region, cand_region)
            or self._reference_side(gap, ref_region, cand_region, base)
            or self._candidate_side(gap, ref_region, cand_region)
            or self._order(gap, ref_region, cand_region)
            or self._wiring(gap, cand_region)
            or self._two(gap, ref_region, cand_region)
        )
        if (found is None or found.kind == "wiring" and found.name == "input" and self.rewired) and self._follows(
            gap, cand_region
        ):
            return None
        if found is None:
            found = self._cause(
                gap,
                cand_region,
                kind="unknown",
                op=_last_op(ref_region) or (gap.consumer.op if gap.consumer else ""),
                name="between layers",
            )
            found.detail = {"reference_ops": _ops(ref_region), "candidate_ops": _ops(cand_region)}
        key = (found.kind, found.op, found.name, found.candidate_path, found.reference_path)
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
            scope and (w == scope or w.startswith(scope + "/") or w.startswith(scope + "."))
            for scope in scopes
            for w in self.rewired
        )

    # ------------------------------------------------------------------ helpers
    def _cause(
        self, gap: Gap, cand_region: Region, at: Call | None = None, reference_at: Call | None = None, **given: Any
    ) -> Cause:
        steps = [c for c in cand_region.calls if c.op not in PLUMBING] or cand_region.calls
        spot = at or (steps[-1] if steps else gap.consumer)
        made = Cause(**given)
        made.candidate_path = spot.path if spot is not None else gap.candidate_path
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

    def _producer(self, gap: Gap) -> Call | None:
        """The candidate's call whose value arrives."""
        return self.run.calls[gap.candidate_origin[1]] if gap.candidate_origin[0] == "call" else None

    def _agrees(self, gap: Gap, value: Array | None, *, candidate: bool = False) -> bool:
        """Whether a replayed value explains the gap: the reference's variant gives what was received, or the
        candidate's variant gives what was wanted."""
        if value is None or value.size != gap.wanted.size:
            return False
        limit = floors.RATIO * gap.floor
        if candidate:
            seen = visible(value, gap.softmax)
            return value.shape == gap.wanted.shape and _compare(gap.wanted, seen, self.case.masks) <= limit
        seen = visible(gap.view.to(value.reshape(gap.view.source)), gap.softmax)
        return _compare(seen, gap.received, self.case.masks) <= limit

    def _known_changes(self, region: Region) -> dict[int, Sequence[Array]]:
        made: dict[int, Sequence[Array]] = {}
        for call in region.calls:
            if call.index in self.known:
                out = _vary(self.case.reference, call, call.inputs, self.known[call.index])
                if out is not None:
                    made[call.index] = out
        return made

    # ------------------------------------------------------------------ explanations
    def _index(self, gap: Gap) -> Cause | None:
        """Integer inputs: ids or positions that are shifted."""
        if gap.wanted.dtype.kind not in "iu" or gap.received.dtype.kind not in "iu":
            return None
        shift = gap.received.astype(np.int64) - gap.wanted.astype(np.int64)
        empty = Region([], gap.candidate_origin, gap.received)
        if shift.size and (shift == shift.flat[0]).all():
            return self._cause(
                gap,
                empty,
                kind="wiring",
                op="Gather",
                name="index",
                reference=0,
                candidate=int(shift.flat[0]),
                detail={"shift": int(shift.flat[0])},
                proven=True,
                after=0.0,
                proof="with the indices shifted back the layer's inputs are equal",
            )
        return self._cause(
            gap,
            empty,
            kind="wiring",
            op="Gather",
            name="index",
            detail={"shift": None},
            proven=True,
            after=0.0,
            proof="the layer was run on the reference's indices",
        )

    def _factor(self, gap: Gap, ref_region: Region, cand_region: Region) -> Cause | None:
        if (
            gap.wanted.shape != gap.received.shape
            or gap.wanted.size < 3
            or not ref_region.calls
            and not cand_region.calls
        ):
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
        guess = _guess(k, shape, [c for c in ref_region.calls + cand_region.calls])
        at = next((c for c in reversed(cand_region.calls) if c.op in {"Mul", "Div"}), None)
        mean, mine = (
            next((c for c in reversed(region.calls) if c.op in _REDUCING), None) for region in (ref_region, cand_region)
        )
        if mean is not None and mine is not None and (mean.op == "ReduceSum") != (mine.op == "ReduceSum"):
            names = ("ReduceSum" if x.op == "ReduceSum" else "ReduceMean" for x in (mean, mine))
            return self._cause(
                gap,
                cand_region,
                mine,
                mean,
                kind="op",
                op=next(names),
                name=next(names),
                reference=mean.layer.attrs,
                candidate=mine.layer.attrs,
                proven=True,
                after=float(np.abs(b / k - a).max()),
                proof=f"the candidate's value divided by {k:.6g} is the reference's",
            )
        edges = [
            self.run.calls[o[1]]
            for c in cand_region.calls
            for o in c.origins
            if o[0] == "call" and o[1] in self.case.alignment.matches
        ]
        if {c.layer.attrs.get("direction") for c in edges if c.op in {"LSTM", "GRU", "RNN"}} == {"forward", "reverse"}:
            names = ("sum", "ave") if k < 1 else ("ave", "sum")
            return self._cause(
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
        producer = self._producer(gap) if not cand_region.calls else None
        theirs = next((c for c in reversed(ref_region.calls) if c.op not in PLUMBING), None)
        return self._cause(
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
                "producer": _producing_op(self.run, gap.candidate_origin),
                "consumer": gap.consumer.op if gap.consumer else "output",
            },
        )

    def _masked_mean(self, gap: Gap, ref_region: Region, cand_region: Region) -> Cause | None:
        """The reference takes the mean over valid steps, the candidate over all of them."""
        for call in ref_region.calls:
            if (
                call.op != "Mul"
                or len(call.inputs) != 2
                or not any(c.op.startswith("Reduce") for c in ref_region.calls)
            ):
                continue
            for i in (0, 1):
                mask, x = call.inputs[i], call.inputs[1 - i]
                if not is_mask(mask) or x.ndim < 2 or x.dtype.kind != "f":
                    continue
                for axis in range(x.ndim):
                    mean = x.mean(axis, dtype=np.float64)
                    if mean.size == gap.wanted.size and self._agrees(gap, mean):
                        return self._cause(
                            gap,
                            cand_region,
                            next((c for c in reversed(cand_region.calls) if c.op.startswith("Reduce")), None),
                            call,
                            kind="mask",
                            op="ReduceMean",
                            name="missing",
                            proven=True,
                            after=0.0,
                            proof="the reference's mean taken over all steps is exactly what the candidate has",
                        )
        return None

    def _unmasked_source(self, gap: Gap, cand_region: Region) -> Cause | None:
        """A recurrent layer without the reference's mask: valid steps agree, but code behind it reads a padded one."""
        a = self.case.alignment
        edges = {o[1] for c in cand_region.calls for o in c.origins if o[0] == "call"} | (
            {gap.candidate_origin[1]} if gap.candidate_origin[0] == "call" else set()
        )
        for j in sorted(edges):
            match = a.matches.get(j)
            if match is None:
                continue
            r, c = a.reference.calls[match.reference], self.run.calls[j]
            if c.op not in {"LSTM", "GRU", "RNN"} or "mask" not in r.names:
                continue
            mask = r.inputs[r.names.index("mask")]
            inputs = [x for x, n in zip(c.inputs, c.names, strict=True) if n != "mask"]
            made = self.case.candidate.canonical(
                c.op, c.layer.attrs, self.case.candidate.weights(c), [*inputs, mask], c.layer.layout
            )
            if made is None:
                continue
            value = replay(
                self.case.candidate,
                cand_region,
                {j: [m.reshape(o.shape) if m.size == o.size else m for m, o in zip(made, c.computed, strict=False)]},
            )
            if self._agrees(gap, value, candidate=True):
                name = "missing" if "mask" not in c.names else "differs"
                return self._cause(
                    gap,
                    cand_region,
                    c,
                    r,
                    kind="mask",
                    op=c.op,
                    name=name,
                    proven=True,
                    after=0.0,
                    proof="with the reference's mask on this layer the value behind it is the reference's",
                )
        return None

    def _constant(self, gap: Gap, ref_region: Region, cand_region: Region) -> Cause | None:
        """A layer that was evaluated when the model was built: its value is a constant of the graph now."""
        trace = self.case.reference.trace
        root = self.case.alignment.root(trace, gap.reference_origin)
        lonely = [c for c in ref_region.calls if c.layer.weights and c.computed]
        if gap.candidate_origin[0] == "const" and (lonely or root[0] == "call" and trace.calls[root[1]].layer.weights):
            made_by = lonely[-1] if lonely else trace.calls[root[1]]
            return self._cause(
                gap,
                cand_region,
                gap.consumer,
                made_by,
                kind="constant",
                op=made_by.op,
                name=made_by.path,
                proven=True,
                after=0.0,
                proof="with the reference's value in place of the constant the layer is at its floor",
            )
        edges = {o[1] for c in ref_region.calls for o in c.origins if o[0] == "call"} - {
            c.index for c in ref_region.calls
        }
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
                made = self.case.candidate.compute(call, given)
                if made is None:
                    continue
                after = replay(self.case.candidate, cand_region, {call.index: made})
                if self._agrees(gap, after, candidate=True):
                    return self._cause(
                        gap,
                        cand_region,
                        call,
                        r,
                        kind="constant",
                        op=r.op,
                        name=r.path,
                        proven=True,
                        after=0.0,
                        proof="with the reference's value in place of the constant both sides agree",
                    )
        return None

    def _fused_order(self, gap: Gap, ref_region: Region, cand_region: Region) -> Cause | None:
        """Projections that are one layer on one side: its parts are taken in another order than the other side's."""
        for fused in self.case.pairing.packed:
            calls = [c for path in fused.parts for c in ref_region.calls if c.path == path] if fused.mirrored else []
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
                changed = (
                    {c.index: [m] for c, m in zip(calls, moved, strict=True)} if calls else {split[0].index: moved}
                )
                if self._agrees(gap, replay(self.case.reference, ref_region, changed)):
                    at = next(
                        (c for c in cand_region.calls if c.op == "Split" or c.path in {fused.whole, *fused.parts}), None
                    )
                    return self._cause(
                        gap,
                        cand_region,
                        at,
                        (calls or split)[0],
                        kind="order",
                        op="Concat",
                        name="concat",
                        candidate=order,
                        proven=True,
                        after=0.0,
                        proof="with the parts in this order the reference gives what the candidate has",
                    )
        return None

    def _fused_bias(self, gap: Gap, ref_region: Region, cand_region: Region) -> Cause | None:
        """Projections that are one layer on one side, and only one side has their biases."""
        player = self.case.reference
        for fused in self.case.pairing.packed:
            paths = set(fused.parts if fused.mirrored else [fused.whole])
            calls = [c for c in ref_region.calls if c.path in paths and "B" in player.weights(c)]
            other = self.case.candidate.trace.layer_weights.get(fused.whole if fused.mirrored else fused.parts[0], {})
            if not calls or "B" in other:
                continue
            changed: dict[int, Sequence[Array]] = {}
            for call in calls:
                bare = {r: w for r, w in player.weights(call).items() if r != "B"}
                made = player.canonical(call.op, call.layer.attrs, bare, call.inputs, call.layer.layout)
                if made is None:
                    return None
                changed[call.index] = [made[0].reshape(call.computed[0].shape).astype(call.computed[0].dtype)]
            if self._agrees(gap, replay(player, ref_region, changed)):
                at = next((c for c in cand_region.calls if c.path in {fused.whole, *fused.parts}), None)
                return self._cause(
                    gap,
                    cand_region,
                    at,
                    calls[0],
                    kind="parameter",
                    op="Gemm",
                    name="B",
                    proven=True,
                    after=0.0,
                    reference=calls[0].layer.weights.get("B"),
                    detail={"effect": True},
                    proof="the reference without these biases gives exactly what the candidate has",
                )
        return None

    def _reference_side(
        self, gap: Gap, ref_region: Region, cand_region: Region, base: dict[int, Sequence[Array]]
    ) -> Cause | None:
        for call in reversed(ref_region.calls):
            if call.op in PLUMBING and call.op != "Cast" or call.index in base:
                continue
            for v in [*of_call(call), *rule_variants(call)]:
                out = _vary(self.case.reference, call, call.inputs, v)
                if out is None:
                    continue
                value = (
                    out[0]
                    if gap.reference_origin == ("call", call.index, 0)
                    else replay(self.case.reference, ref_region, {**base, call.index: out})
                )
                if self._agrees(gap, value):
                    self.known[call.index] = v
                    at = _counterpart(call, cand_region)
                    return self._cause(
                        gap,
                        cand_region,
                        at,
                        call,
                        **_worded(v, call, ref_region, mirrored=False),
                        proven=True,
                        after=0.0,
                        proof="the reference computed in this way gives exactly what the candidate has",
                    )
        return None

    def _candidate_side(self, gap: Gap, ref_region: Region, cand_region: Region) -> Cause | None:
        for call in reversed(cand_region.calls):
            if call.op in PLUMBING and call.op != "Cast":
                continue
            for v in [*of_call(call), *rule_variants(call)]:
                out = _vary(self.case.candidate, call, call.inputs, v)
                if out is None:
                    continue
                value = replay(
                    self.case.candidate,
                    cand_region,
                    {
                        call.index: [
                            x.reshape(y.shape) if x.size == y.size else x
                            for x, y in zip(out, call.computed, strict=False)
                        ]
                    },
                )
                if self._agrees(gap, value, candidate=True):
                    after = _compare(gap.wanted, value, self.case.masks) if value is not None else None
                    told = _worded(v, call, cand_region, mirrored=True)
                    if v.kind == "wiring" and _producing_op(self.run, call.origins[0]) in {"LSTM", "GRU", "RNN"}:
                        told |= {"op": _producing_op(self.run, call.origins[0]), "name": "state"}
                    return self._cause(
                        gap,
                        cand_region,
                        call,
                        _counterpart(call, ref_region),
                        **told,
                        proven=True,
                        after=after,
                        proof="the candidate computed in this way gives the reference's value",
                    )
        return None

    def _wiring(self, gap: Gap, cand_region: Region) -> Cause | None:
        """The candidate takes the value of another place of the reference."""
        if (
            gap.received.size < 4
            or gap.received.dtype.kind != "f"
            or float(np.ptp(gap.received)) <= 1e-6 * scale(gap.received)
        ):
            return None
        total = float(np.abs(gap.received.astype(np.float64)).sum())
        places: list[tuple[str, Array, Call | None]] = [
            (f"input {n}", v, None) for n, v in self.case.reference.trace.inputs.items()
        ]
        places += [(c.path, v, c) for c in self.case.reference.trace.calls for v in c.outputs if v.dtype.kind == "f"]
        for path, value, call in places:
            if (
                value.size != gap.received.size
                or abs(float(np.abs(value.astype(np.float64)).sum()) - total) > 1e-4 * total
            ):
                continue
            for option in views(value.shape, gap.received.shape):
                if difference(option.to(value), gap.received) <= floors.RATIO * gap.floor:
                    return self._cause(
                        gap,
                        cand_region,
                        kind="wiring",
                        op=gap.consumer.op if gap.consumer else "",
                        name="input",
                        reference=_origin_path(self.case.reference.trace, gap.reference_origin),
                        candidate=path,
                        proven=True,
                        after=0.0,
                        proof="what arrives is exactly the reference's value of that other place",
                        detail={"from_op": call.op if call else "input"},
                    )
        return None

    def _two(self, gap: Gap, ref_region: Region, cand_region: Region) -> Cause | None:
        """Two variants together (two faults in one region): the pair that explains it; the second becomes known."""
        singles: list[tuple[float, Call, Any, Sequence[Array]]] = []
        for call in ref_region.calls:
            if call.op in PLUMBING:
                continue
            for v in [*of_call(call), *rule_variants(call)]:
                out = _vary(self.case.reference, call, call.inputs, v)
                value = replay(self.case.reference, ref_region, {call.index: out}) if out is not None else None
                if out is None or value is None or value.size != gap.wanted.size:
                    continue
                d = difference(visible(gap.view.to(value.reshape(gap.view.source)), gap.softmax), gap.received)
                if np.isfinite(d):
                    singles.append((d, call, v, out))
        singles.sort(key=lambda s: s[0])
        for n, (_, call, v, out) in enumerate(singles[:25]):
            for _, other, w, _ in singles[:60]:
                if (
                    other.index == call.index
                    and n == 0
                    and len(ref_region.calls) > 1
                    or (other.index == call.index and v.kind == w.kind)
                ):
                    continue
                changed = self._both(call, v, out, other, w)
                if changed is not None and self._agrees(gap, replay(self.case.reference, ref_region, changed)):
                    first = self._cause(
                        gap,
                        cand_region,
                        _counterpart(call, cand_region),
                        call,
                        **_worded(v, call, ref_region, mirrored=False),
                        proven=True,
                        after=0.0,
                        proof="the reference computed with both changes gives exactly what the candidate has",
                    )
                    second = self._cause(
                        gap,
                        cand_region,
                        _counterpart(other, cand_region),
                        other,
                        **_worded(w, other, ref_region, mirrored=False),
                        proven=True,
                        after=0.0,
                        proof="the reference computed with both changes gives exactly what the candidate has",
                    )
                    self.known[call.index], self.known[other.index] = v, w
                    self.causes.append(second)
                    return first
        return None

    def _both(self, call: Call, v: Any, out: Sequence[Array], other: Call, w: Any) -> dict[int, Sequence[Array]] | None:
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
                made = self.case.reference.canonical(
                    call.op, merged, self.case.reference.weights(call), call.inputs, call.layer.layout
                )
                return None if made is None else {call.index: made}
            else:
                return None
            attrs = {k: x for k, x in v.attrs.items() if k != "scale_name"}
            made = self.case.reference.canonical(v.op, attrs, self.case.reference.weights(call), fed, call.layer.layout)
            return None if made is None else {call.index: made}
        first, second = (call, other) if call.index < other.index else (other, call)
        fv, sv = (v, w) if call.index < other.index else (w, v)
        a = out if first is call else _vary(self.case.reference, first, first.inputs, fv)
        if a is None:
            return None
        inputs = [
            a[o[2]].reshape(x.shape)
            if o[0] == "call" and o[1] == first.index and o[2] < len(a) and a[o[2]].size == x.size
            else x
            for o, x in zip(second.origins, second.inputs, strict=True)
        ]
        b = _vary(self.case.reference, second, inputs, sv)
        return None if b is None else {first.index: a, second.index: b}

    def _order(self, gap: Gap, ref_region: Region, cand_region: Region) -> Cause | None:
        """The same numbers, elsewhere: a flatten in another axis order, heads cut in another way."""
        if gap.wanted.size != gap.received.size or gap.wanted.dtype.kind != "f" or gap.wanted.size < 4:
            return None
        a, b = np.sort(gap.wanted.ravel()), np.sort(gap.received.ravel())
        if float(np.abs(a - b).max()) > floors.RATIO * gap.floor:
            return None
        shapes = [c for c in ref_region.calls if c.op in {"Flatten", "Reshape"}]
        name = "values"
        for call in shapes:
            before = call.inputs[0]
            if before.ndim > 2:
                for perm in list(permutations(range(1, before.ndim)))[1:]:
                    moved = (
                        before.transpose(0, *perm).reshape(gap.received.shape)
                        if before.size == gap.received.size
                        else None
                    )
                    if moved is not None and difference(moved, gap.received) <= floors.RATIO * gap.floor:
                        name = "flatten"
        if name == "values" and any(c.op == "Concat" for c in ref_region.calls + cand_region.calls):
            name = "concat"
        elif name == "values" and any(c.op in {"Attention", "MatMul"} for c in ref_region.calls):
            name = "heads"
        elif (
            name == "values"
            and gap.received.ndim == 2
            and (not ref_region.calls or not cand_region.calls or name == "values" and shapes)
        ):
            name = "flatten"
        return self._cause(
            gap,
            cand_region,
            kind="order",
            op="Flatten" if name == "flatten" else _last_op(ref_region),
            name=name,
            proven=True,
            after=0.0,
            proof="both sides hold the same numbers, in another order",
        )


def _producing_op(trace: Trace, origin: Origin) -> str:
    """The operator behind a value, through plumbing and arithmetic."""
    while origin[0] == "call":
        call = trace.calls[origin[1]]
        if call.op not in PLUMBING | {"Mul", "Div"} or not call.origins:
            return call.op
        origin = call.origins[0]
    return origin[0]


_REDUCING = {"ReduceSum", "ReduceMean", "GlobalAveragePool", "AveragePool", "AdaptiveAveragePool"}


def _worded(v: Any, call: Call, region: Region, *, mirrored: bool) -> dict[str, Any]:
    made = describe_variant(v, call, mirrored)
    detail = {**made.get("detail", {}), "region": _ops(region)}
    if v.kind == "missing" and len(call.inputs) > 1:
        others = [x for i, x in enumerate(call.inputs) if str(i) != v.name]
        if any(is_mask(x) for x in others):
            made = {"kind": "mask", "op": call.op, "name": "extra" if mirrored else "missing"}
            if any(is_causal(x) for x in others):
                made["name"] = "causal_missing" if not mirrored else "extra"
    if made["kind"] == "mask" and call.op not in {"Attention", "Softmax", "GRU", "LSTM"}:
        softmax = any(c.op in {"Softmax", "Attention"} for c in region.calls)
        pooled = any(c.op.startswith("Reduce") for c in region.calls)
        made["op"] = "Attention" if softmax else "ReduceMean" if pooled else call.op
    return {**made, "detail": detail}


def _ops(region: Region) -> list[str]:
    return [c.op or c.layer.cls for c in region.calls if c.op not in PLUMBING]


def _last_op(region: Region) -> str:
    named = _ops(region)
    return named[-1] if named else ""


def _counterpart(call: Call, region: Region) -> Call | None:
    same = [c for c in region.calls if c.op == call.op]
    if same:
        return same[-1]
    if call.op == "Attention":
        return next((c for c in reversed(region.calls) if c.op in {"Softmax", "MatMul", "Einsum"}), None)
    return None


def _origin_path(trace: Trace, origin: Origin) -> str:
    if origin[0] == "call":
        return trace.calls[origin[1]].path
    return f"{origin[0]} {origin[1]}".strip()


def _guess(k: float, shape: tuple[int, ...], calls: list[Call]) -> str:
    """A size whose root or self is the factor."""
    sizes = dict.fromkeys([*shape, *(n for c in calls for x in c.inputs for n in x.shape)])
    for n in sizes:
        for text, value in (
            (f"sqrt({n})", n**0.5),
            (f"1/sqrt({n})", n**-0.5),
            (f"{n}", float(n)),
            (f"1/{n}", 1 / max(n, 1)),
        ):
            if n > 1 and abs(value - k) <= 1e-5 * abs(k):
                return text
    return ""
