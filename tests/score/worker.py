"""Runs the cases of one architecture in this process and writes one JSON line a case to standard output."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import sys
import time
import traceback
from typing import Any

from tests.score import zoo
from tests.score.scoring import Result, score


def shortened(finding: Any) -> dict[str, Any]:
    where = {"reference": finding.where.reference, "candidate": finding.where.candidate,
             "file": finding.where.file, "line": finding.where.line}  # fmt: skip
    return {"code": finding.code, "title": finding.title, "where": where, "message": finding.message,
            "fix": finding.fix, "proven": finding.proven}  # fmt: skip


def _first(expected: dict[str, zoo.Expect]) -> str:
    """The first stage at which the planted faults show."""
    order = ("loss", "gradient", "clip", "update", "schedule", "metric")
    return min((e.stage for e in expected.values() if e.stage), key=order.index, default="")


def run_case(arch: zoo.Arch, kind: str, faults: frozenset[str], clean: zoo.Clean) -> Result:
    import ambidex

    expected = {name: arch.faults[name] for name in sorted(faults)}
    title = zoo.Case(arch.name, kind, tuple(sorted(faults)), clean).title
    pair = arch.build(faults, clean.variant, clean.seed, clean.flip, clean.weights if kind == "clean" else None)
    result = Result(arch.name, kind, title, {n: e.kind for n, e in expected.items()}, pair.weights)
    inputs = pair.inputs if isinstance(pair.inputs, dict) else list(pair.inputs)
    start = time.perf_counter()
    try:
        more = {} if pair.training is None else {"training": pair.training, "targets": pair.targets}
        report = ambidex.compare(pair.reference, pair.candidate, inputs=inputs, weights=pair.weights, **more)
    except Exception as problem:  # a crash is the product's failure and is scored as a miss
        result.error = f"{type(problem).__name__}: {problem}"
        traceback.print_exc()
    else:
        result.findings = [shortened(f) for f in report.findings]
        result.verdict = report.verdict
        result.first_stage, result.wanted_stage = report.first_stage or "", _first(expected)
        result.matched = report.coverage.matched
        result.only_in_reference = list(report.coverage.only_in_reference)
        result.only_in_candidate = list(report.coverage.only_in_candidate)
    result.seconds = time.perf_counter() - start
    score(result, expected)
    return result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("arch")
    parser.add_argument("--only", default="")
    parser.add_argument("--kinds", default="single,combo,clean")
    options = parser.parse_args()
    answer = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):  # whatever the frameworks print must not get between the lines
        import torch  # first of the two: they do not like the other order

        torch.set_num_threads(1)
        import keras

        arch: zoo.Arch = importlib.import_module(f"tests.score.arch.{options.arch}").ARCH
        for kind, faults, clean in zoo.cases(arch):
            title = zoo.Case(arch.name, kind, tuple(sorted(faults)), clean).title
            if kind not in options.kinds.split(",") or options.only not in title:
                continue
            keras.backend.clear_session(free_memory=False)
            result = run_case(arch, kind, faults, clean)
            answer.write(json.dumps(result.plain()) + "\n")
            answer.flush()


if __name__ == "__main__":
    main()
