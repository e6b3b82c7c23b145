"""The candidate's first run: which batch it takes, and what that run says about padding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ambidex.core.model import Batch
from ambidex.core.trace import Trace
from ambidex.core.types import Array
from ambidex.engine import feed
from ambidex.engine.job import Job
from ambidex.engine.layout import views
from ambidex.engine.recording import with_weights
from ambidex.errors import AmbidexError, RunError


def first_runs(job: Job, ref: Trace, inputs: Any) -> list[tuple[Batch, Trace]]:
    """The candidate's batch (each way to feed it that runs, when not given) and a recorded run of it."""
    if inputs.candidate is not None:
        return [(inputs.candidate, with_weights(job.candidate, job.candidate.run(inputs.candidate), copied=True))]
    source = (
        inputs.reference
        if inputs.reference is not None
        else list(ref.inputs.values())
        if all(n.isdigit() for n in ref.inputs)
        else ref.inputs
    )
    sizes = sorted(v.size for v in ref.outputs.values())
    failed: AmbidexError | None = None
    spare: tuple[Batch, Trace] | None = None
    found: list[tuple[Batch, Trace]] = []
    for batch in feed.options(source, job.candidate):
        try:
            trace = job.candidate.run(batch)
        except AmbidexError as e:
            failed = failed or e
            continue
        if sorted(v.size for v in trace.outputs.values()) == sizes and _could_be(ref, trace):
            found.append((batch, with_weights(job.candidate, trace, copied=True)))
            if len(found) == 3 or _order_is_plain(batch, trace, ref):
                break
        spare = spare or (batch, trace)
    if found:
        return found
    if spare is not None:
        return [(spare[0], with_weights(job.candidate, spare[1], copied=True))]
    assert failed is not None
    raise RunError(
        "the candidate does not run on the reference's inputs",
        str(failed),
        "Pass inputs for both sides: a function that returns {'reference': ..., 'candidate': ...}",
    )


def _order_is_plain(batch: Batch, trace: Trace, ref: Trace) -> bool:
    """Whether (batch, steps) inputs lead to outputs that begin with the same two sizes on both sides: exchanged, they
    would have come out exchanged."""
    arrays = list(batch.values()) if isinstance(batch, Mapping) else list(batch)
    shapes = [v.shape for v in trace.outputs.values()]
    if sorted(shapes) != sorted(v.shape for v in ref.outputs.values()):
        return False
    return all(a.ndim == 2 and a.shape[0] != a.shape[1] and any(s[:2] == a.shape for s in shapes) for a in arrays)


def _could_be(ref: Trace, trace: Trace) -> bool:
    """Whether every output of the reference lies in some output of the candidate under a view."""
    return all(
        any(next(views(a.shape, b.shape), None) is not None for b in trace.outputs.values() if a.size == b.size)
        for a in ref.outputs.values()
    )


def best_run(ref: Trace, runs: list[tuple[Batch, Trace]]) -> tuple[Batch, Trace]:
    """Where the candidate runs on several axis orders, the one that the layouts of both sides' layers ask for."""
    names = [
        {len(c.layer.layout): c.layer.layout for c in reversed(t.calls) if c.layer.layout} for t in (ref, runs[0][1])
    ]
    wanted: list[Array] = []
    for value in ref.inputs.values():
        a, b = (n.get(value.ndim, "") for n in names)
        moved = value.transpose([a.index(x) for x in b]) if a and b and set(a) == set(b) else value
        wanted.append(moved)
    for batch, trace in runs:
        given = list(batch.values()) if isinstance(batch, Mapping) else list(batch)
        if len(given) == len(wanted) and all(
            any(g.shape == w.shape and np.array_equal(g, w) for w in wanted) for g in given
        ):
            return batch, trace
    return runs[0]


def implied_masks(*traces: Trace) -> list[Array]:
    """Masks that a side itself uses for its recurrent layers: padded steps are not compared there."""
    found: list[Array] = []
    for trace in traces:
        if found:  # the reference's word counts
            break
        for call in trace.calls:
            if call.op in {"LSTM", "GRU", "RNN"} and "mask" in call.names:
                mask = call.inputs[call.names.index("mask")]
                if mask.ndim == 2 and not any(m.shape == mask.shape and np.array_equal(m, mask) for m in found):
                    found.append(mask.astype(bool))
    return found
