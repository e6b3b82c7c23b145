"""Another way to compute one call, and the cause that it stands for."""

from __future__ import annotations

from typing import Any

from ambidex.core import floor as floors
from ambidex.core import ops
from ambidex.core.rule import Cause
from ambidex.core.types import Call
from ambidex.engine.case import Case, forced_inputs, worst
from ambidex.engine.masks import off
from ambidex.engine.measure import Measured
from ambidex.engine.variants import of_call
from ambidex.rules import variants as rule_variants


def variant_cause(case: Case, m: Measured, tried: list[str]) -> Cause | None:
    """Another way to compute the call, on either side, after which both agree."""
    r, c = m.reference, m.candidate
    inputs = forced_inputs(m)
    targets = [m.candidate.computed[p.candidate] for p in m.outputs]
    for v in [*of_call(r), *rule_variants(r)]:
        outputs = case.reference.vary(r, r.inputs, v)
        if (
            outputs is not None
            and m.outputs
            and all(
                p.reference < len(outputs)
                and outputs[p.reference].size == t.size
                and off(p.view.to(outputs[p.reference].reshape(r.computed[p.reference].shape)), t, case.masks)
                <= floors.RATIO * m.floor
                for p, t in zip(m.outputs, targets, strict=True)
            )
        ):
            return _variant_cause(
                case, m, v, r, after=0.0, of="the reference's operator in this way gives the candidate's output"
            )
        tried.append(f"{v.kind} {v.name}")
    for v in [*of_call(c), *rule_variants(c)]:
        after = worst(m, case.candidate.vary(c, inputs, v), case.masks)
        if after is not None and after <= floors.RATIO * m.floor:
            return _variant_cause(
                case,
                m,
                v,
                c,
                after=after,
                of="the candidate's operator changed in this way gives the reference's output",
                mirrored=True,
            )
    return None


def _variant_cause(
    case: Case, m: Measured, v: Any, call: Call, *, after: float, of: str, mirrored: bool = False
) -> Cause:
    made = describe_variant(v, call, mirrored)
    return case.cause(m, **made, after=after, proven=True, proof=of)


def describe_variant(v: Any, call: Call, mirrored: bool) -> dict[str, Any]:
    """A variant in the words of a cause. ``mirrored``: it was the candidate that had to be changed."""
    own = call.layer.attrs
    side = "extra" if mirrored else "missing"
    if v.kind == "missing" and v.name == "part":
        return {"kind": side, "op": call.op, "name": "part", "detail": {"part": v.value}}
    if v.kind == "missing" and v.name == "normalisation":
        return {"kind": side, "op": "LpNormalization", "name": "normalisation"}
    if v.kind == "missing":
        others = [o for i, o in enumerate(call.origins) if str(i) != v.name]
        if call.op == "Add" and len(others) == 1 and others[0][0] == "weight":  # a bias of hand-written code
            return {
                "kind": "parameter",
                "op": call.op,
                "name": "B",
                "candidate" if mirrored else "reference": str(others[0][1]),
                "detail": {"effect": True},
            }
        return {
            "kind": side,
            "op": call.op,
            "name": _role_of(call, v),
            "detail": {"kept_input": v.name},
        }
    if v.kind == "mask":
        name = v.name if not mirrored else {"missing": "extra"}.get(v.name, v.name)
        moved = v.value if v.value is None or not mirrored else -v.value
        return {"kind": "mask", "op": call.op, "name": name, "candidate": moved}
    if v.kind == "op":
        values = (own, v.attrs) if not mirrored else (v.attrs, own)
        names = (call.op, v.op) if not mirrored else (v.op, call.op)
        return {"kind": "op", "op": names[0], "name": names[1], "reference": values[0], "candidate": values[1]}
    if v.kind == "attr" and v.op == call.op:
        changed = ops.differing_attrs(call.op, own, {k: x for k, x in (v.attrs or {}).items() if k != "scale_name"})
        name = v.name if v.name in changed else next(iter(changed), v.name)
        a, b = changed.get(name, (own.get(name), v.value))
        a, b = (a, b) if not mirrored else (b, a)
        return {
            "kind": "attr",
            "op": call.op,
            "name": name,
            "reference": a,
            "candidate": b,
            "detail": {"scale_name": (v.attrs or {}).get("scale_name", "")},
        }
    if v.kind == "wiring":
        shift = -v.value if mirrored else v.value
        return {
            "kind": "wiring",
            "op": "Gather",
            "name": "index",
            "reference": 0,
            "candidate": shift,
            "detail": {"shift": shift},
        }
    return {"kind": v.kind, "op": call.op, "name": v.name, "candidate" if not mirrored else "reference": v.value}


def _role_of(call: Call, v: Any) -> str:
    if call.op == "Add" and len(call.inputs) == 2:
        kinds = {o[0] for o in call.origins}
        return "residual" if kinds <= {"call", "input"} else "term"
    if call.op in {"Mul", "Div"}:
        return "scale" if min(x.size for x in call.inputs) == 1 or len(call.inputs) == 1 else "factor"
    return ""
