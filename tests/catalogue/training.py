"""Cases behind the forward pass: losses and gradients. Optimizers, rates and metrics are in ``training_more``."""

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
from tests.catalogue.elsewhere import KerasNet, Net, pair, rng

Parts = dict[str, Any]
T, K, L = torch.optim, keras.optimizers, keras.losses
RATE = 2.0**-4
SAMPLES = 16


def features(samples: int = SAMPLES, width: int = 8) -> np.ndarray:
    return rng().standard_normal((samples, width)).astype(np.float32)


def real(samples: int = SAMPLES, outputs: int = 3) -> np.ndarray:
    return np.random.default_rng(9).standard_normal((samples, outputs)).astype(np.float32)


def classes(samples: int = SAMPLES, outputs: int = 3) -> np.ndarray:
    return np.random.default_rng(9).integers(0, outputs, samples)


def yes_or_no(samples: int = SAMPLES) -> np.ndarray:
    return np.random.default_rng(9).integers(0, 2, (samples, 1)).astype(np.float32)


def torch_net(outputs: int = 3, end: nn.Module | None = None) -> nn.Module:
    rng()  # from one seed
    return nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, outputs), *([end] if end else [])).eval()


def keras_net(outputs: int = 3, end: str | None = None, **more: Any) -> keras.Model:
    rng()
    hidden, out = layers.Dense(6, activation="tanh", **more), layers.Dense(outputs, activation=end, **more)
    return keras.Sequential([keras.Input((8,)), hidden, out])


def trained(reference: Any, candidate: Any, x: Any, ours: Parts, theirs: Parts, targets: Any, **more: Any) -> Pair:
    made = pair(reference, candidate, x)
    made.more = {"training": {"reference": ours, "candidate": theirs, **more}, "targets": targets}
    return made


def scored(ours: Parts, theirs: Parts, targets: Any, outputs: int = 3, end: str | None = None) -> Pair:
    """The same network with a loss or a metric on each side."""
    ends = {"softmax": nn.Softmax(-1), "sigmoid": nn.Sigmoid()}
    reference = torch_net(outputs, ends[end] if end else None)
    return trained(reference, keras_net(outputs, end), features(len(targets)), ours, theirs, targets)


def updated(ours: Parts, theirs: Parts) -> Pair:
    """The same network and loss with an optimizer on each side."""
    return scored({"loss": nn.MSELoss(), **ours}, {"loss": "mse", **theirs}, real())


def two_torch(ours: Parts, theirs: Parts, targets: Any | None = None) -> Pair:
    """The same network in torch twice."""
    loss = {"loss": nn.MSELoss()}
    targets = real() if targets is None else targets
    return trained(torch_net(), torch_net(), features(len(targets)), {**loss, **ours}, {**loss, **theirs}, targets)


def sgd(**more: Any) -> Callable[[Any], Any]:
    return lambda p: T.SGD(p, RATE, **more)


# ----------------------------------------------------------------------------------------------------------------- loss
def logits_as_probabilities() -> Pair:
    return scored({"loss": nn.BCEWithLogitsLoss()}, {"loss": L.BinaryCrossentropy()}, yes_or_no(), 1)


def softmax_twice() -> Pair:
    """Both models end in softmax; the loss of the port applies its own."""
    return trained(keras_net(end="softmax"), torch_net(end=nn.Softmax(-1)), features(),
                   {"loss": L.SparseCategoricalCrossentropy()}, {"loss": nn.CrossEntropyLoss()}, classes())  # fmt: skip


def padded_labels() -> np.ndarray:
    y = classes()
    y[::4] = -100
    return y


def other_sentinel() -> Pair:
    """Labels with -100; the port looks for -1, and takes what it does not know for class 0, as TF models did."""

    def masked(y: Any, out: Any) -> Any:
        kept = ops.cast(y != -1, "float32")
        items = ops.sparse_categorical_crossentropy(ops.maximum(y, 0), out, from_logits=True)
        return ops.sum(items * kept) / ops.sum(kept)

    return scored({"loss": nn.CrossEntropyLoss()}, {"loss": masked}, padded_labels())


