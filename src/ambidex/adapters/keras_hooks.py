"""What a run intercepts: layers, keras.ops and keras.activations functions, and raw TensorFlow operators.

Everything is patched at class or module level under one lock and put back when the run ends. The patches do nothing in
other threads.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import keras
from keras import KerasTensor
from keras.src import backend
from keras.src.layers.layer import Layer as KerasLayer
from keras.src.ops.operation import Operation

from ambidex.adapters import keras_layers as kl
from ambidex.adapters.keras_composites import run_layer
from ambidex.adapters.keras_sources import built_at, calling_source
from ambidex.adapters.keras_tape import Tape
from ambidex.adapters.keras_tensors import BACKEND, Slots, is_float, is_tensor
from ambidex.core.types import Layer

LOCK = threading.RLock()
#: functions that only ask, make constants, or convert: run, not recorded
_SILENT = {
    "shape",
    "size",
    "ndim",
    "dtype",
    "is_tensor",
    "convert_to_numpy",
    "isdtype",
    "result_type",
    "arange",
    "zeros",
    "ones",
    "eye",
    "identity",
    "full",
    "linspace",
    "logspace",
    "zeros_like",
    "ones_like",
    "full_like",
    "empty",
    "empty_like",
    "rematerialize",
    "uniform",
    "normal",
    "truncated_normal",
    "randint",
    "categorical",
    "get",
    "serialize",
    "deserialize",
    "tri",
    "hanning",
    "hamming",
    "blackman",
    "bartlett",
    "kaiser",
}
#: functions whose result stands for their first argument
_ALIASES = {"convert_to_tensor", "stop_gradient", "copy", "array"}
#: functions that call the user's functions: those are recorded, not the frame around them
_CONTROL = {"cond", "while_loop", "fori_loop", "switch", "scan", "map", "associative_scan", "custom_gradient"}
_TF_NAMES = {"features": "x", "logits": "x"}
#: functions of tf.nn that are several raw operators, but one in every other framework
_WHOLE = ("gelu", "silu", "swish", "softmax", "log_softmax", "dropout")
#: functions that draw other numbers when they are called again: no float64 version to compare with
_RANDOM = {"dropout"}


def tf_nn() -> Any:
    """TensorFlow's public ``tf.nn``."""
    import tensorflow as tf

    return tf.nn


class Active(threading.local):
    tape: Tape | None = None


ACTIVE = Active()
_WRAPPERS: dict[Any, Any] = {}


@contextmanager
def recording(tape: Tape) -> Iterator[None]:
    """The model runs inside under the tape."""
    with LOCK, ExitStack() as stack:
        before_all: list[tuple[Any, str, Any]] = []
        stack.callback(_put_back, before_all)
        put = functools.partial(_put, before_all)
        put(KerasLayer, "__call__", _layer_call(KerasLayer.__call__))
        put(Operation, "__call__", _operation_call(Operation.__call__))
        if tape.functional:
            _wrap_functions(put)
            # what Keras' own layers call, so that a user's subclass of Dropout drops in one call
            put(backend.random, "dropout", _wrapped(backend.random.dropout, "dropout"))
            if BACKEND == "tensorflow":
                from ambidex.adapters.keras_raw import intercept

                stack.enter_context(intercept(lambda: ACTIVE.tape))
                for name in _WHOLE:
                    put(tf_nn(), name, _wrapped(getattr(tf_nn(), name), name))
        before, ACTIVE.tape = ACTIVE.tape, tape
        try:
            yield
        finally:
            ACTIVE.tape = before


def _put(before: list[tuple[Any, str, Any]], owner: Any, name: str, value: Any) -> None:
    before.append((owner, name, getattr(owner, name)))
    setattr(owner, name, value)


def _put_back(before: list[tuple[Any, str, Any]]) -> None:
    for owner, name, value in reversed(before):
        setattr(owner, name, value)


# ---------------------------------------------------------------- layers and operations


