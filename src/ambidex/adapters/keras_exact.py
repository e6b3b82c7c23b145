"""A Keras layer computed in float64, its own weights included, without changing the layer's state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
from keras.src import backend

from ambidex.adapters.keras_tensors import to_float64

_SEEDS = "seed_generator_state"


def is_seed(variable: Any) -> bool:
    """Whether a variable is the state of a random generator, no weight."""
    return bool(variable.path.endswith(_SEEDS))


@contextmanager
def float64_layer(layer: Any) -> Iterator[None]:
    """Inside, ``layer.call`` on float64 tensors stays in float64: weights, dtype policies and autocast.

    Updates of variables go to the scope and are dropped.
    """
    scope = keras.StatelessScope()
    for variable in layer.variables:
        if not is_seed(variable):
            # set directly: the scope's constructor would cast back to the variable's own dtype
            scope.state_mapping[id(variable)] = to_float64(variable)
    members = layer._flatten_layers()
    before = [(m, m.__dict__.get("_dtype_policy")) for m in members]
    policy = keras.dtype_policies.DTypePolicy("float64")
    try:
        for m, _ in before:
            m.__dict__["_dtype_policy"] = policy
        with scope, backend.AutocastScope(None):
            yield
    finally:
        for m, old in before:
            m.__dict__["_dtype_policy"] = old


def in_float64(layer: Any, fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn`` (a method of the layer, or a part of it) run as float64."""

    def run(*args: Any, **kwargs: Any) -> Any:
        with float64_layer(layer):
            return fn(*args, **kwargs)

    return run


def is_random(layer: Any, training: bool) -> bool:
    """Whether two runs of the layer draw different numbers (float64 draws others than float32)."""
    return training and any(is_seed(v) for v in layer.variables)
