"""Hostile and clumsy input: one clear sentence or a right report, never an accusation of twins."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import keras  # isort: skip

import ambidex
from ambidex.core.report import Report
from ambidex.core.tracefile import save_trace
from ambidex.errors import AmbidexError

X = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")


class Small(nn.Module):
    """Two linear layers; ``last(x, h, y)`` is what comes out."""

    def __init__(self, last: Callable[..., Any] | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.last = nn.Linear(4, 8), nn.Linear(8, 3), last

    def forward(self, x: torch.Tensor) -> Any:
        h = torch.tanh(self.a(x))
        y = self.b(h)
        return self.last(x, h, y) if self.last is not None else y


def small_keras(dtype: str | None = None) -> keras.Model:
    keras.utils.set_random_seed(0)
    x = keras.Input((4,))
    h = keras.layers.Dense(8, activation="tanh", dtype=dtype, name="a")(x)
    return keras.Model(x, keras.layers.Dense(3, dtype=dtype, name="b")(h))


def compared(reference: Any, candidate: Any, inputs: Any = X, **options: Any) -> Report:
    return ambidex.compare(reference, candidate, inputs=inputs, **options)


def refused(reference: Any, candidate: Any, *words: str, inputs: Any = X, **options: Any) -> None:
    with pytest.raises(AmbidexError) as caught:
        compared(reference, candidate, inputs, **options)
    assert all(word in str(caught.value) for word in words), str(caught.value)


# ---------------------------------------------------------------- wrappers


def test_a_compiled_module_is_looked_into_also_where_only_a_part_is_compiled() -> None:
    part = Small()
    part.a = torch.compile(part.a, backend="eager")  # type: ignore[assignment]
    for module in (torch.compile(Small(), backend="eager"), part):
        report = compared(module, small_keras())
        assert report.verdict == "equal" and report.coverage.matched == 3
        assert module(torch.from_numpy(X)).shape == (3, 3)  # it works as before


def test_a_forward_of_the_objects_own_is_still_there_afterwards() -> None:
    module = Small()
    plain = module.forward
    module.forward = lambda x: plain(x) * 2  # type: ignore[method-assign, assignment]
    before = module(torch.from_numpy(X))
    assert compared(module, Small()).verdict == "different"
    assert torch.equal(module(torch.from_numpy(X)), before)


def test_scripted_modules_are_refused() -> None:
    refused(torch.jit.script(nn.Sequential(nn.Linear(4, 3))), small_keras(), "scripted", "Give the nn.Module")


def test_weights_on_the_meta_device_are_refused_by_name() -> None:
    module = Small()
    module.b = nn.Linear(8, 3, device="meta")
    refused(module, small_keras(), "'b.weight'", "meta device")


def test_weights_made_in_inference_mode_can_be_carried_over() -> None:
    with torch.inference_mode():
        module = Small()
    kept = module.a.weight.clone()
    assert compared(small_keras(), module).verdict == "equal"
    assert torch.equal(module.a.weight, kept)


# ---------------------------------------------------------------- what a model does


class Writes(nn.Module):
    """In-place operations whose result nobody looks at, on the input too."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.relu, self.b = nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        h = self.a(x)
        self.relu(h)
        h += x
        h.clamp_(max=1.0)
        z: torch.Tensor = self.b(h)
        z[:, 0] = h[:, 1]
        z.add_(1)
        return z


