"""The stages that are judged on gradients and weights: clipping, update, schedule, and some steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ambidex.core import floor as floors
from ambidex.core.rule import Cause
from ambidex.core.training import Example, Form, Steps
from ambidex.core.training_ops import inert
from ambidex.core.types import Array
from ambidex.engine.layout import difference
from ambidex.engine.stages import clips, optimizers, schedules
from ambidex.engine.stages.outcome import Outcome, measured, undefined
from ambidex.engine.stages.question import Question, Result, Settings
from ambidex.errors import AmbidexError

if TYPE_CHECKING:
    from ambidex.engine.stages.follow import Both

#: how many updates are followed where one batch is given
STEPS = 3
#: how many learning rates are compared
RATES = 24
#: gradients of three updates, as shares of the real one: a change of sign and of size shows every buffer
_SHARES = (1.0, -0.5, 2.0)
#: by how much the learning rate is changed meanwhile: where a side never changes it, what its change does is no fault
_STEADY, _CHANGING = (1.0, 1.0, 1.0), (1.0, 0.5, 0.25)


def clip(both: Both) -> Outcome:
    """Both clippings of the reference's gradients, as they are and a thousand times larger."""
    forms = both.reference.forms.get("clip"), both.candidate.forms.get("clip")
    if forms == (None, None):
        outcome = Outcome("not_defined", note="neither side clips")
        outcome.causes = _accumulation(both)
        outcome.status = "different" if outcome.causes else outcome.status
        return outcome
    outcome = _clip(both, *forms)
    more = _accumulation(both)
    outcome.causes = [*outcome.causes, *more]
    outcome.status = "different" if more else outcome.status
    return outcome


def _accumulation(both: Both) -> list[Cause]:
    """How many batches go into one update, and whether their gradients are added up or averaged."""
    found = []
    counts = both.reference.accumulate, both.candidate.accumulate
    means = both.reference.averages, both.candidate.averages
    for name, (a, b), counted in (("count", counts, True), ("mean", means, counts[0] == counts[1] != 1)):
        if a != b and counted:
            cause = Cause("attr", "Accumulate", name, a, b, proven=True, proof="read from both sides' training")
            cause.reference_path = cause.candidate_path = "gradient accumulation"
            cause.detail = {"part": "clip"}
            found.append(cause)
    return found


def _clip(both: Both, ours: Form | None, theirs: Form | None) -> Outcome:
    forms = ours, theirs
    gradients = _gradients(both)
    if gradients is None:
        return Outcome("not_judged", note="the reference's gradients could not be had")
    wanted: Result = {}
    received: Result = {}
    given: dict[str, dict[str, Array]] = {}
    carried = both.carrier(gradients)
    for label, scale in (("", 1.0), ("x1000", 1000.0)):
        scaled = {n: (g * scale).astype(g.dtype) for n, g in gradients.items()}
        given[label] = {n: (g * scale).astype(g.dtype) for n, g in carried.items()}
        kept = both.carrier(both.reference.clip(scaled))
        mine = both.candidate.clip({n: given[label][n] for n in given[label] if n in both.trainable()})
        wanted |= {f"{label}|{n}": kept[n] for n in mine if n in kept}
        received |= {f"{label}|{n}": g for n, g in mine.items() if n in kept}
    # the norm of many gradients is a long sum in float32: a millionth of the value and more with their number
    share = 1e-6 + floors.EPS32 * float(np.sqrt(sum(v.size for v in wanted.values()))) / 100
    limits = {n: share * floors.largest(v) + 1e-30 for n, v in wanted.items()}
    outcome = measured(wanted, received, limits)
    if outcome.status != "different":
        return outcome
    reference, candidate = (f or Form("") for f in forms)
    if forms[0] is None or forms[1] is None:
        present = reference if forms[1] is None else candidate
        outcome.causes = [_one_sided(both, "clip", present, outcome, missing=forms[1] is None)]
        return outcome

    def evaluate(settings: Settings) -> Result | None:
        op, attrs = settings[""]
        made: Result = {}
        for label, values in given.items():
            cut = clips.clipped(op, attrs, {n: v for n, v in values.items() if f"{label}|{n}" in wanted})
            made |= {f"{label}|{n}": v for n, v in cut.items()}
        return made

    question = Question(
        "clip", reference, candidate, wanted, received, limits, evaluate, variants=clips.variants,
        catalogue=lambda: clips.catalogue({**candidate.attrs, **reference.attrs}),
    )  # fmt: skip
    outcome.causes = question.causes()
    return outcome


