"""LSTM, GRU and RNN in float64, with masks, initial states and what frameworks hand out.

Equations of the ONNX operators; ONNX's own evaluators know neither sequence lengths nor other activations than the
default ones. A masked step carries the state on; its output repeats the one before it (Keras) or is zero
(``zero_output_for_mask``: Keras' option, and what torch's packed sequences give).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ambidex.adapters.reference_norm import ACTIVATIONS
from ambidex.core.types import Array
from ambidex.errors import InputError, UnsupportedError

_DEFAULT = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_LINEAR = {"Affine", "Identity", "Linear", None}
Step = Callable[[Array, list[Array]], list[Array]]


def _function(entry: Any) -> Callable[[Array], Array]:
    """An activation by canonical name, or (name, attributes)."""
    name, attrs = (entry, {}) if isinstance(entry, str) or entry is None else (entry[0], entry[1])
    if name in _LINEAR:
        return lambda x: x
    if name not in ACTIVATIONS:
        raise UnsupportedError(f"a recurrent layer with activation {name!r} has no reference")
    return lambda x: ACTIVATIONS[name](x, attrs)


def _cell(op: str, attrs: Mapping[str, Any], w: Array, r: Array, b: Array, functions: Sequence[Any]) -> Step:
    """One step of one direction: (input, states) -> states. ONNX gate order (LSTM i,o,f,c; GRU z,r,h)."""
    hidden = r.shape[1]
    bw, br = np.split(b, 2)
    fs = [_function(f) for f in functions]
    if op == "RNN":
        return lambda x, s: [fs[0](x @ w.T + s[0] @ r.T + bw + br)]
    if op == "LSTM":

        def lstm(x: Array, s: list[Array]) -> list[Array]:
            i, o, f, c = np.split(x @ w.T + s[0] @ r.T + bw + br, 4, axis=-1)
            state = fs[0](f) * s[1] + fs[0](i) * fs[1](c)
            return [fs[0](o) * fs[2](state), state]

        return lstm
    two = 2 * hidden
    before = bool(attrs.get("linear_before_reset", 0))

    def gru(x: Array, s: list[Array]) -> list[Array]:
        z, reset = np.split(fs[0](x @ w[:two].T + s[0] @ r[:two].T + bw[:two] + br[:two]), 2, axis=-1)
        if before:
            new = x @ w[two:].T + bw[two:] + reset * (s[0] @ r[two:].T + br[two:])
        else:
            new = x @ w[two:].T + bw[two:] + (reset * s[0]) @ r[two:].T + br[two:]
        return [(1 - z) * fs[1](new) + z * s[0]]

    return gru


def _scan(
    step: Step, x: Array, states: list[Array], mask: Array | None, zero: bool
) -> tuple[Array, Array, list[Array]]:
    """All steps of (B, T, F): outputs (B, T, H), the last output, the last states."""
    outputs = []
    last = np.zeros_like(states[0])
    for t in range(x.shape[1]):
        new = step(x[:, t], states)
        if mask is None:
            states, last = new, new[0]
        else:
            live = mask[:, t, None]
            last = np.where(live, new[0], 0.0 if zero else last)
            states = [np.where(live, n, s) for n, s in zip(new, states, strict=True)]
        outputs.append(last)
    made = np.stack(outputs, axis=1) if outputs else np.zeros((x.shape[0], 0, last.shape[-1]))
    return made, last, states


def _mask_of(x: Array, extra: Sequence[Array]) -> tuple[Array | None, list[Array]]:
    """Inputs after the first: a boolean (B, T) mask, integer lengths (B,), or initial states."""
    mask, states = None, []
    for value in extra:
        if value.dtype == bool:
            mask = value
        elif np.issubdtype(value.dtype, np.integer):
            mask = np.arange(x.shape[1])[None] < value[:, None]
        else:
            states.append(value.astype(np.float64, copy=False))
    return mask, states


def _initial(op: str, given: list[Array], dirs: int, batch: int, hidden: int) -> list[list[Array]]:
    """States by direction. Given as (dirs, B, H) or (B, H) a state (torch), or one (B, H) a direction (Keras)."""
    kinds = 2 if op == "LSTM" else 1
    if not given:
        return [[np.zeros((batch, hidden)) for _ in range(kinds)] for _ in range(dirs)]
    if len(given) == kinds:
        split = [g if g.ndim == 3 else g[None] for g in given]
        if all(g.shape[0] == dirs for g in split):
            return [[g[d] for g in split] for d in range(dirs)]
    elif len(given) == kinds * dirs:
        return [[g.reshape(batch, hidden) for g in given[d * kinds : (d + 1) * kinds]] for d in range(dirs)]
    raise InputError(
        f"{op} takes {kinds} initial states of shape ({dirs}, {batch}, {hidden})",
        f"it was given {[g.shape for g in given]}",
    )


def _merged(parts: list[Array], how: str) -> Array:
    if how == "concat":
        return np.concatenate(parts, axis=-1)
    if how == "mul":
        return parts[0] * parts[1]
    total = parts[0] + parts[1]
    return total / 2 if how == "ave" else total


def rnn(
    op: str, attrs: Mapping[str, Any], w: Mapping[str, Array], xs: Sequence[Array], layout: str = ""
) -> list[Array]:
    """[output, last hidden (dirs, B, H), last cell]. ``layout`` TNF: time first; rank 2: without a batch axis.

    With ``cell`` one step: inputs x (B, F) and states (B, H), outputs the new states.
    """
    x = xs[0]
    weight, recurrent = w["W"], w["R"]
    dirs, hidden = weight.shape[0], recurrent.shape[2]
    bias = w.get("B", np.zeros((dirs, 2 * _GATES[op] * hidden)))
    names = list(attrs.get("activations") or _DEFAULT[op])
    per = len(_DEFAULT[op])
    steps = [
        _cell(op, attrs, weight[d], recurrent[d], bias[d], names[d * per : d * per + per] or names[:per])
        for d in range(dirs)
    ]
    if attrs.get("cell"):
        single = x.ndim == 1
        lead = x[None] if single else x
        given = [s.reshape(1, lead.shape[0], hidden) for s in xs[1:]]
        new = steps[0](lead, _initial(op, given, 1, lead.shape[0], hidden)[0])
        return [n[0] for n in new] if single else new
    single = x.ndim == 2
    extra = list(xs[1:])
    if single:
        x = x[None]
        extra = [e[:, None] if e.ndim == 2 and np.issubdtype(e.dtype, np.floating) else e for e in extra]
    elif layout == "TNF":
        x = x.swapaxes(0, 1)
    mask, given = _mask_of(x, extra)
    states = _initial(op, given, dirs, x.shape[0], hidden)
    zero = bool(attrs.get("zero_output_for_mask"))
    sequences, lasts, finals = [], [], []
    for d, step in enumerate(steps):
        back = attrs.get("direction", "forward") == "reverse" or d == 1
        seen, live = (x[:, ::-1], None if mask is None else mask[:, ::-1]) if back else (x, mask)
        made, last, final = _scan(step, seen, states[d], live, zero)
        # Keras hands the outputs of a layer with go_backwards out in the order they were computed
        flip = back and not (d == 0 and attrs.get("keep_reversed"))
        sequences.append(made[:, ::-1] if flip else made)
        lasts.append(last)
        finals.append(final)
    whole = attrs.get("return_sequences", True)
    parts = sequences if whole else lasts
    how = attrs.get("merge", "concat")
    outs = parts if dirs == 1 or how is None else [_merged(parts, how)]
    if whole and single:
        outs = [y[0] for y in outs]
    elif whole and layout == "TNF":
        outs = [y.swapaxes(0, 1) for y in outs]
    ends = [np.stack([final[i] for final in finals]) for i in range(len(finals[0]))]
    return [*outs, *((e[:, 0] for e in ends) if single else ends)]
