"""A place between layers where another value arrives, and how such places are worded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ambidex.core.trace import Trace
from ambidex.core.types import Array, Call, Origin
from ambidex.engine.align import PLUMBING
from ambidex.engine.layout import View
from ambidex.engine.maskvariants import is_causal, is_mask
from ambidex.engine.replay import Region
from ambidex.engine.varied import describe_variant


@dataclass(slots=True)
class Gap:
    """One place where another value arrives: the consumer on both sides and the value on both sides."""

    reference_origin: Origin
    candidate_origin: Origin
    wanted: Array  # in the candidate's layout
    received: Array
    view: View
    floor: float
    reference_path: str
    candidate_path: str
    consumer: Call | None
    diff: float
    softmax: int | None = None  # the consumer's axis, where it is a softmax: wanted and received are as it sees them


def producing_op(trace: Trace, origin: Origin) -> str:
    """The operator behind a value, through plumbing and arithmetic."""
    while origin[0] == "call":
        call = trace.calls[origin[1]]
        if call.op not in PLUMBING | {"Mul", "Div"} or not call.origins:
            return call.op
        origin = call.origins[0]
    return origin[0]


REDUCING = {"ReduceSum", "ReduceMean", "GlobalAveragePool", "AveragePool", "AdaptiveAveragePool"}


def worded(v: Any, call: Call, region: Region, *, mirrored: bool) -> dict[str, Any]:
    made = describe_variant(v, call, mirrored)
    detail = {**made.get("detail", {}), "region": op_names(region)}
    if v.kind == "missing" and len(call.inputs) > 1:
        others = [x for i, x in enumerate(call.inputs) if str(i) != v.name]
        if any(is_mask(x) for x in others):
            made = {"kind": "mask", "op": call.op, "name": "extra" if mirrored else "missing"}
            if any(is_causal(x) for x in others):
                made["name"] = "causal_missing" if not mirrored else "extra"
    if made["kind"] == "mask" and call.op not in {"Attention", "Softmax", "GRU", "LSTM"}:
        softmax = any(c.op in {"Softmax", "Attention"} for c in region.calls)
        pooled = any(c.op.startswith("Reduce") for c in region.calls)
        made["op"] = "Attention" if softmax else "ReduceMean" if pooled else call.op
    return {**made, "detail": detail}


def op_names(region: Region) -> list[str]:
    return [c.op or c.layer.cls for c in region.calls if c.op not in PLUMBING]


def last_op(region: Region) -> str:
    named = op_names(region)
    return named[-1] if named else ""


def counterpart(call: Call, region: Region, variant: str = "") -> Call | None:
    """The call of the other side's region that does what ``call`` does; of hand-written attention the step that the
    variant is about: where the scores are scaled, else the softmax."""
    same = [c for c in region.calls if c.op == call.op]
    if same:
        return same[-1]
    if call.op != "Attention":
        return None
    scaled = [
        c for c in region.calls if c.op in {"Mul", "Div"} and (len(c.inputs) == 1 or min(x.size for x in c.inputs) == 1)
    ]
    core = [c for c in region.calls if c.op == "Softmax"] or [c for c in region.calls if c.op in {"MatMul", "Einsum"}]
    return (scaled or core)[0] if variant == "scale" and (scaled or core) else core[-1] if core else None


def origin_path(trace: Trace, origin: Origin) -> str:
    if origin[0] == "call":
        return trace.calls[origin[1]].path
    return f"{origin[0]} {origin[1]}".strip()


def guess_factor(k: float, shape: tuple[int, ...], calls: list[Call]) -> str:
    """A size whose root or self is the factor."""
    sizes = dict.fromkeys([*shape, *(n for c in calls for x in c.inputs for n in x.shape)])
    for n in sizes:
        for text, value in (
            (f"sqrt({n})", n**0.5),
            (f"1/sqrt({n})", n**-0.5),
            (f"{n}", float(n)),
            (f"1/{n}", 1 / max(n, 1)),
        ):
            if n > 1 and abs(value - k) <= 1e-5 * abs(k):
                return text
    return ""
