"""Keras 3 layers in canonical words: operator, attributes, weights.

The public face of the translation; the tables are in ``keras_describe`` (operators and attributes), ``keras_weights``
(weights), ``keras_patch`` (changing a live layer), ``keras_activations`` and ``keras_functional``.

A layer is translated only when what it computes is Keras' own code: a user's subclass that replaces ``call`` or another
computing method is not, whatever its base class is.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import keras
import numpy as np

from ambidex.adapters import keras_activations, keras_describe, keras_patch, keras_weights, keras_words
from ambidex.adapters.keras_attention import attention_attrs
from ambidex.adapters.keras_functional import operation
from ambidex.adapters.keras_parts import Part, parts
from ambidex.adapters.keras_tensorflow import tf_op
from ambidex.adapters.keras_words import Translation
from ambidex.core.types import Array
from ambidex.errors import InputError

__all__ = [
    "Part",
    "Translation",
    "attention_attrs",
    "get_weights",
    "operation",
    "parts",
    "patch",
    "set_weights",
    "split_activation",
    "tf_op",
    "translate",
    "weight_names",
    "weight_variables",
]


def translate(layer: keras.layers.Layer, ndim: int | None = None) -> Translation | None:
    """The layer in canonical words, without its fused activation; None when it has no canonical operator.

    ``ndim`` is the rank of its main input, which a layer that was never built does not know (an axis counted from the
    front is then left as it stands).
    """
    return keras_describe.describe(layer, ndim)


def split_activation(layer: keras.layers.Layer) -> tuple[str, dict[str, Any]] | None:
    """The activation that a layer applies to its result; None when it applies none, op "" when it is unknown.

    Recurrent layers have none (theirs act inside), nor has a layer with a computation of its own.
    """
    if keras_words.own_class(layer) is None or not hasattr(layer, "activation"):
        return None
    if hasattr(layer, "cell") or hasattr(layer, "forward_layer"):
        return None
    found = keras_activations.canonical(layer.activation)
    return None if found[0] == "Identity" else found


def get_weights(layer: keras.layers.Layer) -> dict[str, Array]:
    """The weights by canonical role in canonical layout; ``layer`` may be one of :func:`parts`."""
    return {role: binding.get() for role, binding in keras_weights.bindings(layer).items()}


def weight_names(layer: keras.layers.Layer) -> dict[str, str]:
    """The path of the Keras variable of each role (two, joined by " + ", where both directions hold one)."""
    return {
        role: " + ".join(dict.fromkeys(v.path for v in binding.variables))
        for role, binding in keras_weights.bindings(layer).items()
    }


def weight_variables(layer: keras.layers.Layer) -> dict[str, list[Any]]:
    """The Keras variables of each role: one, or one for each direction."""
    return {role: list(binding.variables) for role, binding in keras_weights.bindings(layer).items()}


def set_weights(layer: keras.layers.Layer, values: dict[str, Array]) -> None:
    """Write canonical weights; a role that the layer lacks or a wrong shape is an InputError and nothing is written."""
    found = keras_weights.bindings(layer)
    for role, value in values.items():
        if role not in found:
            raise InputError(
                f"{type(layer).__name__} {layer.name!r} has no weight {role!r}",
                todo=f"It has {', '.join(map(repr, found)) or 'none'}",
            )
        shape = found[role].get().shape
        if np.shape(value) != shape:
            raise InputError(
                f"weight {role!r} of {type(layer).__name__} {layer.name!r} has shape {shape}, got {np.shape(value)}"
            )
    ready = [(found[role], found[role].prepare(np.asarray(value))) for role, value in values.items()]
    for binding, arrays in ready:
        for variable, array in zip(binding.variables, arrays, strict=True):
            variable.assign(array)


def patch(layer: keras.layers.Layer, **attrs: Any) -> AbstractContextManager[None]:
    """The live layer as if built with these canonical attributes, until the context ends.

    ``activation=("Relu", {})`` (or an operator name, or None) replaces the fused activation. UnsupportedError where
    Keras cannot be made to compute it.
    """
    return keras_patch.patched(layer, attrs)
