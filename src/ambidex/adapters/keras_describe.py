"""Operators, attributes and layouts of Keras 3 layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from ambidex.adapters import keras_activations, keras_attention, keras_recurrent, keras_resize
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
    **{f"UpSampling{n}D": keras_resize.upsampling for n in (1, 2, 3)},
    "Resizing": keras_resize.resizing,
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
    "Attention": keras_attention.attention,
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
