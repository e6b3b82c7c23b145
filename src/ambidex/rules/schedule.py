"""Clipping, accumulation and learning-rate schedules."""

from __future__ import annotations

from ambidex.core.rule import Cause
from ambidex.rules.recipe import UNPAIRED, cls_of, ops_of, setting
from ambidex.rules.registry import rule
from ambidex.rules.words import Known, both, number, write

CLIPS, SCHEDULES = ops_of("clip"), ops_of("schedule")


class _Clip(Known):
    stage, unpaired, weight, ops = "clip", UNPAIRED, 40, CLIPS


class _Schedule(Known):
    stage, unpaired, weight, ops = "schedule", UNPAIRED, 40, SCHEDULES


@rule
class ClipMissing(_Clip):
    """Gradients are clipped on one side only.

    How it shows: nothing until a large gradient comes; then one side jumps and the other does not.

    Why it happens: clip_grad_norm_ is a line of the training loop in torch, an option of the optimizer in Keras; a
    port takes over the one and forgets the other.
    """

    code, name, title = "AMB340", "clip-missing", "Gradients are clipped on one side only"
    kinds = ("missing", "extra")
    sample = Cause("missing", "ClipNorm", "clip", {"max_norm": 1.0, "scope": "global"}, None)

    def message(self, cause: Cause) -> str:
        given = cause.reference if cause.kind == "missing" else cause.candidate
        limit = (given or {}).get("max_norm", (given or {}).get("value")) if isinstance(given, dict) else None
        one, other = ("reference", "candidate") if cause.kind == "missing" else ("candidate", "reference")
        return f"The {one} clips its gradients{'' if limit is None else f' at {number(limit)}'}, the {other} does not."

    def fix(self, cause: Cause) -> str:
        if cause.kind == "extra":
            return write(cause, torch="leave clip_grad_norm_ / clip_grad_value_ out",
                         keras="leave clipnorm, global_clipnorm and clipvalue out")  # fmt: skip
        given = cause.reference if isinstance(cause.reference, dict) else {}
        if cause.op == "ClipValue":
            value = number(given.get("value", 1.0))
            return write(cause, torch=f"nn.utils.clip_grad_value_(parameters, {value})",
                         keras=f"the optimizer with clipvalue={value}")  # fmt: skip
        value, joint = number(given.get("max_norm", 1.0)), given.get("scope", "global") == "global"
        return write(
            cause,
            torch=f"nn.utils.clip_grad_norm_(parameters, {value})" if joint
            else f"for p in parameters: nn.utils.clip_grad_norm_([p], {value})",
            keras=f"the optimizer with {'global_clipnorm' if joint else 'clipnorm'}={value}",
        )  # fmt: skip


@rule
class ClipScope(_Clip):
    """One side clips each variable's gradient on its own, the other all of them together.

    How it shows: directions of updates change: layers with large gradients are cut more than the others.

    Why it happens: clipnorm of Keras is per variable, global_clipnorm joint; torch's clip_grad_norm_ over all
    parameters is joint.
    """

    code, name, title = "AMB341", "clip-scope", "Clipping per variable against joint"
    kinds, names = ("attr", "variant"), ("scope",)
    sample = Cause("attr", "ClipNorm", "scope", "global", "weight")

    def message(self, cause: Cause) -> str:
        said = {"global": "the norm of all gradients together", "weight": "the norm of each gradient on its own"}
        c = said.get(str(cause.candidate), "another norm than the reference")
        return f"The candidate limits {c}, the reference {said.get(str(cause.reference), 'another one')}."

    def fix(self, cause: Cause) -> str:
        joint = cause.reference != "weight"
        return write(
            cause,
            torch="nn.utils.clip_grad_norm_(model.parameters(), limit), once for all" if joint
            else "for p in model.parameters(): nn.utils.clip_grad_norm_([p], limit)",
            keras="global_clipnorm=limit and not clipnorm" if joint else "clipnorm=limit and not global_clipnorm",
        )  # fmt: skip


@rule
class ClipLimit(_Clip):
    """Gradients are clipped at another limit.

    How it shows: steps with large gradients have another size.

    Why it happens: the limit belongs to the loss's scale: with a sum for a mean, or with accumulation that adds up, it
    is another one.
    """

    code, name, title = "AMB342", "clip-limit", "Clipping at another limit"
    kinds, names = ("attr",), ("max_norm", "value")
    sample = Cause("attr", "ClipNorm", "max_norm", 1.0, 5.0)

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        return f"The candidate clips at {c}, the reference at {r}."

    def fix(self, cause: Cause) -> str:
        return f"clip at {number(cause.reference)}"


