"""Linear maps, look-ups, shapes, arithmetic and reductions in float64: what numpy says in a line each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import special

from ambidex.core.types import Array
from ambidex.errors import InputError, UnsupportedError

Attrs = Mapping[str, Any]
Weights = Mapping[str, Array]
Inputs = Sequence[Array]
Handler = Callable[[Attrs, Weights, Inputs], list[Array]]


def gemm(attrs: Attrs, w: Weights, xs: Inputs) -> list[Array]:
    """y = x W^T + B over the last axis; a W of more input axes contracts them all."""
    x, weight, bias = xs[0], w["W"], w.get("B")
    if x.shape[-1] != weight.shape[1]:
        for take in range(2, x.ndim):  # EinsumDense over several trailing axes
            if math.prod(x.shape[-take:]) == weight.shape[1]:
                x = x.reshape(*x.shape[:-take], -1)
                break
        else:
            raise InputError(f"Gemm with weight {weight.shape} cannot take an input of shape {x.shape}")
    y = x @ weight.T
    return [y if bias is None else y + bias]


def einsum(attrs: Attrs, w: Weights, xs: Inputs) -> list[Array]:
    operands = [*xs, w["W"]] if "W" in w else list(xs)
    y = np.einsum(attrs["equation"], *operands)
    return [y + w["B"] if "B" in w else y]


def _renormed(table: Array, attrs: Attrs) -> Array:
    """torch's ``max_norm``: rows longer than it are shortened before they are looked up."""
    limit = attrs.get("max_norm")
    if limit is None:
        return table
    norm = np.linalg.norm(table, ord=float(attrs.get("norm_type", 2.0)), axis=1, keepdims=True)
    return np.where(norm > float(limit), table * (float(limit) / (norm + 1e-7)), table)


def gather(attrs: Attrs, w: Weights, xs: Inputs) -> list[Array]:
    """Rows of W; without weights ONNX Gather of (data, indices) along ``axis``."""
    if "W" not in w:
        return [np.take(xs[0], xs[1].astype(np.int64), axis=int(attrs.get("axis", 0)))]
    return [_renormed(w["W"], attrs)[xs[0].astype(np.int64)]]


def embedding_bag(attrs: Attrs, w: Weights, xs: Inputs) -> list[Array]:
    """torch's EmbeddingBag: ids (B, L), or flat ids and offsets; float input: weights of the single ids."""
    table, ids = _renormed(w["W"], attrs), xs[0].astype(np.int64)
    offsets = next((x.astype(np.int64) for x in xs[1:] if np.issubdtype(x.dtype, np.integer)), None)
    factors = next((x for x in xs[1:] if np.issubdtype(x.dtype, np.floating)), None)
    factors = np.ones(ids.shape) if factors is None else factors
    if ids.ndim == 2:
        bags = list(zip(ids, factors, strict=True))
    else:
        assert offsets is not None
        ends = [*offsets[1:]] if attrs.get("include_last_offset") else [*offsets[1:], len(ids)]
        bags = [(ids[a:b], factors[a:b]) for a, b in zip(offsets, ends, strict=False)]
    mode, skip, rows = attrs.get("mode", "mean"), attrs.get("padding_idx"), []
    for bag, factor in bags:
        keep = np.ones(len(bag), dtype=bool) if skip is None else bag != skip
        found = table[bag[keep]] * factor[keep][:, None]
        if len(found) == 0:
            rows.append(np.zeros(table.shape[1]))
        else:
            reduce: Any = {"sum": np.sum, "mean": np.mean, "max": np.max}[mode]
            rows.append(reduce(found, axis=0))
    return [np.stack(rows)]


def _flatten(x: Array, a: Attrs) -> Array:
    """Axes ``axis``..``end_axis`` become one (axis 1 with end -1 is ONNX Flatten)."""
    start, end = (v + x.ndim if v < 0 else v for v in (int(a.get("axis", 1)), int(a.get("end_axis", -1))))
    if x.ndim <= start:
        return x[..., None] if x.ndim == start else x
    return x.reshape(*x.shape[:start], -1, *x.shape[end + 1 :])


def _reshape(x: Array, a: Attrs) -> Array:
    return x.reshape([x.shape[i] if n == 0 and i < x.ndim else int(n) for i, n in enumerate(a["shape"])])


def _unflatten(x: Array, a: Attrs) -> Array:
    axis = int(a.get("axis", 1)) % x.ndim
    return x.reshape(*x.shape[:axis], *a["shape"], *x.shape[axis + 1 :])


def _slice(x: Array, a: Attrs) -> Array:
    """``index`` as the adapters write a subscript: integers, [start, stop, step], "..." and "newaxis"."""
    if a.get("index") is None or "tensor" in a["index"]:
        raise UnsupportedError("a subscript with tensors in it has no reference")
    words = {"...": Ellipsis, "newaxis": None}
    key = tuple(words[k] if isinstance(k, str) else slice(*k) if isinstance(k, Sequence) else k for k in a["index"])
    return np.asarray(x[key])


