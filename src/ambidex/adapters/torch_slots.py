"""Tensors inside the structures they are passed in: arguments, packed sequences, whatever a model returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ambidex.core.types import Array


def numpy_from_tensor(tensor: torch.Tensor) -> Array:
    """The values of a dense tensor as numpy; bfloat16 becomes float32 (numpy has no bfloat16)."""
    t = tensor.detach()
    if t.is_sparse:
        t = t.to_dense()
    if t.dtype == torch.bfloat16:
        t = t.float()
    return t.cpu().numpy()


class Packed:
    """A PackedSequence seen as what it stands for: a padded tensor and the mask of its valid steps."""

    def __init__(self, packed: torch.nn.utils.rnn.PackedSequence, batch_first: bool) -> None:
        self.packed, self.batch_first = packed, batch_first
        self.padded, self.lengths = torch.nn.utils.rnn.pad_packed_sequence(packed, batch_first=batch_first)

    def mask(self) -> torch.Tensor:
        steps = torch.arange(int(self.lengths.max()))
        return steps[None, :] < self.lengths[:, None]

    def pack(self, padded: torch.Tensor) -> torch.nn.utils.rnn.PackedSequence:
        return torch.nn.utils.rnn.pack_padded_sequence(padded, self.lengths, self.batch_first, enforce_sorted=False)


class Slots:
    """The tensors inside any (args, kwargs) or output structure, in order, and the way back."""

    def __init__(self, tree: Any, batch_first: bool = False) -> None:
        leaf = lambda x: isinstance(x, torch.nn.utils.rnn.PackedSequence)  # noqa: E731
        self.batch_first = batch_first
        flat, self.spec = pytree.tree_flatten_with_path(tree, is_leaf=leaf)
        self.leaves: list[Any] = []
        self.where: list[int] = []
        self.names: list[str] = []
        self.tensors: list[torch.Tensor] = []
        self.packed: dict[int, Packed] = {}
        self.known_as: dict[int, int] = {}  # id of a padded tensor -> id of the packed data it was made of
        for i, (path, value) in enumerate(flat):
            self.leaves.append(value)
            name = ".".join(str(getattr(k, "key", getattr(k, "idx", getattr(k, "name", "")))) for k in path[1:])
            if leaf(value):
                seen = Packed(value, batch_first)
                self.packed[i] = seen
                self._add(i, name, seen.padded)
                self.known_as[id(seen.padded)] = id(value.data)
                self._add(-1, "mask", seen.mask())
            elif isinstance(value, torch.Tensor):
                self._add(i, name, value)

    def _add(self, where: int, name: str, tensor: torch.Tensor) -> None:
        self.where.append(where)
        self.names.append(name or str(len(self.names)))
        self.tensors.append(tensor)

    def rebuilt(self, tensors: list[torch.Tensor]) -> Any:
        leaves = list(self.leaves)
        for where, tensor in zip(self.where, tensors, strict=True):
            if where < 0:
                continue
            leaves[where] = self.packed[where].pack(tensor) if where in self.packed else tensor
        return pytree.tree_unflatten(leaves, self.spec)


def named_outputs(output: Any, prefix: str = "") -> list[tuple[str, torch.Tensor]]:
    """The tensors of any output structure with their names: dictionary keys, or positions."""
    if isinstance(output, torch.Tensor):
        return [(prefix or "0", output)]
    if isinstance(output, torch.nn.utils.rnn.PackedSequence):
        return [(prefix or "0", torch.nn.utils.rnn.pad_packed_sequence(output, batch_first=True)[0])]
    if isinstance(output, Mapping) or hasattr(output, "keys"):
        items = [(str(k), output[k]) for k in output.keys()]  # noqa: SIM118 (ModelOutput is no plain mapping)
    elif isinstance(output, list | tuple):
        items = [(str(i), v) for i, v in enumerate(output)]
    elif dataclasses.is_dataclass(output):
        items = [(field.name, getattr(output, field.name)) for field in dataclasses.fields(output)]
    else:
        return []
    found: list[tuple[str, torch.Tensor]] = []
    for name, value in items:
        found += named_outputs(value, f"{prefix}.{name}" if prefix else name)
    return found
