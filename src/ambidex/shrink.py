"""What no known cause explains, made small: the one layer of both sides, on the one sample that still differs.

``save`` writes a folder for each such finding: ``pair.py`` with both factories (they take the layer out of the user's
own models), and ``arrays.safetensors`` with the inputs and the reference's weights. It runs by itself and is what a new
rule, or a bug report, begins with.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ambidex.core.files import new_folder
from ambidex.core.report import Finding, Report
from ambidex.core.types import Array
from ambidex.errors import AmbidexError, InputError, UnsupportedError

#: findings without a known cause
UNEXPLAINED = {"AMB100"}
_ROWS = 16

_PAIR = '''"""{reference} against {candidate}: they differ, and no known cause explains it.

    ambidex compare pair.py:reference pair.py:candidate --inputs pair.py:inputs

{sample} as the layer was called with it in {models}.
"""

from pathlib import Path

from ambidex import shrink

HERE = Path(__file__).parent


def reference():
    return shrink.part({ref_spec!r}, {ref_path!r}, HERE, "reference")


def candidate():
    return shrink.part({cand_spec!r}, {cand_path!r}, HERE, "candidate")


def inputs():
    return shrink.inputs(HERE)
'''


@dataclass
class Saved:
    """``folders`` that were written, and the findings that could not be made small, each with the reason."""

    folders: list[Path] = field(default_factory=list)
    left: list[tuple[Finding, str]] = field(default_factory=list)


def save(
    report: Report, reference: str, candidate: str, folder: str | Path, *, inputs: Any = None, signature: Any = None
) -> Saved:
    """Make every unexplained finding of the report small and write it below ``folder``.

    ``reference`` and ``candidate`` are specs: the layers are taken out of models made anew. Raises InputError when the
    folder cannot be written.
    """
    done = Saved()
    pairs: dict[tuple[str, str], Finding] = {}
    for finding in report.findings:
        if finding.code not in UNEXPLAINED:
            continue
        where = finding.where
        if not where.reference or not where.candidate or where.candidate.startswith("output"):
            done.left.append((finding, "it is no pair of layers"))
            continue
        pairs.setdefault((_module(where.reference), _module(where.candidate)), finding)
    for (ref_path, cand_path), finding in pairs.items():
        try:
            made = _smallest((reference, candidate), (ref_path, cand_path), inputs, signature)
        except AmbidexError as error:
            done.left.append((finding, error.what))
            continue
        name = re.sub(r"[^\w.]+", "_", cand_path or "model").strip("_") or "model"
        text = _PAIR.format(
            reference=made.paths[0] or "the whole reference", candidate=made.paths[1] or "the whole candidate",
            sample=made.sample, models=f"{reference} and {candidate}", ref_spec=_absolute(reference),
            cand_spec=_absolute(candidate), ref_path=made.paths[0], cand_path=made.paths[1],
        )  # fmt: skip
        done.folders.append(_write(Path(folder) / name, text, made.arrays))
    return done


def part(spec: str, path: str, folder: str | Path, side: str) -> Any:
    """The layer of a model by itself, live; the reference with its saved weights."""
    from ambidex.adapters import alone, open_model

    arrays = _load(Path(folder))
    model = open_model(spec)
    if side == "reference":
        model.set_weights({n: arrays[f"weight/{n}"] for n in model.weights() if f"weight/{n}" in arrays})
    return alone(model.framework).part(model, path, _numbered(arrays, f"{side}/"))


def inputs(folder: str | Path) -> list[Array]:
    """The saved inputs, as the reference takes them."""
    return _numbered(_load(Path(folder)), "reference/")


# ---------------------------------------------------------------------------------------------------------------- small
@dataclass
class _Made:
    paths: tuple[str, str]
    arrays: dict[str, Array]
    sample: str


def _smallest(specs: tuple[str, str], wanted: tuple[str, str], inputs: Any, signature: Any) -> _Made:
    """Both layers' inputs on one sample that still differs, and the reference's weights."""
    from ambidex import api
    from ambidex.adapters import alone, open_model
    from ambidex.engine import defaults

    models = [open_model(s) for s in specs]
    try:
        if any(not hasattr(m, "set_weights") for m in models):
            raise UnsupportedError("a recorded side has no layers to take out")
        kinds = [alone(m.framework) for m in models]
        paths = [k.enclosing(m, p) for k, m, p in zip(kinds, models, wanted, strict=True)]
        given = defaults.complete(api.make_inputs(inputs, signature), models[0], models[1])
        batch = given.reference if given.reference is not None else given.candidate
        batches = batch, given.candidate if given.candidate is not None else batch
        taken = [k.arguments(m, b, p) for k, m, b, p in zip(kinds, models, batches, paths, strict=True)]

        def differs(rows: slice) -> list[list[Array]] | None:
            """Both sides' inputs when the two layers differ on these rows of the reference's."""
            cut = [[a[rows] if a.ndim and len(a) == len(side[0]) else a for a in side] for side in taken]
            live = [k.part(m, p, c) for k, m, p, c in zip(kinds, models, paths, cut, strict=True)]
            return cut if api.compare(live[0], live[1], inputs=cut[0]).verdict == "different" else None

        found = differs(slice(None))
        if found is None:
            raise UnsupportedError(f"{paths[1] or 'the model'} agrees when it is called alone")
        count = len(taken[0][0]) if taken[0] and taken[0][0].ndim else 1
        sample = f"{count} samples,"
        for row in range(min(count, _ROWS)) if count > 1 else ():
            one = differs(slice(row, row + 1))
            if one is not None:
                found, sample = one, "One sample,"
                break
        weights = {f"weight/{n}": np.array(a) for n, a in models[0].weights().items()}
    finally:
        for m in models:
            if hasattr(m, "close"):
                m.close()
    sides = {
        f"{side}/{n}": np.ascontiguousarray(a)
        for side, arrays in zip(("reference", "candidate"), found, strict=True)
        for n, a in enumerate(arrays)
    }
    return _Made((paths[0], paths[1]), sides | weights, sample)


def _module(path: str) -> str:
    """The module that a call belongs to: functional calls are written ``module:operator``."""
    return path.split(":", 1)[0].split("#", 1)[0]


def _absolute(spec: str) -> str:
    where, colon, name = spec.rpartition(":")
    return f"{Path(where).resolve()}:{name}" if colon and where.endswith(".py") else spec


def _numbered(arrays: dict[str, Array], head: str) -> list[Array]:
    return [arrays[f"{head}{n}"] for n in range(sum(k.startswith(head) for k in arrays))]


def _write(folder: Path, text: str, arrays: dict[str, Array]) -> Path:
    from safetensors.numpy import save_file

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(folder, lambda old: (old / "pair.py").exists()) as new:
            save_file(arrays, new / "arrays.safetensors")
            (new / "pair.py").write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write '{folder}'", error.strerror or str(error), "Name another folder") from error
    return folder


def _load(folder: Path) -> dict[str, Array]:
    from safetensors.numpy import load_file

    file = folder / "arrays.safetensors"
    if not file.exists():
        raise InputError(f"'{folder}' holds no shrunk pair", todo="It is written by ambidex compare --shrink FOLDER")
    made: dict[str, Array] = load_file(file)
    return made
