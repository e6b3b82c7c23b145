"""Convolutions: padding, stride, dilation, groups, and the crop of transposed ones."""

from __future__ import annotations

from ambidex.core.rule import Cause
from ambidex.rules import windows
from ambidex.rules.pairs import agree, differ
from ambidex.rules.registry import rule
from ambidex.rules.words import Known, both, called, code, layer, number, write

_CONV = {"strides": [1, 1], "pads": [0, 0, 0, 0], "dilations": [1, 1], "group": 1}


@rule
class SamePadding(Known):
    """A strided convolution pads by TensorFlow's 'same' on one side and symmetrically on the other.

    How it shows: the output has the same shape and is shifted by a pixel: large errors everywhere, on even input
    sizes only; on odd ones both agree, so a test at one size can pass.

    Why it happens: with stride 2 and kernel 3, 'same' pads 0 before and 1 after an even axis, padding=1 pads 1 and 1.
    The total is max((ceil(n/s) - 1) * s + (k - 1) * d + 1 - n, 0), the odd rest goes to the end. torch's
    padding='same' exists for stride 1 only. A pad computed for one resolution is wrong at another one.
    """

    code, name, title = "AMB120", "same-padding", "'same' padding with stride is not symmetric padding"
    weight = 25
    sample = Cause("attr", "Conv", "pads", [1, 1, 1, 1], "SAME_UPPER", candidate_cls="Conv2D")
    examples = (
        differ(
            "Conv",
            {**_CONV, "strides": [2, 2], "pads": [1, 1, 1, 1]},
            {**_CONV, "strides": [2, 2], "auto_pad": "SAME_UPPER"},
            (2, 3, 8, 10),
            out=4,
            kernel_shape=[3, 3],
        ),
        differ(
            "Conv",
            {"strides": [2], "auto_pad": "SAME_UPPER"},
            {"strides": [2], "pads": [1, 1]},
            (2, 3, 12),
            out=4,
            kernel_shape=[3],
        ),
        agree(
            "Conv",
            {**_CONV, "strides": [2, 2], "pads": [1, 1, 1, 1]},
            {**_CONV, "strides": [2, 2], "auto_pad": "SAME_UPPER"},
            (2, 3, 9, 11),
            out=4,
            kernel_shape=[3, 3],
        ),
    )

    def claims(self, cause: Cause) -> bool:
        same = windows.is_same(cause.reference) != windows.is_same(cause.candidate)
        return cause.kind == "attr" and cause.op == "Conv" and cause.name in {"pads", "auto_pad"} and same

    def message(self, cause: Cause) -> str:
        return (
            f"The candidate pads {windows.in_words(cause.candidate)}; the reference pads "
            f"{windows.in_words(cause.reference)}. "
            "With this stride and size the two shift the output against each other."
        )

    def fix(self, cause: Cause) -> str:
        return _padding_fix(cause)


