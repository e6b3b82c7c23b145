"""The commands, each loaded with its imports; frameworks only when a command opens a model."""

from __future__ import annotations

from typing import Annotated

import typer

from ambidex.cli import check, compare, explain, record, report

app = typer.Typer(
    name="ambidex",
    help="One deep-learning model, two implementations: which layers differ, why, and the proof.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 same, 1 findings, 2 could not run, 3 not reproducible.",
)


def _version(asked: bool) -> None:
    if asked:
        from ambidex import __version__

        print(f"ambidex {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command("compare", short_help="Find every faulty layer, its cause, the proof.")(compare.compare)
app.command("record", short_help="Keep a run, to be compared elsewhere.")(record.record)
app.command("check", short_help="Show the environment and what is wrong with it.")(check.check)
app.command("explain", short_help="Explain a finding, or list all rules.")(explain.explain)
app.command("report", short_help="Show saved reports again.")(report.report)