def ctc_mean() -> Pair:
    """Utterances of 7 frames with 2 and 3 labels; torch divides each by its length before the mean."""
    x = rng().standard_normal((4, 7, 5)).astype(np.float32)
    y = np.array([[1, 2, 0], [3, 1, 2], [2, 3, 0], [1, 3, 1]])

    def reference(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        frames = torch.full((len(out),), out.shape[1])
        return F.ctc_loss(out.log_softmax(-1).transpose(0, 1), y, frames, (y != 0).sum(1))

    return trained(Net(lambda m, x: m.out(x), out=nn.Linear(5, 4)).eval(), keras.Sequential([layers.Dense(4)]), x,
                   {"loss": reference}, {"loss": L.CTC()}, y)  # fmt: skip


def kl_mean() -> Pair:
    y = np.array([[0.2, 0.8], [0.5, 0.5], [0.9, 0.1], [0.35, 0.65]], np.float32)
    return scored({"loss": lambda out, y: F.kl_div(out.log(), y)}, {"loss": "kl_divergence"}, y, 2, "softmax")


def beta_as_delta() -> Pair:
    return scored({"loss": nn.SmoothL1Loss(beta=2.0)}, {"loss": L.Huber(delta=2.0)}, 3 * real())


def cosine_offset() -> Pair:
    near = nn.CosineEmbeddingLoss()
    return scored({"loss": lambda out, y: near(out, y, torch.ones(len(y)))}, {"loss": L.CosineSimilarity()}, real())


def broadcast() -> Pair:
    return trained(keras_net(1), torch_net(1), features(3), {"loss": "mse"}, {"loss": nn.MSELoss()}, real(3, 1)[:, 0])


def cut_logits() -> Pair:
    """A language model that returns its logits without the last step, as it needs them for its own loss."""
    ids = rng().integers(0, 11, (3, 7))
    i = keras.Input((7,), dtype="int32")
    x = layers.Dense(11)(layers.LSTM(6, return_sequences=True)(layers.Embedding(11, 5)(i)))
    candidate = keras.Model(i, x[:, :-1])
    reference = Net(lambda m, x: m.out(m.lstm(m.emb(x))[0]), emb=nn.Embedding(11, 5),
                    lstm=nn.LSTM(5, 6, batch_first=True), out=nn.Linear(6, 11))  # fmt: skip
    return pair(reference.eval(), candidate, ids)


# ------------------------------------------------------------------------------------------------------------- gradient
def padding_row() -> Pair:
    ids = rng().integers(0, 11, (SAMPLES, 7))
    reference = Net(lambda m, x: m.out(m.emb(x).sum(1)), emb=nn.Embedding(11, 5, padding_idx=0), out=nn.Linear(5, 3))
    candidate = KerasNet(lambda m, x: m.out(ops.sum(m.emb(x), 1)), emb=layers.Embedding(11, 5, mask_zero=True),
                         out=layers.Dense(3))  # fmt: skip
    return trained(reference.eval(), candidate, ids, {"loss": nn.MSELoss(), "optimizer": sgd()},
                   {"loss": "mse", "optimizer": K.SGD(RATE)}, real())  # fmt: skip


def l2_as_decay() -> Pair:
    more = {n: keras.regularizers.L2(1e-2) for n in ("kernel_regularizer", "bias_regularizer")}
    ours = {"loss": nn.MSELoss(), "optimizer": sgd(weight_decay=1e-2)}
    return trained(torch_net(), keras_net(**more), features(), ours, {"loss": "mse", "optimizer": K.SGD(RATE)}, real())


def clip_by_group() -> Pair:
    def groups(p: Any) -> None:
        nn.utils.clip_grad_norm_(p[:2], 1.0)
        nn.utils.clip_grad_norm_(p[2:], 1.0)

    ours = {"optimizer": sgd(), "clip": lambda p: nn.utils.clip_grad_norm_(p, 1.0)}
    theirs = {"optimizer": lambda p: T.SGD([{"params": p[:2]}, {"params": p[2:]}], RATE), "clip": groups}
    return two_torch(ours, theirs, 10 * real())


def short_batches() -> Pair:
    """Twelve samples as 10 and 2: the reference divides by 12 in all, the port by each batch's own number."""
    x, y = features(12), classes(12)
    batches = [(x[:10], y[:10]), (x[10:], y[10:])]
    ours = {"loss": lambda out, y: F.cross_entropy(out, y, reduction="sum") / 6, "accumulate": 2, "optimizer": sgd()}
    theirs = {"loss": L.SparseCategoricalCrossentropy(from_logits=True),
              "optimizer": K.SGD(RATE, gradient_accumulation_steps=2)}  # fmt: skip
    return trained(torch_net(), keras_net(), x[:10], ours, theirs, None, batches=batches)


def no_division() -> Pair:
    x, y = features(), real()
    batches = [(x[i : i + 4], y[i : i + 4]) for i in range(0, 16, 4)]
    return trained(keras_net(), torch_net(), x[:4],
                   {"loss": "mse", "optimizer": K.SGD(RATE, gradient_accumulation_steps=4)},
                   {"loss": nn.MSELoss(), "optimizer": sgd(), "accumulate": 4, "divide": False}, None,
                   batches=batches)  # fmt: skip


def singular_point() -> Pair:
    """Square roots of a table that has zeros in it, chosen by where."""
    ids = rng().integers(0, 11, (SAMPLES, 7))
    table = np.abs(np.random.default_rng(5).standard_normal((11, 5))).astype(np.float32)
    table[::3, 1] = 0.0

    def reference(m: Any, x: torch.Tensor) -> torch.Tensor:
        e = m.emb(x)
        return m.out(torch.where(e > 0, e.sqrt(), 0.0).mean(1))

    def candidate(m: Any, x: Any) -> Any:
        e = m.emb(x)
        return m.out(ops.mean(ops.where(e > 0, ops.sqrt(e), 0.0), 1))

    ours = Net(reference, emb=nn.Embedding(11, 5, _weight=torch.tensor(table)), out=nn.Linear(5, 3))
    theirs = KerasNet(candidate, emb=layers.Embedding(11, 5), out=layers.Dense(3))
    return trained(ours.eval(), theirs, ids, {"loss": nn.MSELoss(), "optimizer": sgd()},
                   {"loss": "mse", "optimizer": K.SGD(RATE)}, real())  # fmt: skip


def penalised_tables() -> Pair:
    """A click model: the reference decays the embedding and its layers, the port only the layers."""
    ids = rng().integers(0, 11, (SAMPLES, 4))
    reference = Net(lambda m, x: m.out(torch.relu(m.deep(m.emb(x).flatten(1)))), emb=nn.Embedding(11, 5),
                    deep=nn.Linear(20, 6), out=nn.Linear(6, 1))  # fmt: skip
    more = {n: keras.regularizers.L2(5e-2) for n in ("kernel_regularizer", "bias_regularizer")}
    candidate = KerasNet(lambda m, x: m.out(ops.relu(m.deep(ops.reshape(m.emb(x), (-1, 20))))),
                         emb=layers.Embedding(11, 5), deep=layers.Dense(6, **more),
                         out=layers.Dense(1, **more))  # fmt: skip
    return trained(reference.eval(), candidate, ids,
                   {"loss": nn.BCEWithLogitsLoss(), "optimizer": sgd(weight_decay=0.1)},
                   {"loss": L.BinaryCrossentropy(True), "optimizer": K.SGD(RATE)}, yes_or_no())  # fmt: skip


def replica_sum() -> Pair:
    """Two replicas, each with a batch of its own: the mean of their gradients, or their sum."""
    x, y = features(), real()
    batches = [(x[:8], y[:8]), (x[8:], y[8:])]
    ours = {"loss": nn.MSELoss(), "optimizer": sgd(), "accumulate": 2}
    return trained(torch_net(), torch_net(), x[:8], ours, {**ours, "divide": False}, None, batches=batches)


def rank_means() -> Pair:
    """Two ranks with 10 and 2 tokens: the mean of all tokens, or of the ranks' means."""
    x = rng().standard_normal((2, 10, 8)).astype(np.float32)
    y = np.random.default_rng(9).integers(0, 3, (2, 10))
    y[1, 2:] = -100

    def means(y: Any, out: Any) -> Any:
        kept = ops.cast(y != -100, "float32")
        items = ops.sparse_categorical_crossentropy(ops.maximum(y, 0), out, from_logits=True)
        return ops.mean(ops.sum(items * kept, 1) / ops.sum(kept, 1))

    reference = Net(lambda m, x: m.out(torch.tanh(m.a(x))), a=nn.Linear(8, 6), out=nn.Linear(6, 3))
    candidate = keras.Sequential([layers.Dense(6, activation="tanh"), layers.Dense(3)])
    ours = {"loss": lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten())}
    return trained(reference.eval(), candidate, x, ours, {"loss": means}, y)


