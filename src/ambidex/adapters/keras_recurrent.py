"""Recurrent layers of Keras 3 in canonical words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ambidex.adapters import keras_activations
from ambidex.adapters.keras_words import Attrs, Translation, own_class


def cell_kind(cell: Any) -> str | None:
    """The canonical operator of a recurrent cell."""
    return {"LSTMCell": "LSTM", "GRUCell": "GRU", "SimpleRNNCell": "RNN"}.get((own_class(cell) or object).__name__)


def cell_activations(cell: Any, kind: str) -> list[keras_activations.Activation]:
    """The canonical activations of a cell, in the order of ONNX."""
    inner = keras_activations.canonical(cell.activation)
    if kind == "RNN":
        return [inner]
    gate = keras_activations.canonical(cell.recurrent_activation)
    return [gate, inner, inner] if kind == "LSTM" else [gate, inner]


def _rnn_attrs(layers: Sequence[Any], kind: str, direction: str) -> Attrs | None:
    """Attributes of one or two (bidirectional) recurrent layers; None when they do not fit together."""
    cells = [layer.cell for layer in layers]
    found = [a for cell in cells for a in cell_activations(cell, kind)]
    if len({c.units for c in cells}) != 1 or any(not op for op, _ in found):
        return None
    first = layers[0]
    attrs: Attrs = {}
    attrs.update(
        hidden_size=int(cells[0].units), direction=direction, activations=[[op, a] if a else op for op, a in found]
    )
    attrs.update(
        return_sequences=bool(first.return_sequences),
        zero_output_for_mask=bool(getattr(first, "zero_output_for_mask", False)),
    )
    if kind == "GRU":
        if len({bool(c.reset_after) for c in cells}) != 1:
            return None
        attrs["linear_before_reset"] = int(cells[0].reset_after)
    for name in ("dropout", "recurrent_dropout"):
        if getattr(cells[0], name, 0.0):
            attrs[name] = float(getattr(cells[0], name))
    if first.stateful:
        attrs["stateful"] = True
    return attrs


def rnn(layer: Any, ndim: int | None) -> Translation | None:
    """LSTM, GRU, SimpleRNN, and RNN around one of their cells."""
    kind = cell_kind(layer.cell)
    if kind is None:
        return None
    attrs = _rnn_attrs([layer], kind, "reverse" if layer.go_backwards else "forward")
    if attrs is None:
        return None
    if layer.go_backwards and layer.return_sequences:
        attrs["keep_reversed"] = True  # Keras hands the steps on in the order it made them, ONNX in the input's
    return Translation(kind, attrs, "NTF")


def bidirectional(layer: Any, ndim: int | None) -> Translation | None:
    """Two directions as one canonical layer; None when they do not fit together."""
    pair = [layer.forward_layer, layer.backward_layer]
    kinds = {cell_kind(x.cell) if hasattr(x, "cell") else None for x in pair}
    if len(kinds) != 1 or None in kinds or layer.forward_layer.go_backwards or any(own_class(x) is None for x in pair):
        return None
    kind = kinds.pop() or ""
    attrs = _rnn_attrs(pair, kind, "bidirectional")
    if attrs is None:
        return None
    attrs["merge"] = layer.merge_mode
    return Translation(kind, attrs, "NTF")
