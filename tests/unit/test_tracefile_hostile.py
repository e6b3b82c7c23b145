"""Damaged and hostile trace files are refused in one sentence, and nothing in them is believed."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.trace_samples import small

from ambidex.core.tracefile import load_trace, save_trace
from ambidex.errors import TraceError


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return save_trace(small(), tmp_path / "trace")


def edit(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        content = json.loads((folder / "trace.json").read_text())
        change(content)
        (folder / "trace.json").write_text(json.dumps(content))

    return apply


def header(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        raw = (folder / "arrays.safetensors").read_bytes()
        length = struct.unpack("<Q", raw[:8])[0]
        content = json.loads(raw[8 : 8 + length])
        change(content)
        new = json.dumps(content).encode()
        (folder / "arrays.safetensors").write_bytes(struct.pack("<Q", len(new)) + new + raw[8 + length :])

    return apply


def text_of(new: str | bytes, name: str = "trace.json") -> Callable[[Path], Any]:
    return lambda folder: (folder / name).write_bytes(new if isinstance(new, bytes) else new.encode())


def cut(folder: Path) -> None:
    raw = (folder / "arrays.safetensors").read_bytes()
    (folder / "arrays.safetensors").write_bytes(raw[:-5])


def longer(folder: Path) -> None:
    with (folder / "arrays.safetensors").open("ab") as file:
        file.write(b"12345")


def replaced(old: str, new: str) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        content = (folder / "trace.json").read_text()
        assert old in content
        (folder / "trace.json").write_text(content.replace(old, new, 1))

    return apply


def giant(folder: Path) -> None:
    with (folder / "trace.json").open("wb") as file:
        file.truncate(10**10)


def pipe(folder: Path) -> None:
    (folder / "trace.json").unlink()
    os.mkfifo(folder / "trace.json")


HOSTILE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no description": (lambda f: (f / "trace.json").unlink(), "trace.json.*missing"),
    "no arrays": (lambda f: (f / "arrays.safetensors").unlink(), "arrays.safetensors.*missing"),
    "a pipe": (pipe, "no regular file"),
    "empty": (text_of(""), "no valid JSON"),
    "no JSON": (text_of("import os"), "no valid JSON"),
    "no UTF-8": (text_of(b'{"\xff\xfe": 1}'), "no UTF-8"),
    "a list": (text_of("[1]"), "states no format"),
    "pickle": (text_of(b"\x80\x04\x95"), "no UTF-8"),
    "nested without end": (text_of("[" * 100_000), "nested too deeply"),
    "nested objects without end": (text_of('{"a":' * 100_000), "nested too deeply"),
    "a number without end": (text_of('{"format": ' + "9" * 10_000 + "}"), "no valid JSON"),
    "giant description": (giant, "at most"),
    "NaN": (text_of('{"format": NaN}'), "NaN is no JSON number"),
    "duplicated key": (text_of('{"format": 1, "format": 1}'), "'format' stands twice"),
    "no format": (edit(lambda c: c.pop("format")), "states no format"),
    "unknown format": (edit(lambda c: c.update(format=2)), "its format is '2' and this version of ambidex reads 1"),
    "format as text": (edit(lambda c: c.update(format="1")), "its format is '1'"),
    "format true": (edit(lambda c: c.update(format=True)), "its format is 'True'"),
    "unknown field": (edit(lambda c: c.update(extra=1)), "extra"),
    "missing field": (edit(lambda c: c.pop("calls")), "calls"),
    "number for text": (edit(lambda c: c.update(framework=1)), "framework"),
    "text for number": (edit(lambda c: c["calls"][0].update(index="0")), "calls.0.index"),
    "unknown origin": (edit(lambda c: c["calls"][0].update(origins=[["os.system", "", 0]])), "calls.0.origins"),
    "layer out of range": (edit(lambda c: c["calls"][0].update(layer=7)), "layer number 7"),
    "negative layer": (edit(lambda c: c["calls"][0].update(layer=-1)), "layer number -1"),
    "path as array name": (edit(lambda c: c["calls"][0].update(inputs=["../../etc/passwd"])), "calls.0.inputs"),
    "path in the table": (edit(lambda c: c["arrays"].update({"../x": {"dtype": "bool", "shape": [1]}})), "arrays"),
    "missing array": (edit(lambda c: c["calls"][0].update(inputs=["a99"])), "array 'a99' is used and not there"),
    "array in one file only": (edit(lambda c: c["arrays"].pop("a2")), "'a2' stands in arrays.safetensors and not in"),
    "other shape": (edit(lambda c: c["arrays"]["a0"].update(shape=[3, 2])), r"array 'a0' is float32\[2, 3\]"),
    "other type": (edit(lambda c: c["arrays"]["a0"].update(dtype="int32")), "array 'a0' is float32"),
    "negative size": (edit(lambda c: c["arrays"]["a0"].update(shape=[-2, -3])), "array 'a0' is float32"),
    "size as float": (edit(lambda c: c["arrays"]["a0"].update(shape=[2.0, 3])), "arrays.a0.shape"),
    "infinite size": (replaced('"shape": [2, 3]', '"shape": [1e999, 3]'), "arrays.a0.shape"),
    "unknown old type": (edit(lambda c: c["arrays"]["a0"].update(was="object")), "unknown type 'object'"),
    "false complex": (edit(lambda c: c["arrays"]["a0"].update(was="complex128")), "holds no complex numbers"),
    "duplicated input": (edit(lambda c: c["inputs"].append(c["inputs"][0])), "'0' stands twice among the inputs"),
    "unknown object": (
        edit(lambda c: c["layer_table"][0]["attrs"].update(x={"$code": "1"})),
        r"nothing writes.*\$code",
    ),
    "odd object": (edit(lambda c: c["layer_table"][0]["attrs"].update(x={"$dict": [[1]]})), "nothing writes"),
    "unhashable key": (edit(lambda c: c["layer_table"][0]["attrs"].update(x={"$dict": [[[[]], 1]]})), "nothing writes"),
    "two words": (edit(lambda c: c["meta"].update(x={"$float": "inf", "y": 1})), "nothing writes"),
    "odd float": (edit(lambda c: c["meta"].update(x={"$float": "1e5"})), "nothing writes"),
    "cut short": (cut, "outside of the file"),
    "almost nothing": (text_of(b"\x01", "arrays.safetensors"), "cut short: 1 bytes"),
    "giant header": (
        text_of(struct.pack("<Q", 2**62) + b"{}", "arrays.safetensors"),
        "header claims 4611686018427387904",
    ),
    "header is a list": (text_of(struct.pack("<Q", 2) + b"[]", "arrays.safetensors"), "header is no object"),
    "header is no JSON": (text_of(struct.pack("<Q", 2) + b"{,", "arrays.safetensors"), "no valid JSON"),
    "duplicate in the header": (
        text_of(struct.pack("<Q", 16) + b'{"a":1,  "a":2 }', "arrays.safetensors"),
        "'a' stands twice",
    ),
    "bytes left over": (longer, "5 bytes after the last array"),
    "header: unknown type": (header(lambda h: h["a0"].update(dtype="F8_E4M3")), "'F8_E4M3', which is none of"),
    "header: type as list": (header(lambda h: h["a0"].update(dtype=[])), "which is none of"),
    "header: negative size": (header(lambda h: h["a0"].update(shape=[-2, -3])), "no list of sizes"),
    "header: giant size": (header(lambda h: h["a0"].update(shape=[2**60, 2**60])), "no list of sizes"),
    "header: impossible empty": (
        header(lambda h: h["a0"].update(shape=[0] + [2**40] * 4, data_offsets=[0, 0])),
        "impossible shape|gap",
    ),
    "header: size too large": (header(lambda h: h["a0"].update(shape=[2, 4])), "needs 32 bytes and has 24"),
    "header: out of the file": (header(lambda h: h["a0"].update(data_offsets=[0, 10**12])), "outside of the file"),
    "header: backwards": (header(lambda h: h["a0"].update(data_offsets=[24, 0])), "outside of the file"),
    "header: offsets as text": (header(lambda h: h["a0"].update(data_offsets=["0", "24"])), "no pair of numbers"),
    "header: overlap": (header(lambda h: h["a1"].update(data_offsets=h["a0"]["data_offsets"])), "overlaps"),
    "header: no object": (header(lambda h: h.update(a0=7)), "must have dtype, shape and data_offsets"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_told_in_one_sentence(saved: Path, name: str) -> None:
    change, words = HOSTILE[name]
    change(saved)
    with pytest.raises(TraceError, match=words) as caught:
        load_trace(saved)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 800


@given(st.data())
def test_any_changed_byte_loads_or_is_a_trace_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = save_trace(small(), tmp_path_factory.mktemp("t") / "trace")
    file = folder / data.draw(st.sampled_from(["trace.json", "arrays.safetensors"]))
    raw = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    file.write_bytes(raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw)
    try:
        load_trace(folder)
    except TraceError:
        pass
