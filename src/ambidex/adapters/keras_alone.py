"""One part of a Keras model by itself: a model around the layer, and what the layer is called with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from ambidex.adapters.keras_tensors import is_tensor, numpy_from_tensor
from ambidex.core.model import Batch
from ambidex.core.types import Array
from ambidex.errors import UnsupportedError


def enclosing(model: Any, path: str) -> str:
    """The path itself where it names a layer, else the nearest one around it ("" is the whole model)."""
    while path and path not in model._tree().members:
        path = path.rpartition("/")[0]
    return path


def _layer(model: Any, path: str) -> Any:
    return model._tree().members[path] if path else model.model


def part(model: Any, path: str, inputs: Sequence[Array]) -> Any:
    """A functional model of that layer alone, sharing its weights. ``inputs``: arrays as it takes them."""
    layer = _layer(model, path)
    if not path:
        return layer
    given = [keras.Input(a.shape[1:], dtype=str(a.dtype)) for a in inputs]
    try:
        return keras.Model(given if len(given) > 1 else given[0], layer(*given), name=layer.name)
    except Exception as e:
        raise UnsupportedError(
            f"the layer {path!r} cannot be called alone", (str(e).splitlines() or [""])[0][:200]
        ) from e


def arguments(model: Any, batch: Batch, path: str) -> list[Array]:
    """The tensors of its first call on this batch; UnsupportedError where it takes anything else as well."""
    layer = _layer(model, path)
    seen: list[list[Array]] = []
    original = keras.layers.Layer.__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        plain = not {n for n, v in kwargs.items() if v is not None and n != "training"}
        if self is layer and not seen and plain and all(is_tensor(a) for a in args):
            seen.append([numpy_from_tensor(a).copy() for a in args])
        return original(self, *args, **kwargs)

    keras.layers.Layer.__call__ = call
    try:
        model.run(batch, record=False)
    finally:
        keras.layers.Layer.__call__ = original
    if not seen:
        raise UnsupportedError(f"{path!r} is not called with tensors alone")
    return seen[0]
