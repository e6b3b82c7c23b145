"""Changing a live Keras layer as if it had been built with other canonical attributes, and changing it back.

Attributes that Keras has are set on the layer. What it can compute but has no attribute for (explicit pads, ceil mode,
other resize coordinates) replaces the layer's ``call`` for the time being.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import keras
from keras import ops

from ambidex.adapters import keras_activations, keras_describe, keras_windows
from ambidex.core.ops import equal_values
from ambidex.errors import UnsupportedError

Attrs = dict[str, Any]
_ABSENT = object()


class Edits:
    """Attributes set on objects, to be undone. Written past Keras' tracking, which a change for a moment is none of."""

    def __init__(self) -> None:
        self._undo: list[tuple[dict[str, Any], str, Any]] = []

    def set(self, target: Any, name: str, value: Any) -> None:
        """Set an attribute, remembering what was there."""
        space = vars(target)
        self._undo.append((space, name, space.get(name, _ABSENT)))
        space[name] = value

    def undo(self) -> None:
        """Put everything back, last change first."""
        for space, name, value in reversed(self._undo):
            if value is _ABSENT:
                space.pop(name, None)
            else:
                space[name] = value
        self._undo.clear()


@contextmanager
def patched(layer: Any, attrs: Attrs) -> Iterator[None]:
    """See :func:`ambidex.adapters.keras_layers.patch`."""
    edits = Edits()
    try:
        _apply(layer, dict(attrs), edits)
        yield
    finally:
        edits.undo()


def _refuse(layer: Any, name: str, value: Any, why: str = "") -> UnsupportedError:
    return UnsupportedError(f"{type(layer).__name__} {layer.name!r} cannot be given {name}={value!r}", why)


def _apply(layer: Any, attrs: Attrs, edits: Edits) -> None:
    if hasattr(layer, "_inverse_sqrt_key_dim"):
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
            raise _refuse(layer, name, value, "it has no canonical operator")
        return
    inner = {k: attrs.pop(k) for k in list(attrs) if fused is not None and k in fused[1] and k not in found.attrs}
    if inner and fused is not None:
        edits.set(layer, "activation", keras_activations.function(fused[0], {**fused[1], **inner}))
    changed = {k: v for k, v in attrs.items() if k not in found.attrs or not equal_values(v, found.attrs[k])}
    if changed:
        _HANDLERS.get(found.op, _unknown)(layer, changed, found, edits)


def _unknown(layer: Any, changed: Attrs, found: keras_describe.Translation, edits: Edits) -> None:
    name, value = next(iter(changed.items()))
    raise _refuse(layer, name, value)


def _rest(layer: Any, changed: Attrs) -> None:
    """Refuse what a handler left over."""
    for name, value in changed.items():
        raise _refuse(layer, name, value)


def _override(layer: Any, edits: Edits, fn: Callable[..., Any]) -> None:
    """Let the layer call ``fn(previous_call, *args, **kwargs)``."""
    edits.set(layer, "call", functools.partial(fn, layer.call))


def _activation(layer: Any, value: Any, edits: Edits, op: str) -> None:
    name, attrs = (value, {}) if isinstance(value, str) or value is None else (value[0], value[1])
    fn = keras_activations.function(name or "Identity", attrs)
    if hasattr(layer, "activation") and not hasattr(layer, "cell") and not hasattr(layer, "forward_layer"):
        edits.set(layer, "activation", fn)
    elif op in _ELEMENTWISE:
        _override(layer, edits, lambda _, x, *a, **k: fn(x))
    else:
        raise _refuse(layer, "activation", value, "it has no activation")


# ---------------------------------------------------------------- normalisation


