"""Which call of the candidate is which call of the reference.

Passes, each match says by which it was found: ``map`` (the user's), ``weights`` (their layers' weights are partners),
``value`` (the same numbers under some view), ``order`` (the same operator, then the same family, fed by the same
matched calls). The value pass works on a run of the candidate in which every matched call already hands on the
reference's value, so that a fault does not hide what follows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ambidex.core import ops
from ambidex.core.trace import Trace
from ambidex.core.types import Array, Call, Origin
from ambidex.engine.layout import Layouts, View, difference, scale, views
from ambidex.engine.names import alike
from ambidex.engine.weights import Pairing

#: calls that only move or pass values on: they need no partner, and origins are looked up through them
PLUMBING = {
    "Identity",
    "Dropout",
    "Reshape",
    "Transpose",
    "Flatten",
    "Squeeze",
    "Unsqueeze",
    "Expand",
    "Cast",
    "Masking",
    "Pack",
}
#: calls that make no sense to match by family alone
_LOOSE = {
    "Slice",
    "Split",
    "Gather",
    "Where",
    "Equal",
    "Not",
    "And",
    "Or",
    "Less",
    "Greater",
    "Shape",
    "Constant",
    "Range",
}


@dataclass(slots=True)
class Match:
    reference: int
    candidate: int
    how: str


@dataclass
class Alignment:
    reference: Trace
    candidate: Trace
    layouts: Layouts = field(default_factory=Layouts)
    matches: dict[int, Match] = field(default_factory=dict)  # by candidate index
    by_reference: dict[int, int] = field(default_factory=dict)
    arrays: dict[str, str] = field(default_factory=dict)  # single arrays that differ: candidate's -> reference's

    def add(self, reference: int, candidate: int, how: str) -> None:
        self.matches[candidate] = Match(reference, candidate, how)
        self.by_reference[reference] = candidate

    def pairs(self) -> Iterable[tuple[Call, Call, str]]:
        for c in sorted(self.matches):
            m = self.matches[c]
            yield self.reference.calls[m.reference], self.candidate.calls[m.candidate], m.how

    # -------------------------------------------------------------- dataflow
    def root(self, trace: Trace, origin: Origin) -> Origin:
        """Where a value really comes from: through unmatched plumbing."""
        matched = self.by_reference if trace is self.reference else self.matches
        while origin[0] == "call":
            call = trace.calls[origin[1]]
            if call.index in matched or call.op not in PLUMBING or not call.origins:
                break
            origin = call.origins[0]
        return origin

    def sources(self, trace: Trace) -> list[frozenset[object]]:
        """For every call: the matched calls and inputs that feed it through unmatched calls (in reference numbers)."""
        is_ref = trace is self.reference
        found: list[frozenset[object]] = []
        for call in trace.calls:
            mine: set[object] = set()
            for origin in call.origins:
                if origin[0] == "call":
                    i = origin[1]
                    if is_ref and i in self.by_reference:
                        mine.add(i)
                    elif not is_ref and i in self.matches:
                        mine.add(self.matches[i].reference)
                    elif i < len(found):
                        mine |= found[i]
                elif origin[0] == "input":
                    mine.add("input")
            found.append(frozenset(mine))
        return found

    def taken_arrays(self, trace: Trace) -> list[frozenset[str]]:
        """For every call: the single arrays of ``arrays`` that reach it through unmatched calls (reference's names)."""
        matched = self.by_reference if trace is self.reference else self.matches
        names = {r: r for r in self.arrays.values()} if trace is self.reference else self.arrays
        found: list[frozenset[str]] = []
        for call in trace.calls:
            mine: set[str] = set()
            for kind, where, _ in call.origins:
                if kind == "weight" and where in names:
                    mine.add(names[str(where)])
                elif kind == "call" and where not in matched and where < len(found):
                    mine |= found[where]
            found.append(frozenset(mine))
        return found


def start(
    reference: Trace,
    candidate: Trace,
    pairing: Pairing,
    user_map: dict[str, str],
    banned: frozenset[View] = frozenset(),
) -> Alignment:
    """Passes map and weights. ``banned``: axis orders that no pair may be seen in."""
    made = Alignment(reference, candidate, arrays={p.candidate: p.reference for p in pairing.raw_unequal})
    made.layouts.banned = banned
    ref_calls, cand_calls = _calls_by_path(reference), _calls_by_path(candidate)
    for ref_path, cand_path in user_map.items():
        for r, c in zip(ref_calls.get(ref_path, []), cand_calls.get(cand_path, []), strict=False):
            made.add(r, c, "map")
    partners: dict[str, list[str]] = defaultdict(list)
    for ref_path, cand_path, _how in pairing.layers:
        partners[ref_path].append(cand_path)
    for ref_path, cand_paths in partners.items():
        free = [r for r in ref_calls.get(ref_path, []) if r not in made.by_reference]
        open_calls = [c for path in cand_paths for c in cand_calls.get(path, []) if c not in made.matches]
        for r, c in _calls_of_one_layer(made, free, open_calls):
            if _one_thing(reference.calls[r], candidate.calls[c]) and not _a_part(made, r, c):
                made.add(r, c, "weights")
    return made


def _calls_of_one_layer(made: Alignment, free: list[int], open_calls: list[int]) -> list[tuple[int, int]]:
    """A layer called several times: calls with equal values first (the order of branches may differ), then in order."""
    if len(free) < 2 and len(open_calls) < 2:
        return list(zip(free, open_calls, strict=False))
    found: list[tuple[int, int]] = []
    for r in free:
        value = main_output(made.reference.calls[r])
        for c in open_calls:
            mine = main_output(made.candidate.calls[c])
            taken = any(c == x for _, x in found)
            if (
                not taken
                and value is not None
                and mine is not None
                and value.size == mine.size
                and _same_values(value, mine, made.layouts)
            ):
                found.append((r, c))
                break
    left_r = [r for r in free if all(r != x for x, _ in found)]
    left_c = [c for c in open_calls if all(c != x for _, x in found)]
    return found + list(zip(left_r, left_c, strict=False))


def _one_thing(r: Call, c: Call) -> bool:
    """Partners by weight that compute other things (a bag of embeddings against a table) are compared as a region."""
    if r.op == c.op:
        return True
    a, b = main_output(r), main_output(c)
    return a is None or b is None or a.size == b.size


def _a_part(made: Alignment, r: int, c: int) -> bool:
    """Whether one side calls the layer once for the whole batch and the other once for each part of it: such calls are
    no partners, what is made of the parts is compared as a region."""
    a, b = made.reference.calls[r], made.candidate.calls[c]
    many = [sum(x.path == call.path for x in t.calls) for t, call in ((made.reference, a), (made.candidate, b))]
    x, y = main_output(a), main_output(b)
    if many[0] == many[1] or x is None or y is None or x.size == y.size or not a.inputs or not b.received:
        return False
    return a.inputs[0].size * y.size == b.received[0].size * x.size


def _calls_by_path(trace: Trace) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for call in trace.calls:
        found[call.path].append(call.index)
    return found


def main_output(call: Call) -> Array | None:
    for array in call.computed:
        if array.dtype.kind == "f":
            return array
    return None


def _open(alignment: Alignment, trace: Trace) -> list[int]:
    matched = alignment.by_reference if trace is alignment.reference else alignment.matches
    return [c.index for c in trace.calls if c.index not in matched and main_output(c) is not None]


def by_value(alignment: Alignment, run: Trace) -> int:
    """Match open calls whose outputs are the same numbers. ``run``: the candidate forced at the matches so far."""
    ref_open = [i for i in _open(alignment, alignment.reference) if alignment.reference.calls[i].op not in PLUMBING]
    cand_open = [i for i in _open(alignment, alignment.candidate) if alignment.candidate.calls[i].op not in PLUMBING]
    prints: dict[int, list[tuple[float, float, int]]] = defaultdict(list)
    for i in ref_open:
        array = main_output(alignment.reference.calls[i])
        assert array is not None
        prints[array.size].append((*_print(array), i))
    ref_sources, cand_sources = alignment.sources(alignment.reference), alignment.sources(alignment.candidate)
    ref_arrays, cand_arrays = (alignment.taken_arrays(t) for t in (alignment.reference, alignment.candidate))
    added = 0
    for j in cand_open:
        if j >= len(run.calls):
            break
        array = main_output(run.calls[j])
        if array is None or array.size < 4 or float(np.ptp(array)) <= 1e-7 * scale(array):
            continue
        total, absolute = _print(array)
        slack = 1e-3 * (absolute + 1e-12)
        best: tuple[float, int] | None = None
        for t, a, i in prints.get(array.size, []):
            if i in alignment.by_reference or abs(t - total) > slack or abs(a - absolute) > slack:
                continue
            if ref_arrays[i] or cand_arrays[j]:  # equal only because weights are exchanged: right ones would differ
                continue
            r = alignment.reference.calls[i]
            c = alignment.candidate.calls[j]
            value = main_output(r)
            assert value is not None
            if not _same_values(value, array, alignment.layouts):
                continue
            rank = (
                3.0 * (r.op == c.op and r.op != "")
                + 1.0 * (bool(r.op) and bool(c.op) and ops.same_family(r.op, c.op))
                + 1.0 * (ref_sources[i] == cand_sources[j])
                + alike(r.path, c.path)
            )
            if best is None or rank > best[0]:
                best = (rank, i)
        if best is not None:
            alignment.add(best[1], j, "value")
            added += 1
    return added


def _print(array: Array) -> tuple[float, float]:
    a = array.astype(np.float64, copy=False)
    a = np.where(np.isfinite(a), a, 0.0)
    return float(a.sum()), float(np.abs(a).sum())


def _same_values(ref: Array, cand: Array, layouts: Layouts) -> bool:
    limit = 2e-4 * scale(ref)
    for option in layouts.views(ref.shape, cand.shape):
        if difference(option.to(ref), cand) <= limit:
            return True
    return False


def by_order(alignment: Alignment, families: frozenset[str] | None = None) -> int:
    """Match open calls of the same operator (then family) that the same matched calls feed, in order.

    ``families``: only these, for a first pass over calls that change shapes. Calls behind a match of this very pass
    wait: once it is forced, their values say more than their order."""
    ref_sources, cand_sources = alignment.sources(alignment.reference), alignment.sources(alignment.candidate)
    ref_arrays, cand_arrays = (alignment.taken_arrays(t) for t in (alignment.reference, alignment.candidate))
    added = 0
    fresh: set[int] = set()
    for exact in (True, False):
        groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for i in _open(alignment, alignment.reference):
            call = alignment.reference.calls[i]
            key = _kind(call, exact)
            if key and (families is None or family(call) in families):
                groups[(key, ref_sources[i], ref_arrays[i])].append(i)
        behind = _behind(alignment, fresh)
        for j in _open(alignment, alignment.candidate):
            call = alignment.candidate.calls[j]
            if any(o[0] == "call" and (o[1] in fresh or o[1] in behind) for o in call.origins):
                behind.add(j)
                continue
            key = _kind(call, exact)
            waiting = groups.get((key, cand_sources[j], cand_arrays[j])) if key else None
            if (
                waiting
                and (exact or _same_root(alignment, waiting[0], j))
                and _same_width(alignment, waiting[0], j)
                and not _a_part(alignment, waiting[0], j)
            ):
                i = waiting.pop(0)
                alignment.add(i, j, "order")
                fresh.add(j)
                added += 1
    return added


def _behind(alignment: Alignment, fresh: set[int]) -> set[int]:
    """Unmatched calls of the candidate that a match of this pass feeds, directly or through others."""
    found: set[int] = set()
    for call in alignment.candidate.calls:
        if call.index not in alignment.matches and any(
            o[0] == "call" and (o[1] in fresh or o[1] in found) for o in call.origins
        ):
            found.add(call.index)
    return found


def _same_root(alignment: Alignment, i: int, j: int) -> bool:
    """Whether two calls take partners' values directly: else one of them is only the last step of hand-written code."""
    r, c = alignment.reference.calls[i], alignment.candidate.calls[j]
    if not r.origins or not c.origins:
        return False
    ro, co = alignment.root(alignment.reference, r.origins[0]), alignment.root(alignment.candidate, c.origins[0])
    if ro[0] == co[0] == "call":
        match = alignment.matches.get(co[1])
        return match is not None and match.reference == ro[1]
    return ro[0] == co[0] == "input"


#: families whose partners may give other sizes when they are at fault (padding, stride, borders)
_SIZING = {"conv", "pool", "resize"}


def _same_width(alignment: Alignment, i: int, j: int) -> bool:
    """Calls that give other sizes are no partners, unless the size is what a fault of theirs changes."""
    r, c = alignment.reference.calls[i], alignment.candidate.calls[j]
    if family(r) in _SIZING:
        return True
    a, b = main_output(r), main_output(c)
    return a is not None and b is not None and a.size == b.size


def through_crops(alignment: Alignment) -> None:
    """A layer whose partner's value appears only after a cropping of its own: the crop stands for the layer."""
    for trace, other, mirrored in (
        (alignment.candidate, alignment.reference, False),
        (alignment.reference, alignment.candidate, True),
    ):
        users: dict[int, list[Call]] = defaultdict(list)
        for call in trace.calls:
            for kind, where, _ in call.origins:
                if kind == "call":
                    users[where].append(call)
        for match in list(alignment.matches.values()):
            mine, partner = (match.candidate, match.reference) if not mirrored else (match.reference, match.candidate)
            value, wanted = main_output(trace.calls[mine]), main_output(other.calls[partner])
            if value is None or wanted is None or value.size <= wanted.size:
                continue
            crops = [c for c in users[mine] if c.op in {"Crop", "Slice", "Pad"}]
            if len(users[mine]) != 1 or not crops:
                continue
            made = main_output(crops[0])
            if made is None or made.size != wanted.size or next(views(wanted.shape, made.shape), None) is None:
                continue
            alignment.matches.pop(match.candidate)
            alignment.by_reference.pop(match.reference)
            pair = (match.reference, crops[0].index) if not mirrored else (crops[0].index, match.candidate)
            alignment.add(*pair, match.how)


def by_overlap(alignment: Alignment) -> int:
    """Match open calls of one operator whose feeding calls are mostly, but not all, the same: one input is wired
    elsewhere. Only where each is the other's best."""
    ref_sources, cand_sources = alignment.sources(alignment.reference), alignment.sources(alignment.candidate)
    ref_open = [i for i in _open(alignment, alignment.reference) if _kind(alignment.reference.calls[i], True)]
    cand_open = [j for j in _open(alignment, alignment.candidate) if _kind(alignment.candidate.calls[j], True)]
    scored: dict[tuple[int, int], float] = {}
    for i in ref_open:
        for j in cand_open:
            a, b = ref_sources[i], cand_sources[j]
            if (
                alignment.reference.calls[i].op == alignment.candidate.calls[j].op
                and _same_width(alignment, i, j)
                and not _a_part(alignment, i, j)
                and a
                and b
                and len(a & b) / len(a | b) >= 0.3
            ):
                scored[i, j] = len(a & b) / len(a | b)
    added = 0
    for (i, j), value in scored.items():
        rivals = [v for (x, y), v in scored.items() if (x == i) != (y == j)]
        if all(v < value for v in rivals):
            alignment.add(i, j, "order")
            added += 1
    return added


def family(call: Call) -> str:
    return ops.spec(call.op).family if ops.known(call.op) else ""


def _kind(call: Call, exact: bool) -> str:
    """What must be equal for two calls to be partners by order; "" for calls that need values to be matched."""
    if not call.op or call.op in _LOOSE or call.op in PLUMBING:
        return ""
    if exact:
        return call.op
    kind = family(call)
    return kind if kind in {"activation", "norm", "pool", "resize"} else ""
