"""Changing a live Keras layer as if it had been built with other canonical attributes, and changing it back.

Attributes that Keras has are set on the layer. What it can compute but has no attribute for (explicit pads, ceil mode,
other resize coordinates) replaces the layer's ``call`` for the time being.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import keras
from keras import ops

from ambidex.adapters import keras_activations, keras_describe, keras_patch_rnn, keras_windows, keras_words
from ambidex.adapters.keras_attention import attention_attrs, multi_head_scale
from ambidex.adapters.keras_edits import Edits, override, refuse, rest
from ambidex.adapters.keras_resize import resize_attrs
from ambidex.core.ops import equal_values

Attrs = dict[str, Any]


@contextmanager
def patched(layer: Any, attrs: Attrs) -> Iterator[None]:
    """See :func:`ambidex.adapters.keras_layers.patch`."""
    edits = Edits()
    try:
        _apply(layer, dict(attrs), edits)
        yield
    finally:
        edits.undo()


def _apply(layer: Any, attrs: Attrs, edits: Edits) -> None:
    if multi_head_scale(layer):
        _multi_head(layer, attrs, edits)
        return
    found = keras_describe.describe(layer)
    fused = None
    if hasattr(layer, "activation") and not hasattr(layer, "cell"):
        fused = keras_activations.canonical(layer.activation)
    if "activation" in attrs:
        _activation(layer, attrs.pop("activation"), edits, found.op if found else "")
    if found is None:
        if attrs:
            name, value = next(iter(attrs.items()))
            raise refuse(layer, name, value, "it has no canonical operator")
        return
    inner = {k: attrs.pop(k) for k in list(attrs) if fused is not None and k in fused[1] and k not in found.attrs}
    if inner and fused is not None:
        edits.set(layer, "activation", keras_activations.function(fused[0], {**fused[1], **inner}))
    changed = {k: v for k, v in attrs.items() if k not in found.attrs or not equal_values(v, found.attrs[k])}
    if changed:
        _HANDLERS.get(found.op, _unknown)(layer, changed, found, edits)


def _unknown(layer: Any, changed: Attrs, found: keras_words.Translation, edits: Edits) -> None:
    name, value = next(iter(changed.items()))
    raise refuse(layer, name, value)


def _activation(layer: Any, value: Any, edits: Edits, op: str) -> None:
    name, attrs = (value, {}) if isinstance(value, str) or value is None else (value[0], value[1])
    fn = keras_activations.function(name or "Identity", attrs)
    if hasattr(layer, "activation") and not hasattr(layer, "cell") and not hasattr(layer, "forward_layer"):
        edits.set(layer, "activation", fn)
    elif op in _ELEMENTWISE:
        override(layer, edits, lambda _, x, *a, **k: fn(x))
    else:
        raise refuse(layer, "activation", value, "it has no activation")


# ---------------------------------------------------------------- normalisation


def _norm(layer: Any, changed: Attrs, found: keras_words.Translation, edits: Edits) -> None:
    for name in ("epsilon", "momentum"):
        if name in changed and hasattr(layer, name):
            edits.set(layer, name, float(changed.pop(name)))
    if "num_groups" in changed:
        groups = int(changed.pop("num_groups"))
        shapes = keras_words.input_shapes(layer)
        channels = shapes[0][layer.axis] if shapes else None
        if channels is not None and channels % groups:
            raise refuse(layer, "num_groups", groups, f"it has {channels} channels")
        edits.set(layer, "groups", groups)
    if "axis" in changed and isinstance(layer.axis, list | tuple):
        axis = changed.pop("axis")
        axes = list(axis) if isinstance(axis, list | tuple) else list(range(int(axis), 0))
        weights = [v for v in (getattr(layer, n, None) for n in ("gamma", "beta", "scale")) if hasattr(v, "shape")]
        shapes = keras_words.input_shapes(layer)
        sizes = tuple(shapes[0][a] for a in axes) if shapes else None
        if weights and (sizes is None or any(tuple(getattr(v, "shape", ())) != sizes for v in weights)):
            raise refuse(layer, "axis", axis, "its weights have another shape")
        edits.set(layer, "axis", axes)
    rest(layer, changed)


def _unit_norm(layer: Any, changed: Attrs, found: keras_words.Translation, edits: Edits) -> None:
    new = {**found.attrs, **changed}
    rest(layer, {k: v for k, v in changed.items() if k not in found.attrs})
    settings = {"axis": new["axis"], "order": int(new["p"]), "epsilon": float(new["epsilon"])}
    override(layer, edits, lambda _, x: ops.normalize(x, **settings))


# ---------------------------------------------------------------- windows


def _is_native(new: Attrs, kernel: list[int], causal: bool) -> str | None:
    """Keras' name of a padding; None when it has none."""
    if new["pad_mode"] != "constant" and any(new["pads"]):
        return None
    auto = new["auto_pad"]
    if auto == "SAME_UPPER":
        return "same"
    if auto == "VALID" or auto == "NOTSET" and not any(new["pads"]):
        return "valid"
    for padding in ("same", "causal") if causal else ("same",):
        if auto == "NOTSET" and keras_words.window_padding(padding, kernel, new["strides"], new["dilations"]) == {
            "pads": new["pads"],
            "auto_pad": "NOTSET",
        }:
            return padding
    return None


