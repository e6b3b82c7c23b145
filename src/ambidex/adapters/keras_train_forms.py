"""What a Keras side trains with, in canonical forms: losses, optimizers, schedules, clippings, metrics."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import keras

from ambidex.adapters.keras_composites import set_in_dict
from ambidex.adapters.keras_sources import built_at
from ambidex.adapters.keras_train_words import name_of, source_of, user
from ambidex.core.training import Form
from ambidex.core.types import Source


# -------------------------------------------------------------------------------------------------------------- losses
def _classes(c: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "from_logits": bool(c.get("from_logits", False)),
        "label_smoothing": float(c.get("label_smoothing") or 0.0),
        "ignore_index": c.get("ignore_class"),
        "axis": int(c.get("axis", -1)),
        "weights_by": "count",
        "smooth_weighted": False,
    }


def _binary(c: Mapping[str, Any]) -> dict[str, Any]:
    return {"from_logits": bool(c["from_logits"]), "label_smoothing": float(c.get("label_smoothing") or 0.0)}


_LOSSES: dict[str, Callable[[Mapping[str, Any]], tuple[str, dict[str, Any]] | None]] = {
    # the sparse one clips probabilities and makes them sum to one after that, the other one before
    "SparseCategoricalCrossentropy": lambda c: ("CrossEntropy", {**_classes(c), "renormalise": "after"}),
    "CategoricalCrossentropy": lambda c: ("CrossEntropy", _classes(c)),
    "BinaryCrossentropy": lambda c: ("BinaryCrossEntropy", _binary(c)),
    "BinaryFocalCrossentropy": lambda c: None if c.get("label_smoothing") else (
        "FocalBinary", {"from_logits": bool(c["from_logits"]), "gamma": c["gamma"], "alpha": c["alpha"],
                        "balanced": bool(c["apply_class_balancing"])},
    ),
    "MeanSquaredError": lambda c: ("MSE", {}),
    "MeanAbsoluteError": lambda c: ("MAE", {}),
    "Huber": lambda c: ("Huber", {"delta": float(c["delta"])}),
    "LogCosh": lambda c: ("LogCosh", {}),
    "Hinge": lambda c: ("Hinge", {}),
    "CategoricalHinge": lambda c: ("CategoricalHinge", {}),
    "Poisson": lambda c: ("Poisson", {"log_input": False, "epsilon": 1e-7}),
    "KLDivergence": lambda c: ("KLDiv", {"reduction": "mean_of_sums"}),
    "CosineSimilarity": lambda c: ("CosineLoss", {"axis": int(c.get("axis", -1))}),
}  # fmt: skip
#: losses whose items are single elements: Keras takes the mean over the last axis before it sums
_ELEMENTWISE = {"MSE", "MAE", "Huber", "LogCosh", "Hinge", "Poisson", "BinaryCrossEntropy", "FocalBinary"}


def loss_form(loss: Any, class_weight: Mapping[int, float] | None, weight: float = 1.0, classes: int = 0) -> Form:
    """A loss object, function or name of ``keras.losses``; "" for anything else.

    ``weight``: that of the loss among those of the model. ``classes``: size of the output's last axis, 0 if unknown.
    """
    form = Form("", cls=name_of(loss), source=source_of(loss))
    found = _as_object(loss)
    made = None
    if found is not None and type(found).__module__.startswith("keras."):
        config = _config(found)
        make = _LOSSES.get(type(found).__name__)
        made = make(config) if make is not None else None
        if made is not None:
            form.op, form.attrs = made
            _reduced(form, str(config.get("reduction", "sum_over_batch_size")))
    if form.op and class_weight:
        if form.op not in ("CrossEntropy", "BinaryCrossEntropy"):
            form.op, form.attrs = "", {}
        else:
            known = classes if form.op == "CrossEntropy" else 2
            size = max(2, known, 1 + max(int(k) for k in class_weight))
            form.attrs["class_weights"] = [float(class_weight.get(i, 1.0)) for i in range(size)]
    if form.op and weight != 1.0:
        form.attrs["factor"] = float(weight)
    return form


def _as_object(loss: Any) -> Any:
    """The loss object that compile would make of a name or function."""
    if isinstance(loss, str):
        try:
            loss = keras.losses.get(loss)
        except ValueError:
            return None
    if isinstance(loss, keras.losses.Loss):
        return loss
    camel = "".join(part.capitalize() for part in getattr(loss, "__name__", "").split("_"))
    aliases = {"Huber": "Huber", "LogCosh": "LogCosh", "KlDivergence": "KLDivergence"}
    cls = getattr(keras.losses, aliases.get(camel, camel), None)
    return cls() if cls is not None and getattr(keras.losses, loss.__name__, None) is loss else None


def _config(loss: Any) -> dict[str, Any]:
    """Its settings; those that get_config leaves out from the arguments it keeps."""
    defaults = {p.name: p.default for p in inspect.signature(type(loss).__init__).parameters.values()}
    return {**defaults, **getattr(loss, "_fn_kwargs", {}), **loss.get_config()}


def _reduced(form: Form, reduction: str) -> None:
    if reduction in ("sum_over_batch_size", "mean"):
        form.attrs.setdefault("reduction", "mean")
    elif reduction == "sum":
        form.attrs["reduction"] = "sum_of_means" if form.op in _ELEMENTWISE else "sum"
    elif reduction == "mean_with_sample_weight":
        form.attrs.setdefault("reduction", "mean")
        form.attrs["weights_by"] = "sum"
    else:
        form.op, form.attrs = "", {}


# ---------------------------------------------------------------------------------------------------------- optimizers
def _betas(c: Mapping[str, Any]) -> dict[str, Any]:
    return {"beta_1": c["beta_1"], "beta_2": c["beta_2"], "epsilon": c["epsilon"]}


def _adam(c: Mapping[str, Any]) -> dict[str, Any]:
    return {**_betas(c), "amsgrad": bool(c["amsgrad"]), "epsilon_before_correction": True}


_OPTIMIZERS: dict[str, tuple[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "SGD": ("SGD", lambda c: {"momentum": c["momentum"], "nesterov": c["nesterov"], "rate_in_buffer": True}),
    "Adam": ("Adam", _adam),
    "AdamW": ("Adam", _adam),
    "Adamax": ("Adamax", _betas),
    "Nadam": ("Nadam", lambda c: {**_betas(c), "momentum_decay": 1.0}),
    "Adagrad": ("Adagrad", lambda c: {"initial": c["initial_accumulator_value"], "epsilon": c["epsilon"],
                                      "epsilon_inside": True}),
    "RMSprop": ("RMSprop", lambda c: {"rho": c["rho"], "epsilon": c["epsilon"], "epsilon_inside": True,
                                      "momentum": c["momentum"], "centered": c["centered"], "rate_in_buffer": True}),
    "Adadelta": ("Adadelta", lambda c: {"rho": c["rho"], "epsilon": c["epsilon"]}),
    "Lion": ("Lion", lambda c: {"beta_1": c["beta_1"], "beta_2": c["beta_2"]}),
    "Adafactor": ("Adafactor", lambda c: {"beta_2_decay": c["beta_2_decay"], "epsilon_1": c["epsilon_1"],
                                          "epsilon_2": c["epsilon_2"], "clip_threshold": c["clip_threshold"],
                                          "relative_step": c["relative_step"]}),
}  # fmt: skip


def optimizer_form(optimizer: Any, model: Any, names: Mapping[int, str], source: Source | None) -> Form:
    """Class and settings in canonical words; ``names``: id of a variable -> weight name.

    An L2 regulariser is decay that is coupled to the gradient: 2 * l2 * w is added to it.
    """
    cls = type(optimizer).__name__
    form = Form("", cls=cls, source=source or built_at(optimizer))
    if not type(optimizer).__module__.startswith("keras.") or cls not in _OPTIMIZERS:
        return form
    config = optimizer_config(optimizer)
    form.op, make = _OPTIMIZERS[cls]
    decay = float(config.get("weight_decay") or 0.0)
    form.attrs = {"learning_rate": first_rate(optimizer), "weight_decay": decay, "decoupled": True, **make(config)}
    trained = {id(v) for v in model.trainable_variables}
    penalties = _penalties(model)
    if None in penalties.values() or (decay and penalties):
        form.op, form.attrs = "", {}
        return form
    for number, name in names.items():
        if number not in trained:
            form.by_weight[name] = {"frozen": True}
        elif penalties.get(number):
            form.by_weight[name] = {"weight_decay": 2 * float(penalties[number] or 0.0), "decoupled": False}
        elif decay and not _decays(optimizer, model, number):
            form.by_weight[name] = {"weight_decay": 0.0}
    return form


def optimizer_config(optimizer: Any) -> dict[str, Any]:
    """Its settings, the learning rate as it is: schedules and functions of the user's own cannot be written down."""
    rate = optimizer._learning_rate
    if isinstance(rate, keras.Variable) or not callable(rate):
        return dict(optimizer.get_config())
    with set_in_dict(optimizer, "_learning_rate", None):
        config = dict(optimizer.get_config())
    return config | {"learning_rate": rate}


