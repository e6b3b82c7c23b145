"""What a number in hand-written code stands for: the constant of an addition, and whether it is a norm's epsilon."""

from __future__ import annotations

from typing import Any

import numpy as np

from ambidex.core.trace import Trace
from ambidex.core.types import Call

#: an epsilon is smaller than this
_SMALL = 0.1


def constant(call: Call) -> Any:
    """The number that a binary operator takes beside its tensor: an attribute, or a tensor of one value; else None."""
    if call.layer.attrs.get("other") is not None:
        return call.layer.attrs["other"]
    for origin, value in zip(call.origins, call.inputs, strict=False):
        if origin[0] == "const" and value.size == 1 and value.dtype.kind in "fiu" and len(call.inputs) == 2:
            return float(np.float32(value.reshape(-1)[0]).astype(str)) if value.dtype.kind == "f" else value.item()
    return None


def norm_of_epsilon(trace: Trace, call: Call) -> str:
    """The norm in which this addition adds epsilon to a mean of squares, before the root; "" for any other addition."""
    value = constant(call)
    if call.op != "Add" or not isinstance(value, int | float) or not 0 <= value < _SMALL:
        return ""
    if not any(c.op in {"Rsqrt", "Sqrt", "Pow"} and ("call", call.index, 0) in c.origins for c in trace.calls):
        return ""
    mean = _producer(trace, call)
    if mean is not None and mean.op == "ReduceVar":
        return "LayerNormalization"
    square = _producer(trace, mean) if mean is not None and mean.op == "ReduceMean" else None
    if square is None or square.op not in {"Square", "Pow", "Mul", "SquaredDifference"}:
        return ""
    centred = _producer(trace, square)
    centre = square.op == "SquaredDifference" or centred is not None and centred.op == "Sub"
    return "LayerNormalization" if centre else "RMSNormalization"


def _producer(trace: Trace, call: Call) -> Call | None:
    """The call that made the first input that a call made, through casts."""
    for origin in call.origins:
        if origin[0] == "call":
            made = trace.calls[origin[1]]
            return _producer(trace, made) if made.op in {"Cast", "Identity"} else made
    return None
