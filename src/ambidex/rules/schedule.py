"""Learning-rate schedules, and accumulation: what counts the updates."""

from __future__ import annotations

from typing import Any

from ambidex.core.rule import Cause
from ambidex.rules.recipe import UNKNOWN, Stage, ops_of, own_class, said, setting, sides, whole
from ambidex.rules.registry import rule
from ambidex.rules.words import both, code, number, write


class _Schedule(Stage):
    stage, ops = "schedule", ops_of("schedule")


def _two(cause: Cause) -> tuple[str, str]:
    """Both values in words."""
    c, r = both(cause) if cause.kind == "attr" else (number(v) for v in sides(cause))
    return c, r


# --------------------------------------------------------------------------------------------------------- accumulation
@rule
class Accumulation(Stage):
    """Gradients of several batches go into one update on one side, or are added up where the other takes their mean.

    How it shows: updates larger by the number of batches, or at other steps; with clipping, every step is cut.

    Why it happens: backward() adds into .grad, so a loop must divide the loss by the number of batches;
    gradient_accumulation_steps of Keras takes the mean, and carries batches that are left over into the next epoch.
    Replicas are the same question: MirroredStrategy adds up, DistributedDataParallel averages.
    """

    code, name, title = "AMB345", "accumulation", "Gradients are accumulated another way"
    stage, kinds, ops = "clip", ("attr",), ("Accumulate",)
    sample = Cause("attr", "Accumulate", "count", 4, 1)

    def message(self, cause: Cause) -> str:
        if cause.name == "mean":
            c, r = ("takes the mean" if v else "adds up" for v in (cause.candidate, cause.reference))
            return f"Of the batches of one update the candidate {c}, the reference {r}."
        c, r = both(cause)
        return f"The candidate puts {c} batches into one update, the reference {r}."

    def fix(self, cause: Cause) -> str:
        if cause.name == "mean":
            return write(cause, torch="(loss / n).backward()" if cause.reference else "loss.backward()",
                         keras="multiply the learning rate by n: Keras takes the mean")  # fmt: skip
        n = number(cause.reference)
        return write(cause, torch=f"optimizer.step() after every {n} batches, (loss / {n}).backward()",
                     keras=f"the optimizer with gradient_accumulation_steps={n}")  # fmt: skip


@rule
class ClipEachBatch(Stage):
    """With gradient accumulation, one side clips the gradient of each batch and the other the sum once an update.

    How it shows: updates differ when one of the batches has a large gradient.

    Why it happens: clip_grad_norm_ stands beside backward() and not beside step(); Keras clips once, after the mean.
    """

    code, name, title = "AMB346", "clip-each-batch", "Clipping each batch against once an update"
    stage, kinds, names, ops = "clip", ("variant",), ("per_micro_step",), ops_of("clip")
    sample = Cause("variant", "ClipNorm", "per_micro_step")

    def message(self, cause: Cause) -> str:
        return "The candidate clips the gradient of each batch, the reference once an update."

    def fix(self, cause: Cause) -> str:
        return write(cause, torch="nn.utils.clip_grad_norm_ after the last backward(), just before optimizer.step()",
                     keras="clipping as an option of the optimizer that has gradient_accumulation_steps")  # fmt: skip


@rule
class ShortBatches(Stage):
    """A short batch counts as much as a full one: a mean of means, where the other side takes the mean of all.

    How it shows: loss and gradient differ by how unequal the batches are: the last one of an epoch, sequences of other
    lengths, replicas with fewer tokens.

    Why it happens: each batch's mean is divided by its own number of samples or tokens, and their mean by the number of
    batches; both frameworks average what is accumulated without weights.
    """

    code, name, title = "AMB347", "accumulation-short-batches", "Mean of means over batches of unequal size"
    stage, kinds, names, weight = "gradient", ("variant",), ("mean_of_batch_means",), 45
    ops = ("Accumulate", "gradient", "steps", *ops_of("loss"))
    sample = Cause("variant", "Accumulate", "mean_of_batch_means")

    def message(self, cause: Cause) -> str:
        return "The candidate takes the mean of the batches' means, the reference the mean over all samples."

    def fix(self, cause: Cause) -> str:
        return write(cause, torch="(F.cross_entropy(out, y, reduction='sum') / samples_of_all_batches).backward()",
                     keras="a loss with reduction='sum', divided by the samples of the whole update")  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ schedules
