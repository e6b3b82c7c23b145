"""One layer alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ambidex.adapters.keras_composites import call_alone
from ambidex.adapters.keras_tape import Saved, run_exact
from ambidex.adapters.keras_tensors import (
    Slots,
    is_tensor,
    numpy_from_tensor,
    tensor_from_numpy,
    tensor_like,
    to_float64,
)
from ambidex.adapters.keras_tree import Tree
from ambidex.core.types import Array
from ambidex.errors import InputError, UnsupportedError


def replay(tree: Tree, path: str, inputs: Sequence[Array], saved: Saved | None, *, exact: bool) -> list[Array]:
    """The outputs of one layer for other inputs; ``saved``: its call in the last run, for the other arguments."""
    if saved is None:
        fn, exact_fn = call_alone(tree, path)
        slots = Slots([tensor_from_numpy(a) for a in inputs])
        tensors: list[Any] = list(slots.tensors)
    else:
        fn, exact_fn, slots = saved.fn, saved.exact_fn, saved.slots
        if len(inputs) != len(slots.tensors):
            raise InputError(f"{path!r} takes {len(slots.tensors)} tensors here, given {len(inputs)}")
        tensors = [
            tensor_like(np.asarray(a), t) if not (exact and np.asarray(a).dtype == np.float64) else tensor_from_numpy(a)
            for a, t in zip(inputs, slots.tensors, strict=True)
        ]
    if exact:
        made = None if exact_fn is None else run_exact(exact_fn, slots, [to_float64(t) for t in tensors])
        if made is None:
            raise UnsupportedError(f"{path!r} cannot be computed in float64")
        return [numpy_from_tensor(t) for t in made]
    args, kwargs = slots.rebuilt(tensors)
    return [numpy_from_tensor(t) for t in Slots((fn(*args, **kwargs),), wanted=is_tensor).tensors]
