"""What both adapters say of losses, optimizers, clippings, schedules and metrics, against what those really compute:
the canonical formula with the described attributes must give the framework's own numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler as sched

from ambidex.adapters import keras_, torch_
from ambidex.engine.stages import clips, losses, metrics, optimizers, schedules

RNG = np.random.default_rng(3)
LOGITS = RNG.standard_normal((12, 5)).astype(np.float32)
IDS = RNG.integers(0, 5, 12)
ONE_HOT = np.eye(5, dtype=np.float32)[IDS]
SOFT = RNG.dirichlet(np.ones(5), 12).astype(np.float32)
PROBABILITIES = RNG.dirichlet(np.ones(5), 12).astype(np.float32)
SIGMOID = RNG.uniform(0.02, 0.98, (12, 3)).astype(np.float32)
BINARY = RNG.integers(0, 2, (12, 3)).astype(np.float32)
REAL = RNG.standard_normal((12, 3)).astype(np.float32)
OTHER = RNG.standard_normal((12, 3)).astype(np.float32)
WEIGHTS = [0.5, 2.0, 1.0, 3.0, 0.25]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.tanh(self.a(x)))


def torch_trainer(**given: Any) -> Any:
    torch.manual_seed(0)
    return torch_.trainer(torch_.wrap(Net()), given)


def keras_trainer(**given: Any) -> Any:
    keras.utils.set_random_seed(0)
    x = i = keras.Input((4,))
    x = keras.layers.Dense(6, activation="tanh", name="a")(x)
    model = keras.Model(i, keras.layers.Dense(3, name="b")(x))
    return keras_.trainer(keras_.wrap(model), given)


Maker = Callable[[], Any]
KL = keras.losses
LOSSES: dict[str, tuple[str, Maker, np.ndarray, np.ndarray, dict[str, Any]]] = {
    "ce": ("torch", nn.CrossEntropyLoss, LOGITS, IDS, {}),
    "ce function": ("torch", lambda: F.cross_entropy, LOGITS, IDS, {}),
    "ce sum": ("torch", lambda: nn.CrossEntropyLoss(reduction="sum"), LOGITS, IDS, {}),
    "ce weights": ("torch", lambda: nn.CrossEntropyLoss(torch.tensor(WEIGHTS)), LOGITS, IDS, {}),
    "ce smooth": ("torch", lambda: nn.CrossEntropyLoss(label_smoothing=0.1), LOGITS, IDS, {}),
    "ce both": ("torch", lambda: nn.CrossEntropyLoss(torch.tensor(WEIGHTS), label_smoothing=0.1), LOGITS, IDS, {}),
    "ce ignored": ("torch", lambda: nn.CrossEntropyLoss(ignore_index=2), LOGITS, IDS, {}),
    "ce ignored weights": ("torch", lambda: nn.CrossEntropyLoss(torch.tensor(WEIGHTS), ignore_index=2), LOGITS, IDS,
                           {}),
    "ce soft": ("torch", nn.CrossEntropyLoss, LOGITS, SOFT, {}),
    "ce images": ("torch", nn.CrossEntropyLoss, RNG.standard_normal((2, 4, 3, 3)).astype(np.float32),
                  RNG.integers(0, 4, (2, 3, 3)), {}),
    "nll": ("torch", nn.NLLLoss, np.log(PROBABILITIES), IDS, {}),
    "bce": ("torch", nn.BCELoss, SIGMOID, BINARY, {}),
    "bce logits": ("torch", nn.BCEWithLogitsLoss, REAL, BINARY, {}),
    "bce pos": ("torch", lambda: nn.BCEWithLogitsLoss(pos_weight=torch.tensor([5.0])), REAL, BINARY, {}),
    "mse": ("torch", nn.MSELoss, REAL, OTHER, {}),
    "mse sum": ("torch", lambda: nn.MSELoss(reduction="sum"), REAL, OTHER, {}),
    "mse broadcast": ("torch", nn.MSELoss, REAL[:, :1], OTHER[:, 0], {}),
    "l1": ("torch", nn.L1Loss, REAL, OTHER, {}),
    "huber": ("torch", lambda: nn.HuberLoss(delta=0.5), REAL, OTHER, {}),
    "smooth l1": ("torch", lambda: nn.SmoothL1Loss(beta=0.5), REAL, OTHER, {}),
    "kl mean": ("torch", nn.KLDivLoss, np.log(PROBABILITIES), SOFT, {}),
    "kl batchmean": ("torch", lambda: nn.KLDivLoss(reduction="batchmean"), np.log(PROBABILITIES), SOFT, {}),
    "kl log target": ("torch", lambda: nn.KLDivLoss(log_target=True), np.log(PROBABILITIES), np.log(SOFT), {}),
    "poisson": ("torch", nn.PoissonNLLLoss, REAL, np.abs(OTHER), {}),
    "poisson plain": ("torch", lambda: nn.PoissonNLLLoss(log_input=False), SIGMOID, np.abs(OTHER), {}),
    "k sparse": ("keras", lambda: KL.SparseCategoricalCrossentropy(from_logits=True), LOGITS, IDS, {}),
    "k sparse name": ("keras", lambda: "sparse_categorical_crossentropy", PROBABILITIES, IDS, {}),
    "k sparse probabilities": ("keras", KL.SparseCategoricalCrossentropy, 0.7 * PROBABILITIES, IDS, {}),
    "k sparse ignored": ("keras", lambda: KL.SparseCategoricalCrossentropy(True, ignore_class=2), LOGITS, IDS, {}),
    "k sparse weights": ("keras", lambda: KL.SparseCategoricalCrossentropy(from_logits=True), LOGITS, IDS,
                         {"class_weight": dict(enumerate(WEIGHTS))}),
    "k weights by sum": ("keras", lambda: KL.SparseCategoricalCrossentropy(
        from_logits=True, reduction="mean_with_sample_weight"), LOGITS, IDS,
                         {"class_weight": dict(enumerate(WEIGHTS))}),
    "k categorical": ("keras", lambda: KL.CategoricalCrossentropy(True, label_smoothing=0.1), LOGITS, ONE_HOT, {}),
    "k categorical probabilities": ("keras", KL.CategoricalCrossentropy, 0.7 * PROBABILITIES, SOFT, {}),
    "k categorical sum": ("keras", lambda: KL.CategoricalCrossentropy(True, reduction="sum"), LOGITS, ONE_HOT, {}),
    "k bce": ("keras", KL.BinaryCrossentropy, SIGMOID, BINARY, {}),
    "k bce logits": ("keras", lambda: KL.BinaryCrossentropy(True, label_smoothing=0.2), REAL, BINARY, {}),
    "k bce weights": ("keras", lambda: KL.BinaryCrossentropy(from_logits=True), REAL[:, :1], BINARY[:, :1],
                      {"class_weight": {0: 1.0, 1: 5.0}}),
    "k bce sum": ("keras", lambda: KL.BinaryCrossentropy(True, reduction="sum"), REAL, BINARY, {}),
    "k focal": ("keras", KL.BinaryFocalCrossentropy, SIGMOID, BINARY, {}),
    "k focal balanced": ("keras", lambda: KL.BinaryFocalCrossentropy(
        apply_class_balancing=True, alpha=0.3, gamma=1.5, from_logits=True), REAL, BINARY, {}),
    "k mse": ("keras", lambda: "mse", REAL, OTHER, {}),
    "k mse function": ("keras", lambda: KL.mean_squared_error, REAL, OTHER, {}),
    "k mse sum": ("keras", lambda: KL.MeanSquaredError(reduction="sum"), REAL, OTHER, {}),
    "k mae": ("keras", KL.MeanAbsoluteError, REAL, OTHER, {}),
    "k huber": ("keras", lambda: KL.Huber(0.5), REAL, OTHER, {}),
    "k log cosh": ("keras", KL.LogCosh, REAL, OTHER, {}),
    "k hinge": ("keras", KL.Hinge, REAL, BINARY, {}),
    "k categorical hinge": ("keras", KL.CategoricalHinge, LOGITS, ONE_HOT, {}),
    "k poisson": ("keras", KL.Poisson, SIGMOID, np.abs(OTHER), {}),
    "k kl": ("keras", KL.KLDivergence, PROBABILITIES, SOFT, {}),
    "k cosine": ("keras", KL.CosineSimilarity, REAL, OTHER, {}),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_what_it_is_said_to_be(name: str) -> None:
    side, make, outputs, targets, more = LOSSES[name]
    trainer = (torch_trainer if side == "torch" else keras_trainer)(loss=make(), **more)
    form, got = trainer.forms["loss"], trainer.loss({"0": outputs}, targets)
    assert form.op, form
    assert losses.value(form.op, form.attrs, outputs, targets) == pytest.approx(got.value, rel=2e-6)
    slope = losses.gradient(form.op, form.attrs, outputs, targets)
    np.testing.assert_allclose(slope, got.gradients["0"], rtol=3e-5, atol=3e-6 * np.abs(slope).max())


SAMPLE_WEIGHTS = RNG.uniform(0.2, 2.0, 12).astype(np.float32)


@pytest.mark.parametrize("name", ["k sparse", "k mse", "k bce logits", "k categorical"])
def test_sample_weights_of_keras(name: str) -> None:
    _, make, outputs, targets, more = LOSSES[name]
    trainer = keras_trainer(loss=make(), **more)
    form, got = trainer.forms["loss"], trainer.loss({"0": outputs}, targets, SAMPLE_WEIGHTS)
    assert losses.value(form.op, form.attrs, outputs, targets, SAMPLE_WEIGHTS) == pytest.approx(got.value, rel=2e-6)


@pytest.mark.parametrize("loss", [lambda y, t: ((y - t) ** 2).mean(), nn.TripletMarginLoss()])
def test_code_of_the_users_own_has_no_name(loss: Any) -> None:
    assert torch_trainer(loss=loss).forms["loss"].op == ""


def test_custom_losses_are_found_in_the_catalogue() -> None:
    own = torch_trainer(loss=lambda out, y: -(torch.log_softmax(out, -1)[torch.arange(len(y)), y]).sum())
    got = own.loss({"0": LOGITS}, IDS)
    found = [
        (op, attrs)
        for op, attrs in losses.catalogue(LOGITS, IDS)
        if losses.value(op, attrs, LOGITS, IDS) == pytest.approx(got.value, rel=1e-5)
    ]
    assert found[0] == ("CrossEntropy", {"label_smoothing": 0.0, "reduction": "sum"})


OPTIMIZERS: dict[str, tuple[str, Maker]] = {
    "sgd": ("torch", lambda: lambda p: torch.optim.SGD(p, 0.1)),
    "sgd momentum": ("torch", lambda: lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.05)),
    "sgd nesterov": ("torch", lambda: lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True)),
    "sgd dampening": ("torch", lambda: lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, dampening=0.5)),
    "adam": ("torch", lambda: lambda p: torch.optim.Adam(p, 0.01, weight_decay=0.1)),
    "amsgrad": ("torch", lambda: lambda p: torch.optim.Adam(p, 0.01, amsgrad=True)),
    "adamw": ("torch", lambda: lambda p: torch.optim.AdamW(p, 0.01)),
    "adamax": ("torch", lambda: lambda p: torch.optim.Adamax(p, 0.01)),
    "nadam": ("torch", lambda: lambda p: torch.optim.NAdam(p, 0.01)),
    "nadam decoupled": ("torch", lambda: lambda p: torch.optim.NAdam(p, 0.01, weight_decay=0.1,
                                                                      decoupled_weight_decay=True)),
    "adagrad": ("torch", lambda: lambda p: torch.optim.Adagrad(p, 0.05, lr_decay=0.1, initial_accumulator_value=0.2)),
    "rmsprop": ("torch", lambda: lambda p: torch.optim.RMSprop(p, 0.01, momentum=0.9, centered=True)),
    "adadelta": ("torch", lambda: lambda p: torch.optim.Adadelta(p, 1.0)),
    "adafactor": ("torch", lambda: lambda p: torch.optim.Adafactor(p, 0.01)),
    "k sgd": ("keras", lambda: keras.optimizers.SGD(0.1, momentum=0.9)),
    "k sgd nesterov": ("keras", lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.05)),
    "k adam": ("keras", lambda: keras.optimizers.Adam(0.01, weight_decay=0.1)),
    "k amsgrad": ("keras", lambda: keras.optimizers.Adam(0.01, amsgrad=True)),
    "k adamw": ("keras", lambda: keras.optimizers.AdamW(0.01)),
    "k adamax": ("keras", lambda: keras.optimizers.Adamax(0.01)),
    "k nadam": ("keras", lambda: keras.optimizers.Nadam(0.01)),
    "k adagrad": ("keras", lambda: keras.optimizers.Adagrad(0.05)),
    "k rmsprop": ("keras", lambda: keras.optimizers.RMSprop(0.01, momentum=0.9, centered=True)),
    "k rmsprop plain": ("keras", lambda: "rmsprop"),
    "k adadelta": ("keras", lambda: keras.optimizers.Adadelta(1.0)),
    "k adafactor": ("keras", lambda: keras.optimizers.Adafactor(0.01)),
    "k lion": ("keras", lambda: keras.optimizers.Lion(0.01)),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_is_what_it_is_said_to_be(name: str) -> None:
    side, make = OPTIMIZERS[name]
    trainer = (torch_trainer if side == "torch" else keras_trainer)(optimizer=make())
    form = trainer.forms["optimizer"]
    assert form.op, form
    adapter = torch_.wrap(trainer.module) if side == "torch" else keras_.wrap(trainer.model)
    start = {n: np.array(a) for n, a in adapter.weights().items()}
    factors = [1.0] * 8 + [0.25] * 4
    gradients = [{n: RNG.standard_normal(a.shape).astype(np.float32) for n, a in start.items()} for _ in factors]
    after = trainer.update(gradients, factors)
    for n, a in adapter.weights().items():
        np.testing.assert_array_equal(a, start[n])
    for n, a in start.items():
        rates = [form.attrs["learning_rate"] * f for f in factors]
        attrs = {**form.attrs, **form.by_weight.get(n, {})}
        wanted = optimizers.updates(form.op, attrs, a, [g[n] for g in gradients], rates)
        for got, want in zip(after, wanted, strict=True):
            np.testing.assert_allclose(got[n], want, rtol=1e-5, atol=2e-5 * np.abs(want - a).max())


def test_groups_of_parameters_are_told_by_weight() -> None:
    def make(p: list[nn.Parameter]) -> Any:
        return torch.optim.SGD([{"params": [p[0]], "weight_decay": 0.1}, {"params": p[1:3], "lr": 0.5}], lr=0.1)

    form = torch_trainer(optimizer=make).forms["optimizer"]
    assert form.attrs["weight_decay"] == 0.1
    assert form.by_weight["a.bias"] == form.by_weight["b.weight"] == {"learning_rate": 0.5, "weight_decay": 0.0}
    assert form.by_weight["b.bias"] == {"frozen": True}


def test_what_keras_leaves_out_of_the_decay_and_what_it_freezes() -> None:
    optimizer = keras.optimizers.AdamW(0.01, weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    trainer = keras_trainer(optimizer=optimizer)
    trainer.model.get_layer("b").trainable = False
    form = keras_.trainer(keras_.wrap(trainer.model), {"optimizer": optimizer}).forms["optimizer"]
    assert form.by_weight == {
        "a/bias": {"weight_decay": 0.0}, "b/kernel": {"frozen": True}, "b/bias": {"frozen": True},
    }  # fmt: skip


def test_a_penalty_of_keras_is_coupled_decay() -> None:
    x = i = keras.Input((4,))
    x = keras.layers.Dense(3, kernel_regularizer=keras.regularizers.L2(0.05), name="a")(x)
    model = keras.Model(i, x)
    trainer = keras_.trainer(keras_.wrap(model), {"optimizer": keras.optimizers.SGD(0.1, momentum=0.9)})
    assert trainer.forms["optimizer"].by_weight == {
        "a/kernel": {"weight_decay": pytest.approx(0.1), "decoupled": False}
    }
    kernel = np.array(model.get_layer("a").kernel)
    after = trainer.update([{"a/kernel": np.zeros_like(kernel), "a/bias": np.zeros(3, np.float32)}], [1.0])
    np.testing.assert_allclose(after[0]["a/kernel"], kernel - 0.1 * 0.1 * kernel, rtol=1e-5)


def chained(p: Any) -> None:
    for one in p:
        nn.utils.clip_grad_norm_([one], 0.5)


CLIPS: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "norm": ("torch", {"clip": lambda p: nn.utils.clip_grad_norm_(p, 0.5)}, "ClipNorm",
             {"scope": "global", "max_norm": 0.5, "epsilon": 1e-6}),
    "each": ("torch", {"clip": chained}, "ClipNorm", {"scope": "weight", "max_norm": 0.5, "epsilon": 1e-6}),
    "value": ("torch", {"clip": lambda p: nn.utils.clip_grad_value_(p, 0.3)}, "ClipValue", {"value": 0.3}),
    "k clipnorm": ("keras", {"optimizer": keras.optimizers.SGD(0.1, clipnorm=0.5)}, "ClipNorm",
                   {"scope": "weight", "max_norm": 0.5, "epsilon": 0.0}),
    "k global": ("keras", {"optimizer": keras.optimizers.SGD(0.1, global_clipnorm=0.5)}, "ClipNorm",
                 {"scope": "global", "max_norm": 0.5, "epsilon": 0.0}),
    "k value": ("keras", {"optimizer": keras.optimizers.SGD(0.1, clipvalue=0.3)}, "ClipValue", {"value": 0.3}),
}  # fmt: skip


@pytest.mark.parametrize("name", CLIPS)
def test_a_clipping_is_what_it_is_said_to_be(name: str) -> None:
    side, given, op, attrs = CLIPS[name]
    trainer = (torch_trainer if side == "torch" else keras_trainer)(**given)
    form = trainer.forms["clip"]
    assert (form.op, form.attrs) == (op, attrs)
    shapes = {"a.weight": (6, 4), "a.bias": (6,)} if side == "torch" else {"a/kernel": (4, 6), "a/bias": (6,)}
    for scale in (1e-3, 1.0, 50.0):
        gradients = {n: (scale * RNG.standard_normal(s)).astype(np.float32) for n, s in shapes.items()}
        got, want = trainer.clip(gradients), clips.clipped(op, attrs, gradients)
        for n in gradients:
            np.testing.assert_allclose(got[n], want[n], rtol=2e-5, atol=1e-9)


S = keras.optimizers.schedules
SCHEDULES: dict[str, tuple[str, Maker]] = {
    "step": ("torch", lambda: lambda o: sched.StepLR(o, 5, 0.5)),
    "exponential": ("torch", lambda: lambda o: sched.ExponentialLR(o, 0.9)),
    "multi": ("torch", lambda: lambda o: sched.MultiStepLR(o, [5, 10], 0.1)),
    "constant": ("torch", lambda: lambda o: sched.ConstantLR(o, 0.3, 4)),
    "linear": ("torch", lambda: lambda o: sched.LinearLR(o, 0.25, 1.0, 6)),
    "cosine": ("torch", lambda: lambda o: sched.CosineAnnealingLR(o, 8, eta_min=0.01)),
    "restarts": ("torch", lambda: lambda o: sched.CosineAnnealingWarmRestarts(o, 4, 2, 0.01)),
    "polynomial": ("torch", lambda: lambda o: sched.PolynomialLR(o, 10, 2.0)),
    "warm cosine": ("torch", lambda: lambda o: sched.SequentialLR(
        o, [sched.LinearLR(o, 0.1, 1.0, 5), sched.CosineAnnealingLR(o, 10)], [5])),
    "k step": ("keras", lambda: S.ExponentialDecay(0.1, 5, 0.5, staircase=True)),
    "k exponential": ("keras", lambda: S.ExponentialDecay(0.1, 5, 0.5)),
    "k piecewise": ("keras", lambda: S.PiecewiseConstantDecay([5, 10], [0.1, 0.05, 0.01])),
    "k cosine": ("keras", lambda: S.CosineDecay(0.1, 8, alpha=0.1)),
    "k warm cosine": ("keras", lambda: S.CosineDecay(0.0, 10, alpha=0.1, warmup_target=0.1, warmup_steps=5)),
    "k restarts": ("keras", lambda: S.CosineDecayRestarts(0.1, 4, m_mul=0.5, alpha=0.1)),
    "k polynomial": ("keras", lambda: S.PolynomialDecay(0.1, 10, 0.01, power=2.0)),
    "k polynomial cycle": ("keras", lambda: S.PolynomialDecay(0.1, 6, 0.01, cycle=True)),
    "k inverse": ("keras", lambda: S.InverseTimeDecay(0.1, 5, 0.5)),
}  # fmt: skip


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_is_what_it_is_said_to_be(name: str, accumulate: int) -> None:
    side, make = SCHEDULES[name]
    if side == "torch":
        trainer = torch_trainer(
            optimizer=lambda p: torch.optim.SGD(p, 0.1), scheduler=make(), accumulate=accumulate
        )  # fmt: skip
    else:
        steps = accumulate if accumulate > 1 else None
        trainer = keras_trainer(optimizer=keras.optimizers.SGD(make(), gradient_accumulation_steps=steps))
    form, base = trainer.forms["schedule"], trainer.forms["optimizer"].attrs["learning_rate"]
    assert form.op
    np.testing.assert_allclose(schedules.rates(form.op, form.attrs, base, 24), trainer.rates(24), rtol=2e-6, atol=1e-9)


KM = keras.metrics
METRICS: dict[str, tuple[Maker, np.ndarray, np.ndarray]] = {
    "auc": (KM.AUC, SIGMOID, BINARY),
    "pr": (lambda: KM.AUC(curve="PR"), SIGMOID, BINARY),
    "auc logits": (lambda: KM.AUC(from_logits=True, num_thresholds=50), REAL, BINARY),
    "binary": (KM.BinaryAccuracy, SIGMOID, BINARY),
    "binary zero": (lambda: KM.BinaryAccuracy(threshold=0.3), SIGMOID, BINARY),
    "sparse": (KM.SparseCategoricalAccuracy, LOGITS, IDS),
    "categorical": (KM.CategoricalAccuracy, LOGITS, ONE_HOT),
    "top": (lambda: KM.SparseTopKCategoricalAccuracy(2), LOGITS, IDS),
    "precision": (KM.Precision, SIGMOID, BINARY),
    "recall": (KM.Recall, SIGMOID, BINARY),
    "mse": (KM.MeanSquaredError, REAL, OTHER),
    "rmse": (KM.RootMeanSquaredError, REAL, OTHER),
}


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_is_what_it_is_said_to_be(name: str) -> None:
    make, outputs, targets = METRICS[name]
    trainer = keras_trainer(metric=make())
    form = trainer.forms["metric"]
    assert form.op
    want = metrics.value(form.op, form.attrs, outputs, targets)
    assert want == pytest.approx(trainer.metric({"0": outputs}, targets), rel=1e-5)


def test_exact_areas_are_those_of_pairs() -> None:
    """The area under ROC is the share of pairs in order, ties half (Hanley and McNeil 1982)."""
    scores, y = np.round(SIGMOID[:, 0], 1), np.array([0, 1] * 6)
    pairs = [(a > b) + 0.5 * (a == b) for a in scores[y == 1] for b in scores[y == 0]]
    assert metrics.value("AUC", {}, scores, y) == pytest.approx(np.mean(pairs))
    assert metrics.value("AUC", {}, np.tile(scores, 500), np.tile(y, 500)) == pytest.approx(np.mean(pairs))
