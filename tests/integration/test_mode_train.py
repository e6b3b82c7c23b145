"""``--mode train``: what matters in training alone is told, and layers that only stand elsewhere are not."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import torch
from keras import layers
from torch import nn

import ambidex

X = np.random.default_rng(0).standard_normal((8, 5, 6)).astype(np.float32)


class Net(nn.Module):
    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.Sequential(*parts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.parts(x)


class Outputs(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


def twin(*parts: Any) -> keras.Model:
    x = i = keras.Input((5, 6))
    for part in parts:
        x = part(x)
    return keras.Model(i, x)


def codes(reference: Any, candidate: Any) -> list[str]:
    report = ambidex.compare(reference, candidate, inputs=[X], mode="train")
    return [f.code for f in report.findings]


@pytest.mark.parametrize(
    ("torch_parts", "keras_parts", "wanted"),
    [
        ([nn.Linear(6, 8), nn.Dropout(0.3)], [layers.Dense(8), layers.Dropout(0.3)], []),
        ([nn.Linear(6, 8), nn.Dropout(0.3)], [layers.Dense(8), layers.Dropout(0.1)], ["AMB303"]),
        ([nn.Linear(6, 8), nn.Dropout(0.3)], [layers.Dense(8)], ["AMB303"]),
        ([nn.Linear(6, 8)], [layers.Dense(8), layers.Dropout(0.3)], ["AMB303"]),
        ([nn.Linear(6, 8), nn.Dropout(0.0)], [layers.Dense(8)], []),
        ([nn.Linear(6, 8), nn.Dropout(0.3), nn.ReLU()], [layers.Dense(8), layers.ReLU(), layers.Dropout(0.3)], []),
        ([Outputs(nn.LSTM(6, 8, batch_first=True))], [layers.LSTM(8, return_sequences=True)], []),
        ([Outputs(nn.LSTM(6, 8, batch_first=True))], [layers.LSTM(8, return_sequences=True, dropout=0.2)], ["AMB303"]),
        (
            [Outputs(nn.GRU(6, 8, batch_first=True))],
            [layers.GRU(8, return_sequences=True, recurrent_dropout=0.2)],
            ["AMB303"],
        ),
    ],
)
def test_dropout(torch_parts: list[Any], keras_parts: list[Any], wanted: list[str]) -> None:
    assert codes(Net(*torch_parts).eval(), twin(*keras_parts)) == wanted
    assert codes(twin(*[type(p).from_config(p.get_config()) for p in keras_parts]), Net(*torch_parts).eval()) == wanted


@pytest.mark.parametrize(("momentum", "wanted"), [(0.9, set()), (0.99, {"AMB301"})])
def test_the_running_statistics_of_a_norm(momentum: float, wanted: set[str]) -> None:
    x = np.random.default_rng(1).standard_normal((64, 6)).astype(np.float32)
    i = keras.Input((6,))
    candidate = keras.Model(i, layers.BatchNormalization(epsilon=1e-5, momentum=momentum)(layers.Dense(8)(i)))
    reference = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8)).eval()
    report = ambidex.compare(reference, candidate, inputs=[x], mode="train")
    # one divides its variance by n - 1, the other by n: no setting changes that
    assert {f.code for f in report.findings} == wanted | {"AMB302"}
