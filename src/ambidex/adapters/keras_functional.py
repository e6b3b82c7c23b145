"""keras.ops functions in canonical words."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from ambidex.adapters import keras_activations, keras_resize, keras_words

Attrs = dict[str, Any]
Found = tuple[str, Attrs]
P = Mapping[str, Any]

#: functions without parameters that matter
_PLAIN = {
    "matmul": "MatMul",
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "true_divide": "Div",
    "power": "Pow",
    "maximum": "Max",
    "minimum": "Min",
    "floor_divide": "FloorDiv",
    "negative": "Neg",
    "sqrt": "Sqrt",
    "rsqrt": "Rsqrt",
    "reciprocal": "Reciprocal",
    "square": "Square",
    "log": "Log",
    "log1p": "Log1p",
    "expm1": "Expm1",
    "erf": "Erf",
    "absolute": "Abs",
    "abs": "Abs",
    "sign": "Sign",
    "floor": "Floor",
    "ceil": "Ceil",
    "round": "Round",
    "sin": "Sin",
    "cos": "Cos",
    "tan": "Tan",
    "sinh": "Sinh",
    "cosh": "Cosh",
    "arcsin": "Asin",
    "arccos": "Acos",
    "arctan": "Atan",
    "arcsinh": "Asinh",
    "arccosh": "Acosh",
    "arctanh": "Atanh",
    "where": "Where",
    "equal": "Equal",
    "less": "Less",
    "not_equal": "NotEqual",
    "less_equal": "LessOrEqual",
    "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
    "logical_and": "And",
    "logical_or": "Or",
    "logical_xor": "Xor",
    "logical_not": "Not",
    "isnan": "IsNaN",
    "isinf": "IsInf",
    "stop_gradient": "Identity",
    "copy": "Identity",
    "convert_to_tensor": "Identity",
}
_REDUCE = {
    "mean": "ReduceMean",
    "sum": "ReduceSum",
    "max": "ReduceMax",
    "amax": "ReduceMax",
    "min": "ReduceMin",
    "amin": "ReduceMin",
    "prod": "ReduceProd",
    "logsumexp": "ReduceLogSumExp",
    "var": "ReduceVar",
    "std": "ReduceStd",
}


def ints(value: Any) -> Any:
    """Axis numbers as plain integers in lists; None stays None, what is no number (a tensor) is not known."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, np.ndarray):
        return value.astype("int64").tolist()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [ints(v) for v in value]
    return None


def axis_list(value: Any) -> list[int] | None:
    """Axis numbers as a list."""
    found = ints(value)
    return [found] if isinstance(found, int) else found


def number(value: Any) -> Any:
    """A plain number as a float; None for anything else."""
    if value is None or isinstance(value, int | float):
        return None if value is None else float(value)
    if isinstance(value, np.generic) or isinstance(value, np.ndarray) and value.ndim == 0:
        return float(value)
    return None


def _spatial(value: Any, n: int | None) -> list[int] | None:
    found = ints(value)
    if isinstance(found, int):
        return [found] * (n or 1)
    return found


def _shape(value: Any) -> list[int] | None:
    found = axis_list(value)
    return None if found is None else [-1 if d is None else d for d in found]


def index_attrs(key: Any) -> Attrs:
    """A subscript as plain data: integers, [start, stop, step] for a slice, "...", "newaxis" and "tensor"."""
    return {"index": [_index_item(k) for k in (key if isinstance(key, tuple | list) else (key,))]}


def _index_item(item: Any) -> Any:
    if item is Ellipsis:
        return "..."
    if item is None:
        return "newaxis"
    if isinstance(item, slice):
        return [ints(v) for v in (item.start, item.stop, item.step)]
    return ints(item) if isinstance(item, int | np.integer) else "tensor"


def _reduce(op: str) -> Callable[[P], Found]:
    def make(p: P) -> Found:
        attrs: Attrs = {"axes": axis_list(p.get("axis")), "keepdims": bool(p.get("keepdims", False))}
        if op in ("ReduceVar", "ReduceStd"):
            attrs["correction"] = 0
        return op, attrs

    return make


def _arg(op: str) -> Callable[[P], Found]:
    return lambda p: (op, {"axis": ints(p.get("axis")), "keepdims": bool(p.get("keepdims", False))})


def _axis(op: str, default: int | None = None) -> Callable[[P], Found]:
    return lambda p: (op, {"axis": ints(p.get("axis", default))})


def _pad(p: P) -> Found:
    pairs = ints(p.get("pad_width"))
    if isinstance(pairs, int):
        pads: Any = None
    else:
        pads = None if pairs is None else [a for a, _ in pairs] + [b for _, b in pairs]
    mode = {"symmetric": "symmetric", "reflect": "reflect", "edge": "edge", "wrap": "wrap"}.get(
        p.get("mode", "constant"), "constant"
    )
    # all axes, batch and channel included: a function does not say which axis is which
    return "Pad", {"pads": pads, "mode": mode, "value": number(p.get("constant_values")) or 0.0}


