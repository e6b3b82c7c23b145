"""The command line: one small module a command. Nothing here computes; see ``ambidex.api``."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of ``ambidex`` and ``python -m ambidex``; ends the process with the exit code."""
    import sys

    from ambidex.cli.guard import run

    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))
