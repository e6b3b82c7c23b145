"""Precision: weights that were rounded, casts."""

from __future__ import annotations

from ambidex.core.rule import Cause
from ambidex.rules.registry import rule
from ambidex.rules.words import Known, both, called, write

_KEPT = "a difference of weights, which only --weights keep looks at and carrying them over removes"


def _names(cause: Cause) -> str:
    found = cause.candidate if isinstance(cause.candidate, list | tuple) else [cause.candidate]
    return ", ".join(str(v) for v in found if v) or called(cause.op)


class _Rounded(Known):
    kinds, unpaired = ("weight",), _KEPT
    weight = 20

    def message(self, cause: Cause) -> str:
        return f"{_names(cause)}: the reference's values rounded to {self.name} (half precision), stored in float32."

    def fix(self, cause: Cause) -> str:
        return write(
            cause,
            torch="load the float32 checkpoint: torch_dtype=torch.float32, no .half() or .bfloat16() before saving",
            keras="load the float32 checkpoint: keras.config.set_dtype_policy('float32') before loading, no "
            "cast before saving",
        )


@rule
class RoundedBfloat16(_Rounded):
    """Weights were rounded to bfloat16 (8 bits of mantissa) and are stored in float32 again.

    How it shows: relative errors of up to 4e-3 in every layer concerned; nothing tells it from the dtype.

    Why it happens: a checkpoint saved in bfloat16 for one side, mixed precision that saved the compute copies, a
    converter that went through bfloat16.
    """

    code, name, title, stage = "AMB601", "bfloat16", "Weights rounded to bfloat16", "weights"
    names = ("bfloat16",)
    sample = Cause("weight", "Gemm", "bfloat16", ["fc.weight"], ["fc/kernel"], detail={"roles": ["W"]})


@rule
class RoundedFloat16(_Rounded):
    """Weights were rounded to float16 and are stored in float32 again.

    How it shows: relative errors of up to 5e-4, values below 6e-8 are zero, values above 65504 infinite.

    Why it happens: model.half() before saving, a float16 export, a hub checkpoint that exists only in float16.
    """

    code, name, title, stage = "AMB602", "float16", "Weights rounded to float16 (fp16)", "weights"
    names = ("float16",)
    sample = Cause("weight", "Gemm", "float16", ["fc.weight"], ["fc/kernel"], detail={"roles": ["W"]})


@rule
class CastDiffers(Known):
    """Values are cast to another dtype on the way.

    How it shows: errors of the size of half precision's rounding from this place on, or integers cut off.

    Why it happens: mixed precision on one side (Keras' policy casts every layer's output, torch's autocast chosen
    operators), an explicit cast, integer division against true division.
    """

    code, name, title = "AMB603", "cast", "Cast to another dtype"
    weight = 20
    unpaired = "neither framework has a cast as a layer"
    sample = Cause("attr", "Cast", "to", "float32", "float16")

    def claims(self, cause: Cause) -> bool:
        return cause.op == "Cast" and cause.kind in {"attr", "missing", "extra", "variant"}

    def message(self, cause: Cause) -> str:
        if cause.kind in {"missing", "extra"}:
            has, lacks = ("reference", "candidate") if cause.kind == "missing" else ("candidate", "reference")
            return f"The {has} casts the values here, the {lacks} does not."
        c, r = both(cause)
        return f"The candidate casts to {c}, the reference to {r}."

    def fix(self, cause: Cause) -> str:
        if cause.kind == "extra":
            return "take the cast out"
        dtype = cause.reference or "the reference's dtype"
        return write(cause, torch=f"x.to(torch.{dtype})", keras=f"keras.ops.cast(x, '{dtype}')")
