"""Causes in the words of the rules: findings of the report."""

from __future__ import annotations

from collections.abc import Iterable

from ambidex import rules
from ambidex.core.report import Finding, Where
from ambidex.core.rule import Cause


def from_causes(causes: Iterable[Cause]) -> list[Finding]:
    """One finding a cause, worded by the rule that claims it; proven ones first, else in the order of the model."""
    found = [_finding(c) for c in causes]
    unique: dict[tuple[str, str | None, str | None, str], Finding] = {}
    for f in found:
        unique.setdefault((f.code, f.where.reference, f.where.candidate, f.title), f)
    return sorted(unique.values(), key=lambda f: not f.proven)


def _finding(cause: Cause) -> Finding:
    rule = rules.best(cause)
    source = cause.source
    return Finding(
        code=rule.code,
        title=rule.title_for(cause),
        stage=str(cause.detail.get("stage") or rule.stage),
        where=Where(
            reference=cause.reference_path or None,
            candidate=cause.candidate_path or None,
            file=source.file if source else None,
            line=source.line if source else None,
        ),
        message=rule.message(cause),
        fix=rule.fix(cause) or None,
        before=_number(cause.before),
        after=_number(cause.after),
        proven=cause.proven,
        proof=cause.proof or None,
        tried=_others(cause),
        floor=_number(cause.floor),
    )


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)


def _others(cause: Cause) -> list[str]:
    """What was tried and is not the cause: without the cause itself, alone or in part."""
    own = {cause.name, *cause.detail.get("roles", ()), f"{cause.kind} {cause.name}"}
    return [t for t in cause.tried if not own & {x.strip() for x in t.split("+")} and t not in own]
