"""What tests of the Keras adapter share: data, how far two arrays are apart, and a model of the functional kind."""

from __future__ import annotations

import keras
import numpy as np
from keras import layers as L
from keras import ops

from ambidex.core.trace import Trace

RNG = np.random.default_rng(7)


def x_of(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def rel(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.abs(got - want).max() / (np.abs(want).max() + 1e-12))


def check_exact(trace: Trace) -> None:
    for call in trace.calls:
        if call.exact is not None:
            for got, want in zip(call.computed, call.exact, strict=True):
                if got.dtype.kind == "f":
                    assert want.dtype == np.float64, call.key
                    assert rel(got, want) < 1e-4, call.key


def functional() -> keras.Model:
    inp = keras.Input((9, 7, 3), name="image")
    y = L.Conv2D(4, 3, strides=2, padding="same", activation="relu", name="conv")(inp)
    y = L.BatchNormalization(name="bn")(y)
    z = L.SeparableConv2D(4, 3, padding="same", activation="tanh", name="sep")(y)
    y = ops.relu(y * 2.0 + z)
    y = L.GlobalAveragePooling2D(name="pool")(y)
    return keras.Model(inp, L.Dense(5, activation="softmax", name="head")(y))
