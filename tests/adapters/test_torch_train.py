"""Gradients and steps of torch models that are not simple, against plain torch; the models stay as they were."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ambidex.adapters import torch_
from ambidex.core.training import Example

RNG = np.random.default_rng(5)
X = RNG.standard_normal((4, 6)).astype(np.float32)
SEQUENCE = RNG.standard_normal((4, 5, 8)).astype(np.float32)
IDS = RNG.integers(0, 7, (4, 5))
IDS[0, :2] = 0


class InPlace(nn.Module):
    """Layers that write into what the layer before them returned."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.n, self.act, self.b = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ELU(inplace=True), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(self.n(self.a(x)))
        y = self.b(x).mul_(2.0)
        y[:, 0] = x[:, 0]
        return self.b(F.elu_(y)) + y.tanh()


class Attending(nn.Module):
    def __init__(self, batch_first: bool = True) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=batch_first)
        self.norm = nn.LayerNorm(8)
        self.out = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, _ = self.attn(x, x, x)
        y = self.norm(x + y)
        q = F.scaled_dot_product_attention(y, y, y, None, 0.3 if self.training else 0.0, True)
        return self.out(F.dropout(q, 0.4, self.training))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 8, padding_idx=0)
        self.rnn = nn.LSTM(8, 6, num_layers=2, bidirectional=True, batch_first=True, dropout=0.5)
        self.gru = nn.GRU(12, 7, num_layers=2, batch_first=True, dropout=0.3)
        self.out = nn.Linear(7, 8, bias=False)
        self.last = nn.Linear(8, 7, bias=False)
        self.last.weight = self.table.weight  # tied

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        y, _ = self.rnn(self.table(ids))
        return self.last(self.out(self.gru(y)[0]))


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        for p in self.first.parameters():
            p.requires_grad = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.sigmoid(self.second(torch.tanh(self.first(x))))
        return self.third(self.second(x) * x)


def made(build: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return build().eval()


def quiet(module: nn.Module) -> nn.Module:
    """A copy that drops nothing, in training mode."""
    other = copy.deepcopy(module).train()
    for m in other.modules():
        if isinstance(m, nn.MultiheadAttention | nn.LSTM | nn.GRU):
            m.dropout = 0.0
    return other


def state_of(module: nn.Module) -> list[Any]:
    tensors = [*module.parameters(), *module.buffers()]
    return [[t.detach().clone() for t in tensors], [p.grad for p in module.parameters()],
            [m.training for m in module.modules()], torch.get_rng_state(),
            [getattr(m, "dropout", None) for m in module.modules() if not isinstance(m, nn.Transformer)]]  # fmt: skip


def unchanged(before: list[Any], after: list[Any]) -> bool:
    return (
        all(torch.equal(a, b) for a, b in zip(before[0], after[0], strict=True))
        and all(a is b for a, b in zip(before[1], after[1], strict=True))
        and before[2] == after[2]
        and torch.equal(before[3], after[3])
        and before[4] == after[4]
    )


CASES: dict[str, tuple[Callable[[], nn.Module], np.ndarray]] = {
    "in place": (InPlace, X),
    "attention": (Attending, SEQUENCE),
    "attention, time first": (lambda: Attending(False), SEQUENCE),
    "recurrent": (Recurrent, IDS),
    "frozen, called twice": (Plain, X),
    "encoder": (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 2),
                SEQUENCE),
    "convolution": (lambda: nn.Sequential(nn.Conv1d(5, 4, 3), nn.BatchNorm1d(4), nn.ELU(1.0, True), nn.AvgPool1d(2),
                                          nn.Flatten(), nn.Linear(12, 3)), SEQUENCE),
}  # fmt: skip


def mean_square(out: torch.Tensor, y: Any) -> torch.Tensor:
    return (out**2).mean()


