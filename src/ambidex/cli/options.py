"""Options that several commands take."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

# Optional[...] and not `| None`: older typer versions read only that form at run time
Inputs = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--inputs", metavar="FILE|FILE.py:FUNCTION", help="Inputs: .npz, .npy, .safetensors or a function."),
]
Signature = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--signature",
        metavar="TEXT|FILE.py:NAME",
        help="Without --inputs: types and shapes to make inputs from, e.g. 'int64[None,None]<30522, float32[2,3]'.",
    ),
]
Json = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--json", metavar="FILE|-", help="Write the result as JSON; - is standard output."),
]
Html = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--html", metavar="FILE", help="Write one self-contained HTML page."),
]
Trust = Annotated[bool, typer.Option("--trust", help="Read pickled arrays from --inputs (they can run code).")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks and what the frameworks print.")]
