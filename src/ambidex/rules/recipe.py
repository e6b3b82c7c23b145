"""How rules about training write settings: the argument's name in each framework, and the call that takes it."""

from __future__ import annotations

from typing import Any

from ambidex.core.rule import Cause
from ambidex.core.training_ops import FORMS
from ambidex.rules.words import code, write

#: why no pair of single layers shows such a fault
UNPAIRED = "it is no layer: it shows in a stage of training"

#: canonical name -> class (torch.optim, keras.optimizers)
OPTIMIZERS = {
    "SGD": ("torch.optim.SGD", "keras.optimizers.SGD"),
    "Adam": ("torch.optim.Adam", "keras.optimizers.Adam"),
    "Adamax": ("torch.optim.Adamax", "keras.optimizers.Adamax"),
    "Nadam": ("torch.optim.NAdam", "keras.optimizers.Nadam"),
    "Adagrad": ("torch.optim.Adagrad", "keras.optimizers.Adagrad"),
    "RMSprop": ("torch.optim.RMSprop", "keras.optimizers.RMSprop"),
    "Adadelta": ("torch.optim.Adadelta", "keras.optimizers.Adadelta"),
    "Adafactor": ("torch.optim.Adafactor", "keras.optimizers.Adafactor"),
    "Lion": ("an own torch.optim.Optimizer with Lion's formula", "keras.optimizers.Lion"),
}
LOSSES = {
    "CrossEntropy": ("nn.CrossEntropyLoss", "keras.losses.SparseCategoricalCrossentropy"),
    "BinaryCrossEntropy": ("nn.BCEWithLogitsLoss", "keras.losses.BinaryCrossentropy"),
    "FocalBinary": ("torchvision.ops.sigmoid_focal_loss", "keras.losses.BinaryFocalCrossentropy"),
    "MSE": ("nn.MSELoss", "keras.losses.MeanSquaredError"),
    "MAE": ("nn.L1Loss", "keras.losses.MeanAbsoluteError"),
    "Huber": ("nn.HuberLoss", "keras.losses.Huber"),
    "SmoothL1": ("nn.SmoothL1Loss", "keras.losses.Huber"),
    "KLDiv": ("nn.KLDivLoss", "keras.losses.KLDivergence"),
    "Poisson": ("nn.PoissonNLLLoss", "keras.losses.Poisson"),
    "LogCosh": ("lambda p, t: torch.log(torch.cosh(p - t)).mean()", "keras.losses.LogCosh"),
    "Hinge": ("lambda p, t: torch.clamp(1 - t * p, min=0).mean()", "keras.losses.Hinge"),
    "CategoricalHinge": ("nn.MultiMarginLoss", "keras.losses.CategoricalHinge"),
    "CosineLoss": ("lambda p, t: -F.cosine_similarity(p, t, dim=-1).mean()", "keras.losses.CosineSimilarity"),
}
SCHEDULES = {
    "Constant": ("no scheduler", "a plain number as learning_rate"),
    "Step": ("torch.optim.lr_scheduler.StepLR", "keras.optimizers.schedules.ExponentialDecay"),
    "MultiStep": ("torch.optim.lr_scheduler.MultiStepLR", "keras.optimizers.schedules.PiecewiseConstantDecay"),
    "Cosine": ("torch.optim.lr_scheduler.CosineAnnealingLR", "keras.optimizers.schedules.CosineDecay"),
    "CosineRestarts": ("torch.optim.lr_scheduler.CosineAnnealingWarmRestarts",
                       "keras.optimizers.schedules.CosineDecayRestarts"),
    "Polynomial": ("torch.optim.lr_scheduler.PolynomialLR", "keras.optimizers.schedules.PolynomialDecay"),
    "InverseTime": ("torch.optim.lr_scheduler.LambdaLR", "keras.optimizers.schedules.InverseTimeDecay"),
    "Linear": ("torch.optim.lr_scheduler.LinearLR", "an own LearningRateSchedule that rises in a straight line"),
}  # fmt: skip
_TABLES = {"loss": LOSSES, "optimizer": OPTIMIZERS, "schedule": SCHEDULES}
#: canonical attribute -> argument in (torch, Keras), where it is another name
_ARGUMENTS = {
    "learning_rate": ("lr", "learning_rate"),
    "epsilon": ("eps", "epsilon"),
    "rho": ("alpha", "rho"),
    "initial": ("initial_accumulator_value", "initial_accumulator_value"),
    "class_weights": ("weight", "class_weight"),
    "ignore_index": ("ignore_index", "ignore_class"),
    "steps": ("T_max", "decay_steps"),
    "gamma": ("gamma", "decay_rate"),
    "step_size": ("step_size", "decay_steps"),
}
_BETAS = {"beta_1": "(%s, ...)", "beta_2": "(..., %s)"}


def ops_of(family: str) -> tuple[str, ...]:
    """The canonical forms of one family: loss, optimizer, clip, schedule, metric."""
    return tuple(name for name, entry in FORMS.items() if entry.family == family)


def cls_of(op: str, framework: str) -> str:
    """The class that stands for a form in a framework."""
    table = _TABLES.get(FORMS[op].family if op in FORMS else "", {})
    return table.get(op, (op, op))[1 if framework == "keras" else 0] or op or "it"


def own_class(cause: Cause) -> str:
    """The candidate's class with its module, where it is one of the framework."""
    family = FORMS[cause.op].family if cause.op in FORMS else ""
    usual = cls_of(cause.op, cause.framework)
    own = cause.candidate_cls
    if not own or not own[0].isupper():
        return usual
    homes = {"loss": ("nn", "keras.losses"), "optimizer": ("torch.optim", "keras.optimizers"),
             "schedule": ("torch.optim.lr_scheduler", "keras.optimizers.schedules"),
             "metric": ("torchmetrics", "keras.metrics")}  # fmt: skip
    home = homes.get(family)
    return f"{home[1 if cause.framework == 'keras' else 0]}.{own}" if home else usual


def setting(cause: Cause, name: str = "", value: Any = None) -> str:
    """``keras.optimizers.Adam(epsilon=1e-08)``: the call with the reference's value."""
    name = name or cause.name
    given = cause.reference if value is None else value
    torch_name, keras_name = _ARGUMENTS.get(name, (name, name))
    if name in _BETAS:
        return write(cause, torch=f"{own_class(cause)}(..., betas={_BETAS[name] % code(given)})",
                     keras=f"{own_class(cause)}({name}={code(given)})")  # fmt: skip
    return write(
        cause,
        torch=f"{own_class(cause)}(..., {torch_name}={code(given)})",
        keras=f"{own_class(cause)}({keras_name}={code(given)})",
    )


def only(cause: Cause) -> str:
    """Which weights it concerns, where not all."""
    weights = cause.detail.get("weights")
    if not weights:
        return ""
    first = ", ".join(str(w) for w in weights[:3])
    return f" It concerns {len(weights)} of the weights ({first}{', ...' if len(weights) > 3 else ''})."
