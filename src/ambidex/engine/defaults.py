"""Inputs for those who gave none: from the user's signature, or from what a model declares itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ambidex.core.model import Batch, Inspectable, TensorSpec
from ambidex.core.trace import Trace
from ambidex.engine import feed
from ambidex.engine.inputs import Inputs, probe_inputs
from ambidex.errors import AmbidexError, InputError

Given = Inputs | Sequence[TensorSpec] | None
_NEED = "Pass --inputs FILE.npz, or --signature such as 'int64[None,None]<30522, float32[2,3]'"


def complete(given: Given, reference: Inspectable | Trace, candidate: Inspectable) -> Inputs:
    """Inputs for a comparison. A recorded reference brings its own."""
    if isinstance(given, Inputs):
        return given
    if isinstance(reference, Trace):
        if given is not None:
            raise InputError("a recorded reference and a signature do not go together", "it was run on its own inputs")
        return Inputs(
            described=[f"{name}: {a.dtype}{list(a.shape)}, as recorded" for name, a in reference.inputs.items()]
        )
    models = (reference, candidate)
    if given is not None:
        return _probes(given, models)
    declared = reference.signature()
    if declared:
        return _probes(declared, models)
    declared = candidate.signature()
    if not declared:
        raise InputError("there are no inputs", "neither model declares what it takes", _NEED)
    made = _probes(declared, models)
    assert made.reference is not None
    return replace(made, reference=_that_runs(made.reference, reference), candidate=made.reference)


def batch_for(given: Given, model: Inspectable, side: str) -> Batch:
    """One batch to record a model with."""
    if given is None:
        given = model.signature()
        if not given:
            raise InputError("there are no inputs", "the model does not declare what it takes", _NEED)
    inputs = given if isinstance(given, Inputs) else _probes(given, (model,))
    batch = inputs.candidate if side == "candidate" and inputs.candidate is not None else inputs.reference
    if batch is None:
        raise InputError(f"there are no inputs for the {side}", todo=_NEED)
    return batch


def _probes(signature: Sequence[TensorSpec], models: Sequence[Inspectable]) -> Inputs:
    limit = min((rows for model in models for rows in _vocabularies(model)), default=None)
    specs = [
        replace(spec, high=limit) if spec.high is None and spec.dtype.startswith(("int", "uint")) else spec
        for spec in signature
    ]
    return probe_inputs(specs)


def _vocabularies(model: Inspectable) -> list[int]:
    """Rows of every embedding table: an id below the smallest is safe in all of them."""
    return [len(model.layer_weights(x.path)["W"]) for x in model.layers() if x.op == "Gather" and "W" in x.weights]


def _that_runs(batch: Batch, model: Inspectable) -> Batch:
    """The candidate's probes in the order of axes that the reference takes."""
    failed: Any = None
    for option in feed.options(batch, model):
        try:
            model.run(option, record=False)
        except AmbidexError as error:
            failed = failed or error
            continue
        return option
    raise InputError("the reference does not run on what the candidate declares", str(failed), _NEED)