def _decays(optimizer: Any, model: Any, number: int) -> bool:
    variable = next(v for v in model.trainable_variables if id(v) == number)
    return bool(optimizer._use_weight_decay(variable))


def _penalties(model: Any) -> dict[int, float | None]:
    """id of a variable -> factor of its L2 penalty; None for a penalty of another kind."""
    found: dict[int, float | None] = {}
    for variable in model.trainable_variables:
        regularizer = getattr(variable, "regularizer", None)
        if regularizer is None:
            continue
        l2 = getattr(regularizer, "l2", None)
        plain = type(regularizer).__name__ in ("L2", "L1L2") and not float(getattr(regularizer, "l1", 0.0) or 0.0)
        found[id(variable)] = float(l2) if plain and l2 is not None else None
    return found


# ----------------------------------------------------------------------------------------- clippings, rates and metrics
def clip_form(optimizer: Any, source: Source | None) -> Form | None:
    """The clipping that is an option of the optimizer."""
    for name, op, attrs in (
        ("clipvalue", "ClipValue", {}),
        ("clipnorm", "ClipNorm", {"scope": "weight", "epsilon": 0.0}),
        ("global_clipnorm", "ClipNorm", {"scope": "global", "epsilon": 0.0}),
    ):
        value = getattr(optimizer, name, None)
        if value is not None:
            limit = {"value" if op == "ClipValue" else "max_norm": float(value)}
            return Form(op, {**limit, **attrs}, cls=name, source=source)
    return None


