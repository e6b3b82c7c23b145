"""A report in the forms that were asked for; shared by ``compare`` and ``report``."""

from __future__ import annotations

from ambidex.core.report import Report


def show(result: Report, *, json_path: str | None = None, html_path: str | None = None) -> None:
    """Files first, so that the text can say where they are; ``--json -`` prints nothing else."""
    from ambidex.cli import words

    if html_path is not None:
        from ambidex.report import html

        html.write(result, html_path)
    if json_path is not None:
        from ambidex.report import json_

        words.put_json(json_path, json_.dumps(result))
    if json_path != "-":
        from rich.console import Console

        from ambidex.report import text

        text.render(result, Console(highlight=False), json_path=json_path, html_path=html_path)
