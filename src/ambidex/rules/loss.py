"""Losses: what is compared, how it is weighted, and over what the mean is taken."""

from __future__ import annotations

from typing import Any

from ambidex.core.rule import Cause
from ambidex.rules import recipe
from ambidex.rules.recipe import UNKNOWN, Stage, own_class, said, setting, sides
from ambidex.rules.registry import rule
from ambidex.rules.words import both, code, number, write

_OVER = {"sum": "the sum of the weights", "count": "the number of samples"}


class _Loss(Stage):
    stage, ops = "loss", recipe.ops_of("loss")


@rule
class ClassWeightMean(_Loss):
    """With class weights the mean is taken over the number of samples, or over the sum of the weights.

    How it shows: loss and gradients are off by a factor that changes from batch to batch with the classes in it.

    Why it happens: nn.CrossEntropyLoss(weight=w) divides by the sum of the weights of the batch's targets; class_weight
    and sample_weight of Keras divide by the number of samples, 0/1 weights that mask padding too, unless the loss has
    reduction="mean_with_sample_weight". With pos_weight of nn.BCEWithLogitsLoss both divide by the number of samples.
    """

    code, name, title = "AMB320", "loss-weights-mean", "Class weights: the mean is over something else"
    kinds, names = ("attr", "variant"), ("weights_by",)
    sample = Cause("attr", "CrossEntropy", "weights_by", "sum", "count")

    def message(self, cause: Cause) -> str:
        c, r = (_OVER.get(str(v), str(UNKNOWN)) for v in sides(cause))
        return f"The candidate divides its weighted loss by {c}, the reference by {r}."

    def fix(self, cause: Cause) -> str:
        if sides(cause)[1] == "count":
            torch = "(F.cross_entropy(out, y, reduction='none') * weight[y]).mean()"
            return write(cause, torch=torch, keras=f"{own_class(cause)}(reduction='sum_over_batch_size')")
        torch = "nn.CrossEntropyLoss(weight=weight), which divides by weight[y].sum()"
        return write(cause, torch=torch, keras=f"{own_class(cause)}(reduction='mean_with_sample_weight')")


@rule
class ClassWeights(_Loss):
    """Class weights, or the weight of positives, differ or are missing on one side.

    How it shows: another loss on the same outputs, and a model that prefers other classes.

    Why it happens: weights live in the loss in torch and in fit (class_weight) in Keras; evaluate never sees them.
    """

    code, name, title = "AMB321", "loss-class-weights", "Class weights differ"
    kinds = ("attr", "variant", "missing", "extra")
    names = ("class_weights", "pos_weight", "class_weights_missing")
    sample = Cause("attr", "CrossEntropy", "class_weights", [1.0, 2.0], None)

    def _of(self, cause: Cause) -> tuple[str, Any, Any]:
        """Which weights it is about, and both values."""
        name = cause.name if cause.name == "pos_weight" else "class_weights"
        c, r = sides(cause, name)
        if isinstance(cause.reference, dict) and cause.reference.get("pos_weight") is not None:
            name, (c, r) = "pos_weight", sides(cause, "pos_weight")
        return name, c, r

    def message(self, cause: Cause) -> str:
        name, *values = self._of(cause)
        c, r = ("none" if v is None else number(v) for v in values)
        return f"The candidate's {name.replace('_', ' ')}: {c}; the reference's: {r}."

    def fix(self, cause: Cause) -> str:
        name, _, given = self._of(cause)
        if given is None:
            torch = f"{own_class(cause)}(...) without weight and pos_weight"
            return write(cause, torch=torch, keras="model.fit(...) without class_weight")
        listed = given if isinstance(given, list | tuple) else [1.0, given]
        weights = "{" + ", ".join(f"{i}: {code(w)}" for i, w in enumerate(listed)) + "}"
        keras = f"model.fit(..., class_weight={weights})"
        if cause.op == "CrossEntropy" and cause.reference_framework == "torch":  # whose mean is over the weights
            keras += f" and {own_class(cause)}(reduction='mean_with_sample_weight')"
        if name == "pos_weight" and listed is given:  # an output each: class_weight knows one output only
            keras = f"tf.nn.weighted_cross_entropy_with_logits(y, out, pos_weight={code(list(given))})"
        torch = setting(cause, name, given)
        if cause.op == "BinaryCrossEntropy" and name == "class_weights" and given is not UNKNOWN:
            zero, one = (code(w) for w in listed[:2])
            torch = f"{own_class(cause)}(..., weight=torch.where(y > 0.5, {one}, {zero}))"
        return write(cause, torch=torch, keras=keras)


