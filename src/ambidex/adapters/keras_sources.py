"""Where a Keras layer was built and where a functional operator was called, found without slowing either down."""

from __future__ import annotations

import inspect
import linecache
import os
import re
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any

from ambidex.core.types import Source

_FRAMEWORKS = ("keras", "tf_keras", "tensorflow", "numpy", "jax", "torch", "absl")
_STANDARD = ("/contextlib.py", "/functools.py", "/threading.py")
_inside: dict[str, bool] = {}
_cache: dict[tuple[str, int], Source] = {}
#: id(layer) -> (weak reference, place); the reference guards against an id that is used again
_built: dict[int, tuple[weakref.ref[Any], Source]] = {}


def _is_internal(file: str) -> bool:
    """Whether a file belongs to an installed framework or to ambidex's adapters and engine (not: a folder named so)."""
    known = _inside.get(file)
    if known is None:
        own = os.path.dirname(__file__)
        roots = [own, os.path.join(os.path.dirname(own), "engine")]
        for name in _FRAMEWORKS:
            roots += list(getattr(sys.modules.get(name), "__path__", []))
        inside = any(file.startswith(root + os.sep) for root in roots)
        known = _inside[file] = inside or file.startswith("<") or file.endswith(_STANDARD)
    return known


def _source(file: str, line: int) -> Source:
    known = _cache.get((file, line))
    if known is None:
        known = _cache[file, line] = Source(file, line, linecache.getline(file, line).strip())
    return known


def calling_source(frame: FrameType | None = None) -> Source | None:
    """The first frame outside the frameworks and ambidex's own adapters: the user's line that called."""
    at: FrameType | None = frame or sys._getframe(1)
    while at is not None:
        file = at.f_code.co_filename
        if not _is_internal(file):
            return _source(file, at.f_lineno)
        at = at.f_back
    return None


def _note(obj: Any, frame: FrameType | None) -> None:
    """Remember who built ``obj``: the frame above every ``__init__`` of this very object."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "__init__" and code.co_varnames and frame.f_locals.get(code.co_varnames[0]) is obj:
            frame = frame.f_back
            continue
        break
    place = calling_source(frame) if frame is not None else None
    if place is None:
        return
    key = id(obj)
    try:
        _built[key] = (weakref.ref(obj, lambda _: _built.pop(key, None)), place)
    except TypeError:
        return  # an object without weak references: it stays without a place


def built_at(obj: Any) -> Source | None:
    """Where ``obj`` was built, when that happened inside :func:`remember_sources`."""
    known = _built.get(id(obj))
    return known[1] if known is not None and known[0]() is obj else None


@contextmanager
def remember_sources() -> Iterator[None]:
    """Layers, operations, losses, metrics and optimizers built inside remember the line that built them."""
    from keras.src.losses.loss import Loss
    from keras.src.metrics.metric import Metric
    from keras.src.ops.operation import Operation
    from keras.src.optimizers.base_optimizer import BaseOptimizer

    originals = [(cls, cls.__init__) for cls in (Operation, Loss, Metric, BaseOptimizer)]
    for cls, original in originals:
        cls.__init__ = _remembering(original)
    try:
        yield
    finally:
        for cls, original in originals:
            cls.__init__ = original


def _remembering(original: Any) -> Any:
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        _note(self, sys._getframe(1))

    return init


@cache
def _class_source(cls: type) -> tuple[str, list[str], int]:
    """A class's file, its lines and the first one's number; no lines where Python does not know (asking is slow)."""
    try:
        lines, start = inspect.getsourcelines(cls)
        return inspect.getsourcefile(cls) or "", lines, start
    except (OSError, TypeError):
        return "", [], 0


def assigned_at(parent: Any, attribute: str) -> Source | None:
    """Without :func:`remember_sources`: the line in the parent's class that assigns this attribute."""
    for cls in type(parent).__mro__:
        if cls.__module__.split(".")[0] in {"keras", "builtins", "tensorflow", "torch"}:
            return None
        file, lines, start = _class_source(cls)
        pattern = re.compile(rf"self\.{re.escape(attribute)}\s*(:[^=]+)?=[^=]|self\.{re.escape(attribute)}\.append\(")
        for n, line in enumerate(lines):
            if pattern.search(line):
                return Source(file, start + n, line.strip())
    return None