def _padding_fix(cause: Cause) -> str:
    n = windows.dims(cause)
    if windows.is_same(cause.reference):
        lower = cause.reference == "SAME_LOWER"
        same = windows.torch_same(cause)
        return write(
            cause,
            torch=f"{same.replace('t // 2, t - t // 2', 't - t // 2, t // 2') if lower else same}  "
            f"and {layer(cause)}(..., padding=0)",
            keras=f"{layer(cause)}(..., padding='same')",
        )
    if not isinstance(cause.reference, list | tuple) or not any(cause.reference):
        return write(cause, torch=f"{layer(cause)}(..., padding=0)", keras=f"{layer(cause)}(..., padding='valid')")
    pads = cause.reference
    half = code(list(pads)[: len(pads) // 2])
    torch = (
        f"{layer(cause)}(..., padding={half})"
        if windows.symmetric(pads)
        else f"x = F.pad(x, {windows.torch_padding(pads)}) and {layer(cause)}(..., padding=0)"
    )
    return write(
        cause,
        torch=torch,
        keras=f"keras.layers.ZeroPadding{n}D({windows.keras_padding(pads)}) and then "
        f"{layer(cause)}(..., padding='valid')",
    )


@rule
class ConvPadding(Known):
    """A convolution pads by another amount.

    How it shows: another output size, or, where a crop or another layer makes up for it, a shift.

    Why it happens: Keras knows 'valid', 'same' and (in 1-D) 'causal', torch numbers; a causal convolution is a pad of
    (k - 1) * dilation on the left only. torch's F.pad lists the last axis first, tf.pad the first.
    """

    code, name, title = "AMB121", "conv-padding", "Padding of a convolution differs"
    weight = 20
    kinds, ops, names = ("attr",), ("Conv",), ("pads", "auto_pad")
    sample = Cause("attr", "Conv", "pads", [2, 0], [1, 1], candidate_cls="Conv1d")
    examples = (
        differ("Conv", {"pads": [2, 0]}, {"pads": [1, 1]}, (2, 3, 11), out=4, kernel_shape=[3], strides=[1]),
        agree(
            "Conv",
            {**_CONV, "pads": [1, 1, 1, 1]},
            {**_CONV, "auto_pad": "SAME_UPPER"},
            (2, 3, 8, 10),
            out=4,
            kernel_shape=[3, 3],
        ),
    )

    def message(self, cause: Cause) -> str:
        return (
            f"The candidate pads {windows.in_words(cause.candidate)}, the reference "
            f"{windows.in_words(cause.reference)}."
        )

    def fix(self, cause: Cause) -> str:
        return _padding_fix(cause)


@rule
class ConvStride(Known):
    """A convolution has another stride.

    How it shows: another output size; where two layers of a block share the work (ResNet), the sizes agree at the end
    of the block and only the values differ.

    Why it happens: the two versions of ResNet put the stride of a block into its first 1x1 convolution (original,
    Keras) or into the 3x3 one (v1.5, torchvision).
    """

    code, name, title = "AMB122", "conv-stride", "Stride differs"
    weight = 20
    kinds, ops, names = ("attr",), ("Conv", "ConvTranspose"), ("strides",)
    unpaired = "another stride alone changes the output's size, which a single pair shows as a difference of shape"
    sample = Cause("attr", "Conv", "strides", [2, 2], [1, 1])

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        return f"The {called(cause.op)} has stride {c} in the candidate, {r} in the reference."

    def fix(self, cause: Cause) -> str:
        s = code(cause.reference)
        return write(cause, torch=f"{layer(cause)}(..., stride={s})", keras=f"{layer(cause)}(..., strides={s})")


@rule
class ConvDilation(Known):
    """A convolution has another dilation.

    How it shows: with matching padding the shapes agree and every value differs.

    Why it happens: networks for segmentation replace stride by dilation (output stride 8 or 16) on one side only; Keras
    layers refuse stride and dilation together, so a port moves one of them.
    """

    code, name, title = "AMB123", "conv-dilation", "Dilation differs"
    weight = 20
    kinds, ops, names = ("attr",), ("Conv", "ConvTranspose"), ("dilations",)
    sample = Cause("attr", "Conv", "dilations", [2, 2], [1, 1])
    unpaired = "with another dilation alone the size changes, with the padding that keeps it two settings differ"

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        return f"The {called(cause.op)} has dilation {c} in the candidate, {r} in the reference."

    def fix(self, cause: Cause) -> str:
        d = code(cause.reference)
        return write(cause, torch=f"{layer(cause)}(..., dilation={d})", keras=f"{layer(cause)}(..., dilation_rate={d})")


@rule
class ConvGroups(Known):
    """A convolution has another number of groups.

    How it shows: the kernels do not fit each other; after a wrong fill the channels are mixed.

    Why it happens: depthwise convolution is groups=channels in torch and DepthwiseConv2D in Keras; ResNeXt and
    ShuffleNet ports that leave groups out. Keras' transposed convolutions have no groups at all.
    """

    code, name, title = "AMB124", "conv-groups", "Groups of a convolution differ"
    weight = 20
    kinds, ops, names = ("attr",), ("Conv", "ConvTranspose"), ("group",)
    unpaired = "with other groups the kernel has another shape: nothing could be carried over"
    sample = Cause("attr", "Conv", "group", 4, 1)

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        return f"The {called(cause.op)} works in {c} groups in the candidate, in {r} in the reference."

    def fix(self, cause: Cause) -> str:
        g = code(cause.reference)
        return write(
            cause,
            torch=f"{layer(cause)}(..., groups={g})",
            keras=f"{layer(cause)}(..., groups={g}), or keras.layers.DepthwiseConv2D when there is one group a channel",
        )


@rule
class PaddingMode(Known):
    """A convolution pads with zeros on one side and with the image's own values on the other.

    How it shows: errors only along the border, as wide as the receptive field reaches.

    Why it happens: torch convolutions have padding_mode ('reflect', 'replicate', 'circular'), Keras ones only zeros.
    """

    code, name, title = "AMB125", "padding-mode", "Padding mode differs"
    weight = 20
    kinds, ops, names = ("attr",), ("Conv",), ("pad_mode",)
    sample = Cause("attr", "Conv", "pad_mode", "reflect", "constant")
    examples = (
        differ(
            "Conv",
            {"pad_mode": "reflect"},
            {"pad_mode": "constant"},
            (2, 3, 9, 8),
            out=4,
            kernel_shape=[3, 3],
            strides=[1, 1],
            pads=[1, 1, 1, 1],
        ),
        agree("Conv", {}, {}, (2, 3, 9, 8), out=4, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1]),
    )

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        return f"The candidate pads with {_mode(c)}, the reference with {_mode(r)}."

    def fix(self, cause: Cause) -> str:
        given = str(cause.reference)
        mode = {"constant": "zeros", "edge": "replicate", "wrap": "circular"}.get(given, given)
        keras = (
            "padding='same' without a pad before"
            if mode == "zeros"
            else f"keras.ops.pad(x, ..., mode='{cause.reference}') and padding='valid'"
        )
        if given in {"edge", "wrap"}:
            gather = f"gather the border rows and columns (keras.ops.pad has no mode '{cause.reference}')"
            keras = f"{gather} and padding='valid'"
        return write(cause, torch=f"{layer(cause)}(..., padding_mode='{mode}')", keras=keras)


def _mode(mode: str) -> str:
    return {
        "constant": "zeros",
        "reflect": "the mirrored image (reflect)",
        "edge": "its border value (replicate)",
        "wrap": "the opposite border (circular)",
    }.get(mode, mode)


@rule
class TransposedCrop(Known):
    """A transposed convolution crops its result elsewhere.

    How it shows: the shapes agree and the image is shifted by one pixel; upsampling paths of U-Nets and decoders.

    Why it happens: kernel 3, stride 2: Keras' 'same' keeps n*s values from (k - s) // 2 on, that is from 0; torch's
    usual padding=1, output_padding=1 starts at 1. No pair (padding, output_padding) gives Keras' when k - s is odd.
    With k - s even, padding=(k - s) / 2 is the same. An explicit output_padding in Keras moves the crop once more.
    """

    code, name, title = "AMB126", "transposed-crop", "Crop of a transposed convolution differs"
    weight = 25
    kinds, ops, names = ("attr",), ("ConvTranspose",), ("pads", "auto_pad", "output_padding", "output_shape")
    sample = Cause(
        "attr",
        "ConvTranspose",
        "pads",
        [0, 0, 1, 1],
        [1, 1, 0, 0],
        candidate_cls="ConvTranspose2d",
        detail={"reference_attrs": {"kernel_shape": [3, 3], "strides": [2, 2]}},
    )
    examples = (
        differ(
            "ConvTranspose",
            {"pads": [0, 0, 1, 1], "output_padding": [0, 0]},
            {"pads": [1, 1, 1, 1], "output_padding": [1, 1]},
            (2, 3, 5, 6),
            out=4,
            kernel_shape=[3, 3],
            strides=[2, 2],
        ),
        agree("ConvTranspose", {}, {}, (2, 3, 5, 6), out=4, kernel_shape=[4, 4], strides=[2, 2], pads=[1, 1, 1, 1]),
    )

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        what = "output padding" if cause.name == "output_padding" else "crop (padding)"
        return (
            f"The {what} of the transposed convolution is {c} in the candidate, {r} in the reference "
            "(begin of each axis, then end)."
        )

    def fix(self, cause: Cause) -> str:
        if cause.name == "output_padding":
            op = code(cause.reference)
            return write(
                cause,
                torch=f"{layer(cause)}(..., output_padding={op})",
                keras=f"{layer(cause)}(..., padding='valid'), then crop or pad the end to match output_padding={op}",
            )
        pads = list(cause.reference) if isinstance(cause.reference, list | tuple) else []
        n = max(len(pads) // 2, 1)
        begin, end = pads[:n], pads[n:]
        cut = ", ".join(f"{b}:-{e}" if e else f"{b}:" for b, e in zip(begin, end, strict=False))
        crop = str(tuple(zip(begin, end, strict=False))) if n > 1 else str((begin or [0], end or [0]))
        torch = (
            f"{layer(cause)}(..., padding={code(begin)})"
            if begin == end and begin
            else f"{layer(cause)}(..., padding=0) and then y = y[..., {cut or 'begin:end'}]"
        )
        return write(
            cause, torch=torch, keras=f"{layer(cause)}(..., padding='valid') and then keras.layers.Cropping{n}D({crop})"
        )


@rule
class ConvSetting(Known):
    """A convolution or linear layer differs in its kind or in a setting that no more special rule covers.

    How it shows: the layer's output differs with equal weights, and the change named repairs it.

    Why it happens: for instance a convolution that flips its kernel (Theano) or an einsum with other axes. The message
    has both values.
    """

    code, name, title = "AMB129", "conv-setting", "Setting of a convolution or linear layer differs"
    kinds, families = ("attr", "variant", "op"), ("conv", "linear")
    unpaired = "the settings that layers of both frameworks share have rules of their own"
    sample = Cause("attr", "Einsum", "equation", "abc,cd->abd", "abc,bd->abd")

    def message(self, cause: Cause) -> str:
        if cause.kind == "op":
            return f"The candidate computes a {called(cause.name)}, the reference a {called(cause.op)}."
        c, r = both(cause)
        return f"The {called(cause.op)} has {cause.name} {c} in the candidate, {r} in the reference."

    def fix(self, cause: Cause) -> str:
        if cause.kind == "op":
            return f"write {layer(cause, cause.op)} here"
        return f"set {cause.name}={code(cause.reference)} on {layer(cause)} (it has {number(cause.candidate)})"