def without_random(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(F, "dropout", lambda x, *a, **k: x)
    real = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention",
                        lambda q, k, v, mask=None, p=0.0, causal=False: real(q, k, v, mask, 0.0, causal))  # fmt: skip


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_gradients_of_weights_are_those_of_plain_torch(
    name: str, training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, x = CASES[name]
    module = made(build)
    model = torch_.wrap(module)
    for p in module.parameters():
        p.grad = torch.ones_like(p)  # the user's own stay
    before = state_of(module)
    got = torch_.trainer(model, {"loss": mean_square}).gradients(Example([x], None), training=training)
    assert unchanged(before, state_of(module))
    plain = quiet(module).train(training)
    plain.zero_grad()
    without_random(plain, monkeypatch)
    loss = mean_square(plain(torch.from_numpy(x)), None)
    loss.backward()
    assert got.loss == pytest.approx(loss.item(), rel=1e-5)
    wanted = {n: p.grad.numpy() for n, p in plain.named_parameters() if p.grad is not None}
    assert got.weights.keys() == wanted.keys()
    for n, g in wanted.items():
        np.testing.assert_allclose(got.weights[n], g, rtol=1e-4, atol=1e-6 * np.abs(g).max() + 1e-9)
    buffers = dict(plain.named_buffers())
    assert set(got.updates) == {n for n, b in module.named_buffers() if not torch.equal(b, buffers[n])}
    for n, b in got.updates.items():
        np.testing.assert_allclose(b, buffers[n].numpy(), rtol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_calls_fit_a_recorded_run(name: str) -> None:
    """The gradient of a call's output tells how the loss moves when that output is moved in a run."""
    from ambidex.core.types import Plan

    build, x = CASES[name]
    module = made(build).double()
    model = torch_.wrap(module)
    x = x.astype(np.float64) if x.dtype == np.float32 else x
    got = torch_.trainer(model, {"loss": mean_square}).gradients(Example([x], None))
    trace = model.run([x])
    calls = trace.by_key()
    assert set(got.calls) <= set(calls)
    layers = {c.key for c in trace.calls if not c.layer.functional and c.layer.weights}
    parts = {f"{path}#0" for path in model._tree.owners} | {"attn.attention#0"}
    assert layers - parts - {"first#0"} <= set(got.calls)  # a frozen layer has no gradient
    for key, slope in got.calls.items():
        first = calls[key].outputs[0]
        assert slope.shape == first.shape, key
        step = 1e-6 * RNG.standard_normal(first.shape)
        values = []
        for sign in (1.0, -1.0):
            plan = Plan(outputs={key: [first + sign * step, *[None] * (len(calls[key].outputs) - 1)]})
            values.append(float((model.run([x], plan).outputs["0"] ** 2).mean()))
        assert (values[0] - values[1]) / 2 == pytest.approx(float((slope * step).sum()), rel=1e-3, abs=1e-13), key


class Branches(nn.Module):
    """Branches that training drops at random, as layers of other packages do; packed sequences; compiled parts."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.out = nn.GRU(8, 6, batch_first=True), torch.compile(nn.Sequential(nn.Linear(6, 3), nn.RReLU()))
        self.path = DropPath()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 4, 2, 1]), batch_first=True)
        y, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.out(self.path(y) + y)  # type: ignore[no-any-return]


class DropPath(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.bernoulli(torch.full((len(x), 1, 1), 0.5)) if self.training else x


def test_what_drops_branches_does_not_and_what_is_compiled_runs_as_written() -> None:
    module = made(Branches)
    model = torch_.wrap(module)
    trainer = torch_.trainer(model, {"loss": mean_square, "optimizer": lambda p: torch.optim.SGD(p, 0.1)})
    one, two = (trainer.gradients(Example([SEQUENCE], None), training=t) for t in (False, True))
    assert one.loss == two.loss and one.weights.keys() == {n for n, _ in module.named_parameters()}
    for n, g in one.weights.items():
        np.testing.assert_array_equal(g, two.weights[n])
    assert set(two.calls) <= {c.key for c in model.run([SEQUENCE]).calls} and "out._orig_mod.0#0" in two.calls
    assert trainer.steps([Example([SEQUENCE], None)] * 2).losses[0] == pytest.approx(one.loss)
