"""The parameters of a framework's class or function by the name that a fix uses; imports no framework."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence

#: how fixes begin -> the module that is meant
_ROOTS = {"nn": "torch.nn", "F": "torch.nn.functional", "torch": "torch", "keras": "keras", "tf": "tensorflow"}


def parameters(name: str) -> Sequence[str] | None:
    """``nn.LayerNorm`` -> ``["normalized_shape", "eps", ...]``; None where it is not loaded or has no signature."""
    root, *rest = name.split(".")
    found: object = sys.modules.get(_ROOTS.get(root, root))
    for part in rest:
        found = getattr(found, part, None)
    if found is None or not callable(found):
        return None
    try:
        listed = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in listed if p.kind in positional]
