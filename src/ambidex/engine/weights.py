"""Which weight of the candidate is which weight of the reference, and carrying them over.

Layers with canonical weights are paired first (values if they are already equal, then operator, shape, names and
call order by one assignment); what is left is paired array by array, so that a hand-written layer with raw
parameters still meets a built-in one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import linear_sum_assignment

from ambidex.core import ops
from ambidex.core.report import WeightPair
from ambidex.core.trace import Trace
from ambidex.core.types import Array, Layer
from ambidex.engine.layout import View, views
from ambidex.engine.names import alike

_IGNORED = ("num_batches_tracked", "position_ids", "seed_generator_state", "token_type_ids")


@dataclass(slots=True)
class Owner:
    """A layer with canonical weights, or a single raw array (op "")."""

    layer: Layer
    arrays: dict[str, Array]
    order: int
    called: bool = True
    role: str = ""  # of a single array that was left of a layer

    @property
    def main(self) -> Array:
        return next(iter(self.arrays.values()))


@dataclass(slots=True)
class RawPair:
    """Two single arrays: names, the view that carries one into the other, and other views that fit."""

    reference: str
    candidate: str
    view: View
    others: list[View]
    how: str


@dataclass(slots=True)
class Fused:
    """One linear layer that is several of the other side, in order. ``mirrored``: the candidate's is the fused one."""

    whole: str
    parts: list[str]
    mirrored: bool = False


@dataclass(slots=True)
class Pairing:
    layers: list[tuple[str, str, str]] = field(default_factory=list)  # reference path, candidate path, how
    raw: list[RawPair] = field(default_factory=list)
    report: list[WeightPair] = field(default_factory=list)
    lonely_reference: list[tuple[str, str]] = field(default_factory=list)  # (layer path, weight or role)
    lonely_candidate: list[tuple[str, str]] = field(default_factory=list)
    unequal: dict[tuple[str, str], list[str]] = field(default_factory=dict)  # layer pair -> roles whose values differ
    packed: list[Fused] = field(default_factory=list)
    raw_unequal: list[RawPair] = field(default_factory=list)  # single arrays whose loaded values differ


def owners(trace: Trace) -> tuple[list[Owner], list[Owner]]:
    """(layers with canonical weights, raw arrays) of one side in the order of their first call."""
    first: dict[str, int] = {}
    for call in trace.calls:
        first.setdefault(call.path, call.index)
        for origin in call.origins:
            if origin[0] == "weight":
                first.setdefault("=" + str(origin[1]), call.index)
    late = len(trace.calls)
    canonical: list[Owner] = []
    owned: set[str] = set()
    for n, layer in enumerate(trace.layers):
        arrays = {r: a for r, a in trace.layer_weights.get(layer.path, {}).items() if a is not None}
        if layer.op and arrays:
            canonical.append(Owner(layer, arrays, first.get(layer.path, late + n), layer.path in first))
            owned.update(one.split("[")[0] for name in layer.weights.values() for one in name.split(" + "))
    raw: list[Owner] = []
    for n, (name, array) in enumerate(trace.weights.items()):
        if name in owned or name.endswith(_IGNORED) or array.dtype.kind not in "fc":
            continue
        layer = Layer(name, "", {}, {"": name})
        raw.append(Owner(layer, {"": array}, first.get("=" + name, late + n), "=" + name in first))
    for group in (canonical, raw):
        group.sort(key=lambda o: o.order)
    return canonical, raw


def _equal(a: Array, b: Array) -> bool:
    if a.shape != b.shape:
        return False
    corner = (slice(0, 4),) * a.ndim  # most kernels that differ do so in their first numbers
    if not np.allclose(a[corner], b[corner], rtol=1e-5, atol=1e-7):
        return False
    return bool(np.allclose(a, b, rtol=1e-5, atol=1e-7 * min(1.0, float(np.abs(a).max(initial=0.0)))))


