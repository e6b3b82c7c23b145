"""From the forward pass on: loss, gradient, clipping, update, schedule, metric, some steps.

Every stage gets the reference's values, so that it is judged on its own: the reference's outputs go into both losses,
its gradients into both clippings and optimizers. The report names the first stage that differs and every later one
that is wrong by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from ambidex.core.report import StageRow
from ambidex.core.rule import Cause
from ambidex.core.training import Example, Trainer
from ambidex.core.types import Array
from ambidex.engine.layout import View
from ambidex.engine.outputs import Paired
from ambidex.engine.stages import backward, moved, scored
from ambidex.engine.stages.carried import Carrier
from ambidex.engine.stages.outcome import Outcome
from ambidex.errors import AmbidexError

#: the stages behind the forward pass, in order
LATER = ("loss", "gradient", "clip", "update", "schedule", "metric", "steps")


@dataclass
class Training:
    """What both sides train with, and on what: pairs of the reference's and the candidate's example."""

    reference: Trainer
    candidate: Trainer
    examples: Sequence[tuple[Example, Example]]
    stages: Collection[str] = LATER


@dataclass
class Both:
    """Everything the stages look at."""

    training: Training
    carrier: Carrier
    outputs: dict[str, Array]  # the reference's
    views: list[Paired]
    forward_differs: bool
    calls: dict[str, tuple[str, View]] = field(default_factory=dict)  # reference's call key -> candidate's key and view
    _seeds: dict[str, Array] | None = None

    @property
    def reference(self) -> Trainer:
        return self.training.reference

    @property
    def candidate(self) -> Trainer:
        return self.training.candidate

    def seeds(self) -> dict[str, Array]:
        """Gradients of the reference's outputs to go back from: of its own loss, else of their mean."""
        if self._seeds is None:
            if self.scored:
                example = self.training.examples[0][0]
                self._seeds = dict(self.reference.loss(self.outputs, example.targets, example.weights).gradients)
            else:
                self._seeds = {n: np.full_like(v, 1 / max(v.size, 1)) for n, v in self.outputs.items()}
        return self._seeds

    @property
    def scored(self) -> bool:
        """Whether the reference's loss can be computed."""
        return "loss" in self.reference.forms and self.training.examples[0][0].targets is not None

    def trainable(self) -> list[str]:
        """The candidate's weights that training may move: all but buffers and constants."""
        layers = {name: x for x in self.carrier.cand.layers for name in x.weights.values()}
        fixed = self.carrier.candidate.constants()
        return [
            n
            for n, a in self.carrier.cand.weights.items()
            if a.dtype.kind == "f"
            and n not in fixed
            and not any(r in {"mean", "var"} and w == n for r, w in (layers[n].weights.items() if n in layers else ()))
        ]

    def in_candidate(self, values: dict[str, Array]) -> dict[str, Array]:
        """Values by the reference's outputs as values by the candidate's."""
        return {p.candidate: p.view.to(values[p.reference]) for p in self.views if p.reference in values}


def follow(both: Both) -> tuple[list[StageRow], list[Cause]]:
    """The stages behind the forward pass, as far as both sides define them."""
    rows: list[StageRow] = []
    causes: list[Cause] = []
    for stage in LATER:
        if stage not in both.training.stages:
            continue
        try:
            outcome = _JUDGES[stage](both, rows)
        except AmbidexError as error:
            outcome = Outcome("could_not_run", note=f"{error.what}: {error.why}" if error.why else error.what)
        rows.append(outcome.row(stage))
        for cause in outcome.causes:
            cause.framework = both.candidate.framework
            cause.reference_framework = both.reference.framework
            cause.detail.setdefault("stage", stage)
        causes += outcome.causes
    return rows, causes


_JUDGES = {
    "loss": lambda both, rows: scored.loss(both),
    "gradient": lambda both, rows: backward.gradient(both),
    "clip": lambda both, rows: moved.clip(both),
    "update": lambda both, rows: moved.update(both),
    "schedule": lambda both, rows: moved.schedule(both),
    "metric": lambda both, rows: scored.metric(both),
    "steps": lambda both, rows: moved.steps(both, any(r.status == "different" for r in rows)),
}
