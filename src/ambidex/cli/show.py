"""A report in the forms that were asked for; shared by ``compare`` and ``report``."""

from __future__ import annotations

from ambidex.core.report import Report


def show(
    result: Report, *, json_path: str | None = None, html_path: str | None = None, patch_path: str | None = None
) -> None:
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
    if patch_path is not None:
        _write_patch(result, patch_path, quiet="-" in (json_path, patch_path))


def _write_patch(result: Report, path: str, *, quiet: bool) -> None:
    """The diff, and in a line or two what is in it; the rest, each with the reason."""
    import os

    from ambidex import api
    from ambidex.cli import words
    from ambidex.report import view

    made = api.patch(result)
    words.put_text(path, made.text)
    if quiet:
        return
    lines = [f"{path}: {view.count(len(made.mended), 'finding')} of {len(result.findings)} mended"]
    if made.text:
        folder = "" if made.root == os.getcwd() else f" -d {made.root}"
        lines.append(f"  apply it with: patch -p1{folder} < {path}")
    lines += [f"  left: {f.code} at {f.where.candidate or f.where.reference or '-'}: {why}" for f, why in made.left[:6]]
    if len(made.left) > 6:
        lines.append(f"  and {len(made.left) - 6} more")
    for line in lines:
        words.out(line)
