"""Optimizers: where epsilon stands, how decay couples, what the buffers hold."""

from __future__ import annotations

from ambidex.core.rule import Cause
from ambidex.rules.recipe import Stage, cls_of, only, ops_of, own_class, said, setting, sides, whole
from ambidex.rules.registry import rule
from ambidex.rules.words import both, code, number, write


class _Optimizer(Stage):
    stage, ops = "update", ops_of("optimizer")


#: form and setting -> defaults of (torch 2.13, Keras 3.15); where only one class has it, the class's name
_DEFAULTS: dict[str, tuple[float, float]] = {
    "SGD.learning_rate": (1e-3, 1e-2), "Adamax.learning_rate": (2e-3, 1e-3), "Nadam.learning_rate": (2e-3, 1e-3),
    "Adagrad.learning_rate": (1e-2, 1e-3), "RMSprop.learning_rate": (1e-2, 1e-3),
    "Adadelta.learning_rate": (1.0, 1e-3), "Adafactor.learning_rate": (1e-2, 1e-3), "Adam.epsilon": (1e-8, 1e-7),
    "Adamax.epsilon": (1e-8, 1e-7), "Nadam.epsilon": (1e-8, 1e-7), "Adagrad.epsilon": (1e-10, 1e-7),
    "RMSprop.epsilon": (1e-8, 1e-7), "Adadelta.epsilon": (1e-6, 1e-7), "Adam.weight_decay": (1e-2, 4e-3),
    "RMSprop.rho": (0.99, 0.9), "Adadelta.rho": (0.9, 0.95), "Adagrad.initial": (0.0, 0.1),
    "Nadam.momentum_decay": (4e-3, 1.0),
}  # fmt: skip


def _ends(cause: Cause) -> str:
    """What is said behind the two values: whether nobody chose them, whether they show, which weights it concerns."""
    found = _DEFAULTS.get(f"{cause.op}.{cause.name}")
    text = only(cause)
    if cause.name == "weight_decay" and cause.candidate_cls != "AdamW":
        found = None  # of the other classes the default is none
    if found is not None and cause.framework in ("torch", "keras"):
        own, other = found if cause.framework == "torch" else found[::-1]
        if cause.candidate == own and cause.reference == other and cause.reference_framework != cause.framework:
            text += " These are the defaults of the two frameworks: the value was probably never passed."
        elif cause.candidate == own:
            text += " That is the default of the candidate's framework: the value was probably never passed."
    return text if cause.detail.get("effect", True) else f"{text} On these gradients it makes no difference yet."


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
        return f"The candidate's learning rate is {c}, the reference's {r}.{_ends(cause)}"

    def fix(self, cause: Cause) -> str:
        if cause.detail.get("weights") and cause.framework == "torch":
            return f"a parameter group of its own for them, with lr={code(cause.reference)}"
        if cause.detail.get("weights"):
            return f"multiply the gradients of these weights in train_step: {number(cause.reference)} is their rate"
        if cause.detail.get("scheduled"):  # the argument holds a schedule, which must stay
            value = code(cause.reference)
            return write(cause, torch=f"lr={value} in the optimizer", keras=f"{value} as the schedule's first rate")
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
        name = cause.name.replace("_", " ")
        return f"The candidate's {said(cause.op)} has {name} {c}, the reference's {r}.{_ends(cause)}"

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
        places = {
            "epsilon_before_correction": ("before the bias correction", "after the bias correction"),
            "epsilon_inside": ("under the root", "beside the root"),
            "epsilon_in_max": ("inside the maximum", "outside the maximum"),
        }
        name = self._attribute(cause)
        c, r = (places[name][0 if v is True else 1] for v in sides(cause, name))
        return f"The candidate's {said(cause.op)} adds epsilon {c}, the reference's {r}."

    @staticmethod
    def _attribute(cause: Cause) -> str:
        if cause.kind == "attr":
            return cause.name
        return {"Adam": "epsilon_before_correction", "Adamax": "epsilon_in_max"}.get(cause.op, "epsilon_inside")

    def fix(self, cause: Cause) -> str:
        tiny = "and the same small epsilon in the reference: then its place makes no difference"
        keras = f"{own_class(cause)}(epsilon=1e-12), {tiny}"
        torch = f"{own_class(cause)}(..., eps=1e-12), {tiny}"
        if self._attribute(cause) == "epsilon_before_correction" and sides(cause, self._attribute(cause))[1]:
            torch = "before each step: group['eps'] = eps / (1 - beta_2 ** t) ** 0.5"
        return write(cause, torch=torch, keras=keras)


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
        decoupled, coupled = "decoupled from the gradient (AdamW)", "added to the gradient (L2)"
        c, r = (decoupled if v else coupled for v in sides(cause, "decoupled"))
        return f"The candidate's weight decay is {c}, the reference's {r}.{only(cause)}"

    def fix(self, cause: Cause) -> str:
        if not sides(cause, "decoupled")[1]:
            return write(cause, torch=f"{cls_of(cause.op, 'torch')}(..., weight_decay=...)",
                         keras="no weight_decay; kernel_regularizer=keras.regularizers.L2(weight_decay / 2) on every "
                         "weight, biases too")  # fmt: skip
        torch = {"Adam": "torch.optim.AdamW(..., weight_decay=...)",
                 "Nadam": "torch.optim.NAdam(..., decoupled_weight_decay=True)"}  # fmt: skip
        by_hand = "weight_decay=0, and before each step: p.mul_(1 - lr * weight_decay) for p in parameters"
        return write(cause, torch=torch.get(cause.op, by_hand),
                     keras=f"{own_class(cause)}(weight_decay=...) and no kernel_regularizer")  # fmt: skip


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
        c, r = both(cause) if cause.kind == "attr" else (number(v) for v in sides(cause, "weight_decay"))
        how = {"decay_twice": " (twice the reference's)", "decay_half": " (half the reference's)"}.get(cause.name, "")
        return f"The candidate's weight decay is {c}{how}, the reference's {r}.{_ends(cause)}"

    def fix(self, cause: Cause) -> str:
        return setting(cause, "weight_decay")