def _layer_call(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        tape = ACTIVE.tape
        if tape is None or tape.quiet:
            return original(self, *args, **kwargs)
        depth, tape.quiet = len(tape.entering), 1
        tape.entering.append((self, args, kwargs))
        try:
            result = original(self, *args, **kwargs)
            if tape.record:
                tape.note_mask(result)
            return result
        except Exception:
            if tape.failed is None:
                tape.failed = (tape.tree.paths.get(id(self)) or self.name, type(self).__name__)
            raise
        finally:
            tape.quiet = 0
            del tape.entering[depth:]

    return call


def _operation_call(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        tape = ACTIVE.tape
        if tape is None:
            return original(self, *args, **kwargs)
        if tape.entering and tape.entering[-1][0] is self:
            _, before_args, before_kwargs = tape.entering.pop()
            _follow(tape, before_args, args)
            _follow(tape, before_kwargs, kwargs)
            return run_layer(tape, self, functools.partial(original, self), args, kwargs)
        if tape.quiet or isinstance(self, KerasLayer):
            return original(self, *args, **kwargs)
        name, fn = _snake(type(self).__name__), functools.partial(original, self)
        return functional(tape, name, fn, args, kwargs, operation=self)

    return call


def _follow(tape: Tape, before: Any, after: Any) -> None:
    """Arguments that Keras converted (dtype, numpy) keep their origin."""
    if before is after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            if key in after:
                _follow(tape, value, after[key])
    elif isinstance(before, list | tuple) and isinstance(after, list | tuple):
        for a, b in zip(before, after, strict=False):
            _follow(tape, a, b)
    else:
        tape.alias(before, after)


def _snake(name: str) -> str:
    out = "".join(
        f"_{c.lower()}" if c.isupper() and i and not name[i - 1].isupper() else c.lower() for i, c in enumerate(name)
    )
    return {"getitem": "get_item", "relu6": "relu6"}.get(out, out)


# ---------------------------------------------------------------- functions


def _modules() -> list[Any]:
    """The modules whose public functions users and libraries call."""
    from keras.src import activations as source_activations
    from keras.src import ops as source_ops

    found = [
        keras.ops,
        keras.ops.nn,
        keras.ops.numpy,
        keras.ops.image,
        keras.ops.linalg,
        source_ops,
        keras.random,
        keras.activations,
        source_activations,
    ]
    twins = ("ops", "ops.nn", "ops.numpy", "ops.image", "ops.linalg", "random", "activations")  # behind tf.keras
    return found + [m for name in twins if (m := sys.modules.get(f"keras._tf_keras.keras.{name}")) is not None]


def _wrap_functions(put: Callable[[Any, str, Any], None]) -> None:
    for module in _modules():
        for name, fn in list(vars(module).items()):
            if not name.startswith("_") and isinstance(fn, types.FunctionType):
                put(module, name, _wrapped(fn, name))


def _wrapped(fn: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The recording wrapper of a function, made once: another run uses it again."""
    if fn not in _WRAPPERS:
        _WRAPPERS[fn] = _function(name, fn)
    return _WRAPPERS[fn]


def _function(name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(fn)
    label = name if name in _WHOLE or fn.__name__.startswith("_") else fn.__name__

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        tape = ACTIVE.tape
        if tape is None or tape.quiet or label in _CONTROL:
            return fn(*args, **kwargs)
        if label in _SILENT:
            return tape.inside(fn, args, kwargs)
        return functional(tape, label, fn, args, kwargs, signature=signature)

    return call


def functional(
    tape: Tape,
    name: str,
    fn: Callable[..., Any],
    args: Any,
    kwargs: Any,
    *,
    operation: Any = None,
    signature: inspect.Signature | None = None,
) -> Any:
    """One functional operator of the model's own code: an Operation of a graph, or a function."""
    if not tape.functional:
        return tape.inside(fn, args, kwargs)
    tensors = Slots(args, kwargs).tensors
    if not tensors or not tape.worth(tensors):
        return fn(*args, **kwargs) if _symbolic(args) else tape.inside(fn, args, kwargs)
    first = tensors[0]
    if name in _ALIASES or (name == "cast" and is_float(first)):
        result = tape.inside(fn, args, kwargs)
        if name != "cast" or (is_tensor(result) and is_float(result)):
            if tape.known(first) or id(first) in tape.exacts:
                tape.alias(first, result)
            return result
    path = f"{tape.scopes[-1]}:{name}"

    def describe() -> Layer:
        found = _meaning(name, args, kwargs, operation, signature)
        op, attrs = found if found is not None else ("", {})
        place = (built_at(operation) if operation is not None else None) or calling_source()
        return Layer(path, op, dict(attrs), cls=name, source=place, functional=True)

    parameters = () if signature is None or _variadic(signature) else tuple(signature.parameters)
    chained = name not in _RANDOM
    return tape.execute(
        path, describe, fn, args, kwargs, parameters=parameters, chained=chained, wanted=tape.counts_as_input
    )


def _variadic(signature: inspect.Signature) -> bool:
    return any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in signature.parameters.values())


def _symbolic(args: Any) -> bool:
    return any(isinstance(a, KerasTensor) for a in args)


def _meaning(
    name: str, args: Any, kwargs: Any, operation: Any, signature: inspect.Signature | None
) -> tuple[str, dict[str, Any]] | None:
    if operation is not None:
        return kl.operation(operation, args, kwargs)
    assert signature is not None
    if _variadic(signature):
        return kl.operation(name, args, kwargs)
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()  # keras.activations, keras.ops and tf.nn have different defaults under one name
    given = dict(bound.arguments)
    if given.get("axis", 0) is None and name in ("softmax", "log_softmax"):
        given["axis"] = -1  # as tf.nn means it
    return kl.operation(name, (), {_TF_NAMES.get(k, k): v for k, v in given.items()})
