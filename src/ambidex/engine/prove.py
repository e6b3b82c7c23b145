"""All fixes together: the candidate run again, unforced, with every proven change in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ambidex.core.model import Batch
from ambidex.core.trace import Trace
from ambidex.core.types import Array, Call, Plan
from ambidex.engine.case import Case
from ambidex.engine.gap import Gap
from ambidex.engine.measure import Measured
from ambidex.engine.replay import region_of, replay
from ambidex.errors import AmbidexError


@dataclass
class Fixes:
    """What to put in place: pairs computed as the reference's layer, gaps as the reference's code between layers."""

    pairs: list[Measured] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)


def run_fixed(case: Case, batch: Batch, fixes: Fixes) -> Trace | None:
    """The candidate's trace with the fixes; None when it could not be run so."""
    plan = Plan()
    store: dict[str, list[Array]] = {}
    for m in fixes.pairs:
        plan.replace[m.candidate.key] = _as_reference(case, m)
    a = case.alignment
    finals: dict[str, Callable[[], Array | None]] = {}
    for gap in fixes.gaps:
        region = region_of(a.reference, gap.reference_origin, gap.wanted, set(a.by_reference))
        edges = {o[1] for c in region.calls for o in c.origins if o[0] == "call" and o[1] in a.by_reference}
        if gap.reference_origin[0] == "call" and gap.reference_origin[1] in a.by_reference:
            edges.add(gap.reference_origin[1])
        for edge in edges:
            key = a.candidate.calls[a.by_reference[edge]].key
            plan.replace.setdefault(key, _keep)
            plan.replace[key] = _storing(plan.replace[key], store, key)
        compute = _gap_value(case, gap, region, edges, store)
        if gap.consumer is None:
            finals[gap.candidate_path] = compute
        else:
            plan.feed.setdefault(gap.consumer.key, []).append((_input_number(gap), compute))
    try:
        trace = case.model.run(batch, plan, record=True)
    except AmbidexError:
        return None
    for name, compute in finals.items():
        value = compute()
        if value is not None and name in trace.outputs:
            trace.outputs[name] = (
                value.reshape(trace.outputs[name].shape) if value.size == trace.outputs[name].size else value
            )
    return trace


def _input_number(gap: Gap) -> int:
    assert gap.consumer is not None
    return next(i for i, o in enumerate(gap.consumer.origins) if o == gap.candidate_origin)


def _keep(call: Call, inputs: Sequence[Array]) -> Sequence[Array]:
    return call.computed


def _storing(inner: Any, store: dict[str, list[Array]], key: str) -> Any:
    def both(call: Call, inputs: Sequence[Array]) -> Sequence[Array]:
        store[key] = [np.asarray(v) for v in inner(call, inputs)]
        return store[key]

    return both


def _gap_value(
    case: Case, gap: Gap, region: Any, edges: set[int], store: dict[str, list[Array]]
) -> Callable[[], Array | None]:
    a = case.alignment

    def compute() -> Array | None:
        changed: dict[int, Sequence[Array]] = {}
        for edge in edges:
            match = a.matches[a.by_reference[edge]]
            call = a.candidate.calls[match.candidate]
            ref = a.reference.calls[edge]
            values = store.get(call.key)
            if values is None:
                return None
            made = list(ref.outputs)
            for port in case.ports.get(match.candidate, []):
                made[port.reference] = port.view.back(values[port.candidate])
            changed[edge] = made
        value = replay(case.reference, region, changed) if changed else None
        if value is None or value.size != gap.wanted.size:
            return gap.wanted
        return gap.view.to(value.reshape(gap.view.source)).astype(gap.wanted.dtype)

    return compute


def _as_reference(case: Case, m: Measured) -> Any:
    """The candidate's call computed as the reference's layer computes it, on whatever arrives."""

    def compute(call: Call, inputs: Sequence[Array]) -> Sequence[Array]:
        given = [np.asarray(v) for v in m.reference.inputs]
        for arrived in m.arrived:
            port = arrived.port
            if m.before_padding is not None and port.candidate == 0:
                continue
            given[port.reference] = port.view.back(inputs[port.candidate])
        made = case.reference.compute(m.reference, given)
        if made is None:
            return call.computed
        result = [np.asarray(v) for v in call.computed]
        for port in m.outputs:
            value = made[port.reference]
            result[port.candidate] = port.view.to(value.reshape(m.reference.outputs[port.reference].shape))
        if not m.outputs and made:
            from ambidex.engine.measure import forced_view

            moved = forced_view(case.alignment, m.reference, call, made[0], call.computed[0])
            if moved is not None:
                result[0] = moved
        return result

    return compute
