"""Weights of Keras 3 layers by canonical role, read from and written to the layer's variables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from ambidex.adapters import keras_describe, keras_parts, keras_words
from ambidex.adapters.keras_tensors import BACKEND, numpy_from_tensor
from ambidex.core.types import Array
from ambidex.errors import InputError, UnsupportedError

Read = Callable[..., Array]
Write = Callable[[Array], list[Array]]


@dataclass(frozen=True, slots=True)
class Binding:
    """One canonical weight: the variables that hold it, how to read it from their values and how to write it back."""

    variables: tuple[Any, ...]
    read: Read
    write: Write

    def get(self) -> Array:
        """The canonical value; a read-only view of the backend's memory where that never changes."""
        found = self.read(*(numpy_from_tensor(v) for v in self.variables))
        if BACKEND == "tensorflow":
            found.flags.writeable = False
        return found

    def prepare(self, value: Array) -> list[Array]:
        """One array for each variable, in its own layout."""
        return self.write(value)


Bindings = dict[str, Binding]


def _numpy(variable: Any) -> Array:
    return np.asarray(keras.ops.convert_to_numpy(variable))


def _plain(variable: Any) -> Binding:
    return Binding((variable,), lambda a: a, lambda a: [a])


def _permuted(variable: Any, axes: tuple[int, ...]) -> Binding:
    back = tuple(int(i) for i in np.argsort(axes))
    return Binding((variable,), lambda a: a.transpose(axes), lambda a: [a.transpose(back)])


def _optional(found: Bindings, role: str, variable: Any, make: Callable[[Any], Binding] = _plain) -> Bindings:
    if variable is not None:
        found[role] = make(variable)
    return found


def _lora(layer: Any, binding: Binding, effective: Callable[[], Any]) -> Binding:
    """With LoRA on, the kernel in use is the stored one plus a product: it can be read, not written."""
    if not getattr(layer, "lora_enabled", False):
        return binding

    def refuse(value: Array) -> list[Array]:
        raise UnsupportedError(
            f"weights of {layer.name!r} cannot be written while LoRA is on", todo="Merge the LoRA weights first"
        )

    return Binding(binding.variables, lambda *_: binding.read(_numpy(effective())), refuse)


# ---------------------------------------------------------------- linear and convolution


def _dense(layer: Any) -> Bindings:
    kernel = _lora(layer, _permuted(layer._kernel, (1, 0)), lambda: layer.kernel)
    return _optional({"W": kernel}, "B", layer.bias)


def _einsum(layer: Any) -> Bindings:
    plan = keras_words.einsum_plan(layer)
    if plan is None:
        return _optional({"W": _lora(layer, _plain(layer._kernel), lambda: layer.kernel)}, "B", layer.bias)
    shape = tuple(layer._kernel.shape)
    out_shape = tuple(shape[i] for i in plan.out_axes)
    axes = (*plan.out_axes, *plan.in_axes)
    full = tuple(shape[i] for i in axes)
    back = tuple(int(i) for i in np.argsort(axes))
    n = int(np.prod(out_shape))
    kernel = Binding(
        (layer._kernel,), lambda a: a.transpose(axes).reshape(n, -1), lambda a: [a.reshape(full).transpose(back)]
    )
    found: Bindings = {"W": _lora(layer, kernel, lambda: layer.kernel)}
    if layer.bias is None:
        return found
    held = tuple(layer.bias.shape)  # sizes 1 where Keras broadcasts; axes before the first named one are absent

    def read(a: Array) -> Array:
        return np.broadcast_to(a, out_shape).reshape(n)

    def write(value: Array) -> list[Array]:
        wide = value.reshape(out_shape)
        lead = len(out_shape) - len(held)
        cut = wide[(0,) * lead + tuple(slice(None) if s != 1 else slice(0, 1) for s in held)]
        if not np.array_equal(np.broadcast_to(cut, out_shape), wide):
            raise InputError(f"bias of {layer.name!r} has shape {held} and cannot hold {n} different values")
        return [cut.reshape(held)]

    found["B"] = Binding((layer.bias,), read, write)
    return found