def _same_role(layer: Layer, other: Layer, role: str, a: Array, b: Array) -> bool:
    """Equal in effect: the two biases of a recurrent layer count as their sum where one side uses only the sum."""
    if _equal(a, b) or a.shape != b.shape and a.size == b.size and _equal(a.reshape(-1), b.reshape(-1)):
        return True
    if role != "B" or layer.op not in {"LSTM", "GRU", "RNN"} or a.shape != b.shape:
        return False
    halves = [x.reshape(x.shape[0], 2, -1) for x in (a, b)]
    sums = [h.sum(1) for h in halves]
    if layer.op == "GRU" and layer.attrs.get("linear_before_reset") and other.attrs.get("linear_before_reset"):
        third = sums[0].shape[1] // 3
        return _equal(sums[0][:, : 2 * third], sums[1][:, : 2 * third]) and _equal(
            halves[0][..., 2 * third :], halves[1][..., 2 * third :]
        )
    return _equal(sums[0], sums[1])


def _close_in_value(a: Owner, b: Owner) -> bool:
    """The weights are the same numbers already (constant arrays prove nothing)."""
    common = [r for r in a.arrays if r in b.arrays and a.arrays[r].ndim > 1] or [r for r in a.arrays if r in b.arrays]
    informative = [r for r in common if float(np.ptp(a.arrays[r])) > 0]
    return bool(informative) and all(_equal(a.arrays[r], b.arrays[r]) for r in informative)


def _fits(a: Owner, b: Owner) -> float:
    """How well operator and shapes fit: 0 not at all."""
    if a.layer.op != b.layer.op and not (a.layer.op and b.layer.op and ops.same_family(a.layer.op, b.layer.op)):
        return 0.0
    score = 2.0 if a.layer.op == b.layer.op else 1.0
    if a.layer.attrs.get("direction", "forward") != b.layer.attrs.get("direction", "forward"):
        score -= 0.5
    main_a, main_b = a.main, b.main
    if main_a.shape == main_b.shape:
        return score + 1.0
    if main_a.size == main_b.size and main_a.ndim != main_b.ndim:
        return score
    if sorted(main_a.shape) == sorted(main_b.shape):
        return score - 0.5
    return 0.0


def feeders(trace: Trace) -> dict[str, set[str]]:
    """For every layer with weights: the layers with weights whose values reach it through others."""
    owning = {layer.path for layer in trace.layers if layer.op and trace.layer_weights.get(layer.path)}
    reach: list[set[str]] = []
    found: dict[str, set[str]] = {}
    for call in trace.calls:
        mine: set[str] = set()
        for kind, where, _ in call.origins:
            if kind == "call" and where < len(reach):
                source = trace.calls[where]
                mine |= {source.path} if source.path in owning else reach[where]
            elif kind == "input":
                mine.add(f"input {where}")
        reach.append(mine)
        if call.path in owning:
            found.setdefault(call.path, set()).update(mine)
    return found


def _neighbours(
    score: np.ndarray, ref: Sequence[Owner], cand: Sequence[Owner], reference: Trace, candidate: Trace
) -> np.ndarray:
    """Raise the score of pairs whose feeding (and fed) layers are partners too: order and names alone can mislead."""
    up_r, up_c = feeders(reference), feeders(candidate)
    r_paths, c_paths = [o.layer.path for o in ref], [o.layer.path for o in cand]
    down_r, down_c = _turned(up_r), _turned(up_c)
    bonus = np.zeros_like(score)
    for _ in range(4):
        rows, columns = linear_sum_assignment(-(score + bonus))
        partner = {r_paths[i]: c_paths[j] for i, j in zip(rows, columns, strict=True) if score[i, j] > 0}
        fresh = np.zeros_like(score)
        for i, r in enumerate(r_paths):
            for j in np.flatnonzero(score[i] > 0):
                c = c_paths[j]
                fresh[i, j] = 3.0 * _overlap(up_r.get(r, set()), up_c.get(c, set()), partner) + 1.5 * _overlap(
                    down_r.get(r, set()), down_c.get(c, set()), partner
                )
        if np.array_equal(fresh, bonus):
            break
        bonus = fresh
    return score + bonus


