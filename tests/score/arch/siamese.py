"""Two texts through one shared encoder: a layer that is called twice."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import torch
import torch.nn.functional as F
from keras import layers, ops
from torch import nn

from tests.score import hand, zoo
from tests.score.hand import Link
from tests.score.zoo import Arch, Clean, expect


class Tower(nn.Module):
    def __init__(self, vocab: int, dim: int, hidden: int) -> None:
        super().__init__()
        self.emb = nn.EmbeddingBag(vocab, dim, mode="mean")
        self.fc1 = nn.Linear(dim, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.fc2 = nn.Linear(hidden, hidden)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.norm(self.fc1(self.emb(ids))))
        return self.fc2(x) + x


class Siamese(nn.Module):
    def __init__(self, vocab: int, dim: int, hidden: int) -> None:
        super().__init__()
        self.tower = Tower(vocab, dim, hidden)
        self.merge = nn.Linear(3 * hidden, hidden)
        self.out = nn.Linear(hidden, 1)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = self.tower(left), self.tower(right)
        cosine = F.cosine_similarity(a, b, dim=-1) / 0.5
        y = torch.cat([torch.abs(a - b), a * b, b], dim=-1)
        return torch.sigmoid(self.out(F.relu(self.merge(y)))), cosine


def torch_model(cfg: dict[str, Any], f: frozenset[str]) -> nn.Module:
    return Siamese(cfg["vocab"], cfg["dim"], cfg["hidden"])


def keras_model(cfg: dict[str, Any], f: frozenset[str]) -> keras.Model:
    def encoder(name: str) -> keras.Model:
        ids = keras.Input((None,), dtype="int64")
        x = layers.Embedding(cfg["vocab"], cfg["dim"], name="vectors")(ids)
        pool = layers.GlobalMaxPooling1D if "max_for_mean" in f else layers.GlobalAveragePooling1D
        x = pool(name="bag")(x)
        x = layers.Dense(cfg["hidden"], use_bias="bias_dropped" not in f, name="inner")(x)
        x = layers.LayerNormalization(epsilon=1e-3 if "norm_eps" in f else 1e-5, name="inner_norm")(x)
        if "gelu_tanh" in f:
            x = layers.Lambda(ops.gelu, name="inner_act")(x)
        else:
            x = layers.Activation("gelu", name="inner_act")(x)
        y = layers.Dense(cfg["hidden"], name="outer")(x)
        if "residual_missing" not in f:
            y = layers.Add(name="plus")([y, x])
        return keras.Model(ids, y, name=name)

    left = keras.Input((None,), dtype="int64", name="left")
    right = keras.Input((None,), dtype="int64", name="right")
    shared = encoder("shared")
    other = encoder("second_tower") if "unshared" in f else shared
    a, b = shared(left), other(right)
    if "inputs_swapped" in f:
        a, b = b, a
    cosine = layers.Dot(axes=1, normalize="cosine_unnormalised" not in f, name="cosine")([a, b])
    factor = 1.0 if "temperature_missing" in f else 2.0
    cosine = layers.Lambda(lambda v: v[:, 0] * factor, name="cosine_scaled")(cosine)
    gap = layers.Subtract(name="gap")([a, b])
    if "abs_missing" not in f:
        gap = layers.Lambda(ops.abs, name="distance")(gap)
    product = layers.Multiply(name="product")([a, b])
    parts = [product, gap, b] if "concat_order" in f else [gap, product, b]
    y = layers.Concatenate(name="joined")(parts)
    y = layers.Dense(cfg["hidden"], activation="tanh" if "wrong_activation" in f else "relu", name="mixer")(y)
    y = layers.Dense(1, activation=None if "sigmoid_missing" in f else "sigmoid", name="same")(y)
    return keras.Model([left, right], [y, cosine], name="siamese")


def links(t: Any, k: Any) -> list[Link]:
    get = k.get_layer("shared").get_layer
    return [
        hand.linked(t.tower.emb.weight, get("vectors").embeddings), *hand.dense(t.tower.fc1, get("inner")),
        *hand.norm(t.tower.norm, get("inner_norm")), *hand.dense(t.tower.fc2, get("outer")),
        *hand.dense(t.merge, k.get_layer("mixer")), *hand.dense(t.out, k.get_layer("same")),
    ]  # fmt: skip


def spoil(f: frozenset[str], t: Any, k: Any) -> None:
    if "stale" in f:
        hand.change(k.get_layer("mixer").kernel, hand.stale)
    if "kernel_transposed" in f:
        hand.change(k.get_layer("shared").get_layer("outer").kernel, np.transpose)


def make_inputs(cfg: dict[str, Any], rng: np.random.Generator) -> zoo.Inputs:
    sizes = cfg["left"], cfg["right"]
    return tuple(rng.integers(0, cfg["vocab"], (cfg["batch"], size)).astype(np.int64) for size in sizes)


ARCH = Arch(
    name="siamese", reference="torch", torch_model=torch_model, keras_model=keras_model, links=links, spoil=spoil,
    make_inputs=make_inputs,
    faults={
        "max_for_mean": expect("bag tower.emb", "mean, average, max, pool", "wrong pooling"),
        "bias_dropped": expect("inner fc1", "bias, parameter, partner", "parameter dropped"),
        "norm_eps": expect("inner_norm tower.norm", "epsilon, eps", "norm epsilon"),
        "gelu_tanh": expect("inner_act gelu tower", "approximate, gelu, tanh, erf", "GELU variant"),
        "residual_missing": expect("plus outer tower", "residual, skip, add", "residual missing"),
        "unshared": expect("second_tower shared tower", "shared, extra, parameter, partner, twice", "extra parameter"),
        "inputs_swapped": expect("shared tower left right vectors emb gap cosine joined mixer merge",
                                 "swap, exchang, input, order", "inputs swapped"),
        "cosine_unnormalised": expect("cosine", "normal, norm", "operator missing"),
        "temperature_missing": expect("cosine div", "temperature, scale, factor, constant, div, mul", "temperature"),
        "abs_missing": expect("distance gap abs mixer merge", "abs", "operator missing"),
        "concat_order": expect("joined cat mixer merge", "order, concat", "concat order"),
        "wrong_activation": expect("mixer merge relu", "relu, tanh, activation", "wrong activation"),
        "sigmoid_missing": expect("same out sigmoid", "sigmoid, activation", "missing activation"),
        "stale": expect("mixer merge", "weight, kernel, stale", "stale weight", keep=True),
        "kernel_transposed": expect("outer fc2", "transpos", "kernel transposed", keep=True),
    },
    combos=[("norm_eps", "wrong_activation"), ("gelu_tanh", "stale"),
            ("concat_order", "kernel_transposed", "norm_eps")],
    variants={
        "base": {"batch": 3, "left": 7, "right": 11, "vocab": 41, "dim": 16, "hidden": 22},
        "same": {"batch": 5, "left": 6, "right": 6, "vocab": 29, "dim": 13, "hidden": 17},
    },
    clean=[Clean(), Clean("same"), Clean("same", seed=2, weights="keep"), Clean(flip=True)],
)  # fmt: skip
build, FAULTS = ARCH.build, ARCH.faults