def update(both: Both) -> Outcome:
    """Three updates of both optimizers from the reference's weights with the reference's gradients."""
    missing = undefined(both, "optimizer")
    if missing is not None:
        return missing
    gradients = _gradients(both)
    if gradients is None:
        return Outcome("not_judged", note="the reference's gradients could not be had")
    sequence = [{n: (g * s).astype(g.dtype) for n, g in gradients.items()} for s in _SHARES]
    planned = [t.rates(RATES) for t in (both.reference, both.candidate)]
    factors = _CHANGING if all(len(set(p)) > 1 for p in planned) else _STEADY
    theirs = _same_rates(both, planned)
    mine = factors if theirs is None else [f * theirs[1] for f in factors]
    after = [both.carrier({**both.carrier.ref.weights, **w}) for w in both.reference.update(sequence, factors)]
    partner = both.carrier.partners()
    with both.carrier.carried():
        start = {n: np.array(a) for n, a in both.carrier.candidate.weights().items()}
        carried = [both.carrier(g) for g in sequence]
        # a weight without a gradient is left alone by both frameworks, its decay too
        moving = {n for n, ref in partner.items() if any(r in gradients for r in ref.split(" + "))}
        names = [n for n in both.trainable() if n in moving and n in after[0] and n in carried[0]]
        made = both.candidate.update([{n: g[n] for n in names} for g in carried], mine)
    wanted = {f"{i}|{n}": w[n] for i, w in enumerate(after) for n in names}
    received = {f"{i}|{n}": w[n] for i, w in enumerate(made) for n in names if n in w}
    moved = {n: floors.largest(after[-1][n] - start[n]) for n in names}
    limits = {k: 4 * floors.least(v) + 1e-6 * moved[k.split("|", 1)[1]] for k, v in wanted.items()}
    outcome = measured(wanted, received, limits)
    question = _update_question(both, names, partner, start, carried, factors, wanted, received, limits)
    if theirs is not None:
        question.candidate = theirs[0]
    if outcome.status == "different":
        outcome.causes = question.causes()
        for cause in outcome.causes:
            cause.detail["scheduled"] = "schedule" in both.candidate.forms
    else:
        outcome.causes = _without_effect(question)
        outcome.status = "different" if outcome.causes else "same"
    return outcome


def _same_rates(both: Both, planned: Sequence[Sequence[float]]) -> tuple[Form, float] | None:
    """Where both sides plan the same rates from bases that are not the same (a schedule of the user's own has none that
    could be read), the candidate's form with the reference's base, and the factor between them; else None."""
    bases = [t.forms["optimizer"].attrs.get("learning_rate") for t in (both.reference, both.candidate)]
    if not bases[0] or not bases[1] or bases[0] == bases[1] or not np.allclose(planned[0], planned[1], rtol=1e-5):
        return None
    form = both.candidate.forms["optimizer"]
    return replace(form, attrs={**form.attrs, "learning_rate": bases[0]}), float(bases[0]) / float(bases[1])


def _update_question(
    both: Both,
    names: list[str],
    partner: Mapping[str, str],
    start: Mapping[str, Array],
    gradients: list[dict[str, Array]],
    factors: Sequence[float],
    wanted: Result,
    received: Result,
    limits: Mapping[str, float],
) -> Question:
    def evaluate(settings: Settings) -> Result | None:
        made: Result = {}
        for n in names:
            op, attrs = settings[n]
            try:
                rates = [float(attrs["learning_rate"]) * f for f in factors]
                found = optimizers.updates(op, attrs, start[n], [g[n] for g in gradients], rates)
            except (AmbidexError, KeyError, TypeError, ValueError):
                return None
            made |= {f"{i}|{n}": w for i, w in enumerate(found)}
        return made

    return Question(
        "optimizer",
        both.reference.forms["optimizer"],
        both.candidate.forms["optimizer"],
        wanted,
        received,
        limits,
        evaluate,
        keys=names,
        variants=optimizers.variants,
        partner=partner,
    )


