"""Pooling: borders, ceil mode, what average pooling divides by, max against average."""

from __future__ import annotations

from ambidex.core.rule import Cause, Side
from ambidex.rules import defaults, windows
from ambidex.rules.pairs import agree, differ, other
from ambidex.rules.registry import rule
from ambidex.rules.words import Known, both, called, code, layer, write

_POOLS = ("MaxPool", "AveragePool", "LpPool")
_POOL = {"kernel_shape": [3, 3], "strides": [2, 2]}


@rule
class PoolBorder(Known):
    """A pool pads its border by another amount, on another side, or with zeros where minus infinity is meant.

    How it shows: with stride 2 and an even size 'same' and padding=1 give the same shape and another image; a zero
    border before max pooling shows only where all values of a window are negative, so never behind a ReLU.

    Why it happens: MaxPool2d(3, 2, padding=1) pads with -inf on both sides; Keras has only 'valid' and 'same', and
    'same' pads 0 before and 1 after an even axis. ZeroPadding2D before MaxPooling2D, as Keras' own ResNets have it,
    pads zeros.
    """

    code, name, title = "AMB130", "pool-border", "Border of a pool differs"
    weight = 20
    kinds, ops, names = ("attr",), _POOLS, ("pads", "auto_pad")
    sample = Cause("attr", "MaxPool", "pads", [1, 1, 1, 1], "SAME_UPPER", candidate_cls="MaxPooling2D")
    examples = (
        differ("MaxPool", {"pads": [1, 1, 1, 1]}, {"auto_pad": "SAME_UPPER"}, (2, 3, 8, 10), **_POOL),
        agree("MaxPool", {"pads": [1, 1, 1, 1]}, {"auto_pad": "SAME_UPPER"}, (2, 3, 9, 11), **_POOL),
        agree(
            "AveragePool",
            {"pads": [1, 1, 1, 1]},
            {"auto_pad": "SAME_UPPER"},
            (2, 3, 9, 11),
            **_POOL,
            count_include_pad=False,
        ),
    )

    def message(self, cause: Cause) -> str:
        return (
            f"The candidate's {called(cause.op)} pads {windows.in_words(cause.candidate)}, the reference's pads "
            f"{windows.in_words(cause.reference)}."
        )

    def fix(self, cause: Cause) -> str:
        fill = "float('-inf')" if cause.op == "MaxPool" else ""
        if windows.is_same(cause.reference):
            return write(
                cause,
                torch=f"{windows.torch_same(cause, fill)}  and {layer(cause)}(..., padding=0)",
                keras=f"{layer(cause)}(..., padding='same')",
            )
        pads = cause.reference
        if not isinstance(pads, list | tuple) or not any(pads):
            return write(cause, torch=f"{layer(cause)}(..., padding=0)", keras=f"{layer(cause)}(..., padding='valid')")
        n = len(pads) // 2
        torch = (
            f"{layer(cause)}(..., padding={code(list(pads)[:n])})"
            if windows.symmetric(pads)
            else f"x = F.pad(x, {windows.torch_padding(pads)}, value={fill or 0}) and {layer(cause)}(..., padding=0)"
        )
        pairs = ", ".join(f"({pads[i]}, {pads[n + i]})" for i in range(n))
        keras = (
            f"keras.ops.pad(x, ((0, 0), {pairs}, (0, 0)), constant_values=-float('inf')) and "
            f"{layer(cause)}(..., padding='valid') "
            f"(not ZeroPadding{n}D: zeros win over negative values)"
            if cause.op == "MaxPool"
            else f"keras.layers.ZeroPadding{n}D({windows.keras_padding(pads)}) and {layer(cause)}(..., "
            "padding='valid'), when the "
            "reference counts the padding"
        )
        return write(cause, torch=torch, keras=keras)


