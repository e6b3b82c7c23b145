"""Raw TensorFlow operators in eager code: ``x + y``, ``tf.matmul``, ``tf.nn.softmax`` ...

TensorFlow's own operator callbacks see eager operators but cannot replace what they return. Every generated operator
function, and so every Python operator on tensors, goes through ``pywrap_tfe.TFE_Py_FastPathExecute`` or, for arguments
that need converting first, through ``execute.execute``; both are module attributes looked up at each call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import execute as tf_execute
from tensorflow.python.framework import op_def_registry

from ambidex.adapters import keras_layers as kl
from ambidex.adapters.keras_sources import calling_source
from ambidex.adapters.keras_tape import Tape
from ambidex.adapters.keras_tensors import is_float, is_tensor
from ambidex.core.types import Layer

#: ask, make constants, or keep state: run, not recorded
_SILENT = {
    "Shape",
    "ShapeN",
    "Size",
    "Rank",
    "ZerosLike",
    "OnesLike",
    "Fill",
    "Range",
    "LinSpace",
    "VarHandleOp",
    "NoOp",
    "VarIsInitializedOp",
    "AssignVariableOp",
    "AssignAddVariableOp",
    "AssignSubVariableOp",
    "Assert",
    "PrintV2",
    "BroadcastArgs",
    "StringFormat",
    "ReadVariableOp",
    "VariableShape",
    "RandomUniform",
    "RandomStandardNormal",
    "StatelessRandomGetKeyCounter",
    "StatelessRandomUniformV2",
    "StatelessRandomNormalV2",
    "DestroyResourceOp",
}
_ALIASES = {"Identity", "StopGradient", "PreventGradient", "EnsureShape", "CheckNumerics", "Snapshot", "Copy"}
#: operator -> {number of an input: attribute that it sets}, where the input is a constant
_SETTINGS: dict[str, dict[int, str]] = {
    **{
        op: {1: "axis"}
        for op in (
            "Mean",
            "Sum",
            "Max",
            "Min",
            "Prod",
            "All",
            "Any",
            "ExpandDims",
            "ArgMax",
            "ArgMin",
            "Cumsum",
            "Cumprod",
            "ConcatV2",
        )
    },
    "Transpose": {1: "perm"},
    "Reshape": {1: "shape"},
    "BroadcastTo": {1: "shape"},
    "Tile": {1: "repeats"},
    "GatherV2": {2: "axis"},
    "Split": {0: "axis"},
    "SplitV": {2: "axis"},
    "OneHot": {1: "depth"},
    "Pad": {1: "paddings"},
    "PadV2": {1: "paddings", 2: "value"},
    "MirrorPad": {1: "paddings"},
    **{op: {1: "size"} for op in ("ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic")},
}
#: canonical operators of two operands, one of which may be a number
_BINARY = {
    "Add",
    "Sub",
    "Mul",
    "Div",
    "DivNoNan",
    "FloorDiv",
    "Mod",
    "Pow",
    "Max",
    "Min",
    "SquaredDifference",
    "Equal",
    "NotEqual",
    "Less",
    "LessOrEqual",
    "Greater",
    "GreaterOrEqual",
}
#: raw operators whose weight is an input: the filter's spatial axes come first
_FILTERS = {"Conv2D", "Conv3D", "DepthwiseConv2dNative"}
_RESOURCES = {"resource", "variant", "string"}
#: element types in the attributes of the slow path: float16, bfloat16 and float32 become float64
_WIDE_ENUM = {1: 2, 14: 2, 19: 2}

Current = Callable[[], Tape | None]


@cache
def _inputs_of(op_type: str) -> int:
    definition = op_def_registry.get(op_type)
    return -1 if definition is None else len(definition.input_arg)


@cache
def _label(op_type: str) -> str:
    plain = re.sub(r"V\d+$", "", op_type)
    return {"BatchMatMul": "matmul", "RealDiv": "div"}.get(plain, plain.lower())


@contextmanager
def intercept(current: Current) -> Iterator[None]:
    """Raw operators inside go through the tape that ``current`` names."""
    fast, slow = pywrap_tfe.TFE_Py_FastPathExecute, tf_execute.execute
    eager = tf.config.functions_run_eagerly()

    def fast_path(context: Any, op_type: str, name: Any, *given: Any) -> Any:
        tape = current()
        if tape is None or tape.quiet:
            return fast(context, op_type, name, *given)
        n = _inputs_of(op_type)
        if n < 0:
            return fast(context, op_type, name, *given)
        settings = given[n:]

        def run(*inputs: Any) -> Any:
            return fast(context, op_type, name, *inputs, *settings)

        def run_wide(*inputs: Any) -> Any:
            return fast(context, op_type, name, *inputs, *map(_wide, settings))

        return _operator(tape, op_type, given[:n], _pairs(settings), run, run_wide)

    def slow_path(op_name: Any, num_outputs: int, inputs: Any, attrs: Any, ctx: Any, name: Any = None) -> Any:
        tape = current()
        op_type = op_name.decode() if isinstance(op_name, bytes) else op_name
        if tape is None or tape.quiet or _inputs_of(op_type) < 0:
            return slow(op_name, num_outputs, inputs, attrs, ctx, name)
        settings = tuple(attrs or ())

        def run(*given: Any) -> Any:
            return slow(op_name, num_outputs, list(given), attrs, ctx, name)

        def run_wide(*given: Any) -> Any:
            kinds = [
                n if i % 2 == 0 else _WIDE_ENUM.get(n, n) if _is_type(settings[i - 1], n) else n
                for i, n in enumerate(settings)
            ]
            return slow(op_name, num_outputs, list(given), tuple(kinds), ctx, name)

        return _operator(tape, op_type, tuple(inputs), _pairs(settings), run, run_wide)

    pywrap_tfe.TFE_Py_FastPathExecute, tf_execute.execute = fast_path, slow_path
    if not eager:
        tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        pywrap_tfe.TFE_Py_FastPathExecute, tf_execute.execute = fast, slow
        if not eager:
            tf.config.run_functions_eagerly(False)


def _pairs(settings: Sequence[Any]) -> dict[Any, Any]:
    return dict(zip(settings[::2], settings[1::2], strict=False))


def _is_type(name: Any, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and name in {"T", "DstT", "SrcT", "dtype", "out_type"}


def _wide(value: Any) -> Any:
    return tf.float64 if isinstance(value, tf.DType) and value.name in {"float16", "bfloat16", "float32"} else value


def _operator(
    tape: Tape,
    op_type: str,
    inputs: tuple[Any, ...],
    attrs: dict[Any, Any],
    run: Callable[..., Any],
    run_wide: Callable[..., Any],
) -> Any:
    if op_type in _SILENT:
        result = tape.inside(run, inputs, {})
        if op_type == "ReadVariableOp":
            tape.alias(inputs[0], result)
        return result
    first = inputs[0] if inputs else None
    if op_type in _ALIASES and is_tensor(first):
        result = tape.inside(run, inputs, {})
        tape.alias(first, result)
        return result
    if op_type == "Cast" and is_tensor(first) and is_float(first):
        result = tape.inside(run, inputs, {})
        if is_float(result):
            tape.alias(first, result)
            return result
    if op_type == "ResourceGather" and tape.known(first):
        variable = tape.inside(_read, (first, attrs["dtype"]), {})
        tape.alias(first, variable)
        axis, batch = 0, attrs.get("batch_dims", 0)
        return tf.raw_ops.GatherV2(params=variable, indices=inputs[1], axis=axis, batch_dims=batch)
    flat = [t for value in inputs for t in (value if isinstance(value, list | tuple) else (value,))]
    if not tape.worth([t for t in flat if _counts(tape, t)]):
        return tape.inside(run, inputs, {})
    path = f"{tape.scopes[-1]}:{_label(op_type)}"

    def describe() -> Layer:
        found = kl.tf_op(op_type, _described(tape, op_type, inputs, attrs))
        op, settings = found if found is not None else ("", {})
        if op in _BINARY and len(inputs) == 2:
            settings = {**settings, **_operand(tape, inputs)}
        return Layer(path, op, dict(settings), cls=op_type, source=calling_source(), functional=True)

    return tape.execute(
        path,
        describe,
        run,
        inputs,
        {},
        parameters=_names(op_type),
        chained=True,
        wanted=lambda t: _counts(tape, t),
        exact_fn=run_wide,
    )


def _read(handle: Any, dtype: Any) -> Any:
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)


@cache
def _names(op_type: str) -> tuple[str, ...]:
    return tuple(a.name for a in op_def_registry.get(op_type).input_arg)


def _counts(tape: Tape, value: Any) -> bool:
    """Variables, known tensors, tables of floats or booleans; constant integers are axes, permutations, shapes."""
    if isinstance(value, tf.Variable):
        return True
    if not is_tensor(value) or value.dtype.name in _RESOURCES:
        return False
    return tape.known(value) or (len(value.shape) > 0 and (is_float(value) or value.dtype == tf.bool))


def _constant(tape: Tape, value: Any) -> Any:
    """The plain value of a setting; None when it is made from the model's data."""
    if is_tensor(value):
        return None if tape.known(value) else np.asarray(value.numpy()).tolist()
    return value.tolist() if isinstance(value, np.ndarray) else value


