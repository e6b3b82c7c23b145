"""Optimizers: where epsilon stands, how decay couples, what the buffers hold."""

from __future__ import annotations

from ambidex.core.rule import Cause
from ambidex.rules.recipe import UNPAIRED, cls_of, only, ops_of, own_class, setting
from ambidex.rules.registry import rule
from ambidex.rules.words import Known, both, code, number, write

OPTIMIZERS = ops_of("optimizer")


class _Optimizer(Known):
    stage, unpaired, weight, ops = "update", UNPAIRED, 40, OPTIMIZERS


def _seen(cause: Cause) -> str:
    return "" if cause.detail.get("effect", True) else " On these gradients it makes no difference yet."


@rule
class LearningRate(_Optimizer):
    """The learning rate differs.

    How it shows: every update has another size from the first step on.

    Why it happens: defaults differ (SGD 0.001 and 0.01, Adadelta 1.0 and 0.001, RMSprop 0.01 and 0.001, Adamax 0.002
    and 0.001), and a rate given once per epoch or scaled by the batch size is easy to lose.
    """

    code, name, title = "AMB330", "optimizer-rate", "Learning rate differs"
    kinds, names = ("attr",), ("learning_rate",)
    sample = Cause("attr", "Adam", "learning_rate", 0.001, 0.01)

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        return f"The candidate's learning rate is {c}, the reference's {r}.{only(cause)}"

    def fix(self, cause: Cause) -> str:
        return setting(cause)


@rule
class OptimizerEpsilon(_Optimizer):
    """The optimizer's epsilon has another value.

    How it shows: weights with small gradients move differently; with half precision or clipped gradients all do.

    Why it happens: torch's defaults are 1e-8 (Adagrad 1e-10, Adadelta 1e-6), Keras' 1e-7.
    """

    code, name, title = "AMB331", "optimizer-epsilon", "Optimizer epsilon differs"
    kinds, names = ("attr",), ("epsilon", "epsilon_1", "epsilon_2")
    sample = Cause("attr", "Adam", "epsilon", 1e-8, 1e-7)

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        return f"The candidate's {cause.op} has {cause.name.replace('_', ' ')} {c}, the reference's {r}.{_seen(cause)}"

    def fix(self, cause: Cause) -> str:
        return setting(cause)


@rule
class EpsilonPlace(_Optimizer):
    """Epsilon stands at another place of the formula.

    How it shows: small in each step, and largest in the first ones; where gradients are as small as epsilon, the
    weights drift apart.

    Why it happens: Keras' Adam adds epsilon to sqrt(v) before the bias correction, torch after it: at step t Keras'
    epsilon acts as epsilon / sqrt(1 - beta_2^t), 31.6 times more at the first. Keras' RMSprop and Adagrad have it
    under the root, torch's Adamax inside the maximum.
    """

    code, name, title = "AMB332", "optimizer-epsilon-place", "Epsilon at another place of the optimizer's formula"
    kinds = ("attr", "variant")
    names = ("epsilon_before_correction", "epsilon_inside", "epsilon_in_max", "epsilon_place")
    sample = Cause("attr", "Adam", "epsilon_before_correction", False, True)

    def message(self, cause: Cause) -> str:
        where = {
            "epsilon_before_correction": ("before the bias correction", "after the bias correction"),
            "epsilon_inside": ("under the root", "beside the root"),
            "epsilon_in_max": ("inside the maximum", "outside the maximum"),
        }.get(cause.name)
        if where is None:
            return f"The candidate's {cause.op} has its epsilon at another place than the reference's."
        c, r = where if cause.candidate else where[::-1]
        return f"The candidate's {cause.op} adds epsilon {c}, the reference's {r}."

    def fix(self, cause: Cause) -> str:
        if cause.op == "Adam":
            return write(
                cause,
                torch="before each step: group['eps'] = eps / (1 - beta_2 ** t) ** 0.5",
                keras=f"{own_class(cause)}(epsilon=1e-12), and the same small eps in the reference: then the place "
                "makes no difference",
            )
        return write(
            cause,
            torch=f"{own_class(cause)}(..., eps=1e-12), and the same in the reference",
            keras=f"{own_class(cause)}(epsilon=1e-12), and the same in the reference",
        )


@rule
class DecayCoupling(_Optimizer):
    """Weight decay is added to the gradient on one side, and taken off the weight on the other.

    How it shows: with Adam the same number is another regularisation altogether; large weights shrink more with the
    decoupled form.

    Why it happens: weight_decay of torch's SGD, Adam and RMSprop is coupled (an L2 penalty in the gradient); every
    weight_decay of Keras is decoupled, as in AdamW.
    """

    code, name, title = "AMB333", "optimizer-decay-coupling", "Weight decay coupled against decoupled"
    kinds, names = ("attr", "variant"), ("decoupled", "decay_coupling")
    sample = Cause("attr", "Adam", "decoupled", False, True)

    def message(self, cause: Cause) -> str:
        c, r = "decoupled from the gradient (AdamW)", "added to the gradient (L2)"
        if cause.kind == "attr" and not cause.candidate:
            c, r = r, c
        return f"The candidate's weight decay is {c}, the reference's {r}.{only(cause)}"

    def fix(self, cause: Cause) -> str:
        if cause.reference:
            return write(cause, torch="torch.optim.AdamW(..., weight_decay=...)",
                         keras=f"{own_class(cause)}(weight_decay=...) and no kernel_regularizer")  # fmt: skip
        return write(
            cause,
            torch="torch.optim.Adam(..., weight_decay=...)",
            keras="no weight_decay; kernel_regularizer=keras.regularizers.L2(weight_decay / 2) on every weight",
        )