def _split(attrs: Attrs, w: Weights, xs: Inputs) -> list[Array]:
    x, axis = xs[0], int(attrs.get("axis", 0))
    cuts = attrs.get("indices")
    return np.split(x, int(attrs["num_outputs"]) if cuts is None else list(cuts), axis=axis)


def _blocks(x: Array, a: Attrs, to_space: bool) -> Array:
    """Channels to space (DCR: block before channel, TensorFlow; CRD: channel before block, PixelShuffle) and back."""
    b, crd = int(a["blocksize"]), a.get("mode", "DCR") == "CRD"
    n, c, h, wide = x.shape
    if to_space:
        y = x.reshape(n, c // b**2, b, b, h, wide) if crd else x.reshape(n, b, b, c // b**2, h, wide)
        y = y.transpose(0, 1, 4, 2, 5, 3) if crd else y.transpose(0, 3, 4, 1, 5, 2)
        return y.reshape(n, c // b**2, h * b, wide * b)
    y = x.reshape(n, c, h // b, b, wide // b, b)
    y = y.transpose(0, 1, 3, 5, 2, 4) if crd else y.transpose(0, 3, 5, 1, 2, 4)
    return y.reshape(n, c * b**2, h // b, wide // b)


def _shuffle(x: Array, a: Attrs) -> Array:
    group = int(a["group"])
    return x.reshape(x.shape[0], group, -1, *x.shape[2:]).swapaxes(1, 2).reshape(x.shape)


_DTYPES = {"float": "float64", "float16": "float64", "bfloat16": "float64", "double": "float64", "float32": "float64"}


def _cast(x: Array, a: Attrs) -> Array:
    to = str(a["to"]).rsplit(".", 1)[-1].lower()
    return x.astype(_DTYPES.get(to, {"long": "int64", "int": "int32", "half": "float64"}.get(to, to)))


def _axes(a: Attrs) -> tuple[int, ...] | None:
    axes = a.get("axes")
    if axes is None:
        return None
    return (int(axes),) if isinstance(axes, int) else tuple(int(v) for v in axes)


def _reduce(fn: Callable[..., Any]) -> Handler:
    return lambda a, w, xs: [np.asarray(fn(xs[0], axis=_axes(a), keepdims=bool(a.get("keepdims", False))))]


def _deviation(fn: Callable[..., Any]) -> Handler:
    return lambda a, w, xs: [
        np.asarray(fn(xs[0], axis=_axes(a), keepdims=bool(a.get("keepdims", False)), ddof=a.get("correction", 0)))
    ]


def _arg(fn: Callable[..., Any]) -> Handler:
    return lambda a, w, xs: [np.asarray(fn(xs[0], axis=a.get("axis"), keepdims=bool(a.get("keepdims", False))))]


def _one(fn: Callable[[Array, Attrs], Any]) -> Handler:
    return lambda a, w, xs: [np.asarray(fn(xs[0], a))]


def operands(attrs: Attrs, xs: Inputs) -> list[Any]:
    """The two sides of a binary operator. A number in the code stands in ``other`` (``swapped``: on the left)."""
    if len(xs) == 1 and "other" in attrs:
        pair = [xs[0], np.asarray(attrs["other"])]
        return pair[::-1] if attrs.get("swapped") else pair
    if len(xs) == 2 and attrs.get("swapped"):
        return [xs[1], xs[0]]
    return list(xs)


def _many(fn: Callable[[Any, Any], Any]) -> Handler:
    """Two operands or more (Keras' Add takes a list)."""

    def run(attrs: Attrs, w: Weights, xs: Inputs) -> list[Array]:
        total, *rest = operands(attrs, xs)
        alpha = float(attrs.get("alpha", 1.0))
        for value in rest:
            total = fn(total, value if alpha == 1.0 else alpha * value)
        return [np.asarray(total)]

    return run


def _matmul(attrs: Attrs, w: Weights, xs: Inputs) -> list[Array]:
    left, right = operands(attrs, xs)
    if attrs.get("transpose_a") or attrs.get("adj_x"):
        left = left.swapaxes(-1, -2)
    if attrs.get("transpose_b") or attrs.get("adj_y"):
        right = right.swapaxes(-1, -2)
    return [np.matmul(left, right)]


def _where(attrs: Attrs, w: Weights, xs: Inputs) -> list[Array]:
    sides = list(xs[1:])
    for i, name in enumerate(("x", "y")):
        if name in attrs:
            sides.insert(i, np.asarray(attrs[name]))
    return [np.where(xs[0], *sides)]


def _masked_fill(attrs: Attrs, w: Weights, xs: Inputs) -> list[Array]:
    value = xs[2] if attrs.get("value") is None else float(attrs["value"])
    return [np.where(xs[1].astype(bool), value, xs[0])]


def _concat(attrs: Attrs, w: Weights, xs: Inputs) -> list[Array]:
    return [np.concatenate(list(xs), axis=int(attrs.get("axis") or 0))]


def _one_hot(x: Array, a: Attrs) -> Array:
    eye = np.eye(int(a["depth"]))[x.astype(np.int64)]
    return np.moveaxis(eye, -1, int(a.get("axis", -1)))


OPS: dict[str, Handler] = {
    "Gemm": gemm,
    "Einsum": einsum,
    "Gather": gather,
    "EmbeddingBag": embedding_bag,
    "GatherElements": lambda a, w, xs: [np.take_along_axis(xs[0], xs[1].astype(np.int64), int(a.get("axis", 0)))],
    "IndexSelect": lambda a, w, xs: [np.take(xs[0], xs[1].astype(np.int64), axis=int(a.get("axis", 0)))],
    "OneHot": _one(_one_hot),
    "Flatten": _one(_flatten),
    "Reshape": _one(_reshape),
    "Unflatten": _one(_unflatten),
    "Transpose": _one(lambda x, a: x.transpose(a.get("perm"))),
    "Squeeze": _one(
        lambda x, a: (
            x.squeeze() if a.get("axes") is None else x.squeeze(tuple(v for v in _axes(a) or () if x.shape[v] == 1))
        )
    ),
    "Unsqueeze": _one(lambda x, a: np.expand_dims(x, _axes(a) or ())),
    "Expand": _one(
        lambda x, a: np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(1 if n == -1 else n for n in a["shape"])))
    ),
    "Tile": _one(lambda x, a: np.tile(x, a["repeats"])),
    "Repeat": _one(lambda x, a: np.repeat(x, a["repeats"], axis=a.get("axis"))),
    "Roll": _one(lambda x, a: np.roll(x, a["shifts"], axis=a.get("axes"))),
    "Flip": _one(lambda x, a: np.flip(x, axis=_axes(a))),
    "Trilu": _one(lambda x, a: (np.triu if a.get("upper", True) else np.tril)(x, int(a.get("k", 0)))),
    "Cast": _one(_cast),
    "Slice": _one(_slice),
    "Split": _split,
    "Concat": _concat,
    "Stack": lambda a, w, xs: [np.stack(list(xs), axis=int(a.get("axis", 0)))],
    "DepthToSpace": _one(lambda x, a: _blocks(x, a, True)),
    "SpaceToDepth": _one(lambda x, a: _blocks(x, a, False)),
    "ChannelShuffle": _one(_shuffle),
    "ReduceMean": _reduce(np.mean),
    "ReduceSum": _reduce(np.sum),
    "ReduceMax": _reduce(np.max),
    "ReduceMin": _reduce(np.min),
    "ReduceProd": _reduce(np.prod),
    "ReduceL1": _reduce(lambda x, **k: np.sum(np.abs(x), **k)),
    "ReduceL2": _reduce(lambda x, **k: np.sqrt(np.sum(np.square(x), **k))),
    "ReduceSumSquare": _reduce(lambda x, **k: np.sum(np.square(x), **k)),
    "ReduceLogSumExp": _reduce(special.logsumexp),
    "ReduceVar": _deviation(np.var),
    "ReduceStd": _deviation(np.std),
    "ArgMax": _arg(np.argmax),
    "ArgMin": _arg(np.argmin),
    "CumSum": _one(lambda x, a: np.cumsum(x, axis=int(a.get("axis", 0)))),
    "CumProd": _one(lambda x, a: np.cumprod(x, axis=int(a.get("axis", 0)))),
    "Add": _many(lambda x, y: x + y),
    "Sub": _many(lambda x, y: x - y),
    "Mul": _many(lambda x, y: x * y),
    "Div": _many(lambda x, y: x / y),
    "FloorDiv": _many(lambda x, y: x // y),
    "Pow": _many(lambda x, y: np.power(x, y)),
    "Max": _many(np.maximum),
    "Min": _many(np.minimum),
    "Mod": lambda a, w, xs: [np.asarray((np.fmod if a.get("fmod") else np.mod)(*operands(a, xs)))],
    "MatMul": _matmul,
    "DivNoNan": _many(lambda x, y: np.where(y == 0, 0.0, x / np.where(y == 0, 1, y))),
    "SquaredDifference": _many(lambda x, y: np.square(x - y)),
    "NotEqual": _many(lambda x, y: x != y),
    "Erfc": _one(lambda x, a: special.erfc(x)),
    "SwapAxes": _one(lambda x, a: np.swapaxes(x, *a["axes"])),
    "MoveAxis": _one(lambda x, a: np.moveaxis(x, a["source"], a["destination"])),
    "Unstack": lambda a, w, xs: [
        np.take(xs[0], i, axis=int(a.get("axis", 0))) for i in range(xs[0].shape[int(a.get("axis", 0))])
    ],
    "Where": _where,
    "MaskedFill": _masked_fill,
    "Rsqrt": _one(lambda x, a: 1 / np.sqrt(x)),
    "Square": _one(lambda x, a: np.square(x)),
    "Log1p": _one(lambda x, a: np.log1p(x)),
    "Expm1": _one(lambda x, a: np.expm1(x)),
    "Erf": _one(lambda x, a: special.erf(x)),
}
