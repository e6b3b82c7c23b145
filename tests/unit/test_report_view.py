"""Grouping and wording that the terminal and the page share."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit import report_samples

from ambidex.core.report import Finding, Report, Where
from ambidex.report import chart, view
from ambidex.report.tree import trees


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.0, "0"),
        (math.nan, "NaN"),
        (math.inf, "infinite"),
        (1.2345e-7, "1.2e-7"),
        (0.0894, "0.089"),
        (0.5, "0.5"),
        (295.4, "295"),
        (99.7, "100"),
        (9999.0, "9999"),
        (12345.0, "1.2e4"),
        (-3.0, "-3"),
        (5e-324, "4.9e-324"),
    ],
)
def test_number(value: float | None, text: str) -> None:
    assert view.number(value) == text


@pytest.mark.parametrize(
    ("paths", "compact"),
    [
        ([f"layer_{i}/norm" for i in range(12)], ["layer_0..11/norm"]),
        (["layer_0/norm", "layer_1/norm", "layer_5/norm"], ["layer_{0,1,5}/norm"]),
        ([f"encoder.layers.{i}.norm" for i in range(4)], ["encoder.layers.{0..3}.norm"]),
        ([f"b{i}/c{j}" for i in range(3) for j in range(3)], ["b0..2/c0..2"]),
        # two of three times three: what is missing must not be claimed
        (["b0/c0", "b0/c1", "b1/c0"], ["b{0,1}/c0", "b0/c1"]),
        (["a/query", "a/key", "b/query"], ["a/{query,key}", "b/query"]),
        (["x01", "x1", "x2"], ["x01", "x{1,2}"]),
        (["dense", "dense", ""], ["dense", ""]),
        ([], []),
    ],
)
def test_compact_paths(paths: list[str], compact: list[str]) -> None:
    assert view.compact_paths(paths) == compact


def expand(text: str) -> set[str]:
    """What a compact path stands for, by its definition."""
    import itertools
    import re

    parts = re.split(r"(\{[^{}]*\}|\d+\.\.\d+)", text)
    choices: list[list[str]] = []
    for part in parts:
        if part.startswith("{"):
            items: list[str] = []
            for item in part[1:-1].split(","):
                run = re.fullmatch(r"(\d+)\.\.(\d+)", item)
                items += map(str, range(int(run[1]), int(run[2]) + 1)) if run else [item]
            choices.append(items)
        elif run := re.fullmatch(r"(\d+)\.\.(\d+)", part):
            choices.append([str(i) for i in range(int(run[1]), int(run[2]) + 1)])
        else:
            choices.append([part])
    return {"".join(choice) for choice in itertools.product(*choices)}


names = st.sampled_from(["a", "b", "norm", "layer_0", "layer_1", "layer_2", "layer_7", "3", "4", "x10y2", "x11y2"])
path_lists = st.lists(st.lists(names, min_size=1, max_size=4).map("/".join), max_size=20)


@given(path_lists)
def test_compact_paths_names_every_path_and_no_other(paths: list[str]) -> None:
    compact = view.compact_paths(paths)
    assert set().union(*map(expand, compact)) == set(paths)
    assert len(compact) <= len(set(paths))


@given(st.text())
def test_clean_is_one_line_without_control(text: str) -> None:
    out = view.clean(text)
    assert len(out.splitlines()) <= 1 and "\x1b" not in out and out.isprintable() or not text.isprintable()


def finding(path: str, code: str = "AMB101", fix: str | None = "epsilon=1e-5", **more: object) -> Finding:
    values: dict = {"title": "epsilon differs", "stage": "forward", "message": ""} | more
    return Finding(code=code, where=Where(candidate=path, file="m.py", line=3), fix=fix, **values)


def test_grouping_is_by_code_and_cause_in_the_order_given() -> None:
    found = [finding("a"), finding("z", "AMB102"), finding("b"), finding("c", fix="epsilon=1e-6")]
    found += [finding("d", proven=True)]
    groups = view.group(found)
    assert [[one.where.candidate for one in group.findings] for group in groups] == [["a", "b"], ["z"], ["c"], ["d"]]


def test_a_fix_that_names_its_own_layer_is_the_same_fix() -> None:
    groups = view.group([finding(f"m/norm_{i}", fix=f"LayerNormalization(1e-5, name='norm_{i}')") for i in range(3)])
    assert len(groups) == 1 and len(groups[0].fixes) == 3


def test_sources_are_listed_once() -> None:
    found = [finding("a"), finding("b"), finding("c")]
    found[2].where.line = 1
    assert view.group(found)[0].sources == ["m.py:1,3"]


@pytest.mark.parametrize("name", list(report_samples.ALL))
def test_trees_hold_every_layer_once(name: str) -> None:
    report: Report = report_samples.ALL[name]()
    both = trees(report)
    for nodes, owner, side in (
        (both.reference, both.reference_of, "reference"),
        (both.candidate, both.candidate_of, "candidate"),
    ):
        by_id = {node.id: node for node in nodes}
        assert len(by_id) == len(nodes)
        for number, row in enumerate(both.rows):
            path = getattr(row, side)
            assert (number in owner) == (path is not None)
            if path is not None:
                assert by_id[owner[number]].path == path
        twins = [node.twin for node in nodes if node.twin]
        assert len(twins) == len(set(twins))
    lonely = [row for row in both.rows if row.status == "unmatched"]
    assert len(lonely) >= len(report.coverage.only_in_reference) + len(report.coverage.only_in_candidate)


def test_marks_stay_in_the_picture_whatever_the_numbers() -> None:
    report = report_samples.three()
    odd = [0.0, math.nan, math.inf, 5e-324, 1e308, 1e-30, 1.0]
    for row, value in zip(report.layers, odd, strict=False):
        row.ratio = row.shadow = row.chained = value
    for picture in (chart.floor_chart(report), chart.travel_chart(report)):
        assert picture.marks
        for mark in picture.marks:
            assert 0 <= mark.x <= 100 and 0 <= mark.y <= picture.height and 0 <= mark.y2 <= picture.height
        assert len(picture.ticks) < 12


def test_threshold_line_is_the_report_s_or_the_lowest_fault() -> None:
    report = report_samples.three()
    assert chart.floor_chart(report).line_text == "faulty from 52×"
    report.threshold = 30.0
    assert chart.floor_chart(report).line_text == "faulty above 30×"
    assert chart.floor_chart(report_samples.clean()).line is None
