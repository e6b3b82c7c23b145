"""Rules of another package, found by its entry point; each in a process of its own, as an installed package is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

RULE = '''
from ambidex.core.rule import Cause, Example, Side
from ambidex.rules import rule
from ambidex.rules.words import Known

@rule
class Negated(Known):
    """The activation of ACME is applied to the negated value.

    How it shows: outputs mirrored at zero.

    Why it happens: the first version of the ACME layer did so.
    """

    code, name, title = "{code}", "acme-negated", "ACME activation negated"
    weight, kinds, ops, names = 99, ("attr",), ("Elu",), ("alpha",)
    sample = Cause("attr", "Elu", "alpha", 1.0, 0.5)
    examples = (
        Example(Side("Elu", {{"alpha": 1.0}}), Side("Elu", {{"alpha": 0.5}}), True),
        Example(Side("Elu", {{"alpha": 1.0}}), Side("Elu", {{"alpha": 1.0}}), False),
    )

    def message(self, cause):
        return f"The candidate has {{cause.candidate}}, the reference {{cause.reference}}."

    def fix(self, cause):
        return "nn.ELU(1.0)"
'''


@pytest.fixture
def package(tmp_path: Path) -> Path:
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ambidex.rules]\nacme = acme_rules\n")
    (tmp_path / "acme_rules.py").write_text(RULE.format(code="ACME101"))
    return tmp_path


def run(folder: Path, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(folder), **more}
    return subprocess.run([sys.executable, *command], env=env, capture_output=True, text=True, timeout=120)


def test_an_installed_rule_is_listed_and_explained(package: Path) -> None:
    done = run(package, "-m", "ambidex", "explain")
    assert done.returncode == 0 and "ACME101  ACME activation negated" in done.stdout
    assert "outputs mirrored" in run(package, "-m", "ambidex", "explain", "ACME101").stdout.lower()
    assert "ACME101" not in run(package, "-m", "ambidex", "explain", AMBIDEX_PLUGINS="0").stdout


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (RULE.format(code="AMB998"), "the letters AMB"),
        (RULE.format(code="ACME101").replace("How it shows", ""), None),
        (RULE.format(code="ACME1"), "is not of the form"),
        (RULE.format(code="ACME101").replace("examples = (", "other = ("), "example"),
        ("import no_such_module", "no_such_module"),
    ],
)  # fmt: skip
def test_a_bad_package_is_named(package: Path, text: str, words: str | None) -> None:
    (package / "acme_rules.py").write_text(text)
    done = run(package, "-m", "ambidex", "explain")
    if words is None:
        assert done.returncode == 0
        return
    assert done.returncode == 2 and words in done.stderr and "acme" in done.stderr, done.stderr
    assert "AMBIDEX_PLUGINS=0" in done.stderr and "Traceback" not in done.stderr
