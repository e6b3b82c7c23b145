"""keras.ops functions and raw TensorFlow operators in canonical words."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from ambidex.adapters import keras_activations, keras_describe

Attrs = dict[str, Any]
Found = tuple[str, Attrs]
P = Mapping[str, Any]

#: functions without parameters that matter
_PLAIN = {
    "matmul": "MatMul", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "true_divide": "Div", "power": "Pow",
    "maximum": "Max", "minimum": "Min", "floor_divide": "FloorDiv", "negative": "Neg", "sqrt": "Sqrt", "rsqrt": "Rsqrt",
    "reciprocal": "Reciprocal", "square": "Square", "log": "Log", "log1p": "Log1p", "expm1": "Expm1", "erf": "Erf",
    "absolute": "Abs", "abs": "Abs", "sign": "Sign", "floor": "Floor", "ceil": "Ceil", "round": "Round", "sin": "Sin",
    "cos": "Cos", "tan": "Tan", "sinh": "Sinh", "cosh": "Cosh", "arcsin": "Asin", "arccos": "Acos", "arctan": "Atan",
    "arcsinh": "Asinh", "arccosh": "Acosh", "arctanh": "Atanh", "where": "Where", "equal": "Equal", "less": "Less",
    "not_equal": "NotEqual", "less_equal": "LessOrEqual", "greater": "Greater", "greater_equal": "GreaterOrEqual",
    "logical_and": "And", "logical_or": "Or", "logical_xor": "Xor", "logical_not": "Not", "isnan": "IsNaN",
    "isinf": "IsInf", "stop_gradient": "Identity", "copy": "Identity", "convert_to_tensor": "Identity",
}
_REDUCE = {
    "mean": "ReduceMean", "sum": "ReduceSum", "max": "ReduceMax", "amax": "ReduceMax", "min": "ReduceMin",
    "amin": "ReduceMin", "prod": "ReduceProd", "logsumexp": "ReduceLogSumExp", "var": "ReduceVar", "std": "ReduceStd",
}


def _ints(value: Any) -> Any:
    """Axis numbers as plain integers in lists; None stays None, what is no number (a tensor) is not known."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, np.ndarray):
        return value.astype("int64").tolist()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_ints(v) for v in value]
    return None


def _axes(value: Any) -> list[int] | None:
    found = _ints(value)
    return [found] if isinstance(found, int) else found


def _number(value: Any) -> Any:
    if value is None or isinstance(value, int | float):
        return None if value is None else float(value)
    if isinstance(value, np.generic) or isinstance(value, np.ndarray) and value.ndim == 0:
        return float(value)
    return None


def _spatial(value: Any, n: int | None) -> list[int] | None:
    found = _ints(value)
    if isinstance(found, int):
        return [found] * (n or 1)
    return found


def _shape(value: Any) -> list[int] | None:
    found = _axes(value)
    return None if found is None else [-1 if d is None else d for d in found]


def index_attrs(key: Any) -> Attrs:
    """A subscript of integers and slices as ONNX Slice (``squeeze``: axes taken by an integer); else ``index`` alone.

    Axes after an ellipsis count from the end.
    """
    items = list(key) if isinstance(key, tuple | list) else [key]
    plain = [i for i in items if isinstance(i, slice) or isinstance(i, int | np.integer) and not isinstance(i, bool)]
    dots = [n for n, i in enumerate(items) if i is Ellipsis]
    if len(plain) + len(dots) != len(items) or len(dots) > 1:
        return {"index": [_index_item(i) for i in items]}
    found: Attrs = {"axes": [], "starts": [], "ends": [], "steps": [], "squeeze": []}
    for n, item in enumerate(items):
        if item is Ellipsis or isinstance(item, slice) and item == slice(None):
            continue
        axis = n - len(items) if dots and n > dots[0] else n
        bounds = (item.start, item.stop, item.step) if isinstance(item, slice) else (item, item + 1, 1)
        if any(b is not None and not isinstance(b, int | np.integer) for b in bounds):
            return {"index": [_index_item(i) for i in items]}
        start, stop, step = (None if b is None else int(b) for b in bounds)
        found["axes"].append(axis)
        found["starts"].append(start)
        found["ends"].append(stop)
        found["steps"].append(1 if step is None else step)
        if not isinstance(item, slice):
            found["squeeze"].append(axis)
    return found