@rule
class CeilMode(Known):
    """One side rounds the number of windows up (ceil mode), the other down.

    How it shows: one more row and column on sizes that do not divide; on others nothing.

    Why it happens: ceil_mode=True of torch's pools (SqueezeNet, GoogLeNet, models that came from Caffe) has no
    argument in Keras; 'same' is the same only for some sizes.
    """

    code, name, title = "AMB131", "pool-ceil", "ceil_mode differs"
    weight = 20
    kinds, ops, names = ("attr",), _POOLS, ("ceil_mode",)
    unpaired = "another ceil_mode changes the output's size, which a single pair shows as a difference of shape"
    sample = Cause("attr", "MaxPool", "ceil_mode", True, False)

    def message(self, cause: Cause) -> str:
        up, down = ("candidate", "reference") if cause.candidate else ("reference", "candidate")
        return f"The {up} rounds the number of windows up (ceil_mode=True), the {down} down."

    def fix(self, cause: Cause) -> str:
        fill = "-float('inf')" if cause.op == "MaxPool" else "0"
        keras = (
            f"pad the end first: keras.ops.pad(x, ((0, 0), (0, eh), (0, ew), (0, 0)), constant_values={fill}) with "
            "e = (-(n - k) % s), then padding='valid'"
            if cause.reference
            else f"{layer(cause)}(..., padding='valid')"
        )
        return write(cause, torch=f"{layer(cause)}(..., ceil_mode={bool(cause.reference)})", keras=keras)


@rule
class CountIncludePad(Known):
    """Average pooling divides by the whole window on one side, by the part inside the image on the other.

    How it shows: only windows at the border differ, by a constant factor (4/9, 6/9 for 3x3).

    Why it happens: torch counts the padding (count_include_pad=True is its default), Keras' 'same' does not. The
    Inception network of the FID metric uses torch with False in some branches.
    """

    code, name, title = (
        "AMB132",
        "count-include-pad",
        "Average pooling: padding counted on one side (count_include_pad)",
    )
    weight = 20
    kinds, ops, names = ("attr",), ("AveragePool", "LpPool"), ("count_include_pad", "divisor_override")
    sample = Cause("attr", "AveragePool", "count_include_pad", True, False)
    examples = (
        differ(
            "AveragePool",
            {"count_include_pad": True},
            {"count_include_pad": False},
            (2, 3, 9, 11),
            **_POOL,
            pads=[1, 1, 1, 1],
        ),
        agree(
            "AveragePool",
            {"count_include_pad": True},
            {"count_include_pad": False},
            (2, 3, 9, 11),
            **_POOL,
            pads=[0, 0, 0, 0],
        ),
    )

    def message(self, cause: Cause) -> str:
        if cause.name == "divisor_override":
            c, r = both(cause)
            return (
                f"The candidate divides the sum of a window by {c}, the reference by {r} (None: by the "
                "number of values)."
            )
        counts, leaves = ("candidate", "reference") if cause.candidate else ("reference", "candidate")
        return (
            f"The {counts} counts the padding when it takes the average (count_include_pad=True), the "
            f"{leaves} divides by "
            f"the values inside the image.{defaults.note(cause)}"
        )

    def fix(self, cause: Cause) -> str:
        if cause.name == "divisor_override":
            return write(
                cause,
                torch=f"{layer(cause)}(..., divisor_override={code(cause.reference)})",
                keras=f"multiply the average by kernel size / {code(cause.reference)}",
            )
        keras = (
            "keras.layers.ZeroPadding2D(...) and then AveragePooling2D(..., padding='valid')"
            if cause.reference
            else "AveragePooling2D(..., padding='same') without ZeroPadding2D"
        )
        return write(cause, torch=f"{layer(cause)}(..., count_include_pad={bool(cause.reference)})", keras=keras)


