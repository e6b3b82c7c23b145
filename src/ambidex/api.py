"""The verbs as Python functions; the command line is a thin layer over them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ambidex.core.trace import Trace
from ambidex.errors import AmbidexError, InputError, RunError, UnsupportedError

if TYPE_CHECKING:
    from ambidex.core.report import Report
    from ambidex.report.patch import Patch

Weights = Literal["carry", "keep"]
Mode = Literal["eval", "train"]
Progress = Callable[[str, float], None]


def compare(
    reference: Any,
    candidate: Any,
    *,
    inputs: Any = None,
    signature: Any = None,
    weights: Weights = "carry",
    map: str | Path | Mapping[str, str] | None = None,
    mode: Mode = "eval",
    training: Any = None,
    targets: Any = None,
    stages: Collection[str] | None = None,
    progress: Progress | None = None,
    trust: bool = False,
) -> Report:
    """Compare two implementations of one model.

    ``reference`` and ``candidate``: a live torch module or Keras model, a spec (``"file.py:factory"``,
    ``"package.module:factory"``, a recorded trace's folder) or a :class:`Trace`. ``inputs``: arrays (one, several, or
    by name), ``{"reference": ..., "candidate": ..., "masks": ...}``, or a spec (``"FILE.npz"``,
    ``"file.py:function"``). ``signature``: without inputs, what to make some up from: ``"int64[None,None]<30522"``,
    or a list of (dtype, shape). ``weights="keep"``: the candidate's own weights are the subject. ``map``: reference
    path to candidate path, a dictionary or a TOML file. ``training``: what both sides train with,
    ``{"reference": {"loss": ..., "optimizer": ...}, "candidate": {...}}`` or ``"file.py:function"`` of it: loss,
    gradient, clipping, update, schedule, metric and some steps are compared too (``stages``: only these); ``targets``:
    what the loss takes beside the outputs. ``trust``: read pickled arrays from an input file.
    """
    _one_of("weights", weights, ("carry", "keep"))
    _one_of("mode", mode, ("eval", "train"))
    from ambidex.adapters import open_model, specs
    from ambidex.engine import compare as engine
    from ambidex.engine import defaults
    from ambidex.engine.environment import collect
    from ambidex.engine.usermap import load_map

    user_map = load_map(map)
    with readable_memory_errors():
        specs.import_order([reference, candidate, inputs, training])
        given_training = _training(training, targets, stages)
        given = make_inputs(inputs, signature, trust=trust)
        opened = [open_model(reference)]
        try:
            opened.append(open_model(candidate))
            if isinstance(opened[1], Trace):
                raise UnsupportedError(
                    f"the candidate '{label(candidate)}' is a recorded trace",
                    "a fault is proven by running the candidate again",
                    "Name the recorded side first, as the reference",
                )
            report = engine.compare_models(
                opened[0],
                opened[1],
                inputs=defaults.complete(given, opened[0], opened[1]),
                weights=weights,
                user_map=user_map,
                mode=mode,
                progress=progress,
                training=_followed(given_training, opened, stages),
            )
        finally:
            for model in opened:
                if not isinstance(model, Trace):
                    model.close()
    report.reference = report.reference or label(reference)
    report.candidate = report.candidate or label(candidate)
    report.environment = {"process": collect(devices=False).as_dict()} | report.environment
    return report


def _training(training: Any, targets: Any, stages: Collection[str] | None) -> Any:
    """What the user trains with, read and checked; None when nothing behind the forward pass is asked for."""
    from ambidex.adapters import specs
    from ambidex.engine.stages.follow import LATER
    from ambidex.engine.stages.given import load

    for stage in stages or ():
        _one_of("stage", stage, ("forward", *LATER))
    if training is None:
        if targets is not None:
            raise InputError(
                "there are targets but nothing to train with", todo="Pass training=... (--training) as well"
            )
        return None
    with specs.remembering(training):
        return load(training, targets)


def _followed(given: Any, opened: Sequence[Any], stages: Collection[str] | None) -> Any:
    """What makes both trainers, given the batches; two compiled models say themselves what they are trained with."""
    from ambidex.engine.stages.given import Given

    if given is None and all(getattr(getattr(m, "model", None), "compiled", False) for m in opened):
        given = Given({"reference": {}, "candidate": {}}, label="the compiled models")
    return None if given is None else partial(_trainers, given, opened, stages)


def _trainers(given: Any, opened: Sequence[Any], stages: Collection[str] | None, ours: Any, theirs: Any) -> Any:
    from ambidex.adapters import adapter
    from ambidex.engine.stages.follow import LATER, Training
    from ambidex.engine.stages.given import examples

    made = [
        adapter(model.framework).trainer(model, given.sides[side])
        for model, side in zip(opened, ("reference", "candidate"), strict=True)
    ]
    return Training(made[0], made[1], examples(given, ours, theirs), LATER if stages is None else frozenset(stages))


def patch(report: Report) -> Patch:
    """The fixes of a report that are one expression, as a unified diff of the user's source.

    ``.text`` is the diff (its files are named from ``.root``), ``.mended`` the findings in it, ``.left`` the others,
    each with the reason. Nothing is written.
    """
    from ambidex.adapters.signatures import parameters
    from ambidex.report.patch import make

    return make(report, parameters)


def record(
    model: Any,
    inputs: Any = None,
    *,
    signature: Any = None,
    side: Literal["reference", "candidate"] = "reference",
    trust: bool = False,
) -> Trace:
    """Run a model once and keep every layer's inputs and outputs; ``ambidex.core.tracefile.save_trace`` writes it.

    ``side``: whose batch to take when ``inputs`` has one for each.
    """
    _one_of("side", side, ("reference", "candidate"))
    from ambidex.adapters import open_model, specs
    from ambidex.engine import defaults
    from ambidex.engine.recording import record_trace

    with readable_memory_errors():
        specs.import_order([model, inputs])
        given = make_inputs(inputs, signature, trust=trust)
        opened = open_model(model)
        if isinstance(opened, Trace):
            raise InputError(f"'{label(model)}' is recorded already", todo="Name the model itself")
        try:
            return record_trace(opened, defaults.batch_for(given, opened, side))
        finally:
            opened.close()


def make_inputs(inputs: Any, signature: Any, *, trust: bool = False) -> Any:
    """What the user gave as :class:`ambidex.engine.inputs.Inputs`, a signature as a list of TensorSpec; else None."""
    from ambidex.engine import inputs as given

    if inputs is not None and signature is not None:
        raise InputError("both inputs and a signature are given", todo="Leave one out")
    if isinstance(inputs, str | Path):
        return given.load_inputs(str(inputs), trust=trust)
    if inputs is not None:
        return given.as_inputs(inputs)
    return None if signature is None else given.as_signature(signature)


def check() -> Any:
    """The environment: versions, switches, devices, and combinations that are known to go wrong."""
    from ambidex.engine.environment import collect

    return collect()


def explain(code: str) -> str:
    """The page of a rule, as Markdown."""
    from ambidex.rules import find, page

    return page(find(code))


def label(model: Any) -> str:
    """How a report calls a model that was handed in."""
    if isinstance(model, str | Path):
        return str(model)
    if isinstance(model, Trace):
        return f"recorded {model.framework} trace"
    return type(getattr(model, "module", None) or getattr(model, "model", None) or model).__name__


def _one_of(name: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f"{name}={value!r:.60} is unknown", todo=f"Say {' or '.join(known)}")


_NO_MEMORY = ("out of memory", "not enough memory", "can't allocate memory", "cannot allocate memory", "oom when")


@contextlib.contextmanager
def readable_memory_errors() -> Iterator[None]:
    """Every framework has its own way to say that memory is used up; all become one RunError."""
    try:
        yield
    except AmbidexError:
        raise
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        todo = "Give fewer or shorter inputs (--inputs, --signature), or record each side alone with `ambidex record`"
        why = " ".join(str(error).split())[:160]
        raise RunError("the memory of this machine is used up", why, todo) from error


def is_out_of_memory(error: BaseException) -> bool:
    names = {cls.__name__ for cls in type(error).__mro__}
    if names & {"MemoryError", "OutOfMemoryError", "ResourceExhaustedError"}:
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _NO_MEMORY)
