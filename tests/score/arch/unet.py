"""A U-Net: pooling down, transposed convolution and bilinear resizing up, skips, a PixelShuffle head."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
import torch
import torch.nn.functional as F
from keras import layers
from torch import nn

from tests.score import hand, zoo
from tests.score.hand import Link
from tests.score.zoo import Arch, Clean, expect


class DoubleConv(nn.Sequential):
    def __init__(self, cin: int, cout: int) -> None:
        super().__init__(nn.Conv2d(cin, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU(),
                         nn.Conv2d(cout, cout, 3, padding=1), nn.ELU(alpha=0.7))  # fmt: skip


class UNet(nn.Module):
    def __init__(self, cin: int, w: int, cout: int) -> None:
        super().__init__()
        self.down1 = DoubleConv(cin, w)
        self.down2 = DoubleConv(w, 2 * w)
        self.middle = DoubleConv(2 * w, 2 * w)
        self.up = nn.ConvTranspose2d(2 * w, 2 * w, 3, stride=2, padding=1, output_padding=1)
        self.merge2 = DoubleConv(4 * w, w)
        self.merge1 = DoubleConv(2 * w, w)
        self.head = nn.Conv2d(w, cout * 4, 1)
        self.shuffle = nn.PixelShuffle(2)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        a = self.down1(image)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.middle(F.max_pool2d(b, 2))
        y = self.merge2(torch.cat([b, self.up(c)], dim=1))
        y = F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)
        y = self.merge1(torch.cat([a, y], dim=1))
        return torch.sigmoid(self.shuffle(self.head(y)))


def torch_model(cfg: dict[str, Any], f: frozenset[str]) -> nn.Module:
    return UNet(cfg["channels"], cfg["filters"], cfg["out"])


def keras_model(cfg: dict[str, Any], f: frozenset[str]) -> keras.Model:
    w = cfg["filters"]

    def two(x: Any, filters: int, name: str) -> Any:
        x = layers.Conv2D(filters, 3, padding="same", name=f"{name}_1")(x)
        x = layers.BatchNormalization(epsilon=1e-3 if name == "bottom" and "bn_eps" in f else 1e-5,
                                      name=f"{name}_bn")(x)  # fmt: skip
        x = layers.Activation("gelu" if name == "enc_b" and "wrong_activation" in f else "relu", name=f"{name}_act")(x)
        x = layers.Conv2D(filters, 3, padding="same", name=f"{name}_2")(x)
        return layers.ELU(alpha=1.0 if name == "dec_b" and "elu_alpha" in f else 0.7, name=f"{name}_elu")(x)

    def grow(x: Any) -> Any:
        size = (2 * x.shape[1], 2 * x.shape[2])
        if "align_corners" in f:
            return tf.compat.v1.image.resize_bilinear(x, size, align_corners=True)
        return tf.compat.v1.image.resize_bilinear(x, size)  # the old default: no half-pixel centres

    def pixel_shuffle(x: Any) -> Any:
        n, h, width, c = x.shape
        x = keras.ops.reshape(x, (-1, h, width, c // 4, 2, 2))
        x = keras.ops.transpose(x, (0, 1, 4, 2, 5, 3))
        return keras.ops.reshape(x, (-1, 2 * h, 2 * width, c // 4))

    image = keras.Input((cfg["height"], cfg["width_px"], cfg["channels"]))
    one = two(image, w, "enc_a")
    down = layers.AveragePooling2D if "average_for_max" in f else layers.MaxPooling2D
    pooled = down(2, name="pool_a")(one)
    second = two(pooled, 2 * w, "enc_b")
    x = two(layers.MaxPooling2D(2, name="pool_b")(second), 2 * w, "bottom")
    if "transposed_same" in f:
        x = layers.Conv2DTranspose(2 * w, 3, strides=2, padding="same", name="upconv")(x)
    else:
        x = layers.Conv2DTranspose(2 * w, 3, strides=2, name="upconv")(x)
        x = layers.Cropping2D(((1, 0), (1, 0)), name="upconv_crop")(x)
    x = layers.Concatenate(name="join_b")([x, second] if "concat_order" in f else [second, x])
    x = two(x, w, "dec_b")
    if f & {"align_corners", "resize_asymmetric"}:
        x = layers.Lambda(grow, name="enlarge")(x)
    else:
        kind = "nearest" if "resize_nearest" in f else "bilinear"
        x = layers.UpSampling2D(2, interpolation=kind, name="enlarge")(x)
    skip = one
    if "skip_wrong" in f:  # the first convolution's activation instead of the block's output
        skip = next(layer for layer in keras.Model(image, one).layers if layer.name == "enc_a_act").output
    x = two(layers.Concatenate(name="join_a")([skip, x]), w, "dec_a")
    x = layers.Conv2D(4 * cfg["out"], 1, name="to_pixels")(x)
    if "pixel_shuffle_order" in f:
        x = layers.Lambda(lambda v: tf.nn.depth_to_space(v, 2), name="shuffle")(x)
    else:
        x = layers.Lambda(pixel_shuffle, name="shuffle")(x)
    if "sigmoid_missing" not in f:
        x = layers.Activation("sigmoid", name="probability")(x)
    return keras.Model(image, x, name="unet")


def links(t: Any, k: Any) -> list[Link]:
    get = k.get_layer
    found: list[Link] = []
    names = {"enc_a": t.down1, "enc_b": t.down2, "bottom": t.middle, "dec_b": t.merge2, "dec_a": t.merge1}
    for name, part in names.items():
        found += hand.conv(part[0], get(f"{name}_1")) + hand.norm(part[1], get(f"{name}_bn"))
        found += hand.conv(part[3], get(f"{name}_2"))
    return found + hand.conv(t.up, get("upconv")) + hand.conv(t.head, get("to_pixels"))


def spoil(f: frozenset[str], t: Any, k: Any) -> None:
    if "kernel_in_out_swapped" in f:
        hand.change(k.get_layer("upconv").kernel, lambda w: w.transpose(0, 1, 3, 2))
    if "bf16_rounded" in f:
        hand.change(k.get_layer("dec_a_2").kernel, hand.to_bfloat16)


def make_inputs(cfg: dict[str, Any], rng: np.random.Generator) -> zoo.Inputs:
    shape = (cfg["batch"], cfg["channels"], cfg["height"], cfg["width_px"])
    return (rng.standard_normal(shape).astype(np.float32),)


ARCH = Arch(
    name="unet", reference="torch", torch_model=torch_model, keras_model=keras_model, links=links, spoil=spoil,
    make_inputs=make_inputs, keras_from_torch_inputs=zoo.images_to_keras, torch_from_keras_inputs=zoo.images_to_torch,
    torch_from_keras_outputs=zoo.nchw_from_nhwc, keras_from_torch_outputs=zoo.nhwc_from_nchw,
    faults={
        "bn_eps": expect("bottom_bn middle.1", "epsilon, eps", "norm epsilon"),
        "wrong_activation": expect("enc_b_act down2.2", "relu, gelu, activation", "wrong activation"),
        "elu_alpha": expect("dec_b_elu merge2.4", "alpha", "ELU alpha"),
        "average_for_max": expect("pool_a max_pool down1", "max, average", "wrong pooling"),
        "transposed_same": expect("upconv ^up", "same, crop, pad", "transposed-convolution crop"),
        "concat_order": expect("join_b cat merge2.0 dec_b_1", "order, concat", "concat order"),
        "align_corners": expect("enlarge interpolate merge1", "align_corners, half_pixel, coordinate, resize",
                                "resize coordinates"),
        "resize_asymmetric": expect("enlarge interpolate", "asymmetric, half_pixel, coordinate, resize",
                                    "resize coordinates"),
        "resize_nearest": expect("enlarge interpolate", "nearest, linear, mode", "resize mode"),
        "skip_wrong": expect("join_a cat dec_a_1 merge1.0", "skip, wrong tensor, input, connect",
                             "skip from the wrong tensor"),
        "pixel_shuffle_order": expect("shuffle", "order, channel, CRD, DCR, depth_to_space, pixel",
                                      "PixelShuffle channel order"),
        "sigmoid_missing": expect("probability sigmoid shuffle", "sigmoid, activation", "missing activation"),
        "kernel_in_out_swapped": expect("upconv ^up", "transpos, swap, permut, layout", "kernel transposed", keep=True),
        "bf16_rounded": expect("dec_a_2 merge1.3", "bf16, bfloat16, round, precision", "rounded weights", keep=True),
    },
    combos=[("bn_eps", "transposed_same"), ("resize_asymmetric", "elu_alpha", "concat_order"),
            ("pixel_shuffle_order", "wrong_activation"), ("kernel_in_out_swapped", "bf16_rounded", "align_corners")],
    variants={
        "base": {"batch": 3, "channels": 3, "height": 20, "width_px": 28, "filters": 10, "out": 3},
        "grey": {"batch": 2, "channels": 1, "height": 12, "width_px": 36, "filters": 8, "out": 2},
    },
    clean=[Clean(), Clean("grey"), Clean("grey", seed=4, weights="keep"), Clean(flip=True)],
)  # fmt: skip
build, FAULTS = ARCH.build, ARCH.faults
