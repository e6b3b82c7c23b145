"""The quality figure: every case of the zoo through compare, and the table over them.

``python -m tests.score.run [--only TEXT] [--kinds single,combo,clean] [--jobs N] [--json FILE] [--write-docs]``
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.score import zoo
from tests.score.scoring import Figures, Result, by_arch, by_kind, total

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs" / "score.md"
#: what the figures must reach: recall, precision, right cause first, aligned layers, first stage that differs
MUST = {"recall": 0.98, "precision": 0.98, "top1": 0.95, "aligned": 0.98, "stage": 0.97}


def run_arch(name: str, only: str, kinds: str) -> tuple[list[Result], str]:
    """All cases of one architecture in a process of its own; what went wrong with the process itself, if anything."""
    env = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1",
           "TF_CPP_MIN_LOG_LEVEL": "3", **os.environ}  # fmt: skip
    command = [sys.executable, "-m", "tests.score.worker", name, "--only", only, "--kinds", kinds]
    done = subprocess.run(command, cwd=ROOT, env=env, text=True, capture_output=True)
    results = [Result(**json.loads(line)) for line in done.stdout.splitlines() if line.strip()]
    problem = "" if done.returncode == 0 else done.stderr.strip()[-2000:]
    return results, problem


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def row(name: str, f: Figures) -> list[str]:
    each = f"{f.seconds / f.cases:.1f}" if f.cases else "-"
    return [name, str(f.planted), percent(f.recall), percent(f.precision), percent(f.top1), percent(f.aligned),
            f"{f.clean_wrong} on {f.clean}", str(f.crashed), each]  # fmt: skip


HEAD = ["architecture", "planted", "recall", "precision", "cause first", "aligned", "on clean", "crashed", "s each"]


def aligned_text(table: list[list[str]]) -> str:
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    lines = []
    for line in table:
        lines.append("  ".join(cell.ljust(w) if i == 0 else cell.rjust(w)
                               for i, (cell, w) in enumerate(zip(line, widths, strict=True))))  # fmt: skip
    return "\n".join(lines)


def markdown(table: list[list[str]]) -> str:
    head, *rest = ["| " + " | ".join(line) + " |" for line in table]
    return "\n".join([head, "|---" + "|---:" * (len(table[0]) - 1) + "|", *rest])


def tables(results: list[Result]) -> tuple[list[list[str]], list[list[str]]]:
    archs = [HEAD, *(row(name, f) for name, f in by_arch(results).items()), row("all", total(results))]
    kinds = [["kind of fault", "planted", "found", "cause first"]]
    kinds += [[kind, str(n), str(hit), str(first)] for kind, (n, hit, first) in by_kind(results).items()]
    return archs, kinds


def place(finding: dict[str, Any]) -> str:
    where = finding["where"]
    return f"{where['reference'] or '-'} | {where['candidate'] or '-'}"


def described(finding: dict[str, Any]) -> str:
    proven = ", proven" if finding["proven"] else ""
    return f"{finding['code']} {finding['title']} at {place(finding)}{proven}: {finding['message'][:160]}"


def problems(result: Result) -> list[str]:
    """Every miss, second place and extra of one case, with what was reported."""
    lines: list[str] = []
    if result.error:
        lines.append(f"crashed: {result.error}")
    for name, kind in result.faults.items():
        if not result.hits[name]:
            lines.append(f"missed {name} ({kind}){', its place was named' if result.located[name] else ''}")
        elif not result.first[name]:
            lines.append(f"not first: {name} ({kind})")
    lines += [f"{'other cause' if n in result.misplaced else 'extra'}: {described(result.findings[n])}"
              for n in result.extras]  # fmt: skip
    if result.kind == "clean" and result.verdict != "equal" and not result.error:
        lines.append(f"clean, but the verdict is {result.verdict}")
    if lines and result.only_in_reference + result.only_in_candidate:
        lines.append(f"unaligned: {result.only_in_reference} | {result.only_in_candidate}")
    return lines


def counts(results: list[Result]) -> str:
    number = {kind: sum(r.kind == kind for r in results) for kind in ("single", "combo", "clean")}
    figures = total(results)
    staged = "" if figures.stage is None else f", first stage right {percent(figures.stage)} of {figures.staged}"
    return (f"{number['single']} mutants with one fault, {number['combo']} with two to four, "
            f"{number['clean']} clean pairs, {len({r.arch for r in results})} architectures; "
            f"{len(figures.codes)} rules found their fault{staged}")  # fmt: skip


def reached(figures: Figures) -> bool:
    rates = {name: getattr(figures, name) for name in MUST}
    return all(rates[n] is None or rates[n] >= least for n, least in MUST.items()) and not figures.clean_wrong


def machine() -> str:
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        named = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = named[0].split(":", 1)[1].strip() if named else cpu
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cpu}, {cores} cores, {platform.system()}, Python {platform.python_version()}"


def versions() -> str:
    found = []
    for name in ("torch", "tensorflow-cpu", "keras", "onnx", "numpy"):
        try:
            found.append(f"{name} {version(name)}")
        except ModuleNotFoundError:
            continue
    return ", ".join(found)


def document(results: list[Result], seconds: float) -> str:
    archs, kinds = tables(results)
    figures = total(results)
    parts = [
        "# Score", "",
        "Written by `python -m tests.score.run --write-docs`; do not edit. "
        "A zoo of pairs (a torch module and its Keras twin as another person "
        "writes it) goes through `ambidex.compare`, with faults planted in the candidate and without.", "",
        f"{counts(results)}; {seconds:.0f} s in all.", "",
        f"Machine: {machine()}. Versions: {versions()}.", "",
        "* recall: planted faults for which a finding names the place and the cause",
        "* precision: findings that name the place and the cause of a planted fault",
        "* cause first: planted faults where the first finding at that place names the cause",
        "* aligned: layers with a partner, of all layers",
        "* first stage right: the stage of training that is named as the first to differ is that of the fault",
        "* on clean: findings on clean pairs", "",
        markdown(archs), "", markdown(kinds), "",
        f"Wanted: recall and precision {MUST['recall']}, cause first {MUST['top1']}, aligned {MUST['aligned']}, "
        f"first stage {MUST['stage']}, nothing on clean pairs: {'reached' if reached(figures) else 'not reached'}.", "",
    ]  # fmt: skip
    missed = [(r.title, problems(r)) for r in results if problems(r)]
    if missed:
        parts += ["## What is wrong", ""]
        for title, lines in missed:
            parts += [f"* `{title}`", *(f"    * {line}" for line in lines)]
        parts.append("")
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description="The quality figure over the zoo of model pairs.")
    parser.add_argument("--only", default="", help="an architecture, or text in a case's title (arch[fault+fault])")
    parser.add_argument("--kinds", default="single,combo,clean", help="of single, combo, clean; comma-separated")
    parser.add_argument("--jobs", type=int, default=2, help="architectures at the same time")
    parser.add_argument("--json", type=Path, help="write every case's result here")
    parser.add_argument("--write-docs", action="store_true", help=f"write {DOCS.relative_to(ROOT)}")
    options = parser.parse_args()
    if options.only in zoo.ARCHITECTURES:
        names, only = [options.only], ""
    else:
        prefix = options.only.split("[")[0] if "[" in options.only else ""
        names = [prefix] if prefix in zoo.ARCHITECTURES else list(zoo.ARCHITECTURES)
        only = options.only
    start = time.perf_counter()
    results: list[Result] = []
    broken: list[str] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        running = {pool.submit(run_arch, name, only, options.kinds): name for name in names}
        for future in as_completed(running):
            found, problem = future.result()
            results += found
            if problem:
                broken.append(f"{running[future]}: the process ended badly\n{problem}")
            print(f"{running[future]}: {len(found)} cases, {time.perf_counter() - start:.0f} s", file=sys.stderr)
    if not results:
        print("no case fits" if not broken else "\n".join(broken), file=sys.stderr)
        return 2
    order = {name: n for n, name in enumerate(zoo.ARCHITECTURES)}
    results.sort(key=lambda r: order[r.arch])  # stable: the cases of one architecture keep their order
    for result in results:
        lines = problems(result)
        if lines:
            print(result.title, *(f"    {line}" for line in lines), sep="\n")
    archs, kinds = tables(results)
    print(f"\n{aligned_text(archs)}\n\n{aligned_text(kinds)}\n\n{counts(results)}; {time.perf_counter() - start:.0f} s")
    print(*broken, sep="\n", end="\n" if broken else "")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps([r.plain() for r in results], indent=1) + "\n")
    if options.write_docs:
        DOCS.write_text(document(results, time.perf_counter() - start))
    return 0 if reached(total(results)) and not broken and not any(r.error for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