def _window(layer: Any, changed: Attrs, found: keras_words.Translation) -> Attrs:
    """The new attributes of a convolution or pool, per axis."""
    new = {"pad_mode": "constant", **found.attrs, **changed}
    n = len(found.attrs["kernel_shape"])
    for name in ("kernel_shape", "strides", "dilations"):
        value = new[name]
        new[name] = [int(value)] * n if isinstance(value, int) else [int(v) for v in value]
    pads = new["pads"]
    new["pads"] = [int(pads)] * (2 * n) if isinstance(pads, int) else [int(v) for v in pads]
    if "pads" in changed and "auto_pad" not in changed:
        new["auto_pad"] = "NOTSET"
    return new


def _conv(layer: Any, changed: Attrs, found: keras_words.Translation, edits: Edits) -> None:
    known = {"strides", "dilations", "pads", "auto_pad", "pad_mode"}
    rest(layer, {k: v for k, v in changed.items() if k not in known})
    new = _window(layer, changed, found)
    edits.set(layer, "strides", tuple(new["strides"]))
    edits.set(layer, "dilation_rate", tuple(new["dilations"]))
    padding = _is_native(new, new["kernel_shape"], keras_words.class_name(layer) == "Conv1D")
    edits.set(layer, "padding", padding or "valid")
    if padding is None:
        axes = keras_windows.spatial_axes(layer.rank, layer.data_format)
        override(layer, edits, lambda call, x, *a, **k: call(keras_windows.pad_window(x, axes, new), *a, **k))


def _pool(layer: Any, changed: Attrs, found: keras_words.Translation, edits: Edits) -> None:
    known = {"kernel_shape", "strides", "pads", "auto_pad", "ceil_mode", "count_include_pad"}
    rest(layer, {k: v for k, v in changed.items() if k not in known})
    new = _window(layer, changed, found)
    padding = _is_native(new, new["kernel_shape"], False)
    counted = bool(new.get("count_include_pad")) and padding != "valid"
    edits.set(layer, "pool_size", tuple(new["kernel_shape"]))
    edits.set(layer, "strides", tuple(new["strides"]))
    if padding is not None and not new["ceil_mode"] and not counted:
        edits.set(layer, "padding", padding)
        return
    axes = keras_windows.spatial_axes(len(new["kernel_shape"]), layer.data_format)
    mode, data_format = layer.pool_mode, layer.data_format
    override(layer, edits, lambda _, x, *a, **k: keras_windows.pool(x, axes, new, mode, data_format))


