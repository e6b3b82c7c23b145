"""The outputs of the two whole models: which is which, and how far apart they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ambidex.core import floor as floors
from ambidex.core.rule import Cause
from ambidex.core.trace import Trace
from ambidex.core.types import Array, Origin
from ambidex.engine.align import Alignment
from ambidex.engine.gap import Gap
from ambidex.engine.layout import View, difference, scale, views
from ambidex.engine.masks import fit_mask, off


@dataclass(slots=True)
class Paired:
    """One output on both sides; ``gap`` when code after the last matched calls differs; ``swapped`` as a cause."""

    reference: str
    candidate: str
    view: View
    gap: Gap | None = None
    swapped: Cause | None = None


def pair_outputs(a: Alignment, forced: Trace, masks: list[Array]) -> list[Paired]:
    """Pair by values in the forced run, then name, then position; outputs of equal shape in other places are told."""
    ref, cand = a.reference, forced
    left = [n for n, v in cand.outputs.items() if v.dtype.kind in "fc" and v.size]
    found: list[Paired] = []
    names = [n for n, v in ref.outputs.items() if v.dtype.kind in "fc" and v.size]
    chosen: dict[str, tuple[str, View]] = {}
    for step in ("value", "name", "position", "size"):
        for n in names:
            if n in chosen:
                continue
            free = [c for c in left if c not in {x for x, _ in chosen.values()}]
            for c in _ordered(n, free):
                view = _view(a, ref.outputs[n], cand.outputs[c])
                if view is None:
                    continue
                d = difference(view.to(ref.outputs[n]), cand.outputs[c])
                if step == "value" and d > 1e-3 * scale(ref.outputs[n]):
                    continue
                if step == "name" and n != c:
                    continue
                if step == "position" and names.index(n) != left.index(c):
                    continue
                chosen[n] = (c, view)
                break
    for n, (c, view) in chosen.items():
        wanted = view.to(ref.outputs[n])
        received = cand.outputs[c]
        origin, mine = ref.output_origins.get(n, ("const", "", 0)), cand.output_origins.get(c, ("const", "", 0))
        eps = max(floors.unit(ref.meta), floors.unit(cand.meta))
        floor = max(floors.least(wanted, eps), _origin_floor(ref, origin), _origin_floor(cand, mine))
        d = off(wanted, received, masks)
        gap = (
            Gap(origin, mine, wanted, received, view, floor, f"output {n}", c, None, d)
            if d > floors.RATIO * floor
            else None
        )
        swapped = None
        if (
            n.isdigit()
            and c.isdigit()
            and n != c
            and n in cand.outputs
            and c in ref.outputs
            and ref.outputs[n].shape == ref.outputs[c].shape
            and d <= floors.RATIO * floor
        ):
            swapped = Cause(
                "output",
                "",
                "swapped",
                reference=n,
                candidate=c,
                reference_path=f"output {n}",
                candidate_path=f"output {c}",
                framework=cand.framework,
                reference_framework=ref.framework,
                proven=True,
                after=d,
                before=difference(_as(ref.outputs[n], cand.outputs[n]), cand.outputs[n]),
                proof="compared crosswise the outputs agree",
            )
        found.append(Paired(n, c, view, gap, swapped))
    return found


#: share of whole numbers of an output that must differ: near ties may fall either way where the scores round
_COUNTS = 0.02


def other_causes(a: Alignment, forced: Trace, masks: list[Array], paired: list[Paired]) -> list[Cause]:
    """Outputs that are not paired by value: whole numbers and truth values that are others though what they are made of
    is the reference's, and outputs of one name and another size."""
    done = {p.reference for p in paired}
    found: list[Cause] = []
    for n, v in a.reference.outputs.items():
        mine = forced.outputs.get(n)
        if mine is None or n in done:
            continue
        if v.dtype.kind in "iub" and mine.dtype.kind in "iub" and v.shape == mine.shape and v.size:
            other = v != mine
            for mask in masks:
                fitted = fit_mask(mask, v.shape)
                other = other & fitted if fitted is not None else other
            if other.mean() <= _COUNTS:
                continue
            proof = f"{100 * other.mean():.0f} % of its values are others, on the reference's values"
        elif v.dtype.kind in "fc" and mine.dtype.kind in "fc" and v.size != mine.size:
            proof = f"it has shape {tuple(mine.shape)}, the reference's {tuple(v.shape)}"
        else:
            continue
        cause = Cause("unknown", "", "output", framework=forced.framework, proof=proof)
        cause.reference_path = cause.candidate_path = f"output {n}"
        cause.reference_framework = a.reference.framework
        found.append(cause)
    return found


def _as(a: Array, b: Array) -> Array:
    view = next(views(a.shape, b.shape), None)
    return a if view is None else view.to(a)


def _ordered(name: str, free: list[str]) -> list[str]:
    """The output of the same name first: equal values elsewhere count only where it does not fit."""
    return sorted(free, key=lambda c: c != name)


def _view(a: Alignment, ref: Array, cand: Array) -> View | None:
    if ref.size != cand.size:
        return None
    return a.layouts.find(ref, cand)


def _origin_floor(trace: Trace, origin: Origin) -> float:
    if origin[0] != "call":
        return 0.0
    call = trace.calls[origin[1]]
    return (floors.within(call, origin[2], floors.unit(trace.meta)) or 0.0) if call.layer.functional else 0.0


def whole(paired: list[Paired], ref: Trace, run: Trace, masks: list[Array]) -> tuple[float | None, float, str | None]:
    """(largest difference over the outputs, the size of that output's reference, its name)."""
    worst: tuple[float, float, str | None] | None = None
    for p in paired:
        if p.candidate not in run.outputs:
            continue
        wanted, got = p.view.to(ref.outputs[p.reference]), run.outputs[p.candidate]
        if got.size != wanted.size:
            return float("inf"), scale(wanted), p.reference
        d, s = off(wanted, got.reshape(wanted.shape), masks), scale(wanted)
        if worst is None or d / s > worst[0] / worst[1]:
            worst = (d, s, p.reference)
    if worst is None:
        return None, 0.0, None
    return worst if np.isfinite(worst[1]) else (worst[0], 0.0, worst[2])