def _conv_kernel(variable: Any) -> Binding:
    """(*k, in/group, out) to (out, in/group, *k)."""
    n = len(variable.shape) - 2
    return _permuted(variable, (n + 1, n, *range(n)))


def _depthwise_kernel(variable: Any) -> Binding:
    """(*k, in, multiplier) to (in * multiplier, 1, *k)."""
    *k, channels, multiplier = (int(s) for s in variable.shape)
    n = len(k)
    return Binding(
        (variable,),
        lambda a: a.transpose(n, n + 1, *range(n)).reshape(channels * multiplier, 1, *k),
        lambda a: [a.reshape(channels, multiplier, *k).transpose(*range(2, n + 2), 0, 1)],
    )


def _conv(layer: Any) -> Bindings:
    kernel = _lora(layer, _conv_kernel(layer._kernel), lambda: layer.kernel)
    return _optional({"W": kernel}, "B", layer.bias)


def _conv_transpose(layer: Any) -> Bindings:
    # Keras holds (*k, out, in), the canonical layout is (in, out, *k): the same reversal as for a convolution
    return _optional({"W": _conv_kernel(layer.kernel)}, "B", layer.bias)


def _depthwise(layer: Any) -> Bindings:
    return _optional({"W": _depthwise_kernel(layer.kernel)}, "B", layer.bias)


# ---------------------------------------------------------------- recurrent


def _rows(array: Array, gates: int, order: tuple[int, ...]) -> Array:
    """The leading axis cut into gates and put into another order."""
    return np.concatenate([array.reshape(gates, -1, *array.shape[1:])[i] for i in order])


#: gate order: canonical from Keras'. LSTM i,f,c,o -> i,o,f,c; GRU z,r,h is the canonical one
_GATES = {"LSTM": (4, (0, 3, 1, 2)), "GRU": (3, (0, 1, 2)), "RNN": (1, (0,))}


def _recurrent(cells: list[Any], kind: str) -> Bindings:
    gates, order = _GATES[kind]
    back = tuple(int(i) for i in np.argsort(order))

    def kernels(names: str) -> Binding:
        return Binding(
            tuple(getattr(c, names) for c in cells),
            lambda *a: np.stack([_rows(x.T, gates, order) for x in a]),
            lambda value: [np.ascontiguousarray(_rows(x, gates, back).T) for x in value],
        )

    found = {"W": kernels("kernel"), "R": kernels("recurrent_kernel")}
    if all(c.bias is None for c in cells):
        return found
    if any(c.bias is None for c in cells):
        raise UnsupportedError("a bidirectional layer with a bias in one direction only")
    two = len(cells[0].bias.shape) == 2

    def read_one(a: Array) -> Array:
        if two:
            return np.concatenate([_rows(a[0], gates, order), _rows(a[1], gates, order)])
        return np.concatenate([_rows(a, gates, order), np.zeros_like(a)])

    def write_one(value: Array) -> Array:
        first, second = (_rows(half, gates, back) for half in np.split(value, 2))
        return np.stack([first, second]) if two else first + second

    found["B"] = Binding(
        tuple(c.bias for c in cells),
        lambda *a: np.stack([read_one(x) for x in a]),
        lambda value: [write_one(x) for x in value],
    )
    return found


# ---------------------------------------------------------------- the rest


def _layer_norm(layer: Any) -> Bindings:
    def shaped(variable: Any) -> Binding:
        held = tuple(int(s) for s in variable.shape)
        # RMSNormalization multiplies its scale as it stands, LayerNormalization along the normalised axes
        wide = keras_describe.norm_shape(layer, held) if hasattr(layer, "gamma") else held
        return Binding((variable,), lambda a: a.reshape(wide), lambda a: [a.reshape(held)])

    found: Bindings = {}
    _optional(found, "scale", getattr(layer, "gamma", getattr(layer, "scale", None)), shaped)
    return _optional(found, "B", getattr(layer, "beta", None), shaped)


