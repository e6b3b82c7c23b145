"""A rule of another package passes the checks of the built-in ones and speaks."""

from __future__ import annotations

from pathlib import Path

from tests.unit.test_plugins import package, run

__all__ = ["package"]


def test_it_passes_the_checks_of_the_built_in_ones_and_speaks(package: Path) -> None:
    code = "from ambidex import rules, testing; print(testing.check_rule(rules.find('ACME101')))"
    done = run(package, "-c", code)
    assert done.returncode == 0 and int(done.stdout) == 8, done.stderr
