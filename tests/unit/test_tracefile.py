"""Traces come back as they were, nothing half-written stays behind, and damaged or hostile files are told so."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.unit.trace_samples import small

from ambidex.core import tracefile
from ambidex.core.trace import Trace
from ambidex.core.tracefile import load_trace, save_trace
from ambidex.core.types import Call, Layer, Source
from ambidex.errors import TraceError


def same(a: Any, b: Any) -> bool:
    """Deep equality with types, arrays bit by bit, NaN equal to NaN, tuples equal to lists, keys in order."""
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, list | tuple):
        return isinstance(b, list | tuple) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and set(a) == set(b) and all(same(a[k], b[k]) for k in a)
    if hasattr(a, "__dataclass_fields__"):
        return type(a) is type(b) and all(same(getattr(a, f), getattr(b, f)) for f in a.__dataclass_fields__)
    return type(a) is type(b) and a == b


arrays = hnp.arrays(
    dtype=st.sampled_from(
        ["bool", "int8", "uint16", "int64", "float16", "float32", "float64", "complex64", "complex128"]
    ),
    shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
text = st.text(max_size=12)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3) | st.tuples(inner),
    max_leaves=8,
)
sources = st.none() | st.builds(Source, file=text, line=st.integers(0, 10**6), text=text)
layers = st.builds(
    Layer,
    path=text,
    op=text,
    attrs=st.dictionaries(text, plain, max_size=4),
    weights=st.dictionaries(text, text, max_size=3),
    cls=text,
    layout=text,
    source=sources,
    functional=st.booleans(),
    trainable=st.booleans(),
)
origins = (
    st.tuples(st.just("call"), st.integers(0, 99), st.integers(0, 9))
    | st.tuples(st.just("input"), text, st.just(0))
    | st.tuples(st.just("weight"), text, st.just(0))
    | st.just(("const", "", 0))
)
some = st.lists(arrays, max_size=2)
named = st.dictionaries(text, arrays, max_size=3)
calls = st.builds(
    Call,
    key=text,
    layer=layers,
    index=st.integers(0, 99),
    names=st.lists(text, max_size=2),
    origins=st.lists(origins, max_size=2),
    received=some,
    inputs=some,
    computed=some,
    outputs=some,
    exact=st.none() | some,
    scope=text,
)
traces = st.builds(
    Trace,
    framework=text,
    versions=st.dictionaries(text, text, max_size=2),
    inputs=named,
    outputs=named,
    output_origins=st.dictionaries(text, origins, max_size=2),
    calls=st.lists(calls, max_size=3),
    layers=st.lists(layers, max_size=2),
    weights=named,
    layer_weights=st.dictionaries(text, named, max_size=2),
    updates=named,
    masks=named,
    meta=st.dictionaries(text, plain | arrays, max_size=3),
)


@settings(max_examples=20)
@given(traces)
def test_every_field_comes_back_exactly(tmp_path_factory: pytest.TempPathFactory, trace: Trace) -> None:
    folder = tmp_path_factory.mktemp("t") / "trace"
    save_trace(trace, folder)
    back = load_trace(folder)
    assert same(trace, back)
    assert [list(d) for d in (trace.inputs, trace.outputs, trace.weights)] == [
        list(d) for d in (back.inputs, back.outputs, back.weights)
    ]
    for origin in (o for call in back.calls for o in call.origins):
        assert isinstance(origin, tuple)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return save_trace(small(), tmp_path / "trace")


def test_equal_arrays_are_stored_once(saved: Path) -> None:
    assert list(json.loads((saved / "trace.json").read_text())["arrays"]) == ["a0", "a1", "a2"]


def test_a_layer_shared_by_calls_stays_one_object(tmp_path: Path) -> None:
    trace = small()
    back = load_trace(save_trace(trace, tmp_path / "trace"))
    assert back.calls[0].layer is back.layers[0]


def test_the_description_is_sorted_and_readable(saved: Path) -> None:
    lines = (saved / "trace.json").read_text().splitlines()
    keys = [line.strip().split('"')[1] for line in lines if line.startswith(' "')]
    assert keys == sorted(keys) and max(map(len, lines)) < 600


def test_bfloat16_comes_back_as_float32_with_equal_values(tmp_path: Path) -> None:
    x = np.array([1.5, -3.0], dtype=ml_dtypes.bfloat16)
    back = load_trace(save_trace(Trace("keras", outputs={"0": x}), tmp_path / "trace"))
    assert back.outputs["0"].dtype == np.float32 and back.outputs["0"].tolist() == [1.5, -3.0]


def test_big_endian_and_strided_arrays_keep_their_values(tmp_path: Path) -> None:
    x = np.arange(6, dtype=">f4").reshape(2, 3)
    back = load_trace(save_trace(Trace("torch", outputs={"a": x, "b": x.T[::-1]}), tmp_path / "trace"))
    assert np.array_equal(back.outputs["a"], x) and np.array_equal(back.outputs["b"], x.T[::-1])


def test_text_that_is_no_unicode_comes_back(tmp_path: Path) -> None:
    name = b"m\xff.py".decode("utf-8", "surrogateescape")
    back = load_trace(save_trace(Trace("torch", layers=[Layer("a", "", source=Source(name, 1))]), tmp_path / "trace"))
    assert back.layers[0].source == Source(name, 1)


@pytest.mark.parametrize(
    "trace, words",
    [
        (Trace("t", outputs={"0": np.array(["a"])}), "output '0'.*<U1 is no number"),
        (Trace("t", outputs={"0": [1]}), "it is a list and no numpy array"),  # type: ignore[dict-item]
        (Trace("t", meta={"f": object()}), "meta 'f'.*a object is no number"),
        (Trace("t", layers=[Layer("p", "", {"k": {1}})]), "attribute 'k' of layer 'p'"),
    ],
)
def test_what_cannot_be_saved_is_named_and_leaves_nothing(tmp_path: Path, trace: Trace, words: str) -> None:
    with pytest.raises(TraceError, match=words):
        save_trace(trace, tmp_path / "trace")
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------------------------------------- atomic
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device"), MemoryError])
@pytest.mark.parametrize("there", [False, True])
def test_a_write_that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Any, there: bool
) -> None:
    folder = tmp_path / "trace"
    if there:
        save_trace(small(), folder)
    before = {p.name: p.read_bytes() for p in folder.iterdir()} if there else None

    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises((KeyboardInterrupt, TraceError, MemoryError)):
        save_trace(Trace("other"), folder)
    assert [p.name for p in tmp_path.iterdir()] == (["trace"] if there else [])
    if before is not None:
        assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


def test_an_exchange_that_fails_half_way_brings_the_old_trace_back(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, done = os.rename, []

    def second_fails(a: Any, b: Any) -> None:
        done.append(a)
        if len(done) == 2:
            raise OSError(5, "Input/output error")
        rename(a, b)

    monkeypatch.setattr(os, "rename", second_fails)
    with pytest.raises(TraceError, match="Input/output error"):
        save_trace(Trace("other"), saved)
    monkeypatch.undo()
    assert load_trace(saved).framework == "torch" and [p.name for p in saved.parent.iterdir()] == ["trace"]


def test_a_trace_is_replaced_and_foreign_folders_are_not(saved: Path, tmp_path: Path) -> None:
    save_trace(Trace("other"), saved)
    assert load_trace(saved).framework == "other"
    foreign = tmp_path / "photos"
    foreign.mkdir()
    (foreign / "cat.jpg").write_text("meow")
    with pytest.raises(TraceError, match="something that is no trace is there"):
        save_trace(small(), foreign)
    assert (foreign / "cat.jpg").read_text() == "meow"
    (tmp_path / "empty").mkdir()
    assert load_trace(save_trace(small(), tmp_path / "empty")).framework == "torch"


def test_a_symbolic_link_is_not_replaced(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(saved)
    with pytest.raises(TraceError):
        save_trace(Trace("other"), tmp_path / "link")
    assert load_trace(tmp_path / "link").framework == "torch"


def test_what_is_no_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="a trace is a folder. Make one with `ambidex record`"):
        load_trace(tmp_path / "nothing")
    assert not tracefile.is_trace(tmp_path)
