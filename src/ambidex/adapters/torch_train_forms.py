"""What a torch side trains with, in canonical forms: losses, optimizers, schedulers, metrics."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import lr_scheduler as sched

from ambidex.adapters.torch_train_words import name_of, source_of
from ambidex.core.training import Form
from ambidex.core.types import Source


# -------------------------------------------------------------------------------------------------------------- losses
def _weights(value: torch.Tensor | None) -> list[float] | None:
    return None if value is None else [float(x) for x in value.detach().double().reshape(-1)]


def _pos(value: torch.Tensor | None) -> float | list[float] | None:
    found = _weights(value)
    return found[0] if found is not None and len(found) == 1 else found


def _elementwise(**more: Any) -> dict[str, Any]:
    return {"broadcast": True, **more}


#: what both the module and the function of a loss are called with -> canonical name and attributes
_LOSSES: dict[str, Callable[[Mapping[str, Any]], tuple[str, dict[str, Any]] | None]] = {
    "cross_entropy": lambda p: (
        "CrossEntropy",
        {"class_weights": _weights(p["weight"]), "label_smoothing": p["label_smoothing"],
         "ignore_index": p["ignore_index"], "axis": 1, "weights_by": "sum"},
    ),
    "nll_loss": lambda p: (
        "CrossEntropy",
        {"from_logits": False, "log_input": True, "class_weights": _weights(p["weight"]), "axis": 1,
         "ignore_index": p["ignore_index"], "weights_by": "sum"},
    ),
    "binary_cross_entropy_with_logits": lambda p: None if p["weight"] is not None else (
        "BinaryCrossEntropy", {"pos_weight": _pos(p["pos_weight"])},
    ),
    "binary_cross_entropy": lambda p: None if p["weight"] is not None else (
        "BinaryCrossEntropy", {"from_logits": False, "epsilon": 0.0, "clamp": -100.0},
    ),
    "multilabel_soft_margin_loss": lambda p: None if p["weight"] is not None else ("BinaryCrossEntropy", {}),
    "mse_loss": lambda p: ("MSE", _elementwise()) if p.get("weight") is None else None,
    "l1_loss": lambda p: ("MAE", _elementwise()) if p.get("weight") is None else None,
    "huber_loss": lambda p: ("Huber", _elementwise(delta=p["delta"])) if p.get("weight") is None else None,
    "smooth_l1_loss": lambda p: ("SmoothL1", _elementwise(beta=p["beta"])),
    "kl_div": lambda p: ("KLDiv", {"from_logs": True, "log_target": p["log_target"]}),
    "poisson_nll_loss": lambda p: None if p["full"] else (
        "Poisson", _elementwise(log_input=p["log_input"], epsilon=p["eps"]),
    ),
}  # fmt: skip
_MODULES = {
    nn.CrossEntropyLoss: "cross_entropy", nn.NLLLoss: "nll_loss", nn.BCELoss: "binary_cross_entropy",
    nn.BCEWithLogitsLoss: "binary_cross_entropy_with_logits", nn.MSELoss: "mse_loss", nn.L1Loss: "l1_loss",
    nn.HuberLoss: "huber_loss", nn.SmoothL1Loss: "smooth_l1_loss", nn.KLDivLoss: "kl_div",
    nn.PoissonNLLLoss: "poisson_nll_loss", nn.MultiLabelSoftMarginLoss: "multilabel_soft_margin_loss",
}  # fmt: skip


def loss_form(loss: Any) -> Form:
    """A loss module, a function of ``torch.nn.functional``, or a partial of one; "" for anything else."""
    form = Form("", cls=name_of(loss), source=source_of(loss))
    if type(loss) in _MODULES:
        name = _MODULES[type(loss)]
        given = {n: getattr(loss, n, None) for n in _parameters(name)}
    else:
        keywords: dict[str, Any] = {}
        inner = loss
        while isinstance(inner, functools.partial):
            if inner.args:
                return form
            keywords = {**inner.keywords, **keywords}
            inner = inner.func
        name = getattr(inner, "__name__", "")
        if getattr(torch.nn.functional, name, None) is not inner or name not in _LOSSES:
            return form
        given = {**_parameters(name), **keywords}
    made = _LOSSES[name](given)
    if made is None:
        return form
    form.op, form.attrs = made
    reduction = given.get("reduction", "mean")
    if given.get("size_average") is not None or given.get("reduce") is not None:  # as it was said before torch 1.0
        reduction = torch.nn._reduction.legacy_get_string(given.get("size_average"), given.get("reduce"), False)
    if name == "multilabel_soft_margin_loss" and reduction == "sum":  # over the samples; the labels are averaged
        reduction = "sum_of_means"
    form.attrs["reduction"] = reduction
    return form


def _parameters(name: str) -> dict[str, Any]:
    """The function's keywords with their defaults."""
    listed = inspect.signature(getattr(torch.nn.functional, name)).parameters.values()
    return {p.name: p.default for p in listed if p.default is not p.empty}


