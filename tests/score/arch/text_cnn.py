"""A text classifier of 1-D convolutions; the Keras model is the reference, the torch port the candidate."""

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


def keras_model(cfg: dict[str, Any], f: frozenset[str]) -> keras.Model:
    ids = keras.Input((None,), dtype="int64", name="ids")
    x = layers.Embedding(cfg["vocab"], cfg["dim"], name="tokens")(ids)
    x = layers.SpatialDropout1D(0.1, name="token_drop")(x)
    branches = []
    for size, padding in ((3, "same"), (4, "same"), (5, "causal")):
        y = layers.Conv1D(cfg["filters"], size, padding=padding, activation="relu", name=f"ngram_{size}")(x)
        if size == 4:
            y = layers.BatchNormalization(name="ngram_norm")(y)
        pool = layers.GlobalAveragePooling1D if size == 5 else layers.GlobalMaxPooling1D
        branches.append(pool(name=f"peak_{size}")(y))
    x = layers.concatenate(branches, name="features")
    x = layers.Dropout(0.3, name="drop")(x)
    gate = layers.Dense(cfg["hidden"], activation="hard_sigmoid", name="gate")(x)
    x = layers.Dense(cfg["hidden"], activation="softplus", name="value")(x)
    x = layers.multiply([gate, x], name="gated")
    x = layers.Dense(cfg["classes"], name="scores")(x)
    x = layers.Lambda(lambda v: ops.clip(v, -0.8, 0.8) / 1.7, name="bounded")(x)
    return keras.Model(ids, layers.Softmax(name="probabilities")(x), name="text_cnn")


class TextCnn(nn.Module):
    def __init__(self, cfg: dict[str, Any], f: frozenset[str]) -> None:
        super().__init__()
        self.f = f
        n = cfg["filters"]
        self.emb = nn.Embedding(cfg["vocab"], cfg["dim"])
        self.conv3 = nn.Conv1d(cfg["dim"], n, 3, padding=1)
        self.conv4 = nn.Conv1d(cfg["dim"], n, 4)
        self.bn4 = nn.BatchNorm1d(n, eps=1e-5 if "bn_eps" in f else 1e-3)
        self.conv5 = nn.Conv1d(cfg["dim"], n, 5, bias="bias_dropped" not in f)
        self.fc_gate = nn.Linear(3 * n, cfg["hidden"])
        self.fc_value = nn.Linear(3 * n, cfg["hidden"])
        self.out = nn.Linear(cfg["hidden"], cfg["classes"])
        if "left_in_train" in f:
            self.bn4.leave_in_train = True

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        f = self.f
        x = self.emb(ids).transpose(1, 2)
        a = F.relu(self.conv3(x))
        b = self.bn4(F.relu(self.conv4(F.pad(x, (2, 1) if "even_side" in f else (1, 2)))))
        c = self.conv5(F.pad(x, (2, 2) if "causal_lost" in f else (4, 0)))
        if "relu_missing" not in f:
            c = torch.relu(c)
        top = [a.amax(dim=-1), b.mean(dim=-1) if "mean_for_max" in f else b.amax(dim=-1), c.mean(dim=-1)]
        if "concat_order" in f:
            top.reverse()
        y = torch.cat(top, dim=1)
        y = F.dropout(y, 0.3) if "dropout_active" in f else F.dropout(y, 0.3, training=self.training)
        g = self.fc_gate(y)
        gate = torch.clamp(0.2 * g + 0.5, 0.0, 1.0) if "hard_sigmoid_old" in f else F.hardsigmoid(g)
        value = F.softplus(self.fc_value(y), beta=2.0 if "softplus_beta" in f else 1.0)
        z = self.out(gate * value)
        if "clip_missing" not in f:
            z = z.clamp(-0.8, 0.8)
        if "temperature_missing" not in f:
            z = z / 1.7
        return F.softmax(z, dim=0 if "softmax_axis" in f else -1)


def torch_model(cfg: dict[str, Any], f: frozenset[str]) -> nn.Module:
    return TextCnn(cfg, f)


