"""A 1-D autoencoder for signals with strided and transposed convolutions; the Keras Sequential is the reference."""

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
    return keras.Sequential(
        [
            keras.Input((cfg["length"], cfg["channels"])),
            layers.Conv1D(w, 5, strides=2, padding="same", name="enc1"),
            layers.LeakyReLU(name="enc1_act"),
            layers.AveragePooling1D(3, 2, padding="same", name="smooth"),
            layers.Conv1D(2 * w, 3, padding="same", dilation_rate=2, name="enc2"),
            layers.GroupNormalization(groups=2, name="enc2_norm"),
            layers.Activation("gelu", name="enc2_act"),
            layers.Conv1DTranspose(w, 4, strides=2, padding="same", name="dec1"),
            layers.Activation("softplus", name="dec1_act"),
            layers.Conv1DTranspose(w, 3, strides=2, padding="same", name="dec2"),
            layers.ELU(name="dec2_act"),
            layers.UpSampling1D(2, name="repeat"),
            layers.Conv1D(cfg["channels"], 3, padding="same", activation="tanh", name="signal"),
        ],
        name="autoencoder",
    )


class Autoencoder(nn.Module):
    def __init__(self, cfg: dict[str, Any], f: frozenset[str]) -> None:
        super().__init__()
        self.f = f
        w, c = cfg["filters"], cfg["channels"]
        self.down = nn.Conv1d(c, w, 5, stride=2)
        hole = 1 if "dilation" in f else 2
        self.mid = nn.Conv1d(w, 2 * w, 3, padding=hole, dilation=hole)
        self.gn = nn.GroupNorm(2, 2 * w, eps=1e-5 if "group_eps" in f else 1e-3)
        self.act = nn.GELU(approximate="tanh" if "gelu_tanh" in f else "none")
        self.up1 = nn.ConvTranspose1d(2 * w, w, 4, stride=2, padding=1, bias="bias_dropped" not in f)
        two = "crop_other_side" in f
        self.up2 = nn.ConvTranspose1d(w, w, 3, stride=2, padding=int(two), output_padding=int(two))
        self.out = nn.Conv1d(w, c, 3, padding=1)

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        f = self.f
        x = signal.permute(0, 2, 1)
        x = F.pad(x, (2, 2)) if "symmetric_pad" in f else F.pad(x, (1, 2))
        x = F.leaky_relu(self.down(x), 0.2 if "slope" in f else 0.3)
        if "pool_counts_padding" in f:
            x = F.avg_pool1d(F.pad(x, (0, 1)), 3, 2)
        else:
            x = F.avg_pool1d(x, 3, 2, ceil_mode=True, count_include_pad=False)
        x = self.mid(x)
        x = self.gn(self.act(x)) if "order_swapped" in f else self.act(self.gn(x))
        x = F.softplus(self.up1(x), threshold=1.0 if "softplus_threshold" in f else 20.0)
        size = 2 * x.shape[-1]
        x = F.elu(self.up2(x)[..., :size], alpha=0.5 if "elu_alpha" in f else 1.0)
        if "resize_linear" in f:
            x = F.interpolate(x, scale_factor=2, mode="linear")
        else:
            x = x.repeat_interleave(2, dim=-1)
        x = self.out(x)
        x = x if "tanh_missing" in f else torch.tanh(x)
        return x.permute(0, 2, 1)


def torch_model(cfg: dict[str, Any], f: frozenset[str]) -> nn.Module:
    return Autoencoder(cfg, f)


def links(t: Any, k: Any) -> list[Link]:
    get = k.get_layer
    return [
        *hand.conv(t.down, get("enc1")), *hand.conv(t.mid, get("enc2")), *hand.norm(t.gn, get("enc2_norm")),
        *hand.conv(t.up1, get("dec1")), *hand.conv(t.up2, get("dec2")), *hand.conv(t.out, get("signal")),
    ]  # fmt: skip


def spoil(f: frozenset[str], t: Any, k: Any) -> None:
    if "kernel_flipped" in f:
        hand.change(t.up1.weight, lambda w: w[..., ::-1])
    if "kernel_in_out_swapped" in f:
        hand.change(t.up2.weight, lambda w: w.swapaxes(0, 1))
    if "stale" in f:
        hand.change(t.mid.weight, hand.stale)


def make_inputs(cfg: dict[str, Any], rng: np.random.Generator) -> zoo.Inputs:
    return (rng.standard_normal((cfg["batch"], cfg["length"], cfg["channels"])).astype(np.float32),)


ARCH = Arch(
    name="autoencoder1d", reference="keras", torch_model=torch_model, keras_model=keras_model, links=links, spoil=spoil,
    make_inputs=make_inputs,
    faults={
        "symmetric_pad": expect("down enc1 pad", "same, pad", "same padding with stride"),
        "slope": expect("leaky enc1_act", "slope, alpha", "LeakyReLU slope"),
        "pool_counts_padding": expect("smooth pool", "count_include_pad, pad, border", "pooling borders"),
        "dilation": expect("mid enc2", "dilation, pad", "conv dilation"),
        "group_eps": expect("gn enc2_norm", "epsilon, eps", "norm epsilon"),
        "gelu_tanh": expect("^act enc2_act gelu", "approximate, gelu, tanh, erf", "GELU variant"),
        "order_swapped": expect("gn enc2_norm act enc2_act", "order, swap, before, after", "layer order swapped"),
        "bias_dropped": expect("up1 dec1", "bias, parameter, partner", "parameter dropped"),
        "softplus_threshold": expect("softplus dec1_act", "threshold, softplus", "softplus variant"),
        "crop_other_side": expect("up2 dec2", "same, crop, pad", "transposed-convolution crop"),
        "elu_alpha": expect("elu dec2_act", "alpha", "ELU alpha"),
        "resize_linear": expect("repeat interpolate", "nearest, linear, mode, resize", "resize mode"),
        "tanh_missing": expect("signal out tanh", "tanh, activation", "missing activation"),
        "kernel_flipped": expect("up1 dec1", "flip", "kernel flipped", keep=True),
        "kernel_in_out_swapped": expect("up2 dec2", "transpos, swap, permut, layout", "kernel transposed", keep=True),
        "stale": expect("mid enc2", "weight, kernel, stale", "stale weight", keep=True),
    },
    combos=[("symmetric_pad", "group_eps"), ("slope", "crop_other_side"), ("gelu_tanh", "kernel_flipped"),
            ("dilation", "elu_alpha", "tanh_missing")],
    variants={
        "base": {"batch": 3, "length": 40, "channels": 3, "filters": 12},
        "mono": {"batch": 2, "length": 24, "channels": 1, "filters": 10},
    },
    clean=[Clean(), Clean("mono"), Clean("mono", seed=2, weights="keep"), Clean(flip=True)],
)  # fmt: skip
build, FAULTS = ARCH.build, ARCH.faults
