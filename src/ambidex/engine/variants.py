"""Other ways to compute one call: what the engine tries in its place when a region differs.

The general ones stand here (leave it out, another activation, another axis, the mask all ones or inverted ...);
rules add those of their own kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np

from ambidex.core import ops
from ambidex.core.rule import Variant
from ambidex.core.types import Array, Call
from ambidex.engine.maskvariants import mask_variants

ACTIVATIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("Relu", {}),
    ("Gelu", {"approximate": "none"}),
    ("Gelu", {"approximate": "tanh"}),
    ("Swish", {}),
    ("Sigmoid", {}),
    ("Tanh", {}),
    ("LeakyRelu", {"alpha": 0.01}),
    ("LeakyRelu", {"alpha": 0.2}),
    ("LeakyRelu", {"alpha": 0.3}),
    ("LeakyRelu", {"alpha": 0.1}),
    ("Elu", {"alpha": 1.0}),
    ("Selu", {}),
    ("Softplus", {}),
    ("Softsign", {}),
    ("Mish", {}),
    ("HardSigmoid", {"alpha": 0.2, "beta": 0.5}),
    ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}),
    ("HardSwish", {}),
    ("Clip", {"min": 0.0, "max": 6.0}),
    ("LogSigmoid", {}),
    ("Softmax", {"axis": -1}),
    ("LogSoftmax", {"axis": -1}),
    ("Identity", {}),
)


def of_call(call: Call) -> Iterable[Variant]:
    """The general variants of one call, the likeliest first."""
    if call.op == "Concat" and 2 <= len(call.inputs) <= 4:
        yield from (
            Variant("missing", "part", part_name(x), compute=partial(_without_part, i=i, like=call))
            for i, x in enumerate(call.inputs)
        )
    out = next((o for o in call.computed if o.dtype.kind == "f"), None)
    if out is None:
        return
    family = ops.spec(call.op).family if ops.known(call.op) else ""
    yield from _leave_out(call, out)
    if family == "activation":
        yield from _activations(call)
    if call.op in {"Softmax", "LogSoftmax"}:
        yield from (
            Variant("variant", "axis", axis, call.op, {"axis": axis})
            for axis in range(-out.ndim, 0)
            if axis != call.layer.attrs.get("axis", -1)
        )
    if call.layer.cls in {"cosine_similarity", "CosineSimilarity"} and len(call.inputs) == 2:
        a = call.inputs[0]
        axes = [i for i in range(a.ndim) if np.delete(a.shape, i).tolist() == list(out.shape)]
        yield from (Variant("missing", "normalisation", compute=partial(_inner, axis=i)) for i in axes)
    if call.op == "Attention":
        yield from _attention(call)
    if call.op in {"Concat", "Stack"} and 2 <= len(call.inputs) <= 4:
        for order in list(permutations(range(len(call.inputs))))[1:]:
            yield Variant("order", "concat", order, feed=partial(_reorder, order=order))
    if family == "reduce" and call.op in {"ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"}:
        for other in ("ReduceMean", "ReduceSum", "ReduceMax"):
            if other != call.op:
                yield Variant("op", other, other, other, dict(call.layer.attrs))
    if call.op in {"ReduceVar", "ReduceStd"}:
        other_n = 0 if call.layer.attrs.get("correction", 1) else 1
        yield Variant("variant", "correction", other_n, call.op, {**call.layer.attrs, "correction": other_n})
    if call.op in {"Resize"}:
        for mode in ("half_pixel", "align_corners", "asymmetric"):
            if mode != call.layer.attrs.get("coordinate_transformation_mode"):
                yield Variant(
                    "attr",
                    "coordinate_transformation_mode",
                    mode,
                    call.op,
                    {**call.layer.attrs, "coordinate_transformation_mode": mode},
                )
    if call.op in {"DepthToSpace", "SpaceToDepth"}:
        other_mode = "DCR" if call.layer.attrs.get("mode") == "CRD" else "CRD"
        yield Variant("attr", "mode", other_mode, call.op, {**call.layer.attrs, "mode": other_mode})
    if call.op == "BatchNormalization":
        yield Variant("variant", "training_mode", True, call.op, {**call.layer.attrs, "training_mode": True})
    if call.op == "Slice" and call.inputs:
        yield from _windows(call, out)
    yield from mask_variants(call)


def _windows(call: Call, out: Array) -> Iterable[Variant]:
    """Rows of a table taken a little further on or back (positions counted from one, an offset of two)."""
    table = call.inputs[0]
    for axis in range(table.ndim):
        size, rest = divmod(out.size * table.shape[axis], table.size) if table.size else (0, 1)
        if rest or not 0 < size < table.shape[axis]:
            continue
        rows = np.moveaxis(table, axis, 0)
        starts = [
            s
            for s in range(table.shape[axis] - size + 1)
            if np.array_equal(np.moveaxis(rows[s : s + size], 0, axis).reshape(out.shape), out)
        ]
        for start in starts[:1]:
            for shift in (-1, 1, -2, 2) if size > 1 else [n - start for n in range(table.shape[axis]) if n != start]:
                if 0 <= start + shift <= table.shape[axis] - size:
                    moved = np.moveaxis(rows[start + shift : start + shift + size], 0, axis).reshape(out.shape)
                    yield Variant("wiring", "index", shift, compute=partial(_give, value=moved))


def _give(inputs: Sequence[Array], value: Array) -> Sequence[Array]:
    return [value]


def _leave_out(call: Call, out: Array) -> Iterable[Variant]:
    """The call hands one of its inputs on unchanged: a missing (or, on the other side, an extra) operation."""
    for i, value in enumerate(call.inputs):
        if call.origins[i][0] == "weight" and len(call.inputs) > 1:
            continue
        if value.dtype.kind == "f" and value.size == out.size:
            yield Variant("missing", str(i), None, compute=partial(_hand_on, i=i, shape=out.shape))


def _hand_on(inputs: Sequence[Array], i: int, shape: tuple[int, ...]) -> Sequence[Array]:
    return [inputs[i].reshape(shape)]


def part_name(part: Array) -> str:
    """What a part of a concatenation is, where its values say so: the edges from every node to itself."""
    rows = part if part.ndim == 2 and part.shape[0] == 2 else part.T
    loops = part.ndim == 2 and part.dtype.kind in "iu" and rows.shape[0] == 2 and np.array_equal(rows[0], rows[1])
    return "self loops" if loops and len(np.unique(rows[0])) == rows.shape[1] > 1 else ""


def _without_part(inputs: Sequence[Array], i: int, like: Call) -> Sequence[Array]:
    axis = int(like.layer.attrs.get("axis", -1))
    return [np.concatenate([x for n, x in enumerate(inputs) if n != i], axis)]


def _reorder_first(inputs: Sequence[Array], order: tuple[int, ...]) -> Sequence[Array]:
    return [*(inputs[i] for i in order), *inputs[len(order) :]]


def _inner(inputs: Sequence[Array], axis: int) -> Sequence[Array]:
    return [(inputs[0] * inputs[1]).sum(axis)]


def _reorder(inputs: Sequence[Array], order: tuple[int, ...]) -> Sequence[Array]:
    return [inputs[i] for i in order]


def _activations(call: Call) -> Iterable[Variant]:
    for op, attrs in ACTIVATIONS:
        if op == call.op and not ops.differing_attrs(op, call.layer.attrs, attrs):
            continue
        yield Variant("op" if op != call.op else "attr", op, attrs, op, attrs)


def _attention(call: Call) -> Iterable[Variant]:
    attrs = call.layer.attrs
    heads = int(attrs.get("num_heads") or 1)
    q = call.inputs[0]
    width = q.shape[-1] if call.layer.layout == "BTE" else q.shape[-1] * heads
    head = width // heads
    own = attrs.get("scale") or head**-0.5
    for name, scale in (
        ("1", 1.0),
        ("1/sqrt(model width)", width**-0.5),
        ("1/sqrt(head width)", head**-0.5),
        ("1/head width", 1.0 / head),
        ("1/model width", 1.0 / width),
        ("1/sqrt(heads)", heads**-0.5),
        ("sqrt(head width)", head**0.5),
        ("applied twice", own * own),
    ):
        if abs(scale - own) > 1e-9:
            yield Variant("attr", "scale", scale, "Attention", {**attrs, "scale": scale, "scale_name": name})
    causal = not attrs.get("is_causal", False)
    own_row = attrs.get("masked_row", "uniform")
    for row in (own_row, "zero" if own_row == "uniform" else "uniform"):  # what a row gives that is left without a key
        yield Variant("attr", "is_causal", causal, "Attention", {**attrs, "is_causal": causal, "masked_row": row})
    yield Variant("attr", "softmax_axis", -2, "Attention", {**attrs, "softmax_axis": -2})
    for row in ("uniform", "zero"):
        if row != attrs.get("masked_row", "uniform"):
            yield Variant("attr", "masked_row", row, "Attention", {**attrs, "masked_row": row})
    for order in ((0, 2, 1), (1, 0, 2), (2, 1, 0)):
        if len({call.inputs[i].shape for i in range(3) if order[i] != i}) == 1:
            yield Variant("order", "attention", order, feed=partial(_reorder_first, order=order))
    if heads > 1 and call.layer.layout == "BTE":
        yield Variant("order", "heads", "interleaved", feed=partial(_interleave, heads=heads))


def _interleave(inputs: Sequence[Array], heads: int) -> Sequence[Array]:
    """Heads cut as (head width, heads) and not (heads, head width)."""
    made = list(inputs)
    for i in range(3):
        b, t, e = made[i].shape
        made[i] = np.ascontiguousarray(made[i].reshape(b, t, e // heads, heads).swapaxes(-1, -2)).reshape(b, t, e)
    return made
