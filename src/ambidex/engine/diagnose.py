"""Why a pair differs: find the smallest change after which both sides agree to the floor.

A pair of layers is tried with attributes, operator, weights and mask of the reference, in subsets of growing size,
on the live candidate where it can be patched. A difference in the code between layers is tried with other ways to
compute one of its calls, on either side (``replay``). Nothing is reported as proven that was not run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np

from ambidex.core import floor as floors
from ambidex.core import ops
from ambidex.core.model import Inspectable
from ambidex.core.rule import Cause
from ambidex.core.types import Array, Call
from ambidex.engine import handwritten, weightcauses
from ambidex.engine.align import Alignment
from ambidex.engine.measure import Measured, Port, _compare, mask_number
from ambidex.engine.replay import Player
from ambidex.engine.variants import is_causal, of_call
from ambidex.engine.weights import Pairing
from ambidex.errors import AmbidexError
from ambidex.rules import variants as rule_variants


@dataclass
class Case:
    """What diagnosing needs: both players, the alignment, the weight pairing, masks of positions that count."""

    alignment: Alignment
    reference: Player
    candidate: Player
    pairing: Pairing
    masks: list[Array] = field(default_factory=list)
    weights: str = "carry"
    ports: dict[int, list[Port]] = field(default_factory=dict)  # output ports by candidate call, from the forced run

    @property
    def model(self) -> Inspectable:
        assert self.candidate.model is not None
        return self.candidate.model

    def cause(self, m: Measured, **given: Any) -> Cause:
        made = Cause(**given)
        made.reference_path, made.candidate_path = m.reference.path, m.candidate.path
        made.source = made.source or m.candidate.layer.source
        made.framework, made.candidate_cls = self.candidate.trace.framework, m.candidate.layer.cls
        made.reference_framework = self.reference.trace.framework
        made.before = m.shadow if made.before is None else made.before
        made.floor = made.floor or m.floor
        return made


@dataclass(frozen=True, slots=True)
class Item:
    """One thing in which the candidate could be made like the reference."""

    kind: str
    name: str
    value: Any = None


def pair_causes(case: Case, m: Measured) -> list[Cause]:
    """The causes of a layer pair's own difference (shadow)."""
    r, c = m.reference, m.candidate
    items = _items(case, m)
    tried: list[str] = []
    for size in range(1, min(len(items), 4) + 1):
        for subset in combinations(items, size):
            after = _after(case, m, subset)
            if after is not None and after <= floors.RATIO * m.floor:
                return [_item_cause(case, m, item, after, tried) for item in _told(subset)]
            tried.append(" + ".join(i.name for i in subset))
    behind = _behind_crop(case, m)
    if behind is not None:
        return [behind]
    found = _variant(case, m, tried)
    if found is not None:
        return [found]
    unknown = case.cause(m, kind="unknown", op=c.op or r.op, name=c.layer.cls)
    unknown.tried = _short(tried)
    unknown.detail = {"differs": [f"{i.kind} {i.name}" for i in items], "reference_op": r.op, "candidate_op": c.op}
    return [unknown]


def _told(subset: Sequence[Item]) -> list[Item]:
    """Settings that only follow from another one of the same layer are not told apart from it."""
    names = {i.name for i in subset if i.kind == "attr"}
    follows: set[str] = set()
    if "mode" in names:
        follows |= {"coordinate_transformation_mode", "nearest_mode", "cubic_coeff_a"}
    if names & {"dilations", "kernel_shape"}:
        follows |= {"pads"}
    return [i for i in subset if i.kind != "attr" or i.name not in follows]


def _behind_crop(case: Case, m: Measured) -> Cause | None:
    """The pair's candidate is the crop behind the layer itself: the loaded weights of that layer may be the reason."""
    c = m.candidate
    if c.op not in {"Crop", "Slice", "Pad"} or not c.origins or c.origins[0][0] != "call":
        return None
    inner = case.candidate.trace.calls[c.origins[0][1]]
    roles = case.pairing.unequal.get((m.reference.path, inner.path), [])
    own, other = case.candidate.weights(inner), case.reference.weights(m.reference)
    if not roles or any(own[x].shape != other[x].shape for x in roles):
        return None
    model = case.model
    try:
        model.set_layer_weights(inner.path, {x: other[x] for x in roles})
        made = model.call(c.path, model.call(inner.path, inner.inputs, like=inner), like=c)
    except AmbidexError:
        return None
    finally:
        model.set_layer_weights(inner.path, {x: own[x] for x in roles})
    after = worst(m, made, case.masks)
    if after is None or after > floors.RATIO * m.floor:
        return None
    layer_pair = replace(m, candidate=inner)
    return weight_cause(
        case,
        layer_pair,
        roles,
        after=after,
        proven=True,
        proof="candidate's layer run again with the reference's weights",
    )


