"""Cases of training, the rest: optimizers, learning rates and metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import keras  # isort: skip  (torch first)
from keras import layers, ops  # isort: skip

from tests.catalogue.case import Case, Pair
from tests.catalogue.training import (
    RATE,
    features,
    keras_net,
    real,
    scored,
    sgd,
    torch_net,
    trained,
    two_torch,  # fmt: skip
    updated,
    yes_or_no,
)

T, K, S, L = torch.optim, keras.optimizers, keras.optimizers.schedules, keras.losses
SCHED = torch.optim.lr_scheduler
TINY = 1e-30  # an epsilon that does nothing, where it is not the subject


# ------------------------------------------------------------------------------------------------------------ optimizer
def small_gradients(ours: Callable[[Any], Any], theirs: Any) -> Pair:
    """Gradients of about 1e-7."""
    loss = {"loss": lambda y, out: 1e-7 * ops.mean(ops.square(y - out))}
    return scored({"loss": lambda out, y: 1e-7 * F.mse_loss(out, y), "optimizer": ours}, {**loss, "optimizer": theirs},
                  real())  # fmt: skip


def epsilon_hat() -> Pair:
    return small_gradients(lambda p: T.Adam(p, 1e-3, eps=1e-8), K.Adam(1e-3, epsilon=1e-8))


def epsilon_default() -> Pair:
    """Two Keras models, of which one has the epsilon of torch and of TensorFlow 1: its place (O04) is the same."""
    loss = {"loss": lambda y, out: 1e-7 * ops.mean(ops.square(y - out))}
    return trained(keras_net(), keras_net(), features(), {**loss, "optimizer": K.Adam(epsilon=1e-8)},
                   {**loss, "optimizer": K.Adam()}, real())  # fmt: skip


def decay_default() -> Pair:
    return updated({"optimizer": lambda p: T.AdamW(p, eps=TINY)}, {"optimizer": K.AdamW(epsilon=TINY)})


def coupled_decay() -> Pair:
    return updated({"optimizer": lambda p: T.Adam(p, 1e-3, eps=TINY, weight_decay=0.1)},
                   {"optimizer": K.Adam(1e-3, epsilon=TINY, weight_decay=0.1)})  # fmt: skip


def rate_in_buffer() -> Pair:
    ours = {"optimizer": sgd(momentum=0.9), "scheduler": lambda o: SCHED.MultiStepLR(o, [3], 0.1)}
    return updated(ours, {"optimizer": K.SGD(S.PiecewiseConstantDecay([2], [RATE, RATE / 10]), momentum=0.9)})


def adagrad_start() -> Pair:
    return updated({"optimizer": lambda p: T.Adagrad(p, 1e-2)}, {"optimizer": K.Adagrad(1e-2)})


class BertAdam(T.Optimizer):
    """Adam of the first BERT: decoupled decay, and no correction of the bias."""

    def __init__(self, params: Any, lr: float, eps: float) -> None:
        super().__init__(params, {"lr": lr, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state |= {"m": torch.zeros_like(p), "v": torch.zeros_like(p)}
                state["m"].mul_(0.9).add_(p.grad, alpha=0.1)
                state["v"].mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
                p -= group["lr"] * state["m"] / (state["v"].sqrt() + group["eps"])


def no_bias_correction() -> Pair:
    return two_torch({"optimizer": lambda p: T.AdamW(p, 1e-3, eps=1e-12, weight_decay=0.0)},
                     {"optimizer": lambda p: BertAdam(p, 1e-3, 1e-12)})  # fmt: skip


def decayed_norm() -> Pair:
    """No decay for biases and norms; the pattern of the port does not fit the names of its norm."""

    def groups(p: list[nn.Parameter]) -> Any:
        plain = [q for q in p if q.ndim == 1]
        return T.AdamW([{"params": [q for q in p if q.ndim > 1]}, {"params": plain, "weight_decay": 0.0}], 1e-2,
                       eps=TINY, weight_decay=0.1)  # fmt: skip

    x = features()
    reference = nn.Sequential(nn.Linear(8, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 3)).eval()
    norm = layers.LayerNormalization(epsilon=1e-5, name="LayerNorm")
    candidate = keras.Sequential([layers.Dense(6), norm, layers.Activation("tanh"), layers.Dense(3)])
    optimizer = K.AdamW(1e-2, epsilon=TINY, weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_names=["layer_norm", "bias"])
    return trained(reference, candidate, x, {"loss": nn.MSELoss(), "optimizer": groups},
                   {"loss": "mse", "optimizer": optimizer}, real())  # fmt: skip


def nadam() -> Pair:
    return updated({"optimizer": lambda p: T.NAdam(p, 1e-3, eps=1e-7)}, {"optimizer": K.Nadam(1e-3, epsilon=1e-7)})


def rate_default() -> Pair:
    return updated({"optimizer": lambda p: T.SGD(p)}, {"optimizer": K.SGD()})


# ------------------------------------------------------------------------------------------------------------- schedule
class ByEpoch:
    """A scheduler that the loop steps at the end of an epoch of some updates."""

    def __init__(self, scheduler: Any, updates: int) -> None:
        self.scheduler, self.updates, self.done = scheduler, updates, 0

    def step(self) -> None:
        self.done += 1
        if self.done % self.updates == 0:
            self.scheduler.step()


def scheduled(ours: Callable[[Any], Any], theirs: Any) -> Pair:
    return updated({"optimizer": sgd(), "scheduler": ours}, {"optimizer": K.SGD(theirs)})


def after_the_end() -> Pair:
    return scheduled(lambda o: SCHED.CosineAnnealingLR(o, 4), S.CosineDecay(RATE, 4))


def epoch_or_step() -> Pair:
    return scheduled(lambda o: ByEpoch(SCHED.ExponentialLR(o, 0.5), 6), S.ExponentialDecay(RATE, 1, 0.5))


def continuous_decay() -> Pair:
    return scheduled(lambda o: SCHED.StepLR(o, 2, 0.5), S.ExponentialDecay(RATE, 2, 0.5))


# --------------------------------------------------------------------------------------------------------------- metric
def reported_penalty() -> Pair:
    """The same updates; what is printed as loss holds the penalty on one side."""
    more = {n: keras.regularizers.L2(0.5) for n in ("kernel_regularizer", "bias_regularizer")}
    candidate = keras_net(**more)
    candidate.compile(K.SGD(RATE), "mse")
    ours = {"loss": nn.MSELoss(), "optimizer": sgd(weight_decay=1.0)}
    return trained(torch_net(), candidate, features(), ours, {}, real())


def mean_of_batches() -> Pair:
    """Ten samples in batches of 4: the last one has 2."""

    def by_batch(y: Any, out: Any) -> float:
        return float(np.mean([np.abs(np.asarray(y - out)[i : i + 4]).mean() for i in (0, 4, 8)]))

    return scored({"metric": lambda out, y: (out - y).abs().mean()}, {"metric": by_batch}, real(10))


def repeated_samples() -> Pair:
    """Five items on two ranks: the first is seen by both."""

    def by_rank(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.stack([(out - y)[rank].abs().mean() for rank in ([0, 2, 4], [1, 3, 0])]).mean()

    return two_torch({"metric": lambda out, y: (out - y).abs().mean()}, {"metric": by_rank}, real(5))


def exact_area(out: torch.Tensor, y: torch.Tensor) -> float:
    """By counting pairs."""
    scores, positive = out.reshape(-1), y.reshape(-1) > 0.5
    a, b = scores[positive][:, None], scores[~positive][None, :]
    return float(((a > b).float() + 0.5 * (a == b).float()).mean())


def clicks(theirs: Any, samples: int = 400) -> Pair:
    """Predicted clicks, most of them below 0.15; one in ten is one."""
    reference = torch_net(1, nn.Sigmoid())
    with torch.no_grad():
        reference[2].bias.fill_(-3.0)
    y = (np.random.default_rng(9).random((samples, 1)) < 0.1).astype(np.float32)
    return trained(reference, keras_net(1, "sigmoid"), features(samples), {"metric": exact_area}, {"metric": theirs}, y)


def area_of_classes() -> Pair:
    def of_classes(y: Any, out: Any) -> float:
        return exact_area(torch.tensor(np.array(out) > 0.5).float(), torch.tensor(np.array(y)))

    return scored({"metric": exact_area}, {"metric": of_classes}, yes_or_no(64), 1, "sigmoid")


def threshold_on_logits() -> Pair:
    return scored({"metric": lambda out, y: ((out > 0) == (y > 0.5)).float().mean()},
                  {"metric": keras.metrics.BinaryAccuracy()}, yes_or_no(64), 1)  # fmt: skip


def padding_in_the_mean() -> Pair:
    """One sample of three is padding: the loss divides by three, as the metric does not."""
    x, y, kept = features(3), real(3), np.array([1.0, 1.0, 0.0], np.float32)
    return trained(keras_net(), keras_net(), x, {"loss": L.MeanAbsoluteError(reduction="mean_with_sample_weight")},
                   {"loss": L.MeanAbsoluteError()}, None, batches=[(x, y, kept)])  # fmt: skip


CASES: list[Case] = [
    Case("O04", "Adam epsilon is epsilon-hat in TF", epsilon_hat, ("AMB332",)),
    Case("O05", "Adam epsilon default 1e-7 against 1e-8", epsilon_default, ("AMB331",)),
    Case("O06", "AdamW default weight decay 0.01 against 0.004", decay_default, ("AMB334",)),
    Case("O07", "weight_decay of Adam: coupled or decoupled", coupled_decay, ("AMB333",)),
    Case("O10", "Momentum buffer contains the learning rate", rate_in_buffer, ("AMB336",)),
    Case("O11", "Adagrad initial accumulator 0 against 0.1", adagrad_start, ("AMB316",)),
    Case("O12", "Adam without bias correction in BERT", no_bias_correction, ("AMB337",)),
    Case("O13", "Weight-decay exclusion by name fails", decayed_norm, ("AMB317",)),
    Case("O15", "Nadam formulas differ", nadam, ("AMB316",)),
    Case("O16", "SGD default learning rate 0.01 against 0.001", rate_default, ("AMB330",)),
    Case("S03", "Cosine after the last step", after_the_end, ("AMB356",)),
    Case("S04", "Unit of decay: epoch or step", epoch_or_step, ("AMB354",),
         note="found: AMB359; a scheduler of one's own is not tried as the candidate's at every n-th update"),
    Case("S05", "Continuous or staircase exponential decay", continuous_decay, ("AMB351",)),
    Case("S06", "ReduceLROnPlateau threshold relative or absolute", not_here="run",
         note="both wait for the losses of epochs"),
    Case("L16", "Reported loss includes regularisation", reported_penalty, ("AMB381",),
         note="found: nothing; the losses of the steps are compared without penalties"),
    Case("D03", "Mean of batch means with a short last batch", mean_of_batches, ("AMB366",),
         note="found: AMB369; means of batch means are not tried"),
    Case("D04", "DistributedSampler repeats samples", repeated_samples, ("AMB366",),
         note="found: AMB369; repeated samples are not tried"),
    Case("ME01", "AUC on a fixed grid of 200 thresholds", lambda: clicks(keras.metrics.AUC()), ("AMB360",)),
    Case("ME03", "String accuracy resolves to another function / threshold on logits", threshold_on_logits,
         ("AMB362",)),
    Case("ME04", "AUC of thresholded predictions", area_of_classes, ("AMB362", "AMB365"),
         note="found: AMB369, which names it as not tried"),
    Case("ME07", "Training metric is a running mean in train mode", not_here="run", note="a mean over an epoch"),
    Case("ME08", "Metric ignores padding, loss does not", padding_in_the_mean, ("AMB320",)),
]  # fmt: skip
