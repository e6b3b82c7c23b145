"""Metrics, and what some training steps end in: another start, another average of weights, another reported loss."""

from __future__ import annotations

from ambidex.core.rule import Cause
from ambidex.rules.recipe import Stage, ops_of, own_class, said, setting, sides, whole
from ambidex.rules.registry import rule
from ambidex.rules.words import both, code, number, write


class _Metric(Stage):
    stage, ops = "metric", ops_of("metric")


class _Steps(Stage):
    stage = "steps"


@rule
class AucThresholds(_Metric):
    """The area under the curve is exact on one side and taken over a fixed number of thresholds on the other.

    How it shows: a few thousandths; up to 0.08 when most scores lie close together, as those of rare events do.

    Why it happens: keras.metrics.AUC has 200 thresholds between 0 and 1; scikit-learn's roc_auc_score uses every score.
    """

    code, name, title = "AMB360", "metric-auc-thresholds", "AUC over thresholds against exact"
    kinds, names, ops = ("attr", "variant"), ("thresholds",), ("AUC",)
    sample = Cause("attr", "AUC", "thresholds", None, 200)

    def message(self, cause: Cause) -> str:
        c, r = ("all scores" if v is None else f"{number(v)} thresholds" for v in sides(cause))
        return f"The candidate takes its area over {c}, the reference over {r}."

    def fix(self, cause: Cause) -> str:
        wanted, exact = sides(cause)[1], "sklearn.metrics.roc_auc_score(y, scores) on all predictions"
        if wanted is None:
            return write(cause, torch=exact, keras=f"{exact}, or keras.metrics.AUC(num_thresholds=10000)")
        return write(cause, torch=f"torchmetrics.AUROC(task='binary', thresholds={code(wanted)})",
                     keras=f"keras.metrics.AUC(num_thresholds={code(wanted)})")  # fmt: skip


@rule
class AucCurve(_Metric):
    """One side takes the area under the ROC curve, the other under precision and recall.

    How it shows: with few positives far apart: 0.9 and 0.3 are the same model.

    Why it happens: "AUC" names both; average precision is the area under the second, by steps and not interpolated.
    """

    code, name, title = "AMB361", "metric-auc-curve", "AUC of another curve"
    kinds, names, ops = ("attr", "variant"), ("curve", "interpolation"), ("AUC",)
    sample = Cause("attr", "AUC", "curve", "ROC", "PR")

    def message(self, cause: Cause) -> str:
        c, r = (number(v) for v in sides(cause))
        return f"The candidate takes the area under the {c} curve, the reference under the {r} curve."

    def fix(self, cause: Cause) -> str:
        pr = sides(cause)[1] == "PR"
        return write(cause, torch=f"sklearn.metrics.{'average_precision_score' if pr else 'roc_auc_score'}(y, scores)",
                     keras=f"keras.metrics.AUC(curve='{'PR' if pr else 'ROC'}')")  # fmt: skip


@rule
class MetricThreshold(_Metric):
    """Scores become classes at another threshold, or logits are compared with a threshold for probabilities.

    How it shows: recall too low and precision too high: a logit of 0.5 is a probability of 0.62.

    Why it happens: BinaryAccuracy, Precision and Recall cut at 0.5 whatever the outputs are; for logits it is 0. Keras
    counts what is strictly above the threshold; round() of 0.5 is 0 as well.
    """

    code, name, title = "AMB362", "metric-threshold", "Metric with another threshold"
    kinds, names = ("attr", "variant"), ("threshold", "from_logits")
    sample = Cause("attr", "Accuracy", "threshold", 0.0, 0.5)

    def message(self, cause: Cause) -> str:
        if cause.name == "from_logits":
            c, r = ("logits" if v is True else "probabilities" for v in sides(cause))
            return f"The candidate's {said(cause.op)} takes the outputs for {c}, the reference's for {r}."
        c, r = (number(v) for v in sides(cause))
        return f"The candidate's {said(cause.op)} cuts at {c}, the reference's at {r}."

    def fix(self, cause: Cause) -> str:
        value = sides(cause)[1]
        if cause.name != "from_logits":
            cls = "keras.metrics.BinaryAccuracy" if cause.op == "Accuracy" else own_class(cause)
            argument = "thresholds" if cause.op in ("Precision", "Recall") else "threshold"
            return write(cause, torch=f"out > {code(value)}", keras=f"{cls}({argument}={code(value)})")
        keras = "keras.ops.sigmoid(out)" if value is True else "the outputs as they are, without sigmoid,"
        torch = "torch.sigmoid(out)" if value is True else "the outputs as they are, without sigmoid,"
        auc = f"keras.metrics.AUC(from_logits={value})" if cause.op == "AUC" else f"{keras} before the metric"
        return write(cause, torch=f"{torch} before the metric", keras=auc)


