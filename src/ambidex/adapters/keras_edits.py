"""Setting attributes on a live Keras layer, and putting everything back."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from ambidex.errors import UnsupportedError

_ABSENT = object()


class Edits:
    """Attributes set on objects, to be undone. Written past Keras' tracking, which a change for a moment is none of."""

    def __init__(self) -> None:
        self._undo: list[tuple[dict[str, Any], str, Any]] = []

    def set(self, target: Any, name: str, value: Any) -> None:
        """Set an attribute, remembering what was there."""
        space = vars(target)
        self._undo.append((space, name, space.get(name, _ABSENT)))
        space[name] = value

    def undo(self) -> None:
        """Put everything back, last change first."""
        for space, name, value in reversed(self._undo):
            if value is _ABSENT:
                space.pop(name, None)
            else:
                space[name] = value
        self._undo.clear()


def refuse(layer: Any, name: str, value: Any, why: str = "") -> UnsupportedError:
    """The error for an attribute that the layer cannot be given."""
    return UnsupportedError(f"{type(layer).__name__} {layer.name!r} cannot be given {name}={value!r}", why)


def rest(layer: Any, changed: Mapping[str, Any]) -> None:
    """Refuse what a handler left over."""
    for name, value in changed.items():
        raise refuse(layer, name, value)


def override(layer: Any, edits: Edits, fn: Callable[..., Any]) -> None:
    """Let the layer call ``fn(previous_call, *args, **kwargs)``."""
    edits.set(layer, "call", functools.partial(fn, layer.call))