class Pure(keras.Model):  # type: ignore[misc]
    """The same without writing in place."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = keras.layers.Dense(4), keras.layers.Dense(4)

    def call(self, x: Any) -> Any:
        x = x * 2
        h = keras.ops.minimum(keras.ops.relu(self.a(x)) + x, 1.0)
        return keras.ops.concatenate([h[:, 1:2], self.b(h)[:, 1:]], 1) + 1


@pytest.mark.parametrize("pair", [(Writes, Writes), (Writes, Pure), (Pure, Writes)])
def test_writing_in_place_is_no_fault(pair: tuple[type, type]) -> None:
    given = X.copy()
    report = compared(pair[0](), pair[1](), given)
    assert report.verdict == "equal" and not report.findings
    assert np.array_equal(given, X)


@dataclasses.dataclass
class Answer:
    logits: torch.Tensor
    hidden: torch.Tensor


def test_outputs_in_a_dataclass_are_found() -> None:
    module = Small(lambda x, h, y: Answer(y, h))
    assert compared(module, Small(lambda x, h, y: (y, h))).verdict == "equal"


@pytest.mark.parametrize("side", [0, 1])
def test_a_model_that_ends_python_is_told(side: int) -> None:
    pair = [Small(), Small()]
    pair[side] = Small(lambda x, h, y: sys.exit(3))
    refused(*pair, "ended Python", "sys.exit(3)")


# ---------------------------------------------------------------- numbers that say nothing


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_outputs_of_nothing_but_nan_are_never_equal(value: float) -> None:
    refused(Small(), small_keras(), "nothing but NaN", "input '0'", inputs=np.full((3, 4), value, "float32"))
    broken = Small(lambda x, h, y: y * float("nan"))
    refused(broken, broken, "nothing but NaN", "':mul'")
    assert compared(Small(), broken).verdict == "different"


def test_an_empty_batch_is_refused() -> None:
    refused(Small(), small_keras(), "empty", "at least one sample", inputs=np.zeros((0, 4), "float32"))


def test_infinite_weights_that_are_kept_are_reported() -> None:
    candidate = small_keras()
    kernel = candidate.get_layer("a").kernel
    kernel.assign(np.where(np.arange(32).reshape(4, 8) == 0, np.inf, kernel.numpy()))
    report = compared(Small(), candidate, weights="keep")
    assert report.verdict == "different" and {f.code for f in report.findings} == {"AMB211"}


def test_a_mask_must_fit_and_leave_something() -> None:
    both = {"reference": [X], "candidate": [X]}
    refused(Small(), Small(), "'m'", "(2, 9)", "fits nothing", inputs={**both, "masks": {"m": np.ones((2, 9))}})
    refused(Small(), Small(), "'m'", "false everywhere", inputs={**both, "masks": {"m": np.zeros((3, 1))}})


def test_sides_with_other_numbers_of_samples_are_no_fault_of_a_layer() -> None:
    other = {"reference": [X], "candidate": [np.ones((5, 4), "float32")]}
    refused(Small(), small_keras(), "3 samples", "candidate 5", inputs=other)


def test_the_imaginary_part_counts() -> None:
    assert compared(Small(lambda x, h, y: torch.complex(y, y)), Small()).verdict == "different"
    turned = Small(lambda x, h, y: torch.complex(y, -y))
    assert compared(Small(lambda x, h, y: torch.complex(y, y)), turned).verdict == "different"
    assert compared(turned, turned).verdict == "equal"


class Nothing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


@pytest.mark.parametrize(("pair", "side"), [((Nothing, Small), "reference"), ((Small, Nothing), "candidate")])
def test_a_side_without_any_operator_is_named(pair: tuple[type, type], side: str) -> None:
    refused(pair[0](), pair[1](), f"the {side} ran no layer")


# ---------------------------------------------------------------- half precision


@pytest.mark.parametrize(
    ("reference", "candidate", "dtype"),
    [
        (lambda: Small().half(), lambda: small_keras("float16"), "float16"),
        (lambda: Small().half(), small_keras, "float16"),
        (Small, lambda: small_keras("mixed_float16"), "float32"),
        (Small, lambda: small_keras("mixed_bfloat16"), "float32"),
        (lambda: small_keras("mixed_bfloat16"), Small, "float32"),
    ],
)
def test_rounding_of_half_precision_is_no_fault(reference: Any, candidate: Any, dtype: str) -> None:
    report = compared(reference(), candidate(), X.astype(dtype))
    assert report.verdict == "equal" and not report.findings
    assert any("half precision" in note for note in report.notes)


def test_a_fault_in_half_precision_is_still_found() -> None:
    report = compared(Small(lambda x, h, y: y * 1.2), small_keras("mixed_float16"))
    assert [f.code for f in report.findings] == ["AMB192"]


def test_an_output_without_partner_is_told() -> None:
    report = compared(Small(lambda x, h, y: (y, h)), Small())
    assert any("output 1" in note for note in report.notes)


# ---------------------------------------------------------------- recorded and handed in


@pytest.mark.parametrize(
    "damage",
    [
        lambda doc: doc["calls"][0].update(index=10**9),
        lambda doc: doc["calls"][1].update(origins=[["call", 999, 0]]),
        lambda doc: doc["calls"][1].update(origins=[["call", -1, 0]]),
        lambda doc: doc["calls"][1].update(origins=[["call", 0, -1]]),
        lambda doc: doc["calls"][1].update(origins=[]),
        lambda doc: doc["output_origins"][0].__setitem__(1, ["call", 999, 0]),
        lambda doc: doc["meta"].update(eps=1e9),
    ],
)
def test_a_trace_that_points_nowhere_is_refused(tmp_path: Path, damage: Callable[[Any], None]) -> None:
    folder = save_trace(ambidex.record(Small(), X), tmp_path / "trace")
    description = folder / "trace.json"
    doc = json.loads(description.read_text())
    damage(doc)
    description.write_text(json.dumps(doc))
    with pytest.raises(AmbidexError, match="damaged|cannot read"):
        ambidex.compare(str(folder), Small())


def test_inputs_without_values_are_refused() -> None:
    refused(Small(), Small(), "meta device", inputs=torch.zeros(3, 4, device="meta"))


def test_the_candidate_keeps_its_weights_whatever_happens() -> None:
    candidate = small_keras()
    before = [w.copy() for w in candidate.get_weights()]
    compared(Small(), candidate)
    refused(Small(), candidate, "'zz'", map={"a": "zz"})
    assert all(np.array_equal(a, b) for a, b in zip(before, candidate.get_weights(), strict=True))


def test_a_model_is_its_own_twin() -> None:
    for model in (Small(), small_keras()):
        report = compared(model, model)
        assert report.verdict == "equal" and not report.findings
