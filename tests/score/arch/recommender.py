"""A click predictor: embeddings, pooled history, dense features, pairwise interactions, MLP; inputs by name."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import torch
from keras import layers, ops
from torch import nn

from tests.score import hand, zoo
from tests.score.hand import Link
from tests.score.zoo import Arch, Clean, expect


class Ctr(nn.Module):
    def __init__(self, users: int, items: int, dim: int, dense: int, hidden: int) -> None:
        super().__init__()
        self.user_emb = nn.Embedding(users, dim)
        self.item_emb = nn.Embedding(items, dim, padding_idx=0)
        self.bottom = nn.Sequential(nn.Linear(dense, hidden), nn.BatchNorm1d(hidden), nn.PReLU(hidden),
                                    nn.Linear(hidden, dim))  # fmt: skip
        self.attention = nn.Sequential(nn.Linear(2 * dim, 12), nn.Sigmoid(), nn.Linear(12, 1))
        self.top = nn.Sequential(nn.Linear(6 + dim, hidden), nn.ReLU(), nn.Dropout(0.2), nn.Linear(hidden, 1))
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, user: torch.Tensor, item: torch.Tensor, history: torch.Tensor, dense: torch.Tensor) -> Any:
        u, i, h = self.user_emb(user), self.item_emb(item), self.item_emb(history)
        d = self.bottom(torch.log1p(dense))
        mask = history > 0
        pair = torch.cat([h, i.unsqueeze(1).expand_as(h)], dim=-1)
        a = self.attention(pair).squeeze(-1).masked_fill(~mask, 0.0)
        pooled = (a.unsqueeze(-1) * h).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
        stack = torch.stack([u, i, pooled, d], dim=1)
        z = torch.bmm(stack, stack.transpose(1, 2))
        rows, cols = torch.tril_indices(4, 4, offset=-1)
        x = torch.cat([d, z[:, rows, cols]], dim=1)
        return torch.sigmoid(self.top(x).squeeze(-1) + self.bias)


def torch_model(cfg: dict[str, Any], f: frozenset[str]) -> nn.Module:
    return Ctr(cfg["users"], cfg["items"], cfg["dim"], cfg["dense"], cfg["hidden"])


class HistoryPool(layers.Layer):
    def __init__(self, f: frozenset[str], **more: Any) -> None:
        super().__init__(**more)
        self.f = f
        bend = "tanh" if "wrong_activation" in f else "sigmoid"
        self.score_hidden = layers.Dense(12, activation=bend, name="score_a")
        self.score_out = layers.Dense(1, name="score_b")

    def build(self, shapes: Any) -> None:
        dim = shapes[0][-1]
        self.score_hidden.build((None, None, 2 * dim))
        self.score_out.build((None, None, 12))

    def call(self, inputs: Any) -> Any:
        clicked, target, ids = inputs
        known = ops.cast(ids > 0, clicked.dtype)
        same = ops.broadcast_to(ops.expand_dims(target, 1), ops.shape(clicked))
        joined = [same, clicked] if "concat_order" in self.f else [clicked, same]
        score = self.score_out(self.score_hidden(ops.concatenate(joined, axis=-1)))
        score = score * ops.expand_dims(known, -1)
        total = ops.sum(score * clicked, axis=1)
        if "sum_for_mean" in self.f:
            return total
        if "mean_over_padding" in self.f:
            return total / float(clicked.shape[1])
        return total / ops.maximum(ops.sum(known, axis=1, keepdims=True), 1.0)


class Interactions(layers.Layer):
    def __init__(self, f: frozenset[str], **more: Any) -> None:
        super().__init__(**more)
        self.f = f

    def call(self, vectors: Any) -> Any:
        if "upper_order" in self.f:
            pairs = [(a, b) for a in range(len(vectors)) for b in range(a + 1, len(vectors))]
        else:
            pairs = [(a, b) for a in range(len(vectors)) for b in range(a)]
        return ops.stack([ops.sum(vectors[a] * vectors[b], axis=-1) for a, b in pairs], axis=-1)


class AddBias(layers.Layer):
    def build(self, shape: Any) -> None:
        self.value = self.add_weight(shape=(1,), initializer="zeros", name="value")

    def call(self, x: Any) -> Any:
        return x + self.value


def keras_model(cfg: dict[str, Any], f: frozenset[str]) -> keras.Model:
    user = keras.Input((), dtype="int64", name="user")
    item = keras.Input((), dtype="int64", name="item")
    history = keras.Input((cfg["length"],), dtype="int64", name="history")
    dense = keras.Input((cfg["dense"],), name="dense")
    items = layers.Embedding(cfg["items"], cfg["dim"], name="item_table")
    target, clicked = items(item), items(history)
    person = layers.Embedding(cfg["users"], cfg["dim"], name="user_table")(user)
    x = dense if "log_missing" in f else layers.Lambda(ops.log1p, name="log_counts")(dense)
    x = layers.Dense(cfg["hidden"], name="counts_1")(x)
    x = layers.BatchNormalization(epsilon=1e-3 if "bn_eps" in f else 1e-5, name="counts_norm")(x)
    if "prelu_dropped" in f:
        x = layers.ReLU(name="counts_act")(x)
    else:
        x = layers.PReLU(name="counts_act")(x)
    counts = layers.Dense(cfg["dim"], name="counts_2")(x)
    pooled = HistoryPool(f, name="history_pool")([clicked, target, history])
    vectors = [person, target, target if "wrong_tensor" in f else pooled, counts]
    crossed = Interactions(f, name="cross")(vectors)
    y = layers.Concatenate(name="features")([crossed, counts] if "feature_order" in f else [counts, crossed])
    y = layers.Dense(cfg["hidden"], activation=None if "relu_missing" in f else "relu", name="top_1")(y)
    y = layers.Dense(1, name="top_2")(y)
    y = layers.Lambda(lambda v: v[:, 0], name="flat")(y)
    y = y if "bias_dropped" in f else AddBias(name="prior")(y)
    y = layers.Activation("sigmoid", name="click")(y)
    return keras.Model({"user": user, "item": item, "history": history, "dense": dense}, y, name="ctr")


def links(t: Any, k: Any) -> list[Link]:
    names = {layer.name: layer for layer in k.layers}
    found = hand.embedding(t.user_emb, names["user_table"]) + hand.embedding(t.item_emb, names["item_table"])
    found += hand.dense(t.bottom[0], names["counts_1"]) + hand.norm(t.bottom[1], names["counts_norm"])
    if hasattr(names["counts_act"], "alpha"):
        found.append(hand.linked(t.bottom[2].weight, names["counts_act"].alpha))
    found += hand.dense(t.bottom[3], names["counts_2"])
    if "history_pool" in names:
        pool = names["history_pool"]
        found += hand.dense(t.attention[0], pool.score_hidden) + hand.dense(t.attention[2], pool.score_out)
    found += hand.dense(t.top[0], names["top_1"]) + hand.dense(t.top[3], names["top_2"])
    return found + ([hand.linked(t.bias, names["prior"].value)] if "prior" in names else [])


def spoil(f: frozenset[str], t: Any, k: Any) -> None:
    if "padding_row" in f:
        noise = np.random.default_rng(3)
        table = k.get_layer("item_table").embeddings
        hand.change(table, lambda w: np.concatenate([noise.standard_normal(w[:1].shape), w[1:]]))
    if "stale_table" in f:
        hand.change(k.get_layer("user_table").embeddings, hand.stale)
    if "bf16_rounded" in f:
        hand.change(k.get_layer("top_1").kernel, hand.to_bfloat16)
    if "std_for_var" in f:
        hand.change(k.get_layer("counts_norm").moving_variance, np.sqrt)


def make_inputs(cfg: dict[str, Any], rng: np.random.Generator) -> zoo.Inputs:
    batch = len(cfg["lengths"])
    history = rng.integers(1, cfg["items"], (batch, cfg["length"]))
    for row, length in enumerate(cfg["lengths"]):
        history[row, length:] = 0
    item = rng.integers(1, cfg["items"], batch)
    item[-1] = 0  # an unknown item: the padding row itself is looked up
    return {
        "user": rng.integers(0, cfg["users"], batch).astype(np.int64),
        "item": item.astype(np.int64),
        "history": history.astype(np.int64),
        "dense": rng.gamma(1.0, 3.0, (batch, cfg["dense"])).astype(np.float32),
    }


ARCH = Arch(
    name="recommender", reference="torch", torch_model=torch_model, keras_model=keras_model, links=links, spoil=spoil,
    make_inputs=make_inputs,
    faults={
        "bn_eps": expect("counts_norm bottom.1", "epsilon, eps", "norm epsilon"),
        "log_missing": expect("log counts_1 bottom.0", "log, missing, Log, input", "operator missing"),
        "prelu_dropped": expect("counts_act bottom.2", "prelu, relu, slope, parameter, partner", "parameter dropped"),
        "wrong_activation": expect("history_pool attention", "tanh, sigmoid, activation", "wrong activation"),
        "concat_order": expect("history_pool attention.0 cat", "order, concat", "concat order"),
        "mean_over_padding": expect("history_pool div", "mask, padding, mean, div", "mean over padding"),
        "sum_for_mean": expect("history_pool div", "mean, sum, div", "sum for mean pooling"),
        "upper_order": expect("cross bmm tril cat getitem top", "order, triang, concat, permut, pair", "concat order"),
        "wrong_tensor": expect("cross stack bmm history_pool attention",
                               "wrong tensor, input, unused, stack, connect, parameter", "skip from the wrong tensor"),
        "feature_order": expect("features cat top", "order, concat", "concat order"),
        "relu_missing": expect("top_1 top", "relu, activation", "missing activation"),
        "bias_dropped": expect("prior ^bias add ^$", "bias, parameter, partner", "parameter dropped"),
        "padding_row": expect("item_table item_emb", "row, padding, zero", "embedding padding row", keep=True),
        "stale_table": expect("user_table user_emb", "weight, embedding, stale", "stale weight", keep=True),
        "bf16_rounded": expect("top_1 top.0", "bf16, bfloat16, round, precision", "rounded weights", keep=True),
        "std_for_var": expect("counts_norm bottom.1", "std, deviation, sqrt, variance, moving_variance",
                              "running std for variance", keep=True),
    },
    combos=[("bn_eps", "mean_over_padding"), ("wrong_activation", "feature_order"), ("padding_row", "relu_missing"),
            ("stale_table", "bf16_rounded", "sum_for_mean"), ("prelu_dropped", "bias_dropped", "concat_order")],
    variants={
        "base": {"users": 31, "items": 43, "dim": 16, "dense": 7, "hidden": 24, "length": 6, "lengths": (6, 3, 1, 4)},
        "deep": {"users": 19, "items": 27, "dim": 11, "dense": 5, "hidden": 18, "length": 9, "lengths": (9, 2, 5)},
    },
    clean=[Clean(), Clean("deep"), Clean("deep", seed=2, weights="keep"), Clean(flip=True)],
)  # fmt: skip
build, FAULTS = ARCH.build, ARCH.faults