def _turned(up: dict[str, set[str]]) -> dict[str, set[str]]:
    down: dict[str, set[str]] = {}
    for path, sources in up.items():
        for source in sources:
            down.setdefault(source, set()).add(path)
    return down


def _overlap(a: set[str], b: set[str], partner: dict[str, str]) -> float:
    if not a or not b:
        return 0.0
    mapped = {partner.get(x, "input" if x.startswith("input ") else "") for x in a}
    other = {"input" if x.startswith("input ") else x for x in b}
    return len(mapped & other) / max(len(mapped | other), 1)


def _assign(
    ref: Sequence[Owner], cand: Sequence[Owner], reference: Trace, candidate: Trace, value_weight: float
) -> list[tuple[int, int, str]]:
    """One assignment over operator, shapes, values, names, order and dataflow."""
    if not ref or not cand:
        return []
    fit = np.array([[_fits(r, c) for c in cand] for r in ref])
    value = np.zeros_like(fit)
    name = np.zeros_like(fit)
    sums_r = [round(float(np.abs(r.main).sum()), 3) for r in ref]
    sums_c = [round(float(np.abs(c.main).sum()), 3) for c in cand]
    for i, r in enumerate(ref):
        for j, c in enumerate(cand):
            if fit[i, j] > 0:
                name[i, j] = alike(r.layer.path, c.layer.path)
                if abs(sums_r[i] - sums_c[j]) <= 1e-3 * max(1.0, sums_r[i]):
                    value[i, j] = _close_in_value(r, c)
    expected = _expected(fit + min(3.0, value_weight) * value + name)
    drift = np.abs(expected[:, None] - np.arange(len(cand))[None, :])
    score = np.where(fit > 0, 10 + fit + value_weight * value + 1.5 * name - np.minimum(0.3 * drift, 4.0), 0.0)
    score = np.where(fit > 0, _neighbours(score, ref, cand, reference, candidate), 0.0)
    rows, columns = linear_sum_assignment(-score)
    found = []
    for i, j in zip(rows, columns, strict=True):
        if fit[i, j] <= 0:
            continue
        rivals = (fit[i] >= fit[i, j]).sum() > 1
        how = "value" if value[i, j] else "shape" if not rivals else "name" if name[i, j] >= 0.5 else "order"
        found.append((int(i), int(j), how))
    return found


def _expected(score: np.ndarray) -> np.ndarray:
    """Where each reference layer would lie if order alone ruled: an order-keeping alignment, interpolated."""
    n, m = score.shape
    best = np.zeros((n + 1, m + 1))
    for i in range(n - 1, -1, -1):
        for j in range(m - 1, -1, -1):
            taken = score[i, j] + best[i + 1, j + 1] if score[i, j] > 0 else -1.0
            best[i, j] = max(taken, best[i + 1, j], best[i, j + 1])
    at, to = [-1.0], [-1.0]
    i = j = 0
    while i < n and j < m:
        if score[i, j] > 0 and best[i, j] == score[i, j] + best[i + 1, j + 1]:
            at.append(i)
            to.append(j)
            i, j = i + 1, j + 1
        elif best[i, j] == best[i + 1, j]:
            i += 1
        else:
            j += 1
    return np.interp(np.arange(n), [*at, n], [*to, m])