@rule
class AccuracyKind(_Metric):
    """Accuracy is taken of single outputs on one side and of the largest class on the other.

    How it shows: accuracies of several labels at once that are far too high or too low: 0.67 and 1.0 on the same
    outputs.

    Why it happens: metrics=["accuracy"] is resolved by the shapes of outputs and targets: (N, 1) is binary, numbers of
    classes sparse, anything like one-hot categorical, with several labels too.
    """

    code, name, title = "AMB363", "metric-accuracy-kind", "Accuracy of another kind"
    kinds, names, ops = ("attr", "variant"), ("kind",), ("Accuracy", "metric")
    sample = Cause("attr", "Accuracy", "kind", "binary", "categorical")

    def message(self, cause: Cause) -> str:
        c, r = (number(v) for v in sides(cause))
        return f"The candidate computes {c} accuracy, the reference {r} accuracy."

    def fix(self, cause: Cause) -> str:
        kind = str(sides(cause)[1])
        torch = {"binary": "((out > 0.5) == y).float().mean()", "sparse": "(out.argmax(-1) == y).float().mean()",
                 "categorical": "(out.argmax(-1) == y.argmax(-1)).float().mean()"}  # fmt: skip
        keras = {"binary": "BinaryAccuracy", "sparse": "SparseCategoricalAccuracy"}
        return write(cause, torch=torch.get(kind, f"{kind} accuracy"),
                     keras=f"metrics=[keras.metrics.{keras.get(kind, 'CategoricalAccuracy')}()]")  # fmt: skip


@rule
class OtherMetric(_Metric):
    """The two sides compute different metrics.

    How it shows: another number from the same outputs.

    Why it happens: one name stands for several formulas, and a string is looked up in a table of aliases.
    """

    code, name, title = "AMB364", "metric-other", "Another metric"
    kinds = ("op",)
    sample = Cause("op", "AUC", "Accuracy", {"curve": "ROC"}, {"kind": "sparse"})

    def message(self, cause: Cause) -> str:
        return f"The candidate computes {said(cause.name)}, the reference {said(cause.op)}."

    def fix(self, cause: Cause) -> str:
        exact = {"AUC": "roc_auc_score(y, scores)", "Precision": "precision_score(y, predicted)",
                 "Recall": "recall_score(y, predicted)", "F1": "f1_score(y, predicted)", "R2": "r2_score(y, out)",
                 "Accuracy": "accuracy_score(y, predicted)", "TopK": "top_k_accuracy_score(y, scores)",
                 "MeanSquaredError": "mean_squared_error(y, out)"}  # fmt: skip
        torch = f"sklearn.metrics.{exact.get(cause.op, f'{cause.op} of the same predictions')}"
        return write(cause, torch=torch, keras=whole(cause), other=torch)


@rule
class MetricSetting(_Metric):
    """A setting of the metric differs: k, the average over classes.

    How it shows: another number from the same outputs.

    Why it happens: defaults differ: F1Score of Keras gives one number a class unless average is given.
    """

    code, name, title = "AMB365", "metric-setting", "A setting of the metric differs"
    kinds, weight = ("attr", "variant"), 36
    sample = Cause("attr", "TopK", "k", 5, 3)

    def claims(self, cause: Cause) -> bool:
        return super().claims(cause) and bool(cause.name)

    def message(self, cause: Cause) -> str:
        c, r = (number(v) for v in sides(cause))
        return f"The candidate's {said(cause.op)} has {cause.name.replace('_', ' ')} {c}, the reference's {r}."

    def fix(self, cause: Cause) -> str:
        return setting(cause)


@rule
class MetricOfBatches(_Metric):
    """The metric is the mean over batches on one side and over samples on the other.

    How it shows: the value of an epoch differs though each batch agrees; more the shorter the last batch is.

    Why it happens: a loop adds up the batches' means and divides by their number; Keras weights by samples. Related: a
    sampler that repeats samples to fill its shards counts some twice.
    """

    code, name, title = "AMB366", "metric-of-batches", "Metric is a mean of batch means"
    kinds, names, weight = ("variant",), ("mean_of_batch_means",), 41
    sample = Cause("variant", "Accuracy", "mean_of_batch_means")

    def message(self, cause: Cause) -> str:
        return "The candidate takes the mean of the batches' values, the reference the value over all samples."

    def fix(self, cause: Cause) -> str:
        return write(cause, torch="total += value * len(y); count += len(y); at the end total / count",
                     keras="metric.update_state(y, out) for each batch and metric.result() at the end")  # fmt: skip


