"""A small ResNet: BasicBlocks with a strided one, scaled residuals, global pooling."""

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


class BasicBlock(nn.Module):
    def __init__(self, cin: int, cout: int, stride: int = 1, scale: float = 1.0) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.relu = nn.ReLU(inplace=True)
        self.scale = scale
        self.downsample = None
        if stride != 1 or cin != cout:
            self.downsample = nn.Sequential(nn.Conv2d(cin, cout, 1, stride=stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out)) * self.scale
        return self.relu(out + identity)


class ResNet(nn.Module):
    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = BasicBlock(width, width)
        self.layer2 = BasicBlock(width, 2 * width, stride=2)
        self.layer3 = BasicBlock(2 * width, 2 * width, scale=0.5)
        self.fc = nn.Linear(2 * width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.max_pool2d(x, 3, stride=2, padding=1)
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean(dim=(2, 3)))


def torch_model(cfg: dict[str, Any], f: frozenset[str]) -> nn.Module:
    return ResNet(cfg["filters"], cfg["classes"])


def keras_model(cfg: dict[str, Any], f: frozenset[str]) -> keras.Model:
    def conv_bn(x: Any, filters: int, size: int, stride: int, name: str) -> Any:
        if size == 3 and stride > 1 and "same_stride" not in f:
            x = layers.ZeroPadding2D(1, name=f"{name}_pad")(x)
            padding = "valid"
        else:
            padding = "same"
        bias = name == "s3_a" and "extra_bias" in f
        x = layers.Conv2D(filters, size, stride, padding=padding, use_bias=bias, name=f"{name}_conv")(x)
        epsilon = 1e-3 if (name, "bn_eps_a") in {("s2_a", n) for n in f} else 1e-5
        if name == "s3_b" and "bn_eps_b" in f:
            epsilon = 1e-4
        training = True if name == "s1_b" and "bn_training" in f else None
        return layers.BatchNormalization(epsilon=epsilon, name=f"{name}_norm")(x, training=training)

    def stage(x: Any, filters: int, stride: int, name: str, scale: float = 1.0) -> Any:
        shortcut = x
        first = 1 if name == "s2" and "stride_moved" in f else stride
        y = conv_bn(x, filters, 3, first, f"{name}_a")
        y = layers.Activation("relu", name=f"{name}_a_act")(y)
        inner = y
        y = conv_bn(y, filters, 3, stride // first, f"{name}_b")
        if scale != 1.0 and "scale_missing" not in f:
            y = layers.Rescaling(scale, name=f"{name}_scale")(y)
        if stride != 1:
            shortcut = conv_bn(x, filters, 1, stride, f"{name}_proj")
        if name == "s3" and "skip_wrong" in f:
            shortcut = inner
        if not (name == "s3" and "residual_missing" in f):
            y = layers.Add(name=f"{name}_add")([shortcut, y])
        if name == "s1" and "relu_missing" in f:
            return y
        return layers.Activation("relu", name=f"{name}_out")(y)

    image = keras.Input((cfg["height"], cfg["width_px"], 3), name="pixels")
    x = conv_bn(image, cfg["filters"], 3, 2, "stem")
    x = layers.ReLU(name="stem_act")(x)
    if "pool_unpadded" in f:
        x = layers.MaxPooling2D(3, 2, name="stem_pool")(x)
    else:
        x = layers.ZeroPadding2D(1, name="stem_pool_pad")(x)  # after a ReLU a zero border is as good as -inf
        x = layers.MaxPooling2D(3, 2, name="stem_pool")(x)
    x = stage(x, cfg["filters"], 1, "s1")
    x = stage(x, 2 * cfg["filters"], 2, "s2")
    x = stage(x, 2 * cfg["filters"], 1, "s3", scale=0.5)
    pool = layers.GlobalMaxPooling2D if "max_for_mean" in f else layers.GlobalAveragePooling2D
    x = pool(name="gap")(x)
    x = layers.Dropout(0.2, name="drop")(x)
    return keras.Model(image, layers.Dense(cfg["classes"], use_bias="bias_dropped" not in f, name="classifier")(x))


def links(t: Any, k: Any) -> list[Link]:
    get = k.get_layer
    found = [*hand.conv(t.conv1, get("stem_conv")), *hand.norm(t.bn1, get("stem_norm"))]
    for number, block in enumerate((t.layer1, t.layer2, t.layer3), 1):
        found += hand.conv(block.conv1, get(f"s{number}_a_conv")) + hand.norm(block.bn1, get(f"s{number}_a_norm"))
        found += hand.conv(block.conv2, get(f"s{number}_b_conv")) + hand.norm(block.bn2, get(f"s{number}_b_norm"))
    found += hand.conv(t.layer2.downsample[0], get("s2_proj_conv"))
    found += hand.norm(t.layer2.downsample[1], get("s2_proj_norm"))
    return found + hand.dense(t.fc, get("classifier"))


def spoil(f: frozenset[str], t: Any, k: Any) -> None:
    get = k.get_layer
    if "bn_stats_left" in f:
        hand.change(get("s1_b_norm").moving_mean, np.zeros_like)
        hand.change(get("s1_b_norm").moving_variance, np.ones_like)
    if "std_for_var" in f:
        hand.change(get("s2_proj_norm").moving_variance, np.sqrt)
    if "stale" in f:
        hand.change(get("s3_b_conv").kernel, hand.stale)
    if "swapped" in f:
        hand.swap(get("s1_a_conv").kernel, get("s1_b_conv").kernel)
    if "half_rounded" in f:
        hand.change(get("classifier").kernel, hand.to_half)
    if "gamma_beta_left" in f:
        hand.change(get("stem_norm").gamma, np.ones_like)
        hand.change(get("stem_norm").beta, np.zeros_like)


def make_inputs(cfg: dict[str, Any], rng: np.random.Generator) -> zoo.Inputs:
    return (rng.standard_normal((cfg["batch"], 3, cfg["height"], cfg["width_px"])).astype(np.float32),)


ARCH = Arch(
    name="resnet", reference="torch", torch_model=torch_model, keras_model=keras_model, links=links, spoil=spoil,
    make_inputs=make_inputs, keras_from_torch_inputs=zoo.images_to_keras, torch_from_keras_inputs=zoo.images_to_torch,
    faults={
        "same_stride": expect("stem_conv s2_a_conv ^conv1 layer2.conv1", "same, pad", "same padding with stride"),
        "bn_eps_a": expect("s2_a_norm layer2.bn1", "epsilon, eps", "norm epsilon"),
        "bn_eps_b": expect("s3_b_norm layer3.bn2", "epsilon, eps", "norm epsilon"),
        "bn_training": expect("s1_b_norm layer1.bn2", "training, train mode, batch statistic", "train mode"),
        "stride_moved": expect("s2_ layer2", "stride", "conv stride"),
        "scale_missing": expect("s3_ layer3", "scale, factor, multipl, Mul, constant", "scaling constant missing"),
        "skip_wrong": expect("s3_ layer3", "residual, skip, wrong tensor, input, connect",
                             "skip from the wrong tensor"),
        "residual_missing": expect("s3_ layer3", "residual, skip, add", "residual missing"),
        "relu_missing": expect("s1_ layer1", "activation, relu", "missing activation"),
        "pool_unpadded": expect("stem_pool max_pool", "pad, border, ceil", "pooling borders"),
        "max_for_mean": expect("gap mean fc classifier", "mean, average, max", "wrong pooling"),
        "bias_dropped": expect("classifier fc", "bias, parameter, partner", "parameter dropped"),
        "extra_bias": expect("s3_a_conv layer3.conv1", "bias, parameter, partner, extra", "extra parameter",
                             silent=True),
        "bn_stats_left": expect("s1_b_norm layer1.bn2", "statistic, running, moving, mean, var",
                                "BatchNorm statistics", keep=True),
        "std_for_var": expect("s2_proj_norm downsample", "std, deviation, sqrt, variance, moving_variance",
                              "running std for variance", keep=True),
        "stale": expect("s3_b_conv layer3.conv2", "weight, kernel, stale", "stale weight", keep=True),
        "swapped": expect("s1_[ab]_conv layer1.conv", "swap, exchang", "weights of two layers swapped", keep=True),
        "half_rounded": expect("classifier fc", "fp16, float16, half, round, precision", "rounded weights", keep=True),
        "gamma_beta_left": expect("stem_norm ^bn1", "weight, gamma, scale, initial, not loaded", "stale weight",
                                  keep=True),
    },
    combos=[("bn_eps_a", "bn_eps_b"), ("same_stride", "scale_missing"), ("stale", "std_for_var", "half_rounded"),
            ("relu_missing", "bn_eps_b", "max_for_mean"), ("swapped", "bn_stats_left", "bn_eps_a", "residual_missing")],
    variants={
        "base": {"batch": 3, "height": 34, "width_px": 27, "filters": 12, "classes": 7},
        "other": {"batch": 2, "height": 29, "width_px": 40, "filters": 10, "classes": 5},
    },
    clean=[Clean(), Clean("other"), Clean("other", seed=3, weights="keep"), Clean(flip=True, seed=1)],
)  # fmt: skip
build, FAULTS = ARCH.build, ARCH.faults