@rule
class Logits(_Loss):
    """One side takes the outputs for logits, the other for probabilities; or a softmax is applied twice.

    How it shows: the loss does not fall below a floor (softmax twice: 0.74 for three classes), or it is huge and its
    gradient is zero outside 0..1 (logits clipped as if they were probabilities).

    Why it happens: cross_entropy of torch always takes logits; Keras' losses take probabilities unless
    from_logits=True. A last layer with softmax or sigmoid under a loss on logits is the same fault from the other end.
    """

    code, name, title = "AMB322", "loss-logits", "Logits taken for probabilities, or the reverse"
    kinds = ("attr", "variant")
    names = ("from_logits", "softmax_twice", "probabilities_as_logits", "logits_as_probabilities")
    sample = Cause("attr", "CrossEntropy", "from_logits", True, False)

    def message(self, cause: Cause) -> str:
        if cause.name == "softmax_twice":
            what = "sigmoid" if cause.op == "BinaryCrossEntropy" else "softmax"
            c, r = ("applies it twice", "once") if self._candidate_doubles(cause) else ("applies it once", "twice")
            return f"Of {what} on the outputs: the candidate {c}, the reference {r}."
        logits = self._wants_logits(cause)
        c, r = ("probabilities", "logits") if logits else ("logits", "probabilities")
        return f"The candidate's loss takes the outputs for {c}, the reference's takes them for {r}."

    @staticmethod
    def _candidate_doubles(cause: Cause) -> bool:
        return cause.kind == "variant" or bool(cause.candidate)

    @staticmethod
    def _wants_logits(cause: Cause) -> bool:
        return bool(cause.reference) if cause.kind == "attr" else cause.name == "logits_as_probabilities"

    def fix(self, cause: Cause) -> str:
        last = "sigmoid" if cause.op == "BinaryCrossEntropy" else "softmax"
        if cause.name == "softmax_twice":
            if not self._candidate_doubles(cause):
                return f"the reference applies {last} twice: take one out there, or put one in front of this loss too"
            return write(cause, torch=f"hand the loss the logits: no {last} before {own_class(cause)}()",
                         keras=f"{own_class(cause)}(from_logits=False)")  # fmt: skip
        logits = self._wants_logits(cause)
        torch = {
            "BinaryCrossEntropy": "nn.BCEWithLogitsLoss()" if logits else "nn.BCELoss()",
            "FocalBinary": f"torchvision.ops.sigmoid_focal_loss({'out' if logits else 'torch.logit(out)'}, y)",
        }.get(cause.op, "nn.CrossEntropyLoss()" if logits else "nn.NLLLoss()(torch.log(out), y)")
        return write(cause, torch=torch, keras=f"{own_class(cause)}(from_logits={logits})")


@rule
class LabelSmoothing(_Loss):
    """The targets are smoothed by another amount, or on one side only.

    How it shows: a training loss that ends at another value; less confident outputs on the side that smooths more.

    Why it happens: nn.CrossEntropyLoss and CategoricalCrossentropy smooth alike, t (1 - s) + s / C;
    SparseCategoricalCrossentropy and nn.BCEWithLogitsLoss have no such option.
    """

    code, name, title = "AMB323", "loss-label-smoothing", "Label smoothing differs"
    kinds, names = ("attr", "variant"), ("label_smoothing", "label_smoothing_missing")
    sample = Cause("attr", "CrossEntropy", "label_smoothing", 0.1, 0.0)

    def message(self, cause: Cause) -> str:
        c, r = (number(v) for v in sides(cause, "label_smoothing"))
        return f"The candidate smooths its targets by {c}, the reference by {r}."

    def fix(self, cause: Cause) -> str:
        value = sides(cause, "label_smoothing")[1]
        if cause.framework == "keras" and cause.candidate_cls.lower().startswith("sparse"):
            call = f"keras.losses.CategoricalCrossentropy(from_logits=..., label_smoothing={code(value)})"
            return f"{call} on one-hot targets: the sparse one cannot smooth"
        return setting(cause, "label_smoothing", value)


@rule
class SmoothWeights(_Loss):
    """With class weights and label smoothing together, the smoothed part has other weights.

    How it shows: a few percent in the loss, when both options are on.

    Why it happens: torch gives each class's share of the smoothed target that class's weight; class_weight of Keras
    multiplies the sample's whole smoothed loss by the weight of its own class.
    """

    code, name, title = "AMB319", "loss-smooth-weights", "Class weights act on the smoothed targets another way"
    weight, kinds, names = 41, ("attr", "variant"), ("smooth_weighted",)
    sample = Cause("attr", "CrossEntropy", "smooth_weighted", True, False)

    def message(self, cause: Cause) -> str:
        c, r = ("class by class" if v else "by the sample's own class" for v in sides(cause))
        return f"The candidate weights the smoothed targets {c}, the reference {r}."

    def fix(self, cause: Cause) -> str:
        if sides(cause)[1]:
            return write(cause, torch="nn.CrossEntropyLoss(weight=weight, label_smoothing=s)",
                         keras="-keras.ops.sum(smoothed * weight * keras.ops.log_softmax(out), -1), divided by the "
                         "sum of weight[y]")  # fmt: skip
        return write(cause, torch="(F.cross_entropy(out, y, label_smoothing=s, reduction='none') * weight[y]).mean()",
                     keras="model.fit(..., class_weight=...), CategoricalCrossentropy(label_smoothing=s)")  # fmt: skip


