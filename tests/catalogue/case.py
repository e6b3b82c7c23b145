"""One reported or measured discrepancy, as something to compare and what must be said of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

#: why a case is not run: what it would take, as a reader should know it
NOT_HERE = {
    "gpu": "needs a GPU (or another accelerator)",
    "build": "needs another build or version of a framework",
    "export": "is about an exported file: compared with the exported formats",
    "data": "is about the data pipeline: no model, trace or environment shows it",
    "run": "shows only in what a training run did over time (files, epochs, interruptions)",
    "service": "is about a server or a device that is not here",
}


@dataclass
class Pair:
    """What ``ambidex.compare`` gets: two live models (or a trace and a model), inputs, and more of its arguments."""

    reference: Any
    candidate: Any
    inputs: list[np.ndarray] | dict[str, Any]
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """``id`` is the catalogue's. ``codes``: rules of which one must be the first finding; empty for a control, of which
    nothing may be said. ``make`` gives the pair anew; None when it cannot be expressed here, ``not_here`` says why."""

    id: str
    title: str
    make: Callable[[], Pair] | None = None
    codes: tuple[str, ...] = ()
    not_here: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if (self.make is None) != bool(self.not_here) or (self.not_here and self.not_here not in NOT_HERE):
            raise ValueError(f"{self.id}: either a pair, or the reason why there is none")
