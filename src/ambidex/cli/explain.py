"""``ambidex explain CODE``: the page of a rule."""

from __future__ import annotations

import inspect
from typing import Annotated, Any, Optional

import typer

from ambidex.cli import options
from ambidex.errors import InputError


def explain(
    code: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(metavar="CODE", help="A rule's code, such as AMB101; without it all rules are listed."),
    ] = None,
    json: options.Json = None,
    debug: options.Debug = False,
) -> int:
    """Explain a finding: what goes wrong, how it shows, what to write instead."""
    from ambidex.cli import words

    words.check_writable(json)
    chosen = sorted(_all(), key=lambda rule: str(rule.code)) if code is None else [_find(code)]
    if json is not None:
        pages = [_page(rule) for rule in chosen]
        words.put_json(json, words.as_json({"format": 1, "rules": pages}))
    if json == "-":
        return 0
    for rule in chosen:
        if code is None:
            words.out(f"{rule.code}  {rule.title}")
        else:
            words.out(f"{rule.code}: {rule.title}\n\n{inspect.cleandoc(rule.__doc__ or '')}")
    return 0


def _page(rule: Any) -> dict[str, Any]:
    text = inspect.cleandoc(rule.__doc__ or "")
    return {"code": rule.code, "name": rule.name, "title": rule.title, "stage": rule.stage, "text": text}


def _all() -> list[Any]:
    from ambidex import rules

    return list(rules.all_rules())


def _find(code: str) -> Any:
    """A rule by code or name, in any case; the nearest ones when there is none."""
    import difflib

    asked = code.strip().lower()
    known: dict[str, Any] = {}
    for rule in _all():
        known[str(rule.code).lower()] = rule
        known[str(rule.name).lower()] = rule
    if asked in known:
        return known[asked]
    close = difflib.get_close_matches(asked, list(known), n=1, cutoff=0.5)
    near = f"The nearest is {known[close[0]].code} ({known[close[0]].title})" if close else ""
    raise InputError(f"there is no rule '{code}'", todo=f"{near}. List all with `ambidex explain`".lstrip(". "))
