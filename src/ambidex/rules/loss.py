"""Losses: what is compared, how it is weighted, and over what the mean is taken."""

from __future__ import annotations

from ambidex.core.rule import Cause
from ambidex.rules.recipe import UNPAIRED, cls_of, ops_of, own_class, setting
from ambidex.rules.registry import rule
from ambidex.rules.words import Known, both, code, number, write

LOSSES = ops_of("loss")
_OVER = {"sum": "the sum of the weights", "count": "the number of samples"}


class _Loss(Known):
    stage, unpaired, weight, ops = "loss", UNPAIRED, 40, LOSSES


@rule
class ClassWeightMean(_Loss):
    """With class weights the mean is taken over the number of samples, or over the sum of the weights.

    How it shows: the loss is off by a factor that changes from batch to batch with the classes in it; so are the
    gradients, and with them the effective learning rate.

    Why it happens: nn.CrossEntropyLoss(weight=w) divides by the sum of the weights of the batch's targets;
    class_weight and sample_weight of Keras divide by the number of samples, unless the loss has
    reduction="mean_with_sample_weight".
    """

    code, name, title = "AMB320", "loss-weights-mean", "Class weights: the mean is over something else"
    kinds, names = ("attr", "variant"), ("weights_by",)
    sample = Cause("attr", "CrossEntropy", "weights_by", "sum", "count")

    def message(self, cause: Cause) -> str:
        c, r = (_OVER.get(str(v), "something else") for v in (cause.candidate, cause.reference))
        return f"The candidate divides its weighted loss by {c}, the reference by {r}."

    def fix(self, cause: Cause) -> str:
        if cause.reference == "count":
            return write(
                cause,
                torch="loss = (F.cross_entropy(out, y, reduction='none') * weight[y]).mean()",
                keras=f"{own_class(cause)}(reduction='sum_over_batch_size')",
            )
        return write(
            cause,
            torch=f"{own_class(cause)}(..., weight=weight)",
            keras=f"{own_class(cause)}(reduction='mean_with_sample_weight')",
        )


@rule
class ClassWeights(_Loss):
    """Class weights, or the weight of positives, differ or are missing on one side.

    How it shows: another loss on the same outputs, and a model that prefers other classes: recall of the rare ones
    moves first.

    Why it happens: weights live in the loss in torch (weight, pos_weight) and in fit (class_weight) in Keras; a
    training loop of one's own, or evaluate, never sees those of fit.
    """

    code, name, title = "AMB321", "loss-class-weights", "Class weights differ"
    kinds = ("attr", "variant", "missing", "extra")
    names = ("class_weights", "pos_weight", "class_weights_missing")
    sample = Cause("attr", "CrossEntropy", "class_weights", [1.0, 2.0], None)

    def message(self, cause: Cause) -> str:
        c, r = (number(v) if v is not None else "none" for v in (cause.candidate, cause.reference))
        return f"The candidate's class weights are {c}, the reference's {r}."

    def fix(self, cause: Cause) -> str:
        given = cause.reference
        if given is None or isinstance(given, dict):
            return write(cause, torch="the loss without weight and pos_weight", keras="fit without class_weight")
        listed = given if isinstance(given, list | tuple) else [1.0, given]
        as_dict = "{" + ", ".join(f"{i}: {code(w)}" for i, w in enumerate(listed)) + "}"
        name = "pos_weight" if cause.name == "pos_weight" else "weight"
        value = [given] if name == "pos_weight" and not isinstance(given, list | tuple) else list(listed)
        return write(
            cause,
            torch=f"{own_class(cause)}(..., {name}=torch.tensor([{', '.join(code(v) for v in value)}]))",
            keras=f"model.fit(..., class_weight={as_dict})",
        )


