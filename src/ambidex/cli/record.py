"""``ambidex record MODEL``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Optional

import typer

from ambidex.cli import options
from ambidex.core.trace import Trace
from ambidex.errors import InputError


class Side(StrEnum):
    reference = "reference"
    candidate = "candidate"


def record(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="file.py:factory, package.module:factory or a .keras file.")
    ],
    out: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--out", metavar="FOLDER", help="Where the trace goes."),
    ] = None,
    golden: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--golden", metavar="FOLDER", help="Instead: a golden test for pytest."),
    ] = None,
    inputs: options.Inputs = None,
    signature: options.Signature = None,
    side: Annotated[
        Side, typer.Option("--side", help="Whose batch to take when --inputs has one for each.")
    ] = Side.reference,
    json: options.Json = None,
    trust: options.Trust = False,
    debug: options.Debug = False,
) -> int:
    """Run a model once and keep every layer's inputs and outputs, to be compared elsewhere."""
    from ambidex import api
    from ambidex.cli import words
    from ambidex.cli.progress import StepProgress
    from ambidex.core import tracefile

    words.check_writable(json)
    if (out is None) == (golden is None):
        raise InputError("say where the run goes", todo="Give --out FOLDER, or --golden FOLDER for a golden test")
    target = out if out is not None else str(Path(golden or "") / "trace")
    tracefile.check_target(target)
    with words.foreign_code(debug), StepProgress() as progress:
        progress(f"run {model}", 0.0)
        trace = api.record(
            model,
            inputs,
            signature=signature,
            side=side.value,
            trust=trust,
        )
        progress("saving", 0.0)
        folder = tracefile.save_trace(trace, out) if out is not None else _golden(trace, golden or "", model)
    size = sum(file.stat().st_size for file in folder.iterdir())
    if json is not None:
        summary = {
            "format": 1,
            "folder": str(folder),
            "framework": trace.framework,
            "versions": trace.versions,
            "layers": len(trace.layers),
            "calls": len(trace.calls),
            "outputs": {name: list(array.shape) for name, array in trace.outputs.items()},
            "bytes": size,
        }
        words.put_json(json, words.as_json(summary))
    if json != "-":
        words.out(f"recorded {len(trace.calls)} calls of {len(trace.layers)} layers in {folder} ({size / 1e6:.1f} MB)")
        if golden is not None:
            words.out(f"run it with: pytest {golden}   (other implementations: MODELS in {golden}/test_golden.py)")
        else:
            words.out(f"compare it with: ambidex compare {folder} CANDIDATE")
    return 0


def _golden(trace: Trace, folder: str, model: str) -> Path:
    from ambidex import golden

    return golden.write(trace, folder, model) / "trace"