def _index_item(item: Any) -> Any:
    if item is Ellipsis:
        return "..."
    if item is None:
        return "newaxis"
    if isinstance(item, slice):
        return [_ints(v) for v in (item.start, item.stop, item.step)]
    return _ints(item) if isinstance(item, int | np.integer) else "tensor"


def _reduce(op: str) -> Callable[[P], Found]:
    def make(p: P) -> Found:
        attrs: Attrs = {"axes": _axes(p.get("axis")), "keepdims": bool(p.get("keepdims", False))}
        if op in ("ReduceVar", "ReduceStd"):
            attrs["correction"] = 0
        return op, attrs

    return make


def _arg(op: str) -> Callable[[P], Found]:
    return lambda p: (op, {"axis": _ints(p.get("axis")), "keepdims": bool(p.get("keepdims", False))})


def _axis(op: str, default: int | None = None) -> Callable[[P], Found]:
    return lambda p: (op, {"axis": _ints(p.get("axis", default))})


def _pad(p: P) -> Found:
    pairs = _ints(p.get("pad_width"))
    if isinstance(pairs, int):
        pads: Any = None
    else:
        pads = None if pairs is None else [a for a, _ in pairs] + [b for _, b in pairs]
    mode = {"symmetric": "symmetric", "reflect": "reflect", "edge": "edge", "wrap": "wrap"}.get(
        p.get("mode", "constant"), "constant")
    # all axes, batch and channel included: a function does not say which axis is which
    return "Pad", {"pads": pads, "mode": mode, "value": _number(p.get("constant_values")) or 0.0}


def _window(p: P, kernel: Any, n: int | None) -> Attrs:
    size = _spatial(kernel, n)
    n = len(size) if size else n
    strides = _spatial(p.get("strides"), n) or (size if p.get("pool_size") is not None else [1] * (n or 1))
    dilations = _spatial(p.get("dilation_rate", 1), n) or []
    strides = strides or [1]
    if size is None:
        same = p.get("padding", "valid") == "same"
        return {"strides": strides, "dilations": dilations, "pads": 0, "auto_pad": "SAME_UPPER" if same else "NOTSET"}
    return {"kernel_shape": size, "strides": strides, "dilations": dilations,
            **keras_describe.window_padding(p.get("padding", "valid"), size, strides, dilations)}


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
    size = [int(s) for s in kernel.shape[:-2]] if hasattr(kernel, "shape") else None
    return "Conv", {**_window(p, size, None), "pad_mode": "constant"}


def _resize(p: P) -> Found:
    return "Resize", {**keras_describe.resize_attrs(p.get("interpolation", "bilinear"), bool(p.get("antialias"))),
                      "scales": None, "sizes": _ints(p.get("size"))}


def _attention(p: P) -> Found:
    return "Attention", {"scale": _number(p.get("scale")), "is_causal": bool(p.get("is_causal", False)),
                         "num_heads": None, "softmax_axis": -1, "masked_row": "uniform",
                         "softcap": _number(p.get("attn_logits_soft_cap")) or 0.0}


def _clip(p: P) -> Found:
    return "Clip", {"min": _number(p.get("x_min")), "max": _number(p.get("x_max"))}


def _norm(op: str) -> Callable[[P], Found]:
    def make(p: P) -> Found:
        axes = _axes(p.get("axis", -1))
        first: Any = axes
        if axes is not None and sorted(axes) == list(range(min(axes), 0)):
            first = min(axes)
        if op == "LayerNormalization" and p.get("rms_scaling"):
            return "LayerNormalizationRmsScaling", {"axis": first, "epsilon": _number(p.get("epsilon"))}
        eps = p.get("epsilon")
        return op, {"axis": first, "epsilon": float(keras.backend.epsilon() if eps is None else eps)}

    return make


