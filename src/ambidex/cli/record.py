"""``ambidex record MODEL``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from ambidex.cli import options


class Side(StrEnum):
    reference = "reference"
    candidate = "candidate"


def record(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="file.py:factory, package.module:factory or a .keras file.")
    ],
    out: Annotated[str, typer.Option("--out", metavar="FOLDER", help="Where the trace goes.")],
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
    tracefile.check_target(out)
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
        folder = tracefile.save_trace(trace, out)
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
        words.out(f"compare it with: ambidex compare {folder} CANDIDATE")
    return 0