def _window(p: P, kernel: Any, n: int | None) -> Attrs:
    size = _spatial(kernel, n)
    n = len(size) if size else n
    strides = _spatial(p.get("strides"), n) or (size if p.get("pool_size") is not None else [1] * (n or 1))
    dilations = _spatial(p.get("dilation_rate", 1), n) or []
    strides = strides or [1]
    if size is None:
        same = p.get("padding", "valid") == "same"
        return {"strides": strides, "dilations": dilations, "pads": 0, "auto_pad": "SAME_UPPER" if same else "NOTSET"}
    return {
        "kernel_shape": size,
        "strides": strides,
        "dilations": dilations,
        **keras_words.window_padding(p.get("padding", "valid"), size, strides, dilations),
    }


def _pool(op: str) -> Callable[[P], Found]:
    def make(p: P) -> Found:
        n = len(p["inputs"].shape) - 2 if hasattr(p.get("inputs"), "shape") else None
        attrs = {**_window(p, p.get("pool_size"), n), "ceil_mode": False}
        if op == "AveragePool":
            attrs["count_include_pad"] = False
        return op, attrs

    return make


def _conv(p: P) -> Found:
    kernel = p.get("kernel")
    size = None if kernel is None else [int(s) for s in kernel.shape[:-2]]
    return "Conv", {**_window(p, size, None), "pad_mode": "constant"}


def _resize(p: P) -> Found:
    return "Resize", {
        **keras_resize.resize_attrs(p.get("interpolation", "bilinear"), bool(p.get("antialias"))),
        "scales": None,
        "sizes": ints(p.get("size")),
    }


def _attention(p: P) -> Found:
    return "Attention", {
        "scale": number(p.get("scale")),
        "is_causal": bool(p.get("is_causal", False)),
        "num_heads": None,
        "softmax_axis": -1,
        "masked_row": "uniform",
        "softcap": number(p.get("attn_logits_soft_cap")) or 0.0,
    }


def _clip(p: P) -> Found:
    return "Clip", {"min": number(p.get("x_min")), "max": number(p.get("x_max"))}


def _norm(op: str) -> Callable[[P], Found]:
    def make(p: P) -> Found:
        axes = axis_list(p.get("axis", -1))
        first: Any = axes
        if axes is not None and sorted(axes) == list(range(min(axes), 0)):
            first = min(axes)
        if op == "LayerNormalization" and p.get("rms_scaling"):
            return "LayerNormalizationRmsScaling", {"axis": first, "epsilon": number(p.get("epsilon"))}
        eps = p.get("epsilon")
        return op, {"axis": first, "epsilon": float(keras.backend.epsilon() if eps is None else eps)}

    return make


def _normalize(p: P) -> Found:
    eps = p.get("epsilon")
    return "LpNormalization", {
        "axis": ints(p.get("axis", -1)),
        "p": ints(p.get("order", 2)),
        "epsilon": float(keras.backend.epsilon() if eps is None else eps),
    }


def _dropout(p: P) -> Found:
    noise = ints(p.get("noise_shape"))  # one draw for all of these axes where it is 1
    whole = isinstance(noise, list) and len(noise) > 2 and all(n == 1 for n in noise[1:-1])
    return "Dropout", {"ratio": number(p.get("rate")), **({"channelwise": True} if whole else {})}


def _dtype(value: Any) -> str | None:
    return None if value is None else keras.backend.standardize_dtype(value)


def _plain(op: str) -> Callable[[P], Found]:
    return lambda p: (op, _operands(op, p))


def _operands(op: str, p: P) -> Attrs:
    """Plain numbers among the operands: ``other`` (``swapped``: on the left), or ``x`` / ``y`` of a Where."""
    if op == "Where":
        return {k: float(p[n]) for k, n in (("x", "x1"), ("y", "x2")) if isinstance(p.get(n), int | float)}
    for mine, swapped in (("x2", False), ("x1", True)):
        value = p.get(mine)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return {"other": value, **({"swapped": True} if swapped else {})}
    return {}