_SCHEDULES: dict[str, Callable[[Mapping[str, Any]], tuple[float, str, dict[str, Any]]]] = {
    "ExponentialDecay": lambda c: (c["initial_learning_rate"], "Step", {
        "step_size": c["decay_steps"], "gamma": c["decay_rate"], "staircase": bool(c["staircase"])}),
    "PiecewiseConstantDecay": lambda c: (c["values"][0], "MultiStep", {
        "boundaries": [b + 1 for b in c["boundaries"]], "factors": [v / c["values"][0] for v in c["values"]]}),
    "CosineDecay": lambda c: _cosine(c),
    "CosineDecayRestarts": lambda c: (c["initial_learning_rate"], "CosineRestarts", {
        "steps": c["first_decay_steps"], "t_mul": c["t_mul"], "m_mul": c["m_mul"], "alpha": c["alpha"]}),
    "PolynomialDecay": lambda c: (c["initial_learning_rate"], "Polynomial", {
        "steps": c["decay_steps"], "power": c["power"], "end": c["end_learning_rate"] / c["initial_learning_rate"],
        "cycle": bool(c["cycle"])}),
    "InverseTimeDecay": lambda c: (c["initial_learning_rate"], "InverseTime", {
        "steps": c["decay_steps"], "rate": c["decay_rate"], "staircase": bool(c["staircase"])}),
}  # fmt: skip