CASES: list[Case] = [
    Case("L01", "Logits handed to a loss that expects probabilities", logits_as_probabilities, ("AMB322",)),
    Case("L02", "Softmax applied twice", softmax_twice, ("AMB322",)),
    Case("L05", "ignore label -1 or -100", other_sentinel, ("AMB325",),
         note="found: AMB329; a mask for another sentinel, with the rest as class 0, is none of the known forms"),
    Case("L06", "CTC mean also divides by target length", ctc_mean, ("AMB324",),
         note="found: AMB329; CTC has no form of its own"),
    Case("L08", "KLDivLoss mean divides by all elements", kl_mean, ("AMB324",)),
    Case("L09", "smooth L1 beta is not Huber delta", beta_as_delta, ("AMB326", "AMB328")),
    Case("L11", "Cosine loss sign and offset", cosine_offset, ("AMB390",)),
    Case("L13", "(N,1) against (N,) broadcasts to N x N", broadcast, ("AMB327",)),
    Case("L14", "Label shift and returned logits", cut_logits, ("AMB194",),
         note="found: AMB100; outputs of another length are not paired, so nothing is tried"),
    Case("E01", "padding_idx row zero and frozen, mask_zero row random and trained", padding_row, ("AMB371", "AMB304")),
    Case("L15", "L2 regulariser is twice the weight decay", l2_as_decay, ("AMB334",)),
    Case("G02", "Clipping per parameter group", clip_by_group, ("AMB341",),
         note="found: AMB349, which names clipping by parameter group as not tried"),
    Case("G04", "Accumulation averages means of unequal micro-batches", short_batches, ("AMB347",),
         note="found: AMB329 on the first batch; several batches together are not judged"),
    Case("G05", "Accumulation without division", no_division, ("AMB345",)),
    Case("G08", "Gradient at singular points", singular_point, ("AMB375",),
         note="found: nothing; a NaN in the reference's gradient makes its own limit NaN"),
    Case("G09", "Approximate GELU gradient diverged CPU/GPU", not_here="gpu", note="a kernel of one old version"),
    Case("RE02", "L2 covers different tables", penalised_tables, ("AMB317",)),
    Case("DI01", "Replica sum against replica mean", replica_sum, ("AMB345", "AMB324")),
    Case("DI04", "Ranks weighed equally though token counts differ", rank_means, ("AMB347",),
         note="found: AMB329; means of ragged rows are not among the known forms"),
]  # fmt: skip