@rule
class DecayedWeights(_Optimizer):
    """Weight decay, or the penalty of an L2 regulariser, acts on other weights.

    How it shows: scales of norms and biases shrink on one side; the losses part slowly.

    Why it happens: torch decays all parameters of a group, biases and norms too, Keras all that
    exclude_from_weight_decay does not name; a pattern like "layer_norm" does not match "LayerNorm"; a regulariser
    stands in each layer of Keras and is easily left out of an embedding.
    """

    code, name, title = "AMB317", "optimizer-decayed-weights", "Weight decay acts on other weights"
    kinds, names, weight = ("attr",), ("weight_decay",), 42
    sample = Cause("attr", "Adam", "weight_decay", 0.0, 0.01, detail={"weights": ["norm.weight", "norm.bias"]})

    def claims(self, cause: Cause) -> bool:
        return super().claims(cause) and bool(cause.detail.get("weights"))

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        return f"The candidate decays them by {c}, the reference by {r}.{only(cause)}"

    def fix(self, cause: Cause) -> str:
        own, listed = own_class(cause), [str(w).split("/")[-1] for w in cause.detail["weights"]]
        group = f"{own}([..., {{'params': these, 'weight_decay': {code(cause.reference)}}}])"
        if cause.reference:
            return write(cause, torch=group, keras=f"{own}(weight_decay={code(cause.reference)}) without "
                         f"exclude_from_weight_decay for {', '.join(sorted(set(listed)))}")  # fmt: skip
        return write(cause, torch=group, keras="optimizer.exclude_from_weight_decay(var_names="
                     f"{sorted(set(listed))!r}), weight_decay=0.0 for them")  # fmt: skip


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
        name = cause.name.split("_missing")[0]
        c, r = both(cause) if cause.kind == "attr" else (number(v) for v in sides(cause, name))
        return f"The candidate's {said(cause.op)} has {name.replace('_', ' ')} {c}, the reference's {r}.{_ends(cause)}"

    def fix(self, cause: Cause) -> str:
        return setting(cause, cause.name.split("_missing")[0])


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
        c, r = ("holds the learning rate" if v else "holds no learning rate" for v in sides(cause))
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
        c, r = (f"{cause.name.replace('_', ' ')}={v is True}" for v in sides(cause))
        return f"The candidate's {said(cause.op)} has {c}, the reference's {r}.{_ends(cause)}"

    def fix(self, cause: Cause) -> str:
        wanted = sides(cause)[1] is True
        if cause.name == "bias_correction":
            own = "(1 - beta_2 ** t) ** 0.5 / (1 - beta_1 ** t)"
            return f"at step t: learning rate {'* ' + own if wanted else '/ (' + own + ')'} (bias_correction={wanted})"
        return setting(cause, cause.name, wanted)


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
        return f"Another optimizer: {said(cause.name)} where the reference has {said(cause.op)}"

    def message(self, cause: Cause) -> str:
        return f"The candidate updates with {said(cause.name)}, the reference with {said(cause.op)}."

    def fix(self, cause: Cause) -> str:
        return whole(cause)


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
        name = cause.name.replace("_", " ")
        return f"The candidate's {said(cause.op)} has {name} {c}, the reference's {r}.{_ends(cause)}"

    def fix(self, cause: Cause) -> str:
        return setting(cause)


@rule
class UnknownUpdate(_Optimizer):
    """The updates differ on the same weights and gradients, and no known cause explains it.

    How it shows: both optimizers got the reference's gradients; the weights after them are further apart than
    rounding.

    Why it happens: an optimizer of one's own that none of the known formulas reproduces, or more differences at once
    than were tried. Known and not tried: Muon (bfloat16 in torch), RAdam, Rprop, Lamb, Ftrl; rows of an embedding whose
    gradient is zero, which a sparse optimizer leaves alone and a dense one moves by momentum.
    """

    code, name, title = "AMB339", "update-unexplained", "Update differs and no known cause explains it"
    kinds, ops, weight = ("unknown",), ("optimizer", "update"), 40
    sample = Cause("unknown", "optimizer", "")

    def message(self, cause: Cause) -> str:
        size = f" by up to {number(cause.before)}" if cause.before is not None else ""
        return f"From the same weights and gradients the two optimizers end at different weights{size}."

    def fix(self, cause: Cause) -> str:
        return "compare the two optimizers' settings and their state after one update"
