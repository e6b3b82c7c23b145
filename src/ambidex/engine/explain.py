"""Every cause of a comparison: random calls, faulty pairs, gaps between layers, weights without partner."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ambidex.core.model import Batch
from ambidex.core.rule import Cause
from ambidex.core.trace import Trace
from ambidex.core.types import Array, Call
from ambidex.engine import align, diagnose, prove, weightcauses
from ambidex.engine.carry import named_weight
from ambidex.engine.gap import Gap
from ambidex.engine.glue import Glue
from ambidex.engine.job import Job
from ambidex.engine.layout import difference, views
from ambidex.engine.measure import Forced, run_forced
from ambidex.engine.outputs import Paired


def drawn_causes(case: diagnose.Case, drawn: tuple[list[Call], list[Call]]) -> list[Cause]:
    """Active dropout on either side; the same layer once, though it is called several times."""
    found: dict[str, Cause] = {}
    for side, calls in zip(("reference", "candidate"), drawn, strict=True):
        for call in calls:
            cause = Cause(
                "random",
                "Dropout",
                "Dropout",
                source=call.layer.source,
                framework=case.candidate.trace.framework,
                reference_framework=case.reference.trace.framework,
                candidate_cls=call.layer.cls,
                proven=True,
                before=difference(call.inputs[0].reshape(-1), call.computed[0].reshape(-1)),
                after=0.0,
                proof="run in inference, the layer's output is not its input",
                detail={"side": side},
            )
            setattr(cause, f"{side}_path", call.path)
            found.setdefault(call.path, cause)
    return list(found.values())


def explain_all(
    case: diagnose.Case, forced: Forced, paired: list[Paired], glue: Glue
) -> tuple[list[Cause], prove.Fixes]:
    causes: list[Cause] = []
    fixes = prove.Fixes()
    explained: set[str] = set()
    for j in sorted(forced.pairs):
        m = forced.pairs[j]
        for arrived in m.glue:
            port = arrived.port
            r, c = (
                m.before_padding if m.before_padding is not None and port.candidate == 0 else (m.reference, m.candidate)
            )
            gap = Gap(
                r.origins[port.reference],
                c.origins[port.candidate],
                arrived.wanted,
                arrived.received,
                port.view,
                arrived.floor,
                m.reference.path,
                m.candidate.path,
                c,
                arrived.diff,
                arrived.softmax,
            )
            fixes.gaps.append(gap)
            glue.explain(gap)
        causes += glue.causes
        glue.causes = []
        if m.faulty:
            found = diagnose.merge_weights(case, m, diagnose.pair_causes(case, m))
            causes += found
            fixes.pairs.append(m)
            explained.update(c.name for c in found if c.kind == "parameter")
    for p in paired:
        if p.gap is not None:
            fixes.gaps.append(p.gap)
            glue.explain(p.gap)
        if p.swapped:
            causes.append(p.swapped)
    causes += glue.causes
    causes = _moved(causes)
    further = _structure(case, forced, causes)  # may account for what stood unexplained
    return causes + further, fixes


def _structure(case: diagnose.Case, forced: Forced, causes: list[Cause]) -> list[Cause]:
    """Weights without a partner, and loaded weights that differ without an effect on these inputs."""
    found: list[Cause] = []
    known = {(c.reference_path, c.candidate_path) for c in causes}
    told = {c.reference_path for c in causes} | {c.candidate_path for c in causes}
    by_path = {m.reference.path: m for m in forced.pairs.values()} | {
        m.candidate.path: m for m in forced.pairs.values()
    }
    p = case.pairing
    for side, lonely in (("reference", p.lonely_reference), ("candidate", p.lonely_candidate)):
        for path, role in lonely:
            m = by_path.get(path)
            if m is not None:
                if not m.faulty and not any(
                    c.kind == "parameter" and c.name == role and c.candidate_path == m.candidate.path for c in causes
                ):
                    cause = diagnose.parameter_cause(case, m, role)
                    cause.detail["effect"] = False
                    found.append(cause)
            elif role in {str(c.reference) for c in causes} | {str(c.candidate) for c in causes}:
                continue
            elif path not in told and not any(
                path in (c.reference_path, c.candidate_path) or c.kind == "constant" and c.name == path for c in causes
            ):
                trace = case.reference.trace if side == "reference" else case.candidate.trace
                layer = next((x for x in trace.layers if x.path == path), None)
                cause = Cause(
                    "parameter",
                    layer.op if layer else "",
                    role,
                    framework=case.candidate.trace.framework,
                    reference_framework=case.reference.trace.framework,
                )
                setattr(cause, side, layer.weights.get(role, path) if layer else path)
                setattr(cause, f"{side}_path", path)
                cause.source = layer.source if layer and side == "candidate" else None
                cause.detail = {"effect": None}
                found.append(cause)
    if case.weights == "keep":
        found += _raw_weights(case, causes)
        for (ref_path, cand_path), roles in p.unequal.items():
            m = by_path.get(cand_path)
            if (ref_path, cand_path) not in known and m is not None and not m.faulty:
                found.append(diagnose.weight_cause(case, m, roles))
    return found


def random_causes(
    job: Job, case: diagnose.Case, forced: Forced, batch: Batch, a: align.Alignment, chained: Trace
) -> list[Cause]:
    second = run_forced(job.candidate, batch, a, chained, job.masks, force_inputs=True)
    causes = []
    for call in diagnose.reproducibility(forced.trace.calls, second.trace.calls):
        causes.append(
            Cause(
                "random",
                call.op or call.layer.cls,
                call.op or call.layer.cls,
                candidate_path=call.path,
                source=call.layer.source,
                framework=case.candidate.trace.framework,
                candidate_cls=call.layer.cls,
                proven=True,
                reference_framework=case.reference.trace.framework,
                before=max(
                    (
                        difference(x, y)
                        for m in second.trace.calls
                        if m.key == call.key
                        for x, y in zip(call.computed, m.computed, strict=False)
                    ),
                    default=None,
                ),
                proof="the same call on the same inputs gave another result in a second run",
            )
        )
    return causes


def _raw_weights(case: diagnose.Case, causes: list[Cause]) -> list[Cause]:
    """Loaded single arrays that differ: they also account for what is unexplained in the calls that take them."""
    found: list[Cause] = []
    for pair in case.pairing.raw_unequal:
        ref, cand = (
            named_weight(case.reference.trace, pair.reference),
            named_weight(case.candidate.trace, pair.candidate),
        )
        name, text = weightcauses.explain(
            "", [""], {"": pair.view.to(ref)}, {"": cand}, case.reference.trace, pair.reference
        )
        twin = next((q.reference for q in case.pairing.raw if q is not pair and _is_of(case, q.reference, cand)), None)
        if twin is not None:
            name, text = "other_layer", f"these are the weights of the reference's {twin}"
        takers = {c.path for c in case.candidate.trace.calls if ("weight", pair.candidate, 0) in c.origins}
        for cause in [c for c in causes if c.kind == "unknown" and c.candidate_path in takers]:
            causes.remove(cause)
        found.append(
            Cause(
                "weight",
                "",
                name,
                [pair.reference],
                [pair.candidate],
                pair.reference,
                pair.candidate,
                framework=case.candidate.trace.framework,
                reference_framework=case.reference.trace.framework,
                before=float(np.abs(pair.view.to(ref).astype(np.float64) - cand).max()),
                proof="read from the loaded weights",
                detail={"roles": [""], "text": text},
            )
        )
    return found


def _moved(causes: list[Cause]) -> list[Cause]:
    """An operator that is extra in one place and missing in another was moved: one cause, not two."""
    made = list(causes)
    for extra in [c for c in causes if c.kind == "extra" and c.proven]:
        missing = next(
            (c for c in made if c.kind == "missing" and c.proven and c.op == extra.op),
            None,
        )
        if missing is None or extra not in made:
            continue
        moved = replace(extra, kind="order", name="layers", reference_path=missing.reference_path)
        moved.reference, moved.candidate = missing.reference_path, extra.candidate_path
        moved.before = max(extra.before or 0.0, missing.before or 0.0)
        moved.after = max(extra.after or 0.0, missing.after or 0.0)
        moved.proof = "left out where the candidate has it and put where the reference has it, both sides agree"
        made = [moved if c is extra else c for c in made if c is not missing]
    return made


def _is_of(case: diagnose.Case, reference: str, array: Array) -> bool:
    """Whether these are the numbers of another array of the reference, however its axes lie."""
    other = named_weight(case.reference.trace, reference)
    return any(weightcauses.same(view.to(other), array) for view in views(other.shape, array.shape))