@rule
class Reduction(_Loss):
    """The loss is a sum on one side and a mean on the other, or the mean of another axis.

    How it shows: a factor of the batch size (or of the last axis) in loss and gradients: the same learning rate is then
    another one, and clipping cuts another share of the steps.

    Why it happens: reduction="sum" of Keras still takes the mean over the last axis; nn.KLDivLoss divides by all
    elements unless reduction="batchmean"; several replicas add up what one machine averages.
    """

    code, name, title = "AMB324", "loss-reduction", "Loss is reduced another way"
    kinds = ("attr", "variant")
    names = ("reduction", *(f"reduction_{r}" for r in recipe.REDUCTIONS))
    sample = Cause("attr", "MSE", "reduction", "mean", "sum_of_means")

    def message(self, cause: Cause) -> str:
        c, r = (recipe.REDUCTIONS.get(str(v), f"'{v}'") for v in sides(cause, "reduction"))
        if cause.kind == "variant" and sides(cause, "reduction")[1] is UNKNOWN:
            return f"The candidate takes {recipe.REDUCTIONS.get(cause.name[10:], c)}, not so the reference."
        return f"The candidate takes {c}, the reference {r}."

    def fix(self, cause: Cause) -> str:
        wanted = str(sides(cause, "reduction")[1])
        if wanted not in recipe.REDUCTIONS:
            return "reduce the loss as the reference does: the same axes, divided by the same number"
        return recipe.reduced(cause, wanted)


@rule
class IgnoredTargets(_Loss):
    """Padded targets count on one side and are left out on the other.

    How it shows: the loss falls with the share of padding; models learn to predict the padding token.

    Why it happens: nn.CrossEntropyLoss ignores -100 unless ignore_index says otherwise; Keras ignores nothing unless
    ignore_class, a mask or sample weights say so. Data that marks padding with -1 or 0 needs the same number on both.
    """

    code, name, title = "AMB325", "loss-ignored-targets", "Ignored targets differ"
    kinds, names = ("attr", "variant"), ("ignore_index", "ignored_counted")
    sample = Cause("attr", "CrossEntropy", "ignore_index", 0, None)

    def message(self, cause: Cause) -> str:
        values = sides(cause, "ignore_index")
        c, r = ("leaves out none" if v is None else f"leaves out those that are {number(v)}" for v in values)
        return f"Of the targets the candidate {c}, the reference {r}."

    def fix(self, cause: Cause) -> str:
        return setting(cause, "ignore_index", sides(cause, "ignore_index")[1])


@rule
class OtherLoss(_Loss):
    """The two sides minimise different losses.

    How it shows: another value on the same outputs and targets; how far apart depends on the data.

    Why it happens: names mislead: NLL wants log-probabilities, MultiMarginLoss is no categorical hinge, SmoothL1 is
    Huber divided by its threshold; a string in compile is looked up in a table of aliases.
    """

    code, name, title = "AMB326", "loss-other", "Another loss"
    kinds, weight = ("op",), 35
    sample = Cause("op", "MSE", "MAE")

    def title_for(self, cause: Cause) -> str:
        return f"Another loss: {said(cause.name)} where the reference has {said(cause.op)}"

    def message(self, cause: Cause) -> str:
        return f"The candidate computes {said(cause.name)}, the reference {said(cause.op)}."

    def fix(self, cause: Cause) -> str:
        return recipe.whole(cause)


@rule
class BroadcastLoss(_Loss):
    """Outputs of shape (N, 1) meet targets of shape (N,): each with each, N x N differences.

    How it shows: the loss hardly falls and the model predicts the mean; torch warns once.

    Why it happens: nn.MSELoss broadcasts, Keras' loss objects squeeze; a plain difference broadcasts in both.
    """

    code, name, title = "AMB327", "loss-broadcast", "(N, 1) against (N,): the loss compares each with each"
    kinds, names = ("attr", "variant"), ("broadcast",)
    sample = Cause("attr", "MSE", "broadcast", False, True)

    def message(self, cause: Cause) -> str:
        wrong, right = ("reference", "candidate") if self._reference_does(cause) else ("candidate", "reference")
        return f"In the {wrong} outputs (N, 1) and targets (N,) make an N x N table of differences, in the {right} N."

    @staticmethod
    def _reference_does(cause: Cause) -> bool:
        return sides(cause)[1] in (True, "flat")  # "flat": its targets lose their last axis on the way

    def fix(self, cause: Cause) -> str:
        if self._reference_does(cause):
            return "in the reference: " + write(cause, torch="loss(y[:, None], out)", keras="loss(out.squeeze(-1), y)")
        return write(cause, torch="loss(out.squeeze(-1), y)", keras="loss(y[:, None], out)")