def _conv_transpose(layer: Any, changed: Attrs, found: keras_words.Translation, edits: Edits) -> None:
    known = {"strides", "dilations", "pads", "output_padding", "auto_pad"}
    rest(layer, {k: v for k, v in changed.items() if k not in known})
    new = _window(layer, changed, found)
    n = layer.rank
    extra = new["output_padding"]
    extra = [int(extra)] * n if isinstance(extra, int) else [int(v) for v in extra]
    edits.set(layer, "strides", tuple(new["strides"]))
    edits.set(layer, "dilation_rate", tuple(new["dilations"]))
    kernel, strides, dilations = new["kernel_shape"], new["strides"], new["dilations"]
    if new["auto_pad"] == "SAME_UPPER":
        edits.set(layer, "padding", "same")
        edits.set(layer, "output_padding", None)
        return
    pads = [0] * (2 * n) if new["auto_pad"] == "VALID" else new["pads"]
    crops = []
    for i, (k, s, d) in enumerate(zip(kernel, strides, dilations, strict=True)):
        reach = (k - 1) * d + 1
        # Keras' 'valid' gives (size - 1) * stride + max(reach, stride): all that can be cropped from
        beyond = extra[i] - pads[n + i] - (max(reach, s) - reach)
        if beyond > 0 or pads[i] < 0:
            raise refuse(layer, "output_padding", extra, "Keras computes no output that far beyond the input")
        crops += [(pads[i], -beyond)]
    edits.set(layer, "padding", "valid")
    edits.set(layer, "output_padding", None)
    axes = keras_windows.spatial_axes(n, layer.data_format)
    override(layer, edits, lambda call, x: keras_windows.crop(call(x), axes, crops))


def _global_pool(layer: Any, changed: Attrs, found: keras_words.Translation, edits: Edits) -> None:
    if "keepdims" in changed:
        edits.set(layer, "keepdims", bool(changed.pop("keepdims")))
    rest(layer, changed)


def _adaptive_pool(layer: Any, changed: Attrs, found: keras_words.Translation, edits: Edits) -> None:
    if "output_size" in changed:
        size = changed.pop("output_size")
        n = len(found.attrs["output_size"])
        edits.set(layer, "output_size", (int(size),) * n if isinstance(size, int) else tuple(size))
    rest(layer, changed)


def _pad(layer: Any, changed: Attrs, found: keras_words.Translation, edits: Edits) -> None:
    rest(layer, {k: v for k, v in changed.items() if k not in found.attrs})
    new = {**found.attrs, **changed}
    n = len(found.attrs["pads"]) // 2
    pads = [int(new["pads"])] * (2 * n) if isinstance(new["pads"], int) else list(new["pads"])
    axes = keras_windows.spatial_axes(n, getattr(layer, "data_format", "channels_last"))
    override(layer, edits, lambda _, x: keras_windows.pad(x, axes, pads, new["mode"], float(new["value"] or 0.0)))


_CUBIC = ("cubic_coeff_a", "exclude_outside", "coordinate_steps")


def _resize(layer: Any, changed: Attrs, found: keras_words.Translation, edits: Edits) -> None:
    rest(layer, {k: v for k, v in changed.items() if k not in (*found.attrs, *_CUBIC)})
    new = {**found.attrs, **changed}
    if new.get("scales") is not None and new.get("sizes") is not None:
        new["scales" if "sizes" in changed else "sizes"] = None
    # UpSampling's repeat counts as nearest too, so a plain change of interpolation is Keras' own
    name = {"linear": "bilinear", "cubic": "bicubic"}.get(new["mode"], new["mode"])
    native = resize_attrs(name, new["antialias"])
    same = all(equal_values(new.get(k), v) for k, v in native.items())
    if same and hasattr(layer, "interpolation") and not {"scales", "sizes"} & changed.keys():
        edits.set(layer, "interpolation", name)
        if hasattr(layer, "antialias"):
            edits.set(layer, "antialias", bool(new["antialias"]))
        return
    if new["antialias"] or new["mode"] not in ("nearest", "linear", "cubic"):
        raise refuse(layer, "mode", new["mode"], "Keras computes it only in its own way")
    n = len(found.attrs["scales"] or found.attrs["sizes"])
    axes = keras_windows.spatial_axes(n, getattr(layer, "data_format", "channels_last"))
    override(layer, edits, lambda _, x, *a, **k: keras_windows.resize(x, axes, new))


# ---------------------------------------------------------------- the rest


def _elementwise(layer: Any, changed: Attrs, found: keras_words.Translation, edits: Edits) -> None:
    rest(layer, {k: v for k, v in changed.items() if k not in found.attrs})
    if found.op == "Softmax" and hasattr(layer, "axis"):
        edits.set(layer, "axis", changed["axis"])  # keeps the layer's own treatment of masks
        return
    fn = keras_activations.function(found.op, {**found.attrs, **changed})
    if hasattr(layer, "activation"):
        edits.set(layer, "activation", fn)
    else:
        override(layer, edits, lambda _, x, *a, **k: fn(x))


