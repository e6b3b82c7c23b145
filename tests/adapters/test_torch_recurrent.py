"""Every recurrent torch layer: its translation is what torch computes; gates, directions and biases there and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.adapters.torch_reference import SEQ, V, assert_close, draw, prepared, reference
from torch import nn

from ambidex.adapters import torch_layers as tl
from ambidex.adapters.reference_ import evaluate

RECURRENT = {
    "lstm": lambda: nn.LSTM(6, 5),
    "lstm batch first, both": lambda: nn.LSTM(6, 5, batch_first=True, bidirectional=True),
    "lstm without bias": lambda: nn.LSTM(6, 5, bias=False, batch_first=True),
    "gru": lambda: nn.GRU(6, 5, batch_first=True),
    "gru both": lambda: nn.GRU(6, 5, bidirectional=True),
    "rnn": lambda: nn.RNN(6, 5, batch_first=True),
    "rnn relu both": lambda: nn.RNN(6, 5, nonlinearity="relu", bidirectional=True, batch_first=True),
}


@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.parametrize("start", [False, True])
def test_recurrent_layer(name: str, start: bool) -> None:
    module = prepared(RECURRENT[name]())
    dirs, batch = 2 if module.bidirectional else 1, 3 if module.batch_first else 7
    kinds = 2 if isinstance(module, nn.LSTM) else 1
    states = [draw(dirs, batch, 5, seed=i) for i in range(kinds)] if start else []
    hx = (tuple(states) if kinds == 2 else states[0]) if start else None
    with torch.no_grad():
        output, last = module(SEQ, hx)
    found = reference(module, SEQ, *states)
    assert_close(found[0], output)
    for mine, theirs in zip(found[1:], last if kinds == 2 else [last], strict=True):
        assert_close(mine, theirs)


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layer_without_batch_axis(name: str) -> None:
    module = prepared(RECURRENT[name]())
    with torch.no_grad():
        output, last = module(SEQ[0])
    found = reference(module, SEQ[0])
    assert_close(found[0], output)
    assert_close(found[1], last[0] if isinstance(last, tuple) else last)


@pytest.mark.parametrize("name", [n for n in RECURRENT if "batch first" in n or n in ("gru", "rnn")])
def test_packed_sequence_is_a_mask(name: str) -> None:
    module = prepared(RECURRENT[name]())
    lengths = torch.tensor([7, 4, 1])
    packed = nn.utils.rnn.pack_padded_sequence(SEQ, lengths, batch_first=True)
    with torch.no_grad():
        output, last = module(packed)
    wanted, _ = nn.utils.rnn.pad_packed_sequence(output, batch_first=True)
    mask = torch.arange(7)[None] < lengths[:, None]
    for extra in (mask, lengths):
        found = reference(module, SEQ, extra)
        assert_close(found[0], wanted)
        assert_close(found[1], last[0] if isinstance(last, tuple) else last)


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_weights(name: str) -> None:
    one, two = prepared(RECURRENT[name]()), prepared(RECURRENT[name](), seed=2)
    weights = {role: v.copy() for role, v in tl.get_weights(one).items()}
    tl.set_weights(two, weights)
    with torch.no_grad():
        torch.testing.assert_close(two(SEQ)[0], one(SEQ)[0], rtol=0, atol=0)
    assert {n for group in tl.weight_sources(one).values() for n in group} == {n for n, _ in one.named_parameters()}
    if "B" not in weights or isinstance(one, nn.GRU):
        return
    size = weights["B"].shape[1] // 2
    tl.set_weights(two, {"B": weights["B"][:, :size] + weights["B"][:, size:]})
    assert all(not v.any() for n, v in two.named_parameters() if n.startswith("bias_hh"))
    with torch.no_grad():
        torch.testing.assert_close(two(SEQ)[0], one(SEQ)[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("cls", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
@pytest.mark.parametrize("bias", [True, False])
def test_cells(cls: Any, bias: bool) -> None:
    module = prepared(cls(6, 5, bias=bias))
    states = [draw(5, 5, seed=i) for i in range(2 if cls is nn.LSTMCell else 1)]
    with torch.no_grad():
        wanted = module(V, tuple(states) if len(states) == 2 else states[0])
    found = reference(module, V, *states)
    for mine, theirs in zip(found, wanted if len(states) == 2 else [wanted], strict=True):
        assert_close(mine, theirs)
    assert_close(reference(module, V[0])[0], module(V[0])[0] if len(states) == 2 else module(V[0]))


def test_deep_recurrent_layer_is_a_stack() -> None:
    module = prepared(nn.GRU(6, 5, num_layers=3, bidirectional=True, batch_first=True))
    assert tl.translate(module) is None
    x: np.ndarray = SEQ.numpy()
    for t in tl.stack(module):
        x = evaluate(t.op, t.attrs, tl.get_weights(module, t), [x], layout=t.layout)[0]
    with torch.no_grad():
        assert_close(x, module(SEQ)[0])
    assert tl.stack(module)[2].roles["R"].names == ("weight_hh_l2", "weight_hh_l2_reverse")
    assert tl.stack(nn.Linear(2, 2)) == []
    assert tl.translate(nn.LSTM(6, 5, proj_size=2)) is None and tl.stack(nn.LSTM(6, 5, proj_size=2)) == []