def _short(tried: list[str]) -> list[str]:
    return list(dict.fromkeys(tried))[:12]


def _items(case: Case, m: Measured) -> list[Item]:
    r, c = m.reference, m.candidate
    items: list[Item] = []
    if r.op and c.op and r.op != c.op:
        items.append(Item("op", c.op, r.op))
    elif r.op:
        weights = case.reference.weights(r)
        kernel = weights["W"].shape[2:] if r.op in {"Conv", "ConvTranspose"} and "W" in weights else None
        size = _spatial(r)
        for name, (a, b) in ops.differing_attrs(
            r.op,
            r.layer.attrs,
            c.layer.attrs,
            size=size,
            kernel=kernel,
            rank=r.inputs[0].ndim if r.inputs else None,
            training=False,
            masked=_has_mask(r) or _has_mask(c) or r.op == "Attention" and len(r.inputs) > 3,
        ).items():
            if name not in {"cell", "return_sequences", "output_shape", "keep_reversed"}:
                items.append(Item("attr", name, (a, b)))
        pads = [i for i in items if i.name in {"pads", "auto_pad"}]
        if len(pads) > 1:  # one setting in two attributes
            items = [i for i in items if i not in pads] + [Item("attr", "pads", (_padding(r), _padding(c)))]
    roles = case.pairing.unequal.get((r.path, c.path), [])
    own, other = case.candidate.weights(c), case.reference.weights(r)
    for role in roles if case.weights == "keep" else [x for x in roles if x in own and own[x].size != other[x].size]:
        items.append(Item("weight", role))
    for role in dict.fromkeys([*other, *own]):
        if (role in own) != (role in other):
            items.append(Item("parameter", role))
    if explicit_padding(case, m) is not None and not any(i.name == "pads" for i in items):
        items.insert(0, Item("attr", "pads", (_padding(r), f"zeros of a layer in front ({explicit_padding(case, m)})")))
    if r.op == c.op and _has_mask(r) != _has_mask(c):
        items.append(Item("mask", "missing" if _has_mask(r) else "extra"))
    elif r.op == c.op and _has_mask(r):
        a, b = _mask_of(r), _mask_of(c)
        told = _masks_differ(a, b)
        if told:
            items.append(Item("mask", told))
    return items


def _masks_differ(a: Array, b: Array) -> str:
    """How two boolean masks differ: inverted, causal (only the candidate hides the future) or just differs; "" if not."""
    if a.dtype != bool or b.dtype != bool:
        return ""
    if a.ndim != b.ndim:
        a, b = ((x[:, None, None] if x.ndim == 2 else x[:, None] if x.ndim == 3 else x) for x in (a, b))
    try:
        a, b = np.broadcast_arrays(a, b)
    except ValueError:
        return "differs"
    if np.array_equal(a, b):
        return ""
    if np.array_equal(a, ~b):
        return "inverted"
    tri = np.tril(np.ones(a.shape[-2:], bool))
    if np.array_equal(b, a & tri):
        return "causal_extra"
    return "causal_missing" if np.array_equal(a, b & tri) else "differs"


def explicit_padding(case: Case, m: Measured) -> str | None:
    """The path of a padding layer in front of this call of the candidate that the reference has not."""
    if m.before_padding is None:
        return None
    r, c = m.before_padding
    return c.path if c is not m.candidate and r is m.reference else None


def _padding(call: Call) -> Any:
    attrs = call.layer.attrs
    return attrs.get("auto_pad") if attrs.get("auto_pad", "NOTSET") != "NOTSET" else attrs.get("pads")


