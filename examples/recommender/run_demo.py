"""The demo: one recommender in two frameworks, the metric differs, ambidex says where, why and what to write.

    make demo

Exit code 0: the demo ran as it should (every fault found and proven, the repaired twin the same); 1: it did not;
2: it could not run. Everything that takes long is kept in ``$AMBIDEX_CACHE`` (``~/.cache/ambidex``).
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parent))

from data import Data, auc, cache_folder, fetch, load  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: E402
from rich.table import Table  # noqa: E402

import ambidex  # noqa: E402
from ambidex.cli.words import foreign_code  # noqa: E402
from ambidex.core.files import write_text  # noqa: E402
from ambidex.core.report import Report  # noqa: E402
from ambidex.errors import AmbidexError  # noqa: E402
from ambidex.report import html, json_, text  # noqa: E402

OUT = Path(__file__).resolve().parents[2] / "out" / "demo"
ROWS = 64  #: impressions that compare is given
#: what the twin was given on purpose (README): rule code, and the places it is in
PLANTED = {"AMB101": 3, "AMB110": 1, "AMB111": 1, "AMB160": 1, "AMB320": 1}

console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 100, highlight=False)


@contextmanager
def step(title: str) -> Iterator[Callable[[float, str], None]]:
    """A bar while it runs on a terminal, one line when it is done; call what it gives with the part done."""
    start = time.perf_counter()
    columns = (TextColumn("  {task.description}"), BarColumn(bar_width=24), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task(title, total=1.0)

        def progress(part: float, note: str = "") -> None:
            bars.update(task, completed=part, description=f"{title} {note}".strip())

        yield progress
    console.print(f"  [dim]{title}: {time.perf_counter() - start:.1f} s[/dim]")


def percent(value: float, reference: float) -> str:
    return f"{round(100 * (value - reference) / reference, 2) + 0.0:+.2f} %"  # + 0.0: no minus zero


def metrics(data: Data, logits: Any) -> tuple[float, float]:
    """AUC on the validation part, and the loss there that the torch side trains with."""
    import torch
    from model_torch import loss

    labels = data.validation.clicked
    return auc(labels, logits), float(loss(torch.from_numpy(logits), torch.from_numpy(labels)))


def keras_logits(model: Any, data: Data, progress: Callable[[float, str], None]) -> Any:
    import numpy as np

    parts = []
    for done, batch in enumerate(data.validation.batches(2048), 1):
        parts.append(model.predict_on_batch(batch))
        progress(min(1.0, done * 2048 / len(data.validation)), "")
    return np.concatenate(parts)


def table(rows: list[tuple[str, tuple[float, float]]]) -> Table:
    reference = rows[0][1]
    out = Table(box=None, padding=(0, 2), header_style="dim")
    for title in ("validation", "AUC", "", "loss", ""):
        out.add_column(title, justify="left" if title == "validation" else "right", no_wrap=True)
    for number, (name, (area, value)) in enumerate(rows):
        off = ("", "") if number == 0 else (percent(area, reference[0]), percent(value, reference[1]))
        out.add_row(name, f"{area:.5f}", off[0], f"{value:.5f}", off[1])
    return out


def _short(path: Path) -> str:
    """Relative to where the user stands, if that is shorter."""
    return min(str(path), os.path.relpath(path), key=len)


def judge(report: Report) -> list[str]:
    """What the report should have said and did not (the faults are planted, so the demo knows)."""
    wrong = []
    if report.verdict != "different":
        wrong.append(f"the verdict is '{report.verdict}', not 'different'")
    for code, places in PLANTED.items():
        proven = [finding for finding in report.findings if finding.code == code and finding.proven]
        if len(proven) != places:
            wrong.append(f"{code} is proven in {len(proven)} places, not in {places}")
    after = report.whole_model.after_fixes
    if after is None or after > 1e-5:
        wrong.append(f"with every proven fix the outputs are {after} apart")
    for finding in report.findings:
        if finding.code not in PLANTED:
            wrong.append(f"{finding.code} ({finding.title}) is no planted fault")
    return wrong


def main() -> int:
    console.print("\n[bold]A click-through recommender, written twice[/bold]")
    console.print(
        "  PyTorch: examples/recommender/model_torch.py   Keras: examples/recommender/model_keras.py\n", soft_wrap=True
    )
    with step("MovieLens-100K, downloaded once, split by time"):
        fetch()
        data = load()
    with step("loading PyTorch and TensorFlow"), foreign_code(debug=False):
        import train  # isort: skip  (torch before TensorFlow: the other way round crashes on some machines)
        import model_keras
        import model_torch
        import weights
    with step(f"training the PyTorch model once, {train.STEPS} steps") as progress:
        reference = train.trained(data, lambda done, total: progress(done / total, ""))
    logits = train.scores(reference, data.validation)
    expected = metrics(data, logits)
    with step("the Keras twin with the same weights") as progress:
        twin = model_keras.build()
        weights.keras_from_torch(reference, twin)
        seen = metrics(data, keras_logits(twin, data, progress))
    console.print(table([("PyTorch", expected), ("Keras, same weights", seen)]))
    console.print("  [bold]The same weights, the same data, another metric.[/bold] Which layer is it?\n")

    with step("ambidex compare") as progress:
        report = ambidex.compare(
            reference,
            model_keras.build(),
            inputs=data.validation.sample(ROWS),
            weights="carry",
            training={
                "reference": {"loss": model_torch.loss},
                "candidate": {"loss": model_keras.loss(), "class_weight": model_keras.CLASS_WEIGHT},
            },
            targets=data.validation.labels(ROWS),
            progress=lambda name, part: progress(part, name),
        )
    report.reference, report.candidate = "model_torch.py:build", "model_keras.py:build"
    page, record = (OUT / name for name in ("report.html", "report.json"))
    OUT.mkdir(parents=True, exist_ok=True)
    html.write(report, page)
    write_text(record, json_.dumps(report))
    console.print()
    text.render(report, console, json_path=_short(record), html_path=_short(page))
    console.print()

    with step("the twin with these lines changed (model_keras.py:build_fixed)") as progress:
        fixed = model_keras.build_fixed()
        weights.keras_from_torch(reference, fixed)
        after = keras_logits(fixed, data, progress)
    console.print(table([("PyTorch", expected), ("Keras, as it was", seen), ("Keras, repaired", metrics(data, after))]))
    console.print(f"\n  the report as a page  [bold]{page}[/bold]", soft_wrap=True)
    console.print(f"  kept between runs     {cache_folder()}\n", soft_wrap=True)

    wrong = judge(report)
    if (off := float(abs(after - logits).max())) > 1e-4:
        wrong.append(f"the repaired twin's logits are {off:.1e} off")
    for line in wrong:
        console.print(f"  [bold red]not as intended:[/bold red] {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    warnings.filterwarnings("ignore")  # framework chatter; ambidex reports its own warnings as findings and notes
    try:
        sys.exit(main())
    except AmbidexError as error:
        Console(stderr=True).print(f"[bold red]demo:[/bold red] {error}", soft_wrap=True)
        sys.exit(2)
