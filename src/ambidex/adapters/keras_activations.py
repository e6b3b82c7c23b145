"""Which canonical activation a Keras callable is, and the other way round.

A function that Keras itself owns is known by identity; anything else (a lambda, a partial, a library's own GELU) is
recognised by what it computes on a fixed grid, because its name proves nothing.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from ambidex.core.types import Array
from ambidex.errors import UnsupportedError

Activation = tuple[str, dict[str, Any]]

_SELU_ALPHA, _SELU_GAMMA = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def _relu(negative_slope: float = 0.0, max_value: float | None = None, threshold: float = 0.0) -> Activation:
    slope, start = float(negative_slope), float(threshold)
    if start == 0.0 and max_value is None:
        return ("LeakyRelu", {"alpha": slope}) if slope else ("Relu", {})
    if start == 0.0 and slope == 0.0:
        return "Clip", {"min": 0.0, "max": float(max_value or 0.0)}
    if max_value is None and slope == 0.0:
        return "ThresholdedRelu", {"alpha": start}
    return "", {}


def _gelu(approximate: Any = False) -> Activation:
    return "Gelu", {"approximate": "tanh" if approximate else "none"}


#: name in keras.activations / keras.ops -> canonical activation from the function's own parameters
_NAMED: dict[str, Callable[..., Activation]] = {
    "relu": _relu,
    "leaky_relu": lambda negative_slope=0.2: ("LeakyRelu", {"alpha": float(negative_slope)}),
    "relu6": lambda: ("Clip", {"min": 0.0, "max": 6.0}),
    "softmax": lambda axis=-1: ("Softmax", {"axis": axis}),
    "log_softmax": lambda axis=-1: ("LogSoftmax", {"axis": axis}),
    "elu": lambda alpha=1.0: ("Elu", {"alpha": float(alpha)}),
    "celu": lambda alpha=1.0: ("Celu", {"alpha": float(alpha)}),
    "selu": lambda: ("Selu", {"alpha": _SELU_ALPHA, "gamma": _SELU_GAMMA}),
    "softplus": lambda: ("Softplus", {"beta": 1.0, "threshold": None}),
    "softsign": lambda: ("Softsign", {}),
    "soft_shrink": lambda threshold=0.5: ("SoftShrink", {"lambd": float(threshold)}),
    "hard_shrink": lambda threshold=0.5: ("HardShrink", {"lambd": float(threshold)}),
    "threshold": lambda threshold, default_value: (
        "Threshold",
        {"threshold": float(threshold), "value": float(default_value)},
    ),
    "sparse_plus": lambda: ("SparsePlus", {}),
    "squareplus": lambda b=4: ("Squareplus", {"b": float(b)}),
    "silu": lambda: ("Swish", {"alpha": 1.0}),
    "swish": lambda: ("Swish", {"alpha": 1.0}),
    "gelu": _gelu,
    "glu": lambda axis=-1: ("Glu", {"axis": axis}),
    "tanh": lambda: ("Tanh", {}),
    "tanh_shrink": lambda: ("TanhShrink", {}),
    "hard_tanh": lambda: ("Clip", {"min": -1.0, "max": 1.0}),
    "sigmoid": lambda: ("Sigmoid", {}),
    "sparse_sigmoid": lambda: ("SparseSigmoid", {}),
    "exponential": lambda: ("Exp", {}),
    "exp": lambda: ("Exp", {}),
    "hard_sigmoid": lambda: ("HardSigmoid", {"alpha": 1.0 / 6.0, "beta": 0.5}),
    "hard_silu": lambda: ("HardSwish", {}),
    "hard_swish": lambda: ("HardSwish", {}),
    "log_sigmoid": lambda: ("LogSigmoid", {}),
    "mish": lambda: ("Mish", {}),
    "linear": lambda: ("Identity", {}),
    "sparsemax": lambda axis=-1: ("Sparsemax", {"axis": axis}),
}


@functools.cache
def _by_identity() -> dict[int, str]:
    found: dict[int, str] = {}
    for name in _NAMED:
        for module in (keras.activations, keras.ops):
            fn = getattr(module, name, None)
            if fn is not None:
                found[id(fn)] = name
    return found


def named(name: str, params: Mapping[str, Any]) -> Activation | None:
    """The activation of a keras.activations / keras.ops name with these parameters (missing: the defaults of
    keras.ops, where GELU is the tanh one); None when the name is no activation."""
    make = _NAMED.get(name)
    if make is None:
        return None
    accepted = {k: v for k, v in params.items() if k in inspect.signature(make).parameters}
    if name == "gelu" and "approximate" not in accepted:
        accepted["approximate"] = True
    try:
        return make(**accepted)
    except TypeError:
        return "", {}


def canonical(fn: Any) -> Activation:
    """The canonical activation of a Keras activation (name, function, partial, lambda, activation layer).

    ("Identity", {}) when it does nothing, ("", {}) when it is none that is known.
    """
    if fn is None:
        return "Identity", {}
    if isinstance(fn, str | Mapping):
        fn = keras.activations.get(fn)
    name = _by_identity().get(id(fn))
    if name is not None:
        # keras.activations.gelu is exact by default, keras.ops.gelu is the tanh one
        default = {"approximate": True} if fn is keras.ops.gelu else {}
        try:
            return _NAMED[name](**default)
        except TypeError:
            return "", {}
    if isinstance(fn, functools.partial) and not fn.args and id(fn.func) in _by_identity():
        own = {"approximate": True} if fn.func is keras.ops.gelu else {}
        try:
            return _NAMED[_by_identity()[id(fn.func)]](**{**own, **fn.keywords})
        except TypeError:
            return "", {}
    if isinstance(fn, keras.layers.Layer):
        if fn.weights:
            return "", {}
        from ambidex.adapters import keras_layers

        found = keras_layers.translate(fn)
        if found is not None:
            return found.op, found.attrs
    return probe(fn)


# ---------------------------------------------------------------- recognising by what it computes


def _grid() -> Array:
    fine = np.concatenate([np.linspace(-9.0, 9.0, 145), [-60.0, -30.0, -20.0, 20.0, 30.0, 60.0, 1e-3, -1e-3, 0.0]])
    fine = np.random.default_rng(7).permutation(fine)
    return fine.reshape(11, 14).astype("float32")


def _sigmoid(x: Array) -> Array:
    return np.exp(-np.logaddexp(0.0, -x))


def _erf(x: Array) -> Array:
    return np.vectorize(math.erf)(x)


def evaluate(op: str, attrs: Mapping[str, Any], x: Array) -> Array | None:
    """A canonical activation in numpy; None for one that is not known here."""
    a = attrs.get("alpha", 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        match op:
            case "Identity":
                return x
            case "Relu":
                return np.maximum(x, 0.0)
            case "LeakyRelu":
                return np.where(x >= 0, x, a * x)
            case "Clip":
                return np.clip(x, attrs.get("min"), attrs.get("max"))
            case "ThresholdedRelu":
                return np.where(x > a, x, 0.0)
            case "Threshold":
                return np.where(x > attrs["threshold"], x, attrs["value"])
            case "Softmax" | "LogSoftmax":
                y = x - x.max(attrs["axis"], keepdims=True)
                y = y - np.log(np.exp(y).sum(attrs["axis"], keepdims=True))
                return np.exp(y) if op == "Softmax" else y
            case "Elu":
                return np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0)))
            case "Celu":
                return np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0) / a))
            case "Selu":
                return attrs["gamma"] * np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0)))
            case "Softplus":
                b = attrs["beta"]
                return np.logaddexp(0.0, b * x) / b
            case "Softsign":
                return x / (1 + np.abs(x))
            case "SoftShrink":
                return np.sign(x) * np.maximum(np.abs(x) - attrs["lambd"], 0.0)
            case "HardShrink":
                return np.where(np.abs(x) > attrs["lambd"], x, 0.0)
            case "SparsePlus":
                return np.where(x <= -1, 0.0, np.where(x < 1, 0.25 * (x + 1) ** 2, x))
            case "SparseSigmoid":
                return np.clip(0.5 * (x + 1), 0.0, 1.0)
            case "Squareplus":
                return (x + np.sqrt(x * x + attrs["b"])) / 2
            case "Swish":
                return x * _sigmoid(a * x)
            case "Gelu":
                if attrs["approximate"] == "tanh":
                    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
                return 0.5 * x * (1 + _erf(x / math.sqrt(2)))
            case "Tanh":
                return np.tanh(x)
            case "TanhShrink":
                return x - np.tanh(x)
            case "Sigmoid":
                return _sigmoid(x)
            case "LogSigmoid":
                return -np.logaddexp(0.0, -x)
            case "HardSigmoid":
                return np.clip(a * x + attrs["beta"], 0.0, 1.0)
            case "HardSwish":
                return x * np.clip(x / 6 + 0.5, 0.0, 1.0)
            case "Mish":
                return x * np.tanh(np.logaddexp(0.0, x))
            case "Exp":
                return np.exp(x)
            case "Sin" | "Cos" | "Abs" | "Neg" | "Square":
                return {"Sin": np.sin, "Cos": np.cos, "Abs": np.abs, "Neg": np.negative, "Square": np.square}[op](x)
    return None


def _tidy(value: float) -> float:
    """A parameter measured in float32 as the short number that the author wrote."""
    for digits in range(1, 7):
        short = float(f"{value:.{digits}g}")
        if math.isclose(short, value, rel_tol=3e-6, abs_tol=1e-7):
            return short
    return float(f"{value:.7g}")


def _candidates(at: Callable[[float], float]) -> list[Activation]:
    """Activations to try: those without parameters, then those whose parameter is read off the function."""
    found: list[Activation] = [("Identity", {}), ("Relu", {}), _gelu(False), _gelu(True)]
    found += [
        _NAMED[n]()
        for n in (
            "tanh",
            "sigmoid",
            "silu",
            "mish",
            "softplus",
            "selu",
            "elu",
            "softsign",
            "hard_sigmoid",
            "hard_silu",
            "relu6",
            "exp",
            "log_sigmoid",
            "tanh_shrink",
            "soft_shrink",
            "hard_shrink",
            "sparse_plus",
            "sparse_sigmoid",
            "squareplus",
            "softmax",
            "log_softmax",
        )
    ]
    found += [("Softmax", {"axis": -2}), ("LogSoftmax", {"axis": -2})]
    low, high, zero = at(-60.0), at(60.0), at(0.0)
    found.append(("LeakyRelu", {"alpha": _tidy(low / -60.0)}))
    if low < 0:
        found += [("Elu", {"alpha": _tidy(-low)}), ("Celu", {"alpha": _tidy(-low)})]
    if low < high:
        bounds = {"min": None if low == -60.0 else _tidy(low), "max": None if high == 60.0 else _tidy(high)}
        found.append(("Clip", bounds))
    if zero > 0:
        found.append(("Softplus", {"beta": _tidy(math.log(2) / zero), "threshold": None}))
        slope = (at(1e-3) - at(-1e-3)) / 2e-3
        for alpha in (_tidy(slope), round(slope, 3), 1.0 / 6.0, 0.2):
            if alpha > 0:
                found.append(("HardSigmoid", {"alpha": alpha, "beta": _tidy(zero)}))
    gate = at(0.5) / 0.5
    if 0.5 < gate < 1:
        found.append(("Swish", {"alpha": _tidy(round(math.log(gate / (1 - gate)) / 0.5, 5))}))
    return found + [("Abs", {}), ("Square", {}), ("Neg", {}), ("Sin", {}), ("Cos", {})]


def probe(fn: Callable[..., Any]) -> Activation:
    """What a callable computes on a fixed float32 grid, if that is a known activation; else ("", {})."""
    grid = _grid()
    try:
        first = np.asarray(ops.convert_to_numpy(fn(ops.convert_to_tensor(grid))), "float64")
        again = np.asarray(ops.convert_to_numpy(fn(ops.convert_to_tensor(grid))), "float64")
        exact = grid.astype("float64")
        if first.shape != grid.shape or not np.array_equal(first, again, equal_nan=True):
            return "", {}

        def at(value: float) -> float:
            points = np.full((1, 2), value, "float32")
            return float(np.ravel(ops.convert_to_numpy(fn(ops.convert_to_tensor(points))))[0])

        found = _candidates(at)
    except Exception:  # user code: whatever it raises on a plain matrix, it is no elementwise activation
        return "", {}
    for op, attrs in found:
        expected = evaluate(op, attrs, exact)
        # float32 rounding of the function itself; exact and tanh GELU are 5e-4 apart, so this tells them
        if expected is not None and bool(np.all(np.abs(first - expected) <= 3e-6 * (1.0 + np.abs(expected)))):
            return op, attrs
    return "", {}


# ---------------------------------------------------------------- from canonical


def function(op: str, attrs: Mapping[str, Any]) -> Callable[[Any], Any]:
    """A callable over Keras tensors that computes a canonical activation; UnsupportedError for one Keras lacks."""
    a = attrs.get("alpha")
    act = keras.activations
    match op:
        case "" | "Identity":
            return act.linear
        case "Relu" | "Sigmoid" | "Tanh" | "Softsign" | "Mish":
            return getattr(act, op.lower())
        case "HardSwish":
            return act.hard_silu
        case "LogSigmoid":
            return act.log_sigmoid
        case "TanhShrink":
            return act.tanh_shrink
        case "SparsePlus":
            return act.sparse_plus
        case "SparseSigmoid":
            return act.sparse_sigmoid
        case "Exp":
            return act.exponential
        case "Swish":
            return act.silu if a in (None, 1.0) else lambda x: x * ops.sigmoid(a * x)
        case "Gelu":
            return functools.partial(act.gelu, approximate=attrs.get("approximate", "none") == "tanh")
        case "LeakyRelu":
            # the backends' fused leaky_relu keeps the slope in float32; this form keeps the input's own dtype
            slope = 0.01 if a is None else a
            return lambda x: ops.where(x >= 0, x, slope * x)
        case "Elu" | "Celu":
            return functools.partial(getattr(act, op.lower()), alpha=1.0 if a is None else a)
        case "Selu":
            return act.selu
        case "ThresholdedRelu":
            start = 1.0 if a is None else a
            return lambda x: ops.where(x > start, x, ops.zeros_like(x))
        case "Threshold":
            return functools.partial(act.threshold, threshold=attrs["threshold"], default_value=attrs["value"])
        case "HardSigmoid":
            slope, beta = (0.2 if a is None else a), attrs.get("beta", 0.5)
            return lambda x: ops.clip(slope * x + beta, 0.0, 1.0)
        case "Softplus":
            b, limit = attrs.get("beta", 1.0), attrs.get("threshold")
            if limit is None:
                return act.softplus if b == 1.0 else lambda x: ops.softplus(b * x) / b
            return lambda x: ops.where(b * x > limit, x, ops.softplus(b * x) / b)
        case "Clip":
            low, high = attrs.get("min"), attrs.get("max")
            lo, hi = (-math.inf if low is None else low), (math.inf if high is None else high)
            return lambda x: ops.minimum(ops.maximum(x, lo), hi)
        case "SoftShrink" | "HardShrink":
            shrink = act.soft_shrink if op == "SoftShrink" else act.hard_shrink
            return functools.partial(shrink, threshold=attrs.get("lambd", 0.5))
        case "Squareplus":
            return functools.partial(act.squareplus, b=attrs.get("b", 4.0))
        case "Softmax" | "LogSoftmax":
            fn = act.softmax if op == "Softmax" else act.log_softmax
            return functools.partial(fn, axis=attrs.get("axis", -1))
        case "Glu":
            return functools.partial(act.glu, axis=attrs.get("axis", -1))
        case "Sin" | "Cos" | "Abs" | "Square":
            return {"Sin": ops.sin, "Cos": ops.cos, "Abs": ops.abs, "Square": ops.square}[op]
    raise UnsupportedError(f"activation {op!r} cannot be put into a Keras layer")
