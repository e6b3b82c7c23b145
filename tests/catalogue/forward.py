"""Cases of the forward pass, layers: convolutions, pools, resizing, norms, activations, recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import torch
import torch.nn.functional as F
from torch import nn

import keras  # isort: skip  (torch first)
from keras import layers, ops  # isort: skip

from tests.catalogue.case import Case, Pair
from tests.catalogue.elsewhere import KerasNet, Net, image, pair, rng
from tests.score import hand

Array = np.ndarray


def rows(samples: int = 6, width: int = 8, scale: float = 1.0) -> Array:
    return (scale * rng().standard_normal((samples, width))).astype(np.float32)


def sequence(samples: int = 4, steps: int = 7, width: int = 6) -> Array:
    return rng().standard_normal((samples, steps, width)).astype(np.float32)


def random(model: Any) -> Any:
    """Weights that hide nothing: norms with statistics, scale and bias of their own."""
    if isinstance(model, nn.Module):
        hand.randomise_torch(model, np.random.default_rng(7))
        return model.eval()
    hand.randomise_keras(model, np.random.default_rng(7))
    return model


# ----------------------------------------------------------------------------------------------- convolutions and pools
def same_padding() -> Pair:
    reference = nn.Sequential(nn.Conv2d(3, 4, 3, 2, padding=1), nn.ReLU(), nn.Conv2d(4, 5, 1))
    candidate = keras.Sequential([layers.Conv2D(4, 3, 2, padding="same", activation="relu"), layers.Conv2D(5, 1)])
    return pair(random(reference), candidate, image(size=8), channels_last=True)


def frozen_padding() -> Pair:
    """Padding as 'same' has it at 16 x 16, used at 17 x 17."""
    i = keras.Input((None, None, 3))
    y = layers.Conv2D(4, 3, 2, padding="same", name="conv")(i)
    reference = keras.Model(i, layers.Dense(3, name="out")(layers.GlobalAveragePooling2D()(layers.ReLU()(y))))
    candidate = Net(
        lambda m, x: m.out(m.conv(F.pad(x, (0, 1, 0, 1))).relu().mean((2, 3))),
        conv=nn.Conv2d(3, 4, 3, 2),
        out=nn.Linear(4, 3),
    )
    return pair(random(reference), candidate.eval(), image(size=17), channels_last=True)


def bottleneck_stride() -> Pair:
    def reference(m: Any, x: torch.Tensor) -> torch.Tensor:
        y = m.norm2(m.conv2(m.norm1(m.conv1(x)).relu())).relu()
        return (m.norm3(m.conv3(y)) + m.shortcut(x)).relu()

    def candidate(m: Any, x: Any) -> Any:
        y = ops.relu(m.norm2(m.conv2(ops.relu(m.norm1(m.conv1(x))))))
        return ops.relu(m.norm3(m.conv3(y)) + m.shortcut(x))

    ours = Net(
        reference,
        conv1=nn.Conv2d(6, 4, 1),
        norm1=nn.BatchNorm2d(4),
        conv2=nn.Conv2d(4, 4, 3, 2, padding=1),
        norm2=nn.BatchNorm2d(4),
        conv3=nn.Conv2d(4, 8, 1),
        norm3=nn.BatchNorm2d(8),
        shortcut=nn.Conv2d(6, 8, 1, 2),
    )
    norms = {f"norm{n}": layers.BatchNormalization(epsilon=1e-5, momentum=0.9) for n in (1, 2, 3)}
    theirs = KerasNet(
        candidate,
        conv1=layers.Conv2D(4, 1, 2),
        conv2=layers.Conv2D(4, 3, padding="same"),
        conv3=layers.Conv2D(8, 1),
        shortcut=layers.Conv2D(8, 1, 2),
        **norms,
    )
    return pair(random(ours), theirs, image(size=9, channels=6), channels_last=True)


def flipped_kernel() -> Pair:
    """The stored kernels are the same; the candidate computes a convolution in the sense of mathematics."""

    def candidate(m: Any, x: Any) -> Any:
        return m.last(ops.relu(ops.conv(x, ops.flip(m.conv.kernel, (0, 1))) + m.conv.bias))

    reference = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 1))
    conv = layers.Conv2D(4, 3)
    conv.build((None, None, None, 3))
    return pair(
        random(reference), KerasNet(candidate, conv=conv, last=layers.Conv2D(5, 1)), image(size=9), channels_last=True
    )


def zero_border() -> Pair:
    """A pool without a ReLU in front, on values that are mostly negative."""
    reference = nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(3, 2, padding=1), nn.Conv2d(4, 5, 1))
    candidate = keras.Sequential(
        [layers.Conv2D(4, 3), layers.ZeroPadding2D(1), layers.MaxPooling2D(3, 2), layers.Conv2D(5, 1)]
    )
    random(reference)
    with torch.no_grad():
        reference[0].bias -= 1.0
    return pair(reference, candidate, image(size=11), channels_last=True)


def fid_pool() -> Pair:
    """One branch of an Inception block."""
    reference = Net(
        lambda m, x: torch.cat(
            [m.one(x).relu(), m.pooled(F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)).relu()], 1
        ),
        one=nn.Conv2d(3, 4, 1),
        pooled=nn.Conv2d(3, 4, 1),
    )
    candidate = Net(
        lambda m, x: torch.cat([m.one(x).relu(), m.pooled(F.avg_pool2d(x, 3, 1, 1)).relu()], 1),
        one=nn.Conv2d(3, 4, 1),
        pooled=nn.Conv2d(3, 4, 1),
    )
    return pair(random(reference), candidate.eval(), np.moveaxis(image(size=7), -1, 1).copy())


# ------------------------------------------------------------------------------------------------------------- resizing
def _resized(how: dict[str, Any], candidate: Any, size: int = 8) -> Pair:
    reference = Net(lambda m, x: m.after(F.interpolate(m.before(x), **how)), before=nn.Conv2d(3, 4, 1),
                    after=nn.Conv2d(4, 5, 1))  # fmt: skip
    theirs = keras.Sequential([layers.Conv2D(4, 1), candidate, layers.Conv2D(5, 1)])
    return pair(random(reference), theirs, image(size=size), channels_last=True)


def corners() -> Pair:
    return _resized({"size": (13, 13), "mode": "bilinear", "align_corners": True}, layers.Resizing(13, 13))


def nearest() -> Pair:
    return _resized({"size": (5, 5), "mode": "nearest"}, layers.Resizing(5, 5, interpolation="nearest"), size=9)


def factor() -> Pair:
    return _resized({"scale_factor": 2.3, "mode": "bilinear", "align_corners": False}, layers.Resizing(9, 9), size=4)


def shuffle() -> Pair:
    """Eight channels to two."""

    def candidate(m: Any, x: Any) -> Any:
        return m.after(tf.nn.depth_to_space(m.before(x), 2))

    reference = nn.Sequential(nn.Conv2d(3, 8, 1), nn.PixelShuffle(2), nn.Conv2d(2, 5, 1))
    theirs = KerasNet(candidate, before=layers.Conv2D(8, 1), after=layers.Conv2D(5, 1))
    return pair(random(reference), theirs, image(size=5), channels_last=True)


# ------------------------------------------------------------------------------------------------- norms, activations
def layer_norm() -> Pair:
    reference = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 3))
    candidate = keras.Sequential([layers.LayerNormalization(), layers.Dense(3)])
    return pair(random(reference), candidate, rows(scale=0.1))


def checkpoint_epsilon() -> Pair:
    reference = nn.Sequential(nn.RMSNorm(8, eps=1e-5), nn.Linear(8, 3))
    candidate = keras.Sequential([layers.RMSNormalization(), layers.Dense(3)])
    return pair(random(reference), candidate, rows(scale=0.01))


def batch_norm() -> Pair:
    """One channel has a small variance."""
    reference = random(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 5, 1)))
    with torch.no_grad():
        reference[1].running_var[2] = 1e-3
    candidate = keras.Sequential(
        [layers.Conv2D(4, 3), layers.BatchNormalization(momentum=0.9), layers.ReLU(), layers.Conv2D(5, 1)]
    )
    return pair(reference, candidate, image(size=7), channels_last=True)


class TutorialNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6) + self.bias


def tutorial_norm() -> Pair:
    i = keras.Input((4,))
    reference = keras.Model(i, layers.Dense(3)(layers.LayerNormalization(epsilon=1e-6)(layers.Dense(4)(i))))
    candidate = nn.Sequential(nn.Linear(4, 4), TutorialNorm(4), nn.Linear(4, 3))
    return pair(random(reference), candidate.eval(), rows(width=4))


def unit_vectors() -> Pair:
    """The vectors of two items are nearly zero."""
    reference = random(Net(lambda m, i: m.out(F.normalize(m.items(i), dim=-1)), items=nn.Embedding(9, 6),
                           out=nn.Linear(6, 3)))  # fmt: skip
    with torch.no_grad():
        reference.items.weight[2:4] *= 1e-8
    candidate = KerasNet(
        lambda m, i: m.out(tf.math.l2_normalize(m.items(i), axis=-1)), items=layers.Embedding(9, 6), out=layers.Dense(3)
    )
    return pair(reference, candidate, np.array([[1, 2, 3], [8, 4, 0]]))


def norm_placement() -> Pair:
    def reference(m: Any, x: torch.Tensor) -> torch.Tensor:
        for n in (1, 2):
            x = x + m.get_submodule(f"down{n}")(m.get_submodule(f"up{n}")(m.get_submodule(f"norm{n}")(x)).relu())
        return m.out(x)

    def candidate(m: Any, x: Any) -> Any:
        for n in (1, 2):
            up, down, norm = (getattr(m, f"{part}{n}") for part in ("up", "down", "norm"))
            x = norm(x + down(ops.relu(up(x))))
        return m.out(x)

    parts = {"up1": 12, "down1": 8, "up2": 12, "down2": 8, "out": 3}
    ours = {n: nn.Linear(12 if "down" in n else 8, w) for n, w in parts.items()}
    theirs = {n: layers.Dense(w, name=n) for n, w in parts.items()}
    norms = {f"norm{n}": layers.LayerNormalization(epsilon=1e-5, name=f"norm{n}") for n in (1, 2)}
    return pair(
        random(Net(reference, norm1=nn.LayerNorm(8), norm2=nn.LayerNorm(8), **ours)),
        KerasNet(candidate, **theirs, **norms),
        sequence(width=8),
    )


def gelu() -> Pair:
    reference = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3))
    tanh = layers.Activation(lambda x: keras.activations.gelu(x, approximate=True))
    return pair(random(reference), keras.Sequential([layers.Dense(16), tanh, layers.Dense(3)]), rows())


def hard_sigmoid() -> Pair:
    """Squeeze and excitation; the candidate has Keras 2's formula."""

    def reference(m: Any, x: torch.Tensor) -> torch.Tensor:
        return x * F.hardsigmoid(m.up(m.down(x.mean((2, 3), keepdim=True)).relu()))

    def candidate(m: Any, x: Any) -> Any:
        gate = m.up(ops.relu(m.down(ops.mean(x, (1, 2), keepdims=True))))
        return x * ops.clip(0.2 * gate + 0.5, 0.0, 1.0)

    return pair(
        random(Net(reference, down=nn.Conv2d(6, 3, 1), up=nn.Conv2d(3, 6, 1))),
        KerasNet(candidate, down=layers.Conv2D(3, 1), up=layers.Conv2D(6, 1)),
        image(size=5, channels=6),
        channels_last=True,
    )


