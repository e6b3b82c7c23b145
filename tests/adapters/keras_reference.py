"""What tests of Keras layers share: data, random weights, and the float64 reference of a layer."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from ambidex.adapters import keras_layers as kl
from ambidex.adapters import reference_

F64 = {"dtype": "float64"}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def x(*shape: int, seed: int = 1) -> np.ndarray:
    return rng(seed).normal(size=shape)


def randomise(layer: Any) -> None:
    """Every weight random, variances positive: initial zeros and ones hide mistakes."""
    r = rng(3)
    for v in layer.weights:
        if "seed" in v.path or not str(v.dtype).startswith(("float", "bfloat")):
            continue
        value = r.normal(size=v.shape)
        v.assign(np.abs(value) + 0.5 if "variance" in v.path else value)


def run(layer: Any, *inputs: Any, **kwargs: Any) -> list[np.ndarray]:
    out = layer(inputs[0] if len(inputs) == 1 else list(inputs), **kwargs)
    return [np.asarray(keras.ops.convert_to_numpy(y)) for y in (out if isinstance(out, list | tuple) else [out])]


def expected(layer: Any, *inputs: Any) -> np.ndarray:
    found = kl.translate(layer)
    assert found is not None
    y = reference_.evaluate(found.op, found.attrs, kl.get_weights(layer), list(inputs), layout=found.layout)[0]
    fused = kl.split_activation(layer)
    if fused is not None and found.op not in ("Relu", fused[0]):
        y = reference_.evaluate(fused[0], fused[1], {}, [y])[0]
    return y


S3, S4, S5 = (2, 11, 4), (2, 11, 8, 4), (2, 5, 7, 6, 4)
