"""A depthwise-separable image net with squeeze-and-excite; the Keras model is the reference."""

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


def keras_model(cfg: dict[str, Any], f: frozenset[str]) -> keras.Model:
    w = cfg["filters"]
    image = keras.Input((cfg["height"], cfg["width_px"], 3), name="image")
    x = layers.Conv2D(w, 3, strides=2, padding="same", use_bias=False, name="stem")(image)
    x = layers.BatchNormalization(name="stem_bn")(x)
    x = layers.Activation("hard_swish", name="stem_act")(x)
    x = layers.DepthwiseConv2D(3, padding="same", use_bias=False, name="dw1")(x)
    x = layers.BatchNormalization(name="dw1_bn")(x)
    x = layers.ReLU(6.0, name="dw1_act")(x)
    x = layers.Conv2D(w, 1, name="pw1")(x)
    skip = x
    gate = layers.GlobalAveragePooling2D(keepdims=True, name="se_pool")(x)
    gate = layers.Conv2D(8, 1, activation="relu", name="se_down")(gate)
    gate = layers.Conv2D(w, 1, activation="hard_sigmoid", name="se_up")(gate)
    x = layers.Multiply(name="se_scale")([x, gate])
    x = layers.SeparableConv2D(w, 5, padding="same", activation="relu6", name="sep")(x)
    x = layers.Add(name="shortcut")([x, skip])
    x = layers.DepthwiseConv2D(3, strides=2, padding="same", name="dw2")(x)
    x = layers.BatchNormalization(epsilon=1e-5, name="dw2_bn")(x)
    x = layers.ReLU(name="dw2_act")(x)
    x = layers.Conv2D(2 * w, 1, name="pw2")(x)
    x = layers.LeakyReLU(name="pw2_act")(x)
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    x = layers.Dropout(0.2, name="drop")(x)
    return keras.Model(image, layers.Dense(cfg["classes"], activation="softmax", name="classes")(x), name="mobile")


