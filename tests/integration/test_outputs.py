"""Outputs that are no scores: whole numbers, truth values, and those of another size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import ambidex

X = np.random.default_rng(0).standard_normal((16, 6)).astype(np.float32)


class Net(nn.Module):
    def __init__(self, last: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.last = nn.Linear(6, 5), last

    def forward(self, x: torch.Tensor) -> Any:
        x = self.a(x)
        return x, self.last(x)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (lambda x: x.argmax(-1), lambda x: x.argmin(-1)),
        (lambda x: x > 0, lambda x: x < 0),
        (lambda x: torch.tanh(x), lambda x: torch.tanh(x)[:, :3]),
    ],
)
def test_other_numbers_beside_right_scores_are_told(right: Any, wrong: Any) -> None:
    assert ambidex.compare(Net(right), Net(right), inputs=[X]).verdict == "equal"
    report = ambidex.compare(Net(right), Net(wrong), inputs=[X])
    assert report.verdict == "different", report.notes
    assert any(f.where.candidate == "output 1" for f in report.findings), report.findings


def test_outputs_crosswise_are_only_proven_where_they_agree_so() -> None:
    class Two(nn.Module):
        def __init__(self, crossed: bool) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b, self.crossed = nn.Linear(6, 5), nn.Linear(6, 5), crossed

        def forward(self, x: torch.Tensor) -> Any:
            a, b = self.a(x), self.b(x)
            return (torch.tanh(b), a) if self.crossed else (a, b)

    report = ambidex.compare(Two(False), Two(True), inputs=[X])
    assert report.verdict == "different"
    assert not any(f.code == "AMB196" and f.proven and (f.after or 0.0) > 1e-3 for f in report.findings), (
        report.findings
    )


def test_weights_that_are_all_tiny_are_compared_at_their_own_scale() -> None:
    reference, candidate = nn.Linear(6, 5), nn.Linear(6, 5)
    with torch.no_grad():
        reference.weight.mul_(5e-8)
        candidate.load_state_dict(reference.state_dict())
        candidate.weight.mul_(1.3)
        for module in (reference, candidate):
            module.bias.zero_()
    report = ambidex.compare(reference, candidate, inputs=[X], weights="keep")
    assert [f.code[:4] for f in report.findings] == ["AMB2"], report.findings


def test_a_softmax_over_several_axes_is_compared() -> None:
    import keras

    class Softmax(nn.Module):
        def __init__(self, flat: bool) -> None:
            super().__init__()
            self.flat = flat

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.softmax(x.flatten(1), -1).reshape(x.shape) if self.flat else torch.softmax(x, -1)

    i = keras.Input((2, 3))
    candidate = keras.Model(i, keras.layers.Softmax(axis=(1, 2))(i))
    x = X.reshape(16, 2, 3)
    assert ambidex.compare(Softmax(True), candidate, inputs=[x]).verdict == "equal"
    report = ambidex.compare(Softmax(False), candidate, inputs=[x])
    assert [f.code for f in report.findings] == ["AMB118"] and report.findings[0].proven