def _norm(layer: Any) -> Bindings:
    found: Bindings = {}
    _optional(found, "scale", getattr(layer, "gamma", None))
    _optional(found, "B", getattr(layer, "beta", None))
    _optional(found, "mean", getattr(layer, "moving_mean", None))
    return _optional(found, "var", getattr(layer, "moving_variance", None))


def _standardize(layer: Any) -> Bindings:
    if layer.input_mean is not None:
        return {}  # given as constants: no variables
    return {"mean": _plain(layer.adapt_mean), "var": _plain(layer.adapt_variance)}


def _prelu(layer: Any) -> Bindings:
    shape = tuple(int(s) for s in layer.alpha.shape)
    _, axes = keras_describe.slope_axis(shape)
    if axes is not None:
        return {"slope": Binding((layer.alpha,), lambda a: a.reshape(-1), lambda a: [a.reshape(shape)])}
    return {"slope": _plain(layer.alpha)}


def _embedding(layer: Any) -> Bindings:
    return {"W": _lora(layer, _plain(layer._embeddings), lambda: layer.embeddings)}


def bindings(layer: Any) -> Bindings:
    """The canonical weights of a layer or a part; empty when it has none or no canonical operator."""
    if isinstance(layer, keras_parts.Part):
        return _part_bindings(layer)
    cls = keras_words.own_class(layer)
    name = "" if cls is None else cls.__name__
    if not layer.built and not layer.weights:
        if name.startswith(_WEIGHTED):
            raise InputError(f"layer {layer.name!r} has no weights yet", todo="Call the model once first")
        return {}
    found = keras_describe.describe(layer)
    if found is None:
        return {}
    match name:
        case "Dense":
            return _dense(layer)
        case "EinsumDense":
            return _einsum(layer)
        case "Conv1D" | "Conv2D" | "Conv3D":
            return _conv(layer)
        case "Conv1DTranspose" | "Conv2DTranspose" | "Conv3DTranspose":
            return _conv_transpose(layer)
        case "DepthwiseConv1D" | "DepthwiseConv2D":
            return _depthwise(layer)
        case "BatchNormalization" | "GroupNormalization":
            return _norm(layer)
        case "LayerNormalization" | "RMSNormalization":
            return _layer_norm(layer)
        case "Normalization":
            return _standardize(layer)
        case "Embedding" | "ReversibleEmbedding":
            return _embedding(layer)
        case "LSTM" | "GRU" | "SimpleRNN" | "RNN":
            return _recurrent([layer.cell], found.op)
        case "Bidirectional":
            return _recurrent([layer.forward_layer.cell, layer.backward_layer.cell], found.op)
        case "PReLU":
            return _prelu(layer)
        case "Attention":
            return _optional({}, "scale", layer.scale)
    return {}


def _part_bindings(part: keras_parts.Part) -> Bindings:
    match part.name:
        case "depthwise":
            return {"W": _depthwise_kernel(part.kernel)}
        case "pointwise":
            return _optional({"W": _conv_kernel(part.kernel)}, "B", part.bias)
        case "reverse":
            if part.layer.tie_weights:
                return _embedding(part.layer)
            return {"W": _permuted(part.layer.reverse_embeddings, (1, 0))}
    return {}


_WEIGHTED = (
    "Dense",
    "EinsumDense",
    "Conv",
    "Depthwise",
    "Separable",
    "BatchNorm",
    "LayerNorm",
    "GroupNorm",
    "RMSNorm",
    "Embedding",
    "Reversible",
    "LSTM",
    "GRU",
    "SimpleRNN",
    "Bidirectional",
    "PReLU",
)
