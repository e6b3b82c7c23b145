"""Promises about weights in canonical layout."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ambidex.conformance.near import changed, is_float, near, same, some
from ambidex.core.model import Batch, Inspectable
from ambidex.core.trace import Trace
from ambidex.core.types import Array
from ambidex.errors import InputError, UnsupportedError


def weights_can_be_written(model: Inspectable, batch: Batch, trace: Trace) -> Iterator[str]:
    """Every layer's canonical weights can be read, written and read again; the model then computes with them."""
    before = {name: np.array(a) for name, a in model.weights().items()}
    for layer in model.layers():
        roles = {r: np.array(a) for r, a in model.layer_weights(layer.path).items()}
        floats = {r: a for r, a in roles.items() if a.dtype.kind == "f"}
        if not floats:
            continue
        wanted = {r: (a * 0.5 + 0.125).astype(a.dtype) for r, a in floats.items()}
        try:
            model.set_layer_weights(layer.path, wanted)
        except (InputError, UnsupportedError):
            model.set_layer_weights(layer.path, roles)  # a layer with fewer numbers than its canonical form
            wanted = roles
        now = model.layer_weights(layer.path)
        for role, value in wanted.items():
            if not near(now[role], value) and not _one_bias(layer.op, role, now[role], value):
                yield f"{role} of {layer.path!r} is not what was written"
        if wanted is not roles and not changed(before, model.weights()):
            yield f"writing the weights of {layer.path!r} changed no weight of the model"
        model.set_layer_weights(layer.path, roles)
        if left := changed(before, model.weights()):
            yield f"writing the weights of {layer.path!r} back left {left[:3]} changed"
            model.set_weights({name: before[name] for name in left})
    for bad in ({"no such weight": np.zeros(1, np.float32)}, _misshapen(before)):
        if not bad:
            continue
        try:
            model.set_weights(bad)
            yield f"set_weights took {next(iter(bad))!r}, which does not fit"
        except InputError:
            pass


def _one_bias(op: str, role: str, a: Array, b: Array) -> bool:
    """A recurrent layer with one bias holds the sum of the canonical two."""
    if role != "B" or op not in ("LSTM", "GRU", "RNN") or a.shape != b.shape:
        return False
    halves = [x.reshape(x.shape[0], 2, -1).sum(1) for x in (a, b)]
    return near(halves[0], halves[1])


def _misshapen(weights: dict[str, Array]) -> dict[str, Array]:
    for name, value in weights.items():
        if value.dtype.kind == "f":
            return {name: np.zeros((*value.shape, 2), value.dtype)}
    return {}


def written_weights_count(model: Inspectable, batch: Batch, trace: Trace) -> Iterator[str]:
    """A layer whose weights were written computes with them in the next run."""
    for call in some(trace, lambda c: not c.layer.functional and bool(c.layer.op and c.layer.weights), 4):
        roles = {r: np.array(a) for r, a in model.layer_weights(call.path).items()}
        try:
            model.set_layer_weights(
                call.path, {r: a + np.asarray(0.25, a.dtype) for r, a in roles.items() if is_float(a)}
            )
        except (InputError, UnsupportedError):
            continue
        try:
            made = model.run(batch).by_key().get(call.key)
            if made is not None and all(same(a, b) for a, b in zip(made.computed, call.computed, strict=True)):
                yield f"{call.key!r} computes the same with other weights"
        finally:
            model.set_layer_weights(call.path, roles)
