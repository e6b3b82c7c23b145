"""The report as JSON: what is written comes back, and nothing else gets in."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from tests.unit import report_samples

from ambidex.core.report import Coverage, Report, WholeModel
from ambidex.errors import InputError
from ambidex.report import json_

PUBLISHED = Path(__file__).parents[2] / "docs" / "report-schema.json"


def test_published_schema_is_current() -> None:
    written = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    assert written == json_.schema(), "run: python -m ambidex.report.json_ docs/report-schema.json"


def test_schema_command_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    json_.main([str(tmp_path / "schema.json")])
    json_.main([])
    assert (tmp_path / "schema.json").read_text() == capsys.readouterr().out == PUBLISHED.read_text(encoding="utf-8")


def test_contract_fields() -> None:
    data = json.loads(json_.dumps(report_samples.three()))
    assert data["format"] == 1 and data["verdict"] == "different"
    assert set(data["whole_model"]) >= {"max_abs", "max_rel", "floor_ratio", "after_fixes"}
    assert set(data["coverage"]) == {"matched", "only_in_reference", "only_in_candidate"}
    layer = {"reference", "candidate", "op", "matched_by", "chained", "shadow", "floor", "ratio", "status"}
    assert set(data["layers"][0]) >= layer
    finding = {"code", "title", "stage", "where", "message", "fix", "before", "after", "proven"}
    assert set(data["findings"][0]) >= finding
    assert set(data["findings"][0]["where"]) == {"reference", "candidate", "file", "line"}


@pytest.mark.parametrize("name", list(report_samples.ALL))
def test_round_trip(name: str) -> None:
    report = report_samples.ALL[name]()
    text = json_.dumps(report)
    again = json_.loads(text)
    assert json_.dumps(again) == text
    assert repr(again) == repr(report)  # NaN is not equal to itself, its name is


def test_numbers_that_are_not_finite_are_valid_json() -> None:
    whole = WholeModel(max_abs=math.nan, max_rel=math.inf, floor_ratio=-math.inf)
    environment = {"loss": math.nan, "path": Path("a"), "many": (np.float32(1.5), {math.inf})}
    report = Report(
        verdict="undecided",
        whole_model=whole,
        coverage=Coverage(matched=0),
        environment=environment,
        reference="\udcff",
    )
    text = json_.dumps(report)
    text.encode("utf-8")
    data = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert data["whole_model"] | {"worst_output": None} == {
        "max_abs": "NaN",
        "max_rel": "Infinity",
        "floor_ratio": "-Infinity",
        "after_fixes": None,
        "worst_output": None,
    }
    assert data["environment"] == {"loss": "NaN", "path": "a", "many": ["1.5", ["Infinity"]]}
    back = json_.loads(text)
    assert back.whole_model.max_abs is not None and math.isnan(back.whole_model.max_abs)
    assert back.whole_model.max_rel == math.inf
    assert back.reference == "\udcff"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON: Expecting value at line 1, column 1"),
        ('{"format": 1,', "not JSON"),
        ("[" * 100_000, "not JSON that can be read"),
        ('{"format": 1' + "0" * 5000 + "}", "not JSON that can be read"),
        ("[]", "a JSON list"),
        ("3", "a JSON int"),
        ("{}", "does not say its format"),
        ('{"format": 2}', "has format 2: this version reads format 1"),
        ('{"format": true}', "has format True"),
        ('{"format": "1"}', "has format '1'"),
        ('{"format": 1}', "damaged at 'verdict': Field required (and 2 more)"),
    ],
)
def test_anything_else_is_refused_in_a_sentence(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        json_.loads(text)
    assert words in str(caught.value)
    assert caught.value.todo


def test_unknown_field_and_wrong_value_are_named() -> None:
    data = json.loads(json_.dumps(report_samples.three()))
    with pytest.raises(InputError, match=r"damaged at 'surprise'"):
        json_.loads(json.dumps(data | {"surprise": 1}))
    data["layers"][3]["status"] = "fine"
    with pytest.raises(InputError, match=r"damaged at 'layers\.3\.status'"):
        json_.loads(json.dumps(data))
