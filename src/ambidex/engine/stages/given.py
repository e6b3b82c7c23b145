"""What the user says the two sides are trained with: a dictionary for each side, targets, and batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ambidex.core import usercode
from ambidex.core.model import Batch
from ambidex.core.training import Example
from ambidex.core.types import Array
from ambidex.engine.inputs import as_inputs, load_inputs
from ambidex.errors import InputError

_SIDES = ("reference", "candidate")
_TODO = 'Return {"reference": {"loss": ..., "optimizer": ...}, "candidate": {...}}'


@dataclass
class Given:
    """The user's words. ``targets`` and ``batches`` as a function or the values; None where they are not given."""

    sides: dict[str, dict[str, Any]]
    targets: Any = None
    batches: Any = None
    label: str = "training"
    notes: list[str] = field(default_factory=list)


def load(training: Any, targets: Any = None) -> Given:
    """From ``file.py:function``, or the dictionary itself. ``targets``: an array, a dictionary by side, or a file.

    A function or value named ``targets`` or ``batches`` beside the function is taken as well.
    """
    made: Given
    if isinstance(training, str):
        where, colon, name = training.rpartition(":")
        if not colon or not where.endswith(".py"):
            raise InputError(f"cannot read what to train with from '{training}'", todo="Say file.py:function")
        file = usercode.existing_file(where)
        module = usercode.load_file(file, name.split(".")[0])
        value = usercode.member(module, name, file)
        if callable(value):
            value = usercode.call(value, training, file.parent, kind="training functions")
        made = Given(_checked(value, training), label=training)
        for part in ("targets", "batches"):
            found = getattr(module, part, None)
            if callable(found) and not hasattr(found, "shape") and not usercode.required(found):
                found = usercode.call(found, f"{where}:{part}", file.parent, kind=f"{part} functions")
            setattr(made, part, found)
    else:
        made = Given(_checked(training, "training"))
        if isinstance(training, Mapping):
            made.targets, made.batches = (_value(training.get(part)) for part in ("targets", "batches"))
    if targets is not None:
        made.targets = _from_file(targets) if isinstance(targets, str) else targets
    return made


def _value(found: Any) -> Any:
    return found() if callable(found) and not hasattr(found, "shape") and not usercode.required(found) else found


def _checked(value: Any, label: str) -> dict[str, dict[str, Any]]:
    if not isinstance(value, Mapping) or not all(side in value for side in _SIDES):
        kind = (
            f"it has {usercode.listed([str(k) for k in value])}" if isinstance(value, Mapping) else type(value).__name__
        )
        raise InputError(f"'{label}' says not what both sides train with", f"it gave {kind}", _TODO)
    for side in _SIDES:
        if value[side] is not None and not isinstance(value[side], Mapping):
            raise InputError(f"'{label}', {side}: a dictionary is meant", f"it is {type(value[side]).__name__}", _TODO)
    return {side: dict(value[side] or {}) for side in _SIDES}


def _from_file(spec: str) -> Any:
    batch = load_inputs(spec)
    if batch.candidate is not None:
        return {"reference": _one(batch.reference), "candidate": _one(batch.candidate)}
    return _one(batch.reference)


def _one(batch: Batch | None) -> Any:
    if isinstance(batch, Mapping):
        return dict(batch)
    return batch[0] if batch is not None and len(batch) == 1 else batch


def examples(given: Given, reference: Batch, candidate: Batch) -> list[tuple[Example, Example]]:
    """Pairs of examples: those of ``batches``, else the compared inputs with the targets."""
    if given.batches is not None:
        rows = list(given.batches)
        if not rows:
            raise InputError(f"'{given.label}' has no batch", todo="Let batches() return [(inputs, targets), ...]")
        turn = _turned(reference, candidate)
        return [_pair(row, turn, given.label, n) for n, row in enumerate(rows)]
    targets = given.targets
    if callable(targets) and not hasattr(targets, "shape"):
        targets = targets(reference[0] if not isinstance(reference, Mapping) and len(reference) == 1 else reference)
    ours, theirs = _sides(targets)
    return [(Example(reference, ours), Example(candidate, theirs))]


def _sides(value: Any) -> tuple[Any, Any]:
    if isinstance(value, Mapping) and set(value) == set(_SIDES):
        return _arrays(value["reference"]), _arrays(value["candidate"])
    return _arrays(value), _arrays(value)


def _arrays(value: Any) -> Any:
    if value is None or isinstance(value, np.ndarray):
        return value
    if isinstance(value, Mapping):
        return {k: _arrays(v) for k, v in value.items()}
    batch = as_inputs(value, "targets").reference
    return _one(batch)


def _pair(row: Any, turn: Callable[[Batch], Batch], label: str, n: int) -> tuple[Example, Example]:
    if isinstance(row, Mapping) and set(row) == set(_SIDES):
        return _example(row["reference"], label, n), _example(row["candidate"], label, n)
    ours = _example(row, label, n)
    targets = _sides(row[1])
    ours.targets = targets[0]
    return ours, Example(turn(ours.batch), targets[1], ours.weights)


def _example(row: Any, label: str, n: int) -> Example:
    if not isinstance(row, Sequence) or not 2 <= len(row) <= 3:
        raise InputError(f"batch {n} of '{label}' is no (inputs, targets) or (inputs, targets, weights)")
    given = as_inputs(row[0], f"batch {n}").reference
    assert given is not None
    weights = None if len(row) == 2 or row[2] is None else np.asarray(row[2])
    return Example(given, _arrays(row[1]), weights)


def _turned(reference: Batch, candidate: Batch) -> Callable[[Batch], Batch]:
    """How a batch of the reference becomes one of the candidate: the axes as in the pair that was compared."""
    if isinstance(reference, Mapping) or isinstance(candidate, Mapping):
        return lambda batch: batch
    orders = [_order(np.asarray(a), np.asarray(b)) for a, b in zip(reference, candidate, strict=False)]

    def turn(batch: Batch) -> Batch:
        if isinstance(batch, Mapping) or len(batch) != len(orders):
            return batch
        return [np.transpose(x, o) if o is not None else x for x, o in zip(batch, orders, strict=True)]

    return turn


def _order(a: Array, b: Array) -> tuple[int, ...] | None:
    from itertools import permutations

    if a.shape == b.shape and np.array_equal(a, b) or a.ndim != b.ndim or a.ndim > 5:
        return None
    for perm in permutations(range(a.ndim)):
        moved = a.transpose(perm)
        if moved.shape == b.shape and np.array_equal(moved, b):
            return perm
    return None