def pair(reference: Trace, candidate: Trace, user_map: dict[str, str], *, by_value: bool = True) -> Pairing:
    """Pair the weights of two traces; nothing is written yet. ``by_value=False``: equal numbers count for nothing, so
    that a layer which was given another's weights is still paired with the layer that it stands for."""
    ref, ref_raw = owners(reference)
    cand, cand_raw = owners(candidate)
    made = Pairing()
    matched: list[tuple[Owner, Owner, str]] = []
    by_path = {c.layer.path: c for c in cand}
    for r in list(ref):
        target = user_map.get(r.layer.path)
        if target in by_path:
            matched.append((r, by_path[target], "map"))
    taken_r, taken_c = {id(r) for r, _, _ in matched}, {id(c) for _, c, _ in matched}
    ref = [r for r in ref if id(r) not in taken_r]
    cand = [c for c in cand if id(c) not in taken_c]
    for i, j, how in _assign(ref, cand, reference, candidate, 8.0 if by_value else 0.0):
        matched.append((ref[i], cand[j], how))
    taken_r, taken_c = {id(r) for r, _, _ in matched}, {id(c) for _, c, _ in matched}
    left_r = [r for r in ref if id(r) not in taken_r]
    left_c = [c for c in cand if id(c) not in taken_c]
    for r, c, how in sorted(matched, key=lambda m: m[0].order):
        made.layers.append((r.layer.path, c.layer.path, how))
        for role in dict.fromkeys([*r.arrays, *c.arrays]):
            a, b = r.arrays.get(role), c.arrays.get(role)
            rn, cn = r.layer.weights.get(role), c.layer.weights.get(role)
            if a is None or b is None:
                if a is not None and r.layer.op in {"LSTM", "GRU", "RNN"}:
                    continue
                (made.lonely_reference if b is None else made.lonely_candidate).append(
                    (r.layer.path if b is None else c.layer.path, role)
                )
                made.report.append(
                    WeightPair(reference=rn, candidate=cn, role=role, how="no partner in the other layer")
                )
            else:
                made.report.append(WeightPair(reference=rn, candidate=cn, role=role, how=how))
                if not _same_role(r.layer, c.layer, role, a, b):
                    made.unequal.setdefault((r.layer.path, c.layer.path), []).append(role)
    left_c = _copies(made, reference, candidate, left_c)
    left_r, left_c = _packed(made, left_r, left_c)
    singles_r, singles_c = _single(left_r) + ref_raw, _single(left_c) + cand_raw
    constants = set(reference.meta.get("constants", ())), set(candidate.meta.get("constants", ()))
    _pair_raw(made, singles_r, singles_c, user_map, constants, 8.0 if by_value else 0.0)
    return made


def _copies(made: Pairing, reference: Trace, candidate: Trace, left: list[Owner]) -> list[Owner]:
    """A layer that the reference calls again where the candidate has a second one of its own: not shared any more.
    The copy is compared with the same reference layer, and told as parameters without partner."""
    times: dict[tuple[int, str], int] = {}
    for trace in (reference, candidate):
        for call in trace.calls:
            times[id(trace), call.path] = times.get((id(trace), call.path), 0) + 1
    rest: list[Owner] = []
    for o in left:
        for ref_path, cand_path, _ in made.layers:
            shapes = {r: a.shape for r, a in reference.layer_weights[ref_path].items()}
            spare = times.get((id(reference), ref_path), 0) - times.get((id(candidate), cand_path), 0)
            if (
                o.called
                and spare > 0
                and shapes == {r: a.shape for r, a in o.arrays.items()}
                and not any(x[0] == ref_path and x[2] == "copy" for x in made.layers)
            ):
                made.layers.append((ref_path, o.layer.path, "copy"))
                made.lonely_candidate.append((o.layer.path, next(iter(o.layer.weights))))
                break
        else:
            rest.append(o)
    return rest


