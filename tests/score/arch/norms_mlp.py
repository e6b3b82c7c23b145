"""An MLP through every kind of normalisation and many activations, on images of a few channels and on vectors."""

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


class NormMlp(nn.Module):
    def __init__(self, features: int, width: int, groups: int) -> None:
        super().__init__()
        self.inp = nn.Linear(features, width)
        self.bn = nn.BatchNorm1d(width, eps=1e-4)
        self.fc1 = nn.Linear(width, width)
        self.ln = nn.LayerNorm(width)
        self.fc2 = nn.Linear(width, width)
        self.rms = nn.RMSNorm(width, eps=1e-5)
        self.fc3 = nn.Linear(width, width)
        self.gn = nn.GroupNorm(groups, width, eps=1e-5)
        self.fc4 = nn.Linear(width, width)
        self.act4 = nn.LeakyReLU(0.15)
        self.fc5 = nn.Linear(width, width)
        self.act5 = nn.Softplus(beta=1.5)
        self.out = nn.Linear(width, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.bn(self.inp(x)))
        x = x + F.mish(self.fc1(self.ln(x)))
        x = F.silu(self.fc2(x))
        x = self.rms(x)
        x = F.selu(self.fc3(x))
        x = self.act4(self.fc4(self.gn(x)))
        x = self.act5(self.fc5(x))
        return self.out(F.normalize(x, dim=-1)) * 3.0


def torch_model(cfg: dict[str, Any], f: frozenset[str]) -> nn.Module:
    return NormMlp(cfg["features"], cfg["width"], cfg["groups"])


class Tower(keras.Model):
    def __init__(self, cfg: dict[str, Any], f: frozenset[str]) -> None:
        super().__init__(name="tower")
        self.f = f
        width = cfg["width"]
        self.last = layers.Dense(5, name="last")
        self.e = layers.Dense(width, name="e")
        self.d = layers.Dense(width, name="d")
        group_epsilon = 1e-3 if "group_eps" in f else 1e-5
        groups = 2 if "group_count" in f else cfg["groups"]
        self.grouped = layers.GroupNormalization(groups, epsilon=group_epsilon, name="grouped")
        self.c = layers.Dense(width, activation="elu" if "elu_for_selu" in f else "selu", name="c")
        self.root = layers.RMSNormalization(epsilon=1e-3 if "rms_eps" in f else 1e-5, name="root")
        self.b = layers.Dense(width, activation="swish", name="b")
        self.a = layers.Dense(width, activation="softplus" if "mish_missing" in f else "mish", name="a")
        self.layered = layers.LayerNormalization(epsilon=1e-3 if "layer_eps" in f else 1e-5, name="layered",
                                                 center="beta_dropped" not in f)  # fmt: skip
        self.batched = layers.BatchNormalization(epsilon=1e-3 if "batch_eps" in f else 1e-4, name="batched",
                                                 scale="gamma_dropped" not in f)  # fmt: skip
        self.first = layers.Dense(width, name="first")
        self.slope = layers.LeakyReLU(name="slope") if "slope_default" in f else layers.LeakyReLU(0.15, name="slope")

    def call(self, x: Any, training: bool = False) -> Any:
        f = self.f
        x = self.first(x)
        if "order_swapped" in f:
            x = self.batched(ops.tanh(x), training=training)
        else:
            x = ops.tanh(self.batched(x, training=training))
        y = self.a(self.layered(x))
        x = y if "residual_missing" in f else x + y
        x = self.root(self.b(x))
        x = self.c(x)
        x = self.slope(self.d(self.grouped(x)))
        z = self.e(x)
        x = ops.softplus(z) if "softplus_beta" in f else ops.softplus(1.5 * z) / 1.5
        if "normalize_axis" in f:
            x = ops.normalize(x, axis=0)
        elif "normalize_missing" not in f:
            x = ops.normalize(x, axis=-1)
        x = self.last(x)
        return x if "scale_missing" in f else 3.0 * x


def keras_model(cfg: dict[str, Any], f: frozenset[str]) -> keras.Model:
    return Tower(cfg, f)