_TABLE: dict[str, Callable[[P], Found]] = {
    **{name: _plain(op) for name, op in _PLAIN.items()},
    **{name: _reduce(op) for name, op in _REDUCE.items()},
    "add": lambda p: ("Add", {"alpha": 1.0, **_operands("Add", p)}),
    "subtract": lambda p: ("Sub", {"alpha": 1.0, **_operands("Sub", p)}),
    "mod": lambda p: ("Mod", {"fmod": False}),
    "argmax": _arg("ArgMax"),
    "argmin": _arg("ArgMin"),
    "clip": _clip,
    "concatenate": _axis("Concat", 0),
    "stack": _axis("Stack", 0),
    "cumsum": _axis("CumSum"),
    "cumprod": _axis("CumProd"),
    "take_along_axis": _axis("GatherElements"),
    "take": lambda p: ("Gather", {"axis": ints(p.get("axis")), "padding_idx": None, "mask_zero": False}),
    "split": lambda p: (
        "Split",
        {
            "axis": ints(p.get("axis", 0)),
            **({"num_outputs": s} if isinstance(s := ints(p.get("indices_or_sections")), int) else {"indices": s}),
        },
    ),
    "transpose": lambda p: ("Transpose", {"perm": axis_list(p.get("axes"))}),
    "swapaxes": lambda p: ("SwapAxes", {"axes": [ints(p.get("axis1")), ints(p.get("axis2"))]}),
    "moveaxis": lambda p: (
        "MoveAxis",
        {"source": axis_list(p.get("source")), "destination": axis_list(p.get("destination"))},
    ),
    "reshape": lambda p: ("Reshape", {"shape": _shape(p.get("newshape"))}),
    "ravel": lambda p: ("Reshape", {"shape": [-1]}),
    "squeeze": lambda p: ("Squeeze", {"axes": axis_list(p.get("axis"))}),
    "expand_dims": lambda p: ("Unsqueeze", {"axes": axis_list(p.get("axis"))}),
    "broadcast_to": lambda p: ("Expand", {"shape": _shape(p.get("shape"))}),
    "tile": lambda p: ("Tile", {"repeats": axis_list(p.get("repeats"))}),
    "repeat": lambda p: ("Repeat", {"repeats": ints(p.get("repeats")), "axis": ints(p.get("axis"))}),
    "flip": lambda p: ("Flip", {"axes": axis_list(p.get("axis"))}),
    "roll": lambda p: ("Roll", {"shifts": axis_list(p.get("shift")), "axes": axis_list(p.get("axis"))}),
    "tril": lambda p: ("Trilu", {"upper": False, "k": ints(p.get("k", 0))}),
    "triu": lambda p: ("Trilu", {"upper": True, "k": ints(p.get("k", 0))}),
    "cast": lambda p: ("Cast", {"to": _dtype(p.get("dtype"))}),
    "pad": _pad,
    "get_item": lambda p: ("Slice", index_attrs(p.get("key"))),
    "one_hot": lambda p: ("OneHot", {"depth": ints(p.get("num_classes")), "axis": ints(p.get("axis", -1))}),
    "einsum": lambda p: ("Einsum", {"equation": keras_words.equation(p.get("subscripts", ""))}),
    "max_pool": _pool("MaxPool"),
    "average_pool": _pool("AveragePool"),
    "conv": _conv,
    "resize": _resize,
    "image_resize": _resize,
    "dot_product_attention": _attention,
    "layer_normalization": _norm("LayerNormalization"),
    "layer_norm": _norm("LayerNormalization"),
    "rms_normalization": _norm("RMSNormalization"),
    "r_m_s_norm": _norm("RMSNormalization"),
    "normalize": _normalize,
    "dropout": _dropout,
    "depth_to_space": lambda p: ("DepthToSpace", {"blocksize": ints(p.get("block_size")), "mode": "DCR"}),
    "space_to_depth": lambda p: ("SpaceToDepth", {"blocksize": ints(p.get("block_size"))}),
}


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def operation(op: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Found | None:
    """The canonical operator of a Keras operation and its call arguments; None when there is none.

    ``op``: an Operation of a functional graph, its class name ("LeakyRelu"), or a keras.ops name ("leaky_relu").
    Missing parameters have the defaults of keras.ops (GELU is the tanh one, LeakyReLU has slope 0.2).
    """
    kwargs = dict(kwargs or {})
    text = op if isinstance(op, str) else type(op).__name__
    if not isinstance(op, str) and isinstance(op, keras.layers.Layer):
        return None
    name = text if text.islower() else _snake(text)
    params: Attrs = {}
    if isinstance(op, str):
        target = getattr(keras.ops, name, None) or (keras.ops.image.resize if name == "resize" else None)
    else:
        params = {k: v for k, v in vars(op).items() if not k.startswith("_")}
        target = op.call
    if target is not None:
        try:
            bound = inspect.signature(target).bind_partial(*args, **kwargs)
            if isinstance(op, str):
                bound.apply_defaults()
            params.update(bound.arguments)
        except TypeError:
            params.update(kwargs)
    else:
        params.update(kwargs)
        if args and name == "get_item":
            params["key"] = args[1] if len(args) > 1 else None
    if name == "einsum" and args and isinstance(args[0], str):
        params["subscripts"] = args[0]
    if name == "re_l_u":  # keras.activations.relu inside a functional graph
        name = "relu"
    if name == "axis" or name not in _TABLE:
        found = keras_activations.named(name, params)
        return found if found is None or found[0] else None
    return _TABLE[name](params)
