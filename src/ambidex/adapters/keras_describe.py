"""Operators, attributes and layouts of Keras 3 layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np

from ambidex.adapters import keras_activations

LAST = {1: "NLC", 2: "NHWC", 3: "NDHWC"}
FIRST = {1: "NCL", 2: "NCHW", 3: "NCDHW"}
Attrs = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Translation:
    """A layer in canonical words (docs/canonical.md); ``layout`` names the axes of its main input, or is ""."""

    op: str
    attrs: Attrs = field(default_factory=dict)
    layout: str = ""


#: methods a user's subclass may replace without changing what the layer computes from its weights
_HARMLESS = {
    "__init__", "__doc__", "__module__", "__qualname__", "__dict__", "__weakref__", "__annotations__", "__reduce__",
    "__firstlineno__", "__static_attributes__", "__abstractmethods__", "_abc_impl", "__hash__", "__repr__",
    "get_config", "from_config", "build", "build_from_config", "get_build_config", "compute_output_shape",
    "compute_output_spec", "compute_mask", "count_params", "summary", "save_own_variables", "load_own_variables",
    "get_quantization_layer_structure", "variable_serialization_spec",
}


def own_class(layer: Any) -> type | None:
    """The class of Keras whose computation the layer runs; None when a subclass outside Keras replaces some of it."""
    replaced: set[str] = set()
    for cls in type(layer).__mro__:
        if cls.__module__.startswith("keras.src."):
            inherited = {name for base in cls.__mro__ for name in vars(base)}
            return None if (replaced - _HARMLESS) & inherited else cls
        replaced |= set(vars(cls))
    return None


def input_shapes(layer: Any) -> list[tuple[int | None, ...]]:
    """The shapes the layer was built with, one an input; empty when it does not know."""
    shapes = getattr(layer, "_build_shapes_dict", None) or {}
    found = []
    for value in shapes.values():
        if value and isinstance(value[0], list | tuple):
            found += [tuple(v) for v in value]
        elif value is not None:
            found.append(tuple(value))
    return found


def rank_of(layer: Any, ndim: int | None) -> int | None:
    if ndim is not None:
        return ndim
    spec = getattr(layer, "input_spec", None)
    if spec is not None and getattr(spec, "ndim", None):
        return int(spec.ndim)
    shapes = input_shapes(layer)
    return len(shapes[0]) if shapes else None


def _negative(axis: int, ndim: int | None) -> int:
    return axis if axis < 0 or ndim is None else axis - ndim


def spatial_layout(rank: int, data_format: str | None) -> str:
    """The layout of ``rank`` spatial axes."""
    return (FIRST if data_format == "channels_first" else LAST)[rank]


def _channel_layout(axis: int, ndim: int | None) -> str | None:
    """The layout in which ``axis`` is the channel; None when no name of a layout says so."""
    if ndim is None:
        return "" if axis == -1 else None
    axis %= ndim
    if ndim == 2 and axis == 1:
        return ""
    if axis == 0 or ndim < 3:
        return None
    if axis == ndim - 1:
        return LAST.get(ndim - 2)
    if axis == 1:
        return FIRST.get(ndim - 2)
    return None


# ---------------------------------------------------------------- linear


@dataclass(frozen=True, slots=True)
class EinsumPlan:
    """How an EinsumDense kernel becomes a (out, in) matrix: axes of the kernel, and which of them the bias has."""

    out_axes: tuple[int, ...]
    in_axes: tuple[int, ...]
    bias_axes: tuple[int, ...]  # for each output axis: its axis in the bias, -1 where the bias is broadcast


def einsum_plan(layer: Any) -> EinsumPlan | None:
    """The plan of an EinsumDense that contracts trailing input axes and appends output axes; None for any other."""
    equation = layer.equation.replace(" ", "").replace("...", "0")
    inputs, rest = equation.split(",")
    kernel, output = rest.split("->")
    if "0" in kernel or len({*inputs}) != len(inputs) or len({*kernel}) != len(kernel):
        return None
    contracted = [c for c in inputs if c in kernel and c not in output]
    appended = [c for c in output if c in kernel and c not in inputs]
    free = [c for c in inputs if c not in kernel]
    if not contracted or not appended or len(contracted) + len(appended) != len(kernel):
        return None
    if list(inputs) != free + contracted or list(output) != free + appended:
        return None
    bias = [c for c in output if c in (layer.bias_axes or "")]
    if any(c not in appended for c in bias):
        return None
    if bias:
        # Keras gives the bias the axes from the first named one on; those not named have size 1
        tail = appended[appended.index(bias[0]):]
        axes = [tail.index(c) if c in bias else -1 for c in appended]
    else:
        axes = []
    return EinsumPlan(tuple(map(kernel.index, appended)), tuple(map(kernel.index, contracted)), tuple(axes))


def equation(text: str) -> str:
    """The equation with letters in order of appearance, so that two spellings of one are equal."""
    names: dict[str, str] = {}
    out = ""
    for c in text.replace(" ", ""):
        out += names.setdefault(c, chr(ord("a") + len(names))) if c.isalpha() else c
    return out


def _einsum(layer: Any, ndim: int | None) -> Translation:
    if einsum_plan(layer) is not None:
        return Translation("Gemm")
    return Translation("Einsum", {"equation": equation(layer.equation)})


# ---------------------------------------------------------------- convolution and pooling


def window_padding(padding: str, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Attrs:
    """``pads`` and ``auto_pad``; 'same' is written as explicit pads where they do not depend on the input's size."""
    n = len(kernel)
    reach = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
    if padding == "causal":
        return {"pads": [*reach, *[0] * n], "auto_pad": "NOTSET"}
    if padding == "same":
        if any(s > 1 and r > 0 for s, r in zip(strides, reach, strict=True)):
            return {"pads": [0] * (2 * n), "auto_pad": "SAME_UPPER"}
        begin = [r // 2 for r in reach]
        return {"pads": [*begin, *[r - b for r, b in zip(reach, begin, strict=True)]], "auto_pad": "NOTSET"}
    return {"pads": [0] * (2 * n), "auto_pad": "NOTSET"}


def conv_attrs(layer: Any, group: int) -> Attrs:
    kernel, strides, dilations = list(layer.kernel_size), list(layer.strides), list(layer.dilation_rate)
    return {
        "kernel_shape": kernel, "strides": strides, "dilations": dilations, "group": group,
        **window_padding(layer.padding, kernel, strides, dilations), "pad_mode": "constant",
    }


def _conv(layer: Any, ndim: int | None) -> Translation:
    return Translation("Conv", conv_attrs(layer, layer.groups), spatial_layout(layer.rank, layer.data_format))


def _depthwise(layer: Any, ndim: int | None) -> Translation:
    return Translation("Conv", conv_attrs(layer, int(layer.kernel.shape[-2])),
                       spatial_layout(layer.rank, layer.data_format))


def _conv_transpose(layer: Any, ndim: int | None) -> Translation:
    begin, end, extra = [], [], []
    given = layer.output_padding or [None] * layer.rank
    for size, s, d, op in zip(layer.kernel_size, layer.strides, layer.dilation_rate, given, strict=True):
        b, e, x = transpose_padding(size, s, d, layer.padding, op)
        begin.append(b)
        end.append(e)
        extra.append(x)
    return Translation("ConvTranspose", {
        "kernel_shape": list(layer.kernel_size), "strides": list(layer.strides),
        "dilations": list(layer.dilation_rate), "group": 1, "pads": begin + end, "output_padding": extra,
        "auto_pad": "NOTSET",
    }, spatial_layout(layer.rank, layer.data_format))


def transpose_padding(kernel: int, stride: int, dilation: int, padding: str, given: int | None) -> tuple[int, int, int]:
    """(begin, end, output_padding) of one axis of a Keras transposed convolution.

    The output of size (n-1)*stride + reach is cropped: 'same' takes off reach - stride (to n*stride), or with an
    explicit output_padding reach - reach % 2 - output_padding; the smaller half at the beginning. A negative crop is
    output padding. The torch backend rounds the half the other way.
    """
    reach = (kernel - 1) * dilation + 1
    if padding == "valid":
        return 0, 0, max(stride - reach, 0) if given is None else given
    if keras.backend.backend() == "torch":
        wanted = stride - reach % 2 if given is None else given
        begin = max(-((reach % 2 - reach + wanted) // 2), 0)
        extra = min(2 * begin + reach % 2 - reach + wanted, stride - 1)
        return (begin, begin - extra, 0) if extra <= begin else (begin, 0, extra - begin)
    crop = reach - stride if given is None else reach - reach % 2 - given
    return (crop // 2, crop - crop // 2, 0) if crop >= 0 else (0, 0, -crop)


def _pool(layer: Any, ndim: int | None) -> Translation:
    kernel, strides = list(layer.pool_size), list(layer.strides)
    n = len(kernel)
    attrs: Attrs = {"kernel_shape": kernel, "strides": strides, "dilations": [1] * n, "ceil_mode": False,
                    **window_padding(layer.padding, kernel, strides, [1] * n)}
    if layer.pool_mode == "average":
        attrs["count_include_pad"] = False
    op = "MaxPool" if layer.pool_mode == "max" else "AveragePool"
    return Translation(op, attrs, spatial_layout(n, layer.data_format))


def _global_pool(layer: Any, ndim: int | None) -> Translation:
    op = "GlobalAveragePool" if "Average" in class_name(layer) else "GlobalMaxPool"
    n = layer.input_spec.ndim - 2
    return Translation(op, {"keepdims": bool(layer.keepdims)}, spatial_layout(n, layer.data_format))


def _adaptive_pool(layer: Any, ndim: int | None) -> Translation:
    op = "AdaptiveAveragePool" if "Average" in class_name(layer) else "AdaptiveMaxPool"
    size = list(layer.output_size)
    return Translation(op, {"output_size": size}, spatial_layout(len(size), layer.data_format))


def class_name(layer: Any) -> str:
    """The name of the Keras class whose computation the layer runs, else of its own class."""
    return (own_class(layer) or type(layer)).__name__


# ---------------------------------------------------------------- normalisation


def _batch_norm(layer: Any, ndim: int | None) -> Translation | None:
    layout = _channel_layout(layer.axis, rank_of(layer, ndim))
    if layout is None or layer.renorm:
        return None
    return Translation("BatchNormalization", {
        "epsilon": float(layer.epsilon), "momentum": float(layer.momentum), "unbiased": False, "training_mode": False,
    }, layout)


def _norm_axis(layer: Any, ndim: int | None) -> int | list[int]:
    """The first normalised axis when they are the trailing ones, else all of them."""
    axes = list(layer.axis) if isinstance(layer.axis, Sequence) else [layer.axis]
    rank = rank_of(layer, ndim)
    axes = sorted(_negative(int(a), rank) for a in axes)
    return axes[0] if axes == list(range(axes[0], 0)) else axes


def norm_shape(layer: Any, held: Sequence[int]) -> tuple[int, ...]:
    """The shape of a scale over several axes that broadcasts against the input: 1 for axes between normalised ones."""
    axis = _norm_axis(layer, None)
    if not isinstance(axis, list) or any(a >= 0 for a in axis):
        return tuple(held)
    sizes = dict(zip(axis, held, strict=True))
    return tuple(sizes.get(a, 1) for a in range(min(axis), 0))


def _unit_axis(layer: Any, ndim: int | None) -> int | list[int]:
    axes = list(layer.axis) if isinstance(layer.axis, Sequence) else [layer.axis]
    axes = [_negative(int(a), rank_of(layer, ndim)) for a in axes]
    return axes[0] if len(axes) == 1 else axes


def _layer_norm(layer: Any, ndim: int | None) -> Translation:
    op = "LayerNormalizationRmsScaling" if layer.rms_scaling else "LayerNormalization"
    return Translation(op, {"axis": _norm_axis(layer, ndim), "epsilon": float(layer.epsilon)})


def _group_norm(layer: Any, ndim: int | None) -> Translation | None:
    layout = _channel_layout(layer.axis, rank_of(layer, ndim))
    if layout is None:
        return None
    return Translation("GroupNormalization", {"num_groups": int(layer.groups), "epsilon": float(layer.epsilon)}, layout)


def _standardize(layer: Any, ndim: int | None) -> Translation:
    return Translation("Standardize", {"axis": [int(a) for a in layer.axis], "epsilon": float(keras.backend.epsilon()),
                                       "invert": bool(layer.invert)})


# ---------------------------------------------------------------- recurrent


def cell_kind(cell: Any) -> str | None:
    return {"LSTMCell": "LSTM", "GRUCell": "GRU", "SimpleRNNCell": "RNN"}.get((own_class(cell) or object).__name__)


def cell_activations(cell: Any, kind: str) -> list[keras_activations.Activation]:
    """The canonical activations of a cell, in the order of ONNX."""
    inner = keras_activations.canonical(cell.activation)
    if kind == "RNN":
        return [inner]
    gate = keras_activations.canonical(cell.recurrent_activation)
    return [gate, inner, inner] if kind == "LSTM" else [gate, inner]


def _rnn_attrs(layers: Sequence[Any], kind: str, direction: str) -> Attrs | None:
    """Attributes of one or two (bidirectional) recurrent layers; None when they do not fit together."""
    cells = [layer.cell for layer in layers]
    found = [a for cell in cells for a in cell_activations(cell, kind)]
    if len({c.units for c in cells}) != 1 or any(not op for op, _ in found):
        return None
    first, attrs = layers[0], {}
    attrs.update(hidden_size=int(cells[0].units), direction=direction,
                 activations=[[op, a] if a else op for op, a in found])
    attrs.update(return_sequences=bool(first.return_sequences),
                 zero_output_for_mask=bool(getattr(first, "zero_output_for_mask", False)))
    if kind == "GRU":
        if len({bool(c.reset_after) for c in cells}) != 1:
            return None
        attrs["linear_before_reset"] = int(cells[0].reset_after)
    for name in ("dropout", "recurrent_dropout"):
        if getattr(cells[0], name, 0.0):
            attrs[name] = float(getattr(cells[0], name))
    if first.stateful:
        attrs["stateful"] = True
    return attrs


def _rnn(layer: Any, ndim: int | None) -> Translation | None:
    kind = cell_kind(layer.cell)
    if kind is None:
        return None
    attrs = _rnn_attrs([layer], kind, "reverse" if layer.go_backwards else "forward")
    if attrs is None:
        return None
    if layer.go_backwards and layer.return_sequences:
        attrs["keep_reversed"] = True  # Keras hands the steps on in the order it made them, ONNX in the input's
    return Translation(kind, attrs, "NTF")


def _bidirectional(layer: Any, ndim: int | None) -> Translation | None:
    pair = [layer.forward_layer, layer.backward_layer]
    kinds = {cell_kind(x.cell) if hasattr(x, "cell") else None for x in pair}
    if len(kinds) != 1 or None in kinds or layer.forward_layer.go_backwards or any(own_class(x) is None for x in pair):
        return None
    kind = kinds.pop() or ""
    attrs = _rnn_attrs(pair, kind, "bidirectional")
    if attrs is None:
        return None
    attrs["merge"] = layer.merge_mode
    return Translation(kind, attrs, "NTF")


# ---------------------------------------------------------------- activations and shapes


def _activation(layer: Any, ndim: int | None) -> Translation | None:
    op, attrs = keras_activations.canonical(layer.activation)
    return Translation(op, _with_axis(attrs, rank_of(layer, ndim))) if op else None


def _with_axis(attrs: Attrs, ndim: int | None) -> Attrs:
    if isinstance(attrs.get("axis"), int):
        return {**attrs, "axis": _negative(attrs["axis"], ndim)}
    return attrs


def _relu(layer: Any, ndim: int | None) -> Translation | None:
    op, attrs = keras_activations.named("relu", {
        "negative_slope": layer.negative_slope, "max_value": layer.max_value, "threshold": layer.threshold}) or ("", {})
    return Translation(op, attrs) if op else None


def _softmax(layer: Any, ndim: int | None) -> Translation:
    axis, rank = layer.axis, rank_of(layer, ndim)
    if isinstance(axis, Sequence):
        axes = [_negative(int(a), rank) for a in axis]
        return Translation("Softmax", {"axis": axes[0] if len(axes) == 1 else axes})
    return Translation("Softmax", {"axis": _negative(int(axis), rank)})


def slope_axis(shape: Sequence[int]) -> tuple[str, list[int] | None]:
    """Layout of a PReLU slope of this shape (batch axis left out), and the one axis along which it differs.

    None instead of the axis: it differs along several, and stays as Keras has it.
    """
    n = len(shape)
    several = [i for i, s in enumerate(shape) if s != 1]
    if n == 1:
        return "", [0]
    if len(several) == 1 and several[0] == 0 and n - 1 in FIRST:
        return FIRST[n - 1], [0]
    return LAST.get(n - 1, ""), [n - 1] if all(i == n - 1 for i in several) else None


def _prelu(layer: Any, ndim: int | None) -> Translation:
    return Translation("PRelu", {}, slope_axis(tuple(layer.alpha.shape))[0])


def _dropout(op: str) -> Callable[[Any, int | None], Translation]:
    def describe(layer: Any, ndim: int | None) -> Translation:
        attrs: Attrs = {"ratio": float(layer.rate)}
        if "Spatial" in class_name(layer):
            attrs["channelwise"] = True
        return Translation(op, attrs)

    return describe


def _flatten(layer: Any, ndim: int | None) -> Translation | None:
    if layer.data_format == "channels_first" and (rank_of(layer, ndim) or 3) > 2:
        return None  # Keras moves the channel axis to the end before it flattens: two parts
    return Translation("Flatten", {"axis": 1, "end_axis": -1})


def _pads(pairs: Any) -> list[int]:
    pairs = [pairs] if isinstance(pairs[0], int) else list(pairs)
    return [int(p[0]) for p in pairs] + [int(p[1]) for p in pairs]


def _pad(layer: Any, ndim: int | None) -> Translation:
    pads = _pads(layer.padding)
    return Translation("Pad", {"pads": pads, "mode": "constant", "value": 0.0},
                       spatial_layout(len(pads) // 2, layer.data_format))


def _crop(layer: Any, ndim: int | None) -> Translation:
    pads = [-p for p in _pads(layer.cropping)]
    return Translation("Pad", {"pads": pads, "mode": "constant", "value": 0.0},
                       spatial_layout(len(pads) // 2, getattr(layer, "data_format", None)))


def resize_attrs(interpolation: str, antialias: bool = False) -> Attrs:
    """Attributes of keras.ops.image.resize: half-pixel centres; bicubic is Keys' with a = -0.5 and weights outside
    the image left out. The interpolations ONNX lacks keep Keras' name."""
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(interpolation, interpolation)
    attrs: Attrs = {"mode": mode, "coordinate_transformation_mode": "half_pixel",
                    "nearest_mode": "round_prefer_ceil", "antialias": bool(antialias and mode != "nearest")}
    if mode == "cubic":
        attrs.update(cubic_coeff_a=-0.5, exclude_outside=1)
    return attrs


def _upsampling(layer: Any, ndim: int | None) -> Translation:
    size = list(layer.size) if isinstance(layer.size, Sequence) else [layer.size]
    mode = getattr(layer, "interpolation", "nearest")
    attrs = resize_attrs(mode)
    if mode == "nearest":  # a repeat: for whole factors the same as 'asymmetric' with 'floor'
        attrs.update(coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    return Translation("Resize", {**attrs, "scales": [float(s) for s in size], "sizes": None},
                       spatial_layout(len(size), getattr(layer, "data_format", None)))


def _resizing(layer: Any, ndim: int | None) -> Translation | None:
    if layer.crop_to_aspect_ratio or layer.pad_to_aspect_ratio:
        return None
    return Translation("Resize", {**resize_attrs(layer.interpolation, layer.antialias), "scales": None,
                                  "sizes": [int(layer.height), int(layer.width)]},
                       spatial_layout(2, layer.data_format))


def _dot(layer: Any, ndim: int | None) -> Translation | None:
    shapes = input_shapes(layer)
    ranks = [len(s) for s in shapes]
    if len(shapes) != 2:
        return None
    axes = [layer.axes] * 2 if isinstance(layer.axes, int) else list(layer.axes)
    axes = [a % r for a, r in zip(axes, ranks, strict=True)]
    if layer.normalize or ranks == [2, 2]:
        return Translation("Dot", {"axes": axes, "normalize": bool(layer.normalize)})
    left = "".join(chr(ord("a") + i) for i in range(ranks[0]))
    right = "a" + "".join(left[axes[0]] if i == axes[1] else chr(ord("n") + i) for i in range(1, ranks[1]))
    out = left.replace(left[axes[0]], "") + right[1:].replace(left[axes[0]], "")
    return Translation("Einsum", {"equation": equation(f"{left},{right}->{out}")})


def _numbers(value: Any) -> Any:
    return np.asarray(value, "float64").tolist()


def _attention(layer: Any, ndim: int | None) -> Translation | None:
    return None if layer.score_mode != "dot" else Translation("Attention", attention_attrs(layer))


def attention_attrs(layer: Any) -> Attrs:
    """What the attention core of a Keras attention layer computes; whether it is causal is an argument of its call.

    ``masked_row`` says what a query gets that may see nothing: "uniform" is the mean of all values, "zero" is zero.
    Keras' multi-head layers take the first way unless dropout is set or the scores are asked for (also in inference).
    """
    if hasattr(layer, "_inverse_sqrt_key_dim"):
        heads = getattr(layer, "_num_heads", None) or layer.num_query_heads
        rate = float(getattr(layer, "_dropout", getattr(layer, "dropout", 0.0)) or 0.0)
        attrs: Attrs = {"scale": float(layer._inverse_sqrt_key_dim), "num_heads": int(heads), "is_causal": None,
                        "softmax_axis": -1, "masked_row": "zero" if rate > 0 else "uniform"}
        if hasattr(layer, "num_key_value_heads"):
            attrs["kv_num_heads"] = int(layer.num_key_value_heads)
        if rate:
            attrs["ratio"] = rate
        return attrs
    scale = 1.0 if getattr(layer, "scale", None) is None else float(keras.ops.convert_to_numpy(layer.scale))
    attrs = {"scale": scale, "num_heads": 1, "is_causal": None, "softmax_axis": -1, "masked_row": "uniform"}
    if layer.dropout:
        attrs["ratio"] = float(layer.dropout)
    return attrs


def _fixed(op: str, **attrs: Any) -> Callable[[Any, int | None], Translation]:
    return lambda layer, ndim: Translation(op, dict(attrs))


_TABLE: dict[str, Callable[[Any, int | None], Translation | None]] = {
    "Dense": _fixed("Gemm"),
    "EinsumDense": _einsum,
    **{f"Conv{n}D": _conv for n in (1, 2, 3)},
    **{f"Conv{n}DTranspose": _conv_transpose for n in (1, 2, 3)},
    **{f"DepthwiseConv{n}D": _depthwise for n in (1, 2)},
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": lambda layer, ndim: Translation(
        "RMSNormalization", {"axis": _norm_axis(layer, ndim), "epsilon": float(layer.epsilon)}),
    "GroupNormalization": _group_norm,
    "UnitNormalization": lambda layer, ndim: Translation(
        "LpNormalization", {"axis": _unit_axis(layer, ndim), "p": 2, "epsilon": 1e-12}),
    "Normalization": _standardize,
    "Embedding": lambda layer, ndim: Translation(
        "Gather", {"axis": 0, "padding_idx": None, "mask_zero": bool(layer.mask_zero)}),
    "ReversibleEmbedding": lambda layer, ndim: Translation(
        "Gather", {"axis": 0, "padding_idx": None, "mask_zero": bool(layer.mask_zero)}),
    **dict.fromkeys(("LSTM", "GRU", "SimpleRNN", "RNN"), _rnn),
    "Bidirectional": _bidirectional,
    "PReLU": _prelu,
    "LeakyReLU": lambda layer, ndim: Translation("LeakyRelu", {"alpha": float(layer.negative_slope)}),
    "ELU": lambda layer, ndim: Translation("Elu", {"alpha": float(layer.alpha)}),
    "ReLU": _relu,
    "Softmax": _softmax,
    "Activation": _activation,
    **{f"{kind}Pooling{n}D": _pool for kind in ("Max", "Average") for n in (1, 2, 3)},
    **{f"Global{kind}Pooling{n}D": _global_pool for kind in ("Max", "Average") for n in (1, 2, 3)},
    **{f"Adaptive{kind}Pooling{n}D": _adaptive_pool for kind in ("Max", "Average") for n in (1, 2, 3)},
    **dict.fromkeys(("Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D"), _dropout("Dropout")),
    "AlphaDropout": _dropout("AlphaDropout"),
    "GaussianDropout": _dropout("GaussianDropout"),
    "GaussianNoise": lambda layer, ndim: Translation("GaussianNoise", {"stddev": float(layer.stddev)}),
    "Flatten": _flatten,
    "Reshape": lambda layer, ndim: Translation(
        "Reshape", {"shape": [0, *(-1 if d is None else int(d) for d in layer.target_shape)]}),
    "Permute": lambda layer, ndim: Translation("Transpose", {"perm": [0, *map(int, layer.dims)]}),
    **{f"ZeroPadding{n}D": _pad for n in (1, 2, 3)},
    **{f"Cropping{n}D": _crop for n in (1, 2, 3)},
    **{f"UpSampling{n}D": _upsampling for n in (1, 2, 3)},
    "Resizing": _resizing,
    "Add": _fixed("Add", alpha=1.0),
    "Subtract": _fixed("Sub", alpha=1.0),
    "Multiply": _fixed("Mul"),
    "Average": _fixed("Mean"),
    "Maximum": _fixed("Max"),
    "Minimum": _fixed("Min"),
    "Concatenate": lambda layer, ndim: Translation(
        "Concat", {"axis": _negative(int(layer.axis), rank_of(layer, ndim))}),
    "Dot": _dot,
    "Rescaling": lambda layer, ndim: Translation(
        "Affine", {"alpha": _numbers(layer.scale), "beta": _numbers(layer.offset)}),
    "Masking": lambda layer, ndim: Translation("Masking", {"mask_value": _numbers(layer.mask_value)}),
    "RepeatVector": lambda layer, ndim: Translation("RepeatVector", {"n": int(layer.n)}),
    "Identity": _fixed("Identity"),
    "ActivityRegularization": _fixed("Identity"),
    "Attention": _attention,
}


def describe(layer: Any, ndim: int | None = None) -> Translation | None:
    """See :func:`ambidex.adapters.keras_layers.translate`."""
    if hasattr(layer, "translation"):
        found: Translation | None = layer.translation()
        return found
    cls = own_class(layer)
    if cls is None or getattr(layer, "quantization_mode", None) is not None:
        return None
    make = _TABLE.get(cls.__name__)
    return None if make is None else make(layer, ndim)
