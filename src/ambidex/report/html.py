"""A report as one HTML page that needs nothing but a browser: no network, no second file."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from ambidex.core.files import write_text
from ambidex.core.report import Finding, Report
from ambidex.errors import InputError
from ambidex.report import chart, stages, view
from ambidex.report.tree import Trees, trees

_TEMPLATES = Path(__file__).parent / "templates"


def write(report: Report, path: str | Path) -> None:
    """Write the page; the file is there wholly or as it was before."""
    path = Path(path)
    text = page(report)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"cannot write the page '{path}'", reason, "Name another file with --html FILE") from error


def page(report: Report) -> str:
    """The page as text."""
    groups = view.group(report.findings)
    both = trees(report)
    style, script = _asset("report.css"), _asset("report.js")
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            report=report,
            groups=groups,
            trees=both,
            view=view,
            stages=stages,
            times=_times,
            style=Markup(style),  # noqa: S704  our own file
            script=Markup(script),  # noqa: S704  our own file
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            data=_data(both),
            floor_chart=chart.floor_chart(report),
            travel_chart=chart.travel_chart(report),
            beam=chart.beam,
            curves=chart.curves,
            row_of=_row_finder(both),
            environment=_flat(report.environment),
            lonely_first=sorted(report.weights, key=lambda w: w.reference is not None and w.candidate is not None),
        )
    )


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        finalize=_harmless,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = _breakable
    return environment


def _breakable(path: str) -> Markup:
    """A path that wraps at its separators rather than inside a word."""
    # the entities that escape() makes hold none of these separators
    return Markup(re.sub(r"([/.:_,}]+)(?=.)", r"\1<wbr>", str(escape(view.clean(path)))))  # noqa: S704


def _times(value: float | None) -> str:
    return view.times(value).replace("x", "×")


def _harmless(value: Any) -> Any:
    """Every value that a template prints passes here before it is escaped."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else view.clean(value, keep="\n\t")


@cache
def _asset(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8").strip()


def _data(both: Trees) -> Markup:
    """The rows for the script, as JSON that cannot end its script element."""
    rows = [
        {
            "r": view.clean(row.reference) if row.reference is not None else None,
            "c": view.clean(row.candidate) if row.candidate is not None else None,
            "rn": both.reference_of.get(number),
            "cn": both.candidate_of.get(number),
            "op": view.clean(row.op),
            "by": view.clean(row.matched_by),
            "st": row.status,
            "word": view.STATUS_WORDS[row.status],
            "chained": view.number(row.chained),
            "shadow": view.number(row.shadow),
            "floor": view.number(row.floor),
            "ratio": _times(row.ratio),
        }
        for number, row in enumerate(both.rows)
    ]
    text = json.dumps({"rows": rows}, separators=(",", ":"))
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(text)  # noqa: S704  no character that HTML knows is left in it


def _row_finder(both: Trees) -> Any:
    """From a finding to the number of its row, or None."""
    exact = {(row.reference, row.candidate): number for number, row in reversed(list(enumerate(both.rows)))}
    one_side = {("r", row.reference): number for number, row in reversed(list(enumerate(both.rows)))}
    one_side |= {("c", row.candidate): number for number, row in reversed(list(enumerate(both.rows)))}

    def find(finding: Finding) -> int | None:
        where = finding.where
        found = exact.get((where.reference, where.candidate))
        if found is None and where.candidate is not None:
            found = one_side.get(("c", where.candidate))
        if found is None and where.reference is not None:
            found = one_side.get(("r", where.reference))
        return found

    return find


def _flat(values: dict[str, Any], before: str = "", depth: int = 0) -> list[tuple[str, str]]:
    """``{"candidate": {"keras": "3"}}`` as ``candidate keras``, ``3``."""
    result: list[tuple[str, str]] = []
    for key, value in values.items():
        name = f"{before} {key}".strip()
        if isinstance(value, dict) and depth < 4:
            result += _flat(value, name, depth + 1)
        else:
            result.append((name, ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)))
    return result
