"""Golden tests: what a model computed once, and a test that every implementation of it still does.

``write`` makes a folder with the recorded run (inputs, weights, outputs of every layer), ``golden.json`` (shape, range
and mean of what each module gives, to be read and reviewed) and ``test_golden.py`` for pytest. ``check`` is what that
test calls: it compares a model, of either framework, with the recorded run, and a model with the same modules with
their recorded shapes and ranges as well.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ambidex.core import tracefile
from ambidex.core.files import write_text
from ambidex.core.report import Report
from ambidex.core.trace import Trace
from ambidex.core.types import Array
from ambidex.errors import InputError, TraceError

FORMAT = 1
#: by how much a recorded range may be left, as a share of the largest recorded value: other builds round otherwise
SHARE = 1e-4

_TEST = '''"""Golden test of {spec}: recorded with ``ambidex record {spec} --golden ...``.

MODELS lists the implementations of this model. Each is built anew, gets the recorded weights and inputs, and must
compute what was recorded, layer by layer. Add the other implementation here, as "file.py:factory" seen from ROOT.
"""

from pathlib import Path

import pytest

from ambidex import golden

HERE = Path(__file__).parent
ROOT = HERE.joinpath({root!r}).resolve()
MODELS = [{spec!r}]


@pytest.mark.parametrize("model", MODELS)
def test_computes_what_was_recorded(model: str) -> None:
    golden.check(HERE, str(ROOT / model))
'''


def write(trace: Trace, folder: str | Path, spec: str) -> Path:
    """Write the golden folder. ``test_golden.py`` is left alone where it is there already: people add to it."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tracefile.save_trace(trace, folder / "trace")
        content = {
            "format": FORMAT,
            "model": spec,
            "framework": trace.framework,
            "versions": trace.versions,
            "inputs": {n: _described(a) for n, a in trace.inputs.items()},
            "outputs": {n: _described(a) for n, a in trace.outputs.items()},
            "modules": _modules(trace),
        }
        write_text(folder / "golden.json", json.dumps(content, indent=1, allow_nan=False) + "\n")
        test = folder / "test_golden.py"
        if not test.exists():
            root = Path(*[".."] * len(folder.resolve().relative_to(Path.cwd().resolve()).parts) or ["."])
            write_text(test, _TEST.format(spec=spec, root=root.as_posix()))
    except ValueError:
        raise InputError(
            f"'{folder}' does not lie below this folder",
            "the test names the model from here",
            "Run the command in the project's folder",
        ) from None
    except OSError as error:
        raise InputError(f"cannot write the golden test '{folder}'", error.strerror or str(error)) from error
    return folder


def check(folder: str | Path, model: Any, *, weights: Literal["carry", "keep"] = "carry") -> Report:
    """Compare a model with the recorded run; AssertionError with the whole report when it is not equal.

    ``model``: a live model or a spec, of any framework. ``weights="carry"`` gives it the recorded weights first,
    ``"keep"`` judges those that it has. Raises TraceError when the folder holds no golden test.
    """
    from ambidex import api

    folder = Path(folder)
    summary = _summary(folder)
    report = api.compare(str(folder / "trace"), model, weights=weights)
    if report.verdict != "equal":
        raise AssertionError(
            f"{api.label(model)} does not compute what was recorded of {summary['model']}\n\n{_text(report)}"
        )
    _check_modules(summary, folder, model, weights)
    return report


def _check_modules(summary: dict[str, Any], folder: Path, model: Any, weights: str) -> None:
    """Shapes and ranges, of a model that has the recorded modules under the recorded names."""
    from ambidex.adapters import open_model
    from ambidex.engine.recording import record_trace

    recorded = tracefile.load_trace(folder / "trace")
    opened = open_model(model)
    if isinstance(opened, Trace):
        return
    try:
        if opened.framework != recorded.framework:
            return
        if weights == "carry":
            shapes, known = ({n: a.shape for n, a in w.items()} for w in (opened.weights(), recorded.weights))
            if shapes != known:
                return  # other modules: the comparison has judged them
            opened.set_weights(recorded.weights)
        found = _modules(record_trace(opened, _batch(recorded)))
    finally:
        opened.close()
    for name, wanted in summary["modules"].items():
        if name in found:
            _within(name, wanted, found[name])


def _batch(recorded: Trace) -> Any:
    named = dict(recorded.inputs)
    return list(named.values()) if list(named) == [str(i) for i in range(len(named))] else named


def _within(name: str, wanted: dict[str, Any], got: dict[str, Any]) -> None:
    if wanted["shape"] != got["shape"]:
        raise AssertionError(f"{name}: the output has shape {got['shape']}, recorded was {wanted['shape']}")
    room = SHARE * max(abs(wanted["min"]), abs(wanted["max"]), 1e-12) if wanted["min"] is not None else 0.0
    for what in ("min", "max", "mean"):
        if wanted[what] is not None and (got[what] is None or abs(got[what] - wanted[what]) > room):
            raise AssertionError(f"{name}: the {what} of the output is {got[what]}, recorded was {wanted[what]}")


def _modules(trace: Trace) -> dict[str, dict[str, Any]]:
    """The first output of each call of a module (functional operators have no names that stay)."""
    return {c.key: _described(c.outputs[0]) for c in trace.calls if c.outputs and not c.layer.functional}


def _described(a: Array) -> dict[str, Any]:
    """Shape, type, range and mean; of what has no finite value, or is no number, only shape and type."""
    made: dict[str, Any] = {"shape": list(a.shape), "dtype": str(a.dtype), "min": None, "max": None, "mean": None}
    if a.size and a.dtype.kind in "fiu":
        finite = a[np.isfinite(a)].astype(np.float64)
        if finite.size:
            made |= {"min": float(finite.min()), "max": float(finite.max()), "mean": float(finite.mean())}
    return made


def _summary(folder: Path) -> dict[str, Any]:
    file = folder / "golden.json"
    try:
        made = json.loads(file.read_text(encoding="utf-8"))
        if made["format"] != FORMAT or not isinstance(made["modules"], dict):
            raise ValueError(f"format {made['format']}")
    except FileNotFoundError:
        raise TraceError(
            f"'{folder}' holds no golden test", todo="Make one: ambidex record MODEL --golden FOLDER"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TraceError(f"'{file}' cannot be read", str(error), "Record it again") from error
    return dict(made)


def _text(report: Report) -> str:
    from rich.console import Console

    from ambidex.report import text

    stream = io.StringIO()
    text.render(report, Console(file=stream, width=100, highlight=False))
    return stream.getvalue()
