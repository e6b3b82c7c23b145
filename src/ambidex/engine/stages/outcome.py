"""What came of one stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ambidex.core import floor as floors
from ambidex.core.report import StageRow, StageStatus
from ambidex.core.rule import Cause
from ambidex.core.types import Array
from ambidex.engine.layout import difference

if TYPE_CHECKING:
    from ambidex.engine.stages.follow import Both


@dataclass
class Outcome:
    """Status, the largest difference with its floor, and why."""

    status: StageStatus
    before: float | None = None
    floor: float | None = None
    note: str = ""
    curves: dict[str, list[float]] = field(default_factory=dict)
    causes: list[Cause] = field(default_factory=list)

    def row(self, stage: str) -> StageRow:
        ratio = self.before / self.floor if self.before is not None and self.floor else None
        return StageRow(
            stage=stage,
            status=self.status,
            before=self.before,
            floor=self.floor,
            ratio=ratio,
            note=self.note,
            curves=self.curves,
        )


def undefined(both: Both, part: str) -> Outcome | None:
    """What comes of a stage when a side does not have the part; None when both have it."""
    for name, trainer in (("reference", both.reference), ("candidate", both.candidate)):
        if part not in trainer.forms:
            return Outcome("not_defined", note=f"the {name} has no {part}")
    if part in ("loss", "metric") and both.training.examples[0][0].targets is None:
        return Outcome("not_judged", note="no targets are given")
    return None


def measured(wanted: Mapping[str, Array], received: Mapping[str, Array], limits: Mapping[str, float]) -> Outcome:
    """Same or different, by the worst ratio of difference to limit; a value that only one side has is different."""
    worst, at = -1.0, (0.0, 0.0)
    for name in {*wanted, *received}:
        if name not in wanted or name not in received:
            return Outcome("different", None, None, f"only one side has {name}")
        d, limit = difference(wanted[name], received[name]), limits[name]
        ratio = d / limit if limit > 0 else float(d > 0) * (floors.RATIO + 1)  # also where the limit is no number
        if ratio > worst:
            worst, at = ratio, (d, limit)
    return Outcome("different" if worst > floors.RATIO else "same", *at)