# ----------------------------------------------------------------------------------------------------- recurrent layers
def reset_gate() -> Pair:
    reference = Net(lambda m, x: m.out(m.gru(x)[0]), gru=nn.GRU(6, 5, batch_first=True), out=nn.Linear(5, 3))
    candidate = keras.Sequential([layers.GRU(5, reset_after=False, return_sequences=True), layers.Dense(3)])
    return pair(random(reference), candidate, sequence())


def reset_default() -> Pair:
    """A GRU of TensorFlow 1, and one of today that leaves the argument out."""
    x = sequence()
    reference, candidate = (
        keras.Sequential([keras.Input((7, 6)), layers.GRU(5, **more), layers.Dense(3)])
        for more in ({"reset_after": False}, {})
    )
    return pair(random(reference), candidate, x)


def backward_state() -> Pair:
    reference = keras.Sequential([keras.Input((7, 6)), layers.Bidirectional(layers.LSTM(5)), layers.Dense(3)])
    candidate = Net(
        lambda m, x: m.out(m.lstm(x)[0][:, -1]),
        lstm=nn.LSTM(6, 5, batch_first=True, bidirectional=True),
        out=nn.Linear(10, 3),
    )
    return pair(random(reference), candidate.eval(), sequence())


CASES: list[Case] = [
    Case("C01", "SAME padding with stride 2 is asymmetric in TF", same_padding, ("AMB120",)),
    Case("C02", "SAME padding frozen for one resolution", frozen_padding, ("AMB120", "AMB121", "AMB145")),
    Case("C05", "ResNet stride sits in the 1x1 or in the 3x3 conv", bottleneck_stride, ("AMB122",)),
    Case("C06", "Convolution against cross-correlation", flipped_kernel, ("AMB129", "AMB203"),
         note="found: the convolution differs, no cause by name; its bias is taken for one that the reference lacks"),
    Case("P02", "Zero padding in front of max pooling", zero_border, ("AMB130",)),
    Case("P04", "Inception branch pools patched for FID", fid_pool, ("AMB132",)),
    Case("R02", "align_corners flag differs", corners, ("AMB180",)),
    Case("R03", "Nearest neighbour rounding", nearest, ("AMB181",),
         note="found: the coordinates first (AMB180), the rounding second"),
    Case("R08", "Non-integer scale factor: given scale or recomputed scale", factor, ("AMB189",)),
    Case("R11", "pixel_shuffle and depth_to_space order channels differently", shuffle, ("AMB144",)),
    Case("N01", "LayerNorm epsilon 1e-3 against 1e-5", layer_norm, ("AMB101",)),
    Case("N02", "Epsilon belongs to the checkpoint, not to the framework", checkpoint_epsilon, ("AMB101",)),
    Case("N03", "BatchNorm epsilon 1e-3 against 1e-5", batch_norm, ("AMB101",)),
    Case("N08", "LayerNorm written with unbiased std and eps outside the root", tutorial_norm, ("AMB105",)),
    Case("N09", "L2 normalise epsilon semantics", unit_vectors, ("AMB108",),
         note="found: a maximum that the reference does not have"),
    Case("N10", "Norm placed before or after the residual", norm_placement, ("AMB191", "AMB199")),
    Case("A01", "GELU exact against tanh approximation", gelu, ("AMB110",)),
    Case("A03", "Two hard sigmoids", hard_sigmoid, ("AMB112",)),
    Case("RN01", "GRU reset gate before or after the matmul", reset_gate, ("AMB150",)),
    Case("UP04", "GRU default reset_after flipped", reset_default, ("AMB150",)),
    Case("RN05", "Bidirectional summary from the last time step", backward_state, ("AMB154",),
         note="found: the slice of the last step differs, no cause by name"),
]  # fmt: skip