# ---------------------------------------------------------------------------------------------------------- optimizers
def _adafactor_epsilon(group: Mapping[str, Any]) -> float:
    first = group["eps"][0]
    if first is not None:
        return float(first)
    return float(torch.finfo(group["params"][0].dtype).eps)


_OPTIMIZERS: dict[str, tuple[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "SGD": ("SGD", lambda g: {"momentum": g["momentum"], "nesterov": g["nesterov"], "dampening": g["dampening"]}),
    "Adam": ("Adam", lambda g: {**_betas(g), "amsgrad": g["amsgrad"],
                                "decoupled": bool(g.get("decoupled_weight_decay", False))}),
    "AdamW": ("Adam", lambda g: {**_betas(g), "amsgrad": g["amsgrad"], "decoupled": True}),
    "Adamax": ("Adamax", lambda g: {**_betas(g), "epsilon_in_max": True}),
    "NAdam": ("Nadam", lambda g: {**_betas(g), "momentum_decay": g["momentum_decay"],
                                  "decoupled": bool(g.get("decoupled_weight_decay", False))}),
    "Adagrad": ("Adagrad", lambda g: {"initial": g["initial_accumulator_value"], "epsilon": g["eps"],
                                      "rate_decay": g["lr_decay"]}),
    "RMSprop": ("RMSprop", lambda g: {"rho": g["alpha"], "epsilon": g["eps"], "momentum": g["momentum"],
                                      "centered": g["centered"]}),
    "Adadelta": ("Adadelta", lambda g: {"rho": g["rho"], "epsilon": g["eps"]}),
    "Adafactor": ("Adafactor", lambda g: {"beta_2_decay": g["beta2_decay"], "epsilon_1": _adafactor_epsilon(g),
                                          "epsilon_2": g["eps"][1], "clip_threshold": g["d"], "decoupled": True}),
}  # fmt: skip


def _betas(group: Mapping[str, Any]) -> dict[str, Any]:
    return {"beta_1": group["betas"][0], "beta_2": group["betas"][1], "epsilon": group["eps"]}


def optimizer_form(optimizer: torch.optim.Optimizer, module: nn.Module, source: Source | None) -> Form:
    """Class and groups in canonical words. Frozen are parameters in no group, and those that ask for no gradient."""
    names = {id(p): n for n, p in module.named_parameters()}
    cls = type(optimizer)
    form = Form("", cls=cls.__name__, source=source)
    known = _OPTIMIZERS.get(cls.__name__) if cls.__module__.startswith("torch.optim") else None
    if known is None or any(g.get("maximize") for g in optimizer.param_groups):
        return form
    form.op = known[0]
    made = [
        {"learning_rate": float(g.get("initial_lr", g["lr"])), "weight_decay": float(g.get("weight_decay", 0.0)),
         **known[1](g)}
        for g in optimizer.param_groups
    ]  # fmt: skip
    form.attrs = made[0]
    for group, attrs in zip(optimizer.param_groups[1:], made[1:], strict=True):
        own = {n: v for n, v in attrs.items() if v != form.attrs.get(n)}
        for p in group["params"]:
            if own and id(p) in names:
                form.by_weight[names[id(p)]] = own
    held = {id(p) for g in optimizer.param_groups for p in g["params"]}
    form.by_weight |= {n: {"frozen": True} for n, p in module.named_parameters()
                       if id(p) not in held or not p.requires_grad}  # fmt: skip
    return form


# ---------------------------------------------------------------------------------------------------------- schedulers
def schedule_form(scheduler: Any, source: Source | None) -> Form:
    """A scheduler of ``torch.optim.lr_scheduler`` in canonical words; "" for what has no formula here."""
    form = Form("", cls=type(scheduler).__name__, source=source)
    base = float((getattr(scheduler, "base_lrs", None) or [0.0])[0])
    made: tuple[str, dict[str, Any]] | None = None
    cls = type(scheduler)  # a class of the user's own may compute anything
    if cls is sched.SequentialLR:
        made = _sequence(scheduler)
    elif cls is sched.StepLR:
        made = "Step", {"step_size": scheduler.step_size, "gamma": scheduler.gamma}
    elif cls is sched.MultiStepLR:
        steps = sorted(scheduler.milestones.elements())
        made = "MultiStep", {"boundaries": steps, "factors": [scheduler.gamma**k for k in range(len(steps) + 1)]}
    elif cls is sched.ExponentialLR:
        made = "Step", {"step_size": 1, "gamma": scheduler.gamma, "staircase": False}
    elif cls is sched.ConstantLR:
        made = "MultiStep", {"boundaries": [scheduler.total_iters], "factors": [scheduler.factor, 1.0]}
    elif cls is sched.LinearLR:
        made = "Linear", {"start": scheduler.start_factor, "end": scheduler.end_factor, "steps": scheduler.total_iters}
    elif cls is sched.CosineAnnealingWarmRestarts:
        made = "CosineRestarts", {"steps": scheduler.T_0, "t_mul": scheduler.T_mult, "alpha": _share(scheduler, base)}
    elif cls is sched.CosineAnnealingLR:
        made = "Cosine", {"steps": scheduler.T_max, "alpha": _share(scheduler, base), "periodic": True}
    elif cls is sched.PolynomialLR:
        made = "Polynomial", {"steps": scheduler.total_iters, "power": scheduler.power}
    if made is not None:
        form.op, form.attrs = made
    return form


def _share(scheduler: Any, base: float) -> float:
    return float(scheduler.eta_min) / base if base else 0.0


def _sequence(scheduler: sched.SequentialLR) -> tuple[str, dict[str, Any]] | None:
    """A linear warm-up and then a cosine; nothing else has a formula."""
    parts, at = scheduler._schedulers, scheduler._milestones
    if len(parts) != 2 or not isinstance(parts[0], sched.LinearLR) or not isinstance(parts[1], sched.CosineAnnealingLR):
        return None
    warm, cosine = parts
    if warm.total_iters != at[0] or warm.end_factor != 1.0:
        return None
    base = float(cosine.base_lrs[0])
    return "Cosine", {
        "steps": cosine.T_max,
        "alpha": _share(cosine, base),
        "periodic": True,
        "warmup_steps": at[0],
        "warmup_from": warm.start_factor,
    }


# ------------------------------------------------------------------------------------------------------------- metrics
#: functions of scikit-learn; what a function of the user's own computes shows in its values
_METRICS: dict[str, dict[str, Any]] = {
    "roc_auc_score": {"curve": "ROC", "thresholds": None},
    "average_precision_score": {"curve": "PR", "thresholds": None},
}


def metric_form(metric: Any) -> Form:
    form = Form("", cls=name_of(metric), source=source_of(metric))
    if form.cls in _METRICS and str(getattr(metric, "__module__", "")).startswith("sklearn"):
        form.op, form.attrs = "AUC", dict(_METRICS[form.cls])
    return form