@rule
class Decay(_Optimizer):
    """Weight decay has another value, is missing, or acts on other weights.

    How it shows: norms of weights that drift apart over many steps; a regulariser that only one side has.

    Why it happens: AdamW's default is 0.01 in torch and 0.004 in Keras; torch decays all parameters of a group, biases
    and norms too, Keras all that exclude_from_weight_decay does not name; L2(l) of Keras is l * w^2, so it equals a
    weight_decay of 2 * l.
    """

    code, name, title = "AMB334", "optimizer-decay", "Weight decay differs"
    kinds, names = ("attr", "variant"), ("weight_decay", "decay_missing", "decay_twice", "decay_half")
    sample = Cause("attr", "Adam", "weight_decay", 0.01, 0.004)

    def message(self, cause: Cause) -> str:
        if cause.kind == "variant":
            words = {"decay_missing": "none of the reference's", "decay_twice": "twice the reference's",
                     "decay_half": "half the reference's"}  # fmt: skip
            return f"The candidate's weight decay is {words.get(cause.name, 'not the reference s')}."
        c, r = both(cause)
        return f"The candidate's weight decay is {c}, the reference's {r}.{only(cause)}{_seen(cause)}"

    def fix(self, cause: Cause) -> str:
        if cause.detail.get("weights"):
            return write(
                cause,
                torch=f"a parameter group of its own for them, with weight_decay={code(cause.reference)}",
                keras="optimizer.exclude_from_weight_decay(var_names=['bias', 'gamma', 'beta'])",
            )
        value = cause.reference if isinstance(cause.reference, int | float) else 0.0
        return setting(cause, "weight_decay", value)


@rule
class Moments(_Optimizer):
    """The speed at which the optimizer forgets differs: momentum, beta, rho.

    How it shows: the first update is the same or off by a factor, later ones drift.

    Why it happens: RMSprop's alpha is 0.99 in torch and rho 0.9 in Keras, Adadelta's rho 0.9 and 0.95; SGD has no
    momentum unless it is given.
    """

    code, name, title = "AMB335", "optimizer-moments", "Momentum or decay rate of the optimizer differs"
    kinds = ("attr", "variant")
    names = ("momentum", "beta_1", "beta_2", "rho", "momentum_missing", "beta_2_decay", "dampening")
    sample = Cause("attr", "RMSprop", "rho", 0.99, 0.9)

    def title_for(self, cause: Cause) -> str:
        return f"{cause.name.split('_missing')[0]} of the optimizer differs"

    def message(self, cause: Cause) -> str:
        if cause.kind == "variant":
            return "The candidate has no momentum, the reference has."
        c, r = both(cause)
        return f"The candidate's {cause.op} has {cause.name.replace('_', ' ')} {c}, the reference's {r}.{_seen(cause)}"

    def fix(self, cause: Cause) -> str:
        return setting(cause, "momentum" if cause.name == "momentum_missing" else "")


@rule
class RateInBuffer(_Optimizer):
    """The momentum buffer holds the learning rate on one side: after a change of rate the old one lives on.

    How it shows: nothing while the rate is constant; after each change the updates differ for about 1 / (1 - momentum)
    steps, and with a rate that falls each step always.

    Why it happens: torch multiplies the whole buffer by the rate of now, Keras' SGD and RMSprop put rate times gradient
    into the velocity.
    """

    code, name, title = "AMB336", "optimizer-rate-in-buffer", "Momentum keeps the old learning rate after a change"
    kinds, names = ("attr", "variant"), ("rate_in_buffer",)
    sample = Cause("attr", "SGD", "rate_in_buffer", False, True)

    def message(self, cause: Cause) -> str:
        c, r = ("holds the learning rate", "does not") if cause.candidate else ("holds no learning rate", "does")
        return f"The candidate's momentum buffer {c}, the reference's {r}: they part when the rate changes."

    def fix(self, cause: Cause) -> str:
        return write(
            cause,
            torch="at each change of rate: state['momentum_buffer'] *= old_rate / new_rate",
            keras="at each change of rate: velocity.assign(velocity * new_rate / old_rate) for optimizer.momentums",
        )


