"""Mode "train": what differs only in training mode: the statistics that normalisation keeps, and dropout rates.

Both models run once in training mode; the candidate's normalisation layers get the reference's inputs, so that each
layer's update of its running statistics is compared on its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ambidex.core import floor as floors
from ambidex.core import ops
from ambidex.core.model import Batch, Inspectable
from ambidex.core.rule import Cause
from ambidex.core.trace import Trace
from ambidex.core.types import Array, Call, Plan
from ambidex.engine.case import Case
from ambidex.engine.layout import difference
from ambidex.engine.measure import Measured
from ambidex.errors import UnsupportedError

_RATIO = 20 * floors.RATIO  # a running statistic is itself the result of a reduction over the batch


@dataclass
class Stats:
    """One pair of normalisation layers and its running statistics after one training step on equal inputs."""

    pair: Measured
    reference: dict[str, Array]
    candidate: dict[str, Array]

    def off(self, role: str) -> float:
        a, b = self.reference.get(role), self.candidate.get(role)
        return 0.0 if a is None or b is None else difference(a.reshape(-1), b.reshape(-1))

    def differs(self, role: str) -> bool:
        a = self.reference.get(role)
        return a is not None and self.off(role) > _RATIO * floors.least(a)


def training_causes(
    case: Case, reference: Inspectable | None, reference_batch: Batch | None, batch: Batch, pairs: list[Measured]
) -> list[Cause]:
    """Momentum, biased against unbiased variance, dropout rates; each statistic proven by another training step."""
    if reference is None or reference_batch is None:
        raise UnsupportedError(
            "mode 'train' needs the live reference",
            "a recorded trace holds no training step",
            "Compare where the reference's framework is installed, or leave --mode out",
        )
    norms = [m for m in pairs if m.reference.op == m.candidate.op == "BatchNormalization"]
    found: list[Cause] = []
    if norms:
        step = reference.run(reference_batch, training=True)
        stats = _statistics(case, norms, step, case.model.run(batch, _plan(norms, step), training=True))
        wrong = [
            s
            for s in stats
            if s.differs("mean")
            and ops.differing_attrs(
                "BatchNormalization", s.pair.reference.layer.attrs, s.pair.candidate.layer.attrs
            ).get("momentum")
        ]
        if wrong:
            plan = _plan(norms, step)
            plan.patch = {s.pair.candidate.path: {"momentum": s.pair.reference.layer.attrs["momentum"]} for s in wrong}
            fixed = {
                s.pair.candidate.key: s
                for s in _statistics(case, norms, step, case.model.run(batch, plan, training=True))
            }
        for s in stats:
            after = fixed.get(s.pair.candidate.key, s) if wrong else s
            if s in wrong:
                a, b = (c.layer.attrs["momentum"] for c in (s.pair.reference, s.pair.candidate))
                found.append(
                    _cause(
                        case,
                        s.pair,
                        kind="attr",
                        name="momentum",
                        reference=a,
                        candidate=b,
                        before=s.off("mean"),
                        after=after.off("mean"),
                        proven=not after.differs("mean"),
                        proof="one training step on the same inputs, with this momentum",
                    )
                )
            if after.differs("var") and not after.differs("mean"):
                found.append(_variance(case, after))
    return found + _dropout(case, pairs)


def _plan(norms: list[Measured], step: Trace) -> Plan:
    """Feed every normalisation layer of the candidate what the reference's got in its training step."""
    plan, calls = Plan(), step.by_key()
    for m in norms:
        call = calls.get(m.reference.key)
        port = next((a.port for a in m.arrived if a.port.candidate == 0), None)
        if call is not None and port is not None and call.inputs[0].shape == port.view.source:
            plan.inputs[m.candidate.key] = [port.view.to(call.inputs[0])]
    return plan


def _statistics(case: Case, norms: list[Measured], step: Trace, run: Trace) -> list[Stats]:
    def roles(call: Call, trace: Trace) -> dict[str, Array]:
        return {
            r: trace.updates[n] for r, n in call.layer.weights.items() if r in {"mean", "var"} and n in trace.updates
        }

    return [Stats(m, roles(m.reference, step), roles(m.candidate, run)) for m in norms]


