"""Pairs that differ inside and are the same function: they must not be accused; their spoiled twins must be."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import torch
from torch import nn

import ambidex

X = np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)


class Glu(nn.Module):
    def __init__(self, exchanged: bool) -> None:
        super().__init__()
        self.a, self.b, self.exchanged = nn.Linear(6, 16), nn.Linear(8, 3), exchanged

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        u, v = self.a(x).chunk(2, -1)
        return self.b(v * torch.sigmoid(u) if self.exchanged else u * torch.sigmoid(v))


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.n, self.b = nn.Linear(6, 16), nn.LayerNorm(16), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.relu(self.n(self.a(x))))


def half(x: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([-b, a], -1)


def pairwise(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)


class Rotary(nn.Module):
    def __init__(self, interleaved: bool) -> None:
        super().__init__()
        self.q, self.k, self.v, self.interleaved = nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(6, 8), interleaved

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        f = torch.arange(x.shape[1])[:, None] * torch.tensor([1.0, 0.3, 0.1, 0.03])
        f = f.repeat_interleave(2, -1) if self.interleaved else torch.cat([f, f], -1)
        turn = pairwise if self.interleaved else half
        q, k = (y * f.cos() + turn(y) * f.sin() for y in (self.q(x), self.k(x)))
        return torch.softmax(q @ k.transpose(1, 2) / 8**0.5, -1) @ self.v(x)


def glu() -> tuple[nn.Module, nn.Module, np.ndarray]:
    reference, candidate = Glu(False), Glu(True)
    candidate.load_state_dict(reference.state_dict())
    candidate.a.weight.data, candidate.a.bias.data = (p.data.roll(8, 0) for p in (reference.a.weight, reference.a.bias))
    return reference, candidate, X


def mlp() -> tuple[nn.Module, nn.Module, np.ndarray]:
    reference, candidate = Mlp(), Mlp()
    for p in reference.n.parameters():
        nn.init.uniform_(p, 0.5, 2.0)
    order = torch.randperm(16)
    state = reference.state_dict()
    for name in ("a.weight", "a.bias", "n.weight", "n.bias"):
        state[name] = state[name][order]
    state["b.weight"] = state["b.weight"][:, order]
    candidate.load_state_dict(state)
    return reference, candidate, X


def rotary() -> tuple[nn.Module, nn.Module, np.ndarray]:
    reference, candidate = Rotary(False), Rotary(True)
    state = reference.state_dict()
    order = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7])
    for name in ("q.weight", "q.bias", "k.weight", "k.bias"):
        state[name] = state[name][order]
    candidate.load_state_dict(state)
    return reference, candidate, np.random.default_rng(1).standard_normal((3, 5, 6)).astype(np.float32)


@pytest.mark.parametrize(("make", "last"), [(glu, "b.weight"), (mlp, "b.weight"), (rotary, "v.weight")])
def test_hidden_units_in_another_order_are_no_fault_unless_what_follows_forgets_it(make: Any, last: str) -> None:
    torch.manual_seed(0)
    reference, candidate, x = make()
    report = ambidex.compare(reference, candidate, inputs=[x], weights="keep")
    assert report.verdict == "equal" and any("another order" in n for n in report.notes), report.findings
    with torch.no_grad():
        weight = candidate.get_parameter(last)
        weight.copy_(weight.roll(1, 1))
    spoiled = ambidex.compare(reference, candidate, inputs=[x], weights="keep")
    assert spoiled.verdict == "different" and not any("another order" in n for n in spoiled.notes)


class Halves(nn.Module):
    def __init__(self, split: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.split = nn.Linear(6, 8), nn.Linear(8, 3), split

    def core(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.relu(self.a(x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.core(x[:4]), self.core(x[4:])]) if self.split else self.core(x)


@pytest.mark.parametrize("split", [False, True])
def test_a_batch_that_one_side_runs_in_two_halves(split: bool) -> None:
    report = ambidex.compare(Halves(split), Halves(not split), inputs=[X])
    assert report.verdict == "equal", report.findings
    wrong = Halves(not split)
    wrong.core = lambda x: wrong.b(torch.tanh(wrong.a(x)))  # type: ignore[method-assign]
    assert ambidex.compare(Halves(split), wrong, inputs=[X]).verdict == "different"


class Rounded(nn.Module):
    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.interpolate(x, size=(6, 6), mode="bilinear", align_corners=False)
        return torch.round(self.factor * x)


def test_rounding_decides_a_tie_and_nothing_else_is_called_one() -> None:
    i = keras.Input((4, 4, 3))
    candidate = keras.Model(i, keras.ops.round(keras.layers.Resizing(6, 6)(i)))
    x = np.random.default_rng(0).integers(0, 20, (2, 3, 4, 4)).astype(np.float32)
    report = ambidex.compare(Rounded(), candidate, inputs=[x])
    assert report.whole_model.max_abs == 1.0, "no tie: the test shows nothing"
    assert report.verdict == "equal" and any("lies on a step" in n for n in report.notes), report.findings
    assert ambidex.compare(Rounded(1.01), candidate, inputs=[x]).verdict == "different"
