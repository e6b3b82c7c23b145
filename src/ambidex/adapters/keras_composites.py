"""How each kind of layer runs under a tape: whole, opened, or taken apart into its canonical parts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import Any

import keras

from ambidex.adapters import keras_layers as kl
from ambidex.adapters.keras_exact import in_float64, is_random
from ambidex.adapters.keras_sources import calling_source
from ambidex.adapters.keras_tape import Tape
from ambidex.adapters.keras_tensors import is_tensor
from ambidex.adapters.keras_tree import Tree, join, kind_of, owner_of
from ambidex.core.types import Layer
from ambidex.errors import UnsupportedError


def run_layer(tape: Tape, layer: Any, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """``original`` is the call of Keras itself with its arguments complete: converted, masks and training filled in."""
    path, kind = tape.tree.place_of(layer, tape.scopes[-1])
    if kind == "leaf":
        result = _leaf(tape, layer, path, original, args, kwargs)
    elif kind == "parts":
        result = _in_parts(tape, layer, path, args, kwargs)
    elif kind == "attention":
        with tape.scope(path), _core(tape, layer, path):
            result = original(*args, **kwargs)
    elif kind == "dot":
        result = _dot(tape, layer, path, args, kwargs)
    elif kind == "time" and _opens_in_time(tape, layer, args):
        result = _time(tape, layer, path, args, kwargs)
    elif kind == "time":
        result = _whole(tape, layer, path, original, args, kwargs)
    else:
        with tape.scope(path):
            result = original(*args, **kwargs)
    return result


@cache
def _parameters(cls: type) -> tuple[str, ...]:
    return tuple(inspect.signature(cls.call).parameters)[1:]  # type: ignore[attr-defined]


@contextmanager
def set_in_dict(obj: Any, name: str, value: Any) -> Iterator[None]:
    """An instance attribute for a while, past Keras' own bookkeeping of attributes."""
    missing = object()
    before = obj.__dict__.get(name, missing)
    obj.__dict__[name] = value
    try:
        yield
    finally:
        if before is missing:
            del obj.__dict__[name]
        else:
            obj.__dict__[name] = before


# ---------------------------------------------------------------- leaves


