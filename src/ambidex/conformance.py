"""What an adapter promises, as a check that anyone can run over an adapter of their own.

::

    from ambidex.conformance import check

    assert check(my_adapter.wrap(model), batch) == []

Every line that comes back is a broken promise in words. The model is left as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ambidex.core import floor as floors
from ambidex.core.model import Batch, Inspectable
from ambidex.core.trace import Trace
from ambidex.core.types import Array, Call, Plan
from ambidex.errors import AmbidexError, InputError, UnsupportedError

#: float32 against float64 of one call: off by more than this share of its size is another computation
LOOSE = 1e-3
#: a call made again on its own inputs: sums may be taken in another order
AGAIN = 1e-5


def check(model: Inspectable, batch: Batch) -> list[str]:
    """The promises of :class:`ambidex.core.model.Inspectable` that ``model`` breaks on this batch."""
    found: list[str] = []
    before = {name: np.array(a) for name, a in model.weights().items()}
    trace = model.run(batch, exact=True)
    for promise in PROMISES:
        try:
            found += [f"{promise.__name__}: {text}" for text in promise(model, batch, trace)]
        except AmbidexError as error:
            found.append(f"{promise.__name__}: raised {type(error).__name__}: {error}")
        broken = _changed(before, model.weights())
        if broken:
            found.append(f"{promise.__name__}: weights {broken[:3]} are not as they were")
            model.set_weights({name: before[name] for name in broken})
    return found


# ---------------------------------------------------------------- what a trace is


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
        elif not _is_packing(trace, where, limit) and not _same(trace.calls[where].outputs[number], value):
            yield f"{what} is not output {number} of {trace.calls[where].key!r}, which it is said to come from"
    elif kind == "input":
        if where not in trace.inputs:
            yield f"{what} comes from input {where!r}, which there is not"
    elif kind not in ("weight", "const"):
        yield f"{what} has an origin of the unknown kind {kind!r}"


def _is_packing(trace: Trace, *calls: int) -> bool:
    """A packed sequence travels as its data and is told as padded steps and a mask."""
    return any(i < len(trace.calls) and (trace.calls[i].op == "Pack" or "mask" in trace.calls[i].names) for i in calls)


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


# ---------------------------------------------------------------- running


def two_runs_are_equal(model: Inspectable, batch: Batch, trace: Trace) -> Iterator[str]:
    again = model.run(batch)
    if [c.key for c in again.calls] != [c.key for c in trace.calls]:
        yield "the calls of a second run are others"
        return
    for a, b in zip(trace.calls, again.calls, strict=True):
        if not all(_same(x, y) for x, y in zip(a.outputs, b.outputs, strict=True)):
            yield f"{a.key!r} gave other values in a second run"


def recording_changes_nothing(model: Inspectable, batch: Batch, trace: Trace) -> Iterator[str]:
    quiet = model.run(batch, record=False)
    if quiet.calls:
        yield "record=False recorded calls"
    if set(quiet.outputs) != set(trace.outputs):
        yield f"outputs {sorted(quiet.outputs)} without recording, {sorted(trace.outputs)} with it"
    for name in set(quiet.outputs) & set(trace.outputs):
        if not _same(quiet.outputs[name], trace.outputs[name]):
            yield f"output {name!r} differs without recording"


def training_is_put_back(model: Inspectable, batch: Batch, trace: Trace) -> Iterator[str]:
    """A training run tells what it changed, and changes nothing that lasts."""
    before = {name: np.array(a) for name, a in model.weights().items()}
    first = model.run(batch, training=True)
    if changed := _changed(before, model.weights()):
        yield f"after a training run {changed[:3]} have other values"
    for name in first.updates:
        if name not in before:
            yield f"update {name!r} is no weight"
        elif _same(first.updates[name], before[name]):
            yield f"update {name!r} is what it was before"
    after = model.run(batch, record=False)
    for name, value in after.outputs.items():
        if not _same(value, trace.outputs[name]):
            yield f"output {name!r} of an inference run is another after a training run"
    second = model.run(batch, training=True)
    for name, value in second.outputs.items():
        if not _same(value, first.outputs[name]):
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
            if _apart(a, b) > LOOSE * _size(a):
                yield f"output {n} of {call.key!r} in float64 is off by {_apart(a, b):.2g}"
    layers = [c for c in trace.calls if not c.layer.functional and c.exact is not None]
    if layers:
        chosen = model.run(batch, exact={layers[0].key})
        have = {c.key for c in chosen.calls if c.exact is not None and not c.layer.functional}
        if have != {layers[0].key}:
            yield f"float64 asked for {layers[0].key!r} alone came for {sorted(have)[:4]}"


# ---------------------------------------------------------------- plans


def outputs_can_be_forced(model: Inspectable, batch: Batch, trace: Trace) -> Iterator[str]:
    """What is forced is handed on and reaches those that use it; what the layer itself computed is still told."""
    for call in _some(trace, lambda c: bool(c.computed) and _is_float(c.computed[0]) and c.computed[0].size > 0):
        wanted = (call.computed[0] * 1.5 + 0.25).astype(call.computed[0].dtype)
        plan = Plan(outputs={call.key: [wanted] + [None] * (len(call.computed) - 1)})
        run = model.run(batch, plan)
        made = run.by_key().get(call.key)
        if made is None:
            yield f"{call.key!r} is gone when its output is forced"
            continue
        if not _same(made.outputs[0], wanted):
            yield f"{call.key!r} did not hand on the forced output"
        if not _near(made.computed[0], call.computed[0]):
            yield f"{call.key!r} does not tell what it computed itself when its output is forced"
        yield from _reaches(trace, run, call, wanted)


def _reaches(trace: Trace, run: Trace, call: Call, wanted: Array) -> Iterator[str]:
    for user in trace.calls:
        for n, origin in enumerate(user.origins):
            if origin == ("call", call.index, 0):
                now = run.by_key().get(user.key)
                if (
                    now is not None
                    and not _is_packing(trace, call.index, user.index)
                    and not _same(now.received[n], wanted)
                ):
                    yield f"{user.key!r} did not receive what {call.key!r} was forced to hand on"
    for name, origin in trace.output_origins.items():
        if origin == ("call", call.index, 0) and not _same(run.outputs[name], wanted):
            yield f"output {name!r} is not what {call.key!r} was forced to hand on"


def inputs_can_be_forced(model: Inspectable, batch: Batch, trace: Trace) -> Iterator[str]:
    """A forced input is computed on; what arrived is still told."""
    for call in _some(trace, _takes_floats):
        n = _main(call)
        wanted = (call.inputs[n] * 0.5 + 0.125).astype(call.inputs[n].dtype)
        given: list[Array | None] = [None] * len(call.inputs)
        given[n] = wanted
        made = model.run(batch, Plan(inputs={call.key: given})).by_key()[call.key]
        if not _same(made.inputs[n], wanted):
            yield f"{call.key!r} does not tell the forced input"
        if not _same(made.received[n], call.received[n]):
            yield f"{call.key!r} does not tell what arrived when its input is forced"
        inputs = [wanted if i == n else a for i, a in enumerate(call.inputs)]
        alone = model.call(call.path, inputs, like=made)
        if not all(_near(a, b) for a, b in zip(alone, made.computed, strict=False)):
            yield f"{call.key!r} did not compute on the forced input"


def inputs_can_be_fed(model: Inspectable, batch: Batch, trace: Trace) -> Iterator[str]:
    """``feed`` is asked once, just before the call; None leaves the input alone."""
    for call in _some(trace, _takes_floats, 3):
        n = _main(call)
        wanted = (call.inputs[n] * 0.5).astype(call.inputs[n].dtype)
        asked: list[int] = []

        def give(asked: list[int] = asked, wanted: Array = wanted) -> Array:
            asked.append(1)
            return wanted

        made = model.run(batch, Plan(feed={call.key: [(n, give)]})).by_key()[call.key]
        if len(asked) != 1:
            yield f"{call.key!r} was fed {len(asked)} times"
        if not _same(made.inputs[n], wanted):
            yield f"{call.key!r} did not compute on what it was fed"
        left = model.run(batch, Plan(feed={call.key: [(n, lambda: None)]})).by_key()[call.key]
        if not _same(left.inputs[n], call.inputs[n]):
            yield f"{call.key!r} was fed nothing and did not take what arrived"


def outputs_can_be_replaced(model: Inspectable, batch: Batch, trace: Trace) -> Iterator[str]:
    """``replace`` gets the call with what it computed, and the inputs; its answer is handed on, recorded or not."""
    for call in _some(trace, lambda c: bool(c.computed) and _is_float(c.computed[0]), 4):
        seen: list[Call] = []

        def other(given: Call, inputs: Sequence[Array], seen: list[Call] = seen) -> Sequence[Array]:
            seen.append(given)
            return [given.computed[0] * 2, *given.computed[1:]]

        plan = Plan(replace={call.key: other})
        made = model.run(batch, plan)
        if len(seen) != 1 or seen[0].key != call.key:
            yield f"the replacement of {call.key!r} was called {len(seen)} times"
            continue
        wanted = call.computed[0] * 2
        if not _near(made.by_key()[call.key].outputs[0], wanted):
            yield f"{call.key!r} did not hand on its replacement"
        quiet = model.run(batch, plan, record=False)
        if not all(_near(quiet.outputs[name], value) for name, value in made.outputs.items()):
            yield f"the replacement of {call.key!r} has another effect without recording"


def attributes_can_be_patched(model: Inspectable, batch: Batch, trace: Trace) -> Iterator[str]:
    """A patched layer computes otherwise inside, and as before outside; an attribute it has not is refused."""
    for call in trace.calls:
        if call.layer.functional or "epsilon" not in call.layer.attrs:
            continue
        try:
            made = model.run(batch, Plan(patch={call.path: {"epsilon": 0.5}})).by_key()[call.key]
        except UnsupportedError:
            continue
        if all(_same(a, b) for a, b in zip(made.computed, call.computed, strict=True)):
            yield f"{call.key!r} computes the same with another epsilon"
        after = model.call(call.path, call.inputs, like=call)
        if not _near(after[0], call.computed[0]):
            yield f"{call.key!r} is still patched afterwards"
    layer = next((c for c in trace.calls if not c.layer.functional), None)
    if layer is not None:
        try:
            with model.patched(layer.path, no_such_attribute=1):
                yield f"{layer.path!r} took an attribute that there is not"
        except UnsupportedError:
            pass


# ---------------------------------------------------------------- one layer alone


def calls_can_be_made_again(model: Inspectable, batch: Batch, trace: Trace) -> Iterator[str]:
    """``call(like=)`` on the recorded inputs gives what was computed."""
    model.run(batch)
    for call in trace.calls:
        if not call.computed:
            continue
        made = model.call(call.path, call.inputs, like=call)
        if len(made) != len(call.computed):
            yield f"{call.key!r} made again has {len(made)} outputs instead of {len(call.computed)}"
        elif not all(_near(a, b) for a, b in zip(made, call.computed, strict=True)):
            yield f"{call.key!r} made again on its own inputs gives other values"


# ---------------------------------------------------------------- weights


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
            if not _near(now[role], value) and not _one_bias(layer.op, role, now[role], value):
                yield f"{role} of {layer.path!r} is not what was written"
        changed = _changed(before, model.weights())
        if wanted is not roles and not changed:
            yield f"writing the weights of {layer.path!r} changed no weight of the model"
        model.set_layer_weights(layer.path, roles)
        if left := _changed(before, model.weights()):
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
    return _near(halves[0], halves[1])


def _misshapen(weights: dict[str, Array]) -> dict[str, Array]:
    for name, value in weights.items():
        if value.dtype.kind == "f":
            return {name: np.zeros((*value.shape, 2), value.dtype)}
    return {}


def written_weights_count(model: Inspectable, batch: Batch, trace: Trace) -> Iterator[str]:
    """A layer whose weights were written computes with them in the next run."""
    for call in _some(trace, lambda c: not c.layer.functional and bool(c.layer.op and c.layer.weights), 4):
        roles = {r: np.array(a) for r, a in model.layer_weights(call.path).items()}
        try:
            model.set_layer_weights(
                call.path, {r: a + np.asarray(0.25, a.dtype) for r, a in roles.items() if _is_float(a)}
            )
        except (InputError, UnsupportedError):
            continue
        try:
            made = model.run(batch).by_key().get(call.key)
            if made is not None and all(_same(a, b) for a, b in zip(made.computed, call.computed, strict=True)):
                yield f"{call.key!r} computes the same with other weights"
        finally:
            model.set_layer_weights(call.path, roles)


Promise = Callable[[Inspectable, Batch, Trace], Iterator[str]]
PROMISES: tuple[Promise, ...] = (
    trace_is_well_formed, layers_are_listed, two_runs_are_equal, recording_changes_nothing, training_is_put_back,
    exact_is_the_same_computation, outputs_can_be_forced, inputs_can_be_forced, inputs_can_be_fed,
    outputs_can_be_replaced, attributes_can_be_patched, calls_can_be_made_again, weights_can_be_written,
    written_weights_count,
)  # fmt: skip


# ---------------------------------------------------------------- small questions


def _some(trace: Trace, fits: Callable[[Call], bool], count: int = 6) -> list[Call]:
    """At most ``count`` calls that fit, spread over the run: the first, the last and some between."""
    found = [c for c in trace.calls if fits(c)]
    if len(found) <= count:
        return found
    places = sorted({round(i * (len(found) - 1) / (count - 1)) for i in range(count)})
    return [found[i] for i in places]


def _main(call: Call) -> int:
    return next(i for i, a in enumerate(call.inputs) if _is_float(a) and call.origins[i][0] != "weight")


def _takes_floats(call: Call) -> bool:
    return any(_is_float(a) and o[0] != "weight" for a, o in zip(call.inputs, call.origins, strict=True))


def _is_float(array: Array) -> bool:
    return array.dtype.kind == "f"


def _same(a: Array, b: Array) -> bool:
    return a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f" and b.dtype.kind == "f")


def _size(a: Array) -> float:
    return max(floors.largest(a), 1.0) if a.size and a.dtype != bool else 1.0


def _apart(a: Array, b: Array) -> float:
    if a.shape != b.shape:
        return float("inf")
    if not a.size:
        return 0.0
    if a.dtype == bool:
        return float(np.any(a != b))
    same = (a == b) | (np.isnan(a) & np.isnan(b)) if a.dtype.kind == "f" else a == b
    with np.errstate(invalid="ignore"):
        d = np.where(same, 0.0, np.abs(a.astype(np.float64) - b.astype(np.float64)))
    return float(np.where(np.isnan(d), np.inf, d).max())


def _near(a: Array, b: Array) -> bool:
    return _apart(a, b) <= AGAIN * _size(b)


def _changed(before: dict[str, Array], now: dict[str, Array]) -> list[str]:
    return [name for name, value in before.items() if name not in now or not _same(value, np.asarray(now[name]))]
