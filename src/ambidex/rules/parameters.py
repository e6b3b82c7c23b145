"""Parameters that only one side has."""

from __future__ import annotations

from ambidex.core.rule import Cause
from ambidex.rules.registry import rule
from ambidex.rules.words import Known, called, number, write


@rule
class ParameterMissing(Known):
    """The reference has a parameter that the candidate lacks: a bias dropped, a scale left out.

    How it shows: the layer's output differs by a constant for each channel (bias) or by a factor (scale).

    Why it happens: bias=False, use_bias=False, affine=False (nn.InstanceNorm has no affine unless asked),
    center=False or scale=False on one side; a second bias of a recurrent layer that was not added to the first.
    """

    code, name, title, stage = "AMB212", "parameter-missing", "Parameter missing in the candidate", "weights"
    weight = 20
    unpaired = "with one layer the parameter count alone tells; the planted faults of the quality figure show it"
    sample = Cause("parameter", "Gemm", "B", "fc.bias", None, detail={"effect": True})

    def claims(self, cause: Cause) -> bool:
        return cause.kind == "parameter" and not cause.candidate

    def title_for(self, cause: Cause) -> str:
        return f"{_role(cause)} missing in the candidate"

    def message(self, cause: Cause) -> str:
        quiet = "" if cause.detail.get("effect", True) else " It has no effect on this output."
        name = f" ({cause.reference})" if cause.reference else ""
        return (
            f"The reference's {called(cause.op)} has a {_role(cause)}{name}, the candidate's has none: a "
            f"parameter without partner.{quiet}"
        )

    def fix(self, cause: Cause) -> str:
        return _switch(cause, True)


@rule
class ParameterExtra(Known):
    """The candidate has a parameter that the reference lacks.

    How it shows: not at all while it has its initial value (zero bias, unit scale), then more with every step of
    training.

    Why it happens: bias and scale are on in both frameworks unless switched off; a bias in front of a norm that the
    reference left out.
    """

    code, name, title, stage = "AMB213", "parameter-extra", "Parameter that the reference does not have", "weights"
    weight = 20
    unpaired = "with one layer the parameter count alone tells; the planted faults of the quality figure show it"
    sample = Cause("parameter", "Gemm", "B", None, "fc/bias", detail={"effect": False})

    def claims(self, cause: Cause) -> bool:
        return cause.kind == "parameter"

    def title_for(self, cause: Cause) -> str:
        return f"{_role(cause)} that the reference does not have"

    def message(self, cause: Cause) -> str:
        quiet = "" if cause.detail.get("effect", True) else " It has no effect on this output."
        name = f" ({cause.candidate})" if cause.candidate else ""
        return (
            f"The candidate's {called(cause.op)} has a {_role(cause)}{name}, the reference's has none: a "
            f"parameter without partner.{quiet}"
        )

    def fix(self, cause: Cause) -> str:
        return _switch(cause, False)


def _role(cause: Cause) -> str:
    return {"B": "bias", "W": "kernel", "R": "recurrent kernel", "mean": "running mean", "var": "running variance"}.get(
        cause.name, cause.name or "parameter"
    )


def _switch(cause: Cause, on: bool) -> str:
    """The argument that gives a layer the parameter, or takes it away."""
    norm = cause.op.endswith("Normalization")
    if cause.name == "B":
        option = "center" if norm else "use_bias"
        torch = f"{'affine' if cause.op.startswith(('Batch', 'Group', 'Instance')) else 'bias'}={on}"
        return write(cause, torch=torch, keras=f"{option}={on}")
    if cause.name == "scale":
        torch = f"{'affine' if cause.op.startswith(('Batch', 'Group', 'Instance')) else 'elementwise_affine'}={on}"
        return write(cause, torch=torch, keras=f"scale={on}")
    if cause.name in {"mean", "var"}:
        return write(cause, torch=f"track_running_stats={on}", keras="training=False" if on else "training=True")
    name = number(cause.reference if on else cause.candidate)
    return f"{'add' if on else 'take out'} the {_role(cause)}" + (f" ({name})" if name != "None" else "")
