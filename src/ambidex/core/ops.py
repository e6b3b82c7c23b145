"""Canonical operators by name, and comparing their attributes by meaning (tables: ``optable``, ``training_ops``)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ambidex.core.optable import TABLE, OpSpec
from ambidex.core.training_ops import FORMS
from ambidex.errors import UnsupportedError

#: attributes that hold one number an axis: a single number stands for all axes
_PER_AXIS = frozenset({"strides", "dilations", "pads", "output_padding", "kernel_shape", "scales", "sizes"})
#: a side that does not know these does not differ in them
_MAY_BE_UNKNOWN = frozenset({"num_heads", "hidden_size", "activations"})
#: axis numbers that count from either end
_AXES = frozenset({"axis", "axes", "end_axis", "perm"})
#: notes of an adapter on how a call was written, no settings
_NOTES = frozenset({"inputs", "layout"})


def known(op: str) -> bool:
    """Whether ``op`` is a canonical operator."""
    return op in TABLE


def names() -> list[str]:
    """All canonical operators."""
    return list(TABLE)


def spec(op: str) -> OpSpec:
    """The description of a canonical operator; UnsupportedError for any other name."""
    try:
        return TABLE[op]
    except KeyError:
        raise UnsupportedError(f"operator {op!r} is not canonical", todo="See docs/canonical.md for the list") from None


def with_defaults(op: str, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes with those that were left out."""
    entry = TABLE.get(op) or FORMS.get(op)
    return {**(entry.attrs if entry else {}), **attrs}


def same_family(a: str, b: str) -> bool:
    """Whether two operators do the same kind of work (two activations, two norms, ...)."""
    return a == b or (a in TABLE and b in TABLE and TABLE[a].family == TABLE[b].family)


def einsum_equation(text: str) -> str:
    """An equation with letters in order of appearance, so that two spellings of one are equal."""
    names: dict[str, str] = {}
    return "".join(names.setdefault(c, chr(ord("a") + len(names))) if c.isalpha() else c for c in text.replace(" ", ""))


def per_axis(value: Any, n: int) -> list[int]:
    """``value`` as a list of ``n`` integers: one number, or a list of one, stands for all."""
    if value is None:
        value = 0
    if isinstance(value, Sequence) and not isinstance(value, str):
        got = [int(v) for v in value]
        return got * n if len(got) == 1 else got
    return [int(value)] * n


def same_pads(
    size: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], lower: bool = False
) -> list[int]:
    """What ``auto_pad`` SAME_UPPER (or SAME_LOWER) pads: begin of every axis, then end of every axis.

    TensorFlow's rule: the output has ceil(n / stride) positions, an odd rest goes to the end (to the begin: lower).
    """
    begin, end = [], []
    for n, k, s, d in zip(size, kernel, strides, dilations, strict=True):
        total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
        small = total // 2
        begin.append(total - small if lower else small)
        end.append(small if lower else total - small)
    return begin + end


def resolved_pads(
    attrs: Mapping[str, Any], size: Sequence[int] | None, kernel: Sequence[int] | None
) -> list[int] | None:
    """The pads that ``auto_pad`` and ``pads`` mean for this input size; None when that needs an unknown size."""
    auto = attrs.get("auto_pad", "NOTSET") or "NOTSET"
    n = len(kernel) if kernel is not None else len(size) if size is not None else None
    if auto == "VALID":
        return None if n is None else [0] * (2 * n)
    if auto == "NOTSET":
        pads = attrs.get("pads", 0)
        if n is None:
            if not isinstance(pads, Sequence):
                return None
            n = len(pads) // 2
        return per_axis(pads, 2 * n)
    if kernel is None or n is None:
        return None
    strides, dilations = per_axis(attrs.get("strides", 1), n), per_axis(attrs.get("dilations", 1), n)
    if size is None:
        if any(s != 1 for s in strides):
            return None
        size = [k * d for k, d in zip(kernel, dilations, strict=True)]  # stride 1: the same for every size
    return same_pads(size, kernel, strides, dilations, auto == "SAME_LOWER")


