"""Signatures, and inputs made up from them that do not hide faults.

Square sizes and standard-normal noise hide faults: a swapped axis goes unnoticed, an epsilon drowns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ambidex.core import usercode
from ambidex.core.model import TensorSpec
from ambidex.core.types import Array
from ambidex.errors import InputError

_KNOWN = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_FLOATS = ("float16", "float32", "float64")
_FORM = "Write for example int64[None,None]<30522, float32[2,3], where None is any size"
_ITEM = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_]\w*)\s*:\s*)?(?P<dtype>[A-Za-z]\w*)\s*\[(?P<shape>[^\]]*)\]\s*(?:<\s*(?P<high>\w+))?\s*"
)
#: sizes for the axes a signature leaves open, batch first
_PRIMES = (5, 13, 11, 17, 7, 19, 23, 29, 31, 37, 41, 43)


@dataclass(frozen=True, slots=True)
class AxisSpec(TensorSpec):
    """``axes``: the user's names of open axes; axes of one name get one size, in all inputs."""

    axes: tuple[str | None, ...] = ()


def parse_signature(text: str) -> list[TensorSpec]:
    """``int64[None,None]<30522, mask: bool[B,S]`` or ``file.py:NAME`` (a list of (dtype, shape)).

    An open axis is None or a name (one name, one size). ``<N``: ids stay below N.
    """
    where, colon, name = text.strip().rpartition(":")
    if colon and where.endswith(".py"):
        return _from_file(text.strip(), where, name.strip())
    specs: list[TensorSpec] = []
    at = 0
    while True:
        match = _ITEM.match(text, at)
        if match is None:
            rest = text[at:].strip()
            why = f"'{rest[:60]}' is no dtype[shape]" if rest else "an input is missing" if specs else "it is empty"
            raise InputError(f"cannot read the signature '{text}'", why, _FORM)
        specs.append(_item(text, match, len(specs)))
        at = match.end()
        if at == len(text):
            return _distinct(text, specs)
        if text[at] != ",":
            raise InputError(
                f"cannot read the signature '{text}'", f"a comma is missing before '{text[at:][:40]}'", _FORM
            )
        at += 1


def _distinct(text: str, specs: list[TensorSpec]) -> list[TensorSpec]:
    names = [spec.name for spec in specs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"cannot read the signature '{text}'", f"two inputs are called '{twice}'")
    if any(name.isdigit() for name in names) and not all(name.isdigit() for name in names):
        raise InputError(
            f"cannot read the signature '{text}'", "some inputs have a name and some have none", "Name all"
        )
    return specs


def _item(text: str, match: re.Match[str], number: int) -> TensorSpec:
    shape: list[int | None] = []
    axes: list[str | None] = []
    for part in match["shape"].split(",") if match["shape"].strip() else []:
        size = part.strip()
        if size.isdecimal() and int(size) > 0:
            shape.append(int(size))
            axes.append(None)
        elif size in ("None", "?") or size.isidentifier():
            shape.append(None)
            axes.append(None if size in ("None", "?") else size)
        else:
            raise InputError(f"cannot read the signature '{text}'", f"'{size}' is no size", _FORM)
    high = match["high"]
    if high is not None and not (high.isdecimal() and int(high) > 0):
        raise InputError(f"cannot read the signature '{text}'", f"'<{high}' is no limit for ids", _FORM)
    return _spec(match["name"] or str(number), match["dtype"], shape, f"the signature '{text}'", high, axes)


def _spec(
    name: str,
    dtype: str,
    shape: Sequence[int | None],
    where: str,
    high: str | int | None = None,
    axes: Sequence[str | None] | None = None,
) -> TensorSpec:
    if dtype not in _KNOWN + _FLOATS:
        near = usercode.nearest(dtype, [*_KNOWN, *_FLOATS]) or f"Known are {', '.join(_KNOWN + _FLOATS)}"
        raise InputError(f"cannot read {where}", f"'{dtype}' is no input type", near)
    if high is not None and not dtype.startswith(("int", "uint")):
        raise InputError(f"cannot read {where}", f"'<{high}' limits ids, and {dtype} holds none")
    limit = None if high is None else int(high)
    if limit is not None and limit - 1 > np.iinfo(dtype).max:
        raise InputError(f"cannot read {where}", f"ids up to {limit - 1} do not fit in {dtype}")
    return AxisSpec(name, dtype, tuple(shape), limit, tuple(axes or [None] * len(shape)))


def _from_file(text: str, where: str, name: str) -> list[TensorSpec]:
    file = usercode.existing_file(where)
    if not name.isidentifier():
        raise InputError(f"cannot read the signature '{text}'", f"'{name}' is no Python name", "Say file.py:NAME")
    value = usercode.member(usercode.load_file(file, name), name, file)
    if callable(value):
        value = usercode.call(value, text, file.parent, kind="signature functions")
    return as_signature(value, f"the signature '{text}'")


def as_signature(value: Any, where: str = "the signature") -> list[TensorSpec]:
    """A list of (dtype, shape) or of TensorSpec, or a dictionary of (dtype, shape) by input name."""
    if isinstance(value, str):
        return parse_signature(value)
    items = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(items, list | tuple) or not items:
        raise InputError(f"cannot read {where}", f"a {type(value).__name__} is no list of (dtype, shape)", _FORM)
    specs: list[TensorSpec] = []
    for number, item in enumerate(items):
        if isinstance(item, TensorSpec):
            specs.append(item)
            continue
        label, item = item if isinstance(value, dict) else (str(number), item)
        if not isinstance(item, list | tuple) or len(item) != 2 or not isinstance(item[1], list | tuple):
            raise InputError(f"cannot read {where}", f"entry {label} is {item!r:.80} and no (dtype, shape)")
        dtype, shape = item
        odd = next((n for n in shape if n is not None and (type(n) is not int or n < 1)), None)
        if odd is not None:
            raise InputError(
                f"cannot read {where}", f"entry {label} has the size {odd!r}", "A size is a number or None"
            )
        specs.append(_spec(str(label), getattr(dtype, "__name__", str(dtype)).split(".")[-1], shape, where))
    return specs


