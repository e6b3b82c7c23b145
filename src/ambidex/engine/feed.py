"""What the candidate is called with, when only the reference's inputs are given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np

from ambidex.core.model import Batch, Model, TensorSpec
from ambidex.core.types import Array
from ambidex.engine.names import alike

#: axis orders that one side's layout habit makes of the other's (channels first/last, time/batch first)
_MOVES: dict[int, tuple[tuple[int, ...], ...]] = {
    2: ((0, 1), (1, 0)),
    3: ((0, 1, 2), (0, 2, 1), (1, 0, 2)),
    4: ((0, 1, 2, 3), (0, 2, 3, 1), (0, 3, 1, 2)),
    5: ((0, 1, 2, 3, 4), (0, 2, 3, 4, 1), (0, 4, 1, 2, 3)),
}


def _fits(array: Array, spec: TensorSpec | None) -> bool:
    if spec is None or spec.shape is None:
        return True
    return len(spec.shape) == array.ndim and all(
        n is None or n == m for n, m in zip(spec.shape, array.shape, strict=True)
    )


def _moved(array: Array, spec: TensorSpec | None, same_batch: int | None) -> list[Array]:
    found = []
    for perm in _MOVES.get(array.ndim, (tuple(range(array.ndim)),)):
        if array.ndim == 2 and array.dtype.kind == "f" and perm != (0, 1):
            continue
        moved = np.ascontiguousarray(array.transpose(perm))
        if _fits(moved, spec):
            found.append(moved)
    return found or [array]


def options(batch: Batch, candidate: Model) -> Iterator[Batch]:
    """Batches to try for the candidate, the likeliest first: names, order and axis order as its signature wants."""
    specs = candidate.signature()
    names = list(batch) if isinstance(batch, Mapping) else [str(i) for i in range(len(batch))]
    arrays: Sequence[Array] = list(batch.values()) if isinstance(batch, Mapping) else list(batch)
    order = list(range(len(arrays)))
    by_name = specs is not None and isinstance(batch, Mapping) and {s.name for s in specs} <= set(names)
    if specs is not None and not by_name and len(specs) == len(arrays) and isinstance(batch, Mapping):
        order = _by_likeness(names, arrays, specs)
    if by_name and specs is not None:
        order = [names.index(s.name) for s in specs]
    picked = [arrays[i] for i in order]
    labels = (
        [s.name for s in specs]
        if specs is not None and isinstance(batch, Mapping) and len(specs) == len(picked)
        else [names[i] for i in order]
    )
    matching = specs if specs is not None and len(specs) == len(picked) else [None] * len(picked)
    choices = [_moved(a, s, None) for a, s in zip(picked, matching, strict=True)]
    seen = 0
    for chosen in product(*choices):
        yield dict(zip(labels, chosen, strict=True)) if isinstance(batch, Mapping) else list(chosen)
        seen += 1
        if isinstance(batch, Mapping) and not by_name:
            yield list(chosen)
        if seen >= 12:
            return


def _by_likeness(names: list[str], arrays: Sequence[Array], specs: Sequence[TensorSpec]) -> list[int]:
    left = list(range(len(names)))
    order = []
    for spec in specs:
        best = max(left, key=lambda i: (spec.dtype[:3] == str(arrays[i].dtype)[:3], alike(names[i], spec.name), -i))
        left.remove(best)
        order.append(best)
    return order