def _norm(layer: Any, changed: Attrs, found: keras_describe.Translation, edits: Edits) -> None:
    for name in ("epsilon", "momentum"):
        if name in changed and hasattr(layer, name):
            edits.set(layer, name, float(changed.pop(name)))
    if "num_groups" in changed:
        groups = int(changed.pop("num_groups"))
        shapes = keras_describe.input_shapes(layer)
        channels = next((int(v.shape[0]) for v in (layer.gamma, layer.beta) if v is not None),
                        shapes[0][layer.axis] if shapes else None)
        if channels is not None and channels % groups:
            raise _refuse(layer, "num_groups", groups, f"it has {channels} channels")
        edits.set(layer, "groups", groups)
    if "axis" in changed and isinstance(layer.axis, list | tuple):
        axis = changed.pop("axis")
        axes = list(axis) if isinstance(axis, list | tuple) else list(range(int(axis), 0))
        weights = [v for v in (getattr(layer, n, None) for n in ("gamma", "beta", "scale")) if hasattr(v, "shape")]
        shapes = keras_describe.input_shapes(layer)
        sizes = tuple(shapes[0][a] for a in axes) if shapes else None
        if weights and (sizes is None or any(tuple(v.shape) != sizes for v in weights)):
            raise _refuse(layer, "axis", axis, "its weights have another shape")
        edits.set(layer, "axis", axes)
    _rest(layer, changed)


def _unit_norm(layer: Any, changed: Attrs, found: keras_describe.Translation, edits: Edits) -> None:
    new = {**found.attrs, **changed}
    _rest(layer, {k: v for k, v in changed.items() if k not in found.attrs})
    settings = {"axis": new["axis"], "order": int(new["p"]), "epsilon": float(new["epsilon"])}
    _override(layer, edits, lambda _, x: ops.normalize(x, **settings))


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
        if auto == "NOTSET" and keras_describe.window_padding(padding, kernel, new["strides"], new["dilations"]) == {
                "pads": new["pads"], "auto_pad": "NOTSET"}:
            return padding
    return None


def _window(layer: Any, changed: Attrs, found: keras_describe.Translation) -> Attrs:
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


def _conv(layer: Any, changed: Attrs, found: keras_describe.Translation, edits: Edits) -> None:
    known = {"strides", "dilations", "pads", "auto_pad", "pad_mode"}
    _rest(layer, {k: v for k, v in changed.items() if k not in known})
    new = _window(layer, changed, found)
    edits.set(layer, "strides", tuple(new["strides"]))
    edits.set(layer, "dilation_rate", tuple(new["dilations"]))
    padding = _is_native(new, new["kernel_shape"], keras_describe.class_name(layer) == "Conv1D")
    edits.set(layer, "padding", padding or "valid")
    if padding is None:
        axes = keras_windows.spatial_axes(layer.rank, layer.data_format)
        _override(layer, edits, lambda call, x, *a, **k: call(keras_windows.pad_window(x, axes, new), *a, **k))


def _pool(layer: Any, changed: Attrs, found: keras_describe.Translation, edits: Edits) -> None:
    known = {"kernel_shape", "strides", "pads", "auto_pad", "ceil_mode", "count_include_pad"}
    _rest(layer, {k: v for k, v in changed.items() if k not in known})
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
    _override(layer, edits, lambda _, x, *a, **k: keras_windows.pool(x, axes, new, mode, data_format))


def _conv_transpose(layer: Any, changed: Attrs, found: keras_describe.Translation, edits: Edits) -> None:
    known = {"strides", "dilations", "pads", "output_padding", "auto_pad"}
    _rest(layer, {k: v for k, v in changed.items() if k not in known})
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
            raise _refuse(layer, "output_padding", extra, "Keras computes no output that far beyond the input")
        crops += [(pads[i], -beyond)]
    edits.set(layer, "padding", "valid")
    edits.set(layer, "output_padding", None)
    axes = keras_windows.spatial_axes(n, layer.data_format)
    _override(layer, edits, lambda call, x: keras_windows.crop(call(x), axes, crops))


def _global_pool(layer: Any, changed: Attrs, found: keras_describe.Translation, edits: Edits) -> None:
    if "keepdims" in changed:
        edits.set(layer, "keepdims", bool(changed.pop("keepdims")))
    _rest(layer, changed)


def _adaptive_pool(layer: Any, changed: Attrs, found: keras_describe.Translation, edits: Edits) -> None:
    if "output_size" in changed:
        size = changed.pop("output_size")
        n = len(found.attrs["output_size"])
        edits.set(layer, "output_size", (int(size),) * n if isinstance(size, int) else tuple(size))
    _rest(layer, changed)