def _leaf(tape: Tape, layer: Any, path: str, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    if kwargs.get("reverse") and join(path, "reverse") in tape.tree.by_path:
        path = join(path, "reverse")
    if path not in tape.tree.activations:
        return _whole(tape, layer, path, original, args, kwargs)
    made = _whole(tape, layer, path, _bare(layer, original), args, kwargs, exact=_bare(layer, layer.call))
    return _activation(tape, layer, path, made)


def _bare(layer: Any, fn: Callable[..., Any]) -> Callable[..., Any]:
    """A method of the layer without the activation at its end."""

    def run(*args: Any, **kwargs: Any) -> Any:
        with set_in_dict(layer, "activation", None):
            return fn(*args, **kwargs)

    return run


def _whole(
    tape: Tape,
    layer: Any,
    path: str,
    fn: Callable[..., Any],
    args: Any,
    kwargs: Any,
    exact: Callable[..., Any] | None = None,
) -> Any:
    training = bool(tape.training if kwargs.get("training") is None else kwargs["training"])
    exact_fn = None if is_random(layer, training) else in_float64(layer, exact or layer.call)
    known = tape.tree.by_path.get(path)

    def describe() -> Layer:
        return replace(tape.tree.describe(layer, path), source=calling_source()) if known is None else known

    given = {k: v for k, v in kwargs.items() if v is not None}
    return tape.execute(path, describe, fn, args, given, parameters=_parameters(type(layer)), exact_fn=exact_fn)


def _activation(tape: Tape, layer: Any, path: str, value: Any) -> Any:
    full, fn = f"{path}:activation", layer.activation
    op, attrs = tape.tree.activations[path]

    def describe() -> Layer:
        name = getattr(fn, "__name__", type(fn).__name__)
        return Layer(full, op, dict(attrs), {}, name, source=tape.tree.sources.get(path))

    return tape.execute(full, describe, lambda x: fn(x), (value,), {}, parameters=("x",), exact_fn=lambda x: fn(x))


# ---------------------------------------------------------------- taken apart


def _in_parts(tape: Tape, layer: Any, path: str, args: Any, kwargs: Any) -> Any:
    """One call after the other, then the activation. A part computes in the type of what it is given."""
    value = args[0] if args else kwargs["inputs"]
    full = path
    for name, part in kl.parts(layer):
        full = join(path, name)
        known = tape.tree.by_path[full]
        value = tape.execute(
            full, partial(_same, known), part.call, (value,), {}, parameters=("inputs",), exact_fn=part.call
        )
    return _activation(tape, layer, full, value) if full in tape.tree.activations else value


def _same(value: Any) -> Any:
    return value


@contextmanager
def _core(tape: Tape, layer: Any, path: str) -> Iterator[None]:
    """The attention core of a multi-head layer as one call; the making of its mask is no call."""
    full = join(path, "attention")
    compute = layer._compute_attention
    signature = inspect.signature(compute)

    def core(*args: Any, **kwargs: Any) -> Any:
        given = dict(signature.bind(*args, **kwargs).arguments)
        q, k, v, mask = (given.pop(n, None) for n in ("query", "key", "value", "attention_mask"))
        attrs = dict(tape.tree.by_path[full].attrs)
        attrs["is_causal"] = bool(given.get("use_causal_mask")) and mask is None
        if given.get("return_attention_scores") and attrs.get("masked_row"):
            attrs["masked_row"] = "zero"
        described = replace(tape.tree.by_path[full], attrs=attrs)

        def fn(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
            return compute(query=q, key=k, value=v, attention_mask=mask, **given)

        exact_fn = None if is_random(layer, tape.training) else in_float64(layer, fn)
        return tape.execute(
            full,
            lambda: described,
            fn,
            (q, k, v),
            {} if mask is None else {"mask": mask},
            parameters=("q", "k", "v"),
            exact_fn=exact_fn,
        )

    with set_in_dict(layer, "_compute_attention", core):
        if not hasattr(layer, "_compute_attention_mask"):
            yield
            return
        make_mask = layer._compute_attention_mask
        with set_in_dict(layer, "_compute_attention_mask", lambda *a, **k: tape.inside(make_mask, a, k)):
            yield


def _dot(tape: Tape, layer: Any, path: str, args: Any, kwargs: Any) -> Any:
    """``keras.layers.Attention``: its inputs are (query, value[, key]); the call's are q, k, v."""
    given = dict(zip(_parameters(type(layer)), args, strict=False)) | {k: v for k, v in kwargs.items() if v is not None}
    inputs, masks = list(given.pop("inputs")), list(given.pop("mask", None) or [])
    q, v, k = inputs[0], inputs[1], inputs[-1]
    attrs = {**tape.tree.by_path[path].attrs, "is_causal": bool(given.get("use_causal_mask"))}
    described = replace(tape.tree.by_path[path], attrs=attrs, layout="NTF")
    names = {f"{n}_mask": m for n, m in zip(("query", "value", "key"), masks, strict=False) if m is not None}

    def fn(q: Any, k: Any, v: Any, **found: Any) -> Any:
        mask = [found.get(f"{n}_mask") for n in ("query", "value", "key")][: len(masks)] if masks else None
        return layer.call([q, v, k][: len(inputs)], mask=mask, **given)

    exact_fn = None if is_random(layer, tape.training) else in_float64(layer, fn)
    return tape.execute(path, lambda: described, fn, (q, k, v), names, parameters=("q", "k", "v"), exact_fn=exact_fn)


def _opens_in_time(tape: Tape, layer: Any, args: Any) -> bool:
    """A layer spread over time equals the layer on all steps at once unless its training looks at the whole batch."""
    inner = layer.layer
    changes = tape.training and (inner.non_trainable_variables or is_random(inner, True))
    return len(args) == 1 and is_tensor(args[0]) and not changes


def _time(tape: Tape, layer: Any, path: str, args: Any, kwargs: Any) -> Any:
    inner, x = layer.layer, args[0]
    mask = kwargs.get("mask")
    extra: dict[str, Any] = {}
    if inner._call_has_training_arg:
        extra["training"] = kwargs.get("training")
    with tape.scope(path):
        if kind_of(inner) == "leaf" and isinstance(inner, keras.layers.Dense):
            return inner(x, **extra)
        batch, steps = int(x.shape[0]), int(x.shape[1])
        flat = _reshaped(tape, x, (batch * steps, *x.shape[2:]))
        if inner._call_has_mask_arg and mask is not None:
            extra["mask"] = _reshaped(tape, mask, (batch * steps, *mask.shape[2:]))
        made = inner(flat, **extra)
        return _reshaped(tape, made, (batch, steps, *made.shape[1:]))


def _reshaped(tape: Tape, tensor: Any, shape: tuple[int, ...]) -> Any:
    made = tape.inside(keras.src.ops.reshape, (tensor, shape), {})
    tape.alias(tensor, made)
    return made


# ---------------------------------------------------------------- alone


def call_alone(tree: Tree, path: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A layer's function of its tensor inputs in order, and the same in float64."""
    owner, _, tail = path.rpartition(":")
    if tail == "activation" and owner in tree.activations:
        fn = owner_of(tree.objects[owner]).activation
        return fn, fn
    if path in tree.cores:
        layer = tree.cores[path]

        def core(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
            return layer._compute_attention(query=q, key=k, value=v, attention_mask=mask, training=False)

        return core, in_float64(layer, core)
    if path not in tree.objects:
        raise UnsupportedError(f"{path!r} cannot be called alone", todo="Give the recorded call it should be like")
    layer = tree.objects[path]
    if owner_of(layer) is not layer:
        return layer.call, in_float64(layer.layer, layer.call)
    run = _bare(layer, layer.call) if path in tree.activations else layer.call
    extra: dict[str, Any] = {"training": False} if layer._call_has_training_arg else {}

    def alone(*tensors: Any) -> Any:
        return run(tensors[0] if len(tensors) == 1 else list(tensors), **extra)

    return alone, in_float64(layer, alone)
