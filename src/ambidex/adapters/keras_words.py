"""What the modules on Keras layers share: the translation, whose code a layer runs, layouts, einsum and padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

LAST = {1: "NLC", 2: "NHWC", 3: "NDHWC"}
FIRST = {1: "NCL", 2: "NCHW", 3: "NCDHW"}
Attrs = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Translation:
    """A layer in canonical words (docs/canonical.md); ``layout`` names the axes of its main input, or is ""."""

    op: str
    attrs: Attrs = field(default_factory=dict)
    layout: str = ""


#: methods a user's subclass may replace without changing what the layer computes from its weights
_HARMLESS = {
    "__init__",
    "__doc__",
    "__module__",
    "__qualname__",
    "__dict__",
    "__weakref__",
    "__annotations__",
    "__reduce__",
    "__firstlineno__",
    "__static_attributes__",
    "__abstractmethods__",
    "_abc_impl",
    "__hash__",
    "__repr__",
    "get_config",
    "from_config",
    "build",
    "build_from_config",
    "get_build_config",
    "compute_output_shape",
    "compute_output_spec",
    "compute_mask",
    "count_params",
    "summary",
    "save_own_variables",
    "load_own_variables",
    "get_quantization_layer_structure",
    "variable_serialization_spec",
}


def own_class(layer: Any) -> type | None:
    """The class of Keras whose computation the layer runs; None when a subclass outside Keras replaces some of it."""
    replaced: set[str] = set()
    for cls in type(layer).__mro__:
        if cls.__module__.startswith("keras.src."):
            inherited = {name for base in cls.__mro__ for name in vars(base)}
            return None if (replaced - _HARMLESS) & inherited else cls
        replaced |= set(vars(cls))
    return None


def input_shapes(layer: Any) -> list[tuple[int | None, ...]]:
    """The shapes the layer was built with, one an input; empty when it does not know."""
    shapes = getattr(layer, "_build_shapes_dict", None) or {}
    found = []
    for value in shapes.values():
        if value and isinstance(value[0], list | tuple):
            found += [tuple(v) for v in value]
        elif value is not None:
            found.append(tuple(value))
    return found


def rank_of(layer: Any, ndim: int | None) -> int | None:
    """The rank of the main input: as given, else as the layer knows it."""
    if ndim is not None:
        return ndim
    spec = getattr(layer, "input_spec", None)
    if spec is not None and getattr(spec, "ndim", None):
        return int(spec.ndim)
    shapes = input_shapes(layer)
    return len(shapes[0]) if shapes else None


def negative(axis: int, ndim: int | None) -> int:
    """An axis counted from the end, when the rank is known."""
    return axis if axis < 0 or ndim is None else axis - ndim


def spatial_layout(rank: int, data_format: str | None) -> str:
    """The layout of ``rank`` spatial axes."""
    return (FIRST if data_format == "channels_first" else LAST)[rank]


def channel_layout(axis: int, ndim: int | None) -> str | None:
    """The layout in which ``axis`` is the channel; None when no name of a layout says so."""
    if ndim is None:
        return "" if axis == -1 else None
    axis %= ndim
    if ndim == 2 and axis == 1:
        return ""
    if axis == 0 or ndim < 3:
        return None
    if axis == ndim - 1:
        return LAST.get(ndim - 2)
    if axis == 1:
        return FIRST.get(ndim - 2)
    return None


@dataclass(frozen=True, slots=True)
class EinsumPlan:
    """How an EinsumDense kernel becomes a (out, in) matrix: which of its axes are output and input."""

    out_axes: tuple[int, ...]
    in_axes: tuple[int, ...]


def einsum_plan(layer: Any) -> EinsumPlan | None:
    """The plan of an EinsumDense that contracts trailing input axes and appends output axes; None for any other."""
    equation = layer.equation.replace(" ", "").replace("...", "0")
    inputs, rest = equation.split(",")
    kernel, output = rest.split("->")
    if "0" in kernel or len({*inputs}) != len(inputs) or len({*kernel}) != len(kernel):
        return None
    contracted = [c for c in inputs if c in kernel and c not in output]
    appended = [c for c in output if c in kernel and c not in inputs]
    free = [c for c in inputs if c not in kernel]
    if not contracted or not appended or len(contracted) + len(appended) != len(kernel):
        return None
    if list(inputs) != free + contracted or list(output) != free + appended:
        return None
    if any(c in (layer.bias_axes or "") for c in free):
        return None
    return EinsumPlan(tuple(map(kernel.index, appended)), tuple(map(kernel.index, contracted)))


def equation(text: str) -> str:
    """The equation with letters in order of appearance, so that two spellings of one are equal."""
    names: dict[str, str] = {}
    out = ""
    for c in text.replace(" ", ""):
        out += names.setdefault(c, chr(ord("a") + len(names))) if c.isalpha() else c
    return out


def window_padding(padding: str, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Attrs:
    """``pads`` and ``auto_pad``; 'same' is written as explicit pads where they do not depend on the input's size."""
    n = len(kernel)
    reach = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
    if padding == "causal":
        return {"pads": [*reach, *[0] * n], "auto_pad": "NOTSET"}
    if padding == "same":
        if any(s > 1 and r > 0 for s, r in zip(strides, reach, strict=True)):
            return {"pads": [0] * (2 * n), "auto_pad": "SAME_UPPER"}
        begin = [r // 2 for r in reach]
        return {"pads": [*begin, *[r - b for r, b in zip(reach, begin, strict=True)]], "auto_pad": "NOTSET"}
    return {"pads": [0] * (2 * n), "auto_pad": "NOTSET"}


def conv_attrs(layer: Any, group: int) -> Attrs:
    kernel, strides, dilations = list(layer.kernel_size), list(layer.strides), list(layer.dilation_rate)
    return {
        "kernel_shape": kernel,
        "strides": strides,
        "dilations": dilations,
        "group": group,
        **window_padding(layer.padding, kernel, strides, dilations),
        "pad_mode": "constant",
    }


def transpose_padding(kernel: int, stride: int, dilation: int, padding: str, given: int | None) -> tuple[int, int, int]:
    """(begin, end, output_padding) of one axis of a Keras transposed convolution.

    The output of size (n-1)*stride + reach is cropped: 'same' takes off reach - stride (to n*stride), or with an
    explicit output_padding reach - reach % 2 - output_padding; the smaller half at the beginning. A negative crop is
    output padding.
    """
    reach = (kernel - 1) * dilation + 1
    if padding == "valid":
        return 0, 0, max(stride - reach, 0) if given is None else given
    crop = reach - stride if given is None else reach - reach % 2 - given
    return (crop // 2, crop - crop // 2, 0) if crop >= 0 else (0, 0, -crop)


def class_name(layer: Any) -> str:
    """The name of the Keras class whose computation the layer runs, else of its own class."""
    return (own_class(layer) or type(layer)).__name__