def _normalize(p: P) -> Found:
    eps = p.get("epsilon")
    return "LpNormalization", {"axis": _ints(p.get("axis", -1)), "p": _ints(p.get("order", 2)),
                               "epsilon": float(keras.backend.epsilon() if eps is None else eps)}


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
    "argmax": _arg("ArgMax"), "argmin": _arg("ArgMin"),
    "clip": _clip,
    "concatenate": _axis("Concat", 0), "stack": _axis("Stack", 0),
    "cumsum": _axis("CumSum"), "cumprod": _axis("CumProd"),
    "take_along_axis": _axis("GatherElements"),
    "take": lambda p: ("Gather", {"axis": _ints(p.get("axis")), "padding_idx": None, "mask_zero": False}),
    "split": lambda p: ("Split", {"axis": _ints(p.get("axis", 0)),
                                  **({"num_outputs": s} if isinstance(s := _ints(p.get("indices_or_sections")), int)
                                     else {"indices": s})}),
    "transpose": lambda p: ("Transpose", {"perm": _axes(p.get("axes"))}),
    "swapaxes": lambda p: ("SwapAxes", {"axes": [_ints(p.get("axis1")), _ints(p.get("axis2"))]}),
    "moveaxis": lambda p: ("MoveAxis", {"source": _axes(p.get("source")), "destination": _axes(p.get("destination"))}),
    "reshape": lambda p: ("Reshape", {"shape": _shape(p.get("newshape"))}),
    "ravel": lambda p: ("Reshape", {"shape": [-1]}),
    "squeeze": lambda p: ("Squeeze", {"axes": _axes(p.get("axis"))}),
    "expand_dims": lambda p: ("Unsqueeze", {"axes": _axes(p.get("axis"))}),
    "broadcast_to": lambda p: ("Expand", {"shape": _shape(p.get("shape"))}),
    "tile": lambda p: ("Tile", {"repeats": _axes(p.get("repeats"))}),
    "repeat": lambda p: ("Repeat", {"repeats": _ints(p.get("repeats")), "axis": _ints(p.get("axis"))}),
    "flip": lambda p: ("Flip", {"axes": _axes(p.get("axis"))}),
    "roll": lambda p: ("Roll", {"shifts": _axes(p.get("shift")), "axes": _axes(p.get("axis"))}),
    "tril": lambda p: ("Trilu", {"upper": False, "k": _ints(p.get("k", 0))}),
    "triu": lambda p: ("Trilu", {"upper": True, "k": _ints(p.get("k", 0))}),
    "cast": lambda p: ("Cast", {"to": _dtype(p.get("dtype"))}),
    "pad": _pad,
    "get_item": lambda p: ("Slice", index_attrs(p.get("key"))),
    "one_hot": lambda p: ("OneHot", {"depth": _ints(p.get("num_classes")), "axis": _ints(p.get("axis", -1))}),
    "einsum": lambda p: ("Einsum", {"equation": keras_describe.equation(p.get("subscripts", ""))}),
    "max_pool": _pool("MaxPool"), "average_pool": _pool("AveragePool"),
    "conv": _conv,
    "resize": _resize, "image_resize": _resize,
    "dot_product_attention": _attention,
    "layer_normalization": _norm("LayerNormalization"), "layer_norm": _norm("LayerNormalization"),
    "rms_normalization": _norm("RMSNormalization"), "r_m_s_norm": _norm("RMSNormalization"),
    "normalize": _normalize,
    "depth_to_space": lambda p: ("DepthToSpace", {"blocksize": _ints(p.get("block_size")), "mode": "DCR"}),
    "space_to_depth": lambda p: ("SpaceToDepth", {"blocksize": _ints(p.get("block_size"))}),
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


# ---------------------------------------------------------------- raw TensorFlow operators


