"""Why one stage differs: which settings, made like the reference's, make the canonical formula give its result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from ambidex.core import floor as floors
from ambidex.core import ops
from ambidex.core.rule import Cause
from ambidex.core.training import Form
from ambidex.core.training_ops import inert
from ambidex.core.types import Array
from ambidex.engine.layout import difference

#: the numbers of one stage on one side, by name, in the candidate's names and layout
Result = dict[str, Array]
#: canonical operator and attributes by what they apply to: "" for the whole, a weight's name for an optimizer
Settings = dict[str, tuple[str, dict[str, Any]]]


@dataclass
class Question:
    """One stage whose results differ.

    ``evaluate`` computes the stage in float64 from canonical settings (None when it cannot); ``evaluate_reference`` the
    same on the reference's layout, its result in the candidate's. ``catalogue`` are forms
    that may stand behind code of the user's own, ``variants`` the ways in which a form is got wrong.
    """

    part: str
    reference: Form
    candidate: Form
    wanted: Result
    received: Result
    limits: Mapping[str, float]
    evaluate: Callable[[Settings], Result | None]
    keys: list[str] = field(default_factory=lambda: [""])
    catalogue: Callable[[], Iterable[tuple[str, dict[str, Any]]]] = tuple
    variants: Callable[[str, dict[str, Any]], Iterable[tuple[str, dict[str, Any]]]] = lambda op, attrs: ()
    partner: Mapping[str, str] = field(default_factory=dict)  # key -> the reference's name of it
    evaluate_reference: Callable[[Settings], Result | None] | None = None
    ignored: frozenset[str] = frozenset()  # attributes that only say how the data lies

    def settings(self, form: Form, *, of_reference: bool) -> Settings:
        """The declared settings of one side, by key."""
        made: Settings = {}
        for key in self.keys:
            name = self.partner.get(key, key) if of_reference else key
            made[key] = (form.op, {**form.attrs, **form.by_weight.get(name, {})})
        return made

    def agree(self, a: Result | None, b: Result) -> float | None:
        """The largest difference where all of it is within rounding, else None."""
        if a is None or a.keys() != b.keys():
            return None
        worst = 0.0
        for name, value in b.items():
            d = difference(
                np.asarray(a[name]).reshape(value.shape) if np.size(a[name]) == value.size else a[name], value
            )
            if not d <= floors.RATIO * self._limit(name, value):
                return None
            worst = max(worst, d)
        return worst

    def _limit(self, name: str, value: Array) -> float:
        """Rounding of a value that may be larger than the one that the limit was made for."""
        wanted = floors.largest(np.asarray(self.wanted[name])) if name in self.wanted else 0.0
        return self.limits[name] * max(1.0, floors.largest(np.asarray(value)) / wanted if wanted else 1.0)

    # ------------------------------------------------------------------------------------------ which form it is
    def identified(self, form: Form, result: Result, *, of_reference: bool) -> tuple[Settings | None, str]:
        """The settings that reproduce a side's result, and the name of the variant where it is not the plain form."""
        evaluate = self.evaluate_reference if of_reference and self.evaluate_reference else self.evaluate
        if form.op:
            declared = self.settings(form, of_reference=of_reference)
            if self.agree(evaluate(declared), result) is not None:
                return declared, ""
            for name, attrs in self.variants(form.op, form.attrs):
                if self.agree(evaluate(self._everywhere(form.op, attrs)), result) is not None:
                    return self._everywhere(form.op, attrs), name
        for op, attrs in self.catalogue():
            if self.agree(evaluate(self._everywhere(op, attrs)), result) is not None:
                return self._everywhere(op, attrs), ""
        return None, ""

    def _everywhere(self, op: str, attrs: dict[str, Any]) -> Settings:
        return dict.fromkeys(self.keys, (op, attrs))

    # ------------------------------------------------------------------------------------------------ the causes
    def causes(self) -> list[Cause]:
        ref, _ = self.identified(self.reference, self.wanted, of_reference=True)
        cand, variant = self.identified(self.candidate, self.received, of_reference=False)
        if ref is not None and cand is not None:
            found = self._differing(ref, cand, variant)
            if found:
                return found
        if ref is not None and cand is None:
            first = next(iter(ref.values()))
            for name, attrs in self.variants(*first):
                after = self.agree(self.evaluate(self._everywhere(first[0], attrs)), self.received)
                if after is not None:
                    return [
                        self.cause(
                            "variant",
                            first[0],
                            name,
                            reference=first[1],
                            candidate=attrs,
                            after=after,
                            proven=True,
                            proof="the reference's formula in this way gives the candidate's result",
                        )
                    ]
        op = next(iter(ref.values()))[0] if ref is not None else ""
        return [
            self.cause(
                "unknown",
                self.part,
                op,
                detail={"identified": {"reference": ref is not None, "candidate": cand is not None}},
            )
        ]

    def _differing(self, ref: Settings, cand: Settings, variant: str) -> list[Cause]:
        ops_ref, ops_cand = {x[0] for x in ref.values()}, {x[0] for x in cand.values()}
        if ops_ref != ops_cand:
            a, b = next(iter(ref.values())), next(iter(cand.values()))
            after = self.agree(self.evaluate(ref), self.wanted)
            return [
                self.cause(
                    "op",
                    a[0],
                    b[0],
                    a[1],
                    b[1],
                    after=after,
                    proven=after is not None,
                    proof=f"the reference's result is that of {a[0]}, the candidate's that of {b[0]}",
                )
            ]
        items: dict[str, dict[str, tuple[Any, Any]]] = {}  # attribute -> key -> both values
        for key in self.keys:
            (op, ours), (_, theirs) = ref[key], cand[key]
            idle = inert(op, ours) & inert(op, theirs)
            for name, values in ops.differing_attrs(op, ours, theirs, training=True).items():
                if name in self.ignored or name in idle:
                    continue
                items.setdefault(name, {})[key] = values
        # what changes nothing on the candidate's side as it is comes with the setting that it belongs to
        idle_here = set.intersection(*(inert(*cand[key]) for key in self.keys)) if self.keys else set()
        names = [n for n in items if n not in idle_here][:6]
        for size in range(1, len(names) + 1):
            for subset in combinations(names, size):
                after = self.agree(self.evaluate(self._changed(ref, cand, subset, items, idle_here)), self.wanted)
                if after is not None:
                    found = [self._attr(name, items[name], after, variant) for name in subset]
                    return found if size == 1 else self._by_effect(found, ref, cand, items, idle_here)
        return []

    @staticmethod
    def _changed(
        ref: Settings, cand: Settings, subset: Sequence[str], items: Mapping[str, Mapping[str, Any]], idle: set[str]
    ) -> Settings:
        """The candidate's settings with some of the reference's."""
        made = {key: (op, dict(attrs)) for key, (op, attrs) in cand.items()}
        for name in subset:
            for key in items[name]:
                _take(made[key][1], ref[key][1], name)
        for key, (op, attrs) in made.items():
            for name in idle - inert(op, attrs) - set(subset):
                if key in items.get(name, {}):
                    _take(attrs, ref[key][1], name)
        return made

    def _by_effect(
        self, found: list[Cause], ref: Settings, cand: Settings, items: Mapping[str, Mapping[str, Any]], idle: set[str]
    ) -> list[Cause]:
        """Several causes at once: each with the difference that it alone leaves, the largest first."""
        for cause in found:
            others = [c.name for c in found if c is not cause]
            left = self.evaluate(self._changed(ref, cand, others, items, idle))
            if left is not None and left.keys() == self.wanted.keys():
                cause.before, cause.floor = self._worst_of(self.wanted, left)
        return sorted(found, key=lambda c: -(c.before or 0.0) / (c.floor or 1.0))

    def _attr(self, name: str, where: dict[str, tuple[Any, Any]], after: float, variant: str) -> Cause:
        a, b = next(iter(where.values()))
        op = self.reference.op or self.candidate.op or self.part
        detail: dict[str, Any] = {"variant": variant} if variant else {}
        if len(where) < len(self.keys):
            detail["weights"] = list(where)
        return self.cause(
            "attr",
            op,
            name,
            a,
            b,
            after=after,
            proven=True,
            detail=detail,
            proof=f"the candidate's {self.part} computed with this changed gives the reference's result",
        )

    def cause(self, kind: Any, op: str, name: str, reference: Any = None, candidate: Any = None, **more: Any) -> Cause:
        made = Cause(kind, op, name, reference, candidate, **more)
        made.reference_path, made.candidate_path = (self._called(x) for x in (self.reference, self.candidate))
        made.source, made.candidate_cls = self.candidate.source, self.candidate.cls
        made.before, made.floor = self._worst()
        made.detail.setdefault("part", self.part)
        return made

    def _called(self, form: Form) -> str:
        return f"{self.part} {form.cls}".strip()

    def _worst(self) -> tuple[float, float]:
        return self._worst_of(self.wanted, self.received)

    def _worst_of(self, wanted: Result, received: Result) -> tuple[float, float]:
        rows = [
            (difference(wanted[n], np.asarray(v).reshape(np.shape(wanted[n]))), self.limits[n])
            for n, v in received.items()
            if n in wanted and np.size(v) == np.size(wanted[n])
        ]
        return max(rows, key=lambda r: r[0] / r[1] if r[1] else 0.0, default=(0.0, 0.0))


def _take(attrs: dict[str, Any], given: Mapping[str, Any], name: str) -> None:
    """One attribute as the other side has it; left out there means its default here too."""
    if name in given:
        attrs[name] = given[name]
    else:
        attrs.pop(name, None)