@rule
class ClipKind(_Clip):
    """One side clips by value, the other by norm.

    How it shows: clipping by value changes the direction of the update, by norm only its size.

    Why it happens: clipvalue and clipnorm differ in three letters, clip_grad_value_ and clip_grad_norm_ as well.
    """

    code, name, title = "AMB343", "clip-kind", "Clipping by value against by norm"
    kinds = ("op",)
    sample = Cause("op", "ClipNorm", "ClipValue")

    def message(self, cause: Cause) -> str:
        said = {"ClipNorm": "by norm", "ClipValue": "by value"}
        return (
            f"The candidate clips {said.get(cause.name, 'in its own way')}, "
            f"the reference {said.get(cause.op, 'in its own way')}."
        )

    def fix(self, cause: Cause) -> str:
        norm = cause.op == "ClipNorm"
        return write(cause, torch=f"nn.utils.clip_grad_{'norm' if norm else 'value'}_(parameters, limit)",
                     keras="global_clipnorm=limit" if norm else "clipvalue=limit")  # fmt: skip


@rule
class ClipEpsilon(_Clip):
    """The norm has an epsilon added on one side.

    How it shows: only with gradients whose norm is near the epsilon.

    Why it happens: torch's clip_grad_norm_ divides by norm + 1e-6, Keras by the norm.
    """

    code, name, title = "AMB344", "clip-epsilon", "Clipping with another epsilon"
    kinds, names = ("attr",), ("epsilon",)
    sample = Cause("attr", "ClipNorm", "epsilon", 1e-6, 0.0)

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        return f"The candidate adds {c} to the norm it divides by, the reference {r}."

    def fix(self, cause: Cause) -> str:
        return write(cause, torch="g * limit / max(norm, limit), written by hand",
                     keras="g * min(1, limit / (norm + 1e-6)), in a train_step of your own")  # fmt: skip


@rule
class Accumulation(Known):
    """Gradients of several batches go into one update on one side, or are added up where the other takes their mean.

    How it shows: updates larger by the number of batches, or at other steps.

    Why it happens: backward() adds into .grad, so a loop must divide the loss by the number of batches;
    gradient_accumulation_steps of Keras takes the mean.
    """

    code, name, title = "AMB345", "accumulation", "Gradients are accumulated another way"
    stage, unpaired, weight, ops = "clip", UNPAIRED, 40, ("Accumulate",)
    sample = Cause("attr", "Accumulate", "count", 4, 1)

    def message(self, cause: Cause) -> str:
        if cause.name == "mean":
            c, r = ("takes the mean", "adds up") if cause.candidate else ("adds up", "takes the mean")
            return f"Of the batches of one update the candidate {c}, the reference {r}."
        c, r = both(cause)
        return f"The candidate updates after {c} batches, the reference after {r}."

    def fix(self, cause: Cause) -> str:
        if cause.name == "mean":
            return write(cause, torch="(loss / n).backward()" if cause.reference else "loss.backward()",
                         keras="multiply the learning rate by n: Keras takes the mean")  # fmt: skip
        n = number(cause.reference)
        return write(cause, torch=f"optimizer.step() after every {n} batches, (loss / {n}).backward()",
                     keras=f"the optimizer with gradient_accumulation_steps={n}")  # fmt: skip


@rule
class UnknownClip(Known):
    """The gradients differ after clipping, and no known cause explains it.

    How it shows: both sides got the same gradients and hand different ones to the optimizer.

    Why it happens: a clipping of one's own that none of the known forms reproduces.
    """

    code, name, title = "AMB349", "clip-unexplained", "Clipping differs and no known cause explains it"
    stage, unpaired, weight, kinds, ops = "clip", UNPAIRED, 40, ("unknown",), ("clip",)
    sample = Cause("unknown", "clip", "")

    def message(self, cause: Cause) -> str:
        return "Of the same gradients the two clippings make different ones."

    def fix(self, cause: Cause) -> str:
        return "compare the two clippings on one gradient above the limit"


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
        what = f" ({cause.op})" if cause.op in SCHEDULES else ""
        return f"The {one} has a schedule{what}, the {other} a constant learning rate."

    def fix(self, cause: Cause) -> str:
        if cause.kind == "extra":
            return write(cause, torch="leave the scheduler out", keras="a plain number as learning_rate")
        return f"{cls_of(cause.op, cause.framework)}(...), as the reference has it"


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
        c, r = ("in steps", "continuously") if cause.candidate else ("continuously", "in steps")
        return f"The candidate's learning rate falls {c}, the reference's {r}."

    def fix(self, cause: Cause) -> str:
        if cause.reference:
            return write(cause, torch="torch.optim.lr_scheduler.StepLR(optimizer, step_size, gamma)",
                         keras="keras.optimizers.schedules.ExponentialDecay(staircase=True)")  # fmt: skip
        return write(cause, torch="torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma ** (1 / step_size))",
                     keras="keras.optimizers.schedules.ExponentialDecay(staircase=False)")  # fmt: skip


