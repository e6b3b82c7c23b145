"""Recording one run. Kept apart, since it must work where only numpy, safetensors and a framework are installed."""

from __future__ import annotations

from ambidex.core.model import Batch, Inspectable
from ambidex.core.trace import Trace


def record_trace(model: Inspectable, batch: Batch, *, exact: bool = True) -> Trace:
    """Run a model once and keep all that compare needs of it, so that it can be compared elsewhere."""
    return with_weights(model, model.run(batch, exact=exact))


def with_weights(model: Inspectable, trace: Trace) -> Trace:
    """Add the model's layers and weights to a trace of it."""
    trace.weights = model.weights()
    trace.layers = model.layers()
    trace.layer_weights = {x.path: model.layer_weights(x.path) for x in trace.layers if x.op and x.weights}
    return trace
