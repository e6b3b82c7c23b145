"""Every example of every rule, over every ordered pair of frameworks that can build both sides."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch  # noqa: F401  (before TensorFlow: the two wheels clash the other way round)

import ambidex
from ambidex import rules
from ambidex.adapters import keras_build, torch_build
from ambidex.core.rule import Example, Side
from ambidex.errors import UnsupportedError

BUILDERS: dict[str, Any] = {"torch": torch_build, "keras": keras_build}
PAIRS = [(a, b) for a in BUILDERS for b in BUILDERS]


@functools.cache
def _can(code: str, number: int, which: str, framework: str) -> bool:
    example = rules.find(code).examples[number]
    try:
        BUILDERS[framework].build(getattr(example, which), plain=example.shows)
    except UnsupportedError:
        return False
    return True


def _cases() -> Iterator[Any]:
    for rule in rules.all_rules():
        for n, example in enumerate(rule.examples):
            for reference, candidate in PAIRS:
                if _can(rule.code, n, "reference", reference) and _can(rule.code, n, "candidate", candidate):
                    shown = "shows" if example.shows else "clean"
                    yield pytest.param(
                        rule, example, reference, candidate, id=f"{rule.code}-{n}-{shown}-{reference}-{candidate}"
                    )


CASES = list(_cases())


def values(side: Side) -> list[np.ndarray]:
    """Canonical inputs: ids, or numbers that reach every branch of an activation; one sample of low variance."""
    rng = np.random.default_rng(5)
    made = []
    for shape in side.inputs:
        if side.op == "Gather":
            made.append(rng.integers(0, side.attrs.get("rows", 11), shape))
            continue
        x = rng.normal(size=shape) * 2.0
        x[0] *= 0.05  # low variance: where an epsilon shows
        made.append(x.astype(np.float32))
    return made


def compare(example: Example, reference: str, candidate: str) -> Any:
    make = BUILDERS[reference]
    ref = make.build(example.reference, plain=example.shows)
    cand = BUILDERS[candidate].build(example.candidate, plain=example.shows)
    inputs = make.arrays(example.reference, values(example.reference))
    return ambidex.compare(ref, cand, inputs=inputs if len(inputs) > 1 else inputs[0])


@pytest.mark.parametrize(("rule", "example", "reference", "candidate"), CASES)
def test_example(rule: Any, example: Example, reference: str, candidate: str) -> None:
    report = compare(example, reference, candidate)
    found = [(f.code, f.message) for f in report.findings]
    if example.shows:
        assert [code for code, _ in found] == [rule.code], (found, report.notes)
        assert report.verdict == "different"
        assert report.findings[0].proven
    else:
        assert not found, (found, report.notes)
        assert report.verdict == "equal"


def test_every_example_is_run() -> None:
    """An example that no pair can build would be a test that never runs."""
    ran = {(case.values[0].code, id(case.values[1])) for case in CASES}
    never = [
        (rule.code, n)
        for rule in rules.all_rules()
        for n, e in enumerate(rule.examples)
        if (rule.code, id(e)) not in ran
    ]
    assert not never