@rule
class PoolKind(Known):
    """Max pooling on one side, average pooling on the other, or a global pool against a local one.

    How it shows: the shapes agree, all values differ.

    Why it happens: a configuration field (pooling='avg' or 'max', pooler type) that one side ignores; torchvision's and
    Keras' versions of a network end in different pools.
    """

    code, name, title = "AMB133", "pool-kind", "Another kind of pooling"
    weight = 20
    kinds, families = ("op",), ("pool",)
    sample = Cause("op", "MaxPool", "AveragePool", {}, {})
    examples = (
        other(
            Side("MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2]}, ((2, 3, 8, 10),)),
            Side("AveragePool", {"kernel_shape": [2, 2], "strides": [2, 2]}, ((2, 3, 8, 10),)),
        ),
        other(
            Side("GlobalAveragePool", {"keepdims": True}, ((2, 3, 5, 7),)),
            Side("GlobalMaxPool", {"keepdims": True}, ((2, 3, 5, 7),)),
        ),
        agree("GlobalAveragePool", {}, {}, (2, 3, 5, 7), keepdims=True),
    )

    def message(self, cause: Cause) -> str:
        return f"The candidate takes {called(cause.name)}, the reference {called(cause.op)}."

    def fix(self, cause: Cause) -> str:
        return f"write {layer(cause, cause.op)} here instead of {called(cause.name)}"


@rule
class PoolWindow(Known):
    """A pool has another window, stride, dilation or output size.

    How it shows: another output size mostly; with 'same' borders only other values.

    Why it happens: the stride of a pool is its window when nothing is said, in both frameworks; a port that passes
    one of them only, or passes the pool size where the stride is meant.
    """

    code, name, title = "AMB134", "pool-window", "Window or stride of a pool differs"
    weight = 20
    kinds, families = ("attr",), ("pool",)
    names = ("kernel_shape", "strides", "dilations", "output_size")
    sample = Cause("attr", "MaxPool", "kernel_shape", [3, 3], [2, 2])
    examples = (
        differ(
            "MaxPool",
            {"kernel_shape": [3, 3]},
            {"kernel_shape": [2, 2]},
            (2, 3, 8, 10),
            strides=[2, 2],
            auto_pad="SAME_UPPER",
        ),
        agree("MaxPool", {}, {}, (2, 3, 8, 10), kernel_shape=[2, 2], strides=[2, 2]),
    )

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        what = {"kernel_shape": "window", "strides": "stride", "dilations": "dilation", "output_size": "output size"}[
            cause.name
        ]
        return f"The {what} of the {called(cause.op)} is {c} in the candidate, {r} in the reference."

    def fix(self, cause: Cause) -> str:
        v = code(cause.reference)
        torch = {"kernel_shape": "kernel_size", "strides": "stride", "dilations": "dilation"}.get(
            cause.name, cause.name
        )
        keras = {"kernel_shape": "pool_size", "dilations": "dilations"}.get(cause.name, cause.name)
        return write(cause, torch=f"{layer(cause)}({torch}={v})", keras=f"{layer(cause)}({keras}={v})")


@rule
class PoolSetting(Known):
    """A pool is missing, only in the candidate, or differs in a setting that no more special rule covers.

    How it shows: the values differ from here on, mostly with another shape.

    Why it happens: adaptive pools round their windows in a way of their own; keepdims decides whether the spatial axes
    stay with size one. The message has both sides.
    """

    code, name, title = "AMB139", "pool-setting", "Setting of a pool differs"
    kinds, families = ("attr", "variant", "missing", "extra"), ("pool",)
    unpaired = "the settings that layers of both frameworks share have rules of their own"
    sample = Cause("attr", "LpPool", "p", 2.0, 1.0)

    def title_for(self, cause: Cause) -> str:
        if cause.kind in {"missing", "extra"}:
            return f"{called(cause.op)} {'missing' if cause.kind == 'missing' else 'only in the candidate'}"
        return self.title

    def message(self, cause: Cause) -> str:
        if cause.kind in {"missing", "extra"}:
            has, lacks = ("reference", "candidate") if cause.kind == "missing" else ("candidate", "reference")
            return f"The {has} takes {called(cause.op)} here, the {lacks} does not."
        c, r = both(cause)
        return f"The {called(cause.op)} has {cause.name} {c} in the candidate, {r} in the reference."

    def fix(self, cause: Cause) -> str:
        if cause.kind in {"missing", "extra"}:
            return f"{'add' if cause.kind == 'missing' else 'take out'} {layer(cause, cause.op)}"
        return f"set {cause.name}={code(cause.reference)} on {layer(cause)}"
