"""Torch modules whose forward takes several tensors in one parameter: a list, a tuple or a dictionary of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ambidex import conformance
from ambidex.adapters import torch_ as adapter
from ambidex.core.types import Plan
from ambidex.errors import RunError

A, B = (np.random.default_rng(n).standard_normal((2, n)).astype("float32") for n in (3, 5))
SCALE = np.array([2.0], "float32")


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(5, 4)

    def joined(self, p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.a(p), self.b(q)], -1)


class OneList(Two):
    def forward(self, xs):
        return self.joined(xs[0], xs[1])


class Unpacked(Two):
    def forward(self, xs, training=False):
        p, q, scale = xs
        return self.joined(p, q) * scale


class TupleAndMore(Two):
    def forward(self, scale: torch.Tensor, xs: tuple[torch.Tensor, torch.Tensor]):
        assert isinstance(xs, tuple)
        return self.joined(*xs) * scale


class ByName(Two):
    def forward(self, batch):
        return self.joined(batch["p"], batch["q"])


class ListOfOne(Two):
    def forward(self, xs: list[torch.Tensor]):
        return self.a(xs[0])


class OneByOne(Two):
    def forward(self, p, q, scale=None):
        return self.joined(p, q) if scale is None else self.joined(p, q) * scale


class Any_(Two):
    def forward(self, *xs):
        return self.joined(*xs)


CASES: dict[str, tuple[type[Two], Any]] = {
    "a list": (OneList, [A, B]),
    "more than there are parameters": (Unpacked, [A, B, SCALE]),
    "a tuple behind another": (TupleAndMore, [SCALE, A, B]),
    "a dictionary": (ByName, {"p": A, "q": B}),
    "a list of one": (ListOfOne, [A]),
    "one by one": (OneByOne, [A, B]),
    "one by one, with an optional one": (OneByOne, [A, B, SCALE]),
    "by name": (OneByOne, {"q": B, "p": A}),
    "as many as come": (Any_, [A, B]),
}


@pytest.mark.parametrize("name", CASES)
def test_inputs_arrive_and_keep_every_promise(name: str) -> None:
    kind, batch = CASES[name]
    model = adapter.wrap(kind())
    assert conformance.check(model, batch) == []
    trace = model.run(batch)
    place = list(batch).index("p") if isinstance(batch, dict) else next(i for i, x in enumerate(batch) if x is A)
    name_of_a = "p" if isinstance(batch, dict) else str(place)
    assert trace.by_key()["a#0"].origins == [("input", name_of_a, 0)]
    forced = model.run(batch, Plan(inputs={"a#0": [A * 2]}))
    assert not np.allclose(forced.outputs["0"], trace.outputs["0"])


def test_a_list_that_was_not_wanted_is_told() -> None:
    with pytest.raises(RunError, match="2 inputs went into its parameter 'input' as a list"):
        adapter.wrap(nn.Sequential(nn.Linear(3, 2))).run([A, B])
