"""Differences that undo each other: hidden units in another order, with the next layer's weights in that order too.

Layer by layer such a pair differs in everything, and it is the same function. Only where loaded weights are the
subject: with carried weights each layer has the reference's, and nothing could undo the difference.
"""

from __future__ import annotations

from collections.abc import Sequence

from ambidex.core import floor as floors
from ambidex.core import ops
from ambidex.core.rule import Cause
from ambidex.core.trace import Trace
from ambidex.engine.outputs import Paired, whole

#: outputs that agree so well, relative to the largest value, though layers on the way differ by this many floors
_AGREE, _MATERIAL = 1e-5, 1e3
#: causes that an exchanged order looks like, place by place
_KINDS = {"weight", "order", "wiring", "unknown", "scale", "output"}


def undone(causes: list[Cause], ref: Trace, chained: Trace, paired: Sequence[Paired], notes: list[str]) -> list[Cause]:
    """The causes without those that the outputs, each side run by itself, show to undo each other."""
    material = [
        c for c in causes
        if _of_order(c) and c.before is not None and c.floor and c.before >= _MATERIAL * c.floor
    ]  # fmt: skip
    wanted = {n for n, v in ref.outputs.items() if v.dtype.kind in "fc" and v.size}
    if len(material) < 2 or wanted != {p.reference for p in paired}:
        return causes
    off, size, _ = whole(list(paired), ref, chained, [])
    if off is None or not size or off > max(_AGREE * size, floors.RATIO * floors.EPS32 * size):
        return causes
    places = list(dict.fromkeys(c.candidate_path or c.reference_path for c in material))
    notes.append(
        f"{len(places)} places hold their values in another order than the reference ({', '.join(places[:3])}"
        f"{', ...' if len(places) > 3 else ''}) and what follows undoes it: the outputs are the same"
    )
    gone = {id(c) for c in material}
    # what is left of the same kinds at these places is a part of the same exchange
    return [c for c in causes if id(c) not in gone and not (_of_order(c) and c.candidate_path in places)]


def _of_order(cause: Cause) -> bool:
    """Whether another order of the values may be behind it: also an operator that only moves values."""
    return cause.kind in _KINDS or (ops.known(cause.op) and ops.spec(cause.op).family == "shape")