def _spatial(call: Call) -> tuple[int, ...] | None:
    layout, shape = call.layer.layout, call.inputs[0].shape if call.inputs else ()
    if len(layout) != len(shape) or "C" not in layout or "N" not in layout:
        return None
    return tuple(n for n, axis in zip(shape, layout, strict=True) if axis not in "NC")


def _has_mask(call: Call) -> bool:
    return mask_number(call) is not None


def _mask_of(call: Call) -> Array:
    number = mask_number(call)
    assert number is not None
    return call.inputs[number]


def forced_inputs(m: Measured, *, unpadded: bool = False) -> list[Array]:
    """The candidate's inputs as the reference's values; ``unpadded``: also where a padding layer stands in front."""
    made = [np.asarray(v) for v in m.candidate.inputs]
    for a in m.arrived:
        if m.before_padding is not None and a.port.candidate == 0:
            if unpadded:
                made[0] = a.wanted.astype(made[0].dtype)
            continue
        made[a.port.candidate] = a.wanted.astype(made[a.port.candidate].dtype)
    return made


def worst(m: Measured, outputs: Sequence[Array] | None, masks: list[Array]) -> float | None:
    """The largest difference of these candidate outputs to the reference's."""
    if outputs is None:
        return None
    found = 0.0
    for port in m.outputs:
        wanted = port.view.to(m.reference.outputs[port.reference])
        if port.candidate >= len(outputs) or outputs[port.candidate].size != wanted.size:
            return None
        found = max(found, _compare(wanted, outputs[port.candidate].reshape(wanted.shape), masks))
    if not m.outputs:  # shapes differed: any output of the reference's size, under the plainest view
        from ambidex.engine.measure import forced_view

        wanted = m.reference.outputs[0]
        layouts = _layout_names(m)
        moved = wanted.transpose([layouts[0].index(ch) for ch in layouts[1]]) if layouts else wanted
        if not outputs or outputs[0].shape != moved.shape:
            return None
        del forced_view
        found = _compare(moved, outputs[0], masks)
    return found


def _layout_names(m: Measured) -> tuple[str, str] | None:
    a, b = m.reference.layer.layout, m.candidate.layer.layout
    ok = len(a) == len(b) == m.reference.outputs[0].ndim and set(a) == set(b)
    return (a, b) if ok else None


def _after(case: Case, m: Measured, subset: Sequence[Item]) -> float | None:
    """The difference with these items made like the reference; None when it could not be run."""
    live = _live(case, m, subset)
    if live is not None:
        return live
    r, c = m.reference, m.candidate
    changes_op = any(i.kind == "op" for i in subset)
    op = r.op if changes_op else c.op
    attrs = dict(r.layer.attrs) if changes_op else dict(c.layer.attrs)
    weights, other = dict(case.candidate.weights(c)), case.reference.weights(r)
    inputs = forced_inputs(m, unpadded=any(i.name == "pads" for i in subset))
    names = list(c.names)
    for item in subset:
        if item.kind == "attr":
            attrs.update(_attr_values(r, item.name))
            if item.name == "linear_before_reset" and "B" in other:
                weights["B"] = other["B"]  # only with it are there two biases
        elif item.kind in {"weight", "parameter"}:
            if item.name in other:
                weights[item.name] = other[item.name]
            else:
                weights.pop(item.name, None)
        elif item.kind == "mask" and item.name == "missing":
            inputs.append(_mask_of(r))
            names.append("mask")
        elif item.kind == "mask" and item.name in {"inverted", "differs", "causal_extra", "causal_missing"}:
            number = mask_number(c)
            assert number is not None
            inputs[number] = _mask_of(r)
        elif item.kind == "mask":
            i = mask_number(c)
            assert i is not None
            inputs.pop(i)
            names.pop(i)
    if changes_op:
        weights = {role: other[role] for role in other}
    return worst(m, case.candidate.canonical(op, attrs, weights, inputs, c.layer.layout), case.masks)


def _attr_values(r: Call, name: str) -> dict[str, Any]:
    names = ("pads", "auto_pad") if name == "pads" else (name,)
    return {n: r.layer.attrs[n] for n in names if n in r.layer.attrs}