@rule
class Boundary(_Schedule):
    """The rate changes at other steps; off by one when the boundaries were taken over as they are.

    How it shows: one update (or more) with the old rate.

    Why it happens: MultiStepLR has the new rate at the milestone itself; PiecewiseConstantDecay keeps the old one up to
    and including its boundary: boundaries = milestones - 1.
    """

    code, name, title = "AMB352", "schedule-boundary", "The learning rate changes at another step"
    kinds, names = ("attr", "variant"), ("boundaries", "boundary", "factors")
    sample = Cause("attr", "MultiStep", "boundaries", [10, 20], [11, 21])

    def message(self, cause: Cause) -> str:
        if cause.kind == "variant":
            return "The candidate's learning rate changes one step beside the reference's."
        c, r = both(cause)
        what = "at" if cause.name == "boundaries" else "by factors of"
        return f"The candidate's learning rate changes {what} {c}, the reference's {what} {r} (in updates)."

    def fix(self, cause: Cause) -> str:
        steps = cause.reference if isinstance(cause.reference, list | tuple) else []
        if cause.name != "boundaries" or not steps:
            return "the reference's boundaries, minus one in PiecewiseConstantDecay"
        return write(
            cause,
            torch=f"torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[{', '.join(map(number, steps))}])",
            keras="keras.optimizers.schedules.PiecewiseConstantDecay("
            f"boundaries=[{', '.join(number(b - 1) for b in steps)}])",
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
        slower = isinstance(cause.candidate, float) and isinstance(cause.reference, float)
        return super().claims(cause) and not (slower and cause.candidate < 1)

    def message(self, cause: Cause) -> str:
        if cause.kind == "variant" or not isinstance(cause.candidate, int | float):
            return "The candidate's schedule moves on with every batch, the reference's with every update."
        c, r = both(cause)
        return f"In one update the candidate's schedule moves on by {c}, the reference's by {r}."

    def fix(self, cause: Cause) -> str:
        return write(
            cause,
            torch="scheduler.step() after optimizer.step(), once an update",
            keras="a schedule that divides: schedule(step // n), or decay_steps * n",
        )


@rule
class PerEpoch(_Schedule):
    """The schedule moves on once an epoch on one side and once an update on the other.

    How it shows: the rate hardly changes, or is gone in the first epoch.

    Why it happens: torch's schedulers move when step() is called, often at the end of an epoch; Keras' schedules move
    with every update.
    """

    code, name, title = "AMB354", "schedule-per-epoch", "The schedule runs by epoch, not by update"
    kinds, names, weight = ("attr", "variant"), ("stride", "per_epoch"), 39
    sample = Cause("variant", "Step", "per_epoch")

    def message(self, cause: Cause) -> str:
        return "The candidate's schedule moves on once for several updates, the reference's with every update."

    def fix(self, cause: Cause) -> str:
        return write(cause, torch="scheduler.step() after every optimizer.step()",
                     keras="decay_steps in updates: epochs * steps_per_epoch")  # fmt: skip


@rule
class OtherSchedule(_Schedule):
    """The two sides use different schedules.

    How it shows: the rates part after the first updates.

    Why it happens: a port takes the nearest class: PolynomialDecay for LinearLR, CosineDecay for warm restarts.
    """

    code, name, title = "AMB355", "schedule-other", "Another schedule"
    kinds = ("op",)
    sample = Cause("op", "Cosine", "Polynomial")

    def message(self, cause: Cause) -> str:
        return f"The candidate's schedule is {cause.name or 'its own'}, the reference's {cause.op}."

    def fix(self, cause: Cause) -> str:
        return f"{cls_of(cause.op, cause.framework)}(...), with the reference's numbers"


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
        c, r = ("rises again", "stays") if cause.candidate else ("stays", "rises again")
        return f"After its last step the candidate's learning rate {c}, the reference's {r}."

    def fix(self, cause: Cause) -> str:
        return write(cause, torch="stop calling scheduler.step() after T_max updates",
                     keras="a schedule of your own: alpha + (1 - alpha) * (1 + cos(pi * step / T)) / 2")  # fmt: skip


@rule
class ScheduleSetting(_Schedule):
    """A number of the schedule differs: its length, its factor, its end, its warm-up, its first step.

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
        if cause.kind == "variant":
            return f"The candidate's schedule is the reference's, {cause.name.replace('_', ' ')}."
        c, r = both(cause)
        return f"The candidate's {cause.op} has {cause.name.replace('_', ' ')} {c}, the reference's {r}."

    def fix(self, cause: Cause) -> str:
        if cause.name in ("offset", "one_late", "one_early"):
            return "let the first update use the schedule's first value: step after the update, not before it"
        return setting(cause)


@rule
class UnknownSchedule(Known):
    """The learning rates differ, and no known cause explains it.

    How it shows: the rate of some of the first updates is not the reference's.

    Why it happens: a schedule of one's own that none of the known forms reproduces.
    """

    code, name, title = "AMB359", "schedule-unexplained", "Learning rates differ and no known cause explains it"
    stage, unpaired, weight, kinds, ops = "schedule", UNPAIRED, 40, ("unknown",), ("schedule",)
    sample = Cause("unknown", "schedule", "")

    def message(self, cause: Cause) -> str:
        return "The learning rates of the first updates are not the same; the report draws both."

    def fix(self, cause: Cause) -> str:
        return write(cause, torch="torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: reference_rate(t) / lr)",
                     keras="a LearningRateSchedule whose __call__ gives the reference's rate")  # fmt: skip
