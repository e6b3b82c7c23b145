"""Carrying the paired weights over, and the other pairings that names and shapes allow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ambidex.core.model import Inspectable
from ambidex.core.trace import Trace
from ambidex.core.types import Array
from ambidex.engine.layout import views
from ambidex.engine.names import alike
from ambidex.engine.weights import Pairing, RawPair, feeders


def carry(pairing: Pairing, reference: Trace, candidate: Inspectable, candidate_trace: Trace) -> None:
    """Write the reference's weights into the candidate."""
    for ref_path, cand_path, _ in pairing.layers:
        have = candidate_trace.layer_weights.get(cand_path, {})
        given = {
            role: a
            for role, a in reference.layer_weights[ref_path].items()
            if role in have or role == "B" and "B" in have
        }
        fitting = {}
        for role, a in given.items():
            b = have[role]
            if a.shape == b.shape:
                fitting[role] = a
            elif a.size == b.size:
                fitting[role] = reshaped(a, b)
            elif role == "B" and reference.layer_weights[ref_path].keys() & {"R"}:
                fitting[role] = a
        if fitting:
            candidate.set_layer_weights(cand_path, fitting)
    for fused in pairing.packed:
        if fused.mirrored:
            sources = [reference.layer_weights[p] for p in fused.parts]
            have = candidate_trace.layer_weights[fused.whole]
            roles = {role for role in have if all(role in x for x in sources)}
            candidate.set_layer_weights(
                fused.whole, {role: np.concatenate([x[role] for x in sources]) for role in roles}
            )
            continue
        source = reference.layer_weights[fused.whole]
        for n, path in enumerate(fused.parts):
            have = candidate_trace.layer_weights[path]
            candidate.set_layer_weights(
                path, {role: np.split(a, len(fused.parts))[n] for role, a in source.items() if role in have}
            )
    carry_raw(pairing.raw, reference, candidate, candidate_trace)
    for entry in pairing.report:
        entry.carried = entry.reference is not None and entry.candidate is not None


def reshaped(a: Array, b: Array) -> Array:
    view = next(views(a.shape, b.shape), None)
    return a.reshape(b.shape) if view is None else view.to(a)


def carry_raw(pairs: Sequence[RawPair], reference: Trace, candidate: Inspectable, candidate_trace: Trace) -> None:
    """Single arrays, by the frameworks' own weight names (or a role of a layer)."""
    for p in pairs:
        value = named_weight(reference, p.reference)
        names = candidate_trace.weights
        made = p.view.to(value)
        if p.candidate in names and names[p.candidate].shape == made.shape:
            candidate.set_weights({p.candidate: made})
            continue
        for layer in candidate_trace.layers:
            for role, name in layer.weights.items():
                if name == p.candidate and role in candidate_trace.layer_weights.get(layer.path, {}):
                    candidate.set_layer_weights(layer.path, {role: made})


def named_weight(trace: Trace, name: str) -> Array:
    for layer in trace.layers:
        for role, own in layer.weights.items():
            if own == name and role in trace.layer_weights.get(layer.path, {}):
                return trace.layer_weights[layer.path][role]
    return trace.weights[name]


def alternatives(pairing: Pairing, reference: Trace, candidate: Trace, measured: Iterable[Any]) -> Iterator[Pairing]:
    """Other pairings that names and shapes allow, near the places where something differs; at most a dozen."""
    wrong = {m.reference.path for m in measured if m.faulty or m.glue}
    count = 0
    raw = pairing.raw
    for i in range(len(raw)):
        for j in range(i + 1, len(raw)):
            a, b = named_weight(reference, raw[i].reference), named_weight(reference, raw[j].reference)
            if a.size != b.size or "value" in (raw[i].how, raw[j].how):
                continue
            if alike(raw[i].reference, raw[i].candidate) >= 0.9 and alike(raw[j].reference, raw[j].candidate) >= 0.9:
                continue
            changed = list(raw)
            changed[i] = replace(
                raw[i], candidate=raw[j].candidate, view=raw[j].view, others=raw[j].others, how="trial"
            )
            changed[j] = replace(
                raw[j], candidate=raw[i].candidate, view=raw[i].view, others=raw[i].others, how="trial"
            )
            yield replace(pairing, raw=changed)
            count += 1
            if count >= 12:
                return
        for other in raw[i].others[:3]:
            changed = list(raw)
            changed[i] = replace(raw[i], view=other, others=[], how="trial")
            yield replace(pairing, raw=changed)
            count += 1
            if count >= 12:
                return
    layers, up = pairing.layers, feeders(reference)
    shapes = {p: {r: a.shape for r, a in w.items()} for p, w in reference.layer_weights.items()}
    for i in range(len(layers)):
        for j in range(i + 1, len(layers)):
            (ra, ca, how_a), (rb, cb, how_b) = layers[i], layers[j]
            if (
                {how_a, how_b} <= {"order", "name", "trial"}
                and "order" in (how_a, how_b)
                and ra in wrong
                and rb in wrong
                and (shapes.get(ra) == shapes.get(rb))
                and up.get(ra) == up.get(rb)
            ):
                swapped = list(layers)
                swapped[i], swapped[j] = (ra, cb, "trial"), (rb, ca, "trial")
                yield replace(pairing, layers=swapped)
                count += 1
                if count >= 12:
                    return