_TF_PLAIN = {
    "MatMul": "MatMul", "BatchMatMul": "MatMul", "BatchMatMulV2": "MatMul", "BatchMatMulV3": "MatMul", "Add": "Add",
    "AddV2": "Add", "BiasAdd": "Add", "AddN": "Add", "Sub": "Sub", "Mul": "Mul", "RealDiv": "Div", "Div": "Div",
    "DivNoNan": "DivNoNan", "FloorDiv": "FloorDiv", "Pow": "Pow", "Maximum": "Max", "Minimum": "Min", "Neg": "Neg",
    "Sqrt": "Sqrt", "Rsqrt": "Rsqrt", "Reciprocal": "Reciprocal", "Inv": "Reciprocal", "Square": "Square",
    "SquaredDifference": "SquaredDifference", "Exp": "Exp", "Expm1": "Expm1", "Log": "Log", "Log1p": "Log1p",
    "Erf": "Erf", "Erfc": "Erfc", "Abs": "Abs", "Sign": "Sign", "Floor": "Floor", "Ceil": "Ceil", "Round": "Round",
    "Sin": "Sin", "Cos": "Cos", "Tan": "Tan", "Tanh": "Tanh", "Sigmoid": "Sigmoid", "Relu": "Relu",
    "Softsign": "Softsign", "Select": "Where", "SelectV2": "Where", "Equal": "Equal", "NotEqual": "NotEqual",
    "Less": "Less", "LessEqual": "LessOrEqual", "Greater": "Greater", "GreaterEqual": "GreaterOrEqual",
    "LogicalAnd": "And", "LogicalOr": "Or", "LogicalNot": "Not", "IsNan": "IsNaN", "IsInf": "IsInf",
    "Identity": "Identity", "StopGradient": "Identity", "PreventGradient": "Identity", "EnsureShape": "Identity",
}
_TF_REDUCE = {"Mean": "ReduceMean", "Sum": "ReduceSum", "Max": "ReduceMax", "Min": "ReduceMin", "Prod": "ReduceProd"}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _tf_spatial(value: Any, data_format: str) -> list[int]:
    """The entries of a TensorFlow list over all axes that belong to the spatial ones."""
    full = [int(v) for v in value]
    first = data_format.startswith("NC")
    return full[2:] if first else full[1:-1]


def _tf_window(attrs: P, kernel: Sequence[int] | None, data_format: str) -> Attrs:
    strides = _tf_spatial(attrs["strides"], data_format)
    n = len(strides)
    dilations = _tf_spatial(attrs["dilations"], data_format) if attrs.get("dilations") else [1] * n
    padding = _text(attrs.get("padding", "VALID"))
    if padding == "EXPLICIT":
        flat = [int(v) for v in attrs["explicit_paddings"]]
        pairs = _tf_spatial_pairs(flat, data_format)
        pads: Attrs = {"pads": [a for a, _ in pairs] + [b for _, b in pairs], "auto_pad": "NOTSET"}
    elif kernel is not None:
        pads = keras_describe.window_padding(padding.lower(), kernel, strides, dilations)
    else:
        pads = {"pads": [0] * (2 * n), "auto_pad": "SAME_UPPER" if padding == "SAME" else "NOTSET"}
    size = {} if kernel is None else {"kernel_shape": list(kernel)}
    return {**size, "strides": strides, "dilations": dilations, **pads}


def _tf_spatial_pairs(flat: list[int], data_format: str) -> list[tuple[int, int]]:
    pairs = list(zip(flat[::2], flat[1::2], strict=True))
    return pairs[2:] if data_format.startswith("NC") else pairs[1:-1]


