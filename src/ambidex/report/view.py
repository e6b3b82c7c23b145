"""What a report says, before it is drawn: grouping, wording and numbers shared by the terminal and the HTML page."""

from __future__ import annotations

import math
import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ambidex.core.report import Finding, LayerRow, Report, Status
from ambidex.report import stages

#: most serious first; decides what a module that holds several layers shows
SEVERITY: tuple[Status, ...] = ("faulty", "could_not_run", "unmatched", "skipped", "glue", "same")

STATUS_WORDS: dict[Status, str] = {
    "faulty": "faulty",
    "could_not_run": "could not run",
    "unmatched": "no partner",
    "skipped": "skipped",
    "glue": "glue code",
    "same": "same",
}

VERDICT_WORDS = {
    "equal": "Equal",
    "different": "Different",
    "undecided": "Undecided",
    "not_reproducible": "Not reproducible",
}

#: bidirectional overrides and isolates can make one name look like another
_DECEPTIVE = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def clean(text: object, keep: str = "") -> str:
    """Text with control, line-breaking and direction-changing characters written out (``\\x1b``).

    Layer names and paths come from other people's files: an escape sequence in one must not reach the terminal.
    """

    def written(char: str) -> str:
        if char in keep:
            return char
        if char in _DECEPTIVE or unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp"):
            return char.encode("unicode_escape", "surrogatepass").decode("ascii")
        return char

    return "".join(map(written, str(text)))


def number(value: float | None) -> str:
    """Two significant digits, as short as they can be said: ``0.089``, ``2.1e-7``, ``NaN``; ``-`` for unknown."""
    if value is None:
        return "-"
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "infinite" if value > 0 else "-infinite"
    if value == 0:
        return "0"
    if 0.01 <= abs(value) < 9999.5:
        return f"{value:.0f}" if abs(value) >= 99.5 else f"{value:.2g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def times(value: float | None) -> str:
    """A ratio to the floor: ``295x``."""
    text = number(value)
    return f"{text}x" if value is not None and math.isfinite(value) else text


def count(many: int, one: str, more: str | None = None) -> str:
    """``1 layer``, ``12 layers``."""
    return f"{many:,} {one if many == 1 else more or one + 's'}"


# --- places, said compactly ------------------------------------------------------------------------------------

_TOKEN = re.compile(r"\d+|[^\d]+")


def _numbers(values: Iterable[str], bare: bool) -> str:
    """``0..5`` for a run, ``{0,2,5..7}`` otherwise; ``bare`` allows a lone run to stand without braces."""
    ordered = sorted({int(value) for value in values})
    runs: list[list[int]] = []
    for value in ordered:
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    parts = [str(a) if a == b else f"{a},{b}" if b == a + 1 else f"{a}..{b}" for a, b in runs]
    text = ",".join(parts)
    return text if len(ordered) == 1 or (bare and len(runs) == 1 and ".." in text) else "{" + text + "}"


def compact_paths(paths: Iterable[str]) -> list[str]:
    """Paths that differ only in numbers, or only in their last name, as one: ``layer_0..5/norm``.

    >>> compact_paths(["layer_0/norm", "layer_1/norm", "layer_2/norm", "head"])
    ['layer_0..2/norm', 'head']
    """
    # every path is a row of slots, each the set of values it stands for; rows that differ in one slot are merged
    rows: list[tuple[tuple[str, ...], ...]] = []
    for path in dict.fromkeys(paths):
        # "01" and "1" are two names, so a number with leading zeros stays text
        rows.append(tuple((token,) for token in _TOKEN.findall(path) or [""]))
    for slot in range(max((len(row) for row in rows), default=0)):
        merged: dict[object, tuple[tuple[str, ...], ...]] = {}
        for order, row in enumerate(rows):
            mergeable = slot < len(row) and all(_is_number(value) for value in row[slot])
            key: object = (row[:slot], row[slot + 1 :], len(row)) if mergeable else order
            if key in merged:
                old = merged[key]
                merged[key] = (*old[:slot], old[slot] + row[slot], *old[slot + 1 :])
            else:
                merged[key] = row
        rows = list(merged.values())
    return _merge_last_names([_spell(row) for row in rows])


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and (text == "0" or text[0] != "0")


def _spell(row: tuple[tuple[str, ...], ...]) -> str:
    parts = []
    for position, values in enumerate(row):
        if len(values) == 1:
            parts.append(values[0])
            continue
        before = row[position - 1][0] if position else ""
        after = row[position + 1][0] if position + 1 < len(row) else ""
        parts.append(_numbers(values, bare=not before.endswith(".") and not after.startswith(".")))
    return "".join(parts)


