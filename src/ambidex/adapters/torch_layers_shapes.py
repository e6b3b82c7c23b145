"""Functions of torch that move, cut, join, index or cast numbers and compute none, in canonical words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ambidex.adapters.torch_layers_words import Arguments, Found, as_list, negative


def _transpose(a: Arguments) -> Found:
    perm = list(range(a.x.dim()))
    i, j = (int(a.get(p, n, d)) for p, n, d in ((1, "dim0", -1), (2, "dim1", -2)))
    perm[i], perm[j] = perm[j], perm[i]
    return "Transpose", {"perm": perm}


def _reversed(a: Arguments) -> Found:
    return "Transpose", {"perm": list(range(a.x.dim()))[::-1]}


def _last_two(a: Arguments) -> Found:
    perm = list(range(a.x.dim()))
    return "Transpose", {"perm": [*perm[:-2], *perm[:-3:-1]]}


def _permute(a: Arguments) -> Found:
    return "Transpose", {"perm": [d % a.x.dim() for d in a.rest(1, "dims")]}


def _moveaxis(a: Arguments) -> Found:
    source, target = (as_list(a.get(p, n), 1) for p, n in ((1, "source"), (2, "destination")))
    rank = a.x.dim()
    perm = [d for d in range(rank) if d not in [s % rank for s in source]]
    for t, s in sorted((t % rank, s % rank) for s, t in zip(source, target, strict=True)):
        perm.insert(t, s)
    return "Transpose", {"perm": perm}


def _squeeze(a: Arguments) -> Found:
    axes = a.axis(1)
    return "Squeeze", {"axes": [axes] if isinstance(axes, int) else axes}


def _flatten(a: Arguments) -> Found:
    return "Flatten", {"axis": int(a.get(1, "start_dim", 0)), "end_axis": int(a.get(2, "end_dim", -1))}


def _split(a: Arguments) -> Found:
    size, axis = a.get(1, "split_size_or_sections", a.kwargs.get("split_size")), a.axis(2, default=0)
    total = a.x.shape[axis]
    sizes = list(size) if isinstance(size, Sequence) else [min(size, total - i) for i in range(0, total, int(size))]
    if len(set(sizes)) == 1:
        return "Split", {"axis": axis, "num_outputs": len(sizes)}
    return "Split", {"axis": axis, "indices": [int(sum(sizes[: i + 1])) for i in range(len(sizes) - 1)]}


def _chunk(a: Arguments) -> Found:
    axis, total = a.axis(2, default=0), a.x.shape[a.axis(2, default=0)]
    size = -(-total // int(a.get(1, "chunks")))
    return _split(Arguments("split", (a.x, size, axis), {}))


def _item(a: Arguments) -> Found:
    key = a.get(1, "key")

    def one(k: Any) -> Any:
        if k is None:
            return "newaxis"
        if k is Ellipsis:
            return "..."
        if isinstance(k, slice):
            return [None if v is None else int(v) for v in (k.start, k.stop, k.step)]
        return int(k) if isinstance(k, int) and not isinstance(k, bool) else "tensor"

    return "Slice", {"index": [one(k) for k in (key if isinstance(key, tuple | list) else (key,))]}


def _select(a: Arguments) -> Found:
    axis = int(a.get(1, "dim")) % a.x.dim()
    return "Slice", {"index": [[None, None, None]] * axis + [int(a.get(2, "index"))]}


def _narrow(a: Arguments) -> Found:
    axis, start = int(a.get(1, "dim")) % a.x.dim(), a.get(2, "start")
    if isinstance(start, torch.Tensor):
        return None
    return "Slice", {"index": [[None, None, None]] * axis + [[int(start), int(start) + int(a.get(3, "length")), None]]}


def _cast(to: str | None = None) -> Callable[[Arguments], Found]:
    def make(a: Arguments) -> Found:
        wanted: Any = to
        for value in (*a.args[1:], *a.kwargs.values()):
            if isinstance(value, torch.dtype | torch.Tensor) and wanted is None:
                wanted = str(value.dtype if isinstance(value, torch.Tensor) else value)
        return ("Identity", {}) if wanted is None else ("Cast", {"to": wanted.rsplit(".", 1)[-1]})

    return make


def _sizes_of(op: str) -> Callable[[Arguments], Found]:
    return lambda a: (op, {"shape": [int(v) for v in a.get(1, "other").shape]})


def _tuple_axes(op: str, position: int, name: str) -> Callable[[Arguments], Found]:
    def make(a: Arguments) -> Found:
        axes = [negative(v, a.x.dim()) for v in a.rest(position, name)]
        return op, {"axes": axes}

    return make


def _sequence_axis(a: Arguments, grow: int = 0) -> int:
    tensors = a.get(0, "tensors")
    return negative(a.get(1, "dim", a.kwargs.get("axis", 0)), tensors[0].dim() + grow)


_CASTS = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "bfloat16": "bfloat16",
    "int": "int32",
    "long": "int64",
    "short": "int16",
    "char": "int8",
    "byte": "uint8",
    "bool": "bool",
}

#: the function's bare name -> what describes a call of it
TABLE: dict[str, Callable[[Arguments], Found]] = {
    "cat": lambda a: ("Concat", {"axis": _sequence_axis(a)}),
    "stack": lambda a: ("Stack", {"axis": _sequence_axis(a, grow=1)}),
    "flatten": _flatten,
    "unflatten": lambda a: ("Unflatten", {"axis": a.axis(1), "shape": [int(v) for v in a.get(2, "sizes")]}),
    "reshape": lambda a: ("Reshape", {"shape": a.rest(1, "shape")}),
    "view": lambda a: (
        _cast()(a) if isinstance(a.get(1, "dtype"), torch.dtype) else ("Reshape", {"shape": a.rest(1, "size")})
    ),
    "view_as": _sizes_of("Reshape"),
    "reshape_as": _sizes_of("Reshape"),
    "expand_as": _sizes_of("Expand"),
    "permute": _permute,
    "transpose": _transpose,
    "swapaxes": _transpose,
    "swapdims": _transpose,
    "t": _reversed,
    "T": _reversed,
    "mT": _last_two,
    "H": _last_two,
    "mH": _last_two,
    "adjoint": _last_two,
    "get": _last_two,
    "moveaxis": _moveaxis,
    "movedim": _moveaxis,
    "squeeze": _squeeze,
    "unsqueeze": lambda a: ("Unsqueeze", {"axes": [a.axis(1, grow=1)]}),
    "expand": lambda a: ("Expand", {"shape": a.rest(1, "size")}),
    "broadcast_to": lambda a: ("Expand", {"shape": a.rest(1, "size")}),
    "repeat": lambda a: ("Tile", {"repeats": a.rest(1, "repeats")}),
    "tile": lambda a: ("Tile", {"repeats": a.rest(1, "dims")}),
    "repeat_interleave": lambda a: (
        None
        if isinstance(a.get(1, "repeats"), torch.Tensor)
        else ("Repeat", {"repeats": int(a.get(1, "repeats")), "axis": a.axis(2)})
    ),
    "roll": lambda a: ("Roll", {"shifts": a.get(1, "shifts"), "axes": a.axis(2, "dims")}),
    "flip": _tuple_axes("Flip", 1, "dims"),
    "getitem": _item,
    "select": _select,
    "narrow": _narrow,
    "split": _split,
    "split_with_sizes": _split,
    "chunk": _chunk,
    "unbind": lambda a: ("Unstack", {"axis": a.axis(1, default=0)}),
    **{name: _cast(to) for name, to in _CASTS.items()},
    "to": _cast(),
    "type": _cast(),
    "type_as": _cast(),
}
TABLE |= {"concat": TABLE["cat"], "concatenate": TABLE["cat"]}
