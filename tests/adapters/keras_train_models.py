"""Small Keras models with data, for the tests of the trainer."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

RNG = np.random.default_rng(5)
X = RNG.standard_normal((24, 6)).astype(np.float32)
IDS = RNG.integers(0, 9, (24, 5))
Y = RNG.integers(0, 3, 24)
ONE_HOT = np.eye(3)[Y]  # float64, as numpy makes it
L, KO, S = keras.layers, keras.optimizers, keras.optimizers.schedules
SPARSE = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def dense(**first: Any) -> keras.Model:
    keras.utils.set_random_seed(0)
    x = i = keras.Input((6,))
    x = L.Dense(8, activation="tanh", name="a", **first)(x)
    x = L.BatchNormalization(name="n")(x)
    return keras.Model(i, L.Dense(3, name="b")(x))


def table() -> keras.Model:
    keras.utils.set_random_seed(0)
    x = i = keras.Input((5,), dtype="int32")
    x = L.LSTM(4, name="l")(L.Embedding(9, 4, name="e", mask_zero=True)(x))
    return keras.Model(i, L.Dense(3, name="b")(x))


def two() -> keras.Model:
    keras.utils.set_random_seed(0)
    x = i = keras.Input((6,))
    x = L.Dense(8, activation="relu", name="a")(x)
    return keras.Model(i, [L.Dense(3, name="kind")(x), L.Dense(1, name="size")(x)])


def half() -> keras.Model:
    keras.utils.set_random_seed(0)
    x = i = keras.Input((6,))
    policy = keras.dtype_policies.DTypePolicy("mixed_float16")
    x = L.Dense(8, activation="tanh", name="a", dtype=policy)(x)
    model = keras.Model(i, L.Dense(3, name="b", dtype="float32")(x))
    model.dtype_policy = policy
    return model


class Own(keras.Model):
    """A model with code of its own between the layers."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = L.Dense(6, activation="gelu"), L.Dense(3)

    def call(self, x: Any, training: bool = False) -> Any:
        return self.b(x + self.a(x)) * (2.0 if training else 1.0)


def own() -> keras.Model:
    keras.utils.set_random_seed(0)
    model = Own()
    model(X[:2])
    return model


class Warm(S.LearningRateSchedule):
    """A schedule as people write it: no get_config, with the root of the step."""

    def __call__(self, step: Any) -> Any:
        step = keras.ops.cast(step, "float32")
        return 0.1 * keras.ops.minimum(keras.ops.rsqrt(step + 1e-9), step * 7.0**-1.5)


TARGETS = {"kind": Y, "size": X[:, :1]}
