"""The gradient stage: both sides go back from the same gradients of the outputs, in inference and in training mode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ambidex.core import floor as floors
from ambidex.core.rule import Cause
from ambidex.core.training import Gradients
from ambidex.core.types import Array
from ambidex.engine.layout import difference
from ambidex.engine.stages.outcome import Outcome

if TYPE_CHECKING:
    from ambidex.engine.stages.follow import Both

#: round-off of a backward pass through a whole model, relative to a weight's largest gradient (ten times it is a fault)
_SHARE = 1e-5
_GATED = {"LSTM", "GRU", "RNN"}


def gradient(both: Both) -> Outcome:
    """Gradients of all weights from the reference's gradient of its outputs."""
    if both.forward_differs:
        return Outcome("not_judged", note="the forward pass differs: mend it first, gradients follow it")
    for training in (False, True) if _mode_matters(both) else (False,):
        outcome = _of_mode(both, training)
        if outcome.status != "same":
            return outcome
    return outcome


#: from this many weights on, training mode is only gone through where a layer is known to behave differently in it
_LARGE = 20_000_000
_MODAL = {"BatchNormalization", "InstanceNormalization"}


def _mode_matters(both: Both) -> bool:
    """Dropout is off in both modes. What else differs between them: statistics of the batch, and code of the user's
    (which the steps, always in training mode, go through as well)."""
    ops = {layer.op for trace in (both.carrier.ref, both.carrier.cand) for layer in trace.layers}
    return bool(ops & _MODAL) or sum(a.size for a in both.carrier.ref.weights.values()) < _LARGE


def _of_mode(both: Both, training: bool) -> Outcome:
    ours, theirs = both.training.examples[0]
    seeds = both.seeds()
    a = both.reference.gradients(ours, training=training, seeds=seeds)
    with both.carrier.carried():
        b = both.candidate.gradients(theirs, training=training, seeds=both.in_candidate(seeds))
    wanted = both.carrier(a.weights)
    causes: list[Cause] = []
    worst, at = 0.0, (0.0, 0.0)
    largest = max((floors.largest(v) for v in a.weights.values()), default=0.0)
    partner = both.carrier.partners()
    differing: list[str] = []
    for name in both.trainable():
        if name not in wanted:
            continue
        mine = b.weights.get(name, np.zeros_like(wanted[name]))
        limit = _SHARE * floors.largest(wanted[name]) + 1e-2 * _SHARE * largest + 1e-30
        d = difference(wanted[name], mine)
        if d / limit > worst:
            worst, at = d / limit, (d, limit)
        if d > floors.RATIO * limit and not _left_out(both, name, partner):
            differing.append(name)
    if not differing:
        return Outcome("same", *at, note="in training mode as well" if training else "")
    explained: dict[str, tuple[str, Any]] = {name: _why(both, name, wanted[name], b, a, partner) for name in differing}
    place = _first_place(both, a, b)
    groups: dict[str, list[str]] = {}
    for name, (why, _) in explained.items():
        groups.setdefault(why, []).append(name)
    for why, names in groups.items():
        d = max(difference(wanted[n], b.weights.get(n, np.zeros_like(wanted[n]))) for n in names)
        cause = Cause("variant" if why else "unknown", "gradient", why, before=d, floor=at[1])
        cause.candidate_path, cause.reference_path = names[0], partner.get(names[0], "")
        if why == "singular_point":
            cause.reference, cause.candidate = explained[names[0]][1]
        cause.proven = bool(why)
        cause.detail = {
            "weights": names,
            "mode": "train" if training else "eval",
            "value": explained[names[0]][1],
            "place": place,
        }
        cause.proof = "both sides went back from the same gradients of the outputs"
        cause.after = 0.0 if why else None
        causes.append(cause)
    return Outcome("different", *at, note="in training mode only" if training else "", causes=causes)


def _left_out(both: Both, name: str, partner: Mapping[str, str]) -> bool:
    """Whether a side says that it does not train this weight: that is a setting of its optimizer, told there."""
    forms = both.reference.forms.get("optimizer"), both.candidate.forms.get("optimizer")
    if None in forms:
        return False
    said = [
        f.by_weight.get(n, {}).get("frozen") for f, n in zip(forms, (partner.get(name, ""), name), strict=True) if f
    ]
    return any(said)


def _why(
    both: Both, name: str, wanted: Array, mine: Gradients, theirs: Gradients, partner: Mapping[str, str]
) -> tuple[str, Any]:
    """How the candidate's gradient of one weight comes from the reference's."""
    received = mine.weights.get(name)
    finite = [bool(np.isfinite(x).all()) for x in (wanted, wanted if received is None else received)]
    if finite[0] != finite[1]:
        return "singular_point", tuple("finite" if f else "NaN or infinite" for f in finite)
    # several weights may stand for one: the two biases of a recurrent layer
    reached = name not in partner or any(n in theirs.weights for n in partner[name].split(" + "))
    if received is None or not received.any():
        return "stopped", None
    if not reached or not wanted.any():
        return "extra", None
    if received.ndim == 2:  # rows of a table that get a gradient on one side only
        rows = np.flatnonzero(np.abs(wanted - received).max(1) > floors.RATIO * _SHARE * np.abs(wanted).max())
        quiet = [bool(not x[rows].any()) for x in (wanted, received)]
        if 0 < len(rows) <= max(1, len(wanted) // 10) and any(quiet):
            return "padding_row", {"rows": rows.tolist(), "frozen": "reference" if quiet[0] else "candidate"}
    k = float((wanted * received).sum() / max(float((wanted * wanted).sum()), 1e-30))
    if k and np.abs(received - k * wanted).max() <= floors.RATIO * _SHARE * max(1.0, abs(k)) * np.abs(wanted).max():
        layer = next((x for x in both.carrier.cand.layers if name in x.weights.values()), None)
        if layer is not None and layer.op in _GATED and abs(k - 0.5) < 1e-3:
            return "doubled_bias", k
        return "scaled", k
    return "", None


def _first_place(both: Both, a: Gradients, b: Gradients) -> str:
    """The last layer, seen from the inputs, whose output gets another gradient: the difference starts behind it."""
    found = ""
    for key, (mine, view) in both.calls.items():
        x, y = a.calls.get(key), b.calls.get(mine)
        if x is None or y is None or x.shape != view.source:
            continue
        wanted = view.to(x)
        if wanted.shape == y.shape and difference(wanted, y) > 10 * floors.RATIO * _SHARE * float(np.abs(wanted).max()):
            found = mine
    return found.rsplit("#", 1)[0]
