"""The main job: are the two models the same, every place where they are not, why, and the proof."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ambidex.core import floor as floors
from ambidex.core.model import Batch, Inspectable
from ambidex.core.report import Report, StageRow
from ambidex.core.trace import Trace
from ambidex.engine import carry as carrying
from ambidex.engine import diagnose, prove, sanity
from ambidex.engine import weights as weighting
from ambidex.engine.assemble import assembled
from ambidex.engine.cancel import undone
from ambidex.engine.explain import drawn_causes, explain_all, random_causes
from ambidex.engine.firstrun import best_run, first_runs, implied_masks
from ambidex.engine.glue import Glue
from ambidex.engine.job import Job, Progress, check_finite, reference_batch, same_outputs
from ambidex.engine.outputs import other_causes, pair_outputs
from ambidex.engine.recording import with_weights
from ambidex.engine.replay import Player
from ambidex.engine.settle import (
    by_structure,
    count_faults,
    lined_up,
    settled,
    turned_one_way,
    with_floors,
    without_harmless,
)
from ambidex.engine.ties import only_ties
from ambidex.engine.training import training_causes
from ambidex.engine.usermap import check_paths
from ambidex.errors import UnsupportedError

if TYPE_CHECKING:
    from ambidex.engine.stages.follow import Training


def compare_models(
    reference: Inspectable | Trace,
    candidate: Inspectable,
    *,
    inputs: Any,
    weights: str = "carry",
    user_map: Mapping[str, str] | None = None,
    mode: str = "eval",
    progress: Progress | None = None,
    evaluate: Callable[..., Any] | None = None,
    training: Callable[[Batch, Batch], Training] | None = None,
) -> Report:
    """Compare two models, or a recorded reference with a model.

    ``inputs`` has ``reference`` and ``candidate`` batches (one may be None) and ``masks`` of positions that count.
    ``weights="carry"`` copies the reference's weights into the candidate first; ``"keep"`` compares what is loaded.
    ``evaluate`` is the float64 reference of the canonical operators. ``training``: what both sides train with, given
    the two batches; the stages behind the forward pass are followed then.
    Raises AmbidexError subclasses when nothing can be compared.
    """
    if evaluate is None:
        evaluate = _default_evaluate()
    live = None if isinstance(reference, Trace) else reference
    job = Job(live, candidate, weights, dict(user_map or {}), progress or (lambda *_: None), evaluate)
    job.masks = [np.asarray(m) for m in inputs.masks.values()]
    if isinstance(reference, Trace):
        sanity.check_recorded(reference)
    sanity.check_batches(inputs.reference, inputs.candidate)
    with job.step("run the reference", 0.05):
        ref = (
            reference
            if isinstance(reference, Trace)
            else with_weights(reference, reference.run(reference_batch(inputs), exact=True))
        )
        if live is not None:
            floors.keep_only(ref.calls)
        check_finite(ref, "reference")
        sanity.check_outputs(ref, "reference")
        sanity.check_masks(inputs.masks, ref)
        steady = live is None or same_outputs(ref, live.run(reference_batch(inputs), record=False))
    with job.step("run the candidate", 0.25):
        batch, first = best_run(ref, first_runs(job, ref, inputs))
        check_finite(first, "candidate")
    job.masks += implied_masks(ref, first)
    saved = first.weights if weights == "carry" else {}
    try:
        return _compare(job, ref, first, batch, inputs, training, steady=steady, mode=mode)
    finally:
        if saved:
            candidate.set_weights(saved)


def _default_evaluate() -> Callable[..., Any]:
    import importlib

    return importlib.import_module("ambidex.adapters.reference_").evaluate


def _compare(
    job: Job,
    ref: Trace,
    first: Trace,
    batch: Batch,
    inputs: Any,
    training: Callable[[Batch, Batch], Training] | None,
    *,
    steady: bool,
    mode: str,
) -> Report:
    check_paths(job.user_map, ref, first)
    with job.step("pair and carry weights", 0.35):
        pairing = weighting.pair(ref, first, job.user_map)
        if job.weights == "carry":
            carrying.carry(pairing, ref, job.candidate, first)
    with job.step("run the candidate", 0.4):
        chained = with_weights(job.candidate, job.candidate.run(batch)) if job.weights == "carry" else first
        again = job.candidate.run(batch, record=False)
    drawn = diagnose.drawing(ref.calls), diagnose.drawing(chained.calls)
    reproducible = steady and same_outputs(chained, again) and not drawn[0] and not drawn[1]
    with job.step("align", 0.5):
        a, forced = lined_up(job, ref, chained, pairing, batch)
        a, forced, pairing, chained = settled(job, ref, first, chained, pairing, batch, a, forced)
        a, forced = without_harmless(job, a, forced, batch)
        a, forced = turned_one_way(job, ref, chained, pairing, batch, a, forced)
    paired = pair_outputs(a, forced.trace, job.masks)
    with job.step("measure in float64", 0.7):
        forced = with_floors(job, a, forced, batch, chained)
    if job.weights == "keep" and count_faults(forced):
        with job.step("align", 0.75):
            a, forced, pairing = by_structure(job, ref, chained, pairing, batch, a, forced)
            paired = pair_outputs(a, forced.trace, job.masks)
    with job.step("explain", 0.8):
        case = diagnose.Case(
            a,
            Player(ref, job.reference, job.evaluate),
            Player(forced.trace, job.candidate, job.evaluate),
            pairing,
            job.masks,
            job.weights,
            {j: m.outputs for j, m in forced.pairs.items()},
        )
        case.candidate.trace.layer_weights, case.candidate.trace.weights = chained.layer_weights, chained.weights
        random = drawn_causes(case, drawn)
        if not random and not same_outputs(chained, again):
            random = random_causes(job, case, forced, batch, a, chained)
        glue = Glue(case, forced.trace, random={c.index for c in drawn[1]})
        glue.unsure = {
            j
            for j, m in forced.pairs.items()
            if m.faulty
            and m.reference.op in {"LSTM", "GRU", "RNN"}
            and "mask" in (*m.reference.names, *m.candidate.names)
        }
        causes, fixes = explain_all(case, forced, paired, glue)
        causes = random + causes
        if job.weights == "keep":
            causes = undone(causes, ref, chained, paired, job.notes)
        if not causes:  # else they may well follow from those
            causes = other_causes(a, forced.trace, job.masks, paired)
    ties = not causes and only_ties(job, ref, chained, forced, paired, batch)
    if mode == "train":
        with job.step("training mode", 0.9):
            causes += training_causes(case, job.reference, inputs.reference, batch, list(forced.pairs.values()))
    with job.step("prove all fixes together", 0.95):
        wanted = bool(causes) and bool(fixes.pairs or fixes.gaps)
        fixed = prove.run_fixed(case, batch, fixes) if wanted else None
        if wanted and fixed is None:
            job.notes.append("the run with all fixes together failed: each is proven alone, not all of them together")
    rows: list[StageRow] = []
    if training is not None:
        from ambidex.engine.stages.carried import Carrier  # what most comparisons never need
        from ambidex.engine.stages.follow import Both, follow

        if job.reference is None:
            raise UnsupportedError(
                "the stages of training need the live reference",
                "a recorded trace holds no training step",
                "Compare where the reference's framework is installed, or leave --training out",
            )
        with job.step("follow training", 0.97):
            both = Both(
                training(reference_batch(inputs), batch),
                Carrier(job.reference, job.candidate, ref, first, pairing),
                {n: v for n, v in ref.outputs.items() if v.dtype.kind == "f"},
                paired,
                bool(count_faults(forced)) or any(p.gap is not None for p in paired),
                {
                    m.reference.key: (m.candidate.key, m.outputs[0].view)
                    for m in forced.pairs.values()
                    if m.outputs and m.outputs[0].reference == m.outputs[0].candidate == 0
                },
            )
            rows, more = follow(both)
            causes = [*causes, *more]
    return assembled(
        job,
        ref,
        chained,
        a,
        forced,
        pairing,
        paired,
        causes,
        fixed,
        inputs,
        glue,
        rows,
        reproducible=reproducible,
        ties=ties,
    )