@rule
class UnknownMetric(_Metric):
    """The metrics differ on the same outputs and targets, and no known cause explains it.

    How it shows: both got the reference's outputs and give different numbers.

    Why it happens: a metric of one's own that none of the known forms reproduces. Known and not tried: ties (top-k of
    Keras counts them in), classes that do not occur (MeanIoU leaves them out), predictions cut at 0.5 before an area,
    sample weights (metrics ignores them, weighted_metrics does not), padding that only one side leaves out.
    """

    code, name, title = "AMB369", "metric-unexplained", "Metric differs and no known cause explains it"
    kinds, ops = ("unknown",), ("metric",)
    sample = Cause("unknown", "metric", "")

    def message(self, cause: Cause) -> str:
        return "On the reference's outputs and the same targets the two metrics give different numbers."

    def fix(self, cause: Cause) -> str:
        return "compute both by scikit-learn on the same saved predictions"


# ---------------------------------------------------------------------------------------------------------------- steps
@rule
class Initialisation(_Steps):
    """Fresh weights are drawn from another distribution.

    How it shows: nothing while weights are carried over; trained from scratch the first epoch's loss and often the last
    one differ.

    Why it happens: nn.Linear and nn.Conv2d draw from U(-1/sqrt(fan_in), 1/sqrt(fan_in)), the bias too; Keras takes
    glorot_uniform and zeros. Embeddings: N(0, 1) against U(-0.05, 0.05). LSTM: all uniform against glorot, orthogonal
    and a forget bias of 1. PReLU: 0.25 against 0. Normal initialisers of Keras are cut at two standard deviations.
    """

    code, name, title = "AMB380", "initialisation", "Fresh weights start from another distribution"
    kinds, ops = ("attr", "op", "weight", "variant"), ("Initialiser",)
    sample = Cause("attr", "Initialiser", "W", "glorot_uniform", "fan_in_uniform", candidate_path="head.weight")

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        return f"The candidate draws {cause.candidate_path or 'a fresh weight'} from {c}, the reference from {r}."

    def fix(self, cause: Cause) -> str:
        keras = "keras.initializers.VarianceScaling(scale=1/3, mode='fan_in', distribution='uniform')"
        torch = {"glorot_uniform": "nn.init.xavier_uniform_(w)", "glorot_normal": "nn.init.xavier_normal_(w)",
                 "he_uniform": "nn.init.kaiming_uniform_(w)", "he_normal": "nn.init.kaiming_normal_(w)",
                 "zeros": "nn.init.zeros_(w)", "orthogonal": "nn.init.orthogonal_(w)",
                 "fan_in_uniform": "nn.init.kaiming_uniform_(w, a=5 ** 0.5)"}  # fmt: skip
        wanted = str(cause.reference)
        return write(cause, torch=torch.get(wanted, f"nn.init as the reference has it: {wanted}"),
                     keras=keras if wanted == "fan_in_uniform" else f"kernel_initializer='{wanted}'")  # fmt: skip


@rule
class ReportedPenalty(_Steps):
    """The loss that is reported holds the penalty of the regularisers on one side and not on the other.

    How it shows: curves with an offset that shrinks with the weights; early stopping watches another number.

    Why it happens: fit and evaluate of Keras add add_loss and regulariser terms; a loop in torch prints its criterion.
    L2(l) of Keras is l * sum(w^2), without 1/2.
    """

    code, name, title = "AMB381", "steps-reported-penalty", "Reported loss holds the regularisers on one side only"
    kinds, ops = ("missing", "extra", "variant"), ("Regulariser",)
    sample = Cause("extra", "Regulariser", "reported_loss")

    def message(self, cause: Cause) -> str:
        one, other = ("reference", "candidate") if cause.kind == "missing" else ("candidate", "reference")
        return f"The {one}'s loss holds the penalties of its regularisers, the {other}'s does not."

    def fix(self, cause: Cause) -> str:
        return write(cause, torch="log criterion(out, y) and the penalty apart",
                     keras="log the loss and sum(model.losses) apart")  # fmt: skip


@rule
class UnknownSteps(_Steps):
    """Every stage agrees on its own, and some training steps together do not.

    How it shows: the losses part after the first update.

    Why it happens: state that one side carries from step to step and the other does not: running statistics of a frozen
    BatchNorm (torch goes on, Keras stops), averaged weights (Keras updates them at every batch and writes them over the
    model's at the end of fit), a loss scale that skips a step, trainable changed after compile; an order of operations;
    data that is not the same.
    """

    code, name, title = "AMB389", "steps-unexplained", "Training steps differ though every stage agrees"
    kinds, ops = ("unknown",), ("steps",)
    sample = Cause("unknown", "steps", "")

    def message(self, cause: Cause) -> str:
        return "After some training steps from the same weights the losses or the weights are not the same."

    def fix(self, cause: Cause) -> str:
        return "compare the state of both sides after one step: weights, buffers, optimizer state"