class Mobile(nn.Module):
    def __init__(self, cfg: dict[str, Any], f: frozenset[str]) -> None:
        super().__init__()
        self.f = f
        w = cfg["filters"]
        self.conv = nn.Conv2d(3, w, 3, stride=2, bias=False)
        self.norm = nn.BatchNorm2d(w, eps=1e-5 if "stem_eps" in f else 1e-3)
        self.depth1 = nn.Conv2d(w, w, 3, padding=1, groups=w, bias=False)
        self.depth1_norm = nn.BatchNorm2d(w, eps=1e-3)
        self.point1 = nn.Conv2d(w, w, 1, bias="bias_dropped" not in f)
        self.squeeze = nn.Conv2d(w, 8, 1)
        self.excite = nn.Conv2d(8, w, 1)
        self.sep_depth = nn.Conv2d(w, w, 5, padding=2, groups=w, bias=False)
        self.sep_point = nn.Conv2d(w, w, 1)
        self.depth2 = nn.Conv2d(w, w, 3, stride=2, groups=w)
        self.depth2_norm = nn.BatchNorm2d(w)
        self.point2 = nn.Conv2d(w, 2 * w, 1)
        self.fc = nn.Linear(2 * w, cfg["classes"])
        if "left_in_train" in f:
            self.depth2_norm.leave_in_train = True

    @staticmethod
    def same(x: torch.Tensor, size: int, stride: int) -> torch.Tensor:
        """TensorFlow's 'same': what is odd goes to the right and to the bottom."""
        pads: list[int] = []
        for n in (x.shape[3], x.shape[2]):
            total = max((-(-n // stride) - 1) * stride + size - n, 0)
            pads += [total // 2, total - total // 2]
        return F.pad(x, pads)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        f = self.f
        x = self.norm(self.conv(F.pad(x, (1, 1, 1, 1)) if "symmetric_stem" in f else self.same(x, 3, 2)))
        x = F.silu(x) if "swish_for_hard" in f else F.hardswish(x)
        x = self.depth1_norm(self.depth1(x))
        x = self.point1(F.relu(x) if "relu6" in f else F.relu6(x))
        s = self.excite(F.relu(self.squeeze(x.mean((2, 3), keepdim=True))))
        if "hard_sigmoid_old" in f:
            gate = torch.clamp(0.2 * s + 0.5, 0, 1)
        else:
            gate = torch.sigmoid(s) if "sigmoid_for_hard" in f else F.hardsigmoid(s)
        y = x if "gate_missing" in f else x * gate
        y = F.relu6(self.sep_point(self.sep_depth(y)))
        x = y if "residual_missing" in f else x + y
        x = self.depth2(F.pad(x, (1, 1, 1, 1)) if "symmetric_depth" in f else self.same(x, 3, 2))
        x = F.relu(self.depth2_norm(x))
        x = F.leaky_relu(self.point2(x)) if "slope_default" in f else F.leaky_relu(self.point2(x), 0.3)
        x = x.sum((2, 3)) if "sum_for_mean" in f else F.adaptive_avg_pool2d(x, 1).flatten(1)
        x = self.fc(F.dropout(x, 0.2) if "dropout_active" in f else F.dropout(x, 0.2, self.training))
        return x if "softmax_missing" in f else x.softmax(-1)


def torch_model(cfg: dict[str, Any], f: frozenset[str]) -> nn.Module:
    return Mobile(cfg, f)


def links(t: Any, k: Any) -> list[Link]:
    get = k.get_layer
    sep = get("sep")

    def depth_there(v: list[np.ndarray]) -> list[np.ndarray]:
        return [v[0][:, 0].transpose(1, 2, 0)[..., None]]

    def depth_back(v: list[np.ndarray]) -> list[np.ndarray]:
        return [v[0][..., 0].transpose(2, 0, 1)[:, None]]

    return [
        *hand.conv(t.conv, get("stem")), *hand.norm(t.norm, get("stem_bn")), *hand.depthwise(t.depth1, get("dw1")),
        *hand.norm(t.depth1_norm, get("dw1_bn")), *hand.conv(t.point1, get("pw1")),
        *hand.conv(t.squeeze, get("se_down")),
        *hand.conv(t.excite, get("se_up")), *hand.depthwise(t.depth2, get("dw2")),
        Link([t.sep_depth.weight], [sep.depthwise_kernel], depth_there, depth_back),
        Link([t.sep_point.weight], [sep.pointwise_kernel], lambda v: [v[0].transpose(2, 3, 1, 0)],
             lambda v: [v[0].transpose(3, 2, 0, 1)]),
        hand.linked(t.sep_point.bias, sep.bias), *hand.norm(t.depth2_norm, get("dw2_bn")),
        *hand.conv(t.point2, get("pw2")), *hand.dense(t.fc, get("classes")),
    ]  # fmt: skip


def spoil(f: frozenset[str], t: Any, k: Any) -> None:
    if "depth_kernel_flipped" in f:
        hand.change(t.sep_depth.weight, lambda w: w[..., ::-1, ::-1])
    if "depth_kernel_hw_swapped" in f:
        hand.change(t.depth1.weight, lambda w: w.swapaxes(2, 3))
    if "bn_stats_left" in f:
        hand.change(t.depth1_norm.running_mean, np.zeros_like)
        hand.change(t.depth1_norm.running_var, np.ones_like)
    if "bf16_rounded" in f:
        hand.change(t.point2.weight, hand.to_bfloat16)
    if "stale" in f:
        hand.change(t.squeeze.weight, hand.stale)


def make_inputs(cfg: dict[str, Any], rng: np.random.Generator) -> zoo.Inputs:
    return ((8 * rng.standard_normal((cfg["batch"], cfg["height"], cfg["width_px"], 3))).astype(np.float32),)


ARCH = Arch(
    name="mobilenet", reference="keras", torch_model=torch_model, keras_model=keras_model, links=links, spoil=spoil,
    make_inputs=make_inputs, keras_from_torch_inputs=zoo.images_to_keras, torch_from_keras_inputs=zoo.images_to_torch,
    faults={
        "stem_eps": expect("^norm stem_bn", "epsilon, eps", "norm epsilon"),
        "symmetric_stem": expect("^conv stem pad", "same, pad", "same padding with stride"),
        "symmetric_depth": expect("depth2 dw2 pad", "same, pad", "same padding with stride"),
        "bias_dropped": expect("point1 pw1", "bias, parameter, partner", "parameter dropped"),
        "left_in_train": expect("depth2_norm dw2_bn", "train", "train mode"),
        "swish_for_hard": expect("silu hardswish stem_act", "swish, silu, activation", "wrong activation"),
        "relu6": expect("relu dw1_act", "relu6, clip, max", "ReLU6 or ReLU"),
        "hard_sigmoid_old": expect("excite se_up clamp hardsigmoid", "hard, sigmoid, 0.2, alpha",
                                   "hard-sigmoid variant"),
        "sigmoid_for_hard": expect("excite se_up sigmoid", "sigmoid, activation", "hard-sigmoid variant"),
        "gate_missing": expect("se_scale mul sep_ sep excite", "missing, multipl, Mul, gate, scale",
                               "operator missing"),
        "residual_missing": expect("shortcut add sep", "residual, skip, add", "residual missing"),
        "slope_default": expect("leaky pw2_act", "slope, alpha", "LeakyReLU slope"),
        "sum_for_mean": expect("pool sum", "mean, average, sum", "sum for mean pooling"),
        "dropout_active": expect("drop", "dropout, training, random", "dropout active"),
        "softmax_missing": expect("classes softmax fc", "softmax, activation", "missing activation"),
        "depth_kernel_flipped": expect("sep", "flip", "kernel flipped", keep=True),
        "depth_kernel_hw_swapped": expect("depth1 dw1", "transpos, swap, permut, layout", "kernel transposed",
                                          keep=True),
        "bn_stats_left": expect("depth1_norm dw1_bn", "statistic, running, moving, mean, var",
                                "BatchNorm statistics", keep=True),
        "bf16_rounded": expect("point2 pw2", "bf16, bfloat16, round, precision", "rounded weights", keep=True),
        "stale": expect("squeeze se_down", "weight, kernel, stale", "stale weight", keep=True),
    },
    combos=[("stem_eps", "slope_default"), ("symmetric_stem", "hard_sigmoid_old"), ("relu6", "depth_kernel_flipped"),
            ("swish_for_hard", "symmetric_depth", "bias_dropped"),
            ("stem_eps", "gate_missing", "bf16_rounded", "slope_default")],
    variants={
        "base": {"batch": 3, "height": 24, "width_px": 28, "filters": 13, "classes": 7},
        "odd": {"batch": 2, "height": 19, "width_px": 24, "filters": 10, "classes": 5},
    },
    clean=[Clean(), Clean("odd"), Clean("odd", seed=2, weights="keep"), Clean(flip=True)],
)  # fmt: skip
build, FAULTS = ARCH.build, ARCH.faults