def _merge_last_names(texts: list[str]) -> list[str]:
    """``a/query``, ``a/key`` as ``a/{query,key}``; two different modules are never merged."""
    families: dict[str, list[str]] = {}
    for text in texts:
        match = re.match(r"(.*[/.](?!\.))([^/.{},]+)$", text)
        head, last = (match[1], match[2]) if match and not match[1].endswith("..") else (text, "")
        families.setdefault(head if last else "\0" + text, []).append(last)
    result = []
    for head, lasts in families.items():
        if head.startswith("\0"):
            result.append(head[1:])
        elif len(lasts) == 1:
            result.append(head + lasts[0])
        else:
            result.append(head + "{" + ",".join(lasts) + "}")
    return result


def listed(items: Sequence[str], room: int, size: int = 10_000) -> str:
    """The first items, and how many are left: at most ``room`` of them and about ``size`` characters."""
    kept: list[str] = []
    length = 0
    for item in items[:room]:
        length += len(item) + 2
        if kept and length > size:
            break
        kept.append(item)
    left = len(items) - len(kept)
    return ", ".join(kept) + (f" and {left} more" if left else "")


# --- findings by cause -----------------------------------------------------------------------------------------


def near_path(file: str) -> str:
    """A file as it is named from here: relative to the working folder when it lies below it."""
    here = os.getcwd() + os.sep
    return file[len(here) :] if file.startswith(here) else file


@dataclass(slots=True)
class Group:
    """Findings with one cause and one fix: what a reader sees as one entry."""

    findings: list[Finding] = field(default_factory=list)

    @property
    def first(self) -> Finding:
        return self.findings[0]

    @property
    def code(self) -> str:
        return self.first.code

    @property
    def proven(self) -> bool:
        return self.first.proven

    @property
    def status(self) -> str:
        return "proven by re-running" if self.proven else "suspected"

    @property
    def candidates(self) -> list[str]:
        """Paths in the candidate, each once."""
        return list(dict.fromkeys(f.where.candidate for f in self.findings if f.where.candidate))

    @property
    def references(self) -> list[str]:
        return list(dict.fromkeys(f.where.reference for f in self.findings if f.where.reference))

    @property
    def places(self) -> list[str]:
        """Where it is: paths of the candidate, or of the reference when the candidate lacks the thing."""
        return compact_paths(self.candidates) or [f"{path} (reference)" for path in compact_paths(self.references)]

    @property
    def sources(self) -> list[str]:
        """``model.py:12,34``: the lines to edit."""
        lines: dict[str, list[int]] = {}
        for finding in self.findings:
            if finding.where.file:
                known = lines.setdefault(near_path(finding.where.file), [])
                if finding.where.line is not None and finding.where.line not in known:
                    known.append(finding.where.line)
        return [f"{name}:{','.join(map(str, sorted(found)))}" if found else name for name, found in lines.items()]

    @property
    def worst(self) -> Finding:
        """The member with the largest difference: it stands for the others in before -> after."""
        return max(self.findings, key=lambda f: _size(f.before))

    @property
    def tried(self) -> list[str]:
        return list(dict.fromkeys(cause for finding in self.findings for cause in finding.tried))

    @property
    def proofs(self) -> list[str]:
        return list(dict.fromkeys(f.proof for f in self.findings if f.proof))

    @property
    def messages(self) -> list[str]:
        return list(dict.fromkeys(f.message for f in self.findings))

    @property
    def fixes(self) -> list[str]:
        return list(dict.fromkeys(f.fix for f in self.findings if f.fix))


def _size(value: float | None) -> float:
    """For ordering: unknown last, not-a-number first."""
    return -1.0 if value is None else math.inf if math.isnan(value) else value


def _without_place(text: str, finding: Finding) -> str:
    """The text with the finding's own place blanked, so that the same advice for two layers compares equal."""
    where = finding.where
    for place in sorted(filter(None, (where.reference, where.candidate, where.file)), key=len, reverse=True):
        text = re.sub(rf"(?<![\w]){re.escape(place)}(?![\w])", "*", text)
        leaf = re.split(r"[/.]", place)[-1]
        if leaf and not leaf.isdigit():
            text = re.sub(rf"(['\"]){re.escape(leaf)}\1", "*", text)
    return text


def group(findings: Iterable[Finding]) -> list[Group]:
    """Findings grouped by code and cause, in the order given; a proven and a suspected one are never mixed."""
    groups: dict[tuple[object, ...], Group] = {}
    for finding in findings:
        fix = None if finding.fix is None else _without_place(finding.fix, finding)
        key = (finding.code, finding.stage, _without_place(finding.title, finding), fix, finding.proven)
        groups.setdefault(key, Group()).findings.append(finding)
    return list(groups.values())


# --- the verdict in words --------------------------------------------------------------------------------------


