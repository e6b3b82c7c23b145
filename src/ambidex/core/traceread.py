"""Reading a recorded trace: the shape ``trace.json`` must have, and the pieces put together again."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ambidex.core.arrayfile import Damaged, parse_json, read_arrays, regular_size
from ambidex.core.trace import Trace
from ambidex.core.tracedoc import FORMAT, MAX_JSON
from ambidex.core.types import Array, Call, Layer, Source
from ambidex.errors import TraceError

_RECORD_AGAIN = "Record it again with `ambidex record`"
_NAMES = ("trace.json", "arrays.safetensors")


# ---------------------------------------------------------------------------------------------------- file shape
class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


_Name = Annotated[str, Field(pattern=r"^a[0-9]{1,9}$")]
# JSON has lists only, so for the pairs alone the strict rule of Part is lifted
_Pair = Annotated[tuple[str, _Name], Field(strict=False)]
Named = list[_Pair]
OriginPart = Annotated[tuple[Literal["call", "input", "weight", "const"], int | str, int], Field(strict=False)]


class ArrayPart(Part):
    """``was``: the numpy type before storing, when it is another one."""

    dtype: str
    shape: list[int]
    was: str | None = None


class SourcePart(Part):
    file: str
    line: int
    text: str


class LayerPart(Part):
    path: str
    op: str
    attrs: dict[str, Any]
    weights: list[Annotated[tuple[str, str], Field(strict=False)]]
    cls: str
    layout: str
    source: SourcePart | None
    functional: bool
    trainable: bool


class CallPart(Part):
    key: str
    layer: int
    index: int
    names: list[str]
    origins: list[OriginPart]
    received: list[_Name]
    inputs: list[_Name]
    computed: list[_Name]
    outputs: list[_Name]
    exact: list[_Name] | None
    scope: str


class Document(Part):
    """``layer_table`` holds every layer once; ``layers`` and the calls point into it."""

    format: Literal[1]
    framework: str
    versions: dict[str, str]
    inputs: Named
    outputs: Named
    output_origins: list[Annotated[tuple[str, OriginPart], Field(strict=False)]]
    layer_table: list[LayerPart]
    layers: list[int]
    calls: list[CallPart]
    weights: Named
    layer_weights: list[Annotated[tuple[str, Named], Field(strict=False)]]
    updates: Named
    masks: Named
    meta: dict[str, Any]
    arrays: dict[_Name, ArrayPart]


# ---------------------------------------------------------------------------------------------------- reading
def read(description: Path, arrays: Path) -> Trace:
    """See :func:`ambidex.core.tracefile.load_trace`."""
    document = _guarded(description, _read_document)
    values = _guarded(arrays, read_arrays)
    try:
        return Reader(document, values).trace()
    except Damaged as error:
        raise TraceError(f"the trace '{description.parent}' is damaged", str(error), _RECORD_AGAIN) from None


def _guarded(path: Path, read: Callable[[Path], Any]) -> Any:
    try:
        return read(path)
    except Damaged as error:
        raise TraceError(f"cannot read '{path}'", str(error), _RECORD_AGAIN) from None
    except OSError as error:
        raise TraceError(f"cannot read '{path}'", error.strerror or str(error)) from None


def _read_document(path: Path) -> Document:
    size = regular_size(path)
    if size > MAX_JSON:
        raise Damaged(f"it has {size} bytes and a trace's description at most {MAX_JSON}")
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


class Reader:
    """Puts a checked document and its arrays together again."""

    def __init__(self, file: Document, arrays: dict[str, Array]) -> None:
        self.file, self.arrays = file, {}
        if set(arrays) != set(file.arrays):
            odd = sorted(set(arrays) ^ set(file.arrays))[0]
            holder, other = _NAMES if odd in file.arrays else _NAMES[::-1]
            raise Damaged(f"array {odd[:60]!r} stands in {holder} and not in {other}")
        for name, array in arrays.items():
            self.arrays[name] = self._checked(name, array, file.arrays[name])

    @staticmethod
    def _checked(name: str, array: Array, entry: ArrayPart) -> Array:
        if str(array.dtype) != entry.dtype or list(array.shape) != entry.shape:
            raise Damaged(
                f"array {name!r} is {array.dtype}{list(array.shape)}"
                f" and trace.json says {entry.dtype[:20]}{entry.shape[:32]}"
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
