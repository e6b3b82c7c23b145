"""Image and table together: nested functional models, a Sequential and a subclassed layer in one Keras model."""

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


class Mixed(nn.Module):
    def __init__(self, w: int, columns: int, hidden: int) -> None:
        super().__init__()
        self.image = nn.Sequential(
            nn.Conv2d(3, w, 3, padding=1), nn.InstanceNorm2d(w, affine=True), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(w, w, 3, padding=1, groups=2), nn.LeakyReLU(0.05), nn.AdaptiveAvgPool2d((3, 4)), nn.Flatten(),
            nn.Linear(12 * w, hidden), nn.Tanh(),
        )  # fmt: skip
        self.table = nn.ModuleDict({
            "norm": nn.BatchNorm1d(columns, affine=False), "lin": nn.Linear(columns, hidden), "act": nn.SiLU(),
        })  # fmt: skip
        self.gate = nn.Linear(2 * hidden, hidden)
        self.mix = nn.Parameter(torch.tensor(0.3))
        self.head = nn.Sequential(nn.LayerNorm(hidden), nn.Dropout(0.1), nn.Linear(hidden, hidden), nn.Hardswish(),
                                  nn.Linear(hidden, 6))  # fmt: skip

    def forward(self, image: torch.Tensor, table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a = self.image(image)
        b = self.table["act"](self.table["lin"](self.table["norm"](table)))
        g = torch.sigmoid(self.gate(torch.cat([a, b], dim=1)))
        x = g * a + (1 - g) * b + self.mix * a * b
        return F.softmax(self.head(x), dim=1), x.clamp(-0.9, 0.9)


def torch_model(cfg: dict[str, Any], f: frozenset[str]) -> nn.Module:
    return Mixed(cfg["filters"], cfg["columns"], cfg["hidden"])


class Columns(layers.Layer):
    """The table's branch. ``activation`` is a setting that one of the faults ignores."""

    def __init__(self, hidden: int, activation: str, f: frozenset[str], **more: Any) -> None:
        super().__init__(**more)
        self.f = f
        affine = "extra_affine" in f
        self.standard = layers.BatchNormalization(center=affine, scale=affine, name="standard",
                                                  epsilon=1e-3 if "table_eps" in f else 1e-5)  # fmt: skip
        self.wide = layers.Dense(hidden, name="wide")
        self.act = keras.activations.get("relu" if "config_ignored" in f else activation)

    def build(self, shape: Any) -> None:
        self.standard.build(shape)
        self.wide.build(shape)

    def call(self, x: Any, training: bool = False) -> Any:
        flag = True if "norm_training" in self.f else training
        return self.act(self.wide(self.standard(x, training=flag)))


class Blend(layers.Layer):
    def __init__(self, hidden: int, f: frozenset[str], **more: Any) -> None:
        super().__init__(**more)
        self.f = f
        self.gate = layers.Dense(hidden, activation="tanh" if "gate_activation" in f else "sigmoid", name="gate")

    def build(self, shapes: Any) -> None:
        self.gate.build((None, shapes[0][-1] + shapes[1][-1]))
        self.strength = self.add_weight(shape=(), initializer="zeros", name="strength")

    def call(self, inputs: Any) -> Any:
        a, b = inputs
        f = self.f
        g = self.gate(ops.concatenate([b, a] if "concat_order" in f else [a, b], axis=-1))
        mixed = a * (1 - g) + g * b if "gate_inverted" in f else g * a + (1 - g) * b
        return mixed if "product_missing" in f else mixed + self.strength * a * b


class PerImage(layers.Layer):
    """Normalises every image and channel alone."""

    def __init__(self, epsilon: float, f: frozenset[str], **more: Any) -> None:
        super().__init__(**more)
        self.epsilon, self.f = epsilon, f

    def build(self, shape: Any) -> None:
        self.gamma = self.add_weight(shape=(shape[-1],), initializer="ones", name="gamma")
        self.beta = self.add_weight(shape=(shape[-1],), initializer="zeros", name="beta")

    def call(self, x: Any) -> Any:
        axes = (1, 2, 3) if "instance_axes" in self.f else (1, 2)
        mean, variance = ops.moments(x, axes=axes, keepdims=True)
        root = ops.sqrt(variance) + self.epsilon if "epsilon_outside" in self.f else ops.sqrt(variance + self.epsilon)
        return (x - mean) / root * self.gamma + self.beta


def keras_model(cfg: dict[str, Any], f: frozenset[str]) -> keras.Model:
    w, hidden = cfg["filters"], cfg["hidden"]
    pixels = keras.Input((12, 16, 3), name="pixels")
    x = layers.Conv2D(w, 3, padding="same", name="look_1")(pixels)
    x = PerImage(1e-3 if "epsilon_outside" in f else 1e-5, f, name="per_image")(x)
    x = layers.Activation("relu", name="look_act")(x)
    x = layers.MaxPooling2D(2, name="look_pool")(x)
    x = layers.Conv2D(w, 3, padding="same", groups=2, name="look_2")(x)
    x = layers.LeakyReLU(negative_slope=0.2 if "slope" in f else 0.05, name="look_leaky")(x)
    x = layers.AveragePooling2D((2, 2), name="look_grid")(x)
    if "flatten_order" not in f:
        x = layers.Permute((3, 1, 2), name="look_perm")(x)
    x = layers.Flatten(name="look_flat")(x)
    x = layers.Dense(hidden, activation="tanh", name="look_out")(x)
    vision = keras.Model(pixels, x, name="vision")
    head = keras.Sequential(
        [
            layers.LayerNormalization(epsilon=1e-3 if "head_eps" in f else 1e-5, name="head_norm"),
            layers.Dense(hidden, activation="swish" if "head_activation" in f else "hard_swish", name="head_1"),
            layers.Dropout(0.1, name="head_drop"),
            layers.Dense(6, name="head_2"),
            layers.Softmax(axis=0 if "softmax_axis" in f else -1, name="head_prob"),
        ],
        name="head",
    )
    image = keras.Input((12, 16, 3), name="image")
    table = keras.Input((cfg["columns"],), name="table")
    columns = Columns(hidden, "silu", f, name="columns")(table)
    z = Blend(hidden, f, name="blend")([vision(image), columns])
    side = z if "clip_missing" in f else layers.Lambda(lambda v: ops.clip(v, -0.9, 0.9), name="side")(z)
    return keras.Model([image, table], [head(z), side], name="mixed")


def links(t: Any, k: Any) -> list[Link]:
    vision, head = k.get_layer("vision").get_layer, k.get_layer("head").get_layer
    columns, blend = k.get_layer("columns"), k.get_layer("blend")
    return [
        *hand.conv(t.image[0], vision("look_1")), *hand.norm(t.image[1], vision("per_image")),
        *hand.conv(t.image[4], vision("look_2")), *hand.dense(t.image[8], vision("look_out")),
        hand.linked(t.table["norm"].running_mean, columns.standard.moving_mean),
        hand.linked(t.table["norm"].running_var, columns.standard.moving_variance),
        *hand.dense(t.table["lin"], columns.wide), *hand.dense(t.gate, blend.gate), hand.linked(t.mix, blend.strength),
        *hand.norm(t.head[0], head("head_norm")), *hand.dense(t.head[2], head("head_1")),
        *hand.dense(t.head[4], head("head_2")),
    ]  # fmt: skip


def spoil(f: frozenset[str], t: Any, k: Any) -> None:
    if "stats_left" in f:
        hand.change(k.get_layer("columns").standard.moving_variance, np.ones_like)
        hand.change(k.get_layer("columns").standard.moving_mean, np.zeros_like)
    if "kernel_reshaped" in f:
        kernel = k.get_layer("vision").get_layer("look_1").kernel
        hand.change(kernel, lambda w: w.transpose(3, 2, 0, 1).reshape(w.shape))
    if "stale" in f:
        hand.change(k.get_layer("blend").gate.kernel, hand.stale)


def make_inputs(cfg: dict[str, Any], rng: np.random.Generator) -> zoo.Inputs:
    image = rng.standard_normal((cfg["batch"], 3, 12, 16)).astype(np.float32)
    return image, rng.standard_normal((cfg["batch"], cfg["columns"])).astype(np.float32)


ARCH = Arch(
    name="mixed", reference="torch", torch_model=torch_model, keras_model=keras_model, links=links, spoil=spoil,
    make_inputs=make_inputs, keras_from_torch_inputs=zoo.images_to_keras, torch_from_keras_inputs=zoo.images_to_torch,
    faults={
        "table_eps": expect("columns standard table.norm", "epsilon, eps", "norm epsilon"),
        "head_eps": expect("head_norm head.0", "epsilon, eps", "norm epsilon"),
        "epsilon_outside": expect("per_image image.1", "epsilon, eps, sqrt", "norm epsilon"),
        "instance_axes": expect("per_image image.1", "axis, axes, instance, layer, channel", "axis of a normalisation"),
        "slope": expect("look_leaky image.5", "slope, alpha", "LeakyReLU slope"),
        "flatten_order": expect("look_flat look_out image.7 image.8", "flatten, order, layout, NHWC", "Flatten order"),
        "config_ignored": expect("columns table", "silu, swish, relu, activation", "wrong activation"),
        # Keras hands training=True of one call on to the layers called after it: the dropout becomes active as well
        "norm_training": expect("columns standard table.norm head_drop", "train, batch statistic, dropout",
                                "train mode"),
        "extra_affine": expect("columns standard table.norm", "gamma, beta, scale, bias, parameter, partner, extra",
                               "extra parameter", silent=True),
        "gate_activation": expect("blend gate sigmoid", "sigmoid, tanh, activation", "wrong activation"),
        "concat_order": expect("blend gate cat", "order, concat", "concat order"),
        "gate_inverted": expect("blend mul sub add gate", "swap, order, invert, input, operand, exchang, wrong tensor",
                                "inputs swapped"),
        "product_missing": expect("blend mix mul add strength", "missing, Mul, add, parameter, unused, partner",
                                  "operator missing"),
        "head_activation": expect("head_1 head.3 head.2", "swish, silu, activation", "wrong activation"),
        "softmax_axis": expect("head_prob softmax", "axis, dim", "softmax axis"),
        "clip_missing": expect("side clamp blend ^$ add", "clip, clamp", "clip missing"),
        "stats_left": expect("columns standard table.norm", "statistic, running, moving, mean, var",
                             "BatchNorm statistics", keep=True),
        "kernel_reshaped": expect("look_1 image.0", "transpos, reshap, permut, layout", "kernel transposed", keep=True),
        "stale": expect("gate", "weight, kernel, stale", "stale weight", keep=True),
    },
    combos=[("table_eps", "slope"), ("config_ignored", "head_eps"), ("stats_left", "kernel_reshaped"),
            ("instance_axes", "gate_activation", "head_eps"), ("flatten_order", "head_activation")],
    variants={
        "base": {"batch": 3, "filters": 10, "columns": 7, "hidden": 18},
        "more": {"batch": 5, "filters": 8, "columns": 11, "hidden": 23},
    },
    clean=[Clean(), Clean("more"), Clean("more", seed=2, weights="keep"), Clean(flip=True)],
)  # fmt: skip
build, FAULTS = ARCH.build, ARCH.faults
