"""The report of a comparison: rows, coverage, whole-model numbers, verdict."""

from __future__ import annotations

from typing import Any

import numpy as np

from ambidex.core import floor as floors
from ambidex.core.report import Coverage, Finding, LayerRow, Report, StageRow, Status, Verdict, WholeModel
from ambidex.core.rule import Cause
from ambidex.core.trace import Trace
from ambidex.engine import align, findings
from ambidex.engine import weights as weighting
from ambidex.engine.glue import Glue
from ambidex.engine.job import ACCEPT, Job
from ambidex.engine.layout import difference, scale
from ambidex.engine.measure import Forced
from ambidex.engine.outputs import Paired, whole


def _rows(
    a: align.Alignment, chained: Trace, forced: Forced, glue: Glue, paired: list[Paired]
) -> tuple[list[LayerRow], Coverage]:
    rows: list[LayerRow] = []
    for j in sorted(forced.pairs):
        m = forced.pairs[j]
        plain = chained.calls[j] if j < len(chained.calls) else None
        chain = None
        if plain is not None and m.outputs:
            chain = max(
                (
                    difference(p.view.to(m.reference.outputs[p.reference]), plain.computed[p.candidate])
                    for p in m.outputs
                    if p.candidate < len(plain.computed)
                ),
                default=None,
            )
        status: Status = "faulty" if m.faulty else "glue" if m.glue else "same"
        rows.append(
            LayerRow(
                reference=m.reference.path,
                candidate=m.candidate.path,
                op=m.reference.op or m.candidate.op,
                matched_by=m.how,
                chained=chain,
                shadow=m.shadow,
                floor=m.floor,
                ratio=m.ratio,
                status=status,
                source=None if m.candidate.layer.source is None else str(m.candidate.layer.source),
            )
        )
    clean_gap = _covered(a, forced, paired) | glue.inside
    for ref_path, cand_path, gap in glue.regions:
        rows.append(
            LayerRow(
                reference=ref_path,
                candidate=cand_path,
                op="",
                matched_by="region",
                shadow=gap.diff,
                floor=gap.floor,
                ratio=gap.diff / gap.floor if gap.floor else None,
                status="glue",
            )
        )
    only_ref = [
        c.path
        for c in a.reference.calls
        if not c.layer.functional
        and c.index not in a.by_reference
        and c.op not in align.PLUMBING
        and ("r", c.index) not in clean_gap
    ]
    only_cand = [
        c.path
        for c in a.candidate.calls
        if not c.layer.functional
        and c.index not in a.matches
        and c.op not in align.PLUMBING
        and ("c", c.index) not in clean_gap
    ]
    rows += [
        LayerRow(reference=p, candidate=None, op="", matched_by="", status="unmatched") for p in dict.fromkeys(only_ref)
    ]
    rows += [
        LayerRow(reference=None, candidate=p, op="", matched_by="", status="unmatched")
        for p in dict.fromkeys(only_cand)
    ]
    return rows, Coverage(
        matched=len(forced.pairs),
        only_in_reference=list(dict.fromkeys(only_ref)),
        only_in_candidate=list(dict.fromkeys(only_cand)),
    )


def _covered(a: align.Alignment, forced: Forced, paired: list[Paired]) -> set[tuple[str, int]]:
    """Unmatched layers inside a region whose value arrives right: they are compared as a region."""
    from ambidex.engine.replay import region_of

    found: set[tuple[str, int]] = set()
    for p in paired:
        if p.gap is None:
            ends = (
                (a.reference, a.reference.output_origins.get(p.reference), "r", set(a.by_reference)),
                (forced.trace, forced.trace.output_origins.get(p.candidate), "c", set(a.matches)),
            )
            for trace, origin, tag, matched in ends:
                if origin is not None:
                    found |= {(tag, x.index) for x in region_of(trace, origin, np.zeros(0), matched).calls}
    for m in forced.pairs.values():
        if m.glue or m.faulty:
            continue
        for tag, trace, call, matched in (
            ("r", a.reference, m.reference, set(a.by_reference)),
            ("c", forced.trace, m.candidate, set(a.matches)),
        ):
            for origin, value in zip(call.origins, call.received, strict=True):
                found |= {(tag, x.index) for x in region_of(trace, origin, value, matched).calls}
    return found