def _pad(layer: Any, changed: Attrs, found: keras_describe.Translation, edits: Edits) -> None:
    _rest(layer, {k: v for k, v in changed.items() if k not in found.attrs})
    new = {**found.attrs, **changed}
    n = len(found.attrs["pads"]) // 2
    pads = [int(new["pads"])] * (2 * n) if isinstance(new["pads"], int) else list(new["pads"])
    axes = keras_windows.spatial_axes(n, getattr(layer, "data_format", "channels_last"))
    _override(layer, edits, lambda _, x: keras_windows.pad(x, axes, pads, new["mode"], float(new["value"] or 0.0)))


def _resize(layer: Any, changed: Attrs, found: keras_describe.Translation, edits: Edits) -> None:
    _rest(layer, {k: v for k, v in changed.items() if k not in (*found.attrs, "cubic_coeff_a", "exclude_outside")})
    new = {**found.attrs, **changed}
    if new.get("scales") is not None and new.get("sizes") is not None:
        new["scales" if "sizes" in changed else "sizes"] = None
    # UpSampling's repeat counts as nearest too, so a plain change of interpolation is Keras' own
    name = {"linear": "bilinear", "cubic": "bicubic"}.get(new["mode"], new["mode"])
    native = keras_describe.resize_attrs(name, new["antialias"])
    same = all(equal_values(new.get(k), v) for k, v in native.items())
    if same and hasattr(layer, "interpolation") and not {"scales", "sizes"} & changed.keys():
        edits.set(layer, "interpolation", name)
        if hasattr(layer, "antialias"):
            edits.set(layer, "antialias", bool(new["antialias"]))
        return
    if new["antialias"] or new["mode"] not in ("nearest", "linear", "cubic"):
        raise _refuse(layer, "mode", new["mode"], "Keras computes it only in its own way")
    n = len(found.attrs["scales"] or found.attrs["sizes"])
    axes = keras_windows.spatial_axes(n, getattr(layer, "data_format", "channels_last"))
    _override(layer, edits, lambda _, x, *a, **k: keras_windows.resize(x, axes, new))


# ---------------------------------------------------------------- recurrent


def _rnn(layer: Any, changed: Attrs, found: keras_describe.Translation, edits: Edits) -> None:
    both = [layer.forward_layer, layer.backward_layer] if hasattr(layer, "forward_layer") else [layer]
    if "activations" in changed:
        _cell_activations(both, found.op, changed.pop("activations"), edits)
    if "return_sequences" in changed:
        value = bool(changed.pop("return_sequences"))
        for target in {id(t): t for t in (*both, layer)}.values():
            edits.set(target, "return_sequences", value)
    if "zero_output_for_mask" in changed:
        value = bool(changed.pop("zero_output_for_mask"))
        for target in both:
            edits.set(target, "zero_output_for_mask", value)
    if "merge" in changed and len(both) == 2:
        edits.set(layer, "merge_mode", changed.pop("merge"))
    for name in ("dropout", "recurrent_dropout"):
        if name in changed:
            rate = float(changed.pop(name))
            for target in both:
                edits.set(target.cell, name, rate)
    if len(both) == 1 and {"direction", "keep_reversed"} & changed.keys():
        new = {**found.attrs, **changed}
        if new["direction"] not in ("forward", "reverse"):
            raise _refuse(layer, "direction", new["direction"], "it has the weights of one direction")
        back = new["direction"] == "reverse"
        edits.set(layer, "go_backwards", back)
        if back and layer.return_sequences and not changed.get("keep_reversed", False):
            _override(layer, edits, _in_time_order)
        changed.pop("direction", None)
        changed.pop("keep_reversed", None)
    _rest(layer, changed)


