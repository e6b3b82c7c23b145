"""The verbs as functions: what reaches the engine, maps, and inputs for those who gave none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ambidex
from ambidex import api
from ambidex.core.model import TensorSpec
from ambidex.core.report import Coverage, Report, WholeModel
from ambidex.core.trace import Trace
from ambidex.core.types import Layer
from ambidex.engine import compare as engine
from ambidex.engine.defaults import batch_for, complete
from ambidex.engine.inputs import Inputs, as_inputs, parse_signature
from ambidex.engine.usermap import load_map
from ambidex.errors import AmbidexError, InputError, MapError, RunError, UnsupportedError


class Twin:
    """A model that takes images in one order of axes, and closes once."""

    framework = "none"

    def __init__(self, channels_at: int = 1, declares: str = "", rows: int = 0) -> None:
        self.channels_at, self.declares, self.rows, self.closed = channels_at, declares, rows, 0

    def signature(self) -> list[TensorSpec] | None:
        return parse_signature(self.declares) if self.declares else None

    def run(self, batch: Any, plan: Any = None, **options: Any) -> Trace:
        if batch[0].ndim == 4 and batch[0].shape[self.channels_at] != 3:
            raise RunError("wrong channels")
        return Trace("none", outputs={"0": batch[0]})

    def layers(self) -> list[Layer]:
        return [Layer("table", "Gather", weights={"W": "w"})] if self.rows else []

    def constants(self):
        return set()

    def weights(self) -> dict[str, np.ndarray]:
        return {}

    def layer_weights(self, path: str) -> dict[str, np.ndarray]:
        return {"W": np.zeros((self.rows, 2))}

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    got: dict[str, Any] = {}

    def compare_models(reference: Any, candidate: Any, **options: Any) -> Report:
        got.update(options, reference=reference, candidate=candidate)
        if "error" in got:
            raise got["error"]
        whole = WholeModel(max_abs=0, max_rel=0, floor_ratio=0)
        return Report(verdict="equal", whole_model=whole, coverage=Coverage(matched=0))

    monkeypatch.setattr(engine, "compare_models", compare_models)
    return got


# ---------------------------------------------------------------------------------------------------- compare
def test_compare_hands_everything_over_and_closes(seen: Any) -> None:
    a, b = Twin(), Twin()
    report = ambidex.compare(a, b, inputs=np.ones((2, 3)), weights="keep", mode="train", map={"x": "y"})
    assert seen["reference"] is a and seen["candidate"] is b and (a.closed, b.closed) == (1, 1)
    assert seen["weights"] == "keep" and seen["mode"] == "train" and seen["user_map"] == {"x": "y"}
    assert report.reference == "Twin" and report.environment["process"]["python"]


def test_models_are_closed_when_the_engine_fails(seen: Any) -> None:
    a, b = Twin(), Twin()
    seen["error"] = ValueError("x")
    with pytest.raises(ValueError, match="x"):
        ambidex.compare(a, b, inputs=np.ones(2))
    assert (a.closed, b.closed) == (1, 1)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory. Tried to allocate"),
        type("ResourceExhaustedError", (Exception,), {})("OOM when allocating tensor"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory: you tried to allocate"),
    ],
)
def test_every_way_to_run_out_of_memory_is_one_error(seen: Any, error: Exception) -> None:
    seen["error"] = error
    with pytest.raises(RunError, match="the memory of this machine is used up"):
        ambidex.compare(Twin(), Twin(), inputs=np.ones(2))


@pytest.mark.parametrize(
    "options, words",
    [
        ({"weights": "copy"}, "weights='copy' is unknown. Say carry or keep"),
        ({"mode": "test"}, "mode='test' is unknown"),
        ({"inputs": np.ones(2), "signature": "float32[2]"}, "both inputs and a signature"),
        ({"inputs": "x.csv"}, "its kind is not known"),
        ({}, "neither model declares what it takes. Pass --inputs"),
    ],
)
def test_wrong_arguments_are_told(seen: Any, options: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        ambidex.compare(Twin(), Twin(), **options)


def test_a_recorded_candidate_is_refused(seen: Any) -> None:
    with pytest.raises(UnsupportedError, match="Name the recorded side first"):
        ambidex.compare(Twin(), Trace("torch"), inputs=np.ones(2))


def test_record_takes_the_batch_of_its_side() -> None:
    both = {"reference": np.zeros(2), "candidate": np.ones(3)}
    assert ambidex.record(Twin(), both).outputs["0"].tolist() == [0, 0]
    assert ambidex.record(Twin(), both, side="candidate").outputs["0"].tolist() == [1, 1, 1]
    assert ambidex.record(Twin(), signature="float32[2,4]").outputs["0"].shape == (2, 4)
    with pytest.raises(InputError, match="recorded already"):
        ambidex.record(Trace("torch"), np.ones(2))


# ---------------------------------------------------------------------------------------------------- inputs
def test_a_recorded_reference_brings_its_own_inputs() -> None:
    trace = Trace("torch", inputs={"0": np.ones((2, 3))})
    assert complete(None, trace, Twin()).described == ["0: float64[2, 3], as recorded"]
    with pytest.raises(InputError, match="do not go together"):
        complete(parse_signature("float32[2]"), trace, Twin())


def test_what_a_model_declares_is_used_the_references_first() -> None:
    made = complete(None, Twin(declares="float32[None,4]"), Twin(declares="float32[None,5]"))
    assert made.reference is not None and made.candidate is None and made.reference[0].shape[1] == 4  # type: ignore[index]


def test_the_candidates_layout_is_turned_for_the_reference() -> None:
    made = complete(None, Twin(channels_at=1), Twin(channels_at=3, declares="float32[None,None,None,3]"))
    assert made.reference is not None and made.candidate is not None
    reference, candidate = made.reference[0], made.candidate[0]  # type: ignore[index]
    assert reference.shape[1] == 3 and np.array_equal(reference.transpose(0, 2, 3, 1), candidate)


def test_ids_stay_below_the_smallest_table() -> None:
    made = complete(parse_signature("int64[None,None]"), Twin(rows=40), Twin(rows=30))
    assert made.reference is not None and made.reference[0].max() == 29  # type: ignore[index]
    given = complete(parse_signature("int64[None,None]<20"), Twin(rows=40), Twin())
    assert given.reference is not None and given.reference[0].max() == 19  # type: ignore[index]


def test_given_inputs_stay_as_they_are() -> None:
    inputs = as_inputs(np.ones(2))
    assert complete(inputs, Twin(), Twin()) is inputs
    with pytest.raises(InputError, match="no inputs for the reference"):
        batch_for(Inputs(), Twin(), "reference")
    with pytest.raises(InputError, match="does not declare"):
        batch_for(None, Twin(), "reference")


# ---------------------------------------------------------------------------------------------------- map
@pytest.mark.parametrize(
    "text",
    ['format = 1\n[layers]\n"a.b" = "c/d"\n', '"a.b" = "c/d"\n', '[layers]\n"a.b" = "c/d"\n'],
)
def test_maps_are_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.toml").write_text(text)
    assert load_map(tmp_path / "m.toml") == {"a.b": "c/d"}


@pytest.mark.parametrize(
    "text, words",
    [
        ("a = ", "no valid TOML"),
        ("format = 2\n", "has format 2"),
        ("x = 'y'\n[layers]\n", "has 'x' outside of"),
        ("layers = 3\n", r"\[layers\] is no table"),
        ('encoder.ffn = "x"\n', 'a path with dots needs quotes. Write "encoder.ffn" = '),
        ("a = 1\n", "gives 'a' the value 1"),
        ("a = 'x'\nb = 'x'\n", "names the candidate's 'x' twice"),
        ("a = 'x'\na = 'y'\n", "no valid TOML"),
    ],
)
def test_wrong_maps_are_told(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "m.toml").write_text(text)
    with pytest.raises(MapError, match=words):
        load_map(tmp_path / "m.toml")
    with pytest.raises(AmbidexError, match="does not exist. Did you mean 'm.toml'"):
        load_map(tmp_path / "n.toml")


def test_labels() -> None:
    assert api.label("m.py:make") == "m.py:make" and api.label(Trace("torch")) == "recorded torch trace"
    assert api.label(3) == "int"
