"""Values that lie on a step: rounding decides on which side of it they fall, and a whole unit comes of nothing.

Where every layer agrees by itself and only the outputs of the two runs do not, the candidate is run once more with the
operators that step (round, floor, compare, choose) giving the reference's answers. If the outputs then agree, nothing
but such ties was different.
"""

from __future__ import annotations

from ambidex.core.model import Batch
from ambidex.core.trace import Trace
from ambidex.core.types import Array, Plan
from ambidex.engine.job import ACCEPT, Job
from ambidex.engine.measure import Forced
from ambidex.engine.outputs import Paired, whole
from ambidex.errors import AmbidexError

_STEPS = {
    "Round", "Floor", "Ceil", "Sign", "Cast", "ArgMax", "ArgMin", "FloorDiv", "Mod", "Equal", "NotEqual", "Less",
    "LessOrEqual", "Greater", "GreaterOrEqual",
}  # fmt: skip


def only_ties(job: Job, ref: Trace, chained: Trace, forced: Forced, paired: list[Paired], batch: Batch) -> bool:
    """Whether the outputs differ, and no more once the steps are the reference's."""
    if not _apart(ref, chained, paired, job):
        return False
    plan = Plan()
    for m in forced.pairs.values():
        if m.reference.op in _STEPS and m.outputs and not m.faulty:
            values: list[Array | None] = [None] * len(m.candidate.computed)
            for port in m.outputs:
                made = port.view.to(m.reference.outputs[port.reference])
                values[port.candidate] = made.astype(m.candidate.computed[port.candidate].dtype)
            plan.outputs[m.candidate.key] = values
    if not plan.outputs:
        return False
    try:
        stepped = job.candidate.run(batch, plan, record=False)
    except AmbidexError:
        return False
    return not _apart(ref, stepped, paired, job)


def _apart(ref: Trace, run: Trace, paired: list[Paired], job: Job) -> bool:
    off, size, _ = whole(paired, ref, run, job.masks)
    return off is not None and off > ACCEPT * (size or 1.0)
