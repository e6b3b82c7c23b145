"""Canonical optimizers in float64: the weight after each update, from a fresh state.

One class an optimizer; the places where the frameworks differ (where epsilon stands, what the buffer holds, how decay
couples) are attributes. Formulas: the papers named at each, in the form that both frameworks' documentation gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ambidex.core.ops import with_defaults
from ambidex.core.types import Array
from ambidex.errors import UnsupportedError

#: one update: (weight, gradient, rate, number of the update from 1) -> weight. Decoupled decay has been taken off the
#: weight before.
Step = Callable[[Array, Array, float, int], Array]


def updates(
    op: str, attrs: Mapping[str, Any], weight: Array, gradients: Sequence[Array], rates: Sequence[float]
) -> list[Array]:
    """The weight after each update. ``gradients`` of the weight's shape, one an update; ``rates`` likewise.

    Raises UnsupportedError for an optimizer without a formula here.
    """
    made = _MAKERS.get(op)
    if made is None:
        raise UnsupportedError(f"no formula is known for the optimizer '{op or 'of the user'}'")
    a = with_defaults(op, attrs)
    w = np.asarray(weight, np.float64)
    if a.get("frozen"):
        return [w] * len(gradients)
    step, found = made(a, w), []
    decay, decoupled = float(a.get("weight_decay") or 0.0), bool(a.get("decoupled"))
    for n, (gradient, rate) in enumerate(zip(gradients, rates, strict=False), start=1):
        g = np.asarray(gradient, np.float64)
        if decay and decoupled:
            w = w - w * decay * rate
        elif decay:
            g = g + decay * w
        w = step(w, g, float(rate), n)
        found.append(w)
    return found


def _sgd(a: Mapping[str, Any], w0: Array) -> Step:
    """Sutskever 2013. ``rate_in_buffer``: the velocity holds the learning rate that was in force (Keras)."""
    m, damp, nesterov = float(a["momentum"]), float(a["dampening"]), bool(a["nesterov"])
    buffer: Array | None = None

    def step(w: Array, g: Array, rate: float, n: int) -> Array:
        nonlocal buffer
        if not m:
            return w - rate * g
        if a["rate_in_buffer"]:
            share = rate * (1.0 if buffer is None else 1 - damp)
            buffer = m * (np.zeros_like(w0) if buffer is None else buffer) - share * g
            return w + (m * buffer - rate * g if nesterov else buffer)
        buffer = g if buffer is None else m * buffer + (1 - damp) * g
        return w - rate * (g + m * buffer if nesterov else buffer)

    return step


def _adam(a: Mapping[str, Any], w0: Array) -> Step:
    """Kingma and Ba 2015. ``epsilon_before_correction``: epsilon beside the raw sqrt(v) (their section 2)."""
    b1, b2, e = float(a["beta_1"]), float(a["beta_2"]), float(a["epsilon"])
    m, v, top = np.zeros_like(w0), np.zeros_like(w0), np.zeros_like(w0)

    def step(w: Array, g: Array, rate: float, n: int) -> Array:
        nonlocal m, v, top
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g * g
        c1, c2 = (1 - b1**n, 1 - b2**n) if a["bias_correction"] else (1.0, 1.0)
        top = np.maximum(top, v)
        second = top if a["amsgrad"] else v
        if a["epsilon_before_correction"]:
            return w - rate * np.sqrt(c2) / c1 * m / (np.sqrt(second) + e)
        return w - rate / c1 * m / (np.sqrt(second / c2) + e)

    return step


def _adamax(a: Mapping[str, Any], w0: Array) -> Step:
    """Kingma and Ba 2015, section 7.1. ``epsilon_in_max``: max(b2 u, |g| + e), as torch has it."""
    b1, b2, e = float(a["beta_1"]), float(a["beta_2"]), float(a["epsilon"])
    m, u = np.zeros_like(w0), np.zeros_like(w0)

    def step(w: Array, g: Array, rate: float, n: int) -> Array:
        nonlocal m, u
        m = b1 * m + (1 - b1) * g
        inside = bool(a["epsilon_in_max"])
        u = np.maximum(b2 * u, np.abs(g) + (e if inside else 0.0))
        return w - rate / (1 - b1**n) * m / (u + (0.0 if inside else e))

    return step


def _nadam(a: Mapping[str, Any], w0: Array) -> Step:
    """Dozat 2016, momentum mu_t = b1 (1 - 0.5 * 0.96^(t * decay)); Keras' decay is 1."""
    b1, b2, e, decay = (float(a[n]) for n in ("beta_1", "beta_2", "epsilon", "momentum_decay"))
    m, v, product = np.zeros_like(w0), np.zeros_like(w0), 1.0

    def step(w: Array, g: Array, rate: float, n: int) -> Array:
        nonlocal m, v, product
        now, then = (b1 * (1 - 0.5 * 0.96 ** (k * decay)) for k in (n, n + 1))
        product *= now
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g * g
        below = np.sqrt(v / (1 - b2**n)) + e
        return w - rate * ((1 - now) / (1 - product) * g + then / (1 - product * then) * m) / below

    return step


def _adagrad(a: Mapping[str, Any], w0: Array) -> Step:
    """Duchi 2011. ``epsilon_inside``: under the root (Keras)."""
    e, total = float(a["epsilon"]), np.full_like(w0, float(a["initial"]))

    def step(w: Array, g: Array, rate: float, n: int) -> Array:
        nonlocal total
        total = total + g * g
        rate = rate / (1 + (n - 1) * float(a["rate_decay"]))
        return w - rate * g / (np.sqrt(total + e) if a["epsilon_inside"] else np.sqrt(total) + e)

    return step


