"""Faults in code between layers that people really make: each told by its own rule, at its own place, and alone."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from keras import ops
from torch import nn

import ambidex
from ambidex.core.report import Report

RNG = np.random.default_rng(5)


def built(model: keras.Model, *inputs: np.ndarray) -> keras.Model:
    model(list(inputs) if len(inputs) > 1 else inputs[0])
    return model


def codes(report: Report) -> list[str]:
    assert all(f.proven for f in report.findings), report.findings
    return [f.code for f in report.findings]


class Attend(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)
        self.out = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        scores = self.q(x) @ self.k(x).transpose(1, 2) / 6**0.5
        return self.out(scores.masked_fill(hidden, -torch.inf).softmax(-1) @ self.v(x))


class KerasAttend(keras.Model):
    def __init__(self, diagonal: int = 0, sign: float = -1.0) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (
            keras.layers.Dense(n, name=c) for n, c in zip((6, 6, 6, 4), "qkvo", strict=True)
        )
        self.diagonal, self.sign = diagonal, sign

    def call(self, x: Any) -> Any:
        seen = ops.tril(ops.ones((x.shape[1], x.shape[1])), k=self.diagonal)
        scores = self.q(x) @ ops.swapaxes(self.k(x), 1, 2) / 6**0.5 + self.sign * 1e9 * (1.0 - seen)
        return self.out(ops.softmax(scores) @ self.v(x))


SEQUENCE = RNG.standard_normal((3, 7, 6)).astype(np.float32)


@pytest.mark.parametrize(("given", "code"), [({"diagonal": 1}, "AMB410"), ({"sign": 1.0}, "AMB402")])
def test_a_causal_mask_a_diagonal_off_or_of_the_wrong_sign(given: dict[str, Any], code: str) -> None:
    """The wrong sign adds 1e9 to scores: the digits lost by it must not pass for round-off."""
    report = ambidex.compare(Attend().eval(), built(KerasAttend(**given), SEQUENCE), inputs=SEQUENCE)
    assert report.verdict == "different"
    assert codes(report) == [code]


class Graph(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin, self.out = nn.Linear(5, 4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor, adjacency: torch.Tensor) -> torch.Tensor:
        h = self.lin(x)
        return self.out((h @ h.T).masked_fill(adjacency == 0, -torch.inf).softmax(-1) @ h)


class KerasGraph(keras.Model):
    def __init__(self, transposed: bool) -> None:
        super().__init__()
        self.lin, self.out, self.transposed = keras.layers.Dense(4), keras.layers.Dense(3), transposed

    def call(self, inputs: Any) -> Any:
        x, a = inputs
        h = self.lin(x)
        a = ops.transpose(a) if self.transposed else a
        return self.out(ops.softmax(h @ ops.transpose(h) - 1e9 * (1.0 - a)) @ h)


@pytest.mark.parametrize("transposed", [False, True])
def test_an_adjacency_used_transposed(transposed: bool) -> None:
    x, a = RNG.standard_normal((9, 5)).astype(np.float32), (RNG.random((9, 9)) < 0.4).astype(np.float32)
    np.fill_diagonal(a, 1.0)
    report = ambidex.compare(Graph().eval(), built(KerasGraph(transposed), x, a), inputs=(x, a))
    assert codes(report) == (["AMB411"] if transposed else [])


class Cosine(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(5, 6)

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.cosine_similarity(self.lin(a), self.lin(b), dim=1)


def keras_cosine(normalize: bool) -> keras.Model:
    a, b = keras.Input((5,)), keras.Input((5,))
    dense = keras.layers.Dense(6)
    y = keras.layers.Dot(1, normalize=normalize)([dense(a), dense(b)])
    return keras.Model([a, b], keras.layers.Reshape(())(y))


@pytest.mark.parametrize("normalize", [True, False])
def test_a_cosine_that_is_not_normalised(normalize: bool) -> None:
    pair = tuple(RNG.standard_normal((2, 4, 5)).astype(np.float32))
    report = ambidex.compare(Cosine().eval(), keras_cosine(normalize), inputs=pair)
    assert codes(report) == ([] if normalize else ["AMB107"])


class HandNorm(keras.layers.Layer):
    def __init__(self, epsilon: float, outside: bool) -> None:
        super().__init__()
        self.epsilon, self.outside = epsilon, outside

    def build(self, shape: Any) -> None:
        self.gain, self.shift = self.add_weight(shape=shape[-1:], name="gain"), self.add_weight(shape=shape[-1:])

    def call(self, x: Any) -> Any:
        mean, var = ops.moments(x, axes=[1], keepdims=True)
        root = ops.sqrt(var) + self.epsilon if self.outside else ops.sqrt(var + self.epsilon)
        return (x - mean) / root * self.gain + self.shift


@pytest.mark.parametrize(
    ("epsilon", "outside", "code"), [(1e-5, False, None), (1e-3, False, "AMB101"), (1e-3, True, "AMB105")]
)
def test_a_norm_that_is_code_on_one_side(epsilon: float, outside: bool, code: str | None) -> None:
    x = (0.05 * RNG.standard_normal((3, 11, 4))).astype(np.float32)  # small: an epsilon shows
    reference = nn.Sequential(nn.InstanceNorm1d(4, affine=True), nn.Conv1d(4, 2, 1))
    norm = HandNorm(epsilon, outside)
    candidate = built(keras.Sequential([norm, keras.layers.Conv1D(2, 1)]), x)
    report = ambidex.compare(
        reference.eval(), candidate, inputs={"reference": np.swapaxes(x, 1, 2).copy(), "candidate": x}
    )
    assert codes(report) == ([code] if code else [])


class Pooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb, self.out = nn.Embedding(9, 5), nn.Linear(5, 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        known = (ids != 0).unsqueeze(-1)
        x = self.emb(ids) + self.positions(ids.shape[1])
        return self.out((x * known).sum(1) / known.sum(1))

    @staticmethod
    def positions(steps: int) -> torch.Tensor:
        return torch.sin(torch.arange(steps)[:, None] / 10 ** (torch.arange(5) / 5))


class KerasPooled(keras.Model):
    def __init__(self, masked: bool) -> None:
        super().__init__()
        self.emb, self.out, self.masked = keras.layers.Embedding(9, 5), keras.layers.Dense(2), masked

    def call(self, ids: Any) -> Any:
        x = self.emb(ids) + Pooled.positions(ids.shape[1]).numpy()
        if not self.masked:
            return self.out(ops.mean(x, axis=1))
        known = ops.cast(ids != 0, "float32")[..., None]
        return self.out(ops.sum(x * known, axis=1) / ops.sum(known, axis=1))


@pytest.mark.parametrize("masked", [True, False])
def test_a_mean_over_padding(masked: bool) -> None:
    ids = np.array([[3, 4, 5, 1], [2, 8, 0, 0], [7, 0, 0, 0]])
    report = ambidex.compare(Pooled().eval(), built(KerasPooled(masked), ids), inputs=ids)
    assert codes(report) == ([] if masked else ["AMB407"])