def _dropout(layer: Any, changed: Attrs, found: keras_words.Translation, edits: Edits) -> None:
    if "ratio" in changed:
        edits.set(layer, "rate", float(changed.pop("ratio")))
        if not hasattr(layer, "seed_generator"):
            edits.set(layer, "seed_generator", keras.random.SeedGenerator(layer.seed))
    rest(layer, changed)


def _gather(layer: Any, changed: Attrs, found: keras_words.Translation, edits: Edits) -> None:
    if "mask_zero" in changed:
        value = bool(changed.pop("mask_zero"))
        edits.set(layer, "mask_zero", value)
        edits.set(layer, "supports_masking", value)
    rest(layer, changed)


def _simple(**names: tuple[str, Callable[[Any], Any]]) -> Callable[..., None]:
    """Canonical attributes that are attributes of the layer under another name."""

    def handle(layer: Any, changed: Attrs, found: keras_words.Translation, edits: Edits) -> None:
        for name in list(changed):
            if name in names:
                own, convert = names[name]
                edits.set(layer, own, convert(changed.pop(name)))
        rest(layer, changed)

    return handle


def _multi_head(layer: Any, attrs: Attrs, edits: Edits) -> None:
    current = attention_attrs(layer)
    changed = {k: v for k, v in attrs.items() if k not in current or not equal_values(v, current[k])}
    if "scale" in changed:
        edits.set(layer, multi_head_scale(layer), float(changed.pop("scale")))
    if "is_causal" in changed:
        causal = bool(changed.pop("is_causal"))
        override(layer, edits, lambda call, *a, **k: call(*a, **{**k, "use_causal_mask": causal}))
    rest(layer, changed)


def _attention(layer: Any, changed: Attrs, found: keras_words.Translation, edits: Edits) -> None:
    if "scale" in changed:
        edits.set(layer, "scale", float(changed.pop("scale")))
    if "is_causal" in changed:
        causal = bool(changed.pop("is_causal"))
        override(layer, edits, lambda call, *a, **k: call(*a, **{**k, "use_causal_mask": causal}))
    rest(layer, changed)


_ELEMENTWISE = {
    "Relu",
    "LeakyRelu",
    "Clip",
    "ThresholdedRelu",
    "Threshold",
    "Elu",
    "Celu",
    "Selu",
    "Softplus",
    "Softsign",
    "Swish",
    "SoftShrink",
    "HardShrink",
    "SparsePlus",
    "SparseSigmoid",
    "Squareplus",
    "Gelu",
    "Tanh",
    "TanhShrink",
    "Sigmoid",
    "LogSigmoid",
    "HardSigmoid",
    "HardSwish",
    "Mish",
    "Exp",
    "Softmax",
    "LogSoftmax",
    "Identity",
    "Glu",
}

Handler = Callable[[Any, Attrs, keras_words.Translation, Edits], None]
_HANDLERS: Mapping[str, Handler] = {
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    **dict.fromkeys(
        (
            "BatchNormalization",
            "LayerNormalization",
            "LayerNormalizationRmsScaling",
            "RMSNormalization",
            "GroupNormalization",
        ),
        _norm,
    ),
    "LpNormalization": _unit_norm,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MaxPool": _pool,
    "AveragePool": _pool,
    "GlobalAveragePool": _global_pool,
    "GlobalMaxPool": _global_pool,
    "AdaptiveAveragePool": _adaptive_pool,
    "AdaptiveMaxPool": _adaptive_pool,
    "Pad": _pad,
    "Resize": _resize,
    **dict.fromkeys(("LSTM", "GRU", "RNN"), keras_patch_rnn.rnn),
    "Dropout": _dropout,
    "AlphaDropout": _dropout,
    "GaussianDropout": _dropout,
    "GaussianNoise": _simple(stddev=("stddev", float)),
    "Gather": _gather,
    "Concat": _simple(axis=("axis", int)),
    "Reshape": _simple(shape=("target_shape", lambda v: tuple(int(d) for d in v[1:]))),
    "Transpose": _simple(perm=("dims", lambda v: tuple(int(d) for d in v[1:]))),
    "Affine": _simple(alpha=("scale", lambda v: v), beta=("offset", lambda v: v)),
    "Masking": _simple(mask_value=("mask_value", float)),
    "RepeatVector": _simple(n=("n", int)),
    "Attention": _attention,
}