def _cosine(c: Mapping[str, Any]) -> tuple[float, str, dict[str, Any]]:
    base, attrs = c["initial_learning_rate"], {"steps": c["decay_steps"], "alpha": c["alpha"]}
    if c.get("warmup_target") is not None and c.get("warmup_steps"):
        first, base = base, c["warmup_target"]
        attrs |= {"warmup_steps": c["warmup_steps"], "warmup_from": first / base if base else 0.0}
    return base, "Cosine", attrs


def rate_and_schedule(optimizer: Any) -> tuple[float | None, tuple[str, dict[str, Any], str] | None]:
    """The rate that an optimizer starts from, and its schedule as (op, attributes, class) where it has one."""
    rate = optimizer._learning_rate
    if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
        cls = type(rate).__name__
        if cls in _SCHEDULES and type(rate).__module__.startswith("keras."):
            base, op, attrs = _SCHEDULES[cls](rate.get_config())
            return float(base), (op, attrs, cls)
        return None, ("", {}, cls)
    if isinstance(rate, keras.Variable) or not callable(rate):
        return float(rate), None
    return None, ("", {}, name_of(rate))


def rate_at(optimizer: Any, step: int) -> float:
    """The learning rate when the optimizer's counter stands at ``step``; a plain function is not told."""
    rate = optimizer._learning_rate
    if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
        return float(user("the schedule", rate, keras.ops.convert_to_tensor(step, "int32")))
    return float(user("learning_rate", rate) if callable(rate) and not isinstance(rate, keras.Variable) else rate)


def first_rate(optimizer: Any) -> float:
    """The rate that everything starts from: with a warm-up the one that it leads to."""
    base, _ = rate_and_schedule(optimizer)
    return base if base is not None else _peak(lambda step: rate_at(optimizer, step))


def _peak(rate: Callable[[int], float]) -> float:
    """The largest rate of a schedule that has no formula here: it rises to it, if at all, and falls from there."""
    steps = sorted({0, *(int(1.5**k) for k in range(32))})  # to 287,000 steps
    rates = [r if math.isfinite(r) else 0.0 for r in map(rate, steps)]
    top = max(range(len(steps)), key=lambda i: rates[i])
    low, high = steps[max(0, top - 1)], steps[min(len(steps) - 1, top + 1)]
    while high - low > 2:  # the top lies between the neighbours of the largest
        middle = (low + high) // 2
        low, high = (middle, high) if rate(middle) < rate(middle + 1) else (low, middle + 1)
    return max(rates[top], *(rate(s) for s in range(low, high + 1)))


def metric_form(metric: Any) -> Form:
    """A metric object of Keras in canonical words; "" for anything else."""
    form = Form("", cls=name_of(metric), source=source_of(metric))
    cls = type(metric).__name__
    if not type(metric).__module__.startswith("keras."):
        return form
    simple = {"MeanSquaredError", "MeanAbsoluteError", "RootMeanSquaredError"}
    kinds = {"BinaryAccuracy": "binary", "SparseCategoricalAccuracy": "sparse", "CategoricalAccuracy": "categorical"}
    if cls == "AUC":
        even = not metric._init_from_thresholds  # thresholds of the user's own are not spaced evenly
        if metric.summation_method.value == "interpolation" and not metric.multi_label and even:
            form.op = "AUC"
            form.attrs = {"curve": metric.curve.value, "thresholds": metric.num_thresholds,
                          "from_logits": bool(metric._from_logits)}  # fmt: skip
    elif cls in kinds:
        form.op, form.attrs = "Accuracy", {"kind": kinds[cls]}
        if cls == "BinaryAccuracy":
            form.attrs["threshold"] = float(metric.get_config().get("threshold", 0.5))
    elif cls in simple:
        form.op = cls
    elif cls in ("Precision", "Recall"):
        if len(metric.thresholds) == 1 and metric.class_id is None and metric.top_k is None:
            form.op, form.attrs = cls, {"threshold": float(metric.thresholds[0])}
    elif cls in ("TopKCategoricalAccuracy", "SparseTopKCategoricalAccuracy"):
        form.op, form.attrs = "TopK", {"k": int(metric.get_config().get("k", 5))}
    return form