@rule
class OptimizerOption(_Optimizer):
    """An option of the optimizer is on on one side only: Nesterov, AMSGrad, centred, bias correction, dampening.

    How it shows: the second update differs, or the first, and the training curve goes another way.

    Why it happens: the option is off by default in both; bias correction is missing in hand-written and some older
    implementations (BERT's first optimizer).
    """

    code, name, title = "AMB337", "optimizer-option", "Option of the optimizer differs"
    kinds = ("attr", "variant")
    names = ("nesterov", "amsgrad", "centered", "bias_correction", "relative_step")
    sample = Cause("attr", "SGD", "nesterov", True, False)

    def title_for(self, cause: Cause) -> str:
        return f"{cause.name} of the optimizer is on on one side only"

    def message(self, cause: Cause) -> str:
        on = bool(cause.candidate) if cause.kind == "attr" else None
        c, r = ("uses", "does not") if on else ("does not use", "does")
        return f"The candidate {c} {cause.name.replace('_', ' ')}, the reference {r}.{_seen(cause)}"

    def fix(self, cause: Cause) -> str:
        return setting(cause, cause.name, bool(cause.reference) if cause.kind == "attr" else True)


@rule
class OtherOptimizer(_Optimizer):
    """The two sides use different optimizers.

    How it shows: the first update already has another size or direction.

    Why it happens: a default (compile's is RMSprop), or a name: Adam with weight_decay is AdamW in Keras.
    """

    code, name, title = "AMB338", "optimizer-other", "Another optimizer"
    kinds = ("op",)
    sample = Cause("op", "Adam", "RMSprop")

    def title_for(self, cause: Cause) -> str:
        return f"Another optimizer: {cause.name or 'its own'} where the reference has {cause.op}"

    def message(self, cause: Cause) -> str:
        return f"The candidate updates with {cause.name or 'code of its own'}, the reference with {cause.op}."

    def fix(self, cause: Cause) -> str:
        attrs = cause.reference if isinstance(cause.reference, dict) else {}
        rate = attrs.get("learning_rate")
        given = "" if rate is None else f"{'learning_rate' if cause.framework == 'keras' else 'lr'}={code(rate)}"
        first = "" if cause.framework == "keras" else "parameters" + (", " if given else "")
        return f"{cls_of(cause.op, cause.framework)}({first}{given})"


@rule
class Accumulators(_Optimizer):
    """The optimizer starts from other accumulators, or decays its momentum on another plan.

    How it shows: the first updates are much larger on the side that starts from zero.

    Why it happens: Keras' Adagrad starts its sum at 0.1, torch's at 0; Keras' Nadam has a momentum decay of 1, torch's
    NAdam of 0.004.
    """

    code, name, title = "AMB316", "optimizer-start", "The optimizer starts from another state"
    kinds, names = ("attr",), ("initial", "momentum_decay", "rate_decay", "clip_threshold")
    sample = Cause("attr", "Adagrad", "initial", 0.0, 0.1)

    def title_for(self, cause: Cause) -> str:
        known = {
            "initial": "Adagrad's sum starts from another value",
            "momentum_decay": "Nadam's momentum decay differs",
        }
        return known.get(cause.name, self.title)

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        return f"The candidate's {cause.op} has {cause.name.replace('_', ' ')} {c}, the reference's {r}."

    def fix(self, cause: Cause) -> str:
        if cause.name == "momentum_decay" and cause.framework == "keras":
            return "nothing to set in Keras: give the reference momentum_decay=1.0"
        return setting(cause)


@rule
class FrozenWeight(_Optimizer):
    """A weight is trained on one side and left alone on the other.

    How it shows: it keeps its first value while the rest learns; its layer never adapts.

    Why it happens: parameters that were never handed to the optimizer (a list instead of nn.ModuleList, a group left
    out), requires_grad=False, or a Keras layer with trainable=False; compile before the change keeps the old state.
    """

    code, name, title = "AMB318", "optimizer-frozen", "A weight is trained on one side only"
    kinds, names = ("attr",), ("frozen",)
    sample = Cause("attr", "Adam", "frozen", None, True)

    def message(self, cause: Cause) -> str:
        c, r = ("leaves it alone", "trains it") if cause.candidate else ("trains it", "leaves it alone")
        return f"The candidate {c}, the reference {r}.{only(cause)}"

    def fix(self, cause: Cause) -> str:
        if cause.candidate:
            return write(cause, torch="hand all of model.parameters() to the optimizer",
                         keras="layer.trainable = True before compile")  # fmt: skip
        return write(cause, torch="parameter.requires_grad_(False), or leave it out of the optimizer",
                     keras="layer.trainable = False before compile")  # fmt: skip


@rule
class UnknownUpdate(_Optimizer):
    """The updates differ on the same weights and gradients, and no known cause explains it.

    How it shows: both optimizers got the reference's gradients; the weights after them are further apart than
    rounding.

    Why it happens: an optimizer of one's own that none of the known formulas reproduces, or more differences at once
    than were tried.
    """

    code, name, title = "AMB339", "update-unexplained", "Update differs and no known cause explains it"
    kinds, ops, weight = ("unknown",), ("optimizer", "update"), 40
    sample = Cause("unknown", "optimizer", "")

    def message(self, cause: Cause) -> str:
        size = f" by up to {number(cause.before)}" if cause.before is not None else ""
        return f"From the same weights and gradients the two optimizers end at different weights{size}."

    def fix(self, cause: Cause) -> str:
        return "compare the two optimizers' settings and their state after one update"
