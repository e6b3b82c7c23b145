"""One comparison on its way: the two sides, the options, the time of each step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ambidex.core.model import Batch, Inspectable
from ambidex.core.trace import Trace
from ambidex.core.types import Array
from ambidex.errors import InputError

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


def reference_batch(inputs: Any) -> Batch:
    if inputs.reference is None:
        raise InputError(
            "there are no inputs for the reference", todo='Pass --inputs FILE.npz or --signature "float32[None,16]"'
        )
    return inputs.reference


def check_finite(trace: Trace, side: str) -> None:
    for name, value in trace.weights.items():
        if value.dtype.kind == "f" and value.size and np.isnan(value.min()):
            raise InputError(
                f"weight '{name}' of the {side} holds {int(np.isnan(value).sum())} NaN",
                "nothing computed from it can be compared",
                "Load a sound checkpoint",
            )


def same_outputs(a: Trace, b: Trace) -> bool:
    return all(
        name in b.outputs and np.array_equal(v, b.outputs[name], equal_nan=v.dtype.kind == "f")
        for name, v in a.outputs.items()
    )
