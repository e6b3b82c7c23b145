"""Progress on stderr, for a person: only on a terminal, and only when it takes longer than two seconds."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import Any

PATIENCE = 2.0


class StepProgress:
    """Call it with a step's name and how much of the step is done (0..1). One line a step.

    A timer shows the lines, and not the next call: the first step may be the long one.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self._lock = threading.Lock()
        self._steps: dict[str, float] = {}
        self._tasks: dict[str, Any] = {}
        self._shown: Any = None
        self._closed = False
        self._timer = threading.Timer(patience, self._show)
        self._timer.daemon = True

    def __enter__(self) -> StepProgress:
        if sys.stderr.isatty():
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self._closed = True
            shown, self._shown = self._shown, None
        if shown is not None:
            shown.stop()

    def __call__(self, step: str, fraction: float) -> None:
        fraction = min(max(float(fraction), 0.0), 1.0)
        with self._lock:
            if step not in self._steps:  # a new step: those before it are done
                self._steps = dict.fromkeys(self._steps, 1.0)
            self._steps[step] = fraction
            if self._shown is not None:
                self._refresh()

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TimeElapsedColumn())
        progress = Progress(*columns, console=Console(file=sys.stderr), transient=True)
        with self._lock:
            if self._closed:
                return
            self._shown = progress
            progress.start()
            self._refresh()

    def _refresh(self) -> None:
        for step, fraction in self._steps.items():
            if step not in self._tasks:
                self._tasks[step] = self._shown.add_task(step, total=1.0)
            self._shown.update(self._tasks[step], completed=fraction)
