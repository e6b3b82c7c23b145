"""Whether a report tells what is true of a pair: the verdict, every fault in every place, nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.real.cases import Case, Fault


def tells(finding: dict[str, Any], fault: Fault) -> bool:
    where = finding["where"]
    places = [where[side] for side in ("reference", "candidate") if where.get(side)]
    return finding["code"] in fault.codes and any(re.search(fault.where, place) for place in places)


def mistakes(case: Case, report: dict[str, Any]) -> Iterator[str]:
    """One line for each thing that the report says wrongly, or does not say."""
    wanted = "different" if any(not f.optional for f in case.faults) else "equal"
    if report["verdict"] != wanted:
        yield f"verdict {report['verdict']}, right is {wanted}"
    findings = report["findings"]
    for fault in case.faults:
        told = {place(f) for f in findings if tells(f, fault)}
        if len(told) != fault.times and not fault.optional:
            yield f"told in {len(told)} of {fault.times} places: {fault.cause}"
    for finding in findings:
        if not any(tells(finding, fault) for fault in case.faults):
            yield f"not true: {finding['code']} {finding['title']} at {place(finding)}"
        elif not finding["proven"]:
            yield f"not proven: {finding['code']} at {place(finding)}"
    if findings and case.faults and not any(tells(findings[0], f) for f in case.faults if not f.optional):
        yield f"the first finding is not a cause: {findings[0]['code']} {findings[0]['title']}"
    after = report["whole_model"]["after_fixes"]
    if wanted == "different" and (after is None or float(after) > case.after):
        yield f"with all fixes the outputs still differ by {after}"


def refusal_mistakes(case: Case, code: int, said: str) -> Iterator[str]:
    """The same for a pair that is to be refused: exit code 2 and one clear sentence."""
    if code != 2:
        yield f"exit code {code}, right is 2 (refused)"
    missing = [word for word in case.refused if word not in said]
    if missing:
        yield f"the refusal does not say {', '.join(map(repr, missing))}: {said or 'nothing'}"
    if "bug in ambidex" in said or "Traceback" in said:
        yield "the refusal is a crash"


def place(finding: dict[str, Any]) -> str:
    where = finding["where"]
    return f"{where.get('reference') or '-'} | {where.get('candidate') or '-'}"
