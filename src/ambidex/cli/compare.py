"""``ambidex compare REF CAND``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Optional

import typer

from ambidex.cli import options


class Weights(StrEnum):
    carry = "carry"
    keep = "keep"


class Mode(StrEnum):
    eval = "eval"
    train = "train"


def compare(
    reference: Annotated[
        str,
        typer.Argument(
            metavar="REF",
            help="The side that is right: file.py:factory, package.module:factory, a .keras file or a recorded folder.",
        ),
    ],
    candidate: Annotated[str, typer.Argument(metavar="CAND", help="The side to be checked, named the same way.")],
    inputs: options.Inputs = None,
    signature: options.Signature = None,
    weights: Annotated[
        Weights,
        typer.Option("--weights", help="carry: copy the reference's weights over. keep: judge the candidate's."),
    ] = Weights.carry,
    map: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--map", metavar="FILE.toml", help='Lines "reference.path" = "candidate.path".'),
    ] = None,
    mode: Annotated[Mode, typer.Option("--mode", help="How the models run.")] = Mode.eval,
    training: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--training",
            metavar="FILE.py:FUNCTION",
            help="What both sides train with: compares loss, gradient, clip, update, schedule, metric, steps as well.",
        ),
    ] = None,
    targets: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--targets", metavar="FILE|FILE.py:FUNCTION", help="Targets of the loss, if not beside --training."
        ),
    ] = None,
    stage: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--stage", metavar="NAME,...", help="Only these stages behind the forward pass, e.g. loss,update."
        ),
    ] = None,
    patch: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--patch", metavar="FILE", help="Write the fixes that are one expression as a diff."),
    ] = None,
    shrink: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--shrink", metavar="FOLDER", help="Save each layer without a known cause as a pair of its own."),
    ] = None,
    json: options.Json = None,
    html: options.Html = None,
    trust: options.Trust = False,
    debug: options.Debug = False,
) -> int:
    """Find every layer in which CAND differs from REF, name the cause, prove the fix."""
    from ambidex import api
    from ambidex.cli import words
    from ambidex.cli.progress import StepProgress

    words.check_writable(json, html, patch)
    with words.foreign_code(debug), StepProgress() as progress:
        result = api.compare(
            reference,
            candidate,
            inputs=inputs,
            signature=signature,
            weights=weights.value,
            map=map,
            mode=mode.value,
            training=training,
            targets=targets,
            stages=None if stage is None else [s.strip() for s in stage.split(",") if s.strip()],
            progress=progress,
            trust=trust,
        )
    from ambidex.cli.show import show

    show(result, json_path=json, html_path=html, patch_path=patch)
    if shrink is not None:
        _shrink(result, reference, candidate, shrink, inputs, signature, debug=debug, quiet=json == "-")
    return result.exit_code


def _shrink(
    result: Any, reference: str, candidate: str, folder: str, inputs: Any, signature: Any, *, debug: bool, quiet: bool
) -> None:
    """Write the small pairs and say how they are run; what could not be made small, with the reason."""
    from ambidex import shrink
    from ambidex.cli import words

    with words.foreign_code(debug):
        made = shrink.save(result, reference, candidate, folder, inputs=inputs, signature=signature)
    if quiet:
        return
    if not made.folders and not made.left:
        words.out("nothing to shrink: every finding has a known cause")
    for one in made.folders:
        words.out(f"shrunk: cd {one} && ambidex compare pair.py:reference pair.py:candidate --inputs pair.py:inputs")
    for finding, why in made.left:
        words.out(f"not shrunk: {finding.where.candidate or finding.where.reference or finding.code}: {why}")
