"""For people who write rules: the checks that every built-in rule passes, for a test of their own.

::

    from ambidex import rules, testing

    def test_my_rule():
        testing.check_rule(rules.find("ACME101"))
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ambidex.core.rule import Example, Rule, Side
from ambidex.core.types import Array
from ambidex.errors import UnsupportedError

_BUILDERS = {"torch": "ambidex.adapters.torch_build", "keras": "ambidex.adapters.keras_build"}


def frameworks() -> list[str]:
    """The frameworks that are installed here; torch first, it is imported first."""
    return [name for name in _BUILDERS if importlib.util.find_spec(name) is not None]


def check_rule(rule: Rule) -> int:
    """The rule wins its sample and words it for both frameworks, and every example does as it says in every ordered
    pair of frameworks that can build it. Gives the number of examples run; AssertionError says what does not hold."""
    wording(rule)
    done = 0
    for example in rule.examples:
        for reference, candidate in pairs(example):
            run_example(rule, example, reference, candidate)
            done += 1
    return done


def wording(rule: Rule) -> None:
    """Title, message and fix for the rule's sample, which the rule must win against all others."""
    from ambidex import rules

    sample = getattr(rule, "sample", None)
    assert sample is not None, f"{rule.code} has no sample"
    for framework in ("torch", "keras"):
        cause = replace(sample, framework=framework, reference_framework="torch")
        winner = rules.best(cause)
        assert winner is rule, f"{winner.code} claims the sample of {rule.code} with more weight"
        for what, text in (
            ("title", rule.title_for(cause)),
            ("message", rule.message(cause)),
            ("fix", rule.fix(cause)),
        ):
            assert text and text == text.strip(), f"{rule.code} has no {what} for a candidate in {framework}"
        assert len(rule.title_for(cause)) <= 90, f"{rule.code}: the title is longer than 90 characters"


def pairs(example: Example) -> Iterator[tuple[str, str]]:
    """The ordered pairs of frameworks that can build both sides of an example."""
    able = {
        side: [fw for fw in frameworks() if _builds(fw, getattr(example, side), example.shows)]
        for side in ("reference", "candidate")
    }
    yield from ((a, b) for a in able["reference"] for b in able["candidate"])


def run_example(rule: Rule, example: Example, reference: str, candidate: str) -> None:
    """Compare one example: exactly one finding, the rule's and proven, where it shows; none where it does not."""
    import ambidex

    make = _builder(reference)
    ref = make.build(example.reference, plain=example.shows)
    cand = _builder(candidate).build(example.candidate, plain=example.shows)
    inputs = make.arrays(example.reference, values(example.reference))
    report = ambidex.compare(ref, cand, inputs=inputs if len(inputs) > 1 else inputs[0])
    found = [(f.code, f.message) for f in report.findings]
    if example.shows:
        assert [code for code, _ in found] == [rule.code], (found, report.notes)
        assert report.verdict == "different" and report.findings[0].proven, report.findings
    else:
        assert not found and report.verdict == "equal", (found, report.verdict, report.notes)


def values(side: Side) -> list[Array]:
    """Canonical inputs: ids, or numbers that reach every branch of an activation; one sample of low variance."""
    rng = np.random.default_rng(5)
    made: list[Array] = []
    for shape in side.inputs:
        if side.op == "Gather":
            made.append(rng.integers(0, side.attrs.get("rows", 11), shape))
            continue
        x = rng.normal(size=shape) * 2.0
        x[0] *= 0.05  # low variance: where an epsilon shows
        made.append(x.astype(np.float32))
    return made


def _builder(framework: str) -> Any:
    return importlib.import_module(_BUILDERS[framework])


def _builds(framework: str, side: Side, plain: bool) -> bool:
    try:
        _builder(framework).build(side, plain=plain)
    except UnsupportedError:
        return False
    return True
