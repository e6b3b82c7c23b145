"""Recording one run. Kept apart, since it must work where only numpy, safetensors and a framework are installed."""

from __future__ import annotations

from ambidex.core.model import Batch, Inspectable
from ambidex.core.trace import Trace
from ambidex.core.types import Array


def record_trace(model: Inspectable, batch: Batch, *, exact: bool = True) -> Trace:
    """Run a model once and keep all that compare needs of it, so that it can be compared elsewhere, and later."""
    return with_weights(model, model.run(batch, exact=exact), copied=True)


def with_weights(model: Inspectable, trace: Trace, *, copied: bool = False) -> Trace:
    """Add the model's layers and weights to a trace of it.

    ``copied``: the values of now, whatever becomes of the model; arrays that may share its memory are copied.
    """
    trace.weights = {n: kept(a, copied) for n, a in model.weights().items()}
    trace.layers = model.layers()
    trace.meta["constants"] = sorted(model.constants())
    trace.layer_weights = {
        x.path: {r: kept(a, copied) for r, a in model.layer_weights(x.path).items()}
        for x in trace.layers
        if x.op and x.weights
    }
    return trace


def kept(array: Array, copied: bool) -> Array:
    """A copy, unless the array is a view of memory that never changes."""
    return array.copy() if copied and (array.flags.writeable or array.flags.owndata) else array
