"""Masks: positions that count, rows that see no key, padded steps of recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ambidex.core.types import Array, Call, Replacement
from ambidex.engine.layout import difference, scale


def off(wanted: Array, got: Array, masks: list[Array]) -> float:
    """Largest difference; positions that a mask leaves out do not count when the plain difference is large."""
    d = difference(wanted, got)
    if d <= 1e-6 * scale(wanted) or not masks:
        return d
    for mask in masks:
        fitted = fit_mask(mask, wanted.shape)
        if fitted is not None:
            d = min(d, difference(wanted, got, fitted))
    return d


def fit_mask(mask: Array, shape: tuple[int, ...]) -> Array | None:
    """A (batch, steps) mask spread over an array that has those axes: batch first and the steps on the first axis of
    their number, both merged into one, or (steps, batch)."""
    if mask.ndim == len(shape) and mask.shape == shape:
        return mask.astype(bool)
    if mask.ndim != 2 or len(shape) < 2:
        return None
    rows, steps = mask.shape
    if shape[0] == rows and steps in shape[1:]:
        at = shape.index(steps, 1)
        return mask.astype(bool).reshape(rows, *(steps if i == at else 1 for i in range(1, len(shape))))
    tail = (1,) * (len(shape) - 2)
    if shape[:2] == (steps, rows):
        return mask.T.astype(bool).reshape(steps, rows, *tail)
    if shape[0] == rows * steps:
        return mask.astype(bool).reshape(rows * steps, 1, *tail)
    return None


def mask_number(call: Call) -> int | None:
    """Which input of an attention or recurrent call is its mask."""
    for i, name in enumerate(call.names):
        if name in {"mask", "attn_mask", "attention_mask"}:
            return i
    return 3 if call.op == "Attention" and len(call.inputs) > 3 else None


def rows_without_keys(call: Call) -> Array | None:
    """(batch, queries) of an attention call: True where some key may be seen. None: every row sees one."""
    i = mask_number(call)
    if call.op != "Attention" or i is None:
        return None
    mask = call.inputs[i]
    seen = mask if mask.dtype == bool else mask > -1e3
    rows: Array = np.asarray(np.any(seen, axis=-1))
    while rows.ndim > 2:
        rows = np.asarray(np.any(rows, axis=1))
    batch = call.inputs[0].shape[0]
    if rows.ndim != 2 or rows.all():
        return None
    return np.broadcast_to(rows, (batch, rows.shape[1])) if rows.shape[0] in (1, batch) else None


def spread(rows: Array, shape: tuple[int, ...]) -> list[Array]:
    """Rows as a full mask of an attention output whose queries stand in axis 1 or 2."""
    for axis in (1, 2):
        if len(shape) > axis and shape[0] == rows.shape[0] and shape[axis] == rows.shape[1]:
            size = [1] * len(shape)
            size[0], size[axis] = rows.shape
            return [np.broadcast_to(rows.reshape(size), shape)]
    return []


def rnn_mask(r: Call, c: Call) -> Array | None:
    """The (batch, steps) mask of a recurrent pair, the reference's first."""
    if r.op not in {"LSTM", "GRU", "RNN"}:
        return None
    for call in (r, c):
        if "mask" in call.names:
            mask = call.inputs[call.names.index("mask")]
            return mask.astype(bool) if mask.ndim == 2 else None
    return None


def valid_steps(values: list[Array | None], mask: Array, *, repeat: bool) -> Replacement:
    """Hand on the reference's values at valid steps only: what stands at padded ones is the layer's own habit (zero, or
    the last valid value again), and code behind it may rely on that."""

    def compute(call: Call, inputs: Sequence[Array]) -> Sequence[Array]:
        made: list[Array] = []
        for i, own in enumerate(call.computed):
            value = values[i] if i < len(values) else None
            if value is None or value.shape != own.shape:
                made.append(own if value is None else value)
                continue
            fitted = fit_mask(mask, own.shape)
            if fitted is None:
                made.append(value)
                continue
            merged = np.where(fitted, value, own)
            if own.shape[:2] == mask.shape and repeat:
                for b in range(mask.shape[0]):
                    steps = np.flatnonzero(mask[b])
                    if len(steps) and steps[-1] + 1 < mask.shape[1]:
                        last = steps[-1]
                        again = own[b, last + 1 :] == own[b, last]
                        merged[b, last + 1 :] = np.where(again, merged[b, last], merged[b, last + 1 :])
            made.append(merged.astype(own.dtype))
        return made

    return compute
