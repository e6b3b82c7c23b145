"""How things of the torch side are called, where they are written, what they take, and what is said when they raise."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from ambidex.core.types import Source
from ambidex.errors import InputError, RunError, UnsupportedError

#: how a function's parameter is called that takes weights of the samples
_WEIGHTS = {"weights", "weight", "sample_weight", "sample_weights", "w"}


def source_of(thing: Any) -> Source | None:
    """Where the user wrote it: a function's first line, or where a module was built."""
    while isinstance(thing, functools.partial):
        thing = thing.func
    if isinstance(thing, nn.Module):
        found: Source | None = thing.__dict__.get("_ambidex_source")
        if found is not None or type(thing).__module__.startswith("torch."):
            return found
        thing = type(thing).forward
    code = getattr(inspect.unwrap(thing) if callable(thing) else None, "__code__", None)
    if code is None or "site-packages" in code.co_filename:
        return None
    return Source(code.co_filename, code.co_firstlineno)


def name_of(thing: Any) -> str:
    while isinstance(thing, functools.partial):
        thing = thing.func
    return str(getattr(thing, "__name__", type(thing).__name__))


def user(what: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The user's own function (or what goes through the user's own code), its exceptions in one sentence."""
    try:
        return function(*args, **kwargs)
    except (RunError, InputError, UnsupportedError):
        raise
    except SystemExit as e:
        raise RunError(f"{what} of the torch side ended Python", f"it calls sys.exit({e.code!r})", "Take it out") from e
    except Exception as e:
        why = (str(e).strip().splitlines() or [""])[0][:300]
        raise RunError(f"{what} of the torch side raised {type(e).__name__}", why) from e


def wanted(function: Callable[..., Any], module: nn.Module) -> Any:
    """The module's parameters; named ones or the module itself where the function's own parameter is called so."""
    first = next(iter(_parameters(function)), "")
    if first in ("named_parameters", "named_params"):
        return list(module.named_parameters())
    return module if first in ("model", "module", "net") else list(module.parameters())


def takes_weights(function: Callable[..., Any]) -> bool:
    """Whether a function of the user's own takes weights of the samples as its third argument."""
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    if str(getattr(inner, "__module__", "")).startswith("torch."):
        return False  # the third argument of torch's own losses is something else: weights of the classes
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    listed = list(_parameters(function.forward if isinstance(function, nn.Module) else function).values())
    if any(p.kind is p.VAR_POSITIONAL for p in listed):
        return True
    taken = [p for p in listed if p.kind in kinds]
    return len(taken) > 2 and (taken[2].default is taken[2].empty or taken[2].name in _WEIGHTS)


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return {}
