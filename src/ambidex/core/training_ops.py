"""The canonical forms of what a model is trained with: losses, optimizers, clippings, schedules, metrics.

Formulas in float64 stand in ``ambidex.engine.stages``; ``docs/canonical.md`` says what each attribute means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ambidex.core.optable import OpSpec

FORMS: dict[str, OpSpec] = {}

#: attribute -> those without which it changes nothing ("!name": unless it holds; "?name": where it is set,
#: though it may be 0)
_NEEDS = {
    "weights_by": ("class_weights",),
    "smooth_weighted": ("class_weights", "label_smoothing"),
    "decoupled": ("weight_decay",),
    "rate_in_buffer": ("momentum",),
    "nesterov": ("momentum",),
    "dampening": ("momentum",),
    "warmup_from": ("warmup_steps",),
    "renormalise": ("!from_logits", "!log_input"),
    "clamp": ("!from_logits",),
    "epsilon_added": ("!from_logits", "!log_input"),
    "sums_to_one": ("from_logits",),
    "count_ignored": ("?ignore_index",),
    "log_input": ("!from_logits",),
    "alpha": ("balanced",),
}


def inert(op: str, attrs: Mapping[str, Any]) -> set[str]:
    """The attributes of a form that change nothing, as the others stand: decay that couples to no decay."""
    entry = FORMS.get(op)
    full = {**(entry.attrs if entry else {}), **attrs}

    def holds(need: str) -> bool:
        if need.startswith("!"):
            return need[1:] not in full or not full[need[1:]]
        if need.startswith("?"):
            return full.get(need[1:]) is not None
        return need not in full or bool(full[need])

    return {n for n in full if n in _NEEDS and not all(holds(need) for need in _NEEDS[n])}


def _add(names: str, family: str, *, ignored: str = "", **attrs: Any) -> None:
    for name in names.split():
        FORMS[name] = OpSpec(name, family, attrs=attrs, ignored=frozenset(ignored.split()))


# fmt: off
_add("CrossEntropy", "loss", from_logits=True, softmax_twice=False, log_input=False, renormalise="before", epsilon=1e-7,
     epsilon_added=False, label_smoothing=0.0, ignore_index=None, count_ignored=False, class_weights=None,
     weights_by="sum", smooth_weighted=True, sums_to_one=False, axis=-1, reduction="mean", factor=1.0)
_add("BinaryCrossEntropy", "loss", from_logits=True, softmax_twice=False, epsilon=1e-7, epsilon_added=False, clamp=None,
     label_smoothing=0.0, pos_weight=None, class_weights=None, weights_by="count", reduction="mean", factor=1.0)
_add("FocalBinary", "loss", from_logits=True, epsilon=1e-7, gamma=2.0, alpha=0.25, balanced=False, reduction="mean",
     factor=1.0)
_add("MSE MAE LogCosh Hinge", "loss", broadcast=False, reduction="mean", factor=1.0)
_add("Huber", "loss", delta=1.0, broadcast=False, reduction="mean", factor=1.0)
_add("SmoothL1", "loss", beta=1.0, broadcast=False, reduction="mean", factor=1.0)
_add("Poisson", "loss", log_input=False, epsilon=1e-7, broadcast=False, reduction="mean", factor=1.0)
_add("KLDiv", "loss", from_logs=False, log_target=False, epsilon=1e-7, reduction="mean_of_sums", factor=1.0)
_add("CosineLoss", "loss", sign=-1.0, offset=0.0, axis=-1, reduction="mean", factor=1.0)
_add("CategoricalHinge", "loss", zero_for_right=True, reduction="mean", factor=1.0)

_DECAY: dict[str, Any] = {"weight_decay": 0.0, "decoupled": False}
_add("SGD", "optimizer", learning_rate=None, momentum=0.0, nesterov=False, dampening=0.0, rate_in_buffer=False,
     **_DECAY)
_add("Adam", "optimizer", learning_rate=None, beta_1=0.9, beta_2=0.999, epsilon=1e-8, epsilon_before_correction=False,
     amsgrad=False, bias_correction=True, **_DECAY)
_add("Adamax", "optimizer", learning_rate=None, beta_1=0.9, beta_2=0.999, epsilon=1e-8, epsilon_in_max=False, **_DECAY)
_add("Nadam", "optimizer", learning_rate=None, beta_1=0.9, beta_2=0.999, epsilon=1e-8, momentum_decay=0.004, **_DECAY)
_add("Adagrad", "optimizer", learning_rate=None, initial=0.0, epsilon=1e-10, epsilon_inside=False, rate_decay=0.0,
     **_DECAY)
_add("RMSprop", "optimizer", learning_rate=None, rho=0.99, epsilon=1e-8, epsilon_inside=False, momentum=0.0,
     centered=False, rate_in_buffer=False, **_DECAY)
_add("Adadelta", "optimizer", learning_rate=None, rho=0.9, epsilon=1e-6, **_DECAY)
# Keras' relative_step changes nothing: the step is cut at 1 / sqrt(t) with and without it, as in torch. The order of
# measuring a weight and decaying it (size_before_decay) is the framework's and no setting.
_add("Adafactor", "optimizer", ignored="relative_step size_before_decay", learning_rate=None, beta_2_decay=-0.8,
     epsilon_1=1e-30, epsilon_in_max=False, epsilon_2=1e-3, clip_threshold=1.0, **_DECAY)
_add("Lion", "optimizer", learning_rate=None, beta_1=0.9, beta_2=0.99, **_DECAY)

_add("ClipValue", "clip", value=None)
_add("ClipNorm", "clip", max_norm=None, scope="global", epsilon=0.0)

#: a schedule's index at the k-th update is floor(k * stride) + offset: on micro-steps, by epoch, one late
_INDEX: dict[str, Any] = {"stride": 1.0, "offset": 0}
_add("Constant", "schedule", factor=1.0)
_add("Step", "schedule", step_size=None, gamma=0.1, staircase=True, **_INDEX)
_add("MultiStep", "schedule", boundaries=None, factors=None, **_INDEX)
_add("Cosine", "schedule", steps=None, alpha=0.0, warmup_steps=0, warmup_from=0.0, periodic=False, **_INDEX)
_add("CosineRestarts", "schedule", steps=None, t_mul=1.0, m_mul=1.0, alpha=0.0, **_INDEX)
_add("Polynomial", "schedule", steps=None, power=1.0, end=0.0, cycle=False, **_INDEX)
_add("InverseTime", "schedule", steps=1, rate=None, staircase=False, **_INDEX)
_add("Linear", "schedule", start=1 / 3, end=1.0, steps=5, **_INDEX)

_add("AUC", "metric", curve="ROC", thresholds=None, from_logits=False, interpolation="trapezoid")
_add("Accuracy", "metric", kind="sparse", threshold=0.5, from_logits=False)
_add("TopK", "metric", k=5)
_add("MeanSquaredError MeanAbsoluteError RootMeanSquaredError", "metric")
_add("Precision Recall", "metric", threshold=0.5, from_logits=False)
_add("F1", "metric", threshold=0.5, from_logits=False, average="binary")
_add("R2", "metric")
# fmt: on
