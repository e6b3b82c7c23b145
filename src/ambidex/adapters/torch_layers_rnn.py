"""Recurrent layers and cells of torch in canonical words: gate order, stacked directions, two biases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import nn

from ambidex.adapters.torch_layers_words import Role, Translation
from ambidex.core.types import Array
from ambidex.errors import InputError

#: canonical gate -> torch gate. LSTM: ONNX i,o,f,c from torch i,f,g,o; GRU: ONNX z,r,h from torch r,z,n
_ORDER = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}


def _reorder(op: str, value: Array, back: bool = False) -> Array:
    """The gates along the first axis in ONNX order, or back in torch order."""
    order = np.argsort(_ORDER[op]) if back else np.array(_ORDER[op])
    gates = np.split(value, len(order), axis=0)
    return np.concatenate([gates[i] for i in order], axis=0)


def _kernel(op: str, names: tuple[str, ...]) -> Role:
    """W or R: (dirs, gates * H, in), one torch tensor a direction."""

    def write(value: Array, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
        if value.ndim != 3 or value.shape[0] != len(names):
            raise InputError(
                f"{names[0]!r} takes an array of shape (directions, gates * hidden, inputs), given {value.shape}"
            )
        return [_reorder(op, v, back=True) for v in value]

    return Role(names, lambda values: np.stack([_reorder(op, v) for v in values]), write)


def _bias(op: str, names: tuple[str, ...]) -> Role:
    """B: (dirs, 2 * gates * H), of (bias_ih, bias_hh) by direction. One bias alone fills the input half."""
    dirs = len(names) // 2

    def read(values: Sequence[Array]) -> Array:
        return np.stack(
            [np.concatenate([_reorder(op, values[2 * d]), _reorder(op, values[2 * d + 1])]) for d in range(dirs)]
        )

    def write(value: Array, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
        size = shapes[0][0]
        if value.shape not in {(dirs, size), (dirs, 2 * size)}:
            raise InputError(
                f"{names[0]!r} takes biases of shape ({dirs}, {2 * size}) or ({dirs}, {size}), given {value.shape}"
            )
        halves = [(v[:size], v[size:] if len(v) > size else np.zeros_like(v)) for v in value]
        return [_reorder(op, half, back=True) for pair in halves for half in pair]

    return Role(names, read, write)


def _activations(op: str, m: Any) -> list[str]:
    if op == "RNN":
        return ["Relu" if m.nonlinearity == "relu" else "Tanh"]
    return ["Sigmoid", "Tanh", "Tanh"] if op == "LSTM" else ["Sigmoid", "Tanh"]


def _attrs(op: str, m: Any, *, both: bool, cell: bool) -> dict[str, Any]:
    attrs = {
        "hidden_size": int(m.hidden_size),
        "direction": "bidirectional" if both else "forward",
        "activations": _activations(op, m),
        "return_sequences": True,
        "merge": "concat",
        "zero_output_for_mask": True,
        "cell": cell,
    }
    return attrs | ({"linear_before_reset": 1} if op == "GRU" else {})


def rnn_layer(m: nn.RNNBase, index: int) -> Translation | None:
    """Layer ``index`` of a recurrent module; None for an LSTM with projections (no canonical operator)."""
    if m.proj_size:
        return None
    op = "LSTM" if isinstance(m, nn.LSTM) else "GRU" if isinstance(m, nn.GRU) else "RNN"
    ends = [f"_l{index}", f"_l{index}_reverse"][: 2 if m.bidirectional else 1]
    roles = {
        "W": _kernel(op, tuple(f"weight_ih{e}" for e in ends)),
        "R": _kernel(op, tuple(f"weight_hh{e}" for e in ends)),
    }
    if m.bias:
        roles["B"] = _bias(op, tuple(f"bias_{kind}{e}" for e in ends for kind in ("ih", "hh")))
    layout = "NTF" if m.batch_first else "TNF"
    return Translation(op, _attrs(op, m, both=m.bidirectional, cell=False), layout, roles)


def rnn_cell(m: nn.RNNCellBase) -> Translation:
    """A single step: attribute ``cell`` is set, outputs are the new states."""
    op = "LSTM" if isinstance(m, nn.LSTMCell) else "GRU" if isinstance(m, nn.GRUCell) else "RNN"
    roles = {"W": _kernel(op, ("weight_ih",)), "R": _kernel(op, ("weight_hh",))}
    if m.bias:
        roles["B"] = _bias(op, ("bias_ih", "bias_hh"))
    return Translation(op, _attrs(op, m, both=False, cell=True), "", roles)