def _stages(later: list[StageRow], found: list[Finding]) -> list[StageRow]:
    """All stages in order: those up to the forward pass from the findings, the others as they were measured."""
    if not later:
        return []
    told = {f.stage for f in found}
    return [
        *(StageRow(stage=s, status="different" if s in told else "same") for s in ("data", "weights", "forward")),
        *later,
    ]


def assembled(
    job: Job,
    ref: Trace,
    chained: Trace,
    a: align.Alignment,
    forced: Forced,
    pairing: weighting.Pairing,
    paired: list[Paired],
    causes: list[Cause],
    fixed: Trace | None,
    inputs: Any,
    glue: Glue,
    stages: list[StageRow],
    *,
    reproducible: bool,
    ties: bool,
) -> Report:
    rows, coverage = _rows(a, chained, forced, glue, paired)
    max_abs, size, name = whole(paired, ref, chained, job.masks)
    rel = None if max_abs is None else max_abs / size if size else 0.0
    eps = {"reference": floors.unit(ref.meta), "candidate": floors.unit(chained.meta)}
    most = max(1e-5, *eps.values())  # EPS32 is below that
    share = [
        min(m.floor / scale(m.reference.outputs[0]), most)
        for m in forced.pairs.values()
        if m.reference.outputs and np.isfinite(m.floor)
    ]
    whole_floor = max(size * float(np.sqrt(np.sum(np.square(share)))), floors.EPS32 * size) if size else 0.0
    job.notes += [
        f"the {side} computes in half precision (one unit is {e:.1e}): faults smaller than its rounding are not seen"
        for side, e in eps.items()
        if e > floors.EPS32
    ]
    lost = [n for n, v in ref.outputs.items() if v.dtype.kind in "fc" and n not in {p.reference for p in paired}]
    if lost and paired:
        job.notes.append(f"not compared, the candidate returns nothing like it: output {', '.join(lost)}")
    if rel is None:
        job.notes.append("no output of the candidate could be paired with one of the reference")
    elif rel > ACCEPT and ties:
        job.notes.append(
            "the outputs differ only where a value lies on a step (round, compare, choose) and rounding decides"
        )
    elif rel > ACCEPT and not causes:
        if whole_floor and max_abs is not None and max_abs <= floors.RATIO * whole_floor:
            job.notes.append(
                "the outputs differ by more than 1e-4, no more than round-off adds up to: each layer is at its floor"
            )
        else:
            cause = Cause(
                "unknown",
                "",
                "whole model",
                candidate_path=f"output {name}" if name else "",
                framework=chained.framework,
                before=max_abs,
                reference_framework=ref.framework,
            )
            causes = [*causes, cause]
    found = findings.from_causes(causes)
    verdict: Verdict
    if not reproducible:
        verdict = "not_reproducible"
    elif found:
        verdict = "different"
    elif max_abs is None or any(row.status == "could_not_run" for row in stages):
        verdict = "undecided"
    else:
        verdict = "equal"
    after = whole(paired, ref, fixed, job.masks)[0] if fixed is not None else None
    return Report(
        verdict=verdict,
        whole_model=WholeModel(
            max_abs=max_abs,
            max_rel=rel,
            floor_ratio=max_abs / whole_floor if max_abs is not None and whole_floor else None,
            after_fixes=after,
            worst_output=name,
        ),
        coverage=coverage,
        layers=rows,
        findings=found,
        stages=_stages(stages, found),
        first_stage=next((row.stage for row in _stages(stages, found) if row.status == "different"), None),
        notes=job.notes,
        weights=pairing.report,
        inputs=list(getattr(inputs, "described", [])),
        environment={
            "reference": {"framework": ref.framework, **ref.versions},
            "candidate": {"framework": chained.framework, **chained.versions},
        },
        seconds={k: round(v, 3) for k, v in job.seconds.items()},
        threshold=floors.RATIO,
    )