def links(t: Any, k: Any) -> list[Link]:
    found: list[Link] = []
    ours = t.inp, t.fc1, t.fc2, t.fc3, t.fc4, t.fc5, t.out
    for a, b in zip(ours, (k.first, k.a, k.b, k.c, k.d, k.e, k.last), strict=True):
        found += hand.dense(a, b)
    for a, b in ((t.bn, k.batched), (t.ln, k.layered), (t.gn, k.grouped)):
        found += hand.norm(a, b)
    return [*found, hand.linked(t.rms.weight, k.root.scale)]


def spoil(f: frozenset[str], t: Any, k: Any) -> None:
    if "kernel_transposed" in f:
        hand.change(k.b.kernel, np.transpose)
    if "swapped" in f:
        hand.swap(k.c.kernel, k.d.kernel)
        hand.swap(k.c.bias, k.d.bias)
    if "bf16_rounded" in f:
        hand.change(k.e.kernel, hand.to_bfloat16)
    if "gain_left" in f:
        hand.change(k.root.scale, np.ones_like)


def make_inputs(cfg: dict[str, Any], rng: np.random.Generator) -> zoo.Inputs:
    return (rng.standard_normal((cfg["batch"], cfg["features"])).astype(np.float32),)


ARCH = Arch(
    name="norms_mlp", reference="torch", torch_model=torch_model, keras_model=keras_model, links=links, spoil=spoil,
    make_inputs=make_inputs,
    faults={
        "batch_eps": expect("batched ^bn", "epsilon, eps", "norm epsilon"),
        "layer_eps": expect("layered ^ln", "epsilon, eps", "norm epsilon"),
        "group_eps": expect("grouped ^gn", "epsilon, eps", "norm epsilon"),
        "rms_eps": expect("root ^rms", "epsilon, eps", "norm epsilon"),
        "group_count": expect("grouped ^gn", "group", "group count"),
        "elu_for_selu": expect("^c$ /c fc3 selu", "selu, elu, activation", "wrong activation"),
        "mish_missing": expect("^a$ /a fc1 mish", "mish, softplus, activation", "wrong activation"),
        "slope_default": expect("slope act4", "slope, alpha", "LeakyReLU slope"),
        "softplus_beta": expect("softplus act5 ^e /e fc5", "beta, softplus", "softplus variant"),
        "beta_dropped": expect("layered ^ln", "bias, beta, parameter, partner", "parameter dropped"),
        "gamma_dropped": expect("batched ^bn", "gamma, scale, weight, parameter, partner", "parameter dropped"),
        "order_swapped": expect("batched ^bn tanh", "order, swap, before, after", "layer order swapped"),
        "residual_missing": expect("add fc1 ^a$ /a mish", "residual, skip, add", "residual missing"),
        "normalize_axis": expect("normal norm out last linalg", "axis, dim", "axis of a normalisation"),
        "normalize_missing": expect("normal norm out last div linalg", "normal, missing, norm", "operator missing"),
        "scale_missing": expect("out last mul ^$", "scale, factor, multipl, Mul, constant", "scaling constant missing"),
        "kernel_transposed": expect("^b$ /b fc2", "transpos", "kernel transposed", keep=True),
        "swapped": expect("^[cd]$ /[cd] fc3 fc4", "swap, exchang", "weights of two layers swapped", keep=True),
        "bf16_rounded": expect("^e$ /e fc5", "bf16, bfloat16, round, precision", "rounded weights", keep=True),
        "gain_left": expect("root rms", "weight, scale, gain, initial, not loaded", "stale weight", keep=True),
    },
    combos=[("batch_eps", "layer_eps", "group_eps", "rms_eps"), ("slope_default", "softplus_beta"),
            ("kernel_transposed", "group_eps"), ("order_swapped", "scale_missing"),
            ("beta_dropped", "elu_for_selu", "rms_eps")],
    variants={
        "base": {"batch": 5, "features": 13, "width": 24, "groups": 4},
        "narrow": {"batch": 3, "features": 9, "width": 18, "groups": 3},
    },
    clean=[Clean(), Clean("narrow"), Clean("narrow", seed=2, weights="keep"), Clean(flip=True), Clean(seed=4)],
)  # fmt: skip
build, FAULTS = ARCH.build, ARCH.faults
