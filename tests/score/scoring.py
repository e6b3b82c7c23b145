"""Which findings hit which planted faults, and the figures over many cases."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.score.zoo import Expect


@dataclass
class Result:
    """One case after its run. ``findings`` are the report's, shortened; ``hits`` fault -> numbers of findings that
    name place and cause; ``first`` fault -> whether the first finding at its place names the cause."""

    arch: str
    kind: str
    title: str
    faults: dict[str, str]
    weights: str
    findings: list[dict[str, Any]] = field(default_factory=list)
    hits: dict[str, list[int]] = field(default_factory=dict)
    located: dict[str, bool] = field(default_factory=dict)
    first: dict[str, bool] = field(default_factory=dict)
    extras: list[int] = field(default_factory=list)
    misplaced: list[int] = field(default_factory=list)
    verdict: str = ""
    first_stage: str = ""
    wanted_stage: str = ""
    matched: int = 0
    only_in_reference: list[str] = field(default_factory=list)
    only_in_candidate: list[str] = field(default_factory=list)
    seconds: float = 0.0
    error: str = ""

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def text_of(finding: Mapping[str, Any]) -> str:
    return " ".join(str(finding.get(part) or "") for part in ("code", "title", "message", "fix"))


def score(result: Result, expected: Mapping[str, Expect]) -> None:
    """Fill in hits, extras and firsts of one case from its findings.

    A finding is right when some planted fault has both its place and its cause; several findings for one fault (the
    same cause at several layers) are all right. ``misplaced``: the right layer but another cause, part of the extras.
    """
    right: set[int] = set()
    placed: set[int] = set()
    for name, want in expected.items():
        there = [n for n, f in enumerate(result.findings) if want.at(f["where"]["reference"], f["where"]["candidate"])]
        hits = [n for n in there if want.because(result.findings[n]["code"], text_of(result.findings[n]))]
        result.located[name], result.hits[name] = bool(there), hits
        # with several faults at one layer, a finding that hits another of them does not stand before this one
        others = {
            n for other, w in expected.items() if other != name for n in there
            if w.at(result.findings[n]["where"]["reference"], result.findings[n]["where"]["candidate"])
            and w.because(result.findings[n]["code"], text_of(result.findings[n])) and n not in hits
        }  # fmt: skip
        rest = [n for n in there if n not in others]
        result.first[name] = bool(rest) and rest[0] in hits
        right.update(hits)
        placed.update(there)
    result.extras = [n for n in range(len(result.findings)) if n not in right]
    result.misplaced = [n for n in result.extras if n in placed]


@dataclass
class Figures:
    """Sums over some cases."""

    cases: int = 0
    planted: int = 0
    hit: int = 0
    located: int = 0
    first: int = 0
    findings: int = 0
    right: int = 0
    matched: int = 0
    lonely: int = 0
    clean: int = 0
    clean_wrong: int = 0
    clean_not_equal: int = 0
    crashed: int = 0
    staged: int = 0
    stage_right: int = 0
    codes: set[str] = field(default_factory=set)
    seconds: float = 0.0

    def add(self, result: Result) -> None:
        self.cases += 1
        self.seconds += result.seconds
        self.crashed += bool(result.error)
        self.matched += result.matched
        self.lonely += len(result.only_in_reference) + len(result.only_in_candidate)
        self.findings += len(result.findings)
        self.right += len(result.findings) - len(result.extras)
        if result.kind == "clean":
            self.clean += 1
            self.clean_wrong += len(result.findings)
            self.clean_not_equal += result.verdict != "equal"
            return
        if result.wanted_stage:
            self.staged += 1
            self.stage_right += result.first_stage == result.wanted_stage
        self.codes |= {result.findings[n]["code"] for hits in result.hits.values() for n in hits}
        self.planted += len(result.faults)
        self.hit += sum(bool(hits) for hits in result.hits.values())
        self.located += sum(result.located.values())
        self.first += sum(result.first.values())

    recall = property(lambda self: ratio(self.hit, self.planted))
    located_rate = property(lambda self: ratio(self.located, self.planted))
    precision = property(lambda self: ratio(self.right, self.findings))
    top1 = property(lambda self: ratio(self.first, self.planted))
    stage = property(lambda self: ratio(self.stage_right, self.staged))
    aligned = property(lambda self: ratio(self.matched, self.matched + self.lonely))


def ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def total(results: Iterable[Result]) -> Figures:
    figures = Figures()
    for result in results:
        figures.add(result)
    return figures


def by_arch(results: Sequence[Result]) -> dict[str, Figures]:
    groups: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        groups[result.arch].append(result)
    return {name: total(group) for name, group in groups.items()}


def by_kind(results: Sequence[Result]) -> dict[str, tuple[int, int, int]]:
    """Kind of fault -> planted, found with the right cause, right cause first."""
    table: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for result in results:
        for name, kind in result.faults.items():
            row = table[kind]
            row[0] += 1
            row[1] += bool(result.hits.get(name))
            row[2] += bool(result.first.get(name))
    return {kind: (row[0], row[1], row[2]) for kind, row in sorted(table.items())}
