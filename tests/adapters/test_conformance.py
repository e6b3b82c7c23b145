"""Both adapters keep every promise of the adapter interface, over every kind of model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import keras  # isort: skip
from keras import layers, ops  # isort: skip

from ambidex import conformance
from ambidex.adapters import open_model
from ambidex.core.model import Inspectable
from ambidex.core.types import Plan

Case = tuple[Any, list[np.ndarray]]
RNG = np.random.default_rng(3)


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


# ---------------------------------------------------------------- torch


def torch_sequential() -> Case:
    model = nn.Sequential(nn.Conv2d(3, 6, 3, stride=2, padding=1), nn.BatchNorm2d(6), nn.ReLU(inplace=True),
                          nn.AvgPool2d(2), nn.Flatten(), nn.Linear(6 * 2 * 2, 5), nn.Dropout(0.5))  # fmt: skip
    return model, [floats(2, 3, 9, 8)]


def torch_training_mode() -> Case:
    """Left in training mode by its owner: a run is in inference all the same, and the mode stays."""
    model, inputs = torch_sequential()
    return model.train(), inputs


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(5, 7), nn.LayerNorm(7)
        self.scale = nn.Parameter(torch.rand(7) + 0.5)

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> dict[str, torch.Tensor]:
        x = F.gelu(self.first(a)) * self.scale
        x += self.first(b)
        x[:, 0] = 0.0
        y = torch.cat([self.norm(x), x.T.contiguous().T], dim=-1)
        return {"sum": y.sum(-1), "wide": torch.softmax(y / 2.0, -1)}


class TorchAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(17, 8, padding_idx=0)
        self.mha = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)
        self.norm = nn.LayerNorm(8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.table(ids)
        y, _ = self.mha(x, x, x, key_padding_mask=ids == 0, need_weights=False)
        return self.norm(x + y)


class TorchPacked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(4, 5, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(10, 3)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, (h, _) = self.rnn(packed)
        y, _ = nn.utils.rnn.pad_packed_sequence(y, batch_first=True)
        return self.head(y), h[-1]


class TorchShared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.Linear(6, 6), nn.Linear(6, 6, bias=False)
        self.out.weight = self.layer.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.tanh(self.layer(torch.tanh(self.layer(x)))))


def torch_functional() -> Case:
    return Functional(), [floats(3, 5), floats(3, 5)]


def torch_attention() -> Case:
    return TorchAttention(), [np.array([[3, 4, 5, 0], [7, 0, 0, 0], [1, 2, 9, 16]])]


def torch_packed() -> Case:
    return TorchPacked(), [floats(3, 6, 4), np.array([6, 2, 4])]


def torch_gru() -> Case:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.GRU(4, 5), nn.Linear(5, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.rnn(x)[0])

    return Tagger(), [floats(6, 3, 4)]


def torch_shared() -> Case:
    return TorchShared(), [floats(2, 6)]


# ---------------------------------------------------------------- Keras


def keras_functional() -> Case:
    a, b = keras.Input((9, 8, 3)), keras.Input((4,))
    x = layers.Conv2D(6, 3, strides=2, padding="same", activation="relu")(a)
    x = layers.BatchNormalization()(x)
    x = layers.SeparableConv2D(5, 3)(x)
    x = layers.GlobalAveragePooling2D()(x)
    y = layers.Concatenate()([x, layers.Dense(3, activation="gelu")(b)])
    return keras.Model([a, b], [layers.Dense(2)(y), y * 2.0 + 1.0]), [floats(2, 9, 8, 3), floats(2, 4)]


def keras_sequential() -> Case:
    model = keras.Sequential([keras.Input((7, 3)), layers.Conv1D(4, 3, padding="causal"), layers.LeakyReLU(0.2),
                              layers.Dropout(0.5), layers.GroupNormalization(2), layers.Flatten(),
                              layers.Dense(3, activation="softmax")])  # fmt: skip
    return model, [floats(2, 7, 3)]


class Subclassed(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = layers.Dense(7), layers.LayerNormalization()
        self.scale = self.add_weight(shape=(7,), initializer="ones", name="scale")

    def call(self, inputs: Any) -> Any:
        a, b = inputs
        x = keras.activations.gelu(self.first(a)) * self.scale
        x = x + self.first(b)
        y = ops.concatenate([self.norm(x), ops.transpose(ops.transpose(x))], axis=-1)
        return {"sum": ops.sum(y, -1), "wide": ops.softmax(y / 2.0, -1)}


class KerasAttention(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.table = layers.Embedding(17, 8, mask_zero=True)
        self.mha = layers.MultiHeadAttention(2, 4, dropout=0.1)
        self.add, self.norm = layers.Add(), layers.LayerNormalization()

    def call(self, ids: Any) -> Any:
        x = self.table(ids)
        return self.norm(self.add([x, self.mha(x, x)]))


def keras_lstm() -> Case:
    x = keras.Input((6, 4))
    y = layers.Masking()(x)
    y = layers.Bidirectional(layers.LSTM(5, return_sequences=True))(y)
    y = layers.GRU(4, return_sequences=True)(y)
    values = floats(3, 6, 4)
    values[1, 3:] = 0
    return keras.Model(x, layers.TimeDistributed(layers.Dense(2))(y)), [values]


def keras_subclassed() -> Case:
    model, inputs = Subclassed(), [floats(3, 5), floats(3, 5)]
    model(inputs)
    return model, inputs


def keras_attention() -> Case:
    model, inputs = KerasAttention(), [np.array([[3, 4, 5, 0], [7, 1, 0, 0], [1, 2, 9, 16]])]
    model(inputs[0])
    return model, inputs


def keras_shared() -> Case:
    layer = layers.Dense(6, activation="tanh")
    x = keras.Input((6,))
    inner = keras.Sequential([keras.Input((6,)), layer, layers.Dense(6)], name="inner")
    return keras.Model(x, inner(layer(layer(x)))), [floats(2, 6)]


CASES: list[Callable[[], Case]] = [
    torch_sequential, torch_training_mode, torch_functional, torch_attention, torch_packed, torch_gru, torch_shared,
    keras_functional, keras_sequential, keras_subclassed, keras_attention, keras_lstm, keras_shared,
]  # fmt: skip


def wrapped(make: Callable[[], Case]) -> tuple[Inspectable, list[np.ndarray], Any]:
    torch.manual_seed(0)
    keras.utils.set_random_seed(0)
    model, inputs = make()
    opened = open_model(model)
    assert isinstance(opened, Inspectable)
    return opened, inputs, model


@pytest.mark.parametrize("make", CASES, ids=lambda f: f.__name__)
def test_every_promise_is_kept(make: Callable[[], Case]) -> None:
    model, inputs, _ = wrapped(make)
    assert conformance.check(model, inputs) == []


def test_the_mode_of_a_torch_module_stays() -> None:
    model, inputs, module = wrapped(torch_training_mode)
    conformance.check(model, inputs)
    assert all(m.training for m in module.modules())


class Broken:
    """A sound adapter that breaks one promise."""

    def __init__(self, inner: Inspectable, promise: str) -> None:
        self.inner, self.promise, self.framework = inner, promise, inner.framework

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def run(self, batch: Any, plan: Plan | None = None, **options: Any) -> Any:
        given = Plan() if self.promise == "outputs_can_be_forced" else plan
        trace = self.inner.run(batch, given, **options)
        if self.promise == "trace_is_well_formed" and trace.calls:
            trace.calls[-1].origins[0] = ("call", len(trace.calls) + 3, 0)
        if self.promise == "two_runs_are_equal":
            for call in trace.calls[:1]:
                call.outputs = [a + RNG.random() for a in call.outputs]
        return trace

    def set_layer_weights(self, path: str, values: Any) -> None:
        if self.promise != "weights_can_be_written":
            self.inner.set_layer_weights(path, values)


@pytest.mark.parametrize(
    "promise", ["trace_is_well_formed", "two_runs_are_equal", "outputs_can_be_forced", "weights_can_be_written"]
)
def test_a_broken_promise_is_told(promise: str) -> None:
    model, inputs, _ = wrapped(keras_sequential)
    found = conformance.check(Broken(model, promise), inputs)  # type: ignore[arg-type]
    assert any(text.startswith(promise) for text in found)
