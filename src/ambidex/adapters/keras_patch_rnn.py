"""Changing live recurrent layers of Keras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keras import ops

from ambidex.adapters import keras_activations
from ambidex.adapters.keras_edits import Edits, override, refuse, rest
from ambidex.adapters.keras_words import Attrs, Translation


def rnn(layer: Any, changed: Attrs, found: Translation, edits: Edits) -> None:
    """Attributes of LSTM, GRU and RNN, one direction or two."""
    both = [layer.forward_layer, layer.backward_layer] if hasattr(layer, "forward_layer") else [layer]
    if "activations" in changed:
        _cell_activations(both, found.op, changed.pop("activations"), edits)
    if "return_sequences" in changed:
        value = bool(changed.pop("return_sequences"))
        for target in {id(t): t for t in (*both, layer)}.values():
            edits.set(target, "return_sequences", value)
    if "zero_output_for_mask" in changed:
        value = bool(changed.pop("zero_output_for_mask"))
        for target in both:
            edits.set(target, "zero_output_for_mask", value)
    if "merge" in changed and len(both) == 2:
        edits.set(layer, "merge_mode", changed.pop("merge"))
    for name in ("dropout", "recurrent_dropout"):
        if name in changed:
            rate = float(changed.pop(name))
            for target in both:
                edits.set(target.cell, name, rate)
    if len(both) == 1 and {"direction", "keep_reversed"} & changed.keys():
        new = {**found.attrs, **changed}
        if new["direction"] not in ("forward", "reverse"):
            raise refuse(layer, "direction", new["direction"], "it has the weights of one direction")
        back = new["direction"] == "reverse"
        edits.set(layer, "go_backwards", back)
        if back and layer.return_sequences and not changed.get("keep_reversed", False):
            override(layer, edits, _in_time_order)
        changed.pop("direction", None)
        changed.pop("keep_reversed", None)
    rest(layer, changed)


def _in_time_order(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    out = call(*args, **kwargs)
    if isinstance(out, list | tuple):
        return (ops.flip(out[0], axis=1), *out[1:])
    return ops.flip(out, axis=1)


def _cell_activations(layers: list[Any], op: str, values: Any, edits: Edits) -> None:
    per = {"LSTM": 3, "GRU": 2, "RNN": 1}[op]
    given = [(v, {}) if isinstance(v, str) else (v[0], dict(v[1])) for v in values]
    if len(given) == per:
        given = given * len(layers)
    for i, layer in enumerate(layers):
        mine = given[i * per : (i + 1) * per]
        if len(mine) != per or (op == "LSTM" and mine[1] != mine[2]):
            raise refuse(layer, "activations", values, "Keras has one activation for the gates and one for the rest")
        edits.set(layer.cell, "activation", keras_activations.function(*mine[-1]))
        if per > 1:
            edits.set(layer.cell, "recurrent_activation", keras_activations.function(*mine[0]))