def _live(case: Case, m: Measured, subset: Sequence[Item]) -> float | None:
    """The same on the live candidate: patched, with the reference's weights; None when it cannot be changed so."""
    if any(i.kind not in {"attr", "weight"} for i in subset):
        return None
    r, c = m.reference, m.candidate
    attrs: dict[str, Any] = {}
    for item in subset:
        if item.kind == "attr":
            attrs.update(_attr_values(r, item.name))
    if "pads" in attrs and explicit_padding(case, m) is not None:
        return None
    roles = [i.name for i in subset if i.kind == "weight"]
    own, other = case.candidate.weights(c), case.reference.weights(r)
    if any(own[role].shape != other[role].shape for role in roles if role in own and role in other):
        return None
    model = case.model
    try:
        with ExitStack() as stack:
            if roles:
                model.set_layer_weights(c.path, {role: other[role] for role in roles})
                stack.callback(model.set_layer_weights, c.path, {role: own[role] for role in roles})
            if attrs:
                stack.enter_context(model.patched(c.path, **attrs))
            return worst(m, model.call(c.path, forced_inputs(m), like=c), case.masks)
    except AmbidexError:
        return None


def _item_cause(case: Case, m: Measured, item: Item, after: float, tried: list[str]) -> Cause:
    r, c = m.reference, m.candidate
    proof = "candidate's layer run again with this changed, fed the reference's input"
    common: dict[str, Any] = {"after": after, "proven": True, "proof": proof, "tried": _short(tried)}
    if item.kind == "op":
        return case.cause(m, kind="op", op=r.op, name=c.op, reference=r.layer.attrs, candidate=c.layer.attrs, **common)
    if item.kind == "attr":
        a, b = item.value
        if item.name == "other" and (a is None) != (b is None):  # a number here, a tensor of one value there
            a, b = handwritten.constant(r), handwritten.constant(c)
        norm = handwritten.norm_of_epsilon(case.reference.trace, r) if item.name == "other" else ""
        if norm:
            made = case.cause(m, kind="attr", op=norm, name="epsilon", reference=a, candidate=b, **common)
            made.candidate_cls = ""  # the addition, which is no layer to be built with an epsilon
            return made
        return case.cause(
            m,
            kind="attr",
            op=r.op,
            name=item.name,
            reference=a,
            candidate=b,
            **common,
            detail={"reference_attrs": dict(r.layer.attrs), "candidate_attrs": dict(c.layer.attrs)},
        )
    if item.kind == "mask" and item.name == "causal_extra":
        return case.cause(m, kind="attr", op=r.op, name="is_causal", reference=False, candidate=True, **common)
    if item.kind == "mask":
        holder = r if item.name != "extra" else c
        causal = item.name in {"missing", "extra"} and is_causal(_mask_of(holder))
        if causal and item.name == "extra":
            return case.cause(m, kind="attr", op=r.op, name="is_causal", reference=False, candidate=True, **common)
        return case.cause(
            m, kind="mask", op=r.op, name="causal_missing" if causal and item.name == "missing" else item.name, **common
        )
    if item.kind == "parameter":
        return parameter_cause(case, m, item.name, **common)
    return weight_cause(case, m, [item.name], **common)


def parameter_cause(case: Case, m: Measured, role: str, **common: Any) -> Cause:
    r, c = m.reference, m.candidate
    return case.cause(
        m,
        kind="parameter",
        op=r.op,
        name=role,
        reference=r.layer.weights.get(role),
        candidate=c.layer.weights.get(role),
        detail={"effect": True},
        **common,
    )


def weight_cause(case: Case, m: Measured, roles: list[str], **common: Any) -> Cause:
    r, c = m.reference, m.candidate
    ref, cand = case.reference.weights(r), case.candidate.weights(c)
    name, text = weightcauses.explain(r.op, roles, ref, cand, case.reference.trace, r.path)
    return case.cause(
        m,
        kind="weight",
        op=r.op,
        name=name,
        reference=[r.layer.weights.get(x) for x in roles],
        candidate=[c.layer.weights.get(x) for x in roles],
        detail={"roles": roles, "text": text},
        **common,
    )