def equal_values(a: Any, b: Any) -> bool:
    """Equal by meaning: numbers up to 1e-12 relative, lists and tuples alike, True as 1."""
    if a is None or b is None:
        return a is None and b is None
    if isinstance(a, str) or isinstance(b, str):
        return bool(a == b)
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(equal_values(a[k], b[k]) for k in a)
    if hasattr(a, "tolist"):
        a = a.tolist()
    if hasattr(b, "tolist"):
        b = b.tolist()
    if isinstance(a, Sequence) and isinstance(b, Sequence):
        return len(a) == len(b) and all(equal_values(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b or math.isclose(a, b, rel_tol=1e-12) or (a != a and b != b)
    return bool(a == b)


def _pads_equal(
    a: Mapping[str, Any], b: Mapping[str, Any], size: Sequence[int] | None, kernel: Sequence[int] | None
) -> bool:
    auto_a, auto_b = (x.get("auto_pad", "NOTSET") or "NOTSET" for x in (a, b))
    if auto_a == auto_b and auto_a != "NOTSET":
        return True
    no_pads = [
        auto == "VALID" or auto == "NOTSET" and not any(per_axis(x.get("pads", 0), 1))
        for auto, x in ((auto_a, a), (auto_b, b))
    ]
    if all(no_pads):
        return True
    kernel = kernel or a.get("kernel_shape") or b.get("kernel_shape")
    found_a, found_b = resolved_pads(a, size, kernel), resolved_pads(b, size, kernel)
    if found_a is None or found_b is None:
        pads = (a.get("pads", 0), b.get("pads", 0))
        return auto_a == auto_b and _per_axis_equal(*pads)
    return found_a == found_b


def _per_axis_equal(a: Any, b: Any) -> bool:
    n = max((len(v) for v in (a, b) if isinstance(v, Sequence)), default=1)
    x, y = ([v] * n if isinstance(v, int | float) else list(v) * n if len(v) == 1 else list(v) for v in (a, b))
    return equal_values(x, y)


def _repeated_equal(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Activations are named once, or once a direction."""
    n = max(len(a), len(b))
    return all(n % max(len(v), 1) == 0 for v in (a, b)) and equal_values(
        [a[i % len(a)] for i in range(n)], [b[i % len(b)] for i in range(n)]
    )


def _from_end(value: Any, rank: int) -> Any:
    if isinstance(value, Sequence):
        return [_from_end(v, rank) for v in value]
    return value - rank if isinstance(value, int) and value >= 0 else value


def _equal(name: str, x: Any, y: Any, rank: int | None) -> bool:
    numbers = int | float | Sequence
    if name in _MAY_BE_UNKNOWN and (x is None or y is None):
        return True
    if name in _PER_AXIS and isinstance(x, numbers) and isinstance(y, numbers):
        return _per_axis_equal(x, y)
    if name == "activations" and x and y:
        return _repeated_equal(x, y)
    if name in _AXES and rank is not None:
        x, y = _from_end(x, rank), _from_end(y, rank)
    if name == "axes":  # one axis may stand alone, and their order says nothing
        x, y = (sorted(v) if isinstance(v, Sequence) else [v] if isinstance(v, int) else v for v in (x, y))
    return equal_values(x, y)


def differing_attrs(
    op: str,
    a: Mapping[str, Any],
    b: Mapping[str, Any],
    *,
    size: Sequence[int] | None = None,
    kernel: Sequence[int] | None = None,
    rank: int | None = None,
    training: bool = True,
    masked: bool = True,
) -> dict[str, tuple[Any, Any]]:
    """The attributes in which two layers of one operator differ in meaning, with both values.

    ``size`` and ``kernel`` are the spatial sizes of input and kernel, when known: with them explicit pads and
    ``auto_pad`` that come to the same are equal. ``rank`` is that of the main input: with it axis 1 equals -1 on a
    matrix. ``training=False`` leaves out what matters only in training, ``masked=False`` what matters only with a
    mask. For an operator without a description every attribute is compared as it stands.
    """
    entry = TABLE.get(op) or FORMS.get(op)
    defaults: Mapping[str, Any] = entry.attrs if entry else {}
    skip = set(_NOTES)
    if entry:
        skip |= entry.ignored
        skip |= frozenset() if training else entry.training_only
        skip |= frozenset() if masked else entry.masking_only
    found: dict[str, tuple[Any, Any]] = {}
    for name in dict.fromkeys([*defaults, *a, *b]):
        x, y = (s.get(name, defaults.get(name)) for s in (a, b))
        if name not in skip and not _equal(name, x, y, rank):
            found[name] = (x, y)
    for name in _without_effect(op, a, b, found, size, kernel):
        found.pop(name, None)
    return found


def _without_effect(
    op: str,
    a: Mapping[str, Any],
    b: Mapping[str, Any],
    found: Mapping[str, Any],
    size: Sequence[int] | None,
    kernel: Sequence[int] | None,
) -> list[str]:
    """Attributes that differ in writing, but come to the same given the others."""
    drop: list[str] = []
    if op == "ConvTranspose":
        if a.get("auto_pad", "NOTSET") == b.get("auto_pad", "NOTSET") != "NOTSET":
            drop.append("pads")
    elif op in TABLE and "auto_pad" in TABLE[op].attrs:
        if ({"pads", "auto_pad"} & found.keys()) and _pads_equal(a, b, size, kernel):
            drop += ["pads", "auto_pad"]
        if all(_no_padding(x) for x in (a, b)):
            drop += ["pad_mode", "count_include_pad"] if not (a.get("ceil_mode") or b.get("ceil_mode")) else []
    if op in {"LSTM", "GRU", "RNN"} and all(x.get("direction", "forward") != "bidirectional" for x in (a, b)):
        drop.append("merge")
    if op == "Resize" and "mode" not in found:
        mode = a.get("mode", "nearest")
        drop += [] if mode == "nearest" else ["nearest_mode"]
        drop += [] if mode == "cubic" else ["cubic_coeff_a", "exclude_outside", "coefficient_steps"]
        drop += ["coordinate_transformation_mode", "nearest_mode"] if mode == "nearest" and _whole_repeat(a, b) else []
        if size is not None and ({"scales", "sizes"} & found.keys()) and _sizes(a, size) == _sizes(b, size):
            drop += ["scales", "sizes"]
        drop.append("recompute")
    return drop


def _sizes(attrs: Mapping[str, Any], size: Sequence[int]) -> list[int] | None:
    """The spatial output sizes of a Resize."""
    for name in ("sizes", "scales"):
        value = attrs.get(name)
        if value is not None:
            each = [value] * len(size) if isinstance(value, int | float) else list(value)[-len(size) :]
            return [math.floor(n * v) if name == "scales" else int(v) for n, v in zip(size, each, strict=True)]
    return None


def _whole_repeat(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Nearest neighbours by a whole factor are a repeat, whichever way the coordinates are rounded."""
    usual = (("asymmetric", "floor"), ("half_pixel", "round_prefer_ceil"), ("half_pixel", "round_prefer_floor"))
    for x in (a, b):
        scales = x.get("scales")
        each = [scales] if isinstance(scales, int | float) else list(scales or [0.5])
        how = (x.get("coordinate_transformation_mode", "half_pixel"), x.get("nearest_mode", "round_prefer_floor"))
        if how not in usual or any(float(v) != int(v) for v in each):
            return False
    return True


def _no_padding(attrs: Mapping[str, Any]) -> bool:
    auto = attrs.get("auto_pad", "NOTSET")
    return auto == "VALID" or auto == "NOTSET" and not any(per_axis(attrs.get("pads", 0), 1))