def _in_time_order(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    out = call(*args, **kwargs)
    if isinstance(out, list | tuple):
        return (ops.flip(out[0], axis=1), *out[1:])
    return ops.flip(out, axis=1)


def _cell_activations(layers: list[Any], op: str, values: Any, edits: Edits) -> None:
    per = {"LSTM": 3, "GRU": 2, "RNN": 1}[op]
    given = [(v, {}) if isinstance(v, str) else (v[0], dict(v[1])) for v in values]
    if len(given) == per:
        given = given * len(layers)
    for i, layer in enumerate(layers):
        mine = given[i * per:(i + 1) * per]
        if len(mine) != per or (op == "LSTM" and mine[1] != mine[2]):
            raise _refuse(layer, "activations", values, "Keras has one activation for the gates and one for the rest")
        edits.set(layer.cell, "activation", keras_activations.function(*mine[-1]))
        if per > 1:
            edits.set(layer.cell, "recurrent_activation", keras_activations.function(*mine[0]))


# ---------------------------------------------------------------- the rest


def _elementwise(layer: Any, changed: Attrs, found: keras_describe.Translation, edits: Edits) -> None:
    _rest(layer, {k: v for k, v in changed.items() if k not in found.attrs})
    if found.op == "Softmax" and hasattr(layer, "axis"):
        edits.set(layer, "axis", changed["axis"])  # keeps the layer's own treatment of masks
        return
    fn = keras_activations.function(found.op, {**found.attrs, **changed})
    if hasattr(layer, "activation"):
        edits.set(layer, "activation", fn)
    else:
        _override(layer, edits, lambda _, x, *a, **k: fn(x))


def _dropout(layer: Any, changed: Attrs, found: keras_describe.Translation, edits: Edits) -> None:
    if "ratio" in changed:
        edits.set(layer, "rate", float(changed.pop("ratio")))
        if not hasattr(layer, "seed_generator"):
            edits.set(layer, "seed_generator", keras.random.SeedGenerator(layer.seed))
    _rest(layer, changed)


def _gather(layer: Any, changed: Attrs, found: keras_describe.Translation, edits: Edits) -> None:
    if "mask_zero" in changed:
        value = bool(changed.pop("mask_zero"))
        edits.set(layer, "mask_zero", value)
        edits.set(layer, "supports_masking", value)
    _rest(layer, changed)


def _simple(**names: tuple[str, Callable[[Any], Any]]) -> Callable[..., None]:
    """Canonical attributes that are attributes of the layer under another name."""
    def handle(layer: Any, changed: Attrs, found: keras_describe.Translation, edits: Edits) -> None:
        for name in list(changed):
            if name in names:
                own, convert = names[name]
                edits.set(layer, own, convert(changed.pop(name)))
        _rest(layer, changed)

    return handle


def _multi_head(layer: Any, attrs: Attrs, edits: Edits) -> None:
    current = keras_describe.attention_attrs(layer)
    changed = {k: v for k, v in attrs.items() if k not in current or not equal_values(v, current[k])}
    if "scale" in changed:
        edits.set(layer, "_inverse_sqrt_key_dim", float(changed.pop("scale")))
    if "is_causal" in changed:
        causal = bool(changed.pop("is_causal"))
        _override(layer, edits, lambda call, *a, **k: call(*a, **{**k, "use_causal_mask": causal}))
    _rest(layer, changed)


def _attention(layer: Any, changed: Attrs, found: keras_describe.Translation, edits: Edits) -> None:
    if "scale" in changed:
        edits.set(layer, "scale", float(changed.pop("scale")))
    if "is_causal" in changed:
        causal = bool(changed.pop("is_causal"))
        _override(layer, edits, lambda call, *a, **k: call(*a, **{**k, "use_causal_mask": causal}))
    _rest(layer, changed)


_ELEMENTWISE = {
    "Relu", "LeakyRelu", "Clip", "ThresholdedRelu", "Threshold", "Elu", "Celu", "Selu", "Softplus", "Softsign", "Swish",
    "SoftShrink", "HardShrink", "SparsePlus", "SparseSigmoid", "Squareplus", "Gelu", "Tanh", "TanhShrink", "Sigmoid",
    "LogSigmoid", "HardSigmoid", "HardSwish", "Mish", "Exp", "Softmax", "LogSoftmax", "Identity", "Glu",
}

Handler = Callable[[Any, Attrs, keras_describe.Translation, Edits], None]
_HANDLERS: Mapping[str, Handler] = {
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    **dict.fromkeys(("BatchNormalization", "LayerNormalization", "LayerNormalizationRmsScaling", "RMSNormalization",
                     "GroupNormalization"), _norm),
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
    "LSTM": _rnn,
    "GRU": _rnn,
    "RNN": _rnn,
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
