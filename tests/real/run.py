"""``python -m tests.real.run [ID ...]``: run the real pairs through the command line, print the table.

Exit code 0: everything is as declared in ``cases.py``; 1: something is not; 2: the packages could not be installed.
``--keep FOLDER`` keeps the reports there.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.real import packages
from tests.real.cases import CASES, Case
from tests.real.judge import mistakes, refusal_mistakes


@dataclass
class Row:
    """What one pair gave."""

    case: Case
    outcome: str
    findings: int = 0
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)


def run(case: Case, site: Path, folder: Path) -> Row:
    """One pair in a process of its own."""
    target = folder / f"{case.id}.json"
    target.unlink(missing_ok=True)
    command = [sys.executable, "-m", "ambidex", "compare", case.spec(case.reference), case.spec(case.candidate)]
    command += ["--inputs", case.spec(case.inputs), "--weights", case.weights, "--json", str(target)]
    begin = time.perf_counter()
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=_surroundings(case, site), timeout=case.seconds
        )
    except subprocess.TimeoutExpired:
        return Row(case, "no answer", seconds=case.seconds, wrong=[f"took longer than {case.seconds:.0f} s"])
    row = Row(case, "", seconds=time.perf_counter() - begin)
    said = done.stderr.strip().splitlines()
    last = said[-1] if said else ""
    if case.refused:
        row.outcome = "refused" if done.returncode == 2 else f"exit code {done.returncode}"
        row.wrong = list(refusal_mistakes(case, done.returncode, last))
        return row
    if not target.is_file():
        row.outcome, row.wrong = f"exit code {done.returncode}", [last or "it said nothing"]
        return row
    report = json.loads(target.read_text(encoding="utf-8"))
    row.outcome, row.findings = report["verdict"], len(report["findings"])
    row.wrong = list(mistakes(case, report))
    return row


def _surroundings(case: Case, site: Path) -> dict[str, str]:
    """The environment of a pair: offline, quiet, and where the packages are."""
    env = dict(os.environ)
    env["AMBIDEX_REAL_SITE"] = str(site)
    env |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": ""}
    env |= {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"}
    env.pop("TF_USE_LEGACY_KERAS", None)
    if case.legacy:
        env["TF_USE_LEGACY_KERAS"] = "1"
    return env


def chosen(names: list[str]) -> list[Case]:
    """The named cases, all when none is named. Raises KeyError for an unknown name."""
    known = {case.id: case for case in CASES}
    return [known[name] for name in names] or list(CASES)


@contextlib.contextmanager
def _reports(keep: str | None) -> Iterator[Path]:
    if keep is not None:
        folder = Path(keep)
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="ambidex-real-") as made:
        yield Path(made)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.real.run", description="Real pairs through the command line."
    )
    parser.add_argument("ids", nargs="*", help="pairs to run; all when none is named")
    parser.add_argument("--keep", metavar="FOLDER", help="keep the JSON reports there")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="pairs at a time")
    given = parser.parse_args(arguments)
    try:
        cases = chosen(given.ids)
    except KeyError as error:
        parser.error(f"there is no pair {error}, there are {', '.join(case.id for case in CASES)}")
    try:
        site = packages.ensure()
    except packages.NotInstalled as error:
        print(f"make real: {error}", file=sys.stderr)
        return 2
    rows: list[Row] = []
    begin = time.perf_counter()
    print(f"{'pair':26} {'outcome':18} {'findings':>8} {'seconds':>8}  as declared")
    with _reports(given.keep) as folder, ThreadPoolExecutor(given.jobs) as pool:
        for row in pool.map(partial(run, site=site, folder=folder), cases):
            rows.append(row)
            told = "yes" if not row.wrong else f"NO: {row.wrong[0]}"
            print(f"{row.case.id:26} {row.outcome:18} {row.findings or '':>8} {row.seconds:8.1f}  {told}", flush=True)
            for line in row.wrong[1:]:
                print(f"{'':64}  {line}", flush=True)
    bad = sum(bool(row.wrong) for row in rows)
    print(f"{len(rows)} pairs, {len(rows) - bad} as declared, {bad} not; {time.perf_counter() - begin:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
