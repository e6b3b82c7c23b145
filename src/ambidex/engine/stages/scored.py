"""The stages that are judged on outputs: loss and metric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ambidex.core import floor as floors
from ambidex.core.training import LossValue
from ambidex.core.types import Array
from ambidex.engine.layout import difference
from ambidex.engine.stages import losses, metrics
from ambidex.engine.stages.outcome import Outcome, measured, undefined
from ambidex.engine.stages.question import Question, Result, Settings
from ambidex.errors import AmbidexError

if TYPE_CHECKING:
    from ambidex.engine.stages.follow import Both


def loss(both: Both) -> Outcome:
    """Both losses, and their gradients, on the reference's outputs."""
    missing = undefined(both, "loss")
    if missing is not None:
        return missing
    ours, theirs = both.training.examples[0]
    given = both.in_candidate(both.outputs)
    a = both.reference.loss(both.outputs, ours.targets, ours.weights)
    b = both.candidate.loss(given, theirs.targets, theirs.weights)
    wanted: Result = {"value": _number(a.value), **both.in_candidate(a.gradients)}
    received: Result = {"value": _number(b.value), **{n: g for n, g in b.gradients.items() if n in wanted}}
    limits = {n: floors.unmeasured(v) if n == "value" else 16 * floors.least(v) for n, v in wanted.items()}
    outcome = measured(wanted, received, limits)
    if outcome.status == "different" and _same_for_weights(both, a, b, wanted, received, limits):
        return Outcome("same", note="the gradients of the outputs differ, those of the weights do not")
    if outcome.status == "different":
        outcome.causes = _loss_question(both, wanted, received, limits).causes()
    return outcome


def _same_for_weights(
    both: Both, a: LossValue, b: LossValue, wanted: Result, received: Result, limits: Mapping[str, float]
) -> bool:
    """Whether two losses of one value differ only in what no weight sees: the gradient of cross-entropy on
    log-probabilities may have any part that log-softmax takes out."""
    if difference(wanted["value"], received["value"]) > floors.RATIO * limits["value"]:
        return False
    back = {p.reference: p.view.back(b.gradients[p.candidate]) for p in both.views if p.candidate in b.gradients}
    if back.keys() != a.gradients.keys():
        return False
    example = both.training.examples[0][0]
    one, two = (both.reference.gradients(example, seeds=seeds).weights for seeds in (a.gradients, back))
    largest = max((floors.largest(g) for g in one.values()), default=0.0)
    return one.keys() == two.keys() and all(difference(g, two[n]) <= 1e-4 * largest for n, g in one.items())


def _loss_question(both: Both, wanted: Result, received: Result, limits: Mapping[str, float]) -> Question:
    ours, theirs = both.training.examples[0]
    single = both.views[0] if len(both.views) == 1 else None

    def of(settings: Settings, *, reference: bool) -> Result | None:
        if single is None:
            return None
        op, attrs = settings[""]
        outputs = both.outputs[single.reference]
        example = ours if reference else theirs
        outputs = outputs if reference else single.view.to(outputs)
        given = (op, attrs, outputs, np.asarray(example.targets), example.weights)
        try:
            value, gradient = losses.value(*given), losses.gradient(*given)
        except (AmbidexError, ValueError, IndexError, TypeError):
            return None
        return {"value": _number(value), single.candidate: single.view.to(gradient) if reference else gradient}

    def catalogue() -> Any:
        if single is None:
            return ()
        known = _class_weights(both)
        return losses.catalogue(single.view.to(both.outputs[single.reference]), np.asarray(theirs.targets),
                                theirs.weights, known)  # fmt: skip

    return Question(
        "loss",
        both.reference.forms["loss"],
        both.candidate.forms["loss"],
        wanted,
        received,
        limits,
        lambda s: of(s, reference=False),
        catalogue=catalogue,
        variants=losses.variants,
        evaluate_reference=lambda s: of(s, reference=True),
        ignored=frozenset({"axis"}),
    )


def _class_weights(both: Both) -> list[float] | None:
    """Class or positive weights that either side declares: code of the other side may hold the same."""
    for trainer in (both.reference, both.candidate):
        for name in ("class_weights", "pos_weight"):
            found = trainer.forms["loss"].attrs.get(name)
            if found is not None:
                return [float(x) for x in np.atleast_1d(found)]
    return None


def metric(both: Both) -> Outcome:
    """Both metrics on the reference's outputs."""
    missing = undefined(both, "metric")
    if missing is not None:
        return missing
    ours, theirs = both.training.examples[0]
    given = both.in_candidate(both.outputs)
    wanted = {"value": _number(both.reference.metric(both.outputs, ours.targets, ours.weights))}
    received = {"value": _number(both.candidate.metric(given, theirs.targets, theirs.weights))}
    limits = {"value": floors.unmeasured(wanted["value"]) + 1e-9}
    outcome = measured(wanted, received, limits)
    if outcome.status != "different":
        return outcome
    single = both.views[0] if len(both.views) == 1 else None

    def evaluate(settings: Settings) -> Result | None:
        if single is None:
            return None
        op, attrs = settings[""]
        outputs = single.view.to(both.outputs[single.reference])
        try:
            return {"value": _number(metrics.value(op, attrs, outputs, np.asarray(theirs.targets), theirs.weights))}
        except (AmbidexError, ValueError, IndexError, TypeError):
            return None

    question = Question(
        "metric", both.reference.forms["metric"], both.candidate.forms["metric"], wanted, received, limits, evaluate,
        variants=metrics.variants, catalogue=lambda: metrics.catalogue(),
    )  # fmt: skip
    outcome.causes = question.causes()
    return outcome


def _number(value: float) -> Array:
    return np.asarray(float(value), np.float64)
