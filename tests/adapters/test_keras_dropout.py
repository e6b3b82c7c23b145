"""Dropout that a user's own code forces to be active is one call of dropout, and told as such."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch

import ambidex
from ambidex.adapters import keras_


class Always(keras.layers.Dropout):
    def call(self, inputs: Any, training: Any = None) -> Any:
        return super().call(inputs, training=True)


class Net(keras.Model):
    def __init__(self, drop: Any) -> None:
        super().__init__()
        self.a, self.b = keras.layers.Dense(4), keras.layers.Dense(2)
        self.drop = drop

    def call(self, x: Any) -> Any:
        return self.b(self.drop(self.a(x)))


class Reference(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.drop, self.b = torch.nn.Linear(3, 4), torch.nn.Dropout(0.3), torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.drop(self.a(x)))


WAYS = {
    "subclass": Always(0.3),
    "keras.random": lambda x: keras.random.dropout(x, 0.3),
    "tf.nn": lambda x: tf.nn.dropout(x, 0.3),
}


@pytest.mark.parametrize("way", WAYS)
def test_forced_dropout_is_named(way: str) -> None:
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    model = Net(WAYS[way])
    model(x)
    trace = keras_.wrap(model).run([x], exact=True)
    (call,) = [c for c in trace.calls if c.op == "Dropout"]
    assert call.layer.attrs["ratio"] == pytest.approx(0.3)
    assert call.exact is None  # another draw is no rounding
    report = ambidex.compare(Reference().eval(), model, inputs=x)
    assert report.verdict == "not_reproducible"
    assert [f.code for f in report.findings] == ["AMB310"]
