"""Promises about plans, and about calls made again alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ambidex.conformance.near import is_float, is_packing, main_input, near, same, some, takes_floats
from ambidex.core.model import Batch, Inspectable
from ambidex.core.trace import Trace
from ambidex.core.types import Array, Call, Plan
from ambidex.errors import UnsupportedError


def outputs_can_be_forced(model: Inspectable, batch: Batch, trace: Trace) -> Iterator[str]:
    """What is forced is handed on and reaches those that use it; what the layer itself computed is still told."""
    for call in some(trace, lambda c: bool(c.computed) and is_float(c.computed[0]) and c.computed[0].size > 0):
        wanted = (call.computed[0] * 1.5 + 0.25).astype(call.computed[0].dtype)
        plan = Plan(outputs={call.key: [wanted] + [None] * (len(call.computed) - 1)})
        run = model.run(batch, plan)
        made = run.by_key().get(call.key)
        if made is None:
            yield f"{call.key!r} is gone when its output is forced"
            continue
        if not same(made.outputs[0], wanted):
            yield f"{call.key!r} did not hand on the forced output"
        if not near(made.computed[0], call.computed[0]):
            yield f"{call.key!r} does not tell what it computed itself when its output is forced"
        yield from _reaches(trace, run, call, wanted)


def _reaches(trace: Trace, run: Trace, call: Call, wanted: Array) -> Iterator[str]:
    for user in trace.calls:
        for n, origin in enumerate(user.origins):
            if origin == ("call", call.index, 0):
                now = run.by_key().get(user.key)
                if (
                    now is not None
                    and not is_packing(trace, call.index, user.index)
                    and not same(now.received[n], wanted)
                ):
                    yield f"{user.key!r} did not receive what {call.key!r} was forced to hand on"
    for name, origin in trace.output_origins.items():
        if origin == ("call", call.index, 0) and not same(run.outputs[name], wanted):
            yield f"output {name!r} is not what {call.key!r} was forced to hand on"


def inputs_can_be_forced(model: Inspectable, batch: Batch, trace: Trace) -> Iterator[str]:
    """A forced input is computed on; what arrived is still told."""
    for call in some(trace, takes_floats):
        n = main_input(call)
        wanted = (call.inputs[n] * 0.5 + 0.125).astype(call.inputs[n].dtype)
        given: list[Array | None] = [None] * len(call.inputs)
        given[n] = wanted
        made = model.run(batch, Plan(inputs={call.key: given})).by_key()[call.key]
        if not same(made.inputs[n], wanted):
            yield f"{call.key!r} does not tell the forced input"
        if not same(made.received[n], call.received[n]):
            yield f"{call.key!r} does not tell what arrived when its input is forced"
        inputs = [wanted if i == n else a for i, a in enumerate(call.inputs)]
        alone = model.call(call.path, inputs, like=made)
        if not all(near(a, b) for a, b in zip(alone, made.computed, strict=False)):
            yield f"{call.key!r} did not compute on the forced input"


def inputs_can_be_fed(model: Inspectable, batch: Batch, trace: Trace) -> Iterator[str]:
    """``feed`` is asked once, just before the call; None leaves the input alone."""
    for call in some(trace, takes_floats, 3):
        n = main_input(call)
        wanted = (call.inputs[n] * 0.5).astype(call.inputs[n].dtype)
        asked: list[int] = []

        def give(asked: list[int] = asked, wanted: Array = wanted) -> Array:
            asked.append(1)
            return wanted

        made = model.run(batch, Plan(feed={call.key: [(n, give)]})).by_key()[call.key]
        if len(asked) != 1:
            yield f"{call.key!r} was fed {len(asked)} times"
        if not same(made.inputs[n], wanted):
            yield f"{call.key!r} did not compute on what it was fed"
        left = model.run(batch, Plan(feed={call.key: [(n, lambda: None)]})).by_key()[call.key]
        if not same(left.inputs[n], call.inputs[n]):
            yield f"{call.key!r} was fed nothing and did not take what arrived"


def outputs_can_be_replaced(model: Inspectable, batch: Batch, trace: Trace) -> Iterator[str]:
    """``replace`` gets the call with what it computed, and the inputs; its answer is handed on, recorded or not."""
    for call in some(trace, lambda c: bool(c.computed) and is_float(c.computed[0]), 4):
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
        if not near(made.by_key()[call.key].outputs[0], wanted):
            yield f"{call.key!r} did not hand on its replacement"
        quiet = model.run(batch, plan, record=False)
        if not all(near(quiet.outputs[name], value) for name, value in made.outputs.items()):
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
        if all(same(a, b) for a, b in zip(made.computed, call.computed, strict=True)):
            yield f"{call.key!r} computes the same with another epsilon"
        after = model.call(call.path, call.inputs, like=call)
        if not near(after[0], call.computed[0]):
            yield f"{call.key!r} is still patched afterwards"
    layer = next((c for c in trace.calls if not c.layer.functional), None)
    if layer is not None:
        try:
            with model.patched(layer.path, no_such_attribute=1):
                yield f"{layer.path!r} took an attribute that there is not"
        except UnsupportedError:
            pass


def calls_can_be_made_again(model: Inspectable, batch: Batch, trace: Trace) -> Iterator[str]:
    """``call(like=)`` on the recorded inputs gives what was computed."""
    model.run(batch)
    for call in trace.calls:
        if not call.computed:
            continue
        made = model.call(call.path, call.inputs, like=call)
        if len(made) != len(call.computed):
            yield f"{call.key!r} made again has {len(made)} outputs instead of {len(call.computed)}"
        elif not all(near(a, b) for a, b in zip(made, call.computed, strict=True)):
            yield f"{call.key!r} made again on its own inputs gives other values"
