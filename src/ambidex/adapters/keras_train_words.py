"""How things of the Keras side are called, where they are written, and what is said when they raise."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ambidex.adapters.keras_sources import built_at
from ambidex.core.types import Source
from ambidex.errors import InputError, RunError, UnsupportedError


def source_of(thing: Any) -> Source | None:
    """Where the user wrote it: a function's first line, or where an object was built."""
    while isinstance(thing, functools.partial):
        thing = thing.func
    found = built_at(thing) if not isinstance(thing, str) else None
    if found is not None:
        return found
    code = getattr(inspect.unwrap(thing) if callable(thing) else None, "__code__", None)
    if code is None or "site-packages" in code.co_filename:
        return None
    return Source(code.co_filename, code.co_firstlineno)


def name_of(thing: Any) -> str:
    while isinstance(thing, functools.partial):
        thing = thing.func
    return thing if isinstance(thing, str) else str(getattr(thing, "__name__", type(thing).__name__))


def user(what: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The user's own function, its exceptions in one sentence."""
    if not callable(function):
        raise InputError(f"{what} of the Keras side is {name_of(function)!r}, no function")
    try:
        return function(*args, **kwargs)
    except (RunError, InputError, UnsupportedError):
        raise
    except Exception as e:
        why = (str(e).strip().splitlines() or [""])[0][:300]
        raise RunError(f"{what} of the Keras side raised {type(e).__name__}", why) from e
