"""A trace on disk: a folder with ``trace.json`` (readable, no arrays) and ``arrays.safetensors``. Never pickle.

``save_trace`` is atomic: the folder is there wholly or as it was before, also after Ctrl-C. Equal arrays are stored
once. Types without a numpy equivalent in the format (bfloat16, the 8-bit floats) are stored as float32, which holds
them exactly, and come back as float32; complex numbers are stored as pairs. Tuples come back as lists. ``load_trace``
believes nothing: see the :class:`~ambidex.errors.TraceError` sentences.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ambidex.core.files import new_folder
from ambidex.core.trace import Trace
from ambidex.core.tracedoc import MAX_JSON, Store, document
from ambidex.errors import TraceError

_JSON, _ARRAYS = "trace.json", "arrays.safetensors"


def _lines(content: dict[str, Any]) -> Iterator[str]:
    """Sorted JSON with one line for each layer, call or array: short enough to read, long enough to diff."""

    def dump(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True)

    yield "{"
    keys = sorted(content)
    for key in keys:
        value, comma = content[key], "" if key == keys[-1] else ","
        head = f" {dump(key)}: "
        if isinstance(value, list) and value:
            yield head + "["
            yield from (f"  {dump(item)}{'' if n == len(value) else ','}" for n, item in enumerate(value, 1))
            yield f" ]{comma}"
        elif isinstance(value, dict) and value:
            yield head + "{"
            # in the order of the number behind the "a" for arrays, by name otherwise
            names = sorted(value, key=lambda name: (len(name), name) if key == "arrays" else (0, name))
            yield from (f"  {dump(k)}: {dump(value[k])}{'' if k == names[-1] else ','}" for k in names)
            yield f" }}{comma}"
        else:
            yield head + dump(value) + comma
    yield "}"


def _is_replaceable(folder: Path) -> bool:
    """Only a trace, or an empty folder, may be overwritten by one."""
    if not folder.is_dir():
        return False
    names = {entry.name for entry in folder.iterdir()}
    return not names or names == {_JSON, _ARRAYS}


def check_target(folder: str | Path) -> None:
    """Say before a long run that its trace could not be saved as ``folder``."""
    folder = Path(folder)
    if folder.is_symlink() or (folder.exists() and not _is_replaceable(folder)):
        raise TraceError(f"cannot save to '{folder}'", "something that is no trace is there", "Name another folder")


def save_trace(trace: Trace, folder: str | Path) -> Path:
    """Write ``trace`` as ``folder`` (replaced when it holds a trace already); returns the folder."""
    from safetensors.numpy import save_file

    folder = Path(folder)
    check_target(folder)
    store = Store()
    text = "\n".join(_lines(document(trace, store))) + "\n"
    if len(text) > MAX_JSON:
        raise TraceError(
            f"the trace for '{folder}' has {len(trace.calls)} calls",
            "which is more than a file can hold",
            "Record fewer",
        )
    try:
        with new_folder(folder, may_replace=_is_replaceable) as temporary:
            save_file(store.arrays, temporary / _ARRAYS)
            (temporary / _JSON).write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise TraceError(
            f"cannot save to '{folder}'", error.strerror or str(error), "Nothing was left behind"
        ) from None
    except Exception as error:
        if type(error).__name__ != "SafetensorError":  # what its writer raises when the disk is full
            raise
        raise TraceError(f"cannot save to '{folder}'", str(error), "Nothing was left behind") from None
    return folder


# ---------------------------------------------------------------------------------------------------- loading
def is_trace(folder: str | Path) -> bool:
    """Whether ``folder`` looks like a recorded trace."""
    return (Path(folder) / _JSON).is_file()


def load_trace(folder: str | Path) -> Trace:
    """Read a trace back; :class:`TraceError` says what is wrong with a damaged or hostile one."""
    folder = Path(folder)
    if not folder.is_dir():
        raise TraceError(f"'{folder}' is no recorded trace", "a trace is a folder", "Make one with `ambidex record`")
    from ambidex.core.traceread import read

    return read(folder / _JSON, folder / _ARRAYS)
