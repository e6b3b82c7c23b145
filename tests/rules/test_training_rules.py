"""Rules behind the forward pass: who claims what, both values in the words, fixes that run and do what they say."""

from __future__ import annotations

import ast
import functools
import inspect
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from ambidex import rules
from ambidex.core.rule import Cause
from ambidex.core.training_ops import FORMS
from ambidex.engine.stages import clips, losses, metrics, optimizers, schedules
from ambidex.rules import recipe

STAGES = ("loss", "gradient", "clip", "update", "schedule", "metric", "steps")
OURS = [r for r in rules.all_rules() if r.stage in STAGES]


def cause(
    kind: Any, op: str, name: str = "", reference: Any = None, candidate: Any = None, to: str = "keras", **more: Any
) -> Cause:
    made = Cause(kind, op, name, reference, candidate, framework=to, candidate_cls=more.pop("cls", ""), detail=more)
    made.reference_framework = "torch" if to == "keras" else "keras"
    made.candidate_path = "block/kernel"
    return made


def words(c: Cause) -> tuple[str, str, str, str]:
    rule = rules.best(c)
    return rule.code, rule.title_for(c), rule.message(c), rule.fix(c)


W = [1.0, 3.0]
#: cause -> code, what the message says, what the fix for the candidate's framework says
TABLE: list[tuple[Cause, str, tuple[str, ...], str]] = [
    # losses
    (cause("attr", "CrossEntropy", "weights_by", "sum", "count"), "AMB320", ("sum of the weights", "number of samples"),
     "keras.losses.SparseCategoricalCrossentropy(reduction='mean_with_sample_weight')"),
    (cause("attr", "CrossEntropy", "weights_by", "count", "sum", to="torch"), "AMB320", ("number of samples",),
     "* weight[y]).mean()"),
    (cause("variant", "CrossEntropy", "weights_by", None, {"weights_by": "count"}), "AMB320",
     ("candidate divides its weighted loss by the number", "reference by the sum of the weights"), "mean_with_sample"),
    (cause("attr", "CrossEntropy", "class_weights", W, None), "AMB321", ("none", "(1, 3)"),
     "class_weight={0: 1.0, 1: 3.0}) and keras"),
    (cause("missing", "CrossEntropy", "class_weights", W, None, to="torch"), "AMB321", ("(1, 3)",),
     "nn.CrossEntropyLoss(..., weight=torch.tensor([1.0, 3.0]))"),
    (cause("attr", "CrossEntropy", "class_weights", None, W, to="torch"), "AMB321", ("none",), "without weight"),
    (cause("attr", "BinaryCrossEntropy", "pos_weight", 5.0, None, to="torch"), "AMB321", ("pos weight", "none", "5"),
     "nn.BCEWithLogitsLoss(..., pos_weight=torch.tensor([5.0]))"),
    (cause("attr", "BinaryCrossEntropy", "pos_weight", 5.0, None), "AMB321", ("5",), "class_weight={0: 1.0, 1: 5.0}"),
    (cause("attr", "BinaryCrossEntropy", "class_weights", W, None, to="torch"), "AMB321", ("(1, 3)",),
     "torch.where(y > 0.5, 3.0, 1.0)"),
    (cause("variant", "CrossEntropy", "class_weights_missing", {"class_weights": W}, {"class_weights": None}), "AMB321",
     ("none", "(1, 3)"), "class_weight={0: 1.0, 1: 3.0}"),
    (cause("attr", "CrossEntropy", "from_logits", True, False), "AMB322", ("for probabilities", "for logits"),
     "keras.losses.SparseCategoricalCrossentropy(from_logits=True)"),
    (cause("attr", "CrossEntropy", "from_logits", False, True, to="torch"), "AMB322", ("for logits",),
     "nn.NLLLoss()(torch.log(out), y)"),
    (cause("attr", "BinaryCrossEntropy", "from_logits", True, False, to="torch"), "AMB322", ("for logits",),
     "nn.BCEWithLogitsLoss()"),
    (cause("variant", "BinaryCrossEntropy", "logits_as_probabilities"), "AMB322",
     ("candidate's loss takes the outputs for probabilities",), "BinaryCrossentropy(from_logits=True)"),
    (cause("variant", "CrossEntropy", "probabilities_as_logits"), "AMB322",
     ("candidate's loss takes the outputs for logits",), "(from_logits=False)"),
    (cause("attr", "CrossEntropy", "softmax_twice", False, True, to="torch"), "AMB322", ("softmax", "twice", "once"),
     "no softmax before nn.CrossEntropyLoss()"),
    (cause("variant", "BinaryCrossEntropy", "softmax_twice"), "AMB322", ("sigmoid", "candidate applies it twice"),
     "BinaryCrossentropy(from_logits=False)"),
    (cause("attr", "CrossEntropy", "softmax_twice", True, False), "AMB322", ("candidate applies it once",),
     "the reference applies softmax twice"),
    (cause("attr", "CrossEntropy", "label_smoothing", 0.1, 0.0, cls="SparseCategoricalCrossentropy"), "AMB323",
     ("by 0", "by 0.1"), "CategoricalCrossentropy(from_logits=..., label_smoothing=0.1) on one-hot"),
    (cause("attr", "CrossEntropy", "label_smoothing", 0.0, 0.1, to="torch"), "AMB323", ("0.1",),
     "nn.CrossEntropyLoss(..., label_smoothing=0.0)"),
    (cause("attr", "BinaryCrossEntropy", "label_smoothing", 0.2, 0.0, to="torch"), "AMB323", ("0.2",),
     "y * (1 - 0.2) + 0.2 / 2"),
    (cause("variant", "CrossEntropy", "label_smoothing_missing", {"label_smoothing": 0.1}, {"label_smoothing": 0.0}),
     "AMB323", ("by 0,", "by 0.1"), "label_smoothing=0.1"),
    (cause("attr", "CrossEntropy", "smooth_weighted", True, False), "AMB319", ("own class", "class by class"),
     "weight * keras.ops.log_softmax(out)"),
    (cause("attr", "MSE", "reduction", "mean", "sum_of_means"), "AMB324", ("mean over all", "means over the last axis"),
     "keras.losses.MeanSquaredError(reduction='sum_over_batch_size')"),
    (cause("attr", "KLDiv", "reduction", "batchmean", "mean", to="torch", cls="KLDivLoss"), "AMB324",
     ("divided by the batch size",), "nn.KLDivLoss(..., reduction='batchmean')"),
    (cause("variant", "MSE", "reduction_sum", {}, {"reduction": "sum"}, to="torch"), "AMB324", ("sum over all",),
     "nn.MSELoss(..., reduction='mean')"),
    (cause("attr", "CrossEntropy", "ignore_index", 0, None), "AMB325", ("none", "0"), "ignore_class=0"),
    (cause("attr", "CrossEntropy", "ignore_index", -1, -100, to="torch"), "AMB325", ("-100", "-1"), "ignore_index=-1)"),
    (cause("attr", "CrossEntropy", "ignore_index", None, 0, to="torch"), "AMB325", ("none",), "ignore_index=-100"),
    (cause("variant", "CrossEntropy", "ignored_counted", {"ignore_index": 0}, {"ignore_index": None}), "AMB325",
     ("none", "0"), "ignore_class=0"),
    (cause("op", "MSE", "MAE", {}, {}), "AMB326", ("mean absolute", "mean squared"), "keras.losses.MeanSquaredError()"),
    (cause("op", "Huber", "MSE", {"delta": 0.5}, {}, to="torch"), "AMB326", ("Huber",), "nn.HuberLoss(delta=0.5)"),
    (cause("op", "SmoothL1", "Huber", {"beta": 2.0}, {"delta": 2.0}), "AMB326", ("smooth L1",),
     "keras.losses.Huber(delta=2.0)(y, out) / 2.0"),
    (cause("op", "CrossEntropy", "MSE", {"from_logits": True, "label_smoothing": 0.1}, {}),
     "AMB326", ("cross-entropy",),
     "keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)"),
    (cause("op", "BinaryCrossEntropy", "MSE", {"from_logits": False}, {}, to="torch"), "AMB326", ("binary",),
     "nn.BCELoss()"),
    (cause("attr", "MSE", "broadcast", False, True, to="torch"), "AMB327", ("candidate", "N x N"), "out.squeeze(-1)"),
    (cause("attr", "MSE", "broadcast", True, False), "AMB327", ("In the reference",), "in the reference"),
    (cause("attr", "MSE", "broadcast", False, "flat"), "AMB327", ("In the candidate",), "y[:, None]"),
    (cause("variant", "MAE", "broadcast", None, {"broadcast": True}), "AMB327", ("In the candidate",), "y[:, None]"),
    (cause("attr", "MSE", "factor", 1.0, 0.5), "AMB390", ("factor 0.5", "1."), "multiply the loss by 2"),
    (cause("variant", "MSE", "factor_0.5", {}, {"factor": 0.5}, to="torch"), "AMB390", ("factor 0.5",), "by 2"),
    (cause("attr", "CosineLoss", "sign", 1.0, -1.0), "AMB390", ("sign -1", "1."), "multiply the loss by -1"),
    (cause("attr", "CosineLoss", "offset", 1.0, 0.0), "AMB390", ("offset 0", "1."), "add 1 to the loss"),
    (cause("attr", "Huber", "delta", 0.5, 1.0), "AMB328", ("delta 1", "0.5"), "keras.losses.Huber(delta=0.5)"),
    (cause("attr", "SmoothL1", "beta", 0.5, 1.0, to="torch"), "AMB328", ("0.5",), "nn.SmoothL1Loss(..., beta=0.5)"),
    (cause("attr", "FocalBinary", "balanced", True, False), "AMB328", ("False", "True"),
     "keras.losses.BinaryFocalCrossentropy(apply_class_balancing=True)"),
    (cause("attr", "FocalBinary", "gamma", 1.0, 2.0, to="torch"), "AMB328", ("2", "1"),
     "sigmoid_focal_loss(..., gamma"),
    (cause("attr", "BinaryCrossEntropy", "clamp", -100.0, None), "AMB328", ("None", "-100"), "from_logits=True"),
    (cause("attr", "CrossEntropy", "renormalise", "after", "no", to="torch"), "AMB328", ("after", "no"), "on logits"),
    (cause("attr", "KLDiv", "from_logs", False, True, to="torch"), "AMB328", ("log-probabilities",),
     "nn.KLDivLoss()(torch.log(out), y)"),
    (cause("attr", "KLDiv", "log_target", True, False), "AMB328", ("True",), "keras.ops.exp(y)"),
    (cause("attr", "Poisson", "log_input", True, False), "AMB328", ("logarithms of the rate",), "keras.ops.exp(out)"),
    (cause("attr", "Poisson", "log_input", False, True, to="torch"), "AMB328", ("the rate",),
     "nn.PoissonNLLLoss(..., log_input=False)"),
    (cause("attr", "loss", "delta", 0.5, 1.0), "AMB328", ("delta 1", "0.5"), "delta = 0.5"),
    (cause("variant", "loss", "mean_of_batch_means"), "AMB347", ("means",), "reduction='sum'"),
    (cause("unknown", "loss", "MSE"), "AMB329", ("mean squared error",), "term by term"),
    # optimizers
    (cause("attr", "Adam", "learning_rate", 1e-3, 1e-2), "AMB330", ("0.01", "0.001"),
     "keras.optimizers.Adam(learning_rate=0.001)"),
    (cause("attr", "SGD", "learning_rate", 1e-3, 1e-2, cls="SGD"), "AMB330", ("never passed",), "learning_rate=0.001"),
    (cause("attr", "Adam", "learning_rate", 0.1, 0.2, to="torch", weights=["a.w"]), "AMB330", ("a.w",), "lr=0.1"),
    (cause("attr", "Adam", "epsilon", 1e-8, 1e-7), "AMB331", ("1e-07", "1e-08", "never passed"),
     "keras.optimizers.Adam(epsilon=1e-08)"),
    (cause("attr", "Adam", "epsilon", 1e-7, 1e-8, to="torch", cls="AdamW"), "AMB331", ("1e-08",),
     "torch.optim.AdamW(..., eps=1e-07)"),
    (cause("attr", "Adam", "epsilon", 1e-6, 1e-5, effect=False), "AMB331", ("no difference yet",), "epsilon=1e-06"),
    (cause("attr", "Adam", "epsilon_before_correction", False, True), "AMB332", ("before the bias", "after the bias"),
     "epsilon=1e-12"),
    (cause("attr", "Adam", "epsilon_before_correction", True, False, to="torch"), "AMB332", ("after the bias",),
     "group['eps'] = eps / (1 - beta_2 ** t) ** 0.5"),
    (cause("variant", "RMSprop", "epsilon_place", None, {"epsilon_inside": True}), "AMB332", ("under the root",
     "beside"),
     "epsilon=1e-12"),
    (cause("attr", "Adamax", "epsilon_in_max", True, False), "AMB332", ("outside the max", "inside the max"), "1e-12"),
    (cause("attr", "Adam", "decoupled", False, True), "AMB333", ("AdamW", "L2"), "regularizers.L2(weight_decay / 2)"),
    (cause("attr", "Adam", "decoupled", True, False, to="torch", cls="Adam"), "AMB333", ("L2", "AdamW"),
     "torch.optim.AdamW(..., weight_decay=...)"),
    (cause("attr", "SGD", "decoupled", True, False, to="torch"), "AMB333", ("decoupled",), "p.mul_(1 - lr"),
    (cause("variant", "Adam", "decay_coupling", None, {"decoupled": True}),
     "AMB333", ("candidate's weight decay is dec",),
     "L2(weight_decay / 2)"),
    (cause("attr", "Adam", "weight_decay", 0.01, 0.004, cls="AdamW"), "AMB334", ("0.004", "0.01", "never passed"),
     "keras.optimizers.AdamW(weight_decay=0.01)"),
    (cause("variant", "SGD", "decay_twice", {"weight_decay": 0.01}, {"weight_decay": 0.02}, to="torch"), "AMB334",
     ("0.02", "twice", "0.01"), "torch.optim.SGD(..., weight_decay=0.01)"),
    (cause("attr", "Adam", "weight_decay", 0.0, 0.01, weights=["n/gamma", "n/beta"]), "AMB317", ("0.01", "n/gamma"),
     "exclude_from_weight_decay(var_names=['beta', 'gamma'])"),
    (cause("attr", "Adam", "weight_decay", 0.01, 0.0, to="torch", weights=["n.bias"]), "AMB317", ("n.bias",),
     "'weight_decay': 0.01"),
    (cause("attr", "RMSprop", "rho", 0.99, 0.9), "AMB335", ("0.9", "0.99", "never"),
     "keras.optimizers.RMSprop(rho=0.99)"),
    (cause("attr", "RMSprop", "rho", 0.9, 0.99, to="torch"), "AMB335", ("0.99",),
     "torch.optim.RMSprop(..., alpha=0.9)"),
    (cause("attr", "Adadelta", "rho", 0.95, 0.9, to="torch"), "AMB335", ("0.95",),
     "torch.optim.Adadelta(..., rho=0.95)"),
    (cause("attr", "Adam", "beta_2", 0.98, 0.999, to="torch"), "AMB335", ("0.999", "0.98"), "betas=(..., 0.98)"),
    (cause("attr", "SGD", "dampening", 0.1, 0.0), "AMB335", ("0.1",), "(1 - 0.1) * g"),
    (cause("variant", "SGD", "momentum_missing", {"momentum": 0.9}, {"momentum": 0.0}), "AMB335",
     ("momentum 0,", "0.9"), "keras.optimizers.SGD(momentum=0.9)"),
    (cause("attr", "SGD", "rate_in_buffer", False, True), "AMB336", ("holds the learning rate", "no learning rate"),
     "velocity.assign(velocity * new_rate / old_rate)"),
    (cause("attr", "SGD", "rate_in_buffer", True, False, to="torch"), "AMB336", ("no learning rate",),
     "momentum_buffer'] *= old_rate / new_rate"),
    (cause("attr", "SGD", "nesterov", True, False), "AMB337", ("nesterov=False", "nesterov=True"),
     "SGD(nesterov=True)"),
    (cause("attr", "Adam", "amsgrad", False, True, to="torch"), "AMB337", ("amsgrad=True",), "amsgrad=False"),
    (cause("attr", "RMSprop", "centered", True, False, to="torch"), "AMB337", ("centered=False",), "centered=True"),
    (cause("attr", "Adam", "bias_correction", True, False), "AMB337", ("bias correction=False",),
     "* (1 - beta_2 ** t) ** 0.5 / (1 - beta_1 ** t)"),
    (cause("variant", "Adam", "bias_correction", None, {"bias_correction": False}), "AMB337", ("=False", "=True"),
     "* (1"),
    (cause("attr", "Adafactor", "relative_step", False, True), "AMB337", ("relative step=True",),
     "relative_step=False"),
    (cause("op", "Adam", "RMSprop", {"learning_rate": 1e-3, "beta_1": 0.9, "beta_2": 0.98, "epsilon": 1e-8}, {},
           to="torch"), "AMB338", ("RMSprop", "Adam"),
     "torch.optim.Adam(parameters, lr=0.001, betas=(0.9, 0.98), eps=1e-08)"),
    (cause("op", "Lion", "Adam", {}, {}), "AMB338", ("Lion",), "keras.optimizers.Lion()"),
    (cause("attr", "Adagrad", "initial", 0.0, 0.1), "AMB316", ("0.1", "0", "never"), "initial_accumulator_value=0.0"),
    (cause("attr", "Nadam", "momentum_decay", 0.004, 1.0), "AMB316", ("1", "0.004"), "0.96 ** (t * 0.004)"),
    (cause("attr", "Adagrad", "rate_decay", 0.1, 0.0), "AMB316", ("0.1",), "InverseTimeDecay(lr, decay_steps=1, dec"),
    (cause("attr", "Adam", "frozen", None, True, weights=["a"]), "AMB318", ("leaves it alone", "trains it"), "= True"),
    (cause("attr", "optimizer", "frozen", True, None, to="torch"), "AMB318", ("trains it",), "requires_grad_(False)"),
    (cause("unknown", "optimizer", "Adam"), "AMB339", ("two optimizers",), "settings"),
    # clipping and accumulation
    (cause("missing", "ClipNorm", "clip", {"max_norm": 1.0, "scope": "global"}), "AMB340", ("by norm at 1",),
     "global_clipnorm=1.0"),
    (cause("missing", "ClipValue", "clip", {"value": 0.5}, to="torch"), "AMB340", ("by value at 0.5",),
     "nn.utils.clip_grad_value_(parameters, 0.5)"),
    (cause("extra", "ClipNorm", "clip", None, {"max_norm": 1.0}), "AMB340", ("The candidate clips",), "leave clipnorm"),
    (cause("missing", "clip", "clip", {}), "AMB340", ("The reference clips",), "own code"),
    (cause("attr", "ClipNorm", "scope", "global", "weight"), "AMB341", ("each gradient", "together"),
     "global_clipnorm"),
    (cause("variant", "ClipNorm", "scope", None, {"scope": "global", "max_norm": 2.0}, to="torch"), "AMB341",
     ("together", "on its own"), "for p in parameters: nn.utils.clip_grad_norm_([p], 2.0)"),
    (cause("attr", "ClipNorm", "max_norm", 1.0, 5.0, cls="clipnorm"), "AMB342", ("at 5", "at 1"), "with clipnorm=1.0"),
    (cause("attr", "ClipValue", "value", 0.5, 5.0, to="torch"), "AMB342", ("at 5",),
     "clip_grad_value_(parameters, 0.5)"),
    (cause("op", "ClipNorm", "ClipValue", {"max_norm": 1.0}, {"value": 1.0}), "AMB343", ("by value", "by norm"),
     "global_clipnorm=1.0"),
    (cause("attr", "ClipNorm", "epsilon", 1e-6, 0.0), "AMB344", ("adds 0", "1e-06"), "limit / (norm + 1e-06)"),
    (cause("attr", "Accumulate", "count", 4, 1), "AMB345", ("1 batches", "4"), "gradient_accumulation_steps=4"),
    (cause("attr", "Accumulate", "mean", True, False, to="torch"), "AMB345", ("adds up", "mean"),
     "(loss / n).backward()"),
    (cause("variant", "ClipNorm", "per_micro_step"), "AMB346", ("each batch",), "gradient_accumulation_steps"),
    (cause("variant", "Accumulate", "mean_of_batch_means", to="torch"), "AMB347", ("means",), "reduction='sum'"),
    (cause("unknown", "clip"), "AMB349", ("two clippings",), "above the limit"),
    # schedules
    (cause("missing", "Cosine", "schedule", {"steps": 100, "alpha": 0.1}), "AMB350", ("cosine decay", "constant"),
     "keras.optimizers.schedules.CosineDecay(decay_steps=100, alpha=0.1)"),
    (cause("extra", "schedule", "schedule", None, {}, to="torch"), "AMB350", ("The candidate has a",), "scheduler out"),
    (cause("attr", "Step", "staircase", True, False, cls="ExponentialDecay"), "AMB351", ("continuously", "in steps"),
     "keras.optimizers.schedules.ExponentialDecay(staircase=True)"),
    (cause("variant", "Step", "staircase", None, {"staircase": True}, to="torch"), "AMB351", ("falls in steps",),
     "ExponentialLR(optimizer, gamma ** (1 / step_size))"),
    (cause("attr", "MultiStep", "boundaries", [10, 20], [11, 21]), "AMB352", ("(11, 21)", "(10, 20)"),
     "PiecewiseConstantDecay(boundaries=[9, 19])"),
    (cause("attr", "MultiStep", "boundaries", [10, 20], [11, 21], to="torch"), "AMB352", ("(11, 21)",),
     "MultiStepLR(..., milestones=[10, 20])"),
    (cause("variant", "MultiStep", "boundary", {"boundaries": [5]}, {"boundaries": [6]}), "AMB352", ("(6,)", "(5,)"),
     "[4]"),
    (cause("attr", "MultiStep", "factors", [1.0, 0.1], [1.0, 0.5]), "AMB352", ("(1, 0.5)", "(1, 0.1)"), "values="),
    (cause("attr", "Cosine", "stride", 1.0, 4.0), "AMB353", ("by 4", "by 1"), "4 times the number of updates"),
    (cause("variant", "Cosine", "per_micro_step", {}, {"stride": 2.0}, to="torch"), "AMB353", ("by 2", "by 1"),
     "once an"),
    (cause("attr", "Step", "stride", 0.1, 1.0), "AMB354", ("once an update", "once in 10"), "times 10"),
    (cause("variant", "Step", "per_epoch", {}, {"stride": 0.25}, to="torch"), "AMB354", ("once in 4", "once an"),
     "every upd"),
    (cause("attr", "Cosine", "offset", 0, 3), "AMB394", ("step 3", "step 0"), "from step 0 on"),
    (cause("variant", "Cosine", "one_late", {}, {"offset": -1}, to="torch"), "AMB394", ("step -1", "step 0"),
     "after opt"),
    (cause("op", "Cosine", "Polynomial", {"steps": 9}, {}, to="torch"), "AMB355", ("polynomial", "cosine"),
     "CosineAnnealingLR(optimizer, T_max=9)"),
    (cause("attr", "Cosine", "periodic", False, True, to="torch"), "AMB356", ("rises again", "stays"), "stop calling"),
    (cause("attr", "Polynomial", "cycle", True, False), "AMB356", ("stays", "rises"), "PolynomialDecay(cycle=True)"),
    (cause("attr", "Cosine", "alpha", 0.1, 0.0), "AMB357", ("alpha 0", "0.1"), "CosineDecay(alpha=0.1)"),
    (cause("attr", "Cosine", "alpha", 0.1, 0.0, to="torch"), "AMB357", ("0.1",),
     "CosineAnnealingLR(..., eta_min=0.1 * lr)"),
    (cause("attr", "Cosine", "steps", 90, 100, to="torch"), "AMB357", ("100", "90"), "T_max=90"),
    (cause("attr", "CosineRestarts", "t_mul", 1.0, 2.0), "AMB357", ("2", "1"), "CosineDecayRestarts(t_mul=1.0)"),
    (cause("attr", "CosineRestarts", "steps", 5, 6, to="torch"), "AMB357", ("6", "5"), "T_0=5"),
    (cause("attr", "Polynomial", "end", 0.0, 0.1), "AMB357", ("0.1", "0"), "PolynomialDecay(end_learning_rate=0.0)"),
    (cause("attr", "Cosine", "warmup_steps", 5, 0), "AMB357", ("0", "5"), "CosineDecay(warmup_steps=5)"),
    (cause("attr", "Cosine", "warmup_steps", 5, 0, to="torch"), "AMB357", ("5",), "total_iters=5"),
    (cause("attr", "Linear", "start", 0.1, 1 / 3, to="torch"), "AMB357", ("0.333333", "0.1"), "start_factor=0.1"),
    (cause("attr", "Step", "gamma", 0.5, 0.1), "AMB357", ("0.1", "0.5"), "decay_rate=0.5"),
    (cause("attr", "Step", "step_size", 7, 1, to="torch", cls="ExponentialLR"), "AMB357", ("7",), "gamma ** (1 / 7)"),
    (cause("unknown", "schedule"), "AMB359", ("draws both",), "LearningRateSchedule"),
    # metrics
    (cause("attr", "AUC", "thresholds", None, 200), "AMB360", ("200 thresholds", "all scores"), "roc_auc_score"),
    (cause("attr", "AUC", "thresholds", 200, None, to="torch"), "AMB360", ("200",), "thresholds=200"),
    (cause("attr", "AUC", "curve", "PR", "ROC"), "AMB361", ("ROC", "PR"), "keras.metrics.AUC(curve='PR')"),
    (cause("variant", "AUC", "curve", None, {"curve": "PR"}, to="torch"), "AMB361", ("PR", "ROC"), "roc_auc_score"),
    (cause("attr", "Accuracy", "threshold", 0.0, 0.5), "AMB362", ("at 0.5", "at 0"), "BinaryAccuracy(threshold=0.0)"),
    (cause("attr", "Precision", "threshold", 0.3, 0.5), "AMB362", ("at 0.3",),
     "keras.metrics.Precision(thresholds=0.3)"),
    (cause("attr", "AUC", "from_logits", True, False), "AMB362", ("logits", "probabilities"), "AUC(from_logits=True)"),
    (cause("attr", "Accuracy", "kind", "binary", "categorical"), "AMB363", ("categorical", "binary"),
     "BinaryAccuracy()"),
    (cause("op", "AUC", "Accuracy", {"curve": "PR"}, {}), "AMB364", ("accuracy", "AUC"),
     "keras.metrics.AUC(curve='PR')"),
    (cause("attr", "TopK", "k", 5, 3), "AMB365", ("3", "5"), "(k=5)"),
    (cause("attr", "F1", "average", "macro", "binary", to="torch"), "AMB365", ("binary", "macro"), "average='macro'"),
    (cause("variant", "Accuracy", "mean_of_batch_means"), "AMB366", ("batches",), "update_state"),
    (cause("unknown", "metric"), "AMB369", ("two metrics",), "scikit-learn"),
    # gradients and steps
    (cause("variant", "gradient", "stopped"), "AMB370", ("block/kernel",), "stop_gradient"),
    (cause("variant", "gradient", "stopped", to="torch", weights=list("abcd")), "AMB370", ("a, b, c and 1 more",),
     "detach"),
    (cause("variant", "gradient", "padding_row", value={"rows": [3], "frozen": "reference"}, to="torch"), "AMB371",
     ("Row 3", "no gradient in the reference"), "padding_idx=3"),
    (cause("variant", "gradient", "padding_row", value={"rows": [0], "frozen": "candidate"}, to="torch"), "AMB371",
     ("no gradient in the candidate",), "without padding_idx"),
    (cause("variant", "gradient", "doubled_bias", value=0.5), "AMB372", ("half",), "requires_grad_(False)"),
    (cause("variant", "gradient", "scaled", value=-1.0), "AMB373", ("-1 times",), "custom gradient"),
    (cause("variant", "gradient", "extra", to="torch"), "AMB374", ("none does",), "detach()"),
    (cause("variant", "gradient", "singular_point", 0.0, float("nan")), "AMB375", ("nan", "0"), "keras.ops.where"),
    (cause("unknown", "gradient", place="lstm", mode="train"), "AMB379", ("behind lstm", "training mode"), "BatchNorm"),
    (cause("attr", "Initialiser", "W", "fan_in_uniform", "glorot_uniform"), "AMB380", ("glorot_uniform",), "scale=1/3"),
    (cause("extra", "Regulariser", "reported_loss", to="torch"), "AMB381", ("candidate",), "penalty"),
    (cause("unknown", "steps"), "AMB389", ("training steps",), "one step"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("c", "code", "told", "fix"), TABLE, ids=lambda v: f"{v.kind}-{v.op}-{v.name}" if isinstance(v, Cause) else None
)
def test_who_claims_what(c: Cause, code: str, told: tuple[str, ...], fix: str) -> None:
    got = words(c)
    assert got[0] == code
    for text in told:
        assert text in got[2]
    assert fix in got[3]
    assert len(got[1]) <= 90 and got[2].endswith(".")
    assert "..., reference" not in got[2] and "None" not in got[2].replace("has clamp None", "")


def test_table_is_large_and_names_every_rule() -> None:
    assert len(TABLE) >= 80
    assert len(OURS) >= 45
    assert {code for _, code, _, _ in TABLE} == {r.code for r in OURS}


# ------------------------------------------------------------------------- everything that the engine can hand over
FAMILIES = {"loss": losses, "optimizer": optimizers, "schedule": schedules, "clip": clips, "metric": metrics}
#: settings with which a form has all its variants
_GIVEN: dict[str, Any] = {
    "class_weights": [1.0, 2.0], "label_smoothing": 0.1, "ignore_index": 0, "weight_decay": 0.01, "momentum": 0.9,
    "steps": 7, "step_size": 3, "boundaries": [2, 5], "factors": [1.0, 0.1, 0.01], "max_norm": 1.0, "value": 1.0,
    "rate": 0.5, "learning_rate": 0.01,
}  # fmt: skip


def _forms() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for op, entry in FORMS.items():
        yield entry.family, op, {n: _GIVEN[n] for n in entry.attrs if n in _GIVEN}


@pytest.mark.parametrize(("part", "op", "attrs"), _forms(), ids=lambda v: v if isinstance(v, str) else None)
def test_every_variant_has_its_rule(part: str, op: str, attrs: dict[str, Any]) -> None:
    """Whether the engine tells the reference's attributes too or not."""
    for name, changed in FAMILIES[part].variants(op, attrs):
        for reference in (attrs, None):
            for framework in ("torch", "keras", "onnx"):
                code, title, message, fix = words(cause("variant", op, name, reference, changed, to=framework))
                stage = {"optimizer": "update"}.get(part, part)
                assert rules.find(code).stage == stage, (name, code)
                assert title and fix and message.endswith("."), (name, message)
                assert "{" not in title + message, (name, message)
                if reference is not None:
                    assert "another" not in message, (name, message)


@pytest.mark.parametrize(("part", "op", "attrs"), _forms(), ids=lambda v: v if isinstance(v, str) else None)
def test_every_attribute_has_its_rule(part: str, op: str, attrs: dict[str, Any]) -> None:
    for name, default in FORMS[op].attrs.items():
        for a, b in ((default, _GIVEN.get(name, 0.5)), (_GIVEN.get(name, 0.5), default), (True, False), ("a", "b")):
            for framework in ("torch", "keras", "onnx"):
                for owner in (op, part):  # the part itself: both sides are code of their own
                    code, title, message, fix = words(cause("attr", owner, name, a, b, to=framework))
                    assert rules.find(code).stage in STAGES, (name, code)
                    assert title and message and fix, (owner, name)


def test_every_exchange_of_forms_has_its_rule() -> None:
    for part, op, attrs in _forms():
        for other_part, other, _ in _forms():
            if part == other_part and op != other:
                for framework in ("torch", "keras", "onnx"):
                    code, title, message, fix = words(cause("op", op, other, attrs, {}, to=framework))
                    assert code in {"AMB326", "AMB338", "AMB343", "AMB355", "AMB364"}, (op, other, code)
                    assert recipe.said(op) in message or part == "clip"
                    assert fix


@pytest.mark.parametrize("part", [*FAMILIES, "gradient", "steps"])
def test_what_is_unknown_has_a_page_of_its_family(part: str) -> None:
    code = words(cause("unknown", part))[0]
    assert code.endswith("9") and rules.find(code).stage in STAGES


def test_pages_are_complete() -> None:
    for rule in OURS:
        text = rules.page(rule)
        for heading in ("## How it shows", "## Why it happens", "## In a report", "## What to write"):
            assert heading in text, rule.code
        assert "The candidate is in PyTorch" in text and "The candidate is in Keras" in text


# -------------------------------------------------------------------------------------------------- fixes that are code
NAMES: dict[str, Any] = {"torch": torch, "nn": nn, "F": F, "keras": keras, "math": math}


def _callee(node: ast.expr) -> Any:
    """What a dotted name stands for; None where the test has no such package."""
    try:
        return eval(ast.unparse(node), dict(NAMES))  # noqa: S307
    except NameError:
        return None


def _keywords(text: str) -> Iterator[tuple[Any, list[str]]]:
    """The calls of frameworks in a fix that is one expression, with their keywords."""
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found = _callee(node.func) if isinstance(node.func.value, ast.Name | ast.Attribute) else None
            if found is not None:
                yield found, [k.arg for k in node.keywords if k.arg]


@functools.cache
def _accepts(thing: Any) -> frozenset[str]:
    try:
        return frozenset(inspect.signature(thing).parameters)
    except ValueError:  # a builtin: its keywords cannot be told
        return frozenset(("kwargs",))


@pytest.mark.parametrize("framework", ["torch", "keras"])
def test_arguments_in_fixes_exist(framework: str) -> None:
    """Every keyword of a call that a fix writes is one of that class or function."""
    checked = 0
    texts = [rule.fix(replace(rule.sample, framework=framework)) for rule in OURS]  # type: ignore[attr-defined]
    texts += [c[3] for c in map(words, (replace(row[0], framework=framework, candidate_cls="") for row in TABLE))]
    for _, op, attrs in _forms():
        texts.append(recipe.built(op, {**FORMS[op].attrs, **attrs}, framework))
        for name, default in FORMS[op].attrs.items():
            texts.append(words(cause("attr", op, name, _GIVEN.get(name, default), "other", to=framework))[3])
    for text in texts:
        for thing, names in _keywords(text):
            unknown = set(names) - _accepts(thing)
            assert not unknown or "kwargs" in _accepts(thing), text
            checked += 1
    assert checked > 100


def _run(text: str, out: np.ndarray, y: np.ndarray, framework: str) -> float:
    """A loss that a fix writes, on these outputs and targets."""
    text = text.replace("(..., ", "(")
    tensors = (torch.tensor(out), torch.tensor(y)) if framework == "torch" else (out, y)
    values = dict(NAMES, out=tensors[0], y=tensors[1])
    made = eval(text, values)  # noqa: S307
    if callable(made):
        made = made(*tensors) if framework == "torch" else made(tensors[1], tensors[0])
    return float(made)


@pytest.mark.parametrize("framework", ["torch", "keras"])
@pytest.mark.parametrize("op", ["MSE", "MAE", "CrossEntropy", "KLDiv"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "sum_of_means", "mean_of_sums", "batchmean"])
def test_a_reduction_as_the_fix_writes_it(op: str, reduction: str, framework: str) -> None:
    """The fix run on data gives what the canonical formula gives."""
    if op == "CrossEntropy" and framework == "torch" and reduction in ("sum_of_means", "mean_of_sums", "batchmean"):
        shape: tuple[int, ...] = (5, 4)
    else:
        shape = (5, 3, 4) if framework == "keras" else (5, 4)
    rng = np.random.default_rng(3)
    out, y = rng.random(shape), rng.random(shape)
    out, y = (x / x.sum(-1, keepdims=True) for x in (out, y))
    attrs: dict[str, Any] = {"reduction": reduction}
    if op == "CrossEntropy":
        y = rng.integers(0, 4, shape[:-1])
        attrs |= {"from_logits": framework == "torch", "renormalise": "after"}
        if framework == "torch" and reduction in ("sum_of_means", "mean_of_sums"):
            return  # one item a sample: there is no last axis to take a mean over
    if op == "KLDiv":
        attrs["from_logs"] = framework == "torch"
        out = np.log(out) if framework == "torch" else out
    text = words(cause("attr", op, "reduction", reduction, "other", to=framework))[3]
    assert _run(text, out, y, framework) == pytest.approx(losses.value(op, attrs, out, y), rel=1e-5), text


OPTIMIZER = {
    "SGD": {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True},
    "Adam": {"learning_rate": 0.1, "beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-6, "amsgrad": True},
    "Adagrad": {"learning_rate": 0.1, "initial": 0.3, "epsilon": 1e-6},
    "RMSprop": {"learning_rate": 0.1, "rho": 0.8, "epsilon": 1e-6, "centered": True},
    "Adadelta": {"learning_rate": 0.1, "rho": 0.8, "epsilon": 1e-6},
    "Adamax": {"learning_rate": 0.1, "beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-6},
    "Nadam": {"learning_rate": 0.1, "beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-6},
}  # fmt: skip
#: how each framework writes the same optimizer
OWN_WAY = {
    "keras": {
        "SGD": {"rate_in_buffer": True}, "Adam": {"epsilon_before_correction": True}, "Nadam": {"momentum_decay": 1.0},
        "Adagrad": {"epsilon_inside": True}, "RMSprop": {"epsilon_inside": True}, "Adamax": {}, "Adadelta": {},
    },
    "torch": {"Adamax": {"epsilon_in_max": True}},
}  # fmt: skip


@pytest.mark.parametrize("framework", ["torch", "keras"])
@pytest.mark.parametrize("op", list(OPTIMIZER))
def test_an_optimizer_as_the_fix_writes_it(op: str, framework: str) -> None:
    """The call that "another optimizer" tells, run two updates, is the canonical formula with these settings."""
    text = words(cause("op", op, "Lion", OPTIMIZER[op], {}, to=framework))[3]
    w, gradients = np.array([0.5, -1.0, 2.0]), [np.array([0.1, -0.2, 0.3]), np.array([-0.3, 0.1, 0.2])]
    attrs = {**OPTIMIZER[op], **OWN_WAY[framework].get(op, {})}
    wanted = optimizers.updates(op, attrs, w, gradients, [0.1, 0.1])[-1]
    if framework == "torch":
        p = nn.Parameter(torch.tensor(w))
        optimizer = eval(text, dict(NAMES, parameters=[p]))  # noqa: S307
        for g in gradients:
            p.grad = torch.tensor(g)
            optimizer.step()
        got = p.detach().numpy()
    else:
        v = keras.Variable(w, dtype="float64")
        optimizer = eval(text, dict(NAMES))  # noqa: S307
        optimizer.build([v])
        for g in gradients:
            optimizer.apply([keras.ops.convert_to_tensor(g, dtype="float64")])
        got = keras.ops.convert_to_numpy(v)
    assert got == pytest.approx(wanted, rel=1e-5, abs=1e-7), text


def test_a_fix_that_leaves_a_value_open_says_so() -> None:
    """Where the cause does not tell the reference's value, none is made up."""
    c = cause("variant", "CrossEntropy", "label_smoothing_missing", None, {"label_smoothing": 0.0}, to="torch")
    assert words(c)[2:] == (
        "The candidate smooths its targets by 0, the reference by another value.",
        "nn.CrossEntropyLoss(..., label_smoothing=...)",
    )


def test_a_class_of_the_users_own_is_not_called_one_of_the_framework() -> None:
    c = cause("attr", "CrossEntropy", "label_smoothing", 0.1, 0.0, to="torch", cls="SmoothedLoss")
    assert words(c)[3] == "nn.CrossEntropyLoss(..., label_smoothing=0.1)"


def test_fixes_hold_no_open_braces() -> None:
    for row in TABLE:
        for text in words(row[0])[1:]:
            assert not re.search(r"\{[a-z_]+\}", text), text
