"""``ambidex report FILE.json ...``: render reports again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ambidex.cli import options
from ambidex.errors import AmbidexError, InputError

if TYPE_CHECKING:
    from ambidex.core.report import Report

#: a report of a large model has a few megabytes; a file far beyond that is something else
_MAX_BYTES = 256_000_000


def report(
    files: Annotated[list[str], typer.Argument(metavar="FILE.json", help="Reports written by `compare --json`.")],
    html: options.Html = None,
    json: options.Json = None,
    debug: options.Debug = False,
) -> int:
    """Show reports that `compare --json` wrote, as text or as an HTML page. The worst exit code of them is returned."""
    from ambidex.cli import words
    from ambidex.cli.show import show

    if len(files) > 1 and (html is not None or json is not None):
        raise InputError(f"{len(files)} reports cannot go into one file", todo="Name one report with --html or --json")
    words.check_writable(json, html)
    results = [(file, _read(file)) for file in files]
    worst = 0
    for number, (file, result) in enumerate(results):
        if len(files) > 1:
            words.out(("\n" if number else "") + file)
        show(result, json_path=json, html_path=html)
        worst = max(worst, result.exit_code)
    return worst


def _read(file: str) -> Report:
    from ambidex.core.arrayfile import Damaged, regular_size
    from ambidex.core.usercode import existing_file
    from ambidex.report import json_

    path = existing_file(file)
    try:
        if regular_size(path) > _MAX_BYTES:
            raise Damaged(f"it is larger than {_MAX_BYTES // 1_000_000} MB")
        return json_.loads(Path(path).read_text(encoding="utf-8"))
    except (Damaged, UnicodeDecodeError) as error:
        why = str(error) if isinstance(error, Damaged) else "it is no UTF-8 text"
        raise InputError(f"'{file}' is no ambidex report", why) from None
    except AmbidexError as error:
        raise type(error)(f"'{file}': {error.what}", error.why, error.todo) from error
