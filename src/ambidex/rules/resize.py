"""Resizing images: where the pixels are taken from, and by which weights."""

from __future__ import annotations

from ambidex.core.rule import Cause
from ambidex.rules import defaults
from ambidex.rules.pairs import agree, differ
from ambidex.rules.registry import rule
from ambidex.rules.words import Known, both, called, code, layer, write

_X = (2, 3, 5, 7)
_CENTRES = {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil", "sizes": [8, 9]}
_LINEAR = {"mode": "linear", "sizes": [8, 9], "antialias": False}


@rule
class ResizeCoordinates(Known):
    """Pixels are taken at other coordinates: half-pixel centres, aligned corners, or the old asymmetric way.

    How it shows: a shift of up to half a pixel, zero in the middle or at the corners; segmentation maps lose a point of
    accuracy at the borders.

    Why it happens: torch's align_corners (True in older U-Nets and DeepLabs) has no argument in Keras, which takes
    half-pixel centres; TensorFlow 1 resized asymmetrically.
    """

    code, name, title = "AMB180", "resize-coordinates", "Resize: align_corners / half-pixel coordinates"
    weight = 20
    kinds, ops, names = ("attr",), ("Resize",), ("coordinate_transformation_mode",)
    sample = Cause("attr", "Resize", "coordinate_transformation_mode", "align_corners", "half_pixel")
    examples = (
        differ(
            "Resize",
            {"coordinate_transformation_mode": "align_corners"},
            {"coordinate_transformation_mode": "half_pixel"},
            _X,
            **_LINEAR,
        ),
        agree("Resize", {}, {}, _X, coordinate_transformation_mode="half_pixel", **_LINEAR),
    )

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        return f"The candidate resizes with {c} coordinates, the reference with {r}."

    def fix(self, cause: Cause) -> str:
        aligned = cause.reference == "align_corners"
        keras = (
            "tf.compat.v1.image.resize_bilinear(x, size, align_corners=True)"
            if aligned
            else "keras.layers.Resizing or UpSampling2D (half-pixel centres)"
        )
        return write(
            cause,
            torch=f"F.interpolate(..., align_corners={aligned})",
            keras=keras,
            other=f"coordinate_transformation_mode={cause.reference}",
        )


@rule
class NearestRounding(Known):
    """Nearest-neighbour resizing rounds to another pixel.

    How it shows: nothing for whole factors; for others whole rows and columns come from the neighbour.

    Why it happens: torch's mode='nearest' takes floor(i * n / o), TensorFlow and Keras the nearest centre, which
    torch calls 'nearest-exact'. Masks and label maps are resized this way.
    """

    code, name, title = "AMB181", "resize-nearest", "Resize: nearest rounds to another pixel"
    weight = 20
    kinds, ops, names = ("attr",), ("Resize",), ("nearest_mode",)
    unpaired = "in the layers of both frameworks it comes together with other coordinates"
    sample = Cause("attr", "Resize", "nearest_mode", "floor", "round_prefer_ceil")

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        return f"Nearest-neighbour resizing rounds by {c} in the candidate, by {r} in the reference."

    def fix(self, cause: Cause) -> str:
        floor = cause.reference == "floor"
        return write(
            cause,
            torch=f"F.interpolate(..., mode='{'nearest' if floor else 'nearest-exact'}')",
            keras="keras.ops.take(x, keras.ops.arange(o) * n // o, axis=1), likewise axis 2"
            if floor
            else "keras.layers.Resizing(..., interpolation='nearest')",
        )


@rule
class ResizeMode(Known):
    """Another interpolation: nearest, bilinear, bicubic, area.

    How it shows: blocks against smooth transitions; the shapes agree.

    Why it happens: nn.Upsample and UpSampling2D take nearest when nothing is said, keras.layers.Resizing and
    tf.image.resize bilinear. 'area' of torch (adaptive average) and of TensorFlow agree for whole factors only.
    """

    code, name, title = "AMB182", "resize-mode", "Resize: another interpolation"
    weight = 25
    kinds, ops, names = ("attr",), ("Resize",), ("mode",)
    sample = Cause("attr", "Resize", "mode", "linear", "nearest")
    examples = (
        differ("Resize", {"mode": "linear"}, {"mode": "nearest"}, _X, **_CENTRES),
        agree(
            "Resize",
            {},
            {},
            _X,
            mode="nearest",
            scales=[2.0, 2.0],
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
            antialias=False,
        ),
    )

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        return f"The candidate resizes with {_mode(c)} interpolation, the reference with {_mode(r)}."

    def fix(self, cause: Cause) -> str:
        mode = _mode(str(cause.reference))
        return write(
            cause, torch=f"F.interpolate(..., mode='{mode}')", keras=f"{layer(cause)}(..., interpolation='{mode}')"
        )


def _mode(mode: str) -> str:
    return {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)


@rule
class Antialias(Known):
    """One side smooths before it makes an image smaller (antialias), the other does not.

    How it shows: only when the image shrinks; fine patterns differ. FID and CLIP scores move by it.

    Why it happens: F.interpolate and keras.ops.image.resize do not smooth unless asked; PIL and torchvision's Resize on
    images do.
    """

    code, name, title = "AMB183", "resize-antialias", "Resize: antialias on one side"
    weight = 20
    kinds, ops, names = ("attr",), ("Resize",), ("antialias",)
    sample = Cause("attr", "Resize", "antialias", True, False)
    examples = (
        differ(
            "Resize",
            {"antialias": True},
            {"antialias": False},
            (2, 3, 9, 11),
            mode="linear",
            sizes=[4, 5],
            coordinate_transformation_mode="half_pixel",
        ),
        agree(
            "Resize",
            {},
            {},
            (2, 3, 9, 11),
            mode="linear",
            sizes=[4, 5],
            coordinate_transformation_mode="half_pixel",
            antialias=True,
        ),
    )

    def message(self, cause: Cause) -> str:
        smooth, plain = ("candidate", "reference") if cause.candidate else ("reference", "candidate")
        return f"The {smooth} resizes with antialias, the {plain} without.{defaults.note(cause)}"

    def fix(self, cause: Cause) -> str:
        on = bool(cause.reference)
        return write(
            cause, torch=f"F.interpolate(..., antialias={on})", keras=f"keras.layers.Resizing(..., antialias={on})"
        )


@rule
class CubicCoefficient(Known):
    """Bicubic interpolation with another coefficient: -0.75 against -0.5 (Keys).

    How it shows: small errors everywhere, largest at edges.

    Why it happens: torch takes -0.75 without antialias and -0.5 with it, TensorFlow -0.5. There is no argument for it.
    """

    code, name, title = "AMB184", "resize-cubic", "Resize: bicubic coefficient differs"
    weight = 20
    kinds, ops, names = ("attr",), ("Resize",), ("cubic_coeff_a", "exclude_outside")
    unpaired = "in the layers of both frameworks it comes together with the weights outside the image"
    sample = Cause("attr", "Resize", "cubic_coeff_a", -0.75, -0.5)

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        what = (
            "bicubic coefficient"
            if cause.name == "cubic_coeff_a"
            else "treatment of weights outside the image (exclude_outside)"
        )
        return f"The {what} is {c} in the candidate, {r} in the reference.{defaults.note(cause)}"

    def fix(self, cause: Cause) -> str:
        half = isinstance(cause.reference, float) and abs(cause.reference + 0.5) < 1e-6
        return write(
            cause,
            torch="F.interpolate(..., mode='bicubic', antialias=True), which takes -0.5"
            if half
            else "F.interpolate(..., mode='bicubic') without antialias, which takes -0.75",
            keras="keras.ops.image.resize(..., interpolation='bicubic'), which takes -0.5"
            if half
            else "Keras has -0.5 only: build the two weight matrices with a = -0.75 and multiply",
        )


@rule
class ResizeSetting(Known):
    """A resize differs in its size or scale, or is missing on one side.

    How it shows: another shape, or for a factor like 1.7 a drift over the image.

    Why it happens: F.interpolate(scale_factor=1.7) uses 1/1.7 for its coordinates, every other resize the ratio of
    the sizes; recompute_scale_factor=True makes torch do the same. The message has both values.
    """

    code, name, title = "AMB189", "resize-setting", "Resize differs"
    kinds, families = ("attr", "variant", "op", "missing", "extra"), ("resize",)
    unpaired = "another size is another shape, which a single pair shows as such"
    sample = Cause("attr", "Resize", "scales", [1.7, 1.7], None)

    def message(self, cause: Cause) -> str:
        if cause.kind in {"missing", "extra"}:
            has, lacks = ("reference", "candidate") if cause.kind == "missing" else ("candidate", "reference")
            return f"The {has} resizes here, the {lacks} does not."
        if cause.kind == "op":
            return f"The candidate computes {called(cause.name)}, the reference {called(cause.op)}."
        c, r = both(cause)
        return f"The resize's {cause.name} is {c} in the candidate, {r} in the reference."

    def fix(self, cause: Cause) -> str:
        if cause.kind in {"missing", "extra"}:
            return f"{'add' if cause.kind == 'missing' else 'take out'} the resize here"
        v = code(cause.reference)
        return write(
            cause,
            torch=f"F.interpolate(x, {'size' if cause.name == 'sizes' else 'scale_factor'}={v})",
            keras=f"{layer(cause)} with {cause.name}={v}",
        )