@rule
class ScheduleMissing(_Schedule):
    """The learning rate changes on one side and stays on the other.

    How it shows: the curves part when the first change is due.

    Why it happens: scheduler.step() is never called, or the schedule object was made and a number handed to the
    optimizer.
    """

    code, name, title = "AMB350", "schedule-missing", "The learning rate changes on one side only"
    kinds = ("missing", "extra")
    sample = Cause("missing", "Cosine", "schedule", {"steps": 100}, None)

    def message(self, cause: Cause) -> str:
        one, other = ("reference", "candidate") if cause.kind == "missing" else ("candidate", "reference")
        what = f" ({said(cause.op)})" if cause.op != "schedule" else ""
        return f"The {one} has a schedule{what}, the {other} a constant learning rate."

    def fix(self, cause: Cause) -> str:
        if cause.kind == "extra":
            return write(cause, torch="leave the scheduler out", keras="a plain number as learning_rate")
        return whole(cause)


@rule
class Staircase(_Schedule):
    """The rate falls in steps on one side and continuously on the other.

    How it shows: equal at the multiples of the step, up to a factor of gamma between them.

    Why it happens: torch's StepLR falls in steps; ExponentialDecay of Keras is continuous unless staircase=True.
    """

    code, name, title = "AMB351", "schedule-staircase", "Learning rate falls in steps against continuously"
    kinds, names = ("attr", "variant"), ("staircase",)
    sample = Cause("attr", "Step", "staircase", True, False)

    def message(self, cause: Cause) -> str:
        c, r = ("in steps" if v is True else "continuously" for v in sides(cause))
        return f"The candidate's learning rate falls {c}, the reference's {r}."

    def fix(self, cause: Cause) -> str:
        wanted = sides(cause)[1] is True
        torch = (
            "StepLR(optimizer, step_size, gamma)" if wanted else "ExponentialLR(optimizer, gamma ** (1 / step_size))"
        )
        return write(cause, torch=f"torch.optim.lr_scheduler.{torch}", keras=f"{own_class(cause)}(staircase={wanted})")


@rule
class Boundary(_Schedule):
    """The rate changes at other steps, or by other factors; off by one when boundaries were taken over as they are.

    How it shows: one update (or more) with the old rate.

    Why it happens: MultiStepLR has the new rate at the milestone itself; PiecewiseConstantDecay keeps the old one up to
    and including its boundary: boundaries = milestones - 1.
    """

    code, name, title = "AMB352", "schedule-boundary", "The learning rate changes at another step"
    kinds, names = ("attr", "variant"), ("boundaries", "boundary", "factors")
    sample = Cause("attr", "MultiStep", "boundaries", [10, 20], [11, 21])

    def message(self, cause: Cause) -> str:
        c, r = (number(v) for v in sides(cause, cause.name.replace("boundary", "boundaries")))
        what = "by factors of" if cause.name == "factors" else "at"
        return f"The candidate's learning rate changes {what} {c}, the reference's {what} {r} (in updates)."

    def fix(self, cause: Cause) -> str:
        if cause.name == "factors":
            return setting(cause)
        steps: Any = sides(cause, "boundaries")[1]
        if not isinstance(steps, list | tuple):
            return "the reference's boundaries; in PiecewiseConstantDecay each of them minus one"
        return write(
            cause,
            torch=f"torch.optim.lr_scheduler.MultiStepLR(..., milestones=[{', '.join(map(number, steps))}])",
            keras=f"{own_class(cause)}(boundaries=[{', '.join(number(b - 1) for b in steps)}])",
        )


