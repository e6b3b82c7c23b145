"""What a side trains with, and what an adapter must be able to do with it.

A loss, an optimizer, a clipping, a schedule and a metric are described as a layer is: a canonical name with canonical
attributes (:class:`Form`), "" where it is code of the user's own. Formulas of the canonical forms, in float64, live in
``ambidex.engine.stages``; ``docs/canonical.md`` lists names and attributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ambidex.core.model import Batch
from ambidex.core.types import Array, Source

#: the parts a side may define, in the order in which a training step uses them
PARTS = ("loss", "clip", "optimizer", "schedule", "metric")


@dataclass(slots=True)
class Form:
    """One part of a recipe in canonical words.

    ``by_weight``: attributes of an optimizer that single weights have of their own (parameter groups, excluded from
    decay), by the framework's weight name. ``source``: where the user builds it, where that can be told.
    """

    op: str
    attrs: dict[str, Any] = field(default_factory=dict)
    cls: str = ""
    source: Source | None = None
    by_weight: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(slots=True)
class LossValue:
    """A loss and its gradient with respect to each output of the model (by output name, the framework's layout)."""

    value: float
    gradients: dict[str, Array] = field(default_factory=dict)


@dataclass(slots=True)
class Gradients:
    """One backward pass. ``weights``: by the framework's name and layout; a weight that got no gradient is missing.

    ``calls``: gradient of the loss with respect to the first output of a recorded call, by :attr:`Call.key`, as far
    as the adapter can tell. ``updates``: buffers that the forward pass wrote (running statistics), by name.
    """

    loss: float
    outputs: dict[str, Array] = field(default_factory=dict)
    weights: dict[str, Array] = field(default_factory=dict)
    calls: dict[str, Array] = field(default_factory=dict)
    updates: dict[str, Array] = field(default_factory=dict)


@dataclass(slots=True)
class Example:
    """One batch to train on, as a side takes it."""

    batch: Batch
    targets: Any
    weights: Array | None = None  # of the samples


@dataclass(slots=True)
class Steps:
    """Some training steps: the loss of each (before its update) and all weights after the last one."""

    losses: list[float]
    weights: dict[str, Array]


class Trainer(Protocol):
    """A model with what it is trained with. Every method leaves the model's weights and buffers as it found them.

    ``forms`` holds the parts that the side defines (see PARTS). Made by ``trainer(model, given)`` of an adapter, where
    ``given`` is the user's dictionary for that side.
    """

    framework: str
    forms: dict[str, Form]
    accumulate: int  # batches that go into one update
    averages: bool  # whether their gradients are averaged, not added up

    def loss(self, outputs: Mapping[str, Array], targets: Any, weights: Array | None = None) -> LossValue:
        """The side's loss on given outputs, with its gradient: the model does not run."""

    def gradients(
        self, example: Example, *, training: bool = False, seeds: Mapping[str, Array] | None = None
    ) -> Gradients:
        """Forward and backward once, without update. ``training``: in training mode (dropout off all the same).
        ``seeds``: go back from these gradients of the outputs (by output name) and not from the side's own loss; then
        neither targets nor loss are needed and ``Gradients.loss`` is NaN."""

    def clip(self, gradients: Mapping[str, Array]) -> dict[str, Array]:
        """What the side's clipping makes of these gradients (by weight name); unchanged where it has none."""

    def update(self, gradients: Sequence[Mapping[str, Array]], factors: Sequence[float]) -> list[dict[str, Array]]:
        """A fresh optimizer on the model's weights, these gradients one update after another, without clipping,
        accumulation and schedule: the learning rate is the first one times the update's factor. The trainable weights
        after each update. Decay that is written as a penalty of the weights is part of the update."""

    def rates(self, count: int) -> list[float]:
        """The learning rate that each of the first ``count`` updates uses."""

    def metric(self, outputs: Mapping[str, Array], targets: Any, weights: Array | None = None) -> float:
        """The side's metric on given outputs."""

    def steps(self, examples: Sequence[Example]) -> Steps:
        """Train as the user does, one step an example: loss, gradient, accumulation, clipping, update, schedule."""