@rule
class LossConstant(_Loss):
    """The loss is the reference's times a number, or plus one: its sign, its offset, a factor of one half.

    How it shows: an offset changes the curve and no gradient; a factor changes both.

    Why it happens: cosine_embedding_loss is 1 - cos, CosineSimilarity of Keras -cos, the metric of that name +cos;
    squared errors are written with and without 1/2 (tf.nn.l2_loss has it).
    """

    code, name, title = "AMB390", "loss-constant", "Loss has another factor, sign or offset"
    kinds, names = ("attr", "variant"), ("sign", "offset", "factor", "factor_0.5", "factor_2")
    sample = Cause("attr", "MSE", "factor", 1.0, 0.5)

    def message(self, cause: Cause) -> str:
        name = cause.name.split("_")[0]
        c, r = (number(v) for v in sides(cause, name))
        return f"The candidate's {said(cause.op)} has {name} {c}, the reference's {r}."

    def fix(self, cause: Cause) -> str:
        name = cause.name.split("_")[0]
        value = sides(cause, name)[1]
        return recipe.times(cause, value) if name == "factor" else setting(cause, name, value)


@rule
class LossSetting(_Loss):
    """A setting of the loss differs: its threshold, exponent, balance, axis, epsilon, or whether it takes logarithms.

    How it shows: another value on the same outputs and targets.

    Why it happens: SmoothL1 divides by its beta, Huber does not by its delta; nn.KLDivLoss takes log-probabilities and
    KLDivergence probabilities; nn.PoissonNLLLoss takes logarithms unless log_input=False; the focal loss of Keras
    balances only with apply_class_balancing=True. On probabilities nn.BCELoss cuts the logarithm at -100, Keras the
    probability at 1e-7 (16.1 is its largest value), and Keras makes rows sum to one.
    """

    code, name, title = "AMB328", "loss-setting", "A setting of the loss differs"
    kinds, weight = ("attr", "variant"), 36
    sample = Cause("attr", "Huber", "delta", 0.5, 1.0)

    def claims(self, cause: Cause) -> bool:
        return super().claims(cause) and bool(cause.name)

    def title_for(self, cause: Cause) -> str:
        return f"Setting of the {said(cause.op)} differs: {cause.name.replace('_', ' ')}"

    def message(self, cause: Cause) -> str:
        if cause.name in ("log_input", "from_logs"):
            c, r = ("log-probabilities" if v else "probabilities" for v in sides(cause))
            if cause.op == "Poisson":
                c, r = ("logarithms of the rate" if v else "the rate" for v in sides(cause))
            return f"The candidate's {said(cause.op)} takes the outputs for {c}, the reference's for {r}."
        c, r = both(cause) if cause.kind == "attr" else (number(v) for v in sides(cause))
        return f"The candidate's {said(cause.op)} has {cause.name.replace('_', ' ')} {c}, the reference's {r}."

    def fix(self, cause: Cause) -> str:
        return setting(cause)


@rule
class UnknownLoss(_Loss):
    """The losses differ on the same outputs and targets, and no known cause explains it.

    How it shows: both losses got the reference's outputs; values or gradients are further apart than rounding.

    Why it happens: one side computes its loss in code of its own that none of the known forms reproduces, or several
    differences lie on top of each other. Known and not tried: CTC (torch divides by the target's length), targets
    shifted by one, losses of several outputs with other weights, targets that do not sum to one (TensorFlow's gradient
    of cross-entropy takes it that they do), all targets ignored (NaN in torch, 0 in Keras).
    """

    code, name, title = "AMB329", "loss-unexplained", "Loss differs and no known cause explains it"
    kinds, ops, weight = ("unknown",), ("loss",), 40
    sample = Cause("unknown", "loss", "")

    def message(self, cause: Cause) -> str:
        more = (
            f" The reference's is {said(cause.name)}; the candidate's is none of the known forms." if cause.name else ""
        )
        return f"On the reference's outputs and the same targets the two losses give different values.{more}"

    def fix(self, cause: Cause) -> str:
        return "compare the two losses term by term on one sample: weights, masks, reduction, logits"