@rule
class MicroSteps(_Schedule):
    """The schedule counts batches on one side and updates on the other.

    How it shows: the rate falls as many times too fast as batches go into an update.

    Why it happens: with gradient_accumulation_steps Keras asks the schedule with the number of the batch, while
    optimizer.iterations counts updates; in a torch loop the scheduler usually steps with the optimizer.
    """

    code, name, title = "AMB353", "schedule-micro-steps", "The schedule runs on batches, not on updates"
    kinds, names = ("attr", "variant"), ("stride", "per_micro_step")
    sample = Cause("attr", "Cosine", "stride", 1.0, 4.0)

    def claims(self, cause: Cause) -> bool:
        c, r = sides(cause, "stride")
        by_epoch = any(isinstance(v, float) and v < 1 for v in (c, r))
        return super().claims(cause) and not by_epoch

    def message(self, cause: Cause) -> str:
        c, r = (number(v) for v in sides(cause, "stride"))
        return f"With each update the candidate's schedule moves on by {c}, the reference's by {r}."

    def fix(self, cause: Cause) -> str:
        c, r = sides(cause, "stride")
        more = f"{number(c / r)} times" if isinstance(c, float) and isinstance(r, float) else "as many times as"
        return write(cause, torch="scheduler.step() beside optimizer.step(), once an update",
                     keras=f"decay_steps (boundaries, warmup_steps) {more} the number of updates")  # fmt: skip


@rule
class PerEpoch(_Schedule):
    """The schedule moves on once an epoch on one side and once an update on the other.

    How it shows: the rate hardly changes, or is gone in the first epoch.

    Why it happens: torch's schedulers move when step() is called, often at the end of an epoch; Keras' schedules move
    with every update.
    """

    code, name, title = "AMB354", "schedule-per-epoch", "The schedule runs by epoch, not by update"
    kinds, names, weight = ("attr", "variant"), ("stride", "per_epoch"), 39
    sample = Cause("attr", "Step", "stride", 0.1, 1.0)

    def message(self, cause: Cause) -> str:
        def moves(stride: Any) -> str:
            often = isinstance(stride, int | float) and stride > 0
            return (
                ("once an update" if stride == 1 else f"once in {number(1 / stride)} updates") if often else "at others"
            )

        c, r = (moves(v) for v in sides(cause, "stride"))
        return f"The candidate's schedule moves on {c}, the reference's {r}."

    def fix(self, cause: Cause) -> str:
        stride = sides(cause, "stride")[1]
        slow = isinstance(stride, int | float) and stride < 1
        epoch = number(1 / stride) if slow else "1"
        return write(
            cause,
            torch=f"scheduler.step() after every {epoch} updates" if slow else "scheduler.step() after every update",
            keras=f"decay_steps in updates: the reference's steps times {epoch}",
        )


@rule
class ScheduleOffset(_Schedule):
    """The schedule is a step ahead or behind.

    How it shows: each rate is the other side's of the update before or after.

    Why it happens: scheduler.step() before optimizer.step() leaves the first value out; some schedules count from one;
    with gradient_accumulation_steps=n Keras' first update already uses index n - 1.
    """

    code, name, title = "AMB394", "schedule-offset", "The schedule is a step ahead or behind"
    kinds, names = ("attr", "variant"), ("offset", "one_late", "one_early")
    sample = Cause("attr", "Cosine", "offset", 0, 1)

    def message(self, cause: Cause) -> str:
        c, r = (number(v) for v in sides(cause, "offset"))
        return f"The candidate's first update uses step {c} of its schedule, the reference's step {r}."

    def fix(self, cause: Cause) -> str:
        first = sides(cause, "offset")[1]
        keras = f"a LearningRateSchedule that asks the schedule with step + {code(first)}"
        return write(cause, torch="scheduler.step() after optimizer.step(), not before it" if first in (0, UNKNOWN) else
                     f"scheduler.step() {number(first)} times before the first update",
                     keras="schedule(step) from step 0 on" if first == 0 else keras)  # fmt: skip