# ---------------------------------------------------------------------------------------------------- probes
def probe(
    signature: Sequence[TensorSpec], *, seed: int = 0, lengths: str = "shared"
) -> tuple[dict[str, Array], list[str]]:
    """Arrays by input name, and a line on each. See :func:`ambidex.engine.inputs.probe_inputs`."""
    if lengths not in ("shared", "different"):
        raise InputError(f"lengths={lengths!r} is unknown", todo="Say shared or different")
    if not signature:
        raise InputError("the signature holds no input", todo=_FORM)
    random = np.random.default_rng(seed)
    sizes = _Sizes(signature, lengths == "shared")
    arrays: dict[str, Array] = {}
    described: list[str] = []
    for number, spec in enumerate(signature):
        if spec.shape is None:
            raise InputError(f"input '{spec.name}' declares no shape", todo="Pass --signature, or --inputs")
        shape = tuple(sizes.of(number, spec, axis) for axis in range(len(spec.shape)))
        arrays[spec.name], told = _probe(spec, shape, random)
        described.append(f"{spec.name}: probe {spec.dtype}{list(shape)}, {told} (seed {seed})")
    return arrays, described


class _Sizes:
    """Hands out primes; those that a signature fixes already are left out, so that no two axes look alike."""

    def __init__(self, signature: Sequence[TensorSpec], shared: bool) -> None:
        fixed = {n for spec in signature for n in spec.shape or () if n is not None}
        self._free = [p for p in _PRIMES if p not in fixed]
        self._given: dict[Any, int] = {}
        self._shared = shared

    def of(self, number: int, spec: TensorSpec, axis: int) -> int:
        assert spec.shape is not None
        size = spec.shape[axis]
        if size is not None:
            return size
        names = spec.axes if isinstance(spec, AxisSpec) else ()
        key: Any = (axis,) if axis == 0 or self._shared else (number, axis)
        if axis < len(names) and names[axis] is not None:
            key = names[axis]
        if key not in self._given:
            if not self._free:
                raise InputError("the signature leaves too many sizes open", f"more than {len(_PRIMES)}", "Fix some")
            self._given[key] = self._free.pop(0)
        return self._given[key]


def _probe(spec: TensorSpec, shape: tuple[int, ...], random: np.random.Generator) -> tuple[Array, str]:
    if spec.dtype in _FLOATS:
        return _floats(shape, random).astype(spec.dtype), _FLOAT_WORDS if len(shape) > 1 else "normal"
    if spec.dtype == "bool":
        return _mask(shape, random)
    array, told = _ids(shape, spec.high, random)
    limit = np.iinfo(spec.dtype).max
    return np.minimum(array, limit).astype(spec.dtype), told


_FLOAT_WORDS = "rows in turn normal, of low variance, all negative, large"


def _floats(shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """Rows differ in kind: normal; low variance (an epsilon shows); all negative (what a ReLU or a maximum over zero
    padding cuts off shows); large with an offset for each channel (what is summed over the wrong axis shows)."""
    x = random.standard_normal(shape)
    if x.ndim == 0 or x.size == 0:
        return x
    rows = x if shape[0] >= 2 or x.ndim == 1 else x[0]
    if rows.ndim == 0 or len(rows) < 2:
        return x
    rows[1::4] = 0.7 + 3e-3 * rows[1::4]
    rows[2::4] = -np.abs(rows[2::4]) - 0.1
    if rows.ndim > 1:
        rows[3::4] = 3.0 * rows[3::4] + np.linspace(-2.0, 2.0, rows.shape[-1])
    return x


def _mask(shape: tuple[int, ...], random: np.random.Generator) -> tuple[Array, str]:
    """Rows in turn all true, a true beginning of several lengths, and one all false at the end."""
    mask = np.ones(shape, dtype=bool)
    if len(shape) < 2 or shape[-1] < 2:
        return random.random(shape) < 0.5, "random"
    flat = mask.reshape(-1, shape[-1])
    for row in range(1, len(flat)):
        flat[row, random.integers(1, shape[-1]) :] = False
    if len(flat) > 2:
        flat[-1] = False
    return mask, "the first row all true, then true beginnings, the last row all false"


def _ids(shape: tuple[int, ...], high: int | None, random: np.random.Generator) -> tuple[Array, str]:
    """Ids over the whole vocabulary. In sequences 0 stands at the ends of rows only, where padding belongs."""
    top = 2 if high is None else high
    low = 1 if len(shape) >= 2 and shape[-1] > 1 and top > 1 else 0
    size = int(np.prod(shape, dtype=np.int64))
    spread = np.linspace(low, top - 1, max(size, 1)).round().astype(np.int64)[:size]
    ids = random.permutation(spread).reshape(shape)
    told = f"ids 0..{top - 1}" if high is not None else "ids 0 and 1, as the size of the vocabulary is not known"
    if not low:
        return ids, told
    flat = ids.reshape(-1, shape[-1])
    length = shape[-1]
    for row in range(1, len(flat), 2):  # every other row is padded, to two lengths
        flat[row, (2 * length) // 3 if row % 4 == 1 else max(1, length // 3) :] = 0
    if len(flat) == 1:
        flat[0, max(1, (2 * length) // 3) :] = 0
    if not (ids == top - 1).any():
        flat[0, 0] = top - 1
    return ids, f"{told}, rows padded with 0 to two lengths"
