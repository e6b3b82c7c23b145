"""The main job: are the two models the same, every place where they are not, why, and the proof."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ambidex.core import floor as floors
from ambidex.core.model import Batch, Inspectable
from ambidex.core.report import Coverage, LayerRow, Report, WholeModel
from ambidex.core.rule import Cause
from ambidex.core.trace import Trace
from ambidex.core.types import Array, Call
from ambidex.engine import align, diagnose, feed, findings, prove
from ambidex.engine import weights as weighting
from ambidex.engine.glue import Gap, Glue
from ambidex.engine.layout import difference, scale, views
from ambidex.engine.measure import Forced, Measured, run_forced
from ambidex.engine.names import alike
from ambidex.engine.outputs import Paired, pair_outputs, whole
from ambidex.engine.recording import with_weights
from ambidex.engine.replay import Player
from ambidex.engine.training import training_causes
from ambidex.errors import AlignError, AmbidexError, InputError, RunError

#: whole-model acceptance (relative to the largest reference value)
ACCEPT = 1e-4
Progress = Callable[[str, float], None]


@dataclass
class Job:
    """One comparison on its way."""

    reference: Inspectable | None
    candidate: Inspectable
    weights: str
    user_map: dict[str, str]
    progress: Progress
    evaluate: Callable[..., Any]
    masks: list[Array] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @contextmanager
    def step(self, name: str, done: float) -> Iterator[None]:
        self.progress(name, done)
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin


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
) -> Report:
    """Compare two models, or a recorded reference with a model.

    ``inputs`` has ``reference`` and ``candidate`` batches (one may be None) and ``masks`` of positions that count.
    ``weights="carry"`` copies the reference's weights into the candidate first; ``"keep"`` compares what is loaded.
    ``evaluate`` is the float64 reference of the canonical operators.
    Raises AmbidexError subclasses when nothing can be compared.
    """
    if evaluate is None:
        evaluate = _default_evaluate()
    live = None if isinstance(reference, Trace) else reference
    job = Job(live, candidate, weights, dict(user_map or {}), progress or (lambda *_: None), evaluate)
    job.masks = [np.asarray(m) for m in inputs.masks.values()]
    with job.step("run the reference", 0.05):
        ref = (
            reference
            if isinstance(reference, Trace)
            else with_weights(reference, reference.run(_reference_batch(inputs), exact=True))
        )
        if live is not None:
            floors.keep_only(ref.calls)
        _check_finite(ref, "reference")
        steady = live is None or _same_outputs(ref, live.run(_reference_batch(inputs), record=False))
    with job.step("run the candidate", 0.25):
        batch, first = _best_run(ref, _first_runs(job, ref, inputs))
        _check_finite(first, "candidate")
    job.masks += _implied_masks(ref, first)
    saved = first.weights if weights == "carry" else {}
    try:
        return _compare(job, ref, first, batch, inputs, steady=steady, mode=mode)
    finally:
        if saved:
            candidate.set_weights(saved)


def _default_evaluate() -> Callable[..., Any]:
    import importlib

    return importlib.import_module("ambidex.adapters.reference_").evaluate  # type: ignore[no-any-return]


def _reference_batch(inputs: Any) -> Batch:
    if inputs.reference is None:
        raise InputError(
            "there are no inputs for the reference", todo='Pass --inputs FILE.npz or --signature "float32[None,16]"'
        )
    return inputs.reference  # type: ignore[no-any-return]


def _check_finite(trace: Trace, side: str) -> None:
    for name, value in trace.weights.items():
        if value.dtype.kind == "f" and value.size and np.isnan(value.min()):
            raise InputError(
                f"weight '{name}' of the {side} holds {int(np.isnan(value).sum())} NaN",
                "nothing computed from it can be compared",
                "Load a sound checkpoint",
            )


def _same_outputs(a: Trace, b: Trace) -> bool:
    return all(
        name in b.outputs and np.array_equal(v, b.outputs[name], equal_nan=v.dtype.kind == "f")
        for name, v in a.outputs.items()
    )


def _first_runs(job: Job, ref: Trace, inputs: Any) -> list[tuple[Batch, Trace]]:
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


def _best_run(ref: Trace, runs: list[tuple[Batch, Trace]]) -> tuple[Batch, Trace]:
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


def _implied_masks(*traces: Trace) -> list[Array]:
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


def _compare(job: Job, ref: Trace, first: Trace, batch: Batch, inputs: Any, *, steady: bool, mode: str) -> Report:
    with job.step("pair and carry weights", 0.35):
        pairing = weighting.pair(ref, first, job.user_map)
        if job.weights == "carry":
            weighting.carry(pairing, ref, job.candidate, first)
    with job.step("run the candidate", 0.4):
        chained = with_weights(job.candidate, job.candidate.run(batch)) if job.weights == "carry" else first
        again = job.candidate.run(batch, record=False)
    drawn = diagnose.drawing(ref.calls), diagnose.drawing(chained.calls)
    reproducible = steady and _same_outputs(chained, again) and not drawn[0] and not drawn[1]
    with job.step("align", 0.5):
        a, forced = _align(job, ref, chained, pairing, batch)
        a, forced, pairing, chained = _settle(job, ref, first, chained, pairing, batch, a, forced)
        a, forced = _without_harmless(job, a, forced, batch)
    paired = pair_outputs(a, forced.trace, job.masks)
    with job.step("measure in float64", 0.7):
        forced = _with_floors(job, a, forced, batch, chained)
    if job.weights == "keep" and _faults(forced):
        with job.step("align", 0.75):
            a, forced, pairing = _by_structure(job, ref, chained, pairing, batch, a, forced)
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
        case.candidate.trace.layer_weights = chained.layer_weights
        random = _drawn(case, drawn)
        if not random and not _same_outputs(chained, again):
            random = _random(job, case, forced, batch, a, chained)
        glue = Glue(case, forced.trace, random={c.index for c in drawn[1]})
        glue.unsure = {
            j
            for j, m in forced.pairs.items()
            if m.faulty
            and m.reference.op in {"LSTM", "GRU", "RNN"}
            and "mask" in (*m.reference.names, *m.candidate.names)
        }
        causes, fixes = _explain(case, forced, paired, glue)
        causes = random + causes
    if mode == "train":
        with job.step("training mode", 0.9):
            causes += training_causes(case, job.reference, inputs.reference, batch, list(forced.pairs.values()))
    with job.step("prove all fixes together", 0.95):
        fixed = prove.run_fixed(case, batch, fixes) if causes and (fixes.pairs or fixes.gaps) else None
    return _report(
        job, ref, chained, a, forced, pairing, paired, causes, fixed, inputs, glue, reproducible=reproducible
    )


def _align(
    job: Job, ref: Trace, chained: Trace, pairing: weighting.Pairing, batch: Batch
) -> tuple[align.Alignment, Forced]:
    a = align.start(ref, chained, pairing, job.user_map)
    if not ref.calls or not chained.calls:
        raise AlignError("one side ran no layer and no operator that could be recorded")
    align.through_crops(a)
    align.by_value(a, chained)
    align.by_order(a, frozenset({"pool", "resize"}))
    forced = run_forced(job.candidate, batch, a, chained, job.masks, force_inputs=False)
    for _ in range(3):
        added = align.by_value(a, forced.trace)
        added += align.by_order(a) or align.by_overlap(a)
        if not added:
            break
        forced = run_forced(job.candidate, batch, a, chained, job.masks, force_inputs=False)
    return a, run_forced(job.candidate, batch, a, forced.trace, job.masks, force_inputs=True)


def _faults(forced: Forced) -> int:
    return sum(m.faulty or bool(m.glue) for m in forced.pairs.values())


#: families that mean something by themselves: where such a pair differs, it is a fault and no other way to go
_MEANT = {"activation", "norm", "conv", "pool", "attention", "resize", "rnn", "regularize"}


def _trouble(job: Job, a: align.Alignment, forced: Forced) -> set[object]:
    found: set[object] = {j for j, m in forced.pairs.items() if m.faulty or m.glue}
    return found | {p.reference for p in pair_outputs(a, forced.trace, job.masks) if p.gap is not None}


def _without_harmless(job: Job, a: align.Alignment, forced: Forced, batch: Batch) -> tuple[align.Alignment, Forced]:
    """Give up matches by order between functional operators that differ without any consequence: hand-written code
    may go another way to the same value (a softmax that subtracts another maximum). Tried by leaving them alone."""

    def on_the_way(j: object) -> bool:
        m = forced.pairs.get(j) if isinstance(j, int) else None
        return (
            m is not None
            and m.how in {"order", "value"}
            and m.reference.layer.functional
            and m.candidate.layer.functional
            and align.family(m.reference) not in _MEANT
        )

    suspects = [j for j, m in forced.pairs.items() if m.how == "order" and (m.faulty or m.glue) and on_the_way(j)]
    for group in [suspects, *([j] for j in suspects[:8])] if len(suspects) > 1 else [[j] for j in suspects]:
        removed = {j for j in group if j in a.matches}
        known = _trouble(job, a, forced)
        for _ in range(8 if removed else 0):
            other = align.Alignment(a.reference, a.candidate, a.layouts, dict(a.matches), dict(a.by_reference))
            for j in removed:
                other.by_reference.pop(other.matches.pop(j).reference)
            try:
                run = run_forced(job.candidate, batch, other, forced.trace, job.masks, force_inputs=True)
            except AmbidexError:
                break
            more = _trouble(job, other, run) - (known - removed)
            if not more:
                a, forced = other, run
                break
            if not all(on_the_way(j) for j in more):
                break
            removed |= {j for j in more if isinstance(j, int)}
    return a, forced


def _settle(
    job: Job,
    ref: Trace,
    first: Trace,
    chained: Trace,
    pairing: weighting.Pairing,
    batch: Batch,
    a: align.Alignment,
    forced: Forced,
) -> tuple[align.Alignment, Forced, weighting.Pairing, Trace]:
    """Where names and shapes left a choice between weights, the measured difference decides."""
    if job.weights != "carry":
        return a, forced, pairing, chained
    best = _faults(forced)
    tried = False
    for change in weighting.alternatives(pairing, ref, first, forced.pairs.values()):
        if best == 0:
            break
        tried = True
        weighting.carry(change, ref, job.candidate, first)
        try:
            run = with_weights(job.candidate, job.candidate.run(batch))
            other, other_forced = _align(job, ref, run, change, batch)
        except AmbidexError:
            continue
        count = _faults(other_forced)
        if count < best:
            best, a, forced, pairing, chained = count, other, other_forced, change, run
            for entry in pairing.report:
                entry.how = (
                    entry.how.replace("order", "trial")
                    if entry in change.report and entry.how == "order"
                    else entry.how
                )
    if tried:
        weighting.carry(pairing, ref, job.candidate, first)
    return a, forced, pairing, chained


def _by_structure(
    job: Job, ref: Trace, chained: Trace, pairing: weighting.Pairing, batch: Batch, a: align.Alignment, forced: Forced
) -> tuple[align.Alignment, Forced, weighting.Pairing]:
    """Loaded weights that agree crosswise: pair the layers by their place instead, when that leaves less unexplained
    between the layers (then it is the weights that are exchanged, not the layers)."""
    other = weighting.pair(ref, chained, job.user_map, by_value=False)
    if {x[:2] for x in other.layers} == {x[:2] for x in pairing.layers} and {
        (p.reference, p.candidate) for p in other.raw
    } == {(p.reference, p.candidate) for p in pairing.raw}:
        return a, forced, pairing
    b, second = _align(job, ref, chained, other, batch)
    second = _with_floors(job, b, second, batch, chained)
    before, after = _faults(forced), _faults(second)
    likeness = [sum(alike(r, c) for r, c, _ in p.layers) for p in (pairing, other)]
    if sum(bool(m.glue) for m in second.pairs.values()) < sum(bool(m.glue) for m in forced.pairs.values()) or (
        after <= before and likeness[1] > likeness[0]
    ):
        return b, second, other
    return a, forced, pairing


def _with_floors(job: Job, a: align.Alignment, forced: Forced, batch: Batch, chained: Trace) -> Forced:
    """Where a difference looks like a fault, the candidate's own float64 floor decides with the reference's."""
    if not _faults(forced):
        return forced
    if _floors_alone(job, forced):
        return forced
    faulty = {m.candidate.key for m in forced.pairs.values() if m.faulty}
    return run_forced(job.candidate, batch, a, forced.trace, job.masks, force_inputs=True, exact=faulty)


def _floors_alone(job: Job, forced: Forced) -> bool:
    """The floors of the calls in question, each made once more in float64, where that is all that is asked for: nothing
    differs between the layers, and every call has one output and all its inputs from the reference."""
    faulty = [m for m in forced.pairs.values() if m.faulty]
    if any(m.glue for m in forced.pairs.values()):
        return False
    for m in faulty:
        given = {a.port.candidate for a in m.arrived}
        moving = {
            i for i, x in enumerate(m.candidate.inputs) if x.dtype.kind == "f" and m.candidate.origins[i][0] == "call"
        }
        if len(m.outputs) != 1 or len(m.candidate.computed) != 1 or not moving <= given:
            return False
    try:
        found = [job.candidate.call(m.candidate.path, m.candidate.inputs, like=m.candidate, exact=True) for m in faulty]
    except AmbidexError:
        return False
    for m, exact in zip(faulty, found, strict=True):
        m.candidate.exact, m.candidate.floors = exact, None
        m.floor = max(m.floor, floors.of_call(m.candidate) or 0.0)
        m.candidate.exact = None
    return True


def _drawn(case: diagnose.Case, drawn: tuple[list[Call], list[Call]]) -> list[Cause]:
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


def _explain(case: diagnose.Case, forced: Forced, paired: list[Paired], glue: Glue) -> tuple[list[Cause], prove.Fixes]:
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
    return [*causes, *_structure(case, forced, causes)], fixes


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
        for (ref_path, cand_path), roles in p.unequal.items():
            m = by_path.get(cand_path)
            if (ref_path, cand_path) not in known and m is not None and not m.faulty:
                found.append(diagnose.weight_cause(case, m, roles))
    return found


def _random(
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
        status = "faulty" if m.faulty else "glue" if m.glue else "same"
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


def _report(
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
    *,
    reproducible: bool,
) -> Report:
    rows, coverage = _rows(a, chained, forced, glue, paired)
    max_abs, size, name = whole(paired, ref, chained, job.masks)
    rel = None if max_abs is None else max_abs / size if size else 0.0
    share = [
        min(m.floor / scale(m.reference.outputs[0]), 1e-5)
        for m in forced.pairs.values()
        if m.reference.outputs and np.isfinite(m.floor)
    ]
    whole_floor = max(size * float(np.sqrt(np.sum(np.square(share)))), floors.EPS32 * size) if size else 0.0
    if (rel is None or rel > ACCEPT) and not causes:
        if rel is not None and whole_floor and max_abs is not None and max_abs <= floors.RATIO * whole_floor:
            job.notes.append(
                "the outputs differ by more than 1e-4, but no more than round-off adds up to: every layer is at its floor"
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
    if not reproducible:
        verdict = "not_reproducible"
    elif found:
        verdict = "different"
    elif max_abs is None:
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
