"""A clipping of a torch side is known by what it does to gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ambidex.adapters import torch_


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.n, self.b = nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.tanh(self.n(self.a(x))))  # type: ignore[no-any-return]


def made() -> Any:
    torch.manual_seed(0)
    return torch_.wrap(Net().eval())


def own_norm(parameters: Any) -> None:
    total = torch.sqrt(sum((p.grad**2).sum() for p in parameters))
    for p in parameters:
        p.grad.mul_(min(1.0, float(0.7 / total)))


def both_ways(parameters: Any) -> None:
    nn.utils.clip_grad_value_(parameters, 1.0)
    nn.utils.clip_grad_norm_(parameters, 0.5)


def always(parameters: Any) -> None:
    total = torch.sqrt(sum((p.grad**2).sum() for p in parameters))
    for p in parameters:
        p.grad.div_(total)


def named(named_parameters: Any) -> None:
    nn.utils.clip_grad_norm_([p for _, p in named_parameters], 2.0)


CLIPS: dict[str, tuple[Any, tuple[str, dict[str, Any]]]] = {
    "a third": (lambda p: nn.utils.clip_grad_value_(p, 1 / 3), ("ClipValue", {"value": 0.3333333333})),
    "written out": (own_norm, ("ClipNorm", {"scope": "global", "max_norm": 0.7, "epsilon": 0.0})),
    "named": (named, ("ClipNorm", {"scope": "global", "max_norm": 2.0, "epsilon": 1e-6})),
    "model": (lambda model: nn.utils.clip_grad_norm_(model.parameters(), 2.0),
              ("ClipNorm", {"scope": "global", "max_norm": 2.0, "epsilon": 1e-6})),
    "largest entry": (lambda p: nn.utils.clip_grad_norm_(p, 1.0, norm_type=float("inf")), ("", {})),
    "absolute sum": (lambda p: nn.utils.clip_grad_norm_(p, 1.0, norm_type=1), ("", {})),
    "value, then norm": (both_ways, ("", {})),
    "to length one": (always, ("", {})),
    "nothing": (lambda p: None, ("", {})),
    "some": (lambda p: nn.utils.clip_grad_norm_(list(p)[:1], 1.0), ("", {})),
}  # fmt: skip


@pytest.mark.parametrize("name", CLIPS)
def test_a_clipping_is_known_by_what_it_does(name: str) -> None:
    clip, (op, attrs) = CLIPS[name]
    form = torch_.trainer(made(), {"clip": clip}).forms["clip"]
    assert (form.op, form.attrs) == (op, attrs) and form.source is not None


@pytest.mark.parametrize("kind", ["norm", "value", "weight"])
def test_a_clipping_that_holds_the_model_is_tried_on_it(kind: str) -> None:
    model = made()
    module = model.module
    own = {p: torch.full_like(p, 9.0) for p in module.parameters()}
    for p, g in own.items():
        p.grad = g

    def clip(_: Any) -> None:
        if kind == "value":
            nn.utils.clip_grad_value_(module.parameters(), 0.3)
        for group in [module.parameters()] if kind == "norm" else module.parameters() if kind == "weight" else []:
            nn.utils.clip_grad_norm_(group, 0.5)

    form = torch_.trainer(model, {"clip": clip}).forms["clip"]
    wanted = {"norm": ("ClipNorm", {"scope": "global", "max_norm": 0.5, "epsilon": 0.0}),
              "weight": ("ClipNorm", {"scope": "weight", "max_norm": 0.5, "epsilon": 0.0}),
              "value": ("ClipValue", {"value": 0.3})}  # fmt: skip
    assert (form.op, form.attrs) == wanted[kind]
    assert all(p.grad is g and bool((g == 9.0).all()) for p, g in own.items())


def test_frozen_weights_count_where_a_clipping_is_given_their_gradients() -> None:
    model = made()
    model.module.a.requires_grad_(False)
    trainer = torch_.trainer(model, {"clip": lambda p: nn.utils.clip_grad_norm_(p, 1.0)})
    gradients = {"a.bias": np.full(5, 3.0, np.float32), "b.bias": np.full(3, 4.0, np.float32)}
    got = trainer.clip(gradients)
    total = np.sqrt(5 * 9 + 3 * 16)
    np.testing.assert_allclose(got["b.bias"], 4 / total, rtol=1e-5)
    assert got.keys() == gradients.keys()
