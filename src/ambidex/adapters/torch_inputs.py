"""What a torch module is called with: a batch as the arguments of its ``forward``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import torch

#: how a parameter is annotated that takes several tensors at once (annotations may be text)
_SEVERAL = re.compile(r"([\w.]+\.)?(list|sequence|iterable|tuple)\[.*tensor", re.IGNORECASE)


class Arguments:
    """Arrays by position or by name, as ``forward`` takes them: one by one, or several in its one parameter.

    ``packed`` says in words that they were put into one structure, "" when each is an argument of its own.
    """

    def __init__(self, forward: Callable[..., Any], named: dict[str, torch.Tensor], by_name: bool) -> None:
        self.args: tuple[Any, ...] = () if by_name else tuple(named.values())
        self.kwargs: dict[str, Any] = dict(named) if by_name else {}
        self.packed = ""
        taken = list(inspect.signature(forward).parameters.values())
        if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in taken):
            return
        required = [p for p in taken if p.default is p.empty and p.kind is not p.KEYWORD_ONLY]
        alone = required[0].name if len(required) == 1 else ""
        if by_name:
            if alone and not set(named) <= {p.name for p in taken}:
                self._pack((dict(named),), len(named), alone, "dictionary")
            return
        several = [i for i, p in enumerate(required) if _takes_several(p)]
        if not several and alone and len(named) > len(taken):
            several = [0]
        if len(several) == 1 and len(named) >= len(required):
            start, values = several[0], list(named.values())
            count = len(values) - len(required) + 1
            made: Any = values[start : start + count]
            kind = tuple if "tuple[" in _text(required[start]).lower().partition("tensor")[0] else list
            args = (*values[:start], kind(made), *values[start + count :])
            self._pack(args, count, required[start].name, kind.__name__)

    def _pack(self, args: tuple[Any, ...], count: int, name: str, kind: str) -> None:
        self.args, self.kwargs = args, {}
        self.packed = f"{count} input{'s' * (count > 1)} went into its parameter {name!r} as a {kind}"


def _text(parameter: inspect.Parameter) -> str:
    return str(parameter.annotation)


def _takes_several(parameter: inspect.Parameter) -> bool:
    return bool(_SEVERAL.match(_text(parameter)))
