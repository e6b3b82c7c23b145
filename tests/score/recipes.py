"""What the pairs of the training zoo are trained with: right on both sides, and wrong in every way that has a rule.

A recipe changes the parts of one or both sides; everything is made anew for each pair.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import torch
from keras import ops
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler as sched

Part = Callable[[], Any]
Parts = dict[str, Part]
T, K, S, L = torch.optim, keras.optimizers, keras.optimizers.schedules, keras.losses
WEIGHTS = [0.5, 2.0, 1.0, 3.0, 0.25]
RATE = 2.0**-4
TINY = 1e-30


@dataclass(frozen=True)
class Recipe:
    """``head`` is the model (classes, binary, real, sequence); ``codes`` the rules one of which must speak, at the
    ``stage`` that is then the first to differ. ``turns`` are faults of the Keras model's own code."""

    head: str
    torch: Parts
    keras: Parts
    codes: tuple[str, ...] = ()
    stage: str = ""
    where: str = ""
    turns: frozenset[str] = frozenset()
    torch_turns: frozenset[str] = frozenset()


def r(head: str, torch: Parts, keras: Parts, codes: str = "", stage: str = "", where: str = "", turns: str = "",
      torch_turns: str = "") -> Recipe:  # fmt: skip
    where = where or {"update": "optimizer", "gradient": "."}.get(stage, stage)
    return Recipe(head, torch, keras, tuple(codes.split()), stage, where, frozenset(turns.split()),
                  frozenset(torch_turns.split()))  # fmt: skip


def _weights() -> torch.Tensor:
    return torch.tensor(WEIGHTS)


def _ce(**more: Any) -> Any:
    return L.SparseCategoricalCrossentropy(from_logits=True, **more)


def _one_hot(**more: Any) -> Callable[[Any, Any], Any]:
    """Categorical cross-entropy on class numbers, as a function of one's own: to smooth, for instance."""
    loss = L.CategoricalCrossentropy(from_logits=True, **more)
    return lambda y, out: loss(ops.one_hot(y, out.shape[-1]), out)


def _sgd(rate: Any = RATE, **more: Any) -> Callable[[Any], Any]:
    return lambda p: T.SGD(p, rate, **more)


def _adam(cls: Any = T.Adam, **more: Any) -> Callable[[Any], Any]:
    return lambda p: cls(p, **{"lr": RATE, "eps": TINY, **more})


def _auc(out: torch.Tensor, y: torch.Tensor) -> float:
    """Exact, by counting pairs."""
    scores, positive = out.reshape(-1), y.reshape(-1) > 0.5
    a, b = scores[positive][:, None], scores[~positive][None, :]
    return float(((a > b).float() + 0.5 * (a == b).float()).mean())


def _each(p: Any) -> None:
    for one in p:
        nn.utils.clip_grad_norm_([one], 0.05)


