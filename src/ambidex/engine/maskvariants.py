"""Masks as people get them wrong: missing, inverted, transposed, a causal mask a diagonal off."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from ambidex.core.rule import Variant
from ambidex.core.types import Array, Call


def is_mask(array: Array) -> bool:
    """Boolean, or only zeros and ones (both), or zeros and one very negative number (additive)."""
    if array.dtype == bool:
        return array.size > 1
    if array.size < 2 or array.dtype.kind not in "fiu":
        return False
    low, high = array.min(), array.max()
    if low == 0 and high == 1:
        return bool(np.isin(array, (0, 1)).all())
    return bool(high == 0 and low <= -1e3 and np.isin(array, (low, high)).all())


def is_causal(array: Array) -> bool:
    """A square mask over its last two axes that hides (or shows) a triangle."""
    if array.ndim < 2 or array.shape[-1] != array.shape[-2] or array.shape[-1] < 2 or not is_mask(array):
        return False
    one = array.reshape(-1, *array.shape[-2:])
    seen = one[0] == one[0].max()
    return bool(
        (one == one[0]).all()
        and (np.array_equal(seen, np.tril(np.ones_like(seen))) or np.array_equal(seen, np.triu(np.ones_like(seen), 1)))
    )


def mask_variants(call: Call) -> Iterable[Variant]:
    """The call with one of its masks otherwise, the likeliest first."""
    for i, value in enumerate(call.inputs):
        if _wrong_sign(value):
            yield Variant("mask", "inverted", None, feed=partial(_set, i=i, make=np.negative))
        if not is_mask(value):
            continue
        additive = value.dtype.kind == "f" and value.max() == 0
        yield Variant(
            "mask", "missing", None, feed=partial(_set, i=i, make=np.zeros_like if additive else np.ones_like)
        )
        if not additive:
            yield Variant("mask", "inverted", None, feed=partial(_set, i=i, make=_invert))
            yield Variant("mask", "missing", None, feed=partial(_set, i=i, make=np.zeros_like))
        if value.ndim >= 2 and value.shape[-1] == value.shape[-2] > 1:
            flipped = value.swapaxes(-1, -2)
            if is_causal(value):
                for shift in (1, -1):
                    yield Variant(
                        "mask", "diagonal", shift, feed=partial(_set, i=i, make=partial(_moved_diagonal, shift=shift))
                    )
            if not np.array_equal(flipped, value):
                yield Variant("mask", "transposed", None, feed=partial(_set, i=i, make=_transposed))


def _wrong_sign(array: Array) -> bool:
    """Zeros and one very large positive number: an additive mask that lifts what it should hide."""
    if array.size < 2 or array.dtype.kind != "f":
        return False
    low, high = array.min(), array.max()
    return bool(low == 0 and high >= 1e3 and np.isin(array, (low, high)).all())


def _transposed(a: Array) -> Array:
    return np.ascontiguousarray(a.swapaxes(-1, -2))


def _moved_diagonal(a: Array, shift: int) -> Array:
    """A causal mask that lets every query see ``shift`` more keys, in the same two values."""
    rows, columns = np.indices(a.shape[-2:])
    one = a.reshape(-1, *a.shape[-2:])[0]
    inner, outer = one[-1, 0], one[0, -1]
    return np.broadcast_to(np.where(columns <= rows + shift, inner, outer), a.shape).astype(a.dtype)


def _set(inputs: Sequence[Array], i: int, make: Callable[[Array], Array]) -> Sequence[Array]:
    made = list(inputs)
    made[i] = make(made[i])
    return made


def _invert(a: Array) -> Array:
    return ~a if a.dtype == bool else (1 - a).astype(a.dtype)
