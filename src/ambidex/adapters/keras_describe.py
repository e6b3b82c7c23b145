"""Operators, attributes and layouts of Keras 3 layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from ambidex.adapters import keras_activations, keras_recurrent
from ambidex.adapters.keras_words import (
    FIRST,
    LAST,
    Attrs,
    Translation,
    channel_layout,
    class_name,
    conv_attrs,
    einsum_plan,
    equation,
    input_shapes,
    negative,
    own_class,
    rank_of,
    spatial_layout,
    transpose_padding,
    window_padding,
)

# ---------------------------------------------------------------- linear


def _einsum(layer: Any, ndim: int | None) -> Translation:
    if einsum_plan(layer) is not None:
        return Translation("Gemm")
    return Translation("Einsum", {"equation": equation(layer.equation)})


# ---------------------------------------------------------------- convolution and pooling


def _conv(layer: Any, ndim: int | None) -> Translation:
    return Translation("Conv", conv_attrs(layer, layer.groups), spatial_layout(layer.rank, layer.data_format))


def _depthwise(layer: Any, ndim: int | None) -> Translation:
    return Translation(
        "Conv", conv_attrs(layer, int(layer.kernel.shape[-2])), spatial_layout(layer.rank, layer.data_format)
    )


def _conv_transpose(layer: Any, ndim: int | None) -> Translation:
    begin, end, extra = [], [], []
    given = layer.output_padding or [None] * layer.rank
    for size, s, d, op in zip(layer.kernel_size, layer.strides, layer.dilation_rate, given, strict=True):
        b, e, x = transpose_padding(size, s, d, layer.padding, op)
        begin.append(b)
        end.append(e)
        extra.append(x)
    return Translation(
        "ConvTranspose",
        {
            "kernel_shape": list(layer.kernel_size),
            "strides": list(layer.strides),
            "dilations": list(layer.dilation_rate),
            "group": 1,
            "pads": begin + end,
            "output_padding": extra,
            "auto_pad": "NOTSET",
        },
        spatial_layout(layer.rank, layer.data_format),
    )


def _pool(layer: Any, ndim: int | None) -> Translation:
    kernel, strides = list(layer.pool_size), list(layer.strides)
    n = len(kernel)
    attrs: Attrs = {
        "kernel_shape": kernel,
        "strides": strides,
        "dilations": [1] * n,
        "ceil_mode": False,
        **window_padding(layer.padding, kernel, strides, [1] * n),
    }
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


# ---------------------------------------------------------------- normalisation


def _batch_norm(layer: Any, ndim: int | None) -> Translation | None:
    layout = channel_layout(layer.axis, rank_of(layer, ndim))
    if layout is None or layer.renorm:
        return None
    return Translation(
        "BatchNormalization",
        {
            "epsilon": float(layer.epsilon),
            "momentum": float(layer.momentum),
            "unbiased": False,
            "training_mode": False,
        },
        layout,
    )


def _norm_axis(layer: Any, ndim: int | None) -> int | list[int]:
    """The first normalised axis when they are the trailing ones, else all of them."""
    axes = list(layer.axis) if isinstance(layer.axis, Sequence) else [layer.axis]
    rank = rank_of(layer, ndim)
    axes = sorted(negative(int(a), rank) for a in axes)
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
    axes = [negative(int(a), rank_of(layer, ndim)) for a in axes]
    return axes[0] if len(axes) == 1 else axes


def _layer_norm(layer: Any, ndim: int | None) -> Translation:
    op = "LayerNormalizationRmsScaling" if layer.rms_scaling else "LayerNormalization"
    return Translation(op, {"axis": _norm_axis(layer, ndim), "epsilon": float(layer.epsilon)})


def _group_norm(layer: Any, ndim: int | None) -> Translation | None:
    layout = channel_layout(layer.axis, rank_of(layer, ndim))
    if layout is None:
        return None
    return Translation("GroupNormalization", {"num_groups": int(layer.groups), "epsilon": float(layer.epsilon)}, layout)


def _standardize(layer: Any, ndim: int | None) -> Translation:
    return Translation(
        "Standardize",
        {"axis": [int(a) for a in layer.axis], "epsilon": float(keras.backend.epsilon()), "invert": bool(layer.invert)},
    )


# ---------------------------------------------------------------- activations and shapes


def _activation(layer: Any, ndim: int | None) -> Translation | None:
    op, attrs = keras_activations.canonical(layer.activation)
    return Translation(op, _with_axis(attrs, rank_of(layer, ndim))) if op else None


def _with_axis(attrs: Attrs, ndim: int | None) -> Attrs:
    if isinstance(attrs.get("axis"), int):
        return {**attrs, "axis": negative(attrs["axis"], ndim)}
    return attrs


def _relu(layer: Any, ndim: int | None) -> Translation | None:
    op, attrs = keras_activations.named(
        "relu", {"negative_slope": layer.negative_slope, "max_value": layer.max_value, "threshold": layer.threshold}
    ) or ("", {})
    return Translation(op, attrs) if op else None


def _softmax(layer: Any, ndim: int | None) -> Translation:
    axis, rank = layer.axis, rank_of(layer, ndim)
    if isinstance(axis, Sequence):
        axes = [negative(int(a), rank) for a in axis]
        return Translation("Softmax", {"axis": axes[0] if len(axes) == 1 else axes})
    return Translation("Softmax", {"axis": negative(int(axis), rank)})


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
    return Translation(
        "Pad", {"pads": pads, "mode": "constant", "value": 0.0}, spatial_layout(len(pads) // 2, layer.data_format)
    )


def _crop(layer: Any, ndim: int | None) -> Translation:
    pads = [-p for p in _pads(layer.cropping)]
    return Translation(
        "Pad",
        {"pads": pads, "mode": "constant", "value": 0.0},
        spatial_layout(len(pads) // 2, getattr(layer, "data_format", None)),
    )


def resize_attrs(interpolation: str, antialias: bool = False) -> Attrs:
    """Attributes of keras.ops.image.resize: half-pixel centres; the interpolations ONNX lacks keep Keras' name.

    Bicubic is Keys' with a = -0.5 and weights outside the image left out; only the torch backend has a = -0.75 and
    repeats the border, unless it antialiases.
    """
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(interpolation, interpolation)
    attrs: Attrs = {
        "mode": mode,
        "coordinate_transformation_mode": "half_pixel",
        "nearest_mode": "round_prefer_ceil",
        "antialias": bool(antialias and mode != "nearest"),
    }
    if mode == "cubic":
        plain = None if attrs["antialias"] else keras.backend.backend()
        attrs.update(cubic_coeff_a=-0.75 if plain == "torch" else -0.5, exclude_outside=plain != "torch")
        if plain == "tensorflow":
            attrs["coordinate_steps"] = 1024  # TensorFlow looks its weights up in a table of so many sub-pixel places
    return attrs


def _upsampling(layer: Any, ndim: int | None) -> Translation:
    size = list(layer.size) if isinstance(layer.size, Sequence) else [layer.size]
    mode = getattr(layer, "interpolation", "nearest")
    attrs = resize_attrs(mode)
    if mode == "nearest":  # a repeat: for whole factors the same as 'asymmetric' with 'floor'
        attrs.update(coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    return Translation(
        "Resize",
        {**attrs, "scales": [float(s) for s in size], "sizes": None},
        spatial_layout(len(size), getattr(layer, "data_format", None)),
    )


def _resizing(layer: Any, ndim: int | None) -> Translation | None:
    if layer.crop_to_aspect_ratio or layer.pad_to_aspect_ratio:
        return None
    return Translation(
        "Resize",
        {
            **resize_attrs(layer.interpolation, layer.antialias),
            "scales": None,
            "sizes": [int(layer.height), int(layer.width)],
        },
        spatial_layout(2, layer.data_format),
    )


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


def multi_head_scale(layer: Any) -> str:
    """The attribute in which a multi-head attention layer keeps its scale; "" for any other layer."""
    names = ("_inverse_sqrt_key_dim", "_inverse_sqrt_head_dim")
    return next((n for n in names if hasattr(layer, n)), "")


def attention_attrs(layer: Any) -> Attrs:
    """What the attention core of a Keras attention layer computes; whether it is causal is an argument of its call.

    ``masked_row`` says what a query gets that may see nothing: "uniform" is the mean of all values, "zero" is zero.
    Keras' multi-head layers take the first way unless dropout is set or the scores are asked for (also in inference).
    """
    if multi_head_scale(layer):
        heads = getattr(layer, "_num_heads", None) or layer.num_query_heads
        rate = float(getattr(layer, "_dropout", getattr(layer, "dropout", 0.0)) or 0.0)
        scale = float(getattr(layer, multi_head_scale(layer)))
        attrs: Attrs = {
            "scale": scale,
            "num_heads": int(heads),
            "is_causal": None,
            "softmax_axis": -1,
            "masked_row": "zero" if rate > 0 else "uniform",
        }
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
        "RMSNormalization", {"axis": _norm_axis(layer, ndim), "epsilon": float(layer.epsilon)}
    ),
    "GroupNormalization": _group_norm,
    "UnitNormalization": lambda layer, ndim: Translation(
        "LpNormalization", {"axis": _unit_axis(layer, ndim), "p": 2, "epsilon": 1e-12}
    ),
    "Normalization": _standardize,
    "Embedding": lambda layer, ndim: Translation(
        "Gather", {"axis": 0, "padding_idx": None, "mask_zero": bool(layer.mask_zero)}
    ),
    "ReversibleEmbedding": lambda layer, ndim: Translation(
        "Gather", {"axis": 0, "padding_idx": None, "mask_zero": bool(layer.mask_zero)}
    ),
    **dict.fromkeys(("LSTM", "GRU", "SimpleRNN", "RNN"), keras_recurrent.rnn),
    "Bidirectional": keras_recurrent.bidirectional,
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
        "Reshape", {"shape": [0, *(-1 if d is None else int(d) for d in layer.target_shape)]}
    ),
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
    "Concatenate": lambda layer, ndim: Translation("Concat", {"axis": negative(int(layer.axis), rank_of(layer, ndim))}),
    "Dot": _dot,
    "Rescaling": lambda layer, ndim: Translation(
        "Affine", {"alpha": _numbers(layer.scale), "beta": _numbers(layer.offset)}
    ),
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
