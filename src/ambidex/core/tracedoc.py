"""What stands in ``trace.json``: a trace put into plain data. (``traceread`` holds the shape that reading checks.)"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ambidex.core.arrayfile import DTYPES
from ambidex.core.trace import Trace
from ambidex.core.types import Array, Call, Layer, Origin
from ambidex.errors import TraceError

FORMAT = 1
#: bytes; the JSON reader takes many times this in memory
MAX_JSON = 64_000_000


class Store:
    """The arrays of a file; equal ones share a name."""

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}
        self.table: dict[str, dict[str, Any]] = {}
        self._by_id: dict[int, tuple[Array, str]] = {}  # holds the array, so that its id is not given away
        self._by_content: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def add(self, array: Any, where: str) -> str:
        if not isinstance(array, np.ndarray):
            raise TraceError(f"cannot save {where}", f"it is a {type(array).__name__} and no numpy array")
        known = self._by_id.get(id(array))
        if known is not None:
            return known[1]
        stored = _storable(array, where)
        was = str(array.dtype)
        key = (was, array.shape, hashlib.blake2b(stored.reshape(-1).view("uint8").data).digest())
        name = self._by_content.get(key)
        if name is None:
            name = self._by_content[key] = f"a{len(self.arrays)}"
            self.arrays[name] = stored
            self.table[name] = {"dtype": str(stored.dtype), "shape": list(stored.shape)}
            if was != str(stored.dtype):
                self.table[name]["was"] = was
        self._by_id[id(array)] = (array, name)
        return name

    def named(self, arrays: Mapping[str, Array], where: str) -> list[list[str]]:
        return [[name, self.add(array, f"{where} {name!r}")] for name, array in arrays.items()]


def _storable(array: Array, where: str) -> Array:
    dtype = array.dtype
    if dtype.kind == "c":
        parts = "float32" if dtype.itemsize == 8 else "float64"
        if dtype.itemsize not in (8, 16):
            raise TraceError(f"cannot save {where}", f"its type {dtype} has no portable form")
        return np.ascontiguousarray(array).reshape(*array.shape, 1).view(parts).astype(parts)
    native = dtype.newbyteorder("=")
    if str(native) in DTYPES.values():
        return np.array(array, dtype=native, order="C", copy=None)
    if str(dtype) == "bfloat16" or str(dtype).startswith("float8") or str(dtype).startswith("float4"):
        return np.array(array, dtype="float32", order="C")
    raise TraceError(f"cannot save {where}", f"its type {dtype} is no number")


def _plain(value: Any, where: str, store: Store) -> Any:
    """Attribute and meta values as JSON; what JSON lacks is written as an object with one ``$`` key."""
    if value is None or isinstance(value, bool | str) and type(value) in (bool, str):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        number = float(value)
        return number if math.isfinite(number) else {"$float": str(number)}
    if isinstance(value, str):
        return str(value)
    if isinstance(value, np.ndarray):
        return {"$array": store.add(value, where)}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{n}]", store) for n, item in enumerate(value)]
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {str(key): _plain(item, f"{where}[{key!r}]", store) for key, item in value.items()}
        pairs = [(_plain(k, f"a key of {where}", store), _plain(v, f"{where}[{k!r}]", store)) for k, v in value.items()]
        return {"$dict": pairs}
    raise TraceError(f"cannot save {where}", f"a {type(value).__name__} is no number, text, list or dictionary")


def _layer_part(layer: Layer, store: Store) -> dict[str, Any]:
    source = layer.source
    return {
        "path": layer.path,
        "op": layer.op,
        "attrs": {
            key: _plain(value, f"attribute {key!r} of layer {layer.path!r}", store)
            for key, value in layer.attrs.items()
        },
        "weights": list(layer.weights.items()),
        "cls": layer.cls,
        "layout": layer.layout,
        "source": None if source is None else {"file": source.file, "line": source.line, "text": source.text},
        "functional": layer.functional,
        "trainable": layer.trainable,
    }


def _call_part(call: Call, layer: int, store: Store) -> dict[str, Any]:
    def arrays(kind: str, values: Sequence[Array]) -> list[str]:
        return [store.add(value, f"{kind} {n} of call {call.key!r}") for n, value in enumerate(values)]

    return {
        "key": call.key,
        "layer": layer,
        "index": call.index,
        "names": list(call.names),
        "origins": [_origin(origin) for origin in call.origins],
        "received": arrays("received", call.received),
        "inputs": arrays("input", call.inputs),
        "computed": arrays("computed", call.computed),
        "outputs": arrays("output", call.outputs),
        "exact": None if call.exact is None else arrays("exact", call.exact),
        "scope": call.scope,
    }


def _origin(origin: Origin) -> list[Any]:
    kind, at, number = origin
    return [kind, at if isinstance(at, str) else int(at), int(number)]


def document(trace: Trace, store: Store) -> dict[str, Any]:
    table: list[dict[str, Any]] = []
    number_of: dict[int, int] = {}

    def number(layer: Layer) -> int:
        if id(layer) not in number_of:
            number_of[id(layer)] = len(table)
            table.append(_layer_part(layer, store))
        return number_of[id(layer)]

    return {
        "format": FORMAT,
        "framework": trace.framework,
        "versions": dict(trace.versions),
        "inputs": store.named(trace.inputs, "input"),
        "outputs": store.named(trace.outputs, "output"),
        "output_origins": [[name, _origin(origin)] for name, origin in trace.output_origins.items()],
        "layers": [number(layer) for layer in trace.layers],
        "calls": [_call_part(call, number(call.layer), store) for call in trace.calls],
        "layer_table": table,
        "weights": store.named(trace.weights, "weight"),
        "layer_weights": [
            [path, store.named(roles, f"weights of layer {path!r}, role")]
            for path, roles in trace.layer_weights.items()
        ],
        "updates": store.named(trace.updates, "updated weight"),
        "masks": store.named(trace.masks, "mask"),
        "meta": {str(key): _plain(value, f"meta {key!r}", store) for key, value in trace.meta.items()},
        "arrays": store.table,
    }
