"""Causes, which the engine proves, and rules, which know them by name.

The engine finds a *cause* by running again: some change of the candidate (or of the reference) makes the two sides
agree to the floor. A *rule* claims causes of its kind and says them in words: title, message, what to write. A
rule's docstring is its page (``ambidex explain CODE``); its examples are its tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from ambidex.core.types import Array, Call, Source

#: attr: a canonical attribute differs · op: another operator stands there · missing / extra: an operator only one
#: side has · variant: the operator is computed in another way (``name`` says which) · weight: a weight's values
#: differ · parameter: a weight has no partner · order: the same values in another order · scale: a constant factor ·
#: mask: a mask is missing, inverted or lost · wiring: fed from another place · constant: baked at build time ·
#: random: differs from run to run · output: outputs swapped · unknown
Kind = Literal[
    "attr",
    "op",
    "missing",
    "extra",
    "variant",
    "weight",
    "parameter",
    "order",
    "scale",
    "mask",
    "wiring",
    "constant",
    "random",
    "output",
    "unknown",
]


@dataclass(slots=True)
class Cause:
    """One reason why a pair of layers (or the code between layers) differs.

    ``op`` is the canonical operator concerned, ``name`` the attribute, role or variant, ``reference`` and
    ``candidate`` the two values. ``before`` and ``after`` are the differences without and with the change.
    """

    kind: Kind
    op: str
    name: str = ""
    reference: Any = None
    candidate: Any = None
    reference_path: str = ""
    candidate_path: str = ""
    source: Source | None = None
    framework: str = ""  # of the candidate: decides how a fix is written
    reference_framework: str = ""
    candidate_cls: str = ""
    before: float | None = None
    after: float | None = None
    floor: float | None = None
    proven: bool = False
    proof: str = ""
    detail: dict[str, Any] = field(default_factory=dict)
    tried: list[str] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, str, str, str]:
        return (self.kind, self.op, self.name, self.candidate_path)


@dataclass(frozen=True, slots=True)
class Variant:
    """Another way to compute one operator: what the engine may try in its place.

    One of ``op``/``attrs`` (evaluated canonically), ``compute(inputs) -> outputs`` in numpy, or ``feed(inputs) ->
    inputs``: the same operator on changed inputs.
    """

    kind: Kind
    name: str
    value: Any = None
    op: str = ""
    attrs: dict[str, Any] | None = None
    compute: Callable[[Sequence[Array]], Sequence[Array]] | None = None
    feed: Callable[[Sequence[Array]], Sequence[Array]] | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """One side of an example: a canonical layer. ``weights`` by role may be given, else they are drawn."""

    op: str
    attrs: dict[str, Any] = field(default_factory=dict)
    inputs: tuple[tuple[int, ...], ...] = ((3, 5, 7),)
    weights: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Example:
    """A pair of canonical layers and whether the rule must show a finding on it."""

    reference: Side
    candidate: Side
    shows: bool


class Rule:
    """One known cause. Subclass it, fill the class attributes, write the page as docstring."""

    code: ClassVar[str]
    name: ClassVar[str]
    title: ClassVar[str]
    stage: ClassVar[str] = "forward"
    examples: ClassVar[Sequence[Example]] = ()

    #: how surely this rule, and not a more general one, is meant: the highest wins
    weight: ClassVar[int] = 10

    def claims(self, cause: Cause) -> bool:
        """Whether this cause is of the rule's kind."""
        raise NotImplementedError

    def title_for(self, cause: Cause) -> str:
        return self.title

    def message(self, cause: Cause) -> str:
        """One sentence with both values: what the candidate does, what the reference does."""
        raise NotImplementedError

    def fix(self, cause: Cause) -> str:
        """What to write, in the candidate's framework."""
        raise NotImplementedError

    def variants(self, call: Call) -> Sequence[Variant]:
        """Other ways to compute this call that people really write by mistake."""
        return ()
