"""Promises about what is listed and recorded, and what a run leaves behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ambidex.conformance.near import LOOSE, apart, changed, is_packing, same, size
from ambidex.core.model import Batch, Inspectable
from ambidex.core.trace import Trace
from ambidex.core.types import Array


def trace_is_well_formed(model: Inspectable, batch: Batch, trace: Trace) -> Iterator[str]:
    """Keys are unique, indices count, origins point backwards and name what they carry."""
    if trace.framework != model.framework:
        yield f"the trace says {trace.framework!r}, the model {model.framework!r}"
    keys = [c.key for c in trace.calls]
    for key in {k for k in keys if keys.count(k) > 1}:
        yield f"key {key!r} is there {keys.count(key)} times"
    for i, call in enumerate(trace.calls):
        if call.index != i:
            yield f"{call.key!r} has index {call.index}, it is number {i}"
        counts = {len(call.names), len(call.origins), len(call.received), len(call.inputs)}
        if len(counts) != 1:
            yield f"{call.key!r} has names, origins, received and inputs in different numbers: {sorted(counts)}"
        if len(call.computed) != len(call.outputs):
            yield f"{call.key!r} computed {len(call.computed)} tensors and handed on {len(call.outputs)}"
        for n, origin in enumerate(call.origins):
            yield from _origin(trace, origin, f"input {n} of {call.key!r}", i, call.received[n])
        for array in (*call.received, *call.inputs, *call.computed, *call.outputs):
            if not isinstance(array, np.ndarray):
                yield f"{call.key!r} holds a {type(array).__name__}, no numpy array"
    if not trace.outputs:
        yield "there are no outputs"
    for name, value in trace.outputs.items():
        if name not in trace.output_origins:
            yield f"output {name!r} has no origin"
        else:
            yield from _origin(trace, trace.output_origins[name], f"output {name!r}", len(trace.calls), value)
    for name, value in trace.inputs.items():
        given = batch[name] if isinstance(batch, Mapping) else batch[int(name)]
        if not np.array_equal(value, given):
            yield f"input {name!r} is not what was given"


def _origin(trace: Trace, origin: Any, what: str, limit: int, value: Array) -> Iterator[str]:
    kind, where, number = origin
    if kind == "call":
        if not 0 <= where < limit:
            yield f"{what} comes from call {where}, which is not before it"
        elif number >= len(trace.calls[where].outputs):
            yield f"{what} comes from output {number} of {trace.calls[where].key!r}, which has fewer"
        elif not is_packing(trace, where, limit) and not same(trace.calls[where].outputs[number], value):
            yield f"{what} is not output {number} of {trace.calls[where].key!r}, which it is said to come from"
    elif kind == "input":
        if where not in trace.inputs:
            yield f"{what} comes from input {where!r}, which there is not"
    elif kind not in ("weight", "const"):
        yield f"{what} has an origin of the unknown kind {kind!r}"


def layers_are_listed(model: Inspectable, batch: Batch, trace: Trace) -> Iterator[str]:
    """Paths are unique; every called layer is listed; weights are named as the model names them."""
    layers = model.layers()
    paths = [layer.path for layer in layers]
    for path in {p for p in paths if paths.count(p) > 1}:
        yield f"path {path!r} is there {paths.count(path)} times"
    for call in trace.calls:
        if call.layer.weights and call.path not in paths:
            yield f"{call.path!r} was called and owns weights, but is not listed"
    names = set(model.weights())
    if strange := model.constants() - names:
        yield f"the constants {sorted(strange)[:3]} are no weights of the model"
    for layer in layers:
        named = [one for name in layer.weights.values() for one in name.split(" + ")]  # one role of several weights
        lost = [n for n in named if n.split("[")[0] not in names]
        if lost:
            yield f"{layer.path!r} names weights {lost} that the model does not have"
        if layer.op and layer.weights:
            roles = set(model.layer_weights(layer.path))
            if not set(layer.weights) <= roles:
                yield f"{layer.path!r} names the roles {sorted(layer.weights)}, its weights have {sorted(roles)}"


def two_runs_are_equal(model: Inspectable, batch: Batch, trace: Trace) -> Iterator[str]:
    again = model.run(batch)
    if [c.key for c in again.calls] != [c.key for c in trace.calls]:
        yield "the calls of a second run are others"
        return
    for a, b in zip(trace.calls, again.calls, strict=True):
        if not all(same(x, y) for x, y in zip(a.outputs, b.outputs, strict=True)):
            yield f"{a.key!r} gave other values in a second run"


def recording_changes_nothing(model: Inspectable, batch: Batch, trace: Trace) -> Iterator[str]:
    quiet = model.run(batch, record=False)
    if quiet.calls:
        yield "record=False recorded calls"
    if set(quiet.outputs) != set(trace.outputs):
        yield f"outputs {sorted(quiet.outputs)} without recording, {sorted(trace.outputs)} with it"
    for name in set(quiet.outputs) & set(trace.outputs):
        if not same(quiet.outputs[name], trace.outputs[name]):
            yield f"output {name!r} differs without recording"


def training_is_put_back(model: Inspectable, batch: Batch, trace: Trace) -> Iterator[str]:
    """A training run tells what it changed, and changes nothing that lasts."""
    before = {name: np.array(a) for name, a in model.weights().items()}
    first = model.run(batch, training=True)
    if other := changed(before, model.weights()):
        yield f"after a training run {other[:3]} have other values"
    for name in first.updates:
        if name not in before:
            yield f"update {name!r} is no weight"
        elif same(first.updates[name], before[name]):
            yield f"update {name!r} is what it was before"
    after = model.run(batch, record=False)
    for name, value in after.outputs.items():
        if not same(value, trace.outputs[name]):
            yield f"output {name!r} of an inference run is another after a training run"
    second = model.run(batch, training=True)
    for name, value in second.outputs.items():
        if not same(value, first.outputs[name]):
            yield f"output {name!r} of two training runs differs: their randomness is not fixed"


def exact_is_the_same_computation(model: Inspectable, batch: Batch, trace: Trace) -> Iterator[str]:
    """Where float64 could be had it is float64, and the same but for round-off."""
    for call in trace.calls:
        if call.exact is None:
            continue
        if len(call.exact) != len(call.computed):
            yield f"{call.key!r} has {len(call.computed)} outputs, {len(call.exact)} in float64"
            continue
        for n, (a, b) in enumerate(zip(call.computed, call.exact, strict=True)):
            if a.dtype.kind == "f" and b.dtype != np.float64:
                yield f"output {n} of {call.key!r} in float64 is {b.dtype}"
            if apart(a, b) > LOOSE * size(a):
                yield f"output {n} of {call.key!r} in float64 is off by {apart(a, b):.2g}"
    layers = [c for c in trace.calls if not c.layer.functional and c.exact is not None]
    if layers:
        chosen = model.run(batch, exact={layers[0].key})
        have = {c.key for c in chosen.calls if c.exact is not None and not c.layer.functional}
        if have != {layers[0].key}:
            yield f"float64 asked for {layers[0].key!r} alone came for {sorted(have)[:4]}"
