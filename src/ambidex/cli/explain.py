"""``ambidex explain CODE``: the page of a rule."""

from __future__ import annotations

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
    chosen = sorted(_all(), key=lambda rule: rule.code) if code is None else [_find(code)]
    if json is not None:
        pages = [_page(rule) for rule in chosen]
        words.put_json(json, words.as_json({"format": 1, "rules": pages}))
    if json == "-":
        return 0
    if code is None:
        for rule in chosen:
            words.out(f"{rule.code}  {rule.title}")
    else:
        _show(_text(chosen[0]))
    return 0


def _show(text: str) -> None:
    """Markdown: drawn on a terminal, as it is everywhere else."""
    import sys

    from ambidex.cli import words

    if not sys.stdout.isatty():
        words.out(text)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(words.printable(text)))


def _text(rule: Any) -> str:
    from ambidex import rules

    return str(rules.page(rule)).rstrip()


def _page(rule: Any) -> dict[str, Any]:
    return {"code": rule.code, "name": rule.name, "title": rule.title, "stage": rule.stage, "text": _text(rule)}


def _find(code: str) -> Any:
    """A rule by code, number or name, in any case; the nearest ones when there is none."""
    import difflib

    asked = code.strip().lower()
    known: dict[str, Any] = {}
    for rule in _all():
        known[rule.code.lower()] = known[rule.code[3:]] = known[rule.name.lower()] = rule
    if asked in known:
        return known[asked]
    same_start = [name for name in known if asked and name.startswith(asked)]
    near = same_start or difflib.get_close_matches(asked, list(known), n=3, cutoff=0.5)
    rules = list({known[name].code: known[name] for name in near}.values())
    some = "; ".join(f"{rule.code} ({rule.title})" for rule in rules[:3])
    todo = f"The nearest: {some}. List all with `ambidex explain`" if some else "List all with `ambidex explain`"
    raise InputError(f"there is no rule '{code}'", todo=todo)


def _all() -> list[Any]:
    from ambidex import rules

    return list(rules.all_rules())