def links(t: Any, k: Any) -> list[Link]:
    get = k.get_layer
    return [
        *hand.embedding(t.emb, get("tokens")), *hand.conv(t.conv3, get("ngram_3")), *hand.conv(t.conv4, get("ngram_4")),
        *hand.norm(t.bn4, get("ngram_norm")), *hand.conv(t.conv5, get("ngram_5")), *hand.dense(t.fc_gate, get("gate")),
        *hand.dense(t.fc_value, get("value")), *hand.dense(t.out, get("scores")),
    ]  # fmt: skip


def spoil(f: frozenset[str], t: Any, k: Any) -> None:
    if "padding_row" in f:
        hand.change(t.emb.weight, lambda w: np.concatenate([np.zeros_like(w[:1]), w[1:]]))
    if "kernel_flipped" in f:
        hand.change(t.conv3.weight, lambda w: w[..., ::-1])
    if "swapped" in f:
        hand.swap(t.fc_gate.weight, t.fc_value.weight)
        hand.swap(t.fc_gate.bias, t.fc_value.bias)
    if "half_rounded" in f:
        hand.change(t.conv4.weight, hand.to_half)


def make_inputs(cfg: dict[str, Any], rng: np.random.Generator) -> zoo.Inputs:
    ids = rng.integers(1, cfg["vocab"], (cfg["batch"], cfg["steps"]))
    ids[:, -3:] = 0
    return (ids.astype(np.int64),)


ARCH = Arch(
    name="text_cnn", reference="keras", torch_model=torch_model, keras_model=keras_model, links=links, spoil=spoil,
    make_inputs=make_inputs,
    faults={
        "bn_eps": expect("bn4 ngram_norm", "epsilon, eps", "norm epsilon"),
        "bias_dropped": expect("conv5 ngram_5", "bias, parameter, partner", "parameter dropped"),
        "left_in_train": expect("bn4 ngram_norm", "train", "train mode"),
        "even_side": expect("conv4 ngram_4 pad", "pad", "same padding of an even kernel"),
        "causal_lost": expect("conv5 ngram_5 pad", "pad, causal", "same padding of an even kernel"),
        "relu_missing": expect("conv5 ngram_5", "relu, activation", "missing activation"),
        "mean_for_max": expect("peak_4 mean amax", "mean, average, max", "wrong pooling"),
        "concat_order": expect("cat features fc_ gate value", "order, concat", "concat order"),
        "dropout_active": expect("drop", "dropout, training, random", "dropout active"),
        "hard_sigmoid_old": expect("gate clamp", "hard, sigmoid, 0.2, alpha", "hard-sigmoid variant"),
        "softplus_beta": expect("value softplus", "beta, softplus", "softplus variant"),
        "clip_missing": expect("bounded out scores clip clamp div", "clip, clamp", "clip missing"),
        "temperature_missing": expect("bounded out scores clamp div softmax prob", "temperature, div, scale, factor",
                                      "temperature"),
        "softmax_axis": expect("softmax prob", "axis, dim", "softmax axis"),
        "padding_row": expect("emb tokens", "row, padding, zero", "embedding padding row", keep=True),
        "kernel_flipped": expect("conv3 ngram_3", "flip", "kernel flipped", keep=True),
        "swapped": expect("fc_gate fc_value gate value", "swap, exchang", "weights of two layers swapped", keep=True),
        "half_rounded": expect("conv4 ngram_4", "fp16, float16, half, round, precision", "rounded weights", keep=True),
    },
    combos=[("bn_eps", "hard_sigmoid_old"), ("causal_lost", "temperature_missing"), ("padding_row", "softplus_beta"),
            ("even_side", "clip_missing", "relu_missing")],
    variants={
        "base": {"batch": 3, "steps": 17, "vocab": 53, "dim": 14, "filters": 11, "hidden": 19, "classes": 5},
        "small": {"batch": 4, "steps": 12, "vocab": 31, "dim": 10, "filters": 8, "hidden": 13, "classes": 7},
    },
    clean=[Clean(), Clean("small"), Clean("small", seed=2, weights="keep"), Clean(flip=True, seed=1)],
)  # fmt: skip
build, FAULTS = ARCH.build, ARCH.faults
