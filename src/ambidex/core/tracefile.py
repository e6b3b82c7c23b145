"""A trace on disk: a folder with ``trace.json`` (readable, no arrays) and ``arrays.safetensors``. Never pickle.

``save_trace`` is atomic: the folder is there wholly or as it was before, also after Ctrl-C. Equal arrays are stored
once. Types without a numpy equivalent in the format (bfloat16, the 8-bit floats) are stored as float32, which holds
them exactly, and come back as float32; complex numbers are stored as pairs. Tuples come back as lists. ``load_trace``
believes nothing: see the :class:`~ambidex.errors.TraceError` sentences.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ambidex.core.arrayfile import Damaged, parse_json, read_arrays, regular_size
from ambidex.core.files import new_folder
from ambidex.core.trace import Trace
from ambidex.core.tracedoc import FORMAT, ArrayPart, CallPart, Document, LayerPart, Named, Store, document
from ambidex.core.types import Array, Call, Layer, Source
from ambidex.errors import TraceError

_JSON, _ARRAYS = "trace.json", "arrays.safetensors"
_MAX_JSON = 64_000_000
_RECORD_AGAIN = "Record it again with `ambidex record`"


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
    if len(text) > _MAX_JSON:
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
    file = _guarded(folder / _JSON, _read_document)
    arrays = _guarded(folder / _ARRAYS, read_arrays)
    try:
        return _Reader(file, arrays).trace()
    except Damaged as error:
        raise TraceError(f"the trace '{folder}' is damaged", str(error), _RECORD_AGAIN) from None


def _guarded(path: Path, read: Callable[[Path], Any]) -> Any:
    try:
        return read(path)
    except Damaged as error:
        raise TraceError(f"cannot read '{path}'", str(error), _RECORD_AGAIN) from None
    except OSError as error:
        raise TraceError(f"cannot read '{path}'", error.strerror or str(error)) from None


def _read_document(path: Path) -> Document:
    size = regular_size(path)
    if size > _MAX_JSON:
        raise Damaged(f"it has {size} bytes and a trace's description at most {_MAX_JSON}")
    try:
        text = path.read_bytes().decode("utf-8", errors="surrogatepass")
    except UnicodeDecodeError:
        raise Damaged("it is no UTF-8 text") from None
    content = parse_json(text)
    if not isinstance(content, dict) or "format" not in content:
        raise Damaged("it states no format, so it is no trace")
    if content["format"] != FORMAT or type(content["format"]) is not int:
        raise Damaged(f"its format is {str(content['format'])[:40]!r} and this version of ambidex reads {FORMAT}")
    try:
        return Document.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])[:200]
        raise Damaged(f"{where}: {first['msg']}") from None


class _Reader:
    """Puts a checked document and its arrays together again."""

    def __init__(self, file: Document, arrays: dict[str, Array]) -> None:
        self.file, self.arrays = file, {}
        if set(arrays) != set(file.arrays):
            odd = sorted(set(arrays) ^ set(file.arrays))[0]
            holder, other = (_JSON, _ARRAYS) if odd in file.arrays else (_ARRAYS, _JSON)
            raise Damaged(f"array {odd[:60]!r} stands in {holder} and not in {other}")
        for name, array in arrays.items():
            self.arrays[name] = self._checked(name, array, file.arrays[name])

    @staticmethod
    def _checked(name: str, array: Array, entry: ArrayPart) -> Array:
        if str(array.dtype) != entry.dtype or list(array.shape) != entry.shape:
            raise Damaged(
                f"array {name!r} is {array.dtype}{list(array.shape)}"
                f" and {_JSON} says {entry.dtype[:20]}{entry.shape[:32]}"
            )
        if entry.was in ("complex64", "complex128"):
            if array.ndim == 0 or array.shape[-1] != 2 or array.dtype.kind != "f" or array.dtype.itemsize < 4:
                raise Damaged(f"array {name!r} holds no complex numbers")
            return array.view(f"complex{16 * array.dtype.itemsize}")[..., 0]
        if entry.was is not None and not re.fullmatch(r"bfloat16|float[48]\w{0,20}|[<>][a-z][0-9]+", entry.was):
            raise Damaged(f"array {name!r} was of the unknown type {entry.was[:40]!r}")
        return array

    def array(self, name: str) -> Array:
        if name not in self.arrays:
            raise Damaged(f"array {name!r} is used and not there")
        return self.arrays[name]

    def named(self, pairs: Named, what: str) -> dict[str, Array]:
        return self._once([(key, self.array(name)) for key, name in pairs], what)

    @staticmethod
    def _once(pairs: list[tuple[str, Any]], what: str) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            names = [key for key, _ in pairs]
            raise Damaged(f"{next(n for n in names if names.count(n) > 1)!r} stands twice among the {what}")
        return result

    def plain(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.plain(item) for item in value]
        if not isinstance(value, dict):
            return value
        if not any(key.startswith("$") for key in value):
            return {key: self.plain(item) for key, item in value.items()}
        ((kind, content),) = value.items() if len(value) == 1 else (("", None),)
        if kind == "$float" and content in ("inf", "-inf", "nan"):
            return float(content)
        if kind == "$array" and isinstance(content, str):
            return self.array(content)
        if kind == "$dict" and isinstance(content, list) and all(isinstance(p, list) and len(p) == 2 for p in content):
            try:
                return {self.key(key): self.plain(item) for key, item in content}
            except TypeError:
                pass
        raise Damaged(f"an attribute holds an object that nothing writes, with the key {next(iter(value))[:40]!r}")

    def key(self, value: Any) -> Any:
        """Dictionary keys were tuples when they come as lists."""
        value = self.plain(value)
        return tuple(value) if isinstance(value, list) else value

    def layer(self, part: LayerPart) -> Layer:
        source = part.source
        return Layer(
            path=part.path,
            op=part.op,
            attrs={key: self.plain(value) for key, value in part.attrs.items()},
            weights=self._once(part.weights, f"weights of layer {part.path[:80]!r}"),
            cls=part.cls,
            layout=part.layout,
            source=None if source is None else Source(source.file, source.line, source.text),
            functional=part.functional,
            trainable=part.trainable,
        )

    def call(self, part: CallPart, layers: list[Layer]) -> Call:
        return Call(
            key=part.key,
            layer=self.pick(layers, part.layer),
            index=part.index,
            names=part.names,
            origins=list(part.origins),
            received=[self.array(name) for name in part.received],
            inputs=[self.array(name) for name in part.inputs],
            computed=[self.array(name) for name in part.computed],
            outputs=[self.array(name) for name in part.outputs],
            exact=None if part.exact is None else [self.array(name) for name in part.exact],
            scope=part.scope,
        )

    @staticmethod
    def pick(layers: list[Layer], number: int) -> Layer:
        if not 0 <= number < len(layers):
            raise Damaged(f"layer number {number} is used and there are {len(layers)}")
        return layers[number]

    def trace(self) -> Trace:
        file = self.file
        layers = [self.layer(part) for part in file.layer_table]
        return Trace(
            framework=file.framework,
            versions=file.versions,
            inputs=self.named(file.inputs, "inputs"),
            outputs=self.named(file.outputs, "outputs"),
            output_origins=self._once(file.output_origins, "output origins"),
            calls=[self.call(part, layers) for part in file.calls],
            layers=[self.pick(layers, number) for number in file.layers],
            weights=self.named(file.weights, "weights"),
            layer_weights=self._once(
                [(path, self.named(roles, f"roles of {path!r}")) for path, roles in file.layer_weights], "layers"
            ),
            updates=self.named(file.updates, "updates"),
            masks=self.named(file.masks, "masks"),
            meta={key: self.plain(value) for key, value in file.meta.items()},
        )
