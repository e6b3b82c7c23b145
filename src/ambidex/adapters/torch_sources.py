"""Where in the user's code a torch layer is built, and where a function is called."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from torch import nn

from ambidex.core.types import Source

_INTERNAL = ("/torch/", os.path.dirname(os.path.dirname(__file__)) + os.sep, "/contextlib.py", "/einops/")


def user_frame(skip: int = 2) -> Source | None:
    """The first frame outside torch and ambidex: the line of the user's code (or of a library) that called."""
    frame = sys._getframe(skip)
    while frame is not None:
        name = frame.f_code.co_filename
        if not any(part in name for part in _INTERNAL) and not name.startswith("<"):
            return Source(name, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return None


@contextmanager
def remember_sources() -> Iterator[None]:
    """Modules built inside remember the user's line that built them."""
    original = nn.Module.__init__

    def init(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.__dict__["_ambidex_source"] = _built_at(self)

    nn.Module.__init__ = init  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module.__init__ = original  # type: ignore[method-assign]


def _built_at(module: nn.Module) -> Source | None:
    """The frame that called the constructor: above every ``__init__`` of this very object."""
    frame = sys._getframe(2)
    skip = 3
    while frame is not None and frame.f_code.co_name == "__init__" and frame.f_locals.get("self") is module:
        frame = frame.f_back  # type: ignore[assignment]
        skip += 1
    return user_frame(skip)


@cache
def _class_source(cls: type) -> tuple[str, list[str], int]:
    """A class's file, its lines and the first one's number; no lines where Python does not know (asking is slow)."""
    try:
        lines, start = inspect.getsourcelines(cls)
        return inspect.getsourcefile(cls) or "", lines, start
    except (OSError, TypeError):
        return "", [], 0


def assigned_at(root: nn.Module, path: str) -> Source | None:
    """Without :func:`remember_sources`: the line in the parent's class that assigns this attribute."""
    parts = path.split(".")
    for depth in range(len(parts), 0, -1):
        parent = root.get_submodule(".".join(parts[: depth - 1]))
        file, lines, start = _class_source(type(parent))
        if not lines or "/torch/" in file:
            continue
        pattern = re.compile(
            rf"self\.{re.escape(parts[depth - 1])}\b[^=]*=[^=]|self\.\w+\s*=.*{re.escape(parts[depth - 1])}"
        )
        for n, line in enumerate(lines):
            if pattern.search(line):
                return Source(file, start + n, line.strip())
        return Source(file, start, lines[0].strip())
    return None
