"""Small Keras models built from canonical layers: what the rules' examples are run on.

As ``torch_build``: ``build(layers)`` takes one :class:`ambidex.core.rule.Side` or several in a row. Input shapes of a
side are canonical (channels first); the Keras model is channels last, :func:`arrays` turns inputs for it.
UnsupportedError for what Keras has no layer for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import layers as L

from ambidex.adapters import keras_
from ambidex.adapters.build_words import Shape, Weights, fill, numbers
from ambidex.core.rule import Side
from ambidex.core.types import Array
from ambidex.errors import UnsupportedError

#: operators whose input is an image or a signal with channels: those of three and more axes are turned
_IMAGES = {
    "Conv",
    "ConvTranspose",
    "BatchNormalization",
    "GroupNormalization",
    "InstanceNormalization",
    "MaxPool",
    "AveragePool",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "Resize",
    "Pad",
}
_INTEGER = {"Gather"}


def build(
    layers: Side | Sequence[Side], weights: Weights | None = None, seed: int = 0, *, plain: bool = False
) -> keras.Model:
    """A functional model. ``weights``: by the place of a layer ("0", "1", ...) and role, over the sides' own.

    ``plain``: only what Keras has as one layer, without a padding or cropping layer beside it.
    """
    sides = [layers] if isinstance(layers, Side) else list(layers)
    turned = _turned(sides[0])
    inputs = [
        keras.Input(_last(shape)[1:] if turned else shape[1:], dtype="int32" if sides[0].op in _INTEGER else "float32")
        for shape in sides[0].inputs
    ]
    values: Any = inputs if len(inputs) > 1 else inputs[0]
    for i, side in enumerate(sides):
        make = _TABLE.get(side.op)
        if make is None:
            raise UnsupportedError(f"Keras has no layer for {side.op}")
        values = make(side.attrs, sides[0].inputs[0], values, f"layer_{i}")
    model = keras.Model(inputs if len(inputs) > 1 else inputs[0], values)
    if plain and len(model.operations) > len(inputs) + len(sides):
        raise UnsupportedError(
            f"Keras has no single layer for {', '.join(side.op for side in sides)} with these attributes"
        )
    fill(keras_.wrap(model), sides, weights or {}, [seed, 18])
    return model


def arrays(side: Side, canonical: Sequence[Array]) -> list[Array]:
    """Canonical inputs as the Keras model takes them: images with the channels last."""
    return [np.ascontiguousarray(np.moveaxis(x, 1, -1)) for x in canonical] if _turned(side) else list(canonical)


def _turned(side: Side) -> bool:
    return side.op in _IMAGES and len(side.inputs[0]) > 2


def _last(shape: Shape) -> Shape:
    return (shape[0], *shape[2:], shape[1])


def _keras_pads(pads: Sequence[int], n: int) -> Any:
    pairs = tuple((pads[i], pads[n + i]) for i in range(n))
    return pairs if n > 1 else pairs[0]


def _window(a: Mapping[str, Any], n: int, x: Any, value: float = 0.0) -> tuple[Any, str]:
    """(the input, padded when needed, and the padding that the layer itself takes)."""
    if a.get("auto_pad") == "SAME_UPPER":
        return x, "same"
    pads = numbers(a, "pads", 2 * n, 0)
    if not any(pads):
        return x, "valid"
    if value == 0.0:
        return getattr(L, f"ZeroPadding{n}D")(_keras_pads(pads, n))(x), "valid"
    pairs = [(0, 0), *((pads[i], pads[n + i]) for i in range(n)), (0, 0)]
    return keras.ops.pad(x, pairs, constant_values=value), "valid"


def _named_padding(a: Mapping[str, Any], n: int) -> str:
    """'same' or 'causal' where these pads are that for every size (stride 1); else ""."""
    pads, strides = numbers(a, "pads", 2 * n, 0), numbers(a, "strides", n)
    reach = [(k - 1) * d for k, d in zip(numbers(a, "kernel_shape", n), numbers(a, "dilations", n), strict=True)]
    if any(s != 1 for s in strides) or not any(pads):
        return ""
    if pads == [*(r // 2 for r in reach), *(r - r // 2 for r in reach)]:
        return "same"
    return "causal" if n == 1 and pads == [reach[0], 0] else ""


def _conv(a: Mapping[str, Any], shape: Shape, x: Any, name: str) -> Any:
    n = len(shape) - 2
    if a.get("pad_mode", "constant") != "constant" and any(numbers(a, "pads", 2 * n, 0)):
        raise UnsupportedError("Keras convolutions pad with zeros only")
    padding = _named_padding(a, n)
    if not padding:
        x, padding = _window(a, n, x)
    return getattr(L, f"Conv{n}D")(
        a.get("out", 4),
        numbers(a, "kernel_shape", n),
        numbers(a, "strides", n),
        padding,
        dilation_rate=numbers(a, "dilations", n),
        groups=a.get("group", 1),
        name=name,
    )(x)


def _conv_transpose(a: Mapping[str, Any], shape: Shape, x: Any, name: str) -> Any:
    n = len(shape) - 2
    kernel, strides = numbers(a, "kernel_shape", n), numbers(a, "strides", n)
    pads, extra = numbers(a, "pads", 2 * n, 0), numbers(a, "output_padding", n, 0)
    same = (
        [(k - s) // 2 for k, s in zip(kernel, strides, strict=True)],
        [-((s - k) // 2) for k, s in zip(kernel, strides, strict=True)],
    )
    if any(k < s for k, s in zip(kernel, strides, strict=True)) or a.get("group", 1) != 1:
        raise UnsupportedError("this transposed convolution has no plain Keras counterpart")
    make = getattr(L, f"Conv{n}DTranspose")
    out = a.get("out", 4)
    if (pads[:n], pads[n:]) == same and not any(extra):
        return make(out, kernel, strides, "same", name=name)(x)
    y = make(out, kernel, strides, "valid", name=name)(x)
    end = [p - e for p, e in zip(pads[n:], extra, strict=True)]
    if any(e < 0 for e in end):
        raise UnsupportedError("Keras cannot add to the end of a transposed convolution")
    cut = [*pads[:n], *end]
    return getattr(L, f"Cropping{n}D")(_keras_pads(cut, n))(y) if any(cut) else y


def _pool(op: str) -> Callable[..., Any]:
    def make(a: Mapping[str, Any], shape: Shape, x: Any, name: str) -> Any:
        n = len(shape) - 2
        if a.get("ceil_mode"):
            raise UnsupportedError("Keras pools have no ceil_mode")
        kernel, strides = numbers(a, "kernel_shape", n), numbers(a, "strides", n)
        pads = numbers(a, "pads", 2 * n, 0)
        counts = bool(a.get("count_include_pad", False))
        if op == "AveragePool" and any(pads) and not counts:
            raise UnsupportedError("Keras' average pooling leaves padding out only with 'same'")
        if op == "AveragePool" and counts and a.get("auto_pad") == "SAME_UPPER":
            raise UnsupportedError("Keras' average pooling with 'same' leaves padding out")
        x, padding = _window(a, n, x, -np.inf if op == "MaxPool" else 0.0)
        return getattr(L, f"{'Max' if op == 'MaxPool' else 'Average'}Pooling{n}D")(kernel, strides, padding, name=name)(
            x
        )

    return make


def _recurrent(op: str) -> Callable[..., Any]:
    def make(a: Mapping[str, Any], shape: Shape, x: Any, name: str) -> Any:
        names = [_activation_name(v) for v in a.get("activations") or {"RNN": ["Tanh"]}.get(op, ["Sigmoid", "Tanh"])]
        more: dict[str, Any] = {"recurrent_activation": names[0]} if op != "RNN" else {}
        if op == "GRU":
            more["reset_after"] = bool(a.get("linear_before_reset", 1))
        cls = getattr(L, {"RNN": "SimpleRNN"}.get(op, op))
        layer = cls(
            a.get("hidden_size", 4),
            activation=names[-1],
            return_sequences=True,
            name=name,
            go_backwards=a.get("direction") == "reverse",
            **more,
        )
        return (L.Bidirectional(layer, name=name) if a.get("direction") == "bidirectional" else layer)(x)

    return make


def _activation_name(op: str) -> str:
    return {"HardSigmoid": "hard_sigmoid"}.get(op, op.lower())


def _resize(a: Mapping[str, Any], shape: Shape, x: Any, name: str) -> Any:
    coordinates, mode = (
        a.get("coordinate_transformation_mode"),
        {"linear": "bilinear", "cubic": "bicubic"}.get(a["mode"], a["mode"]),
    )
    if coordinates == "align_corners" or (mode == "nearest" and bool(a.get("scales")) != (coordinates == "asymmetric")):
        raise UnsupportedError("Keras resizes with half-pixel centres only")
    if a.get("scales"):
        return L.UpSampling2D([int(v) for v in a["scales"]], interpolation=mode, name=name)(x)
    return L.Resizing(*a["sizes"], interpolation=mode, antialias=bool(a.get("antialias")), name=name)(x)


def _pad(a: Mapping[str, Any], shape: Shape, x: Any, name: str) -> Any:
    n = len(shape) - 2
    if a.get("value", 0.0) != 0.0 or a.get("mode", "constant") != "constant":
        raise UnsupportedError("ZeroPadding pads with zeros only")
    return getattr(L, f"ZeroPadding{n}D")(_keras_pads(numbers(a, "pads", 2 * n, 0), n), name=name)(x)


def _attention(a: Mapping[str, Any], shape: Shape, x: Any, name: str) -> Any:
    heads = a.get("num_heads", 1)
    q, k, v = x
    layer = L.MultiHeadAttention(heads, shape[-1] // heads, name=name)
    return layer(q, v, key=k, use_causal_mask=bool(a.get("is_causal", False)))


def _norm_axes(axis: Any) -> Any:
    return list(range(axis, 0)) if isinstance(axis, int) and axis < -1 else axis


def _plain(make: Callable[[Mapping[str, Any]], Any]) -> Callable[..., Any]:
    """A layer that needs nothing but its attributes and a name."""

    def call(a: Mapping[str, Any], shape: Shape, x: Any, name: str) -> Any:
        layer = make(a)
        return layer(x) if isinstance(layer, L.Layer) else L.Activation(layer, name=name)(x)

    return call


def _hard_sigmoid(a: Mapping[str, Any]) -> Any:
    if abs(a.get("alpha", 0.2) - 1 / 6) > 1e-9:
        raise UnsupportedError("Keras 3's hard sigmoid has the slope 1/6 only")
    return "hard_sigmoid"


def _softplus(a: Mapping[str, Any]) -> Any:
    if a.get("beta", 1.0) != 1.0:
        raise UnsupportedError("Keras' softplus has no beta")
    return "softplus"


def _clip(a: Mapping[str, Any]) -> Any:
    if (a["min"], a["max"]) == (-1, 1):
        return "hard_tanh"
    if a["min"] != 0:
        raise UnsupportedError("Keras clips from zero only, as a layer")
    return L.ReLU(max_value=a["max"])


_TABLE: dict[str, Callable[..., Any]] = {
    "Gemm": lambda a, s, x, name: L.Dense(a.get("out", 4), use_bias=a.get("bias", True), name=name)(x),
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "BatchNormalization": lambda a, s, x, name: L.BatchNormalization(epsilon=a["epsilon"], name=name)(x),
    "LayerNormalization": lambda a, s, x, name: L.LayerNormalization(
        axis=_norm_axes(a.get("axis", -1)),
        epsilon=a["epsilon"],
        scale=a.get("affine", True),
        center=a.get("affine", True) and a.get("bias", True),
        name=name,
    )(x),
    "RMSNormalization": lambda a, s, x, name: L.RMSNormalization(
        axis=_norm_axes(a.get("axis", -1)), epsilon=a["epsilon"], name=name
    )(x),
    "GroupNormalization": lambda a, s, x, name: L.GroupNormalization(a["num_groups"], epsilon=a["epsilon"], name=name)(
        x
    ),
    "InstanceNormalization": lambda a, s, x, name: L.GroupNormalization(-1, epsilon=a["epsilon"], name=name)(x),
    "Gather": lambda a, s, x, name: L.Embedding(a.get("rows", 11), a.get("out", 4), name=name)(x),
    **{op: _recurrent(op) for op in ("LSTM", "GRU", "RNN")},
    **{
        op: _plain(lambda a, n=n: n)
        for op, n in (
            ("Relu", "relu"),
            ("Sigmoid", "sigmoid"),
            ("Tanh", "tanh"),
            ("Softsign", "softsign"),
            ("HardSwish", "hard_swish"),
            ("Mish", "mish"),
            ("LogSigmoid", "log_sigmoid"),
            ("TanhShrink", "tanh_shrink"),
            ("Selu", "selu"),
            ("Swish", "silu"),
            ("Identity", "linear"),
        )
    },
    "Gelu": _plain(lambda a: lambda x: keras.activations.gelu(x, approximate=a.get("approximate") == "tanh")),
    "LeakyRelu": _plain(lambda a: L.LeakyReLU(negative_slope=a["alpha"])),
    "Elu": _plain(lambda a: L.ELU(alpha=a["alpha"])),
    "Celu": _plain(lambda a: lambda x: keras.activations.celu(x, alpha=a["alpha"])),
    "HardSigmoid": _plain(_hard_sigmoid),
    "Softplus": _plain(_softplus),
    "Clip": _plain(_clip),
    "Softmax": _plain(lambda a: L.Softmax(axis=a.get("axis", -1))),
    "LogSoftmax": _plain(lambda a: lambda x: keras.activations.log_softmax(x, axis=a.get("axis", -1))),
    "MaxPool": _pool("MaxPool"),
    "AveragePool": _pool("AveragePool"),
    **{
        op: (
            lambda a, s, x, name, op=op: getattr(L, f"{op.removesuffix('Pool')}Pooling{len(s) - 2}D")(
                keepdims=bool(a.get("keepdims", True)), name=name
            )(x)
        )
        for op in ("GlobalAveragePool", "GlobalMaxPool")
    },
    "Dropout": _plain(lambda a: L.Dropout(a.get("ratio", 0.5))),
    "Flatten": lambda a, s, x, name: L.Flatten(name=name)(x),
    "Resize": _resize,
    "Pad": _pad,
    "Attention": _attention,
}