def merge_weights(case: Case, m: Measured, causes: list[Cause]) -> list[Cause]:
    """Several roles of one layer are one cause."""
    roles = [c.detail["roles"][0] for c in causes if c.kind == "weight"]
    if len(roles) < 2:
        return causes
    first = next(c for c in causes if c.kind == "weight")
    merged = weight_cause(case, m, roles, after=first.after, proven=first.proven, proof=first.proof, tried=first.tried)
    return [c for c in causes if c.kind != "weight"] + [merged]


def _variant(case: Case, m: Measured, tried: list[str]) -> Cause | None:
    """Another way to compute the call, on either side, after which both agree."""
    r, c = m.reference, m.candidate
    inputs = forced_inputs(m)
    targets = [m.candidate.computed[p.candidate] for p in m.outputs]
    for v in [*of_call(r), *rule_variants(r)]:
        outputs = _vary(case.reference, r, r.inputs, v)
        if (
            outputs is not None
            and m.outputs
            and all(
                p.reference < len(outputs)
                and outputs[p.reference].size == t.size
                and _compare(p.view.to(outputs[p.reference].reshape(r.computed[p.reference].shape)), t, case.masks)
                <= floors.RATIO * m.floor
                for p, t in zip(m.outputs, targets, strict=True)
            )
        ):
            return _variant_cause(
                case, m, v, r, after=0.0, of="the reference's operator in this way gives the candidate's output"
            )
        tried.append(f"{v.kind} {v.name}")
    for v in [*of_call(c), *rule_variants(c)]:
        after = worst(m, _vary(case.candidate, c, inputs, v), case.masks)
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


def _vary(player: Player, call: Call, inputs: Sequence[Array], v: Any) -> list[Array] | None:
    if v.compute is not None:
        try:
            return [np.asarray(x) for x in v.compute(list(inputs))]
        except (ValueError, IndexError, TypeError):
            return None
    if v.feed is not None:
        try:
            return player.compute(call, list(v.feed(list(inputs))))
        except (ValueError, IndexError, TypeError):
            return None
    attrs = {k: x for k, x in (v.attrs or {}).items() if k != "scale_name"}
    return player.canonical(v.op, attrs, player.weights(call), inputs, call.layer.layout)


def _variant_cause(
    case: Case, m: Measured, v: Any, call: Call, *, after: float, of: str, mirrored: bool = False
) -> Cause:
    made = describe_variant(v, call, mirrored)
    return case.cause(m, **made, after=after, proven=True, proof=of)


def describe_variant(v: Any, call: Call, mirrored: bool) -> dict[str, Any]:
    """A variant in the words of a cause. ``mirrored``: it was the candidate that had to be changed."""
    own = call.layer.attrs
    if v.kind == "missing":
        others = [o for i, o in enumerate(call.origins) if str(i) != v.name]
        if call.op == "Add" and len(others) == 1 and others[0][0] == "weight":  # a bias of hand-written code
            side = "candidate" if mirrored else "reference"
            return {
                "kind": "parameter",
                "op": call.op,
                "name": "B",
                side: str(others[0][1]),
                "detail": {"effect": True},
            }
        return {
            "kind": "extra" if mirrored else "missing",
            "op": call.op,
            "name": _role_of(call, v),
            "detail": {"kept_input": v.name},
        }
    if v.kind == "mask":
        name = v.name if not mirrored else {"missing": "extra"}.get(v.name, v.name)
        return {"kind": "mask", "op": call.op, "name": name}
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


def drawing(calls: Iterable[Call]) -> list[Call]:
    """Dropout that is active although the run is one of inference: its output is not its input."""
    found = []
    for call in calls:
        if call.op == "Dropout" and call.inputs and call.computed and call.inputs[0].size == call.computed[0].size:
            a, b = call.inputs[0].reshape(-1), call.computed[0].reshape(-1)
            if not np.array_equal(a, b, equal_nan=True):
                found.append(call)
    return found


def reproducibility(first: Iterable[Call], second: Iterable[Call]) -> list[Call]:
    """Calls of a forced run whose own outputs differ between two runs on the same inputs."""
    found = []
    for a, b in zip(first, second, strict=False):
        if a.key != b.key:
            break
        same_in = all(
            np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in zip(a.inputs, b.inputs, strict=False)
        )
        same_out = all(
            np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in zip(a.computed, b.computed, strict=False)
        )
        if same_in and not same_out:
            found.append(a)
    return found
