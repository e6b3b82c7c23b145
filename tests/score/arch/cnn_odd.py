"""An image classifier on odd sizes: strided padding, groups, dilation, ceil-mode pooling, NCHW flatten."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import torch
import torch.nn.functional as F
from keras import layers
from torch import nn

from tests.score import hand, zoo
from tests.score.hand import Link
from tests.score.zoo import Arch, Clean, expect


class OddNet(nn.Module):
    def __init__(self, channels: int, width: int, flat: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, width, 3, stride=2, padding=1)
        self.bn = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, 20, 5, padding=2, groups=2)
        self.pool = nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False)
        self.conv3 = nn.Conv2d(20, 22, 3, padding=2, dilation=2)
        self.maxpool = nn.MaxPool2d(2, ceil_mode=True)
        self.fc1 = nn.Linear(flat, 32)
        self.fc2 = nn.Linear(32, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.leaky_relu(self.bn(self.stem(x)), 0.1)
        x = F.relu6(self.conv2(x))
        x = self.pool(x)
        x = F.gelu(self.conv3(x), approximate="tanh")
        x = torch.flatten(self.maxpool(x), 1)
        return self.fc2(F.silu(self.fc1(x)))


def torch_model(cfg: dict[str, Any], f: frozenset[str]) -> nn.Module:
    def halved(n: int) -> int:
        return (n + 1) // 2

    sides = [halved(halved(halved(n))) for n in (cfg["height"], cfg["width_px"])]
    return OddNet(cfg["channels"], cfg["filters"], 22 * sides[0] * sides[1], cfg["classes"])


def keras_model(cfg: dict[str, Any], f: frozenset[str]) -> keras.Model:
    image = keras.Input((cfg["height"], cfg["width_px"], cfg["channels"]), name="image")
    if "same_stride" in f:
        x = layers.Conv2D(cfg["filters"], 3, strides=2, padding="same", name="entry")(image)
    else:
        x = layers.ZeroPadding2D(1, name="entry_pad")(image)
        x = layers.Conv2D(cfg["filters"], 3, strides=2, name="entry")(x)
    x = layers.BatchNormalization(epsilon=1e-3 if "bn_eps" in f else 1e-5, name="entry_bn")(x)
    x = layers.LeakyReLU(negative_slope=0.3 if "leaky_slope" in f else 0.1, name="entry_act")(x)
    x = layers.Conv2D(20, 5, padding="same", groups=1 if "groups" in f else 2, name="wide")(x)
    x = layers.ReLU(max_value=None if "relu6" in f else 6.0, name="wide_act")(x)
    if "pool_counts_padding" in f:
        x = layers.ZeroPadding2D(1, name="smooth_pad")(x)
        x = layers.AveragePooling2D(3, strides=2, name="smooth")(x)
    else:
        x = layers.AveragePooling2D(3, strides=2, padding="same", name="smooth")(x)
    x = layers.Conv2D(22, 3, padding="same", dilation_rate=1 if "dilation" in f else 2, name="holes")(x)
    x = layers.Lambda(lambda v: keras.ops.gelu(v, approximate="gelu_erf" not in f), name="holes_act")(x)
    if "pool_border_zero" in f:
        x = layers.ZeroPadding2D(((0, x.shape[1] % 2), (0, x.shape[2] % 2)), name="squeeze_pad")(x)
        x = layers.MaxPooling2D(2, name="squeeze")(x)
    else:
        x = layers.MaxPooling2D(2, padding="same", name="squeeze")(x)
    if "flatten_order" not in f:
        x = layers.Permute((3, 1, 2), name="channels_first")(x)
    x = layers.Flatten(name="flat")(x)
    act = "relu" if "wrong_activation" in f else None if "missing_activation" in f else "swish"
    x = layers.Dense(32, activation=act, name="hidden")(x)
    return keras.Model(image, layers.Dense(cfg["classes"], name="logits")(x), name="odd_net")


def links(t: Any, k: Any) -> list[Link]:
    get = k.get_layer
    return [
        *hand.conv(t.stem, get("entry")), *hand.norm(t.bn, get("entry_bn")), *hand.conv(t.conv2, get("wide")),
        *hand.conv(t.conv3, get("holes")), *hand.dense(t.fc1, get("hidden")), *hand.dense(t.fc2, get("logits")),
    ]  # fmt: skip


def spoil(f: frozenset[str], t: Any, k: Any) -> None:
    if "kernel_hw_swapped" in f:
        hand.change(k.get_layer("holes").kernel, lambda w: w.transpose(1, 0, 2, 3))
    if "kernel_flipped" in f:
        hand.change(k.get_layer("wide").kernel, lambda w: w[::-1, ::-1])
    if "bn_stats_left" in f:
        hand.change(k.get_layer("entry_bn").moving_mean, np.zeros_like)
        hand.change(k.get_layer("entry_bn").moving_variance, np.ones_like)


def make_inputs(cfg: dict[str, Any], rng: np.random.Generator) -> zoo.Inputs:
    shape = (cfg["batch"], cfg["channels"], cfg["height"], cfg["width_px"])
    return ((4.0 * rng.standard_normal(shape)).astype(np.float32),)


ARCH = Arch(
    name="cnn_odd", reference="torch", torch_model=torch_model, keras_model=keras_model, links=links, spoil=spoil,
    make_inputs=make_inputs, keras_from_torch_inputs=zoo.images_to_keras, torch_from_keras_inputs=zoo.images_to_torch,
    faults={
        "same_stride": expect("entry stem", "same, pad", "same padding with stride"),
        "bn_eps": expect("entry_bn bn", "epsilon, eps", "norm epsilon"),
        "leaky_slope": expect("entry_act leaky", "slope, alpha", "LeakyReLU slope"),
        "groups": expect("wide conv2", "group", "conv groups"),
        "relu6": expect("wide_act relu6", "relu6, clip, max", "ReLU6 or ReLU"),
        "pool_counts_padding": expect("smooth pool", "count_include_pad, pad, border", "pooling borders"),
        "dilation": expect("holes conv3", "dilation", "conv dilation"),
        "gelu_erf": expect("holes_act gelu", "approximate, gelu, erf, tanh", "GELU variant"),
        "pool_border_zero": expect("squeeze maxpool", "pad, border, zero, -inf", "pooling borders"),
        "flatten_order": expect("flat hidden fc1", "flatten, order, layout, NHWC", "Flatten order"),
        "wrong_activation": expect("hidden fc1 silu", "relu, swish, silu, activation", "wrong activation"),
        "missing_activation": expect("hidden fc1 silu", "activation, silu, swish", "missing activation"),
        "kernel_hw_swapped": expect("holes conv3", "transpos, swap, permut, layout", "kernel transposed", keep=True),
        "kernel_flipped": expect("wide conv2", "flip", "kernel flipped", keep=True),
        "bn_stats_left": expect("entry_bn bn", "statistic, running, moving, mean, var", "BatchNorm statistics",
                                keep=True),
    },
    combos=[("bn_eps", "leaky_slope"), ("same_stride", "relu6", "gelu_erf"), ("kernel_flipped", "dilation"),
            ("bn_eps", "pool_border_zero", "wrong_activation", "relu6")],
    variants={
        "base": {"batch": 3, "channels": 3, "height": 26, "width_px": 29, "filters": 16, "classes": 7},
        "wide": {"batch": 2, "channels": 1, "height": 34, "width_px": 21, "filters": 18, "classes": 5},
    },
    clean=[Clean(), Clean("wide"), Clean(seed=2, weights="keep"), Clean(flip=True)],
)  # fmt: skip
build, FAULTS = ARCH.build, ARCH.faults