@rule
class OtherSchedule(_Schedule):
    """The two sides use different schedules.

    How it shows: the rates part after the first updates.

    Why it happens: a port takes the nearest class: PolynomialDecay for LinearLR, CosineDecay for warm restarts.
    """

    code, name, title = "AMB355", "schedule-other", "Another schedule"
    kinds = ("op",)
    sample = Cause("op", "Cosine", "Polynomial", {"steps": 100}, {"steps": 100})

    def message(self, cause: Cause) -> str:
        return f"The candidate's schedule is {said(cause.name)}, the reference's {said(cause.op)}."

    def fix(self, cause: Cause) -> str:
        return whole(cause)


@rule
class AfterTheEnd(_Schedule):
    """What the rate does after its last step: it stays, or it rises again.

    How it shows: nothing until the schedule's end; then one side climbs back to its first rate.

    Why it happens: CosineAnnealingLR is periodic, CosineDecay stays at its end.
    """

    code, name, title = "AMB356", "schedule-end", "The learning rate after the schedule's end differs"
    kinds, names = ("attr", "variant"), ("periodic", "cycle")
    sample = Cause("attr", "Cosine", "periodic", True, False)

    def message(self, cause: Cause) -> str:
        c, r = ("rises again" if v is True else "stays" for v in sides(cause))
        return f"After its last step the candidate's learning rate {c}, the reference's {r}."

    def fix(self, cause: Cause) -> str:
        if cause.name == "cycle":
            return setting(cause)
        if sides(cause)[1] is True:
            return write(cause, torch="torch.optim.lr_scheduler.CosineAnnealingLR, stepped on after T_max",
                         keras="an own schedule: alpha + (1 - alpha) * (1 + cos(pi * step / T)) / 2")  # fmt: skip
        return write(cause, torch="stop calling scheduler.step() after T_max updates",
                     keras=f"{own_class(cause)}(...), which stays at its end")  # fmt: skip


@rule
class ScheduleSetting(_Schedule):
    """A number of the schedule differs: its length, its factor, its end, its warm-up.

    How it shows: rates that agree at the start, or at the end, and not between.

    Why it happens: alpha of CosineDecay is a share of the rate where eta_min is a rate; decay_steps counts after the
    warm-up; PolynomialDecay ends at 1e-4 unless told otherwise; CosineDecayRestarts doubles its periods by default.
    """

    code, name, title = "AMB357", "schedule-setting", "A number of the schedule differs"
    kinds, weight = ("attr", "variant"), 36
    sample = Cause("attr", "Cosine", "alpha", 0.1, 0.0)

    def claims(self, cause: Cause) -> bool:
        return super().claims(cause) and bool(cause.name)

    def title_for(self, cause: Cause) -> str:
        return f"Schedule: {cause.name.replace('_', ' ')} differs"

    def message(self, cause: Cause) -> str:
        c, r = _two(cause)
        share = " (as a share of the first rate)" if cause.name in ("alpha", "end", "warmup_from") else ""
        name = cause.name.replace("_", " ")
        return f"The candidate's {said(cause.op)} has {name} {c}, the reference's {r}{share}."

    def fix(self, cause: Cause) -> str:
        own, value = own_class(cause), code(sides(cause)[1])
        if cause.name == "step_size" and own.endswith("ExponentialLR"):
            return f"{own}(..., gamma=gamma ** (1 / {value}))"
        return setting(cause)


@rule
class UnknownSchedule(_Schedule):
    """The learning rates differ, and no known cause explains it.

    How it shows: the rate of some of the first updates is not the reference's.

    Why it happens: a schedule of one's own that none of the known forms reproduces. Known and not tried: OneCycleLR
    (Keras has none; it also moves the momentum) and ReduceLROnPlateau, whose patience in Keras is torch's + 1 and whose
    threshold is relative in torch, absolute in Keras (threshold_mode="abs").
    """

    code, name, title = "AMB359", "schedule-unexplained", "Learning rates differ and no known cause explains it"
    kinds, ops = ("unknown",), ("schedule",)
    sample = Cause("unknown", "schedule", "")

    def message(self, cause: Cause) -> str:
        return "The learning rates of the first updates are not the same; the report draws both."

    def fix(self, cause: Cause) -> str:
        return write(cause, torch="torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: reference_rate(t) / lr)",
                     keras="a LearningRateSchedule whose __call__ gives the reference's rate")  # fmt: skip
