"""Every example of every rule, over every ordered pair of frameworks that can build both sides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch  # noqa: F401  (before TensorFlow: the two wheels clash the other way round)

from ambidex import rules, testing
from ambidex.core.rule import Example


def _cases() -> Iterator[Any]:
    for rule in rules.all_rules():
        for n, example in enumerate(rule.examples):
            for reference, candidate in testing.pairs(example):
                shown = "shows" if example.shows else "clean"
                yield pytest.param(
                    rule, example, reference, candidate, id=f"{rule.code}-{n}-{shown}-{reference}-{candidate}"
                )


CASES = list(_cases())


@pytest.mark.parametrize(("rule", "example", "reference", "candidate"), CASES)
def test_example(rule: Any, example: Example, reference: str, candidate: str) -> None:
    testing.run_example(rule, example, reference, candidate)


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