#: how the frameworks write a formula, not what the user chose: told only where it shows
_CONVENTIONS = {"epsilon_before_correction", "rate_in_buffer", "epsilon_inside", "epsilon_in_max", "decoupled"}


def _without_effect(question: Question) -> list[Cause]:
    """Settings of one optimizer that the user chose differently, though these gradients do not show it."""
    from ambidex.core import ops

    a, b = question.reference, question.candidate
    if not a.op or a.op != b.op:
        return []
    ours, theirs = (question.settings(f, of_reference=f is a) for f in (a, b))
    each = [ops.differing_attrs(a.op, ours[k][1], theirs[k][1], training=True) for k in question.keys]
    found = []
    for name, (x, y) in (each[0] if each else {}).items():
        if name in _CONVENTIONS or name == "learning_rate" or x is None or y is None:
            continue
        if all(name in inert(a.op, s[k][1]) for s in (ours, theirs) for k in question.keys):
            continue  # Nesterov's form of no momentum
        if any(other.get(name) != (x, y) for other in each):  # only some weights: these have gradients that would show
            continue
        found.append(
            question.cause(
                "attr", a.op, name, x, y, detail={"effect": False}, proof="read from both optimizers: these gradients "
                "and weights are too large for it to show",
            )
        )  # fmt: skip
    return found


def schedule(both: Both) -> Outcome:
    """The learning rates of the first updates on both sides."""
    if undefined(both, "optimizer") is not None:
        return Outcome("not_defined", note="a side has no optimizer")
    a, b = (np.asarray(t.rates(RATES), np.float64) for t in (both.reference, both.candidate))
    bases = [t.forms["optimizer"].attrs.get("learning_rate") for t in (both.reference, both.candidate)]
    scale = float(b[0] / a[0]) if a[0] and b[0] else 1.0
    if bases[0] and bases[1] and not np.allclose(a, b, rtol=1e-5):
        scale = float(bases[1]) / float(bases[0])
    elif np.allclose(a, b, rtol=1e-5):
        scale = 1.0
    wanted, received = {"rates": a * scale}, {"rates": b}
    limits = {"rates": 2 * floors.least(wanted["rates"])}
    outcome = measured(wanted, received, limits)
    outcome.curves = {"reference": [float(x) for x in a], "candidate": [float(x) for x in b]}
    if outcome.status != "different":
        if not any("schedule" in t.forms for t in (both.reference, both.candidate)):
            return Outcome("not_defined", note="constant learning rates")
        return outcome
    forms = both.reference.forms.get("schedule"), both.candidate.forms.get("schedule")
    reference, candidate = (f or Form("Constant") for f in forms)
    if forms[0] is None or forms[1] is None:
        present = reference if forms[1] is None else candidate
        outcome.causes = [_one_sided(both, "schedule", present, outcome, missing=forms[1] is None)]
        return outcome

    def evaluate(settings: Settings, *, mine: bool = True) -> Result | None:
        op, attrs = settings[""]
        trainer = both.candidate if mine else both.reference
        base = trainer.forms["optimizer"].attrs.get("learning_rate")
        if base is None:
            return None
        made = np.asarray(schedules.rates(op, attrs, float(base), RATES))
        return {"rates": made if mine else made * scale}

    question = Question(
        "schedule", reference, candidate, wanted, received, limits, evaluate, variants=schedules.variants,
        evaluate_reference=lambda s: evaluate(s, mine=False),
    )  # fmt: skip
    found = question.causes()
    # counting batches for updates also shifts the first one
    outcome.causes = [c for c in found if c.name != "offset" or all(o.name != "stride" for o in found)]
    return outcome


