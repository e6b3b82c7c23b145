"""How torch writes arguments, and what that is in ONNX words: shared by layers and functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ambidex.core.types import Array

Attrs = dict[str, Any]
Found = tuple[str, Attrs] | None


def only(values: Sequence[Array]) -> Array:
    return values[0]


def alone(value: Array, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    return [value]


@dataclass(frozen=True, slots=True)
class Role:
    """A canonical weight and the torch tensors it is made of (relative to the module).

    ``read`` makes the canonical array of the tensors' values; ``write`` makes the tensors' values of it, given
    their shapes.
    """

    names: tuple[str, ...]
    read: Callable[[Sequence[Array]], Array] = only
    write: Callable[[Array, Sequence[tuple[int, ...]]], list[Array]] = alone


@dataclass(frozen=True, slots=True)
class Translation:
    """One layer in canonical words (``docs/canonical.md``)."""

    op: str
    attrs: dict[str, Any] = field(default_factory=dict)
    layout: str = ""
    roles: dict[str, Role] = field(default_factory=dict)


class Arguments:
    """The arguments of one call, found by position or by name."""

    def __init__(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.name, self.args, self.kwargs = name, args, kwargs

    def get(self, position: int, name: str, default: Any = None) -> Any:
        if name in self.kwargs:
            return self.kwargs[name]
        return self.args[position] if position < len(self.args) else default

    @property
    def x(self) -> torch.Tensor:
        found = self.get(0, "input")
        return found if isinstance(found, torch.Tensor) else next(v for v in self.args if isinstance(v, torch.Tensor))

    def axis(self, position: int, name: str = "dim", default: Any = None, *, grow: int = 0) -> Any:
        """An axis (or several) of the first tensor as negative numbers; None stays."""
        value = self.get(position, name, default)
        rank = self.x.dim() + grow
        if value is None or isinstance(value, bool):
            return None
        if isinstance(value, Sequence):
            return [negative(v, rank) for v in value]
        return negative(value, rank)

    def rest(self, position: int, name: str) -> list[int]:
        """A trailing variable number of integers (``x.view(2, 3)``) or one sequence of them (``x.view((2, 3))``)."""
        value = self.kwargs.get(name, self.args[position:])
        if len(value) == 1 and isinstance(value[0], Sequence):
            value = value[0]
        return [int(v) for v in value]

    def roles(self, *names: tuple[int, str, str]) -> list[str]:
        """Roles of the tensors that were passed, in call order; ``names``: (position, parameter, role)."""
        found = [
            role
            for position, name, role in names
            if position < len(self.args) and isinstance(self.args[position], torch.Tensor)
        ]
        order = {name: role for _, name, role in names}
        return found + [order[n] for n, v in self.kwargs.items() if n in order and isinstance(v, torch.Tensor)]


def negative(axis: Any, rank: int) -> int:
    axis = int(axis)
    return axis if axis < 0 or rank == 0 else axis - rank


def as_list(value: Any, n: int) -> list[int]:
    values = [int(v) for v in value] if isinstance(value, Sequence) else [int(value)]
    return values * n if len(values) == 1 else values


def spatial_pads(padding: Sequence[int]) -> list[int]:
    """torch's (last axis begin, last axis end, ...) as all begins, then all ends, first axis first."""
    pairs = [(int(a), int(b)) for a, b in zip(padding[::2], padding[1::2], strict=True)][::-1]
    return [a for a, _ in pairs] + [b for _, b in pairs]


def auto_pad(padding: Any) -> str:
    """torch's padding by name; numbers are NOTSET."""
    return {"same": "SAME_UPPER", "valid": "VALID"}.get(padding, "NOTSET") if isinstance(padding, str) else "NOTSET"


def resize_attrs(
    size: Any, scale: Any, mode: str, align_corners: bool | None, antialias: bool, recompute: bool | None
) -> Attrs:
    """torch's interpolation in the words of ONNX Resize."""
    kind = {"nearest": "nearest", "nearest-exact": "nearest", "area": "area", "bicubic": "cubic"}.get(mode, "linear")
    n = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}.get(mode)
    attrs: Attrs = {"mode": kind, "antialias": bool(antialias)}
    if mode == "nearest":
        attrs |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    else:
        how = "align_corners" if align_corners else "half_pixel"
        attrs |= {"coordinate_transformation_mode": how, "nearest_mode": "round_prefer_ceil"}
    if kind == "cubic":
        attrs |= {"cubic_coeff_a": -0.5 if antialias else -0.75, "exclude_outside": bool(antialias)}

    def spread(value: Any, cast: Callable[[Any], Any]) -> Any:
        if isinstance(value, Sequence):
            return [cast(v) for v in value]
        return cast(value) if n is None else [cast(value)] * n

    attrs["sizes"] = None if size is None else spread(size, int)
    attrs["scales"] = None if scale is None else spread(scale, float)
    attrs["recompute"] = bool(recompute)
    return attrs