@keras.saving.register_keras_serializable("score")
class EveryFourth(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule that moves on with every fourth update, as if by epoch."""

    def __call__(self, step: Any) -> Any:
        return RATE * 0.5 ** ops.cast(step // 4, "float32")

    def get_config(self) -> dict[str, Any]:
        return {}


def _grouped(p: list[nn.Parameter]) -> Any:
    plain = [q for q in p if q.ndim == 1]
    return T.AdamW([{"params": [q for q in p if q.ndim > 1]}, {"params": plain, "weight_decay": 0.0}], lr=RATE,
                   eps=TINY, weight_decay=0.1)  # fmt: skip


def _excluding() -> Any:
    optimizer = K.AdamW(RATE, epsilon=TINY, weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    return optimizer


#: what a side has unless its recipe says otherwise
BASE: dict[str, tuple[Parts, Parts]] = {
    "classes": ({"loss": lambda: nn.CrossEntropyLoss()}, {"loss": _ce}),
    "binary": ({"loss": lambda: nn.BCEWithLogitsLoss()}, {"loss": lambda: L.BinaryCrossentropy(from_logits=True)}),
    "real": ({"loss": lambda: nn.MSELoss()}, {"loss": lambda: "mse"}),
    "sequence": ({"loss": lambda: nn.CrossEntropyLoss()}, {"loss": _ce}),
}
OPTIMIZER: tuple[Parts, Parts] = ({"optimizer": _sgd}, {"optimizer": lambda: K.SGD(RATE)})


def loss(make: Part) -> Parts:
    return {"loss": make}


def opt(make: Part) -> Parts:
    return {"optimizer": make}


def schedule(make: Callable[[Any], Any]) -> Parts:
    return {"scheduler": lambda: make}


def clip(make: Callable[[Any], Any]) -> Parts:
    return {"clip": lambda: make}


def keras_sgd(**more: Any) -> Parts:
    return {
        "optimizer": lambda: K.SGD(**{"learning_rate": RATE, **{n: v() if callable(v) else v for n, v in more.items()}})
    }


def keras_rate(make: Part) -> Parts:
    return {"optimizer": lambda: K.SGD(make())}


FAULTS: dict[str, Recipe] = {
    # loss
    "weights by count": r("classes", loss(lambda: nn.CrossEntropyLoss(_weights())),
                          {"class_weight": lambda: dict(enumerate(WEIGHTS))}, "AMB320", "loss"),
    "weights missing": r("classes", loss(lambda: nn.CrossEntropyLoss(_weights())), {}, "AMB321", "loss"),
    "weights other": r("classes", loss(lambda: nn.CrossEntropyLoss(_weights())),
                       {"loss": lambda: _ce(reduction="mean_with_sample_weight"),
                        "class_weight": lambda: {0: 0.5, 1: 2.0, 2: 1.0, 3: 1.0, 4: 0.25}}, "AMB321", "loss"),
    "weights extra": r("classes", {}, {"class_weight": lambda: dict(enumerate(WEIGHTS))}, "AMB321", "loss"),
    "logits as probabilities": r("classes", {}, loss(L.SparseCategoricalCrossentropy), "AMB322", "loss"),
    "softmax twice": r("classes", {}, loss(lambda: lambda y, o: ops.mean(L.sparse_categorical_crossentropy(
        y, ops.exp(o) / ops.sum(ops.exp(o), -1, keepdims=True), from_logits=True))), "AMB322", "loss"),
    "smoothing missing": r("classes", loss(lambda: nn.CrossEntropyLoss(label_smoothing=0.1)), {}, "AMB323", "loss"),
    "smoothing other": r("classes", loss(lambda: nn.CrossEntropyLoss(label_smoothing=0.1)),
                         loss(lambda: _one_hot(label_smoothing=0.2)), "AMB323", "loss"),
    "smoothing extra": r("classes", {}, loss(lambda: _one_hot(label_smoothing=0.1)), "AMB323", "loss"),
    "sum of classes": r("classes", {}, loss(lambda: _ce(reduction="sum")), "AMB324", "loss"),
    "sum by hand": r("classes", {}, loss(lambda: lambda y, o: ops.sum(L.sparse_categorical_crossentropy(
        y, o, from_logits=True))), "AMB324", "loss"),
    "ignored missing": r("classes", loss(lambda: nn.CrossEntropyLoss(ignore_index=0)), {}, "AMB325", "loss"),
    "ignored other": r("classes", loss(lambda: nn.CrossEntropyLoss(ignore_index=0)),
                       loss(lambda: _ce(ignore_class=1)), "AMB325", "loss"),
    "ignored extra": r("classes", {}, loss(lambda: _ce(ignore_class=2)), "AMB325", "loss"),
    "positives missing": r("binary", loss(lambda: nn.BCEWithLogitsLoss(pos_weight=torch.tensor([5.0]))), {}, "AMB321",
                           "loss"),
    "positives other": r("binary", loss(lambda: nn.BCEWithLogitsLoss(pos_weight=torch.tensor([5.0]))),
                         {"class_weight": lambda: {0: 1.0, 1: 3.0}}, "AMB321", "loss"),
    "binary logits": r("binary", {}, loss(lambda: L.BinaryCrossentropy()), "AMB322", "loss"),
    "binary smoothing": r("binary", {}, loss(lambda: L.BinaryCrossentropy(True, label_smoothing=0.1)),
            "AMB323", "loss"),
    "focal": r("binary", {}, loss(lambda: L.BinaryFocalCrossentropy(from_logits=True)), "AMB326", "loss"),
    "binary sum": r("binary", {}, loss(lambda: L.BinaryCrossentropy(True, reduction="sum")), "AMB324", "loss"),
    "absolute": r("real", {}, loss(lambda: "mae"), "AMB326", "loss"),
    "huber delta": r("real", loss(lambda: nn.HuberLoss(delta=0.5)), loss(lambda: L.Huber(1.0)), "AMB328", "loss"),
    "smooth l1 as huber": r("real", loss(lambda: nn.SmoothL1Loss(beta=0.5)), loss(lambda: L.Huber(0.5)),
            "AMB326", "loss"),
    "sum of means": r("real", loss(lambda: nn.MSELoss(reduction="sum")), loss(lambda: L.MeanSquaredError("sum")),
                      "AMB324", "loss"),
    "half": r("real", {}, loss(lambda: lambda y, o: 0.5 * ops.mean(ops.square(y - o))), "AMB390", "loss"),
    "log cosh": r("real", loss(lambda: nn.HuberLoss()), loss(lambda: L.LogCosh()), "AMB326", "loss"),
    "cosine sign": r("real", loss(lambda: lambda o, y: -F.cosine_similarity(o, y, dim=-1).mean()),
                     loss(lambda: lambda y, o: ops.mean(-L.cosine_similarity(y, o))), "AMB390", "loss"),
    "cosine offset": r("real", loss(lambda: lambda o, y: (1 - F.cosine_similarity(o, y, dim=-1)).mean()),
                       loss(L.CosineSimilarity), "AMB390", "loss"),
    "broadcast": r("binary", loss(lambda: lambda o, y: F.mse_loss(o, y.reshape(-1))), loss(lambda: "mse"),
            "AMB327", "loss"),
    # update
    "rate": r("classes", {}, keras_sgd(learning_rate=0.01), "AMB330", "update"),
    "rate of adam": r("real", opt(_adam), opt(lambda: K.Adam(0.001, epsilon=TINY)), "AMB330", "update"),
    "epsilon": r("classes", opt(lambda: lambda p: T.Adadelta(p, 1.0, 0.95, 1e-6)),
                 opt(lambda: K.Adadelta(1.0, 0.95, 1e-4)), "AMB331", "update"),
    "epsilon of nadam": r("classes", opt(lambda: _adam(T.NAdam, eps=1e-3, momentum_decay=1.0)),
                          opt(lambda: K.Nadam(RATE, epsilon=1e-2)), "AMB331", "update"),
    "epsilon place": r("classes", opt(lambda: _adam(eps=1e-4)), opt(lambda: K.Adam(RATE, epsilon=1e-4)), "AMB332",
                       "update"),
    "epsilon place rms": r("real", opt(lambda: lambda p: T.RMSprop(p, RATE, 0.9, 1e-4)),
                           opt(lambda: K.RMSprop(RATE, 0.9, epsilon=1e-4)), "AMB332", "update"),
    "epsilon place adagrad": r("real", opt(lambda: lambda p: T.Adagrad(p, RATE, initial_accumulator_value=0.1,
                                                                     eps=1e-2)),
                               opt(lambda: K.Adagrad(RATE, epsilon=1e-2)), "AMB332", "update"),
    "coupled adam": r("classes", opt(lambda: _adam(weight_decay=0.1)),
                      opt(lambda: K.Adam(RATE, epsilon=TINY, weight_decay=0.1)), "AMB333", "update"),
    "coupled sgd": r("classes", opt(lambda: _sgd(momentum=0.5, weight_decay=0.1)),
                     keras_sgd(momentum=0.5, weight_decay=0.1), "AMB333", "update"),
    "decoupled missing": r("classes", opt(lambda: _adam(T.AdamW, weight_decay=0.1)),
                           opt(lambda: K.Adam(RATE, epsilon=TINY)), "AMB334", "update"),
    "decay default": r("classes", opt(lambda: _adam(T.AdamW)), opt(lambda: K.AdamW(RATE, epsilon=TINY)), "AMB334",
                       "update"),
    "decay of biases": r("classes", opt(lambda: _grouped),
                         opt(lambda: K.AdamW(RATE, epsilon=TINY, weight_decay=0.1)), "AMB317", "update"),
    "penalty twice": r("classes", opt(lambda: _sgd(weight_decay=0.1)), {}, "AMB334", "update", turns="l2_whole"),
    "momentum": r("real", opt(lambda: _sgd(momentum=0.9)), keras_sgd(momentum=0.5), "AMB335", "update"),
    "momentum missing": r("classes", opt(lambda: _sgd(momentum=0.9)), {}, "AMB335", "update"),
    "beta 1": r("classes", opt(lambda: _adam(betas=(0.5, 0.999))), opt(lambda: K.Adam(RATE, epsilon=TINY)), "AMB335",
                "update"),
    "beta 2": r("real", opt(lambda: _adam(betas=(0.9, 0.9))), opt(lambda: K.Adam(RATE, epsilon=TINY)), "AMB335",
                "update"),
    "rho": r("classes", opt(lambda: lambda p: T.RMSprop(p, RATE, eps=TINY)), opt(lambda: K.RMSprop(RATE, epsilon=TINY)),
             "AMB335", "update"),
    "rate in buffer": r("classes", {**opt(lambda: _sgd(momentum=0.9)), **schedule(lambda o: sched.StepLR(o, 2, 0.5))},
                        {"optimizer": lambda: K.SGD(S.ExponentialDecay(RATE, 2, 0.5, staircase=True), momentum=0.9)},
                        "AMB336", "update"),
    "nesterov": r("classes", opt(lambda: _sgd(momentum=0.9, nesterov=True)), keras_sgd(momentum=0.9),
            "AMB337", "update"),
    "amsgrad": r("real", opt(lambda: _adam(amsgrad=True)), opt(lambda: K.Adam(RATE, epsilon=TINY)), "AMB337", "update"),
    "centred": r("real", opt(lambda: lambda p: T.RMSprop(p, RATE, 0.9, TINY, centered=True)),
                 opt(lambda: K.RMSprop(RATE, 0.9, epsilon=TINY)), "AMB337", "update"),
    "dampening": r("classes", opt(lambda: _sgd(momentum=0.9, dampening=0.5)), keras_sgd(momentum=0.9),
            "AMB335", "update"),
    "rmsprop for adam": r("classes", opt(_adam), opt(lambda: K.RMSprop(RATE)), "AMB338", "update"),
    "adam for sgd": r("real", {}, opt(lambda: K.Adam(RATE)), "AMB338", "update"),
    "adagrad start": r("classes", opt(lambda: lambda p: T.Adagrad(p, RATE, eps=TINY)),
                       opt(lambda: K.Adagrad(RATE, epsilon=TINY)), "AMB316", "update"),
    "nadam decay": r("classes", opt(lambda: _adam(T.NAdam)), opt(lambda: K.Nadam(RATE, epsilon=TINY)),
            "AMB316", "update"),
    "frozen here": r("classes", {}, {}, "AMB318", "update", turns="frozen"),
    "frozen there": r("classes", opt(lambda: lambda p: T.SGD(p[:-1], RATE)), {}, "AMB318", "update"),
    # clipping and accumulation
    "clip missing": r("classes", clip(lambda p: nn.utils.clip_grad_norm_(p, 0.05)), {}, "AMB340", "clip"),
    "clip extra": r("classes", {}, keras_sgd(global_clipnorm=0.05), "AMB340", "clip"),
    "clip scope": r("classes", clip(lambda p: nn.utils.clip_grad_norm_(p, 0.05)), keras_sgd(clipnorm=0.05), "AMB341",
                    "clip"),
    "clip scope there": r("real", clip(_each), keras_sgd(global_clipnorm=0.05), "AMB341", "clip"),
    "clip limit": r("classes", clip(lambda p: nn.utils.clip_grad_norm_(p, 0.05)), keras_sgd(global_clipnorm=0.5),
                    "AMB342", "clip"),
    "clip value limit": r("real", clip(lambda p: nn.utils.clip_grad_value_(p, 0.01)), keras_sgd(clipvalue=0.1),
            "AMB342",
                          "clip"),
    "clip kind": r("classes", clip(lambda p: nn.utils.clip_grad_norm_(p, 0.05)), keras_sgd(clipvalue=0.05), "AMB343",
                   "clip"),
    "accumulation missing": r("classes", {"accumulate": lambda: 2}, {}, "AMB345", "clip", "accumulation"),
    "accumulation added": r("classes", {"accumulate": lambda: 2, "divide": lambda: False},
                            keras_sgd(gradient_accumulation_steps=2), "AMB345", "clip", "accumulation"),
    # schedule
    "schedule missing": r("classes", schedule(lambda o: sched.CosineAnnealingLR(o, 30)), {}, "AMB350", "schedule"),
    "schedule extra": r("classes", {}, keras_rate(lambda: S.CosineDecay(RATE, 30)), "AMB350", "schedule"),
    "staircase": r("classes", schedule(lambda o: sched.StepLR(o, 5, 0.5)),
                   keras_rate(lambda: S.ExponentialDecay(RATE, 5, 0.5)), "AMB351", "schedule"),
    "boundary": r("classes", schedule(lambda o: sched.MultiStepLR(o, [6, 12], 0.5)),
                  keras_rate(lambda: S.PiecewiseConstantDecay([6, 12], [RATE, RATE / 2, RATE / 4])),
            "AMB352", "schedule"),
    "boundaries": r("classes", schedule(lambda o: sched.MultiStepLR(o, [6, 12], 0.5)),
                    keras_rate(lambda: S.PiecewiseConstantDecay([3, 14], [RATE, RATE / 2, RATE / 4])), "AMB352",
                    "schedule"),
    "micro-steps": r("classes", {"accumulate": lambda: 2, **schedule(lambda o: sched.PolynomialLR(o, 60))},
                     {"optimizer": lambda: K.SGD(S.PolynomialDecay(RATE, 60, 0.0), gradient_accumulation_steps=2)},
                     "AMB353", "schedule"),
    "by epoch": r("classes", schedule(lambda o: sched.ExponentialLR(o, 0.5)), keras_rate(EveryFourth),
            "AMB354", "schedule"),
    "other schedule": r("classes", schedule(lambda o: sched.CosineAnnealingLR(o, 30)),
                        keras_rate(lambda: S.PolynomialDecay(RATE, 30, 0.0)), "AMB355", "schedule"),
    "after the end": r("classes", schedule(lambda o: sched.CosineAnnealingLR(o, 8)),
                       keras_rate(lambda: S.CosineDecay(RATE, 8)), "AMB356", "schedule"),
    "end of the rate": r("classes", schedule(lambda o: sched.CosineAnnealingLR(o, 30, eta_min=RATE / 10)),
                         keras_rate(lambda: S.CosineDecay(RATE, 30)), "AMB357", "schedule"),
    "factor of the rate": r("classes", schedule(lambda o: sched.StepLR(o, 5, 0.5)),
                            keras_rate(lambda: S.ExponentialDecay(RATE, 5, 0.1, staircase=True)), "AMB357", "schedule"),
    "length": r("classes", schedule(lambda o: sched.CosineAnnealingLR(o, 30)),
                keras_rate(lambda: S.CosineDecay(RATE, 60)), "AMB357", "schedule"),
    "power": r("classes", schedule(lambda o: sched.PolynomialLR(o, 30, 2.0)),
               keras_rate(lambda: S.PolynomialDecay(RATE, 30, 0.0)), "AMB357", "schedule"),
    "end of the polynomial": r("classes", schedule(lambda o: sched.PolynomialLR(o, 30)),
                               keras_rate(lambda: S.PolynomialDecay(RATE, 30)), "AMB357", "schedule"),
    "periods": r("classes", schedule(lambda o: sched.CosineAnnealingWarmRestarts(o, 5)),
                 keras_rate(lambda: S.CosineDecayRestarts(RATE, 5)), "AMB357", "schedule"),
    "warm-up": r("classes", schedule(lambda o: sched.SequentialLR(
        o, [sched.LinearLR(o, 0.5, 1.0, 5), sched.CosineAnnealingLR(o, 40)], [5])),
        keras_rate(lambda: S.CosineDecay(RATE / 2, 40, warmup_target=RATE, warmup_steps=8)), "AMB357", "schedule"),
    # metric
    "thresholds": r("binary", {"metric": lambda: _auc}, {"metric": lambda: keras.metrics.AUC(
        num_thresholds=10, from_logits=True)}, "AMB360", "metric"),
    "curve": r("binary", {"metric": lambda: _auc}, {"metric": lambda: keras.metrics.AUC(
        curve="PR", num_thresholds=2000, from_logits=True)}, "AMB361 AMB360", "metric"),
    "threshold": r("binary", {"metric": lambda: lambda o, y: ((o > 0) == (y > 0.5)).float().mean()},
                   {"metric": lambda: keras.metrics.BinaryAccuracy()}, "AMB362", "metric"),
    "other metric": r("classes", {"metric": lambda: lambda o, y: (o.argmax(-1) == y).float().mean()},
                      {"metric": lambda: keras.metrics.SparseTopKCategoricalAccuracy(3)}, "AMB364", "metric"),
    # gradient
    "stopped": r("classes", {}, {}, "AMB370", "gradient", turns="stopped"),
    "let through": r("classes", {}, {}, "AMB374", "gradient", torch_turns="stopped"),
    "reversed": r("real", {}, {}, "AMB373", "gradient", turns="reversed"),
    "padding row": r("sequence", {}, {}, "AMB371", "gradient", torch_turns="padding"),
    "doubled bias": r("sequence", {}, {}, "AMB372", "gradient", turns="lstm", torch_turns="lstm"),
}  # fmt: skip

CLEAN: dict[str, Recipe] = {
    "plain": r("classes", {}, {}),
    "functions": r("classes", loss(lambda: F.cross_entropy), loss(lambda: lambda y, o: ops.mean(
        L.sparse_categorical_crossentropy(y, o, from_logits=True)))),
    "weights": r("classes", loss(lambda: nn.CrossEntropyLoss(_weights())), {
        "loss": lambda: _ce(reduction="mean_with_sample_weight"), "class_weight": lambda: dict(enumerate(WEIGHTS))}),
    "weights by hand": r("classes", loss(lambda: lambda o, y: (F.cross_entropy(o, y, reduction="none")
                                                              * _weights()[y]).mean()),
                         {"class_weight": lambda: dict(enumerate(WEIGHTS))}),
    "smoothed": r("classes", loss(lambda: nn.CrossEntropyLoss(label_smoothing=0.1)),
                  loss(lambda: _one_hot(label_smoothing=0.1))),
    "ignored": r("classes", loss(lambda: nn.CrossEntropyLoss(ignore_index=0)), loss(lambda: _ce(ignore_class=0))),
    "summed": r("classes", loss(lambda: nn.CrossEntropyLoss(reduction="sum")), loss(lambda: _ce(reduction="sum"))),
    "log-probabilities": r("classes", loss(lambda: lambda o, y: F.nll_loss(F.log_softmax(o, -1), y)), {}),
    "binary": r("binary", {}, {}),
    "positives": r("binary", loss(lambda: nn.BCEWithLogitsLoss(pos_weight=torch.tensor([5.0]))),
                   {"class_weight": lambda: {0: 1.0, 1: 5.0}}),
    "real": r("real", {}, {}),
    "absolute": r("real", loss(nn.L1Loss), loss(lambda: L.MeanAbsoluteError())),
    "huber": r("real", loss(lambda: nn.HuberLoss(delta=0.5)), loss(lambda: L.Huber(0.5))),
    "smooth l1": r("real", loss(nn.SmoothL1Loss), loss(lambda: L.Huber(1.0))),
    "cosine": r("real", loss(lambda: lambda o, y: -F.cosine_similarity(o, y, dim=-1).mean()), loss(L.CosineSimilarity)),
    "sgd momentum": r("real", opt(lambda: _sgd(momentum=0.9)), keras_sgd(momentum=0.9)),
    "sgd nesterov": r("real", opt(lambda: _sgd(momentum=0.9, nesterov=True)), keras_sgd(momentum=0.9, nesterov=True)),
    "sgd decay": r("real", opt(lambda: _sgd(weight_decay=0.1)), {}, turns="l2_half"),
    "adam": r("classes", opt(_adam), opt(lambda: K.Adam(RATE, epsilon=TINY))),
    "amsgrad": r("real", opt(lambda: _adam(amsgrad=True)), opt(lambda: K.Adam(RATE, epsilon=TINY, amsgrad=True))),
    "adamw": r("classes", opt(lambda: _adam(T.AdamW, weight_decay=0.05)),
               opt(lambda: K.AdamW(RATE, epsilon=TINY, weight_decay=0.05))),
    "adamw as adam": r("classes", opt(lambda: _adam(T.AdamW, weight_decay=0.05)),
                       opt(lambda: K.Adam(RATE, epsilon=TINY, weight_decay=0.05))),
    "decay without biases": r("classes", opt(lambda: _grouped), opt(_excluding)),
    "adamax": r("real", opt(lambda: _adam(T.Adamax)), opt(lambda: K.Adamax(RATE, epsilon=TINY))),
    "nadam": r("real", opt(lambda: _adam(T.NAdam, momentum_decay=1.0)), opt(lambda: K.Nadam(RATE, epsilon=TINY))),
    "adagrad": r("real", opt(lambda: lambda p: T.Adagrad(p, RATE, initial_accumulator_value=0.1, eps=TINY)),
                 opt(lambda: K.Adagrad(RATE, epsilon=TINY))),
    "rmsprop": r("classes", opt(lambda: lambda p: T.RMSprop(p, RATE, 0.9, TINY)),
                 opt(lambda: K.RMSprop(RATE, 0.9, epsilon=TINY))),
    "rmsprop centred": r("classes", opt(lambda: lambda p: T.RMSprop(p, RATE, 0.9, TINY, momentum=0.5, centered=True)),
                         opt(lambda: K.RMSprop(RATE, 0.9, 0.5, TINY, centered=True))),
    "adadelta": r("real", opt(lambda: lambda p: T.Adadelta(p, 1.0, 0.95, 1e-6)),
                  opt(lambda: K.Adadelta(1.0, 0.95, 1e-6))),
    "adafactor": r("real", opt(lambda: lambda p: T.Adafactor(p, RATE, eps=(TINY, 1e-3))),
                   opt(lambda: K.Adafactor(RATE, epsilon_1=TINY))),
    "clip together": r("classes", clip(lambda p: nn.utils.clip_grad_norm_(p, 0.5)), keras_sgd(global_clipnorm=0.5)),
    "clip each": r("classes", clip(_each), keras_sgd(clipnorm=0.05)),
    "clip value": r("classes", clip(lambda p: nn.utils.clip_grad_value_(p, 0.01)), keras_sgd(clipvalue=0.01)),
    "accumulated": r("classes", {"accumulate": lambda: 2}, keras_sgd(gradient_accumulation_steps=2)),
    "steps": r("classes", schedule(lambda o: sched.StepLR(o, 5, 0.5)),
               keras_rate(lambda: S.ExponentialDecay(RATE, 5, 0.5, staircase=True))),
    "exponential": r("classes", schedule(lambda o: sched.ExponentialLR(o, 0.9)),
                     keras_rate(lambda: S.ExponentialDecay(RATE, 1, 0.9))),
    "boundaries": r("classes", schedule(lambda o: sched.MultiStepLR(o, [6, 12], 0.5)),
                    keras_rate(lambda: S.PiecewiseConstantDecay([5, 11], [RATE, RATE / 2, RATE / 4]))),
    "cosine rate": r("classes", schedule(lambda o: sched.CosineAnnealingLR(o, 30, RATE / 10)),
                     keras_rate(lambda: S.CosineDecay(RATE, 30, 0.1))),
    "restarts": r("classes", schedule(lambda o: sched.CosineAnnealingWarmRestarts(o, 5)),
                  keras_rate(lambda: S.CosineDecayRestarts(RATE, 5, 1.0))),
    "polynomial": r("classes", schedule(lambda o: sched.PolynomialLR(o, 30, 2.0)),
                    keras_rate(lambda: S.PolynomialDecay(RATE, 30, 0.0, 2.0))),
    "warm-up": r("classes", schedule(lambda o: sched.SequentialLR(
        o, [sched.LinearLR(o, 0.5, 1.0, 5), sched.CosineAnnealingLR(o, 40)], [5])),
        keras_rate(lambda: S.CosineDecay(RATE / 2, 40, warmup_target=RATE, warmup_steps=5))),
    "inverse": r("classes", schedule(lambda o: sched.LambdaLR(o, lambda t: 1 / (1 + 0.5 * t / 5))),
                 keras_rate(lambda: S.InverseTimeDecay(RATE, 5, 0.5))),
    "accuracy": r("classes", {"metric": lambda: lambda o, y: (o.argmax(-1) == y).float().mean()},
                  {"metric": lambda: "accuracy"}),
    "area": r("binary", {"metric": lambda: _auc},
              {"metric": lambda: lambda y, o: _auc(torch.tensor(np.array(o)), torch.tensor(np.array(y)))}),
    "sequence": r("sequence", {}, {}),
}  # fmt: skip

COMBOS: list[tuple[str, ...]] = [
    ("weights by count", "rate"), ("weights by count", "clip scope"), ("smoothing missing", "nesterov"),
    ("sum of classes", "clip missing"), ("logits as probabilities", "momentum missing"),
    ("ignored missing", "coupled adam"), ("sum by hand", "staircase"), ("weights missing", "boundary"),
    ("smoothing other", "decay default"), ("weights other", "adagrad start"), ("softmax twice", "beta 1"),
    ("smoothing extra", "rmsprop for adam"), ("ignored other", "frozen here"), ("weights extra", "stopped"),
    ("absolute", "beta 2"), ("huber delta", "clip value limit"), ("half", "amsgrad"), ("sum of means", "momentum"),
    ("log cosh", "centred"), ("positives missing", "threshold"), ("binary logits", "thresholds"),
    ("binary smoothing", "curve"), ("clip limit", "other schedule"), ("clip kind", "schedule missing"),
    ("weights by count", "clip missing", "staircase"), ("smoothing missing", "clip scope", "length"),
    ("sum of classes", "clip missing", "after the end", "other metric"), ("reversed", "absolute"),
    ("stopped", "sum by hand", "clip limit"), ("accumulation missing", "smoothing missing"),
]  # fmt: skip
