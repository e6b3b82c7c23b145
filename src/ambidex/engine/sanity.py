"""What is refused before anything is compared, since the answer would say nothing: no values, NaN only, masks that fit
nothing, batches of different size."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ambidex.core.model import Batch
from ambidex.core.trace import Trace
from ambidex.core.types import Array
from ambidex.engine.masks import fit_mask
from ambidex.errors import InputError, TraceError


def check_batches(reference: Batch | None, candidate: Batch | None) -> None:
    """Both sides must be given the same number of samples, in whatever order of axes."""
    if reference is None or candidate is None:
        return
    first, second = (next(iter(b.values() if isinstance(b, Mapping) else b), None) for b in (reference, candidate))
    if first is None or second is None or not first.ndim or not second.ndim:
        return
    if first.shape[0] not in second.shape and second.shape[0] not in first.shape:
        raise InputError(
            f"the reference is given {first.shape[0]} samples and the candidate {second.shape[0]}",
            f"their first inputs have the shapes {first.shape} and {second.shape}",
            "Give both sides the same samples",
        )


def check_outputs(trace: Trace, side: str) -> None:
    """Outputs without a single number agree with anything."""
    floats = [v for v in trace.outputs.values() if v.dtype.kind in "fc"]
    if not floats:
        return
    if not any(v.size for v in floats):
        raise InputError(f"the outputs of the {side} are empty", _shapes(floats), "Give at least one sample")
    if any(np.isfinite(v).any() for v in floats):
        return
    kind = "NaN" if any(np.isnan(v).any() for v in floats) else "infinite values"
    raise InputError(
        f"the outputs of the {side} hold nothing but {kind}",
        f"{_beginning(trace)}, and nothing can be compared with that",
        "Give other inputs, or correct the model first",
    )


def _shapes(arrays: list[Array]) -> str:
    return "shapes " + ", ".join(str(v.shape) for v in arrays)


def _beginning(trace: Trace) -> str:
    """Where values that are no numbers come from."""
    for name, value in trace.inputs.items():
        if _broken(value):
            return f"input '{name}' has such values already"
    for call in trace.calls:
        if any(_broken(v) for v in call.computed) and not any(_broken(v) for v in call.inputs):
            return f"they begin at '{call.path}'"
    return "they begin in the model"


def _broken(value: Array) -> bool:
    return value.dtype.kind in "fc" and value.size > 0 and not bool(np.isfinite(value).all())


def check_masks(masks: Mapping[str, Array], trace: Trace) -> None:
    """A mask says which positions count: some must, and some layer must have them."""
    shapes = {v.shape for call in trace.calls for v in call.outputs} | {v.shape for v in trace.outputs.values()}
    for name, mask in masks.items():
        if not mask.any():
            raise InputError(
                f"mask '{name}' is false everywhere", "no position is left to compare", "True means that it counts"
            )
        if all(fit_mask(mask, shape) is None for shape in shapes):
            raise InputError(
                f"mask '{name}' of shape {mask.shape} fits nothing that the reference computes",
                todo="Give one of shape (batch, steps), True where a position counts",
            )


def check_recorded(trace: Trace) -> None:
    """What a trace from a file says of its calls: each in its place, an origin for each input, origins that exist."""
    count = len(trace.calls)
    for number, call in enumerate(trace.calls):
        if call.index != number:
            raise _damaged(f"call '{call.key}' is number {number} and says {call.index}")
        if not len(call.origins) == len(call.received) == len(call.inputs):
            raise _damaged(f"call '{call.key}' has {len(call.inputs)} inputs and {len(call.origins)} origins")
    origins = [origin for call in trace.calls for origin in call.origins] + list(trace.output_origins.values())
    for kind, where, number in origins:
        if number < 0 or (kind == "call" and not (isinstance(where, int) and 0 <= where < count)):
            raise _damaged(f"a value comes from output {number} of call {where!r}, and there are {count} calls")
    unit = trace.meta.get("eps", 0.0)
    if not isinstance(unit, int | float) or not 0 <= unit < 0.1:
        raise _damaged(f"its unit of rounding is {unit!r}")


def _damaged(why: str) -> TraceError:
    return TraceError("the recorded reference is damaged", why, "Record it again with `ambidex record`")