def _packed(made: Pairing, left_r: list[Owner], left_c: list[Owner]) -> tuple[list[Owner], list[Owner]]:
    """One layer of a side that is several layers of the other side by side (a fused query/key/value projection)."""
    for whole_side, part_side, mirrored in ((left_r, left_c, False), (left_c, left_r, True)):
        for whole in list(whole_side):
            group = _parts_of(whole, part_side)
            if not group:
                continue
            made.packed.append(Fused(whole.layer.path, [p.layer.path for p in group], mirrored))
            for n, part in enumerate(group):
                names = [whole.layer.weights.get("W"), part.layer.weights.get("W")]
                r, c = names[::-1] if mirrored else names
                made.report.append(
                    WeightPair(reference=r, candidate=c, role="W", how=f"part {n + 1} of {len(group)}, order")
                )
            whole_side[:] = [o for o in whole_side if o is not whole]
            part_side[:] = [o for o in part_side if o not in group]
    return left_r, left_c


def _parts_of(whole: Owner, others: list[Owner]) -> list[Owner]:
    if whole.layer.op != "Gemm" or "W" not in whole.arrays:
        return []
    out, width = whole.arrays["W"].shape
    for count in (3, 2):
        for start in range(len(others) - count + 1):
            group = others[start : start + count]
            if out % count == 0 and all(
                o.layer.op == "Gemm" and o.arrays["W"].shape == (out // count, width) for o in group
            ):
                return group
    return []


def _single(group: list[Owner]) -> list[Owner]:
    return [
        Owner(
            Layer(f"{o.layer.path}", "", {}, {"": o.layer.weights.get(role, f"{o.layer.path}.{role}")}),
            {role: a},
            o.order,
            o.called,
            role,
        )
        for o in group
        for role, a in o.arrays.items()
    ]


def _pair_raw(
    made: Pairing,
    ref: list[Owner],
    cand: list[Owner],
    user_map: dict[str, str],
    constants: tuple[set[str], set[str]],
    value_weight: float,
) -> None:
    """Pair single arrays by size, names and order."""
    score = np.zeros((len(ref), len(cand)))
    for i, r in enumerate(ref):
        for j, c in enumerate(cand):
            a, b = r.main, c.main
            if a.size != b.size or next(views(a.shape, b.shape), None) is None:
                continue
            rn, cn = r.layer.weights[""], c.layer.weights[""]
            same = a.size == b.size and _equal(a.reshape(-1), b.reshape(-1))
            score[i, j] = (
                10
                + 2.0 * (a.shape == b.shape)
                + 3.0 * (r.role == c.role)
                + 2.0 * alike(rn, cn)
                + value_weight * bool(same and np.ptp(a) > 0)
                - min(4.0, 0.3 * abs(i - j))
                + 20 * (user_map.get(rn) == cn)
            )
    pairs: list[tuple[int, int]] = []
    if score.size:
        rows, columns = linear_sum_assignment(-score)
        pairs = [(int(i), int(j)) for i, j in zip(rows, columns, strict=True) if score[i, j] > 0]
    for i, j in pairs:
        r, c = ref[i], cand[j]
        options = list(views(r.main.shape, c.main.shape))
        rivals = int((score[i] > 0).sum()) > 1
        rn, cn = r.layer.weights[""], c.layer.weights[""]
        how = "name" if alike(rn, cn) >= 0.5 else "order" if rivals else "shape"
        made.raw.append(RawPair(rn, cn, options[0], options[1:], how))
        if not any(_equal(option.to(r.main), c.main) for option in options):
            made.raw_unequal.append(made.raw[-1])
        made.report.append(WeightPair(reference=rn, candidate=cn, role="", how=how))
    for group, fixed, done, lonely in (
        (ref, constants[0], {i for i, _ in pairs}, made.lonely_reference),
        (cand, constants[1], {j for _, j in pairs}, made.lonely_candidate),
    ):
        for n, o in enumerate(group):
            if n not in done and o.called and o.layer.weights[""] not in fixed:
                lonely.append((o.layer.path, o.layer.weights[""]))
                one = WeightPair(reference=None, candidate=None, how="nothing of this size is left on the other side")
                if group is ref:
                    one.reference = o.layer.weights[""]
                else:
                    one.candidate = o.layer.weights[""]
                made.report.append(one)