@rule
class Logits(_Loss):
    """One side takes the outputs for logits, the other for probabilities; or a softmax is applied twice.

    How it shows: the loss does not fall below a floor (probabilities taken for logits), or it is huge and its gradient
    dies (logits clipped as if they were probabilities).

    Why it happens: torch's cross_entropy always takes logits; Keras' losses take probabilities unless from_logits=True.
    A last layer with softmax under a loss on logits is the same fault from the other end.
    """

    code, name, title = "AMB322", "loss-logits", "Logits taken for probabilities, or the reverse"
    kinds = ("attr", "variant")
    names = ("from_logits", "softmax_twice", "probabilities_as_logits", "logits_as_probabilities", "log_input",
             "renormalise")  # fmt: skip
    sample = Cause("attr", "CrossEntropy", "from_logits", True, False)

    def message(self, cause: Cause) -> str:
        if cause.name == "softmax_twice":
            return "The candidate's loss applies softmax to outputs that went through a softmax already."
        if cause.name == "log_input":
            c, r = ("log-probabilities" if v else "no logarithms" for v in (cause.candidate, cause.reference))
            return f"The candidate's loss takes the outputs for {c}, the reference's for {r}."
        logits = cause.name == "probabilities_as_logits" or (cause.name == "from_logits" and bool(cause.candidate))
        c, r = ("logits", "probabilities") if logits else ("probabilities", "logits")
        return f"The candidate's loss takes the outputs for {c}, the reference's takes them for {r}."

    def fix(self, cause: Cause) -> str:
        if cause.name == "softmax_twice":
            return write(
                cause,
                torch="hand the loss the logits, without softmax: nn.CrossEntropyLoss()(logits, y)",
                keras=f"{own_class(cause)}(from_logits=True)",
            )
        wants = cause.reference if cause.name == "from_logits" else cause.name == "logits_as_probabilities"
        if cause.op == "BinaryCrossEntropy":
            return write(
                cause,
                torch="nn.BCEWithLogitsLoss()" if wants else "nn.BCELoss()",
                keras=f"{own_class(cause)}(from_logits={bool(wants)})",
            )
        return write(
            cause,
            torch="nn.CrossEntropyLoss() on logits" if wants else "nn.NLLLoss()(torch.log(p), y) on probabilities",
            keras=f"{own_class(cause)}(from_logits={bool(wants)})",
        )


@rule
class LabelSmoothing(_Loss):
    """The targets are smoothed by another amount, or on one side only.

    How it shows: a training loss that ends at another value; less confident outputs on the side that smooths more.

    Why it happens: nn.CrossEntropyLoss and CategoricalCrossentropy smooth alike (t (1 - s) + s / C);
    SparseCategoricalCrossentropy has no such option, and nn.BCEWithLogitsLoss neither.
    """

    code, name, title = "AMB323", "loss-label-smoothing", "Label smoothing differs"
    kinds, names = ("attr", "variant"), ("label_smoothing", "label_smoothing_missing")
    sample = Cause("attr", "CrossEntropy", "label_smoothing", 0.1, 0.0)

    def message(self, cause: Cause) -> str:
        if cause.kind == "variant":
            return "The candidate does not smooth its targets, the reference does."
        c, r = both(cause)
        return f"The candidate smooths its targets by {c}, the reference by {r}."

    def fix(self, cause: Cause) -> str:
        value = code(cause.reference if isinstance(cause.reference, int | float) else 0.1)
        sparse = cause.op == "CrossEntropy" and cause.candidate_cls.startswith("Sparse")
        keras = f"{own_class(cause)}(label_smoothing={value})"
        if sparse:
            keras = f"keras.losses.CategoricalCrossentropy(from_logits=..., label_smoothing={value}) on one-hot targets"
        torch = f"{own_class(cause)}(..., label_smoothing={value})"
        if cause.op == "BinaryCrossEntropy":
            torch = f"smooth the targets before the loss: y * (1 - {value}) + {value} / 2"
        return write(cause, torch=torch, keras=keras)


@rule
class SmoothWeights(_Loss):
    """With class weights and label smoothing together, the smoothed part has other weights.

    How it shows: a few percent in the loss, only when both options are on.

    Why it happens: torch gives each class's share of the smoothed target that class's weight; a sample weight (Keras'
    class_weight) multiplies the sample's whole smoothed loss by the weight of its own class.
    """

    code, name, title = "AMB319", "loss-smooth-weights", "Class weights act on the smoothed targets another way"
    weight, kinds, names = 41, ("attr", "variant"), ("smooth_weighted",)
    sample = Cause("attr", "CrossEntropy", "smooth_weighted", True, False)

    def message(self, cause: Cause) -> str:
        c, r = ("class by class" if v else "by the sample's own class" for v in (cause.candidate, cause.reference))
        return f"The candidate weights the smoothed targets {c}, the reference {r}."

    def fix(self, cause: Cause) -> str:
        return write(
            cause,
            torch="(F.cross_entropy(out, y, label_smoothing=s, reduction='none') * weight[y]).mean()",
            keras="a loss of your own: -(smoothed * weight * log_softmax(out)).sum(-1).sum() / weight[y].sum()",
        )


