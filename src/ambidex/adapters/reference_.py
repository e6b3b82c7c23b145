"""The float64 reference of every canonical operator (``docs/canonical.md``).

Operators without attributes run in the ``onnx`` package's reference evaluator on float64. The others have own numpy
code, each with the reason in its module: ONNX stores float attributes as float32, its normalisations cast to float32,
its recurrent layers know no masks, its windows loop over pixels. Where both can compute the same, the tests hold
them equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from ambidex.adapters import reference_conv, reference_norm, reference_resize, reference_shape
from ambidex.adapters.reference_norm import attention
from ambidex.adapters.reference_rnn import rnn
from ambidex.core.ops import spec
from ambidex.core.types import Array
from ambidex.errors import AmbidexError, InputError, UnsupportedError

#: operators whose input has channels as axis 1 followed by spatial axes
_CHANNELS = {
    *reference_conv.OPS,
    "BatchNormalization",
    "GroupNormalization",
    "InstanceNormalization",
    "LRN",
    "PRelu",
    "Resize",
    "DepthToSpace",
    "SpaceToDepth",
    "ChannelShuffle",
}
_OWN = {**reference_conv.OPS, **reference_norm.OPS, **reference_shape.OPS, "Resize": reference_resize.resize}
#: layers that cannot do without weights: called with none, the further inputs are the weights
_WEIGHTED = ("Gemm", "Conv", "ConvTranspose", "PRelu", "LSTM", "GRU", "RNN")
_RNN = ("LSTM", "GRU", "RNN")
#: elementwise ONNX operators that need no attribute: evaluated by ONNX itself
_ONNX = frozenset(
    """Abs Acos Acosh And Asin Asinh Atan Atanh Ceil Cos Cosh Equal Exp Floor Greater GreaterOrEqual IsInf
IsNaN Less LessOrEqual Log Neg Not Or Reciprocal Round Sign Sin Sinh Sqrt Tan Xor""".split()
)


def supports(op: str) -> bool:
    """Whether :func:`evaluate` knows the operator."""
    return op in _OWN or op in _ONNX or op in _RNN or op == "Attention"


def evaluate(
    op: str, attrs: Mapping[str, Any], weights: Mapping[str, Array], inputs: Sequence[Array], *, layout: str = ""
) -> list[Array]:
    """The outputs of one canonical operator in float64.

    ``weights`` by canonical role in canonical layout, ``inputs`` in the layout that ``layout`` names; the outputs come
    in that layout too. Floats are computed in float64, integers and booleans stay. UnsupportedError for an operator
    or setting without a reference, InputError when the inputs do not fit.
    """
    if not supports(op):
        raise UnsupportedError(f"operator {op or '(unnamed)'!r} has no float64 reference")
    w = {role: _double(value) for role, value in weights.items()}
    xs = [_double(x) for x in inputs]
    roles = attrs.get("inputs") or ([] if w or op not in _WEIGHTED else spec(op).roles)
    if roles:  # a functional layer: its weights are further inputs
        w |= dict(zip(roles, xs[1:], strict=False))
        xs = [xs[0], *xs[1 + len(roles) :]]
    try:
        with np.errstate(all="ignore"):
            if op in _RNN:
                return rnn(op, attrs, w, xs, layout)
            if op == "Attention":
                return attention(attrs, w, xs, layout)
            if op in _ONNX:
                sides = reference_shape.operands(attrs, xs)  # of one type: ONNX refuses to mix
                return onnx_outputs(op, [np.asarray(v, np.result_type(*sides)) for v in sides])
            if op in _CHANNELS and _channels_last(layout):
                return _moved(op, attrs, w, xs)
            return [np.asarray(y) for y in _OWN[op](attrs, w, xs)]
    except AmbidexError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, AssertionError, ArithmeticError, RuntimeError) as e:
        shapes = ", ".join(str(x.shape) for x in xs)
        raise InputError(
            f"the reference of {op} cannot take inputs of shape {shapes}", f"{type(e).__name__}: {e}"
        ) from e


def _double(x: Array) -> Array:
    x = np.asarray(x)
    return x if x.dtype.kind in "biu" else x.astype(np.float64)


def _channels_last(layout: str) -> bool:
    return layout[:1] == "N" and layout[-1:] in {"C", "F"} and len(layout) > 2


def _moved(op: str, attrs: Mapping[str, Any], w: Mapping[str, Array], xs: list[Array]) -> list[Array]:
    """Run channels first on a channels-last input, and turn the outputs back."""
    x = xs[0]
    if x.ndim < 3:
        return [np.asarray(y) for y in _OWN[op](attrs, w, xs)]
    if op == "PRelu" and "slope" in w and w["slope"].ndim > 1:
        return _OWN[op](attrs, w, xs)  # Keras' slopes of several axes broadcast in its own layout
    outs = _OWN[op](attrs, w, [np.moveaxis(x, -1, 1), *xs[1:]])
    return [np.moveaxis(y, 1, -1) if y.ndim == x.ndim else y for y in outs]


@lru_cache(maxsize=256)
def _evaluator(op: str, kinds: tuple[int, ...], outputs: int, attrs: tuple[tuple[str, Any], ...]) -> ReferenceEvaluator:
    names = [f"x{i}" for i in range(len(kinds))]
    outs = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, outs, **dict(attrs))
    graph = helper.make_graph(
        [node],
        op,
        [helper.make_tensor_value_info(n, k, None) for n, k in zip(names, kinds, strict=True)],
        [helper.make_tensor_value_info(n, onnx.TensorProto.UNDEFINED, None) for n in outs],
    )
    return ReferenceEvaluator(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", onnx.defs.onnx_opset_version())])
    )


def onnx_outputs(op: str, inputs: Sequence[Array], outputs: int = 1, **attrs: Any) -> list[Array]:
    """One ONNX operator in the ``onnx`` package's reference evaluator, attributes as ONNX has them."""
    inputs = [np.asarray(x) for x in inputs]
    kinds = tuple(helper.np_dtype_to_tensor_dtype(x.dtype) for x in inputs)
    frozen = tuple(sorted((k, tuple(v) if isinstance(v, list) else v) for k, v in attrs.items()))
    run = _evaluator(op, kinds, outputs, frozen)
    return [np.asarray(y) for y in run.run(None, {f"x{i}": x for i, x in enumerate(inputs)})]
