"""Functions of torch in canonical (ONNX) words, by the ``__name__`` that a ``TorchFunctionMode`` sees.

Axes come out negative, so that they mean the same whatever stands in front. Python numbers among the operands are
kept in ``other`` (``swapped`` when they stand on the left).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ambidex.adapters import torch_layers_calls, torch_layers_shapes
from ambidex.adapters.torch_layers_words import Arguments, Attrs, Found, negative
from ambidex.core.ops import einsum_equation


def _plain(op: str, **attrs: Any) -> Callable[[Arguments], Found]:
    return lambda a: (op, dict(attrs))


def _unary(op: str, *params: tuple[int, str, str, Any]) -> Callable[[Arguments], Found]:
    """``params``: (position, torch name, canonical name, default)."""
    return lambda a: (op, {canon: _plainly(a.get(i, name, default)) for i, name, canon, default in params})


def _plainly(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.item() if value.numel() == 1 else None
    return value if value is None or isinstance(value, str | bool) else float(value)


def _binary(op: str, *, swapped: bool = False, **attrs: Any) -> Callable[[Arguments], Found]:
    def make(a: Arguments) -> Found:
        made: Attrs = dict(attrs)
        left, right = a.get(0, "input"), a.get(1, "other", a.kwargs.get("exponent"))
        if op in {"Add", "Sub"}:
            made["alpha"] = float(a.kwargs.get("alpha", 1.0))
        if op == "Div" and a.kwargs.get("rounding_mode") is not None:
            if a.kwargs["rounding_mode"] != "floor":
                return None
            return "FloorDiv", made
        turn = swapped
        if not isinstance(right, torch.Tensor) and isinstance(right, int | float):
            made["other"] = right
        elif not isinstance(left, torch.Tensor) and isinstance(left, int | float):
            made["other"], turn = left, not swapped
        if turn:
            made["swapped"] = True
        return op, made

    return make


def _softmax(op: str) -> Callable[[Arguments], Found]:
    def make(a: Arguments) -> Found:
        axis = a.axis(1)
        if axis is None:  # torch's rule for a softmax without dim
            axis = negative(0 if a.x.dim() in (0, 1, 3) else 1, a.x.dim())
        return op, {"axis": axis}

    return make


def _reduce(op: str) -> Callable[[Arguments], Found]:
    def make(a: Arguments) -> Found:
        if isinstance(a.get(1, "other"), torch.Tensor):  # torch.max(a, b)
            return {"ReduceMax": "Max", "ReduceMin": "Min"}[op], {}
        axes = a.axis(1)
        axes = [axes] if isinstance(axes, int) else axes
        attrs: Attrs = {"axes": axes or None, "keepdims": bool(a.get(2, "keepdim", a.kwargs.get("keepdims", False)))}
        if op in {"ReduceVar", "ReduceStd"}:
            unbiased = a.args[1] if len(a.args) > 1 and isinstance(a.args[1], bool) else a.get(2, "unbiased", None)
            if len(a.args) > 1 and not isinstance(a.args[1], bool):
                attrs["keepdims"] = bool(a.get(3, "keepdim", False))
            else:
                attrs["keepdims"] = bool(a.kwargs.get("keepdim", False))
            correction = a.kwargs.get("correction", 1 if unbiased is None else int(unbiased))
            attrs["correction"] = 1 if correction is None else int(correction)
        return op, attrs

    return make


def _norm(a: Arguments) -> Found:
    p = a.get(1, "p", a.kwargs.get("ord", 2))
    p = 2 if p in (None, "fro") else p
    if p not in (1, 2):
        return None
    axes = a.axis(2)
    return f"ReduceL{int(p)}", {
        "axes": [axes] if isinstance(axes, int) else axes,
        "keepdims": bool(a.get(3, "keepdim", False)),
    }


def _arg(op: str) -> Callable[[Arguments], Found]:
    return lambda a: (op, {"axis": a.axis(1), "keepdims": bool(a.get(2, "keepdim", False))})


def _where(a: Arguments) -> Found:
    sides = {"x": a.get(1, "input"), "y": a.get(2, "other")}
    return "Where", {n: v for n, v in sides.items() if isinstance(v, int | float)}


def _masked_fill(a: Arguments) -> Found:
    value = a.get(2, "value")
    return "MaskedFill", {"value": None if isinstance(value, torch.Tensor) else float(value)}


def _einsum(a: Arguments) -> Found:
    return ("Einsum", {"equation": einsum_equation(a.args[0])}) if isinstance(a.args[0], str) else None


def _clip(low: bool = True, high: bool = True) -> Callable[[Arguments], Found]:
    def make(a: Arguments) -> Found:
        bottom = a.get(1, "min") if low else None
        top = a.get(2 if low else 1, "max") if high else None
        if any(isinstance(v, torch.Tensor) and v.numel() > 1 for v in (bottom, top)):
            return None
        return "Clip", {"min": _plainly(bottom), "max": _plainly(top)}

    return make


_ELEMENTWISE = {
    "relu": "Relu",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
    "logsigmoid": "LogSigmoid",
    "log_sigmoid": "LogSigmoid",
    "softsign": "Softsign",
    "tanhshrink": "TanhShrink",
    "hardswish": "HardSwish",
    "mish": "Mish",
    "sqrt": "Sqrt",
    "rsqrt": "Rsqrt",
    "exp": "Exp",
    "log": "Log",
    "log1p": "Log1p",
    "expm1": "Expm1",
    "abs": "Abs",
    "absolute": "Abs",
    "neg": "Neg",
    "negative": "Neg",
    "erf": "Erf",
    "sin": "Sin",
    "cos": "Cos",
    "tan": "Tan",
    "sinh": "Sinh",
    "cosh": "Cosh",
    "asin": "Asin",
    "acos": "Acos",
    "atan": "Atan",
    "reciprocal": "Reciprocal",
    "square": "Square",
    "sign": "Sign",
    "floor": "Floor",
    "ceil": "Ceil",
    "round": "Round",
    "logical_not": "Not",
    "invert": "Not",
    "bitwise_not": "Not",
    "isnan": "IsNaN",
    "isinf": "IsInf",
    "contiguous": "Identity",
    "clone": "Identity",
    "detach": "Identity",
    "alias": "Identity",
    "cpu": "Identity",
}
_BINARY = {
    "add": "Add",
    "sub": "Sub",
    "subtract": "Sub",
    "mul": "Mul",
    "multiply": "Mul",
    "div": "Div",
    "divide": "Div",
    "true_divide": "Div",
    "truediv": "Div",
    "floor_divide": "FloorDiv",
    "floordiv": "FloorDiv",
    "pow": "Pow",
    "maximum": "Max",
    "minimum": "Min",
    "remainder": "Mod",
    "mod": "Mod",
    "matmul": "MatMul",
    "mm": "MatMul",
    "bmm": "MatMul",
    "mv": "MatMul",
    "eq": "Equal",
    "ne": "NotEqual",
    "lt": "Less",
    "le": "LessOrEqual",
    "gt": "Greater",
    "ge": "GreaterOrEqual",
    "less": "Less",
    "less_equal": "LessOrEqual",
    "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
    "logical_and": "And",
    "logical_or": "Or",
    "logical_xor": "Xor",
    "and": "And",
    "or": "Or",
    "xor": "Xor",
    "bitwise_and": "And",
    "bitwise_or": "Or",
    "bitwise_xor": "Xor",
}
_TABLE: dict[str, Callable[[Arguments], Found]] = {
    **{name: _plain(op) for name, op in _ELEMENTWISE.items()},
    **{name: _binary(op) for name, op in _BINARY.items()},
    **{
        f"r{name}": _binary(_BINARY[name], swapped=True)
        for name in ("add", "sub", "mul", "div", "truediv", "floordiv", "pow", "mod", "matmul", "and", "or", "xor")
    },
    "fmod": _binary("Mod", fmod=True),
    "silu": _plain("Swish", alpha=1.0),
    "selu": _plain("Selu"),
    "relu6": _plain("Clip", min=0.0, max=6.0),
    "hardsigmoid": _plain("HardSigmoid", alpha=1 / 6, beta=0.5),
    "gelu": _unary("Gelu", (1, "approximate", "approximate", "none")),
    "leaky_relu": _unary("LeakyRelu", (1, "negative_slope", "alpha", 0.01)),
    "elu": _unary("Elu", (1, "alpha", "alpha", 1.0)),
    "celu": _unary("Celu", (1, "alpha", "alpha", 1.0)),
    "hardtanh": _unary("Clip", (1, "min_val", "min", -1.0), (2, "max_val", "max", 1.0)),
    "softplus": _unary("Softplus", (1, "beta", "beta", 1.0), (2, "threshold", "threshold", 20.0)),
    "softshrink": _unary("SoftShrink", (1, "lambd", "lambd", 0.5)),
    "hardshrink": _unary("HardShrink", (1, "lambd", "lambd", 0.5)),
    "threshold": _unary("Threshold", (1, "threshold", "threshold", 0.0), (2, "value", "value", 0.0)),
    "rrelu": _unary("RRelu", (1, "lower", "lower", 1 / 8), (2, "upper", "upper", 1 / 3)),
    "clamp": _clip(),
    "clip": _clip(),
    "clamp_min": _clip(high=False),
    "clamp_max": _clip(low=False),
    "glu": lambda a: ("Glu", {"axis": a.axis(1, default=-1)}),
    "softmax": _softmax("Softmax"),
    "log_softmax": _softmax("LogSoftmax"),
    "softmin": _softmax("Softmin"),
    "prelu": lambda a: ("PRelu", {"inputs": a.roles((1, "weight", "slope"))}),
    **{
        name: _unary("Dropout", (1, "p", "ratio", 0.5))
        for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "feature_dropout")
    },
    "alpha_dropout": _unary("AlphaDropout", (1, "p", "ratio", 0.5)),
    "einsum": _einsum,
    "tril": lambda a: ("Trilu", {"upper": False, "k": int(a.get(1, "diagonal", 0))}),
    "triu": lambda a: ("Trilu", {"upper": True, "k": int(a.get(1, "diagonal", 0))}),
    "mean": _reduce("ReduceMean"),
    "sum": _reduce("ReduceSum"),
    "amax": _reduce("ReduceMax"),
    "amin": _reduce("ReduceMin"),
    "max": _reduce("ReduceMax"),
    "min": _reduce("ReduceMin"),
    "prod": _reduce("ReduceProd"),
    "logsumexp": _reduce("ReduceLogSumExp"),
    "var": _reduce("ReduceVar"),
    "std": _reduce("ReduceStd"),
    "norm": _norm,
    "linalg_norm": _norm,
    "linalg_vector_norm": _norm,
    "vector_norm": _norm,
    "argmax": _arg("ArgMax"),
    "argmin": _arg("ArgMin"),
    "cumsum": lambda a: ("CumSum", {"axis": a.axis(1)}),
    "cumprod": lambda a: ("CumProd", {"axis": a.axis(1)}),
    **torch_layers_calls.TABLE,
    **torch_layers_shapes.TABLE,
    "pixel_shuffle": lambda a: ("DepthToSpace", {"blocksize": int(a.get(1, "upscale_factor")), "mode": "CRD"}),
    "pixel_unshuffle": lambda a: ("SpaceToDepth", {"blocksize": int(a.get(1, "downscale_factor")), "mode": "CRD"}),
    "channel_shuffle": lambda a: ("ChannelShuffle", {"group": int(a.get(1, "groups"))}),
    "one_hot": lambda a: ("OneHot", {"depth": int(a.get(1, "num_classes", -1)), "axis": -1}),
    "masked_fill": _masked_fill,
    "where": _where,
    "gather": lambda a: ("GatherElements", {"axis": a.axis(1)}),
    "take_along_dim": lambda a: ("GatherElements", {"axis": a.axis(2)}),
    "index_select": lambda a: ("IndexSelect", {"axis": a.axis(1)}),
}


def functional(name: str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Found:
    """The canonical operator and attributes of one torch function call; None when it has none.

    ``name`` is the function's ``__name__`` ("relu", "add_", "__rsub__", "max_pool2d"); for a property getter
    ("__get__") better that of the property ("T", "mT").
    """
    bare = name.strip("_")
    if name.startswith("__i") and bare[1:] in _BINARY:
        bare = bare[1:]
    make = _TABLE.get(bare)
    if make is None:
        return None
    try:
        return make(Arguments(name, args, kwargs or {}))
    except (TypeError, ValueError, IndexError, AttributeError, StopIteration, KeyError):
        return None  # called in a way that the table does not know: no canonical name, the call is still recorded
