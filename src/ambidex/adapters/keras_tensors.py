"""Tensors of whatever backend Keras runs on: to and from numpy, and inside nested arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
from keras.src import backend

from ambidex.core.types import Array

BACKEND: str = keras.backend.backend()
if BACKEND == "tensorflow":
    import tensorflow as tf

    _TENSOR: tuple[type, ...] = (type(tf.constant(0.0)),)  # eager ones only: they have values
    _VARIABLE: tuple[type, ...] = (tf.Variable, keras.Variable)
else:
    _TENSOR = (type(keras.ops.convert_to_tensor(0.0)),)
    _VARIABLE = (keras.Variable,)

_NARROW = {"float16", "bfloat16", "float32"}


_kinds: dict[type, str] = {}


def _kind(value: Any) -> str:
    """ "tensor", "variable", "array" or "", remembered by type: asking Keras' and TensorFlow's classes is slow."""
    cls = type(value)
    known = _kinds.get(cls)
    if known is None:
        if isinstance(value, _TENSOR):
            known = "tensor"
        elif isinstance(value, _VARIABLE):
            known = "variable"
        else:
            known = "array" if isinstance(value, np.ndarray) else ""
        if BACKEND == "jax" and not known:
            return "tensor" if backend.is_tensor(value) else ""
        _kinds[cls] = known
    return known


def is_tensor(value: Any) -> bool:
    """A dense tensor with values (no symbolic one)."""
    return _kind(value) == "tensor"


def is_value(value: Any) -> bool:
    """A tensor, a variable, or a numpy array that is more than a number: what counts as an input of a call."""
    kind = _kind(value)
    return kind in ("tensor", "variable") or (kind == "array" and value.ndim > 0)


def dtype_of(value: Any) -> str:
    return str(backend.standardize_dtype(value.dtype))


def is_float(value: Any) -> bool:
    name = getattr(value.dtype, "name", None) or str(value.dtype)
    return "float" in name


def numpy_from_tensor(value: Any) -> Array:
    """The values; shares memory with an immutable TensorFlow tensor. bfloat16 becomes float32."""
    if isinstance(value, np.ndarray):
        array: Array = value
    elif isinstance(value, keras.Variable) and BACKEND != "tensorflow":
        array = np.array(backend.convert_to_numpy(value.value))
    elif BACKEND == "tensorflow":
        if isinstance(value, keras.Variable):
            value = value.value
        if isinstance(value, tf.Variable):
            value = value.value()
        try:
            array = np.asarray(memoryview(value))
        except (TypeError, ValueError, BufferError, RuntimeError):  # bfloat16, strings, a tensor on an accelerator
            array = np.asarray(value.numpy())
    else:
        array = np.asarray(backend.convert_to_numpy(value))
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def tensor_like(array: Any, like: Any) -> Any:
    """A tensor of these values with the dtype of ``like``."""
    return backend.convert_to_tensor(np.asarray(array), dtype=dtype_of(like))


def tensor_from_numpy(array: Any) -> Any:
    return backend.convert_to_tensor(np.ascontiguousarray(array))


def to_float64(value: Any) -> Any:
    """Floating values in float64, others unchanged."""
    if isinstance(value, np.ndarray):
        return value.astype(np.float64) if value.dtype.kind == "f" else value
    if isinstance(value, _VARIABLE):
        raw = value.value if isinstance(value, keras.Variable) else value
        return wide(backend.convert_to_tensor(raw))
    return wide(value)


def wide(tensor: Any) -> Any:
    return backend.cast(tensor, "float64") if is_float(tensor) and dtype_of(tensor) != "float64" else tensor


@contextmanager
def float64_promotion() -> Iterator[None]:
    """Keras promotes float64 to float32 on backends other than TensorFlow; not inside."""
    from keras.src.backend.common import dtypes

    table = dtypes.BIT64_TO_BIT32_DTYPE
    before = table["float64"]
    table["float64"] = "float64"
    try:
        yield
    finally:
        table["float64"] = before


def fresh(tensor: Any) -> Any:
    """Another tensor object with the same values, so that an output can be told from the input it repeats."""
    if BACKEND == "tensorflow":
        return tf.identity(tensor)
    return tensor.view_as(tensor) if BACKEND == "torch" else tensor


def wide_setting(value: Any) -> Any:
    """Settings of a functional operator for a float64 run: narrow dtypes become float64, hidden numbers too."""
    if isinstance(value, str):
        return "float64" if value in _NARROW else value
    if is_tensor(value):
        return wide(value)
    if isinstance(value, np.ndarray | np.floating) and value.dtype.kind == "f":
        return value.astype(np.float64)
    if BACKEND == "tensorflow" and isinstance(value, tf.DType) and value.name in _NARROW:
        return tf.float64
    return value


class Slots:
    """The values inside nested arguments or outputs, in order, and the way back.

    ``wanted`` decides which leaves count; the others stay as they are.
    """

    def __init__(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None = None,
        parameters: Sequence[str] = (),
        wanted: Callable[[Any], bool] = is_value,
    ) -> None:
        self.args, self.kwargs, self.wanted = tuple(args), dict(kwargs or {}), wanted
        self.names: list[str] = []
        self.tensors: list[Any] = []
        for i, value in enumerate(self.args):
            self._visit(value, parameters[i] if i < len(parameters) else str(i))
        for name, value in self.kwargs.items():
            self._visit(value, name)

    def _visit(self, value: Any, name: str) -> None:
        if isinstance(value, list | tuple):
            for i, item in enumerate(value):
                self._visit(item, f"{name}.{i}")
        elif isinstance(value, dict):
            for key, item in value.items():
                self._visit(item, f"{name}.{key}")
        elif self.wanted(value):
            self.names.append(name)
            self.tensors.append(value)

    def rebuilt(
        self, tensors: Sequence[Any], other: Callable[[Any], Any] | None = None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same structure around other tensors; ``other`` maps the leaves that are none."""
        left = iter(tensors)
        args = tuple(self._put(v, left, other) for v in self.args)
        return args, {k: self._put(v, left, other) for k, v in self.kwargs.items()}

    def _put(self, value: Any, left: Iterator[Any], other: Callable[[Any], Any] | None) -> Any:
        if isinstance(value, list | tuple):
            made = [self._put(v, left, other) for v in value]
            if isinstance(value, tuple) and hasattr(value, "_fields"):
                return type(value)(*made)
            return tuple(made) if isinstance(value, tuple) else made
        if isinstance(value, dict):
            return {k: self._put(v, left, other) for k, v in value.items()}
        if self.wanted(value):
            return next(left)
        return value if other is None else other(value)
