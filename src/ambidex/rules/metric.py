"""Metrics: another formula behind the same name."""

from __future__ import annotations

from ambidex.core.rule import Cause
from ambidex.rules.recipe import UNPAIRED, ops_of, setting
from ambidex.rules.registry import rule
from ambidex.rules.words import Known, both, number, write

METRICS = ops_of("metric")


class _Metric(Known):
    stage, unpaired, weight, ops = "metric", UNPAIRED, 40, METRICS


@rule
class AucThresholds(_Metric):
    """The area under the curve is exact on one side and taken over a fixed number of thresholds on the other.

    How it shows: a few thousandths, more when most scores lie close together.

    Why it happens: keras.metrics.AUC has 200 thresholds between 0 and 1; scikit-learn's roc_auc_score uses every score.
    """

    code, name, title = "AMB360", "metric-auc-thresholds", "AUC over thresholds against exact"
    kinds, names, ops = ("attr", "variant"), ("thresholds",), ("AUC",)
    sample = Cause("attr", "AUC", "thresholds", None, 200)

    def message(self, cause: Cause) -> str:
        c, r = ("all scores" if v is None else f"{number(v)} thresholds" for v in (cause.candidate, cause.reference))
        return f"The candidate takes its area over {c}, the reference over {r}."

    def fix(self, cause: Cause) -> str:
        exact = "sklearn.metrics.roc_auc_score(y, scores) on all predictions"
        if cause.reference is None:
            return write(cause, torch=exact, keras=f"{exact}, or keras.metrics.AUC(num_thresholds=10000)")
        return write(cause, torch=f"torchmetrics' binary AUROC with thresholds={number(cause.reference)}",
                     keras=f"keras.metrics.AUC(num_thresholds={number(cause.reference)})")  # fmt: skip


@rule
class AucCurve(_Metric):
    """One side takes the area under the ROC curve, the other under precision and recall.

    How it shows: with few positives far apart: 0.9 and 0.3 are the same model.

    Why it happens: "AUC" names both; average precision is the area under the second.
    """

    code, name, title = "AMB361", "metric-auc-curve", "AUC of another curve"
    kinds, names, ops = ("attr", "variant"), ("curve",), ("AUC",)
    sample = Cause("attr", "AUC", "curve", "ROC", "PR")

    def message(self, cause: Cause) -> str:
        if cause.kind == "variant":
            return "The candidate takes the area under another curve than the reference."
        c, r = both(cause)
        return f"The candidate takes the area under the {c} curve, the reference under the {r} curve."

    def fix(self, cause: Cause) -> str:
        pr = cause.reference == "PR"
        return write(cause, torch=f"sklearn.metrics.{'average_precision_score' if pr else 'roc_auc_score'}(y, scores)",
                     keras=f"keras.metrics.AUC(curve='{'PR' if pr else 'ROC'}')")  # fmt: skip


@rule
class MetricThreshold(_Metric):
    """Scores become classes at another threshold, or logits are compared with a threshold for probabilities.

    How it shows: recall too low and precision too high: a logit of 0.5 is a probability of 0.62.

    Why it happens: BinaryAccuracy, Precision and Recall cut at 0.5 whatever the outputs are; for logits it is 0.
    """

    code, name, title = "AMB362", "metric-threshold", "Metric with another threshold"
    kinds, names = ("attr", "variant"), ("threshold", "from_logits")
    sample = Cause("attr", "Accuracy", "threshold", 0.0, 0.5)

    def message(self, cause: Cause) -> str:
        if cause.kind == "variant":
            return "The candidate cuts at another threshold than the reference."
        c, r = both(cause)
        if cause.name == "from_logits":
            kind = "logits" if cause.candidate else "probabilities"
            return f"The candidate takes the outputs for {kind}, not so the reference."
        return f"The candidate cuts at {c}, the reference at {r}."

    def fix(self, cause: Cause) -> str:
        if cause.name == "from_logits":
            return write(
                cause,
                torch="torch.sigmoid(out) before the metric",
                keras=f"from_logits={bool(cause.reference)}, or keras.ops.sigmoid before the metric",
            )
        value = number(cause.reference if cause.kind == "attr" else 0.0)
        return write(cause, torch=f"out > {value}", keras=f"the metric with threshold(s)={value}")


@rule
class OtherMetric(_Metric):
    """The two sides compute different metrics.

    How it shows: another number from the same outputs.

    Why it happens: metrics=["accuracy"] is resolved by the shapes of outputs and targets: binary, categorical or
    sparse.
    """

    code, name, title = "AMB364", "metric-other", "Another metric"
    kinds = ("op",)
    sample = Cause("op", "AUC", "Accuracy")

    def message(self, cause: Cause) -> str:
        return f"The candidate computes {cause.name or 'its own'}, the reference {cause.op}."

    def fix(self, cause: Cause) -> str:
        return f"compute {cause.op} on both sides, from the same predictions"


@rule
class MetricSetting(_Metric):
    """A setting of the metric differs.

    How it shows: another number from the same outputs.

    Why it happens: defaults differ, and "accuracy" is one of three.
    """

    code, name, title = "AMB365", "metric-setting", "A setting of the metric differs"
    kinds, weight = ("attr", "variant"), 36
    sample = Cause("attr", "TopK", "k", 5, 3)

    def claims(self, cause: Cause) -> bool:
        return super().claims(cause) and bool(cause.name)

    def message(self, cause: Cause) -> str:
        if cause.kind == "variant":
            return f"The candidate computes {cause.op} in another way: {cause.name.replace('_', ' ')}."
        c, r = both(cause)
        return f"The candidate's {cause.op} has {cause.name.replace('_', ' ')} {c}, the reference's {r}."

    def fix(self, cause: Cause) -> str:
        return setting(cause)


@rule
class UnknownMetric(Known):
    """The metrics differ on the same outputs and targets, and no known cause explains it.

    How it shows: both got the reference's outputs and give different numbers.

    Why it happens: a metric of one's own that none of the known forms reproduces; the mean of batch means against the
    mean over samples; ties counted another way.
    """

    code, name, title = "AMB369", "metric-unexplained", "Metric differs and no known cause explains it"
    stage, unpaired, weight, kinds, ops = "metric", UNPAIRED, 40, ("unknown",), ("metric",)
    sample = Cause("unknown", "metric", "")

    def message(self, cause: Cause) -> str:
        return "On the reference's outputs and the same targets the two metrics give different numbers."

    def fix(self, cause: Cause) -> str:
        return "compute both by scikit-learn on the same saved predictions"
