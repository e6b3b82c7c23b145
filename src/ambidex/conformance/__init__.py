"""What an adapter promises, as a check that anyone can run over an adapter of their own.

::

    from ambidex.conformance import check

    assert check(my_adapter.wrap(model), batch) == []

Every line that comes back is a broken promise in words. The model is left as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ambidex.conformance.near import changed
from ambidex.conformance.plans import (
    attributes_can_be_patched,
    calls_can_be_made_again,
    inputs_can_be_fed,
    inputs_can_be_forced,
    outputs_can_be_forced,
    outputs_can_be_replaced,
)
from ambidex.conformance.recording import (
    exact_is_the_same_computation,
    layers_are_listed,
    recording_changes_nothing,
    trace_is_well_formed,
    training_is_put_back,
    two_runs_are_equal,
)
from ambidex.conformance.weights import weights_can_be_written, written_weights_count
from ambidex.core.model import Batch, Inspectable
from ambidex.core.trace import Trace
from ambidex.errors import AmbidexError

Promise = Callable[[Inspectable, Batch, Trace], Iterator[str]]
PROMISES: tuple[Promise, ...] = (
    trace_is_well_formed, layers_are_listed, two_runs_are_equal, recording_changes_nothing, training_is_put_back,
    exact_is_the_same_computation, outputs_can_be_forced, inputs_can_be_forced, inputs_can_be_fed,
    outputs_can_be_replaced, attributes_can_be_patched, calls_can_be_made_again, weights_can_be_written,
    written_weights_count,
)  # fmt: skip


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
        broken = changed(before, model.weights())
        if broken:
            found.append(f"{promise.__name__}: weights {broken[:3]} are not as they were")
            model.set_weights({name: before[name] for name in broken})
    return found