@rule
class Reduction(_Loss):
    """The loss is a sum on one side and a mean on the other, or the mean of another axis.

    How it shows: a factor of the batch size (or of the last axis) in loss and gradients: the same learning rate is
    then another one.

    Why it happens: reduction="sum" of Keras still takes the mean over the last axis; nn.KLDivLoss divides by all
    elements unless reduction="batchmean"; a loop of one's own adds up what the other divides.
    """

    code, name, title = "AMB324", "loss-reduction", "Loss is reduced another way"
    kinds = ("attr", "variant")
    names = ("reduction", *(f"reduction_{r}" for r in ("mean", "sum", "batchmean", "sum_of_means", "mean_of_sums")))
    sample = Cause("attr", "MSE", "reduction", "mean", "sum_of_means")

    def message(self, cause: Cause) -> str:
        said = {
            "mean": "the mean over all elements",
            "sum": "the sum over all elements",
            "none": "no reduction, and so the sum",
            "sum_of_means": "the sum of means over the last axis",
            "batchmean": "the sum divided by the batch size",
            "mean_of_sums": "the mean of sums over the last axis",
        }
        if cause.kind == "variant":
            return f"The candidate takes {said.get(cause.name[10:], 'another reduction')}, not so the reference."
        c, r = (said.get(str(v), f"'{v}'") for v in (cause.candidate, cause.reference))
        return f"The candidate takes {c}, the reference {r}."

    def fix(self, cause: Cause) -> str:
        wanted = str(cause.reference) if cause.kind == "attr" else "mean"
        torch = {"sum_of_means": "loss(out, y).mean(-1).sum() with reduction='none'",
                 "mean_of_sums": "loss(out, y).sum(-1).mean() with reduction='none'"}  # fmt: skip
        keras = {"mean": "sum_over_batch_size", "sum_of_means": "sum"}
        return write(
            cause,
            torch=torch.get(wanted, f"{own_class(cause)}(..., reduction='{wanted}')"),
            keras=f"{own_class(cause)}(reduction='{keras[wanted]}')"
            if wanted in keras
            else f"multiply the loss: {wanted} of the reference is not among Keras' reductions",
        )


@rule
class IgnoredTargets(_Loss):
    """Padded targets count on one side and are left out on the other.

    How it shows: the loss falls with the share of padding; models learn to predict the padding token.

    Why it happens: nn.CrossEntropyLoss ignores -100 unless ignore_index says otherwise; Keras ignores nothing unless
    ignore_class, a mask or sample weights say so, and 0/1 sample weights still divide by all samples.
    """

    code, name, title = "AMB325", "loss-ignored-targets", "Ignored targets differ"
    kinds, names = ("attr", "variant"), ("ignore_index", "ignored_counted")
    sample = Cause("attr", "CrossEntropy", "ignore_index", 0, None)

    def message(self, cause: Cause) -> str:
        if cause.kind == "variant":
            return "The candidate counts targets that the reference leaves out."
        c, r = (f"leaves out {number(v)}" if v is not None else "leaves out none" for v in
                (cause.candidate, cause.reference))  # fmt: skip
        return f"Of the targets the candidate {c}, the reference {r}."

    def fix(self, cause: Cause) -> str:
        value = cause.reference if cause.reference is not None else "None"
        return write(
            cause,
            torch=f"{own_class(cause)}(..., ignore_index={value if value != 'None' else -100})",
            keras=f"{own_class(cause)}(ignore_class={value})",
        )


