"""The report in a terminal: short, in order, harmless."""

from __future__ import annotations

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console
from tests.unit import report_samples

from ambidex.core.report import Report
from ambidex.report import text, view


def shown(report: Report, width: int = 80, **options: object) -> str:
    file = io.StringIO()
    settings: dict = {"file": file, "width": width} | options
    text.render(report, Console(**settings), html_path="out/report.html", json_path="out/report.json")
    return file.getvalue()


@pytest.mark.parametrize("width", [80, 81, 100, 132, 200])
@pytest.mark.parametrize("name", list(report_samples.ALL))
def test_fits_a_screen(name: str, width: int) -> None:
    report = report_samples.ALL[name]()
    lines = shown(report, width).splitlines()
    assert len(lines) <= (10 if report.verdict == "equal" else 40)
    assert max(map(cell_len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize("causes", [1, 2, 7, 30, 100])
def test_a_hundred_findings_fit_and_every_cause_is_counted(causes: int) -> None:
    report = report_samples.many(causes=causes)
    out = shown(report)
    assert len(out.splitlines()) <= 40
    numbered = len(re.findall(r"^\d+ AMB", out, re.M))
    more = re.search(r"and (\d+) more cause", out)
    assert numbered + (int(more[1]) if more else 0) == len(view.group(report.findings))
    assert "write   layer(attribute_0=1e-5)" in out


def test_clean_pair_with_everything_still_fits() -> None:
    report = report_samples.clean()
    report.notes = ["a note " * 40] * 5
    report.coverage.only_in_reference = [f"drop_{i}" for i in range(30)]
    report.coverage.only_in_candidate = [f"lambda_{i}" for i in range(30)]
    assert len(shown(report).splitlines()) <= 10


def test_order_and_content() -> None:
    out = shown(report_samples.three())
    first = out.splitlines()[0]
    assert first == "DIFFERENT  max relative difference 0.089, 1.1e5x floor, 19 of 20 layers aligned"
    parts = [
        "3 causes in 4 places, 2 proven",
        "0.31 -> 7.2e-6",
        "1 AMB114 LeakyRelu slope differs",
        "graph/attention/leaky  at recommender_keras.py:77",
        "write   keras.layers.LeakyReLU(negative_slope=0.2)",
        "proven by re-running, difference 0.04 -> 0",
        "2 AMB101",
        "2 places: encoder/transformer_layer_0/{attention_norm,ffn_norm}",
        "recommender_keras.py:41",
        "LayerNormalization(epsilon=1e-5)",
        "3 AMB100",
        "suspected, difference 6.8e-6",
        "not aligned: 1 layer only in candidate: head/dropout",
        "no partner: 1 parameter only in reference: head.scale",
        "out/report.html; JSON out/report.json",
        "ambidex explain AMB114",
    ]
    places = [out.index(part) for part in parts]
    assert places == sorted(places)


def test_undecided_and_not_reproducible_say_what_to_do() -> None:
    out = shown(report_samples.undecided())
    assert out.startswith("UNDECIDED")
    assert "neither 'equal' nor 'different'" in out and "--map map.toml" in out and "could not run" in out
    out = shown(report_samples.not_reproducible())
    assert out.startswith("NOT REPRODUCIBLE")
    assert "means nothing yet" in out and "model.eval()" in out and "'encoder.layers.0.dropout'" in out


def test_plain_when_it_is_no_terminal_and_coloured_when_it_is() -> None:
    assert "\x1b" not in shown(report_samples.three())
    assert "\x1b[" in shown(report_samples.three(), force_terminal=True, color_system="standard", no_color=False)


def test_hostile_names_reach_neither_terminal_nor_markup() -> None:
    report = report_samples.hostile()
    report.findings[0].where.candidate = "\x1b[2J\x1b]0;owned\x07"
    report.findings[0].title = "[bold red]x[/]\nFAKE LINE"
    out = shown(report)
    assert "\x1b" not in out and "\x07" not in out and "\u202e" not in out
    assert "[bold red]x[/]\\nFAKE LINE" in out
    assert "\\x1b[2J" in out


def test_an_ascii_terminal_gets_ascii() -> None:
    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, encoding="ascii", write_through=True), width=80)
    text.render(report_samples.unicode_(), console)
    assert b"\\u7f16" in raw.getvalue()


def test_long_fix_is_cut_and_says_so() -> None:
    report = report_samples.three()
    report.findings[0].fix = "\n".join(f"    line_{i} = {i}" for i in range(30))
    out = shown(report)
    assert len(out.splitlines()) <= 40
    assert "more lines in the report" in out
    assert "    line_0 = 0" in out


def test_no_hint_of_files_that_were_not_written() -> None:
    file = io.StringIO()
    text.render(report_samples.three(), Console(file=file, width=80))
    assert "--html FILE" in file.getvalue()