def numbers(report: Report, short: bool = False) -> str:
    """The numbers people ask for, in one line."""
    whole, coverage = report.whole_model, report.coverage
    parts = []
    if whole.max_rel is not None:
        parts.append(f"max {'rel.' if short else 'relative'} difference {number(whole.max_rel)}")
    elif whole.max_abs is not None:
        parts.append(f"max difference {number(whole.max_abs)}")
    if whole.floor_ratio is not None and math.isfinite(whole.floor_ratio):
        parts.append(f"{times(whole.floor_ratio)} floor")
    if coverage.matched or coverage.only_in_reference or coverage.only_in_candidate:
        parts.append(f"{aligned(report)} layers" + ("" if short else " aligned"))
    return ", ".join(parts)


def aligned(report: Report) -> str:
    """``31 of 34``: aligned pairs of all there is, counting what is left over on either side."""
    coverage = report.coverage
    total = coverage.matched + len(coverage.only_in_reference) + len(coverage.only_in_candidate)
    return f"{coverage.matched} of {total}"


def summary(report: Report, groups: Sequence[Group]) -> str:
    """One sentence: what the verdict means."""
    if report.verdict == "equal":
        text = "The two models compute the same, up to rounding."
        return text + (f" {count(len(groups), 'thing')} worth knowing below." if groups else "")
    if report.verdict == "not_reproducible":
        return (
            "Two runs of the same model on the same inputs gave different results, "
            "so a difference between the two models means nothing yet."
        )
    if report.verdict == "undecided":
        return "This is neither 'equal' nor 'different': " + _why_undecided(report) + "."
    if not groups:
        return "The outputs differ, and no single layer was found to be the cause."
    if report.first_stage is not None and report.first_stage not in ("data", "weights", "forward"):
        text = "The two models compute the same; their training differs, first in the "
        return text + f"{stages.name(report.first_stage)}. {_causes(report, groups)}"
    return _causes(report, groups)


def _causes(report: Report, groups: Sequence[Group]) -> str:
    places = len({f.where.candidate or f.where.reference or "" for f in report.findings})
    proven = sum(one.proven for one in groups)
    share = "all proven" if proven == len(groups) else f"{proven} proven" if proven else "none proven yet"
    return f"{count(len(groups), 'cause')} in {count(places, 'place')}, {share}."


def _why_undecided(report: Report) -> str:
    stuck = [row for row in report.layers if row.status == "could_not_run"]
    left = len(report.coverage.only_in_reference) + len(report.coverage.only_in_candidate)
    whole = report.whole_model
    if whole.max_abs is not None and math.isnan(whole.max_abs):
        return "the outputs hold NaN, and NaN cannot be compared"
    if stuck:
        return f"{count(len(stuck), 'layer')} could not be run alone"
    if not report.coverage.matched:
        return "no layer of one model could be aligned with one of the other"
    if left:
        return f"{count(left, 'layer')} could not be aligned, and the cause may be there"
    if whole.max_abs is None:
        return "the outputs of the whole models could not be compared"
    failed = [row for row in report.stages if row.status == "could_not_run"]
    if failed:
        return f"{listed([stages.name(row.stage) for row in failed], 4)} could not be run: {failed[0].note}"
    return "the difference is too close to rounding to call"


def next_steps(report: Report) -> list[str]:
    """What to do when the verdict is no answer yet."""
    if report.verdict == "not_reproducible":
        return [
            "switch off what is random: eval mode (torch: model.eval(), Keras: training=False), dropout, sampling",
            "fix the seeds, and ask for deterministic kernels; then compare again",
        ]
    if report.verdict != "undecided":
        return []
    steps = []
    stuck = [row.candidate or row.reference or "?" for row in report.layers if row.status == "could_not_run"]
    if report.whole_model.max_abs is not None and math.isnan(report.whole_model.max_abs):
        steps.append("look for NaN in the weights, or give other inputs with --inputs FILE.npz")
    if stuck:
        steps.append(f"see why these could not run: {listed(compact_paths(stuck), 4)}")
    if report.coverage.only_in_reference or report.coverage.only_in_candidate:
        steps.append("say which layers belong together with --map map.toml")
    if report.whole_model.max_abs is None and not steps:
        steps.append("let both models return the same: floating-point arrays of equal sizes (scores, no class numbers)")
    if not steps:
        steps.append("give inputs of your own with --inputs FILE.npz: real data shows more than probes")
    return steps


def without_partner(report: Report) -> tuple[list[str], list[str]]:
    """Parameters found in the reference only, and in the candidate only."""
    only_reference = [w.reference for w in report.weights if w.reference is not None and w.candidate is None]
    only_candidate = [w.candidate for w in report.weights if w.candidate is not None and w.reference is None]
    return only_reference, only_candidate


def worst_rows(report: Report, many: int) -> list[LayerRow]:
    """The layers furthest from their floor, worst first."""
    measured = [row for row in report.layers if row.ratio is not None]
    return sorted(measured, key=lambda row: _size(row.ratio), reverse=True)[:many]


def worst_status(statuses: Iterable[Status]) -> Status:
    """The most serious of several."""
    return min(statuses, key=SEVERITY.index, default="same")