@rule
class OtherLoss(_Loss):
    """The two sides minimise different losses.

    How it shows: another value on the same outputs and targets; how far apart depends on the data.

    Why it happens: names mislead: SmoothL1 is Huber divided by its threshold, NLL wants log-probabilities,
    categorical and sparse cross-entropy want other targets.
    """

    code, name, title = "AMB326", "loss-other", "Another loss"
    kinds = ("op", "variant")
    sample = Cause("op", "MSE", "MAE")
    weight = 35

    def title_for(self, cause: Cause) -> str:
        return f"Another loss: {cause.name or 'code of its own'} where the reference has {cause.op}"

    def message(self, cause: Cause) -> str:
        return f"The candidate computes {cause.name or 'something else'}, the reference {cause.op}."

    def fix(self, cause: Cause) -> str:
        attrs = cause.reference if isinstance(cause.reference, dict) else {}
        more = ", ".join(f"{n}={code(attrs[n])}" for n in ("delta", "beta", "gamma") if n in attrs)
        if cause.op == "SmoothL1" and cause.framework == "keras":
            beta = attrs.get("beta", 1.0)
            return f"lambda y, out: keras.losses.Huber(delta={code(beta)})(y, out) / {code(beta)}"
        return f"{cls_of(cause.op, cause.framework)}({more})"


@rule
class BroadcastLoss(_Loss):
    """Outputs of shape (N, 1) meet targets of shape (N,): each with each, N x N differences.

    How it shows: the loss hardly falls and the model predicts the mean; torch warns once.

    Why it happens: nn.MSELoss broadcasts (with a warning), Keras' loss objects squeeze; a function of one's own with a
    plain difference broadcasts in both.
    """

    code, name, title = "AMB327", "loss-broadcast", "(N, 1) against (N,): the loss compares each with each"
    kinds, names = ("attr", "variant"), ("broadcast",)
    sample = Cause("attr", "MSE", "broadcast", False, True)

    def message(self, cause: Cause) -> str:
        wrong = "reference" if cause.kind == "attr" and cause.reference else "candidate"
        return f"In the {wrong} outputs (N, 1) and targets (N,) make an N x N table of differences."

    def fix(self, cause: Cause) -> str:
        return write(cause, torch="loss(out.squeeze(-1), y), or y.unsqueeze(-1)", keras="loss(y[:, None], out)")


@rule
class LossSetting(_Loss):
    """A setting of the loss differs: its threshold, exponent, offset, sign, factor or epsilon.

    How it shows: another value on the same outputs and targets.

    Why it happens: defaults differ (Huber's delta, SmoothL1's beta, the focal loss' alpha), and hand-written losses
    carry a factor of 1/2 or an epsilon of their own.
    """

    code, name, title = "AMB328", "loss-setting", "A setting of the loss differs"
    kinds, weight = ("attr", "variant"), 36
    sample = Cause("attr", "Huber", "delta", 0.5, 1.0)

    def claims(self, cause: Cause) -> bool:
        return super().claims(cause) and bool(cause.name)

    def title_for(self, cause: Cause) -> str:
        return f"{cause.op}: {cause.name.split('_')[0] if cause.name.startswith('factor_') else cause.name} differs"

    def message(self, cause: Cause) -> str:
        if cause.kind == "variant":
            return f"The candidate computes {cause.op} in another way: {cause.name.replace('_', ' ')}."
        c, r = both(cause)
        return f"The candidate's {cause.op} has {cause.name.replace('_', ' ')} {c}, the reference's {r}."

    def fix(self, cause: Cause) -> str:
        if cause.name.startswith("factor"):
            k = cause.reference if cause.kind == "attr" else 1.0
            return f"multiply the loss so that its factor is {number(k)}"
        if cause.name in ("clamp", "epsilon") and cause.op == "BinaryCrossEntropy":
            return "take logits on both sides: the one cuts the logarithm at -100, the other the probability at 1e-7"
        return setting(cause)


@rule
class UnknownLoss(_Loss):
    """The losses differ on the same outputs and targets, and no known cause explains it.

    How it shows: both losses got the reference's outputs; their values or their gradients are further apart than
    rounding.

    Why it happens: one side computes its loss in code of its own that none of the known forms reproduces, or several
    differences lie on top of each other.
    """

    code, name, title = "AMB329", "loss-unexplained", "Loss differs and no known cause explains it"
    kinds, ops, weight = ("unknown",), ("loss",), 40
    sample = Cause("unknown", "loss", "")

    def message(self, cause: Cause) -> str:
        return "On the reference's outputs and the same targets the two losses give different values or gradients."

    def fix(self, cause: Cause) -> str:
        return "compare the two losses term by term on one sample: weights, masks, reduction, logits"
