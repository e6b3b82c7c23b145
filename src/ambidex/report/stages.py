"""The stages of a training step in words."""

from __future__ import annotations

from ambidex.core.report import StageRow

#: stages that are not called by their own name
_NAMES = {"clip": "clipping", "schedule": "learning rate"}
STATUS_WORDS = {
    "same": "same",
    "different": "different",
    "not_defined": "none",
    "not_judged": "not judged",
    "could_not_run": "could not run",
}


def name(stage: str) -> str:
    return _NAMES.get(stage, stage)


def text(row: StageRow, first: str | None) -> str:
    """``loss DIFFERENT (first)``, ``gradient same``: one stage in a line of them."""
    called = name(row.stage)
    if row.status == "different":
        return f"{called} DIFFERENT" + (" (first)" if row.stage == first else "")
    return f"{called} {STATUS_WORDS[row.status]}"