def tf_op(op_type: str, attrs: Mapping[str, Any] | None = None) -> Found | None:
    """The canonical operator of a raw TensorFlow operator; None when there is none.

    ``attrs`` are its node attributes. What TensorFlow passes as a tensor (axis, perm, shape, paddings, repeats, key,
    kernel_shape) can be added by the caller under that name, where it is a constant; else it stays None.
    """
    a = dict(attrs or {})
    if op_type in _TF_PLAIN:
        op = _TF_PLAIN[op_type]
        if op in ("Add", "Sub"):
            return op, {"alpha": 1.0}
        if op == "MatMul":
            flags = {k: True for k in ("transpose_a", "transpose_b", "adj_x", "adj_y") if a.get(k)}
            return op, flags
        return op, {}
    if op_type in _TF_REDUCE:
        return _TF_REDUCE[op_type], {"axes": _axes(a.get("axis")), "keepdims": bool(a.get("keep_dims", False))}
    fmt = _text(a.get("data_format", "NHWC"))
    match op_type:
        case "Relu6":
            return "Clip", {"min": 0.0, "max": 6.0}
        case "LeakyRelu":
            return "LeakyRelu", {"alpha": float(a.get("alpha", 0.2))}
        case "Elu":
            return "Elu", {"alpha": 1.0}
        case "Selu":
            return keras_activations.named("selu", {})
        case "Softplus":
            return "Softplus", {"beta": 1.0, "threshold": None}
        case "Softmax" | "LogSoftmax":
            return op_type, {"axis": -1}
        case "Conv2D" | "Conv3D" | "DepthwiseConv2dNative":
            found = _tf_window(a, a.get("kernel_shape"), fmt)
            return "Conv", {**found, "pad_mode": "constant"}
        case "Conv2DBackpropInput" | "Conv3DBackpropInputV2":
            return "ConvTranspose", _tf_window(a, a.get("kernel_shape"), fmt)
        case "MaxPool" | "MaxPool3D" | "AvgPool" | "AvgPool3D":
            found = {**_tf_window(a, _tf_spatial(a["ksize"], fmt), fmt), "ceil_mode": False}
            if op_type.startswith("Max"):
                return "MaxPool", found
            return "AveragePool", {**found, "count_include_pad": False}
        case "FusedBatchNorm" | "FusedBatchNormV2" | "FusedBatchNormV3":
            return "BatchNormalization", {"epsilon": float(a.get("epsilon", 1e-3)),
                                          "training_mode": bool(a.get("is_training", False))}
        case "Concat" | "ConcatV2":
            return "Concat", {"axis": _ints(a.get("axis"))}
        case "Pack":
            return "Stack", {"axis": int(a.get("axis", 0))}
        case "Unpack":
            return "Unstack", {"axis": int(a.get("axis", 0))}
        case "Split" | "SplitV":
            return "Split", {"axis": _ints(a.get("axis")), "num_outputs": _ints(a.get("num_split"))}
        case "Transpose":
            return "Transpose", {"perm": _axes(a.get("perm"))}
        case "Reshape":
            return "Reshape", {"shape": _axes(a.get("shape"))}
        case "ExpandDims":
            return "Unsqueeze", {"axes": _axes(a.get("axis"))}
        case "Squeeze":
            return "Squeeze", {"axes": _axes(list(a.get("squeeze_dims") or ())) or None}
        case "BroadcastTo":
            return "Expand", {"shape": _axes(a.get("shape"))}
        case "Tile":
            return "Tile", {"repeats": _axes(a.get("repeats"))}
        case "GatherV2" | "Gather" | "ResourceGather":
            return "Gather", {"axis": 0 if op_type != "GatherV2" else _ints(a.get("axis"))}
        case "ArgMax" | "ArgMin":
            return op_type, {"axis": _ints(a.get("axis")), "keepdims": False}
        case "Cumsum" | "Cumprod":
            return "CumSum" if op_type == "Cumsum" else "CumProd", {"axis": _ints(a.get("axis"))}
        case "StridedSlice":
            return "Slice", index_attrs(a["key"]) if "key" in a else {"index": None}
        case "Slice":
            return "Slice", {"index": None}
        case "Pad" | "PadV2" | "MirrorPad":
            pairs = _ints(a.get("paddings"))
            mode = _text(a.get("mode", "constant")).lower()
            return "Pad", {"pads": None if pairs is None else [x for x, _ in pairs] + [y for _, y in pairs],
                           "mode": mode, "value": _number(a.get("value")) or 0.0}
        case "Cast":
            to = a.get("DstT")
            return "Cast", {"to": None if to is None else getattr(to, "name", str(to))}
        case "Einsum":
            return "Einsum", {"equation": keras_describe.equation(_text(a.get("equation", "")))}
        case "OneHot":
            return "OneHot", {"depth": _ints(a.get("depth")), "axis": int(a.get("axis", -1))}
        case "DepthToSpace" | "SpaceToDepth":
            return op_type, {"blocksize": int(a["block_size"]), **({"mode": "DCR"} if op_type[0] == "D" else {})}
        case "ResizeBilinear" | "ResizeNearestNeighbor" | "ResizeBicubic":
            return "Resize", _tf_resize(op_type, a)
    return None


def _tf_resize(op_type: str, a: P) -> Attrs:
    mode = {"ResizeBilinear": "bilinear", "ResizeNearestNeighbor": "nearest", "ResizeBicubic": "bicubic"}[op_type]
    attrs = keras_describe.resize_attrs(mode)
    if a.get("align_corners"):
        attrs["coordinate_transformation_mode"] = "align_corners"
    elif not a.get("half_pixel_centers"):
        attrs["coordinate_transformation_mode"] = "asymmetric"
        if mode == "nearest":
            attrs["nearest_mode"] = "floor"
    if mode == "bicubic" and not a.get("half_pixel_centers"):
        attrs.update(cubic_coeff_a=-0.75, exclude_outside=0)
    return {**attrs, "scales": None, "sizes": _ints(a.get("size"))}