def _operand(tape: Tape, inputs: Sequence[Any]) -> dict[str, Any]:
    """A number beside the tensor of a binary operator, as ``keras_functional`` words it."""
    for i in (1, 0):
        value = inputs[i]
        if is_tensor(value) and (_counts(tape, value) or len(value.shape) or value.dtype.name in _RESOURCES):
            continue
        plain = np.asarray(value.numpy() if is_tensor(value) else value)
        if plain.ndim == 0 and plain.dtype.kind in "fiu":
            # the shortest text of a float32 is the number that stands in the code
            number = float(str(plain[()])) if plain.dtype.kind == "f" else int(plain)
            return {"other": number, **({"swapped": True} if i == 0 else {})}
    return {}


def _described(tape: Tape, op_type: str, inputs: Sequence[Any], attrs: dict[Any, Any]) -> dict[str, Any]:
    found = {k: v.decode() if isinstance(v, bytes) else v for k, v in attrs.items() if isinstance(k, str)}
    for i, name in _SETTINGS.get(op_type, {}).items():
        if i < len(inputs):
            found[name] = _constant(tape, inputs[i])
    if op_type in _FILTERS and hasattr(inputs[1], "shape"):
        found["kernel_shape"] = [int(n) for n in inputs[1].shape[:-2]]
    if op_type == "StridedSlice":
        begin, end, strides = (_constant(tape, v) for v in inputs[1:4])
        if begin is not None and end is not None and strides is not None:
            found["key"] = _key(begin, end, strides, found)
    return found


def _key(begin: list[int], end: list[int], strides: list[int], masks: dict[str, Any]) -> tuple[Any, ...]:
    """The Python subscript that TensorFlow wrote as a strided slice."""

    def bit(name: str, i: int) -> bool:
        return bool(int(masks.get(name, 0)) >> i & 1)

    key: list[Any] = []
    for i, (b, e, s) in enumerate(zip(begin, end, strides, strict=True)):
        if bit("ellipsis_mask", i):
            key.append(Ellipsis)
        elif bit("new_axis_mask", i):
            key.append(None)
        elif bit("shrink_axis_mask", i):
            key.append(b)
        else:
            start, stop = (None if bit("begin_mask", i) else b), (None if bit("end_mask", i) else e)
            key.append(slice(start, stop, None if s == 1 else s))
    return tuple(key)
