"""Reading safetensors files that may be damaged or hostile: every number is checked before it is believed."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np

from ambidex.core.types import Array

#: what ambidex writes and reads; bfloat16 and the 8-bit floats have no numpy type
DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "F16": "float16",
    "U32": "uint32",
    "I32": "int32",
    "F32": "float32",
    "U64": "uint64",
    "I64": "int64",
    "F64": "float64",
}

#: a million arrays would not need more; the JSON reader takes many times this in memory
_MAX_HEADER = 32_000_000


class Damaged(ValueError):
    """What is wrong with a file; callers turn it into their own error with the file's name."""


def refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """``object_pairs_hook`` of json: the standard reader silently keeps the last of two equal keys."""
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise Damaged(f"the key {twice!r} stands twice in one object")
    return result


def _refuse_constant(text: str) -> Any:
    raise Damaged(f"{text} is no JSON number")


def parse_json(text: str | bytes) -> Any:
    """JSON with what the standard reader lets through refused (duplicate keys, NaN, nesting without end)."""
    try:
        return json.loads(text, object_pairs_hook=refuse_duplicates, parse_constant=_refuse_constant)
    except RecursionError:
        raise Damaged("it is nested too deeply") from None
    except Damaged:
        raise
    except ValueError as error:  # bad JSON, bad UTF-8, a number of thousands of digits
        raise Damaged(f"it is no valid JSON ({error})") from None


def regular_size(path: Path) -> int:
    """Size of a regular file; a device or a pipe would block or never end."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        raise Damaged("the file is missing") from None
    except OSError as error:
        raise Damaged(f"the file cannot be read ({error.strerror})") from None
    if not stat.S_ISREG(status.st_mode):
        raise Damaged("it is no regular file")
    return status.st_size


def _entry(name: str, value: Any, end: int) -> tuple[int, int, np.dtype[Any], tuple[int, ...]]:
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise Damaged(f"array {name!r} must have dtype, shape and data_offsets and nothing else")
    if not isinstance(value["dtype"], str) or value["dtype"] not in DTYPES:
        raise Damaged(f"array {name!r} has the type {str(value['dtype'])[:40]!r}, which is none of {', '.join(DTYPES)}")
    dtype = np.dtype(DTYPES[value["dtype"]])
    shape, offsets = value["shape"], value["data_offsets"]
    if not isinstance(shape, list) or len(shape) > 32 or any(type(n) is not int or not 0 <= n < 2**48 for n in shape):
        raise Damaged(f"array {name!r} has a shape that is no list of sizes")
    if not isinstance(offsets, list) or len(offsets) != 2 or any(type(n) is not int for n in offsets):
        raise Damaged(f"array {name!r} has data_offsets that are no pair of numbers")
    begin, stop = offsets
    if not 0 <= begin <= stop <= end:
        raise Damaged(f"array {name!r} lies at {begin}..{stop}, outside of the file's {end} bytes of data")
    size = dtype.itemsize
    for n in shape:
        size *= n
    if size != stop - begin:
        raise Damaged(f"array {name!r} of shape {shape} needs {size} bytes and has {stop - begin}")
    return begin, stop, dtype, tuple(shape)


def read_arrays(path: str | Path) -> dict[str, Array]:
    """All arrays of a safetensors file, each in memory of its own. :class:`Damaged` says what is wrong with it."""
    path = Path(path)
    size = regular_size(path)
    if size < 8:
        raise Damaged(f"it is cut short: {size} bytes")
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > min(_MAX_HEADER, size - 8):
            raise Damaged(f"its header claims {length} bytes and the file has {size}")
        header = parse_json(file.read(length))
        if not isinstance(header, dict):
            raise Damaged("its header is no object")
        header.pop("__metadata__", None)
        end = size - 8 - length
        entries = sorted((*_entry(name, value, end), name) for name, value in header.items()) if header else []
        at = 0
        arrays: dict[str, Array] = {}
        for begin, stop, dtype, shape, name in entries:
            if begin != at:
                raise Damaged(f"array {name!r} overlaps another one or leaves a gap")
            data = np.fromfile(file, dtype=dtype.newbyteorder("<"), count=(stop - begin) // dtype.itemsize)
            if data.nbytes != stop - begin:
                raise Damaged(f"array {name!r} is cut short")
            try:
                arrays[name] = data.reshape(shape).astype(dtype, copy=False)
            except ValueError:  # an empty array may claim sizes that numpy cannot hold
                raise Damaged(f"array {name!r} has the impossible shape {list(shape)}") from None
            at = stop
        if at != end:
            raise Damaged(f"{end - at} bytes after the last array belong to nothing")
    return {name: arrays[name] for name in header}
