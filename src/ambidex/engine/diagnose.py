"""Why a pair differs: find the smallest change after which both sides agree to the floor.

A pair of layers is tried with attributes, operator, weights and mask of the reference, in subsets of growing size,
on the live candidate where it can be patched. A difference in the code between layers is tried with other ways to
compute one of its calls, on either side (``replay``). Nothing is reported as proven that was not run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from ambidex.core import floor as floors
from ambidex.core import ops
from ambidex.core.rule import Cause
from ambidex.core.types import Call
from ambidex.engine import handwritten, weightcauses
from ambidex.engine.case import (
    Case,
    _spatial,
    explicit_padding,
    forced_inputs,
    has_mask,
    mask_of,
    masks_differ,
    padding_of,
    shortened,
    worst,
)
from ambidex.engine.masks import mask_number
from ambidex.engine.maskvariants import is_causal
from ambidex.engine.measure import Measured
from ambidex.engine.varied import variant_cause
from ambidex.errors import AmbidexError


@dataclass(frozen=True, slots=True)
class Item:
    """One thing in which the candidate could be made like the reference."""

    kind: str
    name: str
    value: Any = None


def pair_causes(case: Case, m: Measured) -> list[Cause]:
    """The causes of a layer pair's own difference (shadow)."""
    r, c = m.reference, m.candidate
    items = items_of(case, m)
    tried: list[str] = []
    for size in range(1, min(len(items), 4) + 1):
        for subset in combinations(items, size):
            after = after_change(case, m, subset)
            if after is not None and after <= floors.RATIO * m.floor:
                part = {i.name for i in subset}
                ruled_out = [t for t in tried if not part & set(t.split(" + "))]
                return [_item_cause(case, m, item, after, ruled_out) for item in told_items(subset)]
            if after is not None:  # what could not be run is not ruled out
                tried.append(" + ".join(i.name for i in subset))
    behind = _behind_crop(case, m)
    if behind is not None:
        return [behind]
    found = variant_cause(case, m, tried)
    if found is not None:
        return [found]
    unknown = case.cause(m, kind="unknown", op=c.op or r.op, name=c.layer.cls)
    unknown.tried = shortened(tried)
    unknown.detail = {"differs": [f"{i.kind} {i.name}" for i in items], "reference_op": r.op, "candidate_op": c.op}
    return [unknown]


def told_items(subset: Sequence[Item]) -> list[Item]:
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


def items_of(case: Case, m: Measured) -> list[Item]:
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
            masked=has_mask(r) or has_mask(c) or r.op == "Attention" and len(r.inputs) > 3,
        ).items():
            if name not in {"cell", "return_sequences", "output_shape", "keep_reversed"}:
                items.append(Item("attr", name, (a, b)))
        pads = [i for i in items if i.name in {"pads", "auto_pad"}]
        if len(pads) > 1:  # one setting in two attributes
            items = [i for i in items if i not in pads] + [Item("attr", "pads", (padding_of(r), padding_of(c)))]
    roles = case.pairing.unequal.get((r.path, c.path), [])
    own, other = case.candidate.weights(c), case.reference.weights(r)
    for role in roles if case.weights == "keep" else [x for x in roles if x in own and own[x].size != other[x].size]:
        items.append(Item("weight", role))
    for role in dict.fromkeys([*other, *own]):
        if (role in own) != (role in other):
            items.append(Item("parameter", role))
    if explicit_padding(case, m) is not None and not any(i.name == "pads" for i in items):
        items.insert(
            0, Item("attr", "pads", (padding_of(r), f"zeros of a layer in front ({explicit_padding(case, m)})"))
        )
    if r.op == c.op and has_mask(r) != has_mask(c):
        items.append(Item("mask", "missing" if has_mask(r) else "extra"))
    elif r.op == c.op and has_mask(r):
        a, b = mask_of(r), mask_of(c)
        told = masks_differ(a, b)
        if told:
            items.append(Item("mask", told))
    return items


def after_change(case: Case, m: Measured, subset: Sequence[Item]) -> float | None:
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
            inputs.append(mask_of(r))
            names.append("mask")
        elif item.kind == "mask" and item.name in {"inverted", "differs", "causal_extra", "causal_missing"}:
            number = mask_number(c)
            assert number is not None
            inputs[number] = mask_of(r)
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
    common: dict[str, Any] = {"after": after, "proven": True, "proof": proof, "tried": shortened(tried)}
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
        causal = item.name in {"missing", "extra"} and is_causal(mask_of(holder))
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
