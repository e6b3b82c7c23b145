"""Raw TensorFlow operators in canonical words; works on operator types and attributes, without TensorFlow itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ambidex.adapters import keras_activations, keras_resize, keras_words
from ambidex.adapters.keras_functional import Attrs, Found, P, axis_list, index_attrs, ints, number

_TF_PLAIN = {
    "MatMul": "MatMul",
    "BatchMatMul": "MatMul",
    "BatchMatMulV2": "MatMul",
    "BatchMatMulV3": "MatMul",
    "Add": "Add",
    "AddV2": "Add",
    "BiasAdd": "Add",
    "AddN": "Add",
    "Sub": "Sub",
    "Mul": "Mul",
    "RealDiv": "Div",
    "Div": "Div",
    "DivNoNan": "DivNoNan",
    "FloorDiv": "FloorDiv",
    "Pow": "Pow",
    "Maximum": "Max",
    "Minimum": "Min",
    "Neg": "Neg",
    "Sqrt": "Sqrt",
    "Rsqrt": "Rsqrt",
    "Reciprocal": "Reciprocal",
    "Inv": "Reciprocal",
    "Square": "Square",
    "SquaredDifference": "SquaredDifference",
    "Exp": "Exp",
    "Expm1": "Expm1",
    "Log": "Log",
    "Log1p": "Log1p",
    "Erf": "Erf",
    "Erfc": "Erfc",
    "Abs": "Abs",
    "Sign": "Sign",
    "Floor": "Floor",
    "Ceil": "Ceil",
    "Round": "Round",
    "Sin": "Sin",
    "Cos": "Cos",
    "Tan": "Tan",
    "Tanh": "Tanh",
    "Sigmoid": "Sigmoid",
    "Relu": "Relu",
    "Softsign": "Softsign",
    "Select": "Where",
    "SelectV2": "Where",
    "Equal": "Equal",
    "NotEqual": "NotEqual",
    "Less": "Less",
    "LessEqual": "LessOrEqual",
    "Greater": "Greater",
    "GreaterEqual": "GreaterOrEqual",
    "LogicalAnd": "And",
    "LogicalOr": "Or",
    "LogicalNot": "Not",
    "IsNan": "IsNaN",
    "IsInf": "IsInf",
    "Identity": "Identity",
    "StopGradient": "Identity",
    "PreventGradient": "Identity",
    "EnsureShape": "Identity",
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
        pads = keras_words.window_padding(padding.lower(), kernel, strides, dilations)
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
        return _TF_REDUCE[op_type], {"axes": axis_list(a.get("axis")), "keepdims": bool(a.get("keep_dims", False))}
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
            return "BatchNormalization", {
                "epsilon": float(a.get("epsilon", 1e-3)),
                "training_mode": bool(a.get("is_training", False)),
            }
        case "Concat" | "ConcatV2":
            return "Concat", {"axis": ints(a.get("axis"))}
        case "Pack":
            return "Stack", {"axis": int(a.get("axis", 0))}
        case "Unpack":
            return "Unstack", {"axis": int(a.get("axis", 0))}
        case "Split" | "SplitV":
            return "Split", {"axis": ints(a.get("axis")), "num_outputs": ints(a.get("num_split"))}
        case "Transpose":
            return "Transpose", {"perm": axis_list(a.get("perm"))}
        case "Reshape":
            return "Reshape", {"shape": axis_list(a.get("shape"))}
        case "ExpandDims":
            return "Unsqueeze", {"axes": axis_list(a.get("axis"))}
        case "Squeeze":
            return "Squeeze", {"axes": axis_list(list(a.get("squeeze_dims") or ())) or None}
        case "BroadcastTo":
            return "Expand", {"shape": axis_list(a.get("shape"))}
        case "Tile":
            return "Tile", {"repeats": axis_list(a.get("repeats"))}
        case "GatherV2" | "Gather" | "ResourceGather":
            return "Gather", {"axis": 0 if op_type != "GatherV2" else ints(a.get("axis"))}
        case "ArgMax" | "ArgMin":
            return op_type, {"axis": ints(a.get("axis")), "keepdims": False}
        case "Cumsum" | "Cumprod":
            return "CumSum" if op_type == "Cumsum" else "CumProd", {"axis": ints(a.get("axis"))}
        case "StridedSlice":
            return "Slice", index_attrs(a["key"]) if "key" in a else {"index": None}
        case "Slice":
            return "Slice", {"index": None}
        case "Pad" | "PadV2" | "MirrorPad":
            pairs = ints(a.get("paddings"))
            mode = _text(a.get("mode", "constant")).lower()
            return "Pad", {
                "pads": None if pairs is None else [x for x, _ in pairs] + [y for _, y in pairs],
                "mode": mode,
                "value": number(a.get("value")) or 0.0,
            }
        case "Cast":
            to = a.get("DstT")
            return "Cast", {"to": None if to is None else getattr(to, "name", str(to))}
        case "Einsum":
            return "Einsum", {"equation": keras_words.equation(_text(a.get("equation", "")))}
        case "OneHot":
            return "OneHot", {"depth": ints(a.get("depth")), "axis": int(a.get("axis", -1))}
        case "DepthToSpace" | "SpaceToDepth":
            return op_type, {"blocksize": int(a["block_size"]), **({"mode": "DCR"} if op_type[0] == "D" else {})}
        case "ResizeBilinear" | "ResizeNearestNeighbor" | "ResizeBicubic":
            return "Resize", _tf_resize(op_type, a)
    return None


def _tf_resize(op_type: str, a: P) -> Attrs:
    mode = {"ResizeBilinear": "bilinear", "ResizeNearestNeighbor": "nearest", "ResizeBicubic": "bicubic"}[op_type]
    attrs = keras_resize.resize_attrs(mode)
    if a.get("align_corners"):
        attrs["coordinate_transformation_mode"] = "align_corners"
    elif not a.get("half_pixel_centers"):
        attrs["coordinate_transformation_mode"] = "asymmetric"
        if mode == "nearest":
            attrs["nearest_mode"] = "floor"
    if mode == "bicubic" and not a.get("half_pixel_centers"):
        attrs.update(cubic_coeff_a=-0.75, exclude_outside=0)
    return {**attrs, "scales": None, "sizes": ints(a.get("size"))}