def _rmsprop(a: Mapping[str, Any], w0: Array) -> Step:
    """Tieleman and Hinton 2012; centred: Graves 2013."""
    rho, e, momentum = float(a["rho"]), float(a["epsilon"]), float(a["momentum"])
    v, mean, buffer = np.zeros_like(w0), np.zeros_like(w0), np.zeros_like(w0)

    def step(w: Array, g: Array, rate: float, n: int) -> Array:
        nonlocal v, mean, buffer
        v = rho * v + (1 - rho) * g * g
        second = v
        if a["centered"]:
            mean = rho * mean + (1 - rho) * g
            second = v - mean * mean
        change = g / (np.sqrt(second + e) if a["epsilon_inside"] else np.sqrt(second) + e)
        if not momentum:
            return w - rate * change
        if a["rate_in_buffer"]:
            buffer = momentum * buffer + rate * change
            return w - buffer
        buffer = momentum * buffer + change
        return w - rate * buffer

    return step


def _adadelta(a: Mapping[str, Any], w0: Array) -> Step:
    """Zeiler 2012."""
    rho, e = float(a["rho"]), float(a["epsilon"])
    v, moved = np.zeros_like(w0), np.zeros_like(w0)

    def step(w: Array, g: Array, rate: float, n: int) -> Array:
        nonlocal v, moved
        v = rho * v + (1 - rho) * g * g
        change = np.sqrt(moved + e) / np.sqrt(v + e) * g
        moved = rho * moved + (1 - rho) * change * change
        return w - rate * change

    return step


def _lion(a: Mapping[str, Any], w0: Array) -> Step:
    """Chen 2023."""
    b1, b2, m = float(a["beta_1"]), float(a["beta_2"]), np.zeros_like(w0)

    def step(w: Array, g: Array, rate: float, n: int) -> Array:
        nonlocal m
        made = w - rate * np.sign(b1 * m + (1 - b1) * g)
        m = b2 * m + (1 - b2) * g
        return made

    return step


def _rms(x: Array) -> float:
    return float(np.sqrt(np.mean(x * x)))


def _adafactor(a: Mapping[str, Any], w0: Array) -> Step:
    """Shazeer and Stern 2018: row and column means of the second moment for matrices, the update cut by its RMS.

    ``epsilon_1`` is added to every squared gradient (the paper, Keras); ``epsilon_in_max``: it is the smallest root of
    the second moment that is divided by, and the least mean of the rows (torch). ``size_before_decay``: the step is a
    share of the weight as it was before decay was taken off it (torch).
    """
    e1, e2, limit = (float(a[n]) for n in ("epsilon_1", "epsilon_2", "clip_threshold"))
    e1, floor = (0.0, e1) if a["epsilon_in_max"] else (e1, 0.0)
    matrix = w0.ndim > 1
    row, column = (np.zeros(w0.shape[:-1]), np.zeros(w0.shape[:-2] + w0.shape[-1:])) if matrix else (None, None)
    whole, last = np.zeros_like(w0), w0

    def step(w: Array, g: Array, rate: float, n: int) -> Array:
        nonlocal row, column, whole, last
        size = min(rate, 1 / np.sqrt(n)) * max(e2, _rms(last if a.get("size_before_decay") else w))
        b2 = 1 - float(n) ** float(a["beta_2_decay"])
        square = g * g + e1
        if row is not None and column is not None:
            row = b2 * row + (1 - b2) * square.mean(-1)
            column = b2 * column + (1 - b2) * square.mean(-2)
            share = (row / np.maximum(row.mean(-1, keepdims=True), floor))[..., None]
            second = share * column[..., None, :]
        else:
            whole = b2 * whole + (1 - b2) * square
            second = whole
        change = g / np.sqrt(np.maximum(second, floor * floor))
        last = w - size * change / max(1.0, _rms(change) / limit)
        return last

    return step


_MAKERS: dict[str, Callable[[Mapping[str, Any], Array], Step]] = {
    "SGD": _sgd, "Adam": _adam, "Adamax": _adamax, "Nadam": _nadam, "Adagrad": _adagrad, "RMSprop": _rmsprop,
    "Adadelta": _adadelta, "Lion": _lion, "Adafactor": _adafactor,
}  # fmt: skip


def variants(op: str, attrs: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The ways in which an optimizer of this kind is got wrong: (name, all attributes)."""
    a, found = dict(attrs), []
    full = with_defaults(op, a)
    for name, called in (
        ("epsilon_before_correction", "epsilon_place"), ("epsilon_inside", "epsilon_place"),
        ("epsilon_in_max", "epsilon_place"), ("rate_in_buffer", "rate_in_buffer"), ("nesterov", "nesterov"),
        ("amsgrad", "amsgrad"), ("centered", "centered"), ("bias_correction", "bias_correction"),
    ):  # fmt: skip
        if name in full:
            found.append((called, {**a, name: not full[name]}))
    decay = float(full.get("weight_decay") or 0.0)
    if decay:
        found.append(("decay_coupling", {**a, "decoupled": not full["decoupled"]}))
        found.append(("decay_missing", {**a, "weight_decay": 0.0}))
        found.append(("decay_twice", {**a, "weight_decay": 2 * decay}))
        found.append(("decay_half", {**a, "weight_decay": 0.5 * decay}))
    if op == "Adafactor" and decay and full["decoupled"] and not full.get("size_before_decay"):
        found.append(("epsilon_place", {**a, "epsilon_in_max": True, "size_before_decay": True}))  # all of torch's way
    if float(full.get("momentum") or 0.0):
        found.append(("momentum_missing", {**a, "momentum": 0.0} | ({"nesterov": False} if "nesterov" in full else {})))
    return found