def _variance(case: Case, s: Stats) -> Cause:
    """The share of the batch in the running variance is n/(n-1) times larger on one side."""
    x = s.pair.reference.inputs[0]
    channels = s.reference["var"].size
    n = x.size // channels
    momentum = float(s.pair.reference.layer.attrs["momentum"])
    old = case.reference.weights(s.pair.reference)["var"].reshape(-1)
    ref, cand = (v.reshape(-1).astype(np.float64) - momentum * old for v in (s.reference["var"], s.candidate["var"]))
    a, b = (bool(c.layer.attrs.get("unbiased")) for c in (s.pair.reference, s.pair.candidate))
    factor = (n / (n - 1)) if a else (n - 1) / n
    after = difference(ref, cand * factor)
    return _cause(
        case,
        s.pair,
        kind="attr",
        name="unbiased",
        reference=a,
        candidate=b,
        before=s.off("var"),
        after=after,
        proven=a != b and after <= _RATIO * floors.least(s.reference["var"]),
        proof=f"the candidate's batch variance times {factor:.6g} (n = {n}) gives the reference's running variance",
    )


def _dropout(case: Case, pairs: list[Measured]) -> list[Cause]:
    """Rates that differ, layers of dropout that one side has not, and the dropout inside recurrent layers and
    attention: read from the layers, since what is drawn is random."""
    a = case.alignment
    ref_sources, cand_sources = a.sources(a.reference), a.sources(a.candidate)
    waiting = [c for c in a.candidate.calls if c.op == "Dropout"]
    found: list[Cause] = []
    alone: list[Call] = []
    for r in a.reference.calls:
        if r.op != "Dropout":
            continue
        c = next((c for c in waiting if cand_sources[c.index] == ref_sources[r.index]), None)
        if c is None:
            alone.append(r)
            continue
        waiting.remove(c)
        rates = r.layer.attrs.get("ratio"), c.layer.attrs.get("ratio")
        if ops.differing_attrs("Dropout", {"ratio": rates[0]}, {"ratio": rates[1]}):
            found.append(_read(case, "attr", "ratio", r, c, *rates))
    for r in [r for r in alone if _drops(r)]:
        # the same rate at another place (before or after an activation) is the same regularisation as a rule
        twin = next((c for c in waiting if c.layer.attrs.get("ratio") == r.layer.attrs.get("ratio")), None)
        if twin is not None:
            waiting.remove(twin)
        else:
            found.append(_read(case, "missing", "ratio", r, None, r.layer.attrs.get("ratio"), None))
    found += [_read(case, "extra", "ratio", None, c, None, c.layer.attrs.get("ratio")) for c in waiting if _drops(c)]
    for m in pairs:
        r, c = m.reference, m.candidate
        if r.op == c.op in _INSIDE:
            for name, (x, y) in ops.differing_attrs(r.op, r.layer.attrs, c.layer.attrs).items():
                if name in _RATES:
                    found.append(_read(case, "attr", name, r, c, x, y))
    return found


#: layers with a dropout of their own, and what its rates are called
_INSIDE, _RATES = {"LSTM", "GRU", "RNN", "Attention"}, {"dropout", "recurrent_dropout", "ratio"}


def _drops(call: Call) -> bool:
    rate = call.layer.attrs.get("ratio")
    return isinstance(rate, int | float) and rate > 0


def _read(case: Case, kind: Any, name: str, r: Call | None, c: Call | None, x: object, y: object) -> Cause:
    """A cause that both layers say themselves; ``name`` is the setting, in the words of a layer of dropout."""
    known = c or r
    assert known is not None
    return Cause(
        kind,
        known.op,
        name,
        x,
        y,
        "" if r is None else r.path,
        "" if c is None else c.path,
        None if c is None else c.layer.source,
        case.candidate.trace.framework,
        case.reference.trace.framework,
        "" if c is None else c.layer.cls,
        proof="read from the layers; what is drawn is random and was not compared",
    )


def _cause(case: Case, m: Measured, **given: object) -> Cause:
    made = case.cause(m, op="BatchNormalization", **given)
    made.detail["stage"] = "training"
    return made
