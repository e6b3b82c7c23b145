"""A run leaves no trace: variables, seeds and random generators are put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
from keras.src.random.seed_generator import global_seed_generator

from ambidex.adapters.keras_exact import is_seed
from ambidex.adapters.keras_tensors import BACKEND, numpy_from_tensor


def versions() -> dict[str, str]:
    import importlib.metadata

    found = {"keras": keras.__version__}
    if BACKEND != "tensorflow":
        return {**found, BACKEND: importlib.metadata.version(BACKEND)}
    import tensorflow as tf

    return {**found, "tensorflow": tf.__version__}


@contextmanager
def kept_state(model: Any, *, training: bool) -> Iterator[Callable[[], list[Any]]]:
    """Variables that are assigned inside have their values back afterwards; in training the randomness is fixed.

    Gives a function that lists the variables changed so far, seeds left out.
    """
    seeds = [v for v in model.variables if is_seed(v)] + [global_seed_generator().state]
    before: dict[int, tuple[Any, np.ndarray]] = {}
    original = keras.Variable.assign
    losses = {id(x): (x, list(x._losses)) for x in model._flatten_layers() if getattr(x, "_losses", None) is not None}

    def assign(self: Any, value: Any) -> Any:
        if id(self) not in before:
            before[id(self)] = (self, numpy_from_tensor(self).copy())
        return original(self, value)

    keras.Variable.assign = assign
    put_back = _fixed_generators(training)
    try:
        if training:
            for n, seed in enumerate(seeds):
                seed.assign(np.array([n + 1, 0], dtype=seed.dtype))
        yield lambda: [v for v, old in before.values() if not is_seed(v) and not _same(numpy_from_tensor(v), old)]
    finally:
        keras.Variable.assign = original
        for variable, old in before.values():
            variable.assign(old)
        for layer, kept in losses.values():
            layer._losses[:] = kept
        put_back()


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def _fixed_generators(training: bool) -> Callable[[], None]:
    """TensorFlow's own generator with a fixed seed for a training run, and the way back."""
    if not training:
        return lambda: None
    if BACKEND == "tensorflow":
        import tensorflow as tf
        from tensorflow.python.eager import context

        current = context.context()
        kept = {name: vars(current).get(name) for name in ("_seed", "_rng")}
        tf.random.set_seed(0)

        def restore() -> None:
            for name, value in kept.items():
                if value is None and name == "_rng":
                    vars(current).pop(name, None)
                else:
                    setattr(current, name, value)
            current._clear_caches()

        return restore
    if BACKEND == "torch":
        import torch

        state = torch.random.get_rng_state()
        torch.manual_seed(0)
        return lambda: torch.random.set_rng_state(state)
    return lambda: None
