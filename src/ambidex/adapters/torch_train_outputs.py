"""Arrays as what a torch model returned, and as what a training loop hands to a loss."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch.nn.utils import rnn

from ambidex.adapters.torch_slots import named_outputs

#: makes a structure from tensors by the names of ``named_outputs``; None where a name is missing
Maker = Callable[[Mapping[str, torch.Tensor]], Any]


class Named(dict[str, Any]):
    """Outputs by name that answer to attributes too, as those of many libraries do."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def maker(output: Any, prefix: str = "") -> Maker:
    """How to make once more what a model returned, from other tensors. Holds none of its tensors."""
    if isinstance(output, torch.Tensor):
        name = prefix or "0"
        return lambda tensors: tensors.get(name)
    if isinstance(output, rnn.PackedSequence):
        name, lengths = prefix or "0", rnn.pad_packed_sequence(output)[1]
        return lambda tensors: (
            rnn.pack_padded_sequence(tensors[name], lengths, True, enforce_sorted=False) if name in tensors else None
        )

    def inner(items: Iterable[tuple[str, Any]]) -> list[Maker]:
        return [maker(v, f"{prefix}.{n}" if prefix else n) for n, v in items]

    cls = type(output)
    made: list[Maker]
    if isinstance(output, Mapping) or hasattr(output, "keys"):
        keys = list(output.keys())
        made = inner((str(k), output[k]) for k in keys)
        return lambda tensors: _mapping(cls, {k: m(tensors) for k, m in zip(keys, made, strict=True)})
    if isinstance(output, list | tuple):
        made = inner((str(i), v) for i, v in enumerate(output))
        if hasattr(cls, "_fields"):
            return lambda tensors: cls(*(m(tensors) for m in made))
        return lambda tensors: (list if isinstance(output, list) else tuple)(m(tensors) for m in made)
    if dataclasses.is_dataclass(output) and not isinstance(output, type):
        names = [f.name for f in dataclasses.fields(output)]
        made = inner((n, getattr(output, n)) for n in names)
        return lambda tensors: _dataclass(cls, {n: m(tensors) for n, m in zip(names, made, strict=True)})
    held = output if isinstance(output, bool | int | float | str) else None  # nothing that may hold tensors
    return lambda tensors: held


def _mapping(cls: type, values: dict[Any, Any]) -> Any:
    if cls is dict:
        return values
    ways: tuple[tuple[tuple[Any, ...], dict[Any, Any]], ...] = (((), values), ((values,), {}))
    for arguments, keywords in ways:
        try:
            one: Any = cls(*arguments, **keywords)
        except TypeError:  # it is made in another way
            continue
        if list(one.keys()) == [k for k in values if k in one]:
            return one
    return Named(values)


def _dataclass(cls: type, values: dict[str, Any]) -> Any:
    made: Any = object.__new__(cls)  # whatever its __init__ takes or does
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


class Returned:
    """The structure that a model returned."""

    def __init__(self, output: Any) -> None:
        self.names = {name for name, _ in named_outputs(output)}
        self.make = maker(output)


def rebuilt(outputs: Mapping[str, torch.Tensor], returned: Returned | None) -> Any:
    """What the model returned, from these tensors. Where it has not run yet, told by the names of the outputs."""
    if returned is not None and set(outputs) <= returned.names:
        return returned.make(outputs)
    if list(outputs) == ["0"]:
        return outputs["0"]
    if list(outputs) == [str(i) for i in range(len(outputs))]:
        return tuple(outputs.values())
    tree: dict[str, Any] = {}
    for name, value in outputs.items():
        node, parts = tree, name.split(".")
        for part in parts[:-1]:
            node = node.setdefault(part, {})
        node[parts[-1]] = value

    def shaped(node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        made = {k: shaped(v) for k, v in node.items()}
        return tuple(made.values()) if all(k.isdigit() for k in made) else Named(made)

    return shaped(tree)


def tensors(value: Any, like: torch.Tensor | None) -> Any:
    """Targets as a training loop hands them over: whole numbers as int64, others in the outputs' type."""
    if isinstance(value, Mapping):
        return {k: tensors(v, like) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(tensors(v, like) for v in value)
    if not isinstance(value, np.ndarray | np.generic):
        return value
    t = torch.from_numpy(np.array(value))
    if t.is_floating_point():
        return t if like is None else t.to(like.dtype)
    return t if t.dtype == torch.bool else t.to(torch.int64)


def as_floats(targets: Any, like: torch.Tensor | None) -> Any:
    """Whole numbers as the loop must hand them to a loss that takes no others than real ones."""
    if isinstance(targets, torch.Tensor) and not targets.is_floating_point():
        return targets.to(torch.get_default_dtype() if like is None else like.dtype)
    return targets
