"""The catalogue of discrepancies through compare: ``python -m tests.catalogue.run [--only ID,...] [--write-docs]``."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch

import keras  # isort: skip  (torch first)
import ambidex
from tests.catalogue.case import NOT_HERE, Case

DOCS = Path(__file__).resolve().parents[2] / "docs" / "catalogue.md"
#: modules of this package with a table ``CASES``
PARTS = ("weights", "forward", "forward_more", "modes", "training", "training_more", "elsewhere")
WANTED = 0.9


@dataclass
class Told:
    """What compare said of one case."""

    case: Case
    right: bool
    verdict: str = ""
    codes: tuple[str, ...] = ()
    seconds: float = 0.0
    error: str = ""


def cases() -> list[Case]:
    found: list[Case] = []
    for part in PARTS:
        found += importlib.import_module(f"tests.catalogue.{part}").CASES
    doubled = [name for name, n in Counter(c.id for c in found).items() if n > 1]
    if doubled:
        raise ValueError(f"more than once in the catalogue: {doubled}")
    return found


def told(case: Case) -> Told:
    assert case.make is not None
    keras.backend.clear_session(free_memory=False)
    start = time.perf_counter()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            pair = case.make()
            report = ambidex.compare(pair.reference, pair.candidate, inputs=pair.inputs, **pair.more)
    except Exception as problem:
        return Told(case, False, error=f"{type(problem).__name__}: {problem}", seconds=time.perf_counter() - start)
    codes = tuple(f.code for f in report.findings)
    right = codes[0] in case.codes if case.codes and codes else not case.codes and not codes
    return Told(case, right, report.verdict, codes, time.perf_counter() - start)


def main() -> int:
    parser = argparse.ArgumentParser(description="The catalogue of discrepancies.")
    parser.add_argument("--only", default="", help="ids, comma-separated")
    parser.add_argument("--write-docs", action="store_true", help="write docs/catalogue.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    only = {i for i in options.only.split(",") if i}
    chosen = [c for c in cases() if not only or c.id in only]
    results = []
    for case in chosen:
        if case.make is None:
            continue
        result = told(case)
        results.append(result)
        said = result.error or f"{result.verdict} {' '.join(dict.fromkeys(result.codes))}"
        wanted = "" if result.right else f"   wanted {' or '.join(case.codes) or 'nothing'}"
        print(f"{'ok ' if result.right else 'BAD'} {case.id}  {said}{wanted}", flush=True)
    left = [c for c in chosen if c.make is None]
    share = sum(r.right for r in results) / max(len(results), 1)
    print(f"\n{len(chosen)} cases: {len(results)} run, right cause first in {100 * share:.1f} %; {len(left)} not here")
    if options.write_docs:
        DOCS.write_text(document(results, left, share))
    return 0 if share >= WANTED else 1


def document(results: list[Told], left: list[Case], share: float) -> str:
    lines = [
        "# Catalogue", "",
        "Written by `python -m tests.catalogue.run --write-docs`; do not edit. Discrepancies that people "
        "reported or that were measured, each made into a pair with that fault. Controls must stay silent.", "",
        f"{len(results)} are run, {100 * share:.1f} % with the right cause first (wanted: {100 * WANTED:.0f} %); "
        f"{len(left)} cannot be expressed here. torch {torch.__version__}, keras {keras.__version__}.", "",
        "| case | what | found first | right |", "|---|---|---|---|",
    ]  # fmt: skip
    for r in results:
        first = r.codes[0] if r.codes else (r.error.split(":")[0] or "nothing")
        note = "" if r.right else f": {r.case.note or 'wanted ' + (' or '.join(r.case.codes) or 'nothing')}"
        lines.append(f"| {r.case.id} | {r.case.title} | {first} | {'yes' if r.right else 'no' + note} |")
    lines += ["", "## Not expressed here", "", "| case | what | why |", "|---|---|---|"]
    for c in left:
        lines.append(f"| {c.id} | {c.title} | {NOT_HERE[c.not_here]}{'; ' + c.note if c.note else ''} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