def steps(both: Both, earlier: bool) -> Outcome:
    """Some steps as the user trains: the losses on the way, the weights at the end."""
    for part in ("loss", "optimizer"):
        missing = undefined(both, part)
        if missing is not None:
            return missing
    examples = list(both.training.examples)
    if len(examples) == 1:
        examples = examples * STEPS * max(both.reference.accumulate, both.candidate.accumulate)
    a = both.reference.steps([x for x, _ in examples])
    with both.carrier.carried():
        b = both.candidate.steps([y for _, y in examples])
    final = both.carrier(a.weights)
    names = [n for n in both.trainable() if n in final and n in b.weights]
    heard = _heard(both, names)
    wanted: Result = {"losses": np.asarray(a.losses), **{n: np.where(heard[n], final[n], 0.0) for n in names}}
    received: Result = {"losses": np.asarray(b.losses), **{n: np.where(heard[n], b.weights[n], 0.0) for n in names}}
    share = 1e-5  # times the threshold of ten: 1e-4 relative
    limits = {n: share * max(floors.largest(v), 1e-3) for n, v in wanted.items()}
    outcome = measured(wanted, received, limits)
    if outcome.status == "different":
        noise = _noise(both, [x for x, _ in examples], a)
        outcome = measured(wanted, received, {n: max(v, noise.get(n, 0.0)) for n, v in limits.items()})
    outcome.note = f"{len(examples)} steps; last loss {a.losses[-1]:.6g} and {b.losses[-1]:.6g}"
    outcome.curves = {"reference": [float(x) for x in a.losses], "candidate": [float(x) for x in b.losses]}
    if outcome.status == "different" and not earlier and not both.forward_differs:
        outcome.causes = [
            Cause("unknown", "steps", "", before=outcome.before, floor=outcome.floor, detail={"part": "steps"})
        ]
    return outcome


def _heard(both: Both, names: list[str]) -> dict[str, Array | bool]:
    """Where each weight's gradient is more than rounding. An optimizer that divides by the size of a gradient moves a
    weight without one (a bias before a norm, a key's bias) by the sign of its rounding, and the sides round apart."""
    gradients = _gradients(both)
    if gradients is None:
        return dict.fromkeys(names, True)
    largest = max((floors.largest(g) for g in gradients.values()), default=0.0)
    carried = both.carrier(gradients)
    return {n: np.abs(carried[n]) > 1e-6 * largest if n in carried else True for n in names}


def _noise(both: Both, examples: list[Example], plain: Steps) -> dict[str, float]:
    """How far the reference's own steps end from each other when its weights are changed by their rounding: an
    optimizer that divides by the size of a gradient makes large steps of gradients that are nothing but rounding."""
    model = both.carrier.reference
    own = {n: np.array(a) for n, a in model.weights().items()}
    found: dict[str, float] = {}
    rng = np.random.default_rng(0)
    for _ in range(2):
        try:
            model.set_weights({n: _shaken(a, rng) for n, a in own.items() if a.dtype.kind == "f"})
            other = both.reference.steps(examples)
        finally:
            model.set_weights(own)
        before, after = both.carrier(plain.weights), both.carrier(other.weights)
        pairs = {n: (before[n], after[n]) for n in before if n in after}
        pairs["losses"] = np.asarray(plain.losses), np.asarray(other.losses)
        for n, (x, y) in pairs.items():
            found[n] = max(found.get(n, 0.0), difference(x, y))
    return found


def _shaken(a: Array, rng: np.random.Generator) -> Array:
    return (a * (1 + np.finfo(a.dtype).eps * rng.choice((-1.0, 1.0), a.shape))).astype(a.dtype)


# ------------------------------------------------------------------------------------------------------------ small
def _gradients(both: Both) -> dict[str, Array] | None:
    """The reference's own gradients; without a loss, backwards from its outputs."""
    example = both.training.examples[0][0]
    seeds = None if both.scored else {n: np.ones_like(v) / v.size for n, v in both.outputs.items()}
    try:
        found = both.reference.gradients(example, seeds=seeds).weights
    except AmbidexError:
        return None
    return found or None


def _one_sided(both: Both, part: str, form: Form, outcome: Outcome, *, missing: bool) -> Cause:
    cause = Cause("missing" if missing else "extra", form.op or part, part, before=outcome.before, floor=outcome.floor)
    cause.reference = form.attrs if missing else None
    cause.candidate = None if missing else form.attrs
    cause.reference_path = f"{part} {form.cls}".strip() if missing else ""
    cause.candidate_path = "" if missing else f"{part} {form.cls}".strip()
    cause.source = form.source if not missing else None
    cause.proven, cause.proof = True, f"only the {'reference' if missing else 'candidate'} has a {part}"
    cause.after = 0.0
    cause.detail = {"part": part, "cls": form.cls}
    return cause
