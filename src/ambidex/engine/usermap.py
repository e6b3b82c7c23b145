"""The user's map: which layer of the candidate stands for which layer of the reference."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ambidex.core.trace import Trace
from ambidex.core.usercode import existing_file
from ambidex.errors import MapError

_FORM = 'Write one line a layer: "reference.path" = "candidate.path"'


def load_map(source: str | Path | Mapping[str, str] | None) -> dict[str, str] | None:
    """A map as a dictionary, from TOML: lines ``"reference.path" = "candidate.path"``, under ``[layers]`` or not."""
    if source is None:
        return None
    if isinstance(source, Mapping):
        return _checked(source, "the map")
    file = existing_file(str(source))
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MapError(f"cannot read the map '{source}'", f"it is no valid TOML: {error}", _FORM) from None
    except OSError as error:
        raise MapError(f"cannot read the map '{source}'", error.strerror or str(error)) from None
    version = content.pop("format", 1)
    if version != 1:
        raise MapError(f"the map '{source}' has format {version!r:.40}", "this version of ambidex reads 1")
    layers = content.pop("layers", None)
    if layers is not None and content:
        raise MapError(f"the map '{source}' has '{next(iter(content))}' outside of [layers]", todo=_FORM)
    return _checked(content if layers is None else layers, f"the map '{source}'")


def _checked(content: Any, where: str) -> dict[str, str]:
    if not isinstance(content, Mapping):
        raise MapError(f"{where}: [layers] is no table", todo=_FORM)
    for key, value in content.items():
        if isinstance(value, Mapping):
            inner = f"{key}.{next(iter(value), '')}"
            raise MapError(f"{where} has a table '{key}'", "a path with dots needs quotes", f'Write "{inner}" = ...')
        if not isinstance(key, str) or not isinstance(value, str) or not value:
            raise MapError(f"{where} gives '{key}' the value {value!r:.60}", "a layer's path is expected", _FORM)
    twice = [value for value in content.values() if list(content.values()).count(value) > 1]
    if twice:
        raise MapError(f"{where} names the candidate's '{twice[0]}' twice", "two layers cannot be the same one", _FORM)
    return dict(content)


def check_paths(user_map: Mapping[str, str], reference: Trace, candidate: Trace) -> None:
    """Every path of a map must be a layer, a recorded call or a weight of its side; MapError names the nearest one."""
    for side, trace, names in (("reference", reference, user_map.keys()), ("candidate", candidate, user_map.values())):
        known = {x.path for x in trace.layers} | {c.path for c in trace.calls} | set(trace.weights)
        for name in names:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1, 0.5)
                raise MapError(
                    f"the map names '{name}', which the {side} does not have",
                    todo=f"Did you mean '{near[0]}'?" if near else "Paths stand in the report's layer table",
                )
