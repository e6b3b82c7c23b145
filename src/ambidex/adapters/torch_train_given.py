"""What a user hands over for the torch side, read: fresh optimizers with their schedulers, metrics with state."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ambidex.adapters.torch_train_words import user, wanted
from ambidex.errors import InputError, RunError, UnsupportedError

_KNOWN = ("loss", "optimizer", "scheduler", "clip", "accumulate", "divide", "metric")
#: how each part is given where an object is not enough
_HOW = {
    "optimizer": "lambda parameters: torch.optim.Adam(parameters, lr=1e-3)",
    "scheduler": "lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 10)",
    "clip": "lambda parameters: torch.nn.utils.clip_grad_norm_(parameters, 1.0)",
    "loss": "torch.nn.CrossEntropyLoss(), or lambda outputs, targets: ...",
    "metric": "lambda outputs, targets: ...",
}


def checked(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The user's dictionary, without what is None. Raises InputError for what cannot be used."""
    unknown = [n for n in given or {} if n not in _KNOWN]
    if unknown:
        raise InputError(
            f"the torch side does not know {unknown[0]!r}", todo=f"It takes {', '.join(_KNOWN)}, all of them optional"
        )
    words = {n: v for n, v in (given or {}).items() if v is not None}
    for name, how in _HOW.items():
        value = words.get(name)
        if value is None or callable(value) or (name == "optimizer" and isinstance(value, torch.optim.Optimizer)):
            continue
        raise InputError(f"{name} of the torch side is no function: {type(value).__name__}", todo=f"Give {how}")
    loss = words.get("loss")
    if isinstance(loss, type) and issubclass(loss, nn.Module):
        raise InputError(f"loss of the torch side is the class {loss.__name__}", todo=f"Give {loss.__name__}()")
    if "scheduler" in words and "optimizer" not in words:
        raise InputError("the torch side has a scheduler and no optimizer", todo="Give both")
    accumulate = words.get("accumulate", 1)
    if not isinstance(accumulate, int) or isinstance(accumulate, bool) or accumulate < 1:
        raise InputError(f"accumulate of the torch side is {accumulate!r}", todo="Give a whole number from 1")
    return words


class Updates:
    """Makes fresh optimizers and schedulers as the user does."""

    def __init__(self, words: Mapping[str, Any], module: nn.Module) -> None:
        self.words, self.module = words, module

    def fresh(self) -> tuple[torch.optim.Optimizer, Any]:
        """A new optimizer on the module's parameters, and its scheduler if the side has one."""
        given = self.words["optimizer"]
        if isinstance(given, torch.optim.Optimizer):
            made: Any = user("optimizer", type(given), [_unused(g) for g in given.param_groups])
        else:
            made = user("optimizer", given, wanted(given, self.module))
        if not isinstance(made, torch.optim.Optimizer):
            raise InputError(
                f"optimizer of the torch side returned {type(made).__name__}",
                todo=f"Let it return a torch.optim.Optimizer: {_HOW['optimizer']}",
            )
        if isinstance(made, torch.optim.LBFGS):
            raise UnsupportedError("the torch side's optimizer LBFGS needs the loss again in each update")
        own = {id(p) for p in self.module.parameters()}
        if own and not any(id(p) in own for g in made.param_groups for p in g["params"]):
            raise InputError(
                "the torch side's optimizer holds no parameter of the model that is compared",
                "it was made for another object of the class",
                f"Make it from the parameters that it is given: {_HOW['optimizer']}",
            )
        scheduler = self.words.get("scheduler")
        if scheduler is None:
            return made, None
        schedule = user("scheduler", scheduler, made)
        if not callable(getattr(schedule, "step", None)):
            raise InputError(
                f"scheduler of the torch side returned {type(schedule).__name__}",
                todo=f"Let it return a scheduler: {_HOW['scheduler']}",
            )
        return made, schedule

    @staticmethod
    def advance(scheduler: Any) -> None:
        """The scheduler after an update."""
        if scheduler is None:
            return
        if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            raise UnsupportedError("a scheduler that waits for the metric (ReduceLROnPlateau) is not compared by steps")
        user("step of the scheduler", scheduler.step)


def _unused(group: Mapping[str, Any]) -> dict[str, Any]:
    """A group of parameters as it was before any scheduler changed its learning rate."""
    made = dict(group)
    if "initial_lr" in made:
        made["lr"] = made.pop("initial_lr")
    return made


def fresh_metric(metric: Any) -> Any:
    """A metric that gathers values (as torchmetrics' do) empty and apart from the user's; any other as it is."""
    if not (callable(getattr(metric, "update", None)) and callable(getattr(metric, "reset", None))):
        return metric
    try:
        metric = copy.deepcopy(metric)
    except Exception as e:
        raise RunError("metric of the torch side cannot be copied", str(e)) from e
    metric.reset()
    return metric
