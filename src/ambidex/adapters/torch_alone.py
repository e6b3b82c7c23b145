"""One part of a torch model by itself: the submodule, and what it is called with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ambidex.adapters.torch_slots import numpy_from_tensor
from ambidex.core.model import Batch
from ambidex.core.types import Array
from ambidex.errors import UnsupportedError


def enclosing(model: Any, path: str) -> str:
    """The path itself where it names a module, else the nearest one around it ("" is the whole model)."""
    known = {name for name, _ in model.module.named_modules()}
    while path not in known:
        path = path.rpartition(".")[0]
    return path


def part(model: Any, path: str, inputs: Sequence[Array] = ()) -> nn.Module:
    """The submodule; the whole module for ""."""
    found: nn.Module = model.module.get_submodule(path)
    return found


def arguments(model: Any, batch: Batch, path: str) -> list[Array]:
    """The tensors of its first call on this batch; UnsupportedError where it takes anything else as well."""
    seen: list[list[Array]] = []

    def note(m: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not seen and not kwargs and all(isinstance(a, torch.Tensor) for a in args):
            seen.append([numpy_from_tensor(a).copy() for a in args])

    handle = part(model, path).register_forward_pre_hook(note, with_kwargs=True)
    try:
        model.run(batch, record=False)
    finally:
        handle.remove()
    if not seen:
        raise UnsupportedError(f"{path!r} is not called with tensors alone")
    return seen[0]
