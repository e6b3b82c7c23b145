"""Cells of layers that mostly have weights: linear, convolution, normalisation."""

from __future__ import annotations

import torch.nn.functional as F
from keras import layers
from torch import nn

from tests.score import hand
from tests.score.layer_parts import (
    CONV,
    DENSE,
    IMAGE,
    NORM,
    Cell,
    Function,
    multiplied,
    of_first,
    pad_reflect,
    separable,
)

CELLS: dict[str, Cell] = {
    # linear
    "linear": Cell(lambda: nn.Linear(9, 7), lambda: [layers.Dense(7)], carry=DENSE),
    "linear without bias": Cell(
        lambda: nn.Linear(9, 7, bias=False), lambda: [layers.Dense(7, use_bias=False)], carry=DENSE
    ),
    "einsum dense": Cell(
        lambda: nn.Linear(9, 7), lambda: [layers.EinsumDense("abc,cd->abd", (None, 7), bias_axes="d")], carry=DENSE
    ),
    # convolution
    "conv1d": Cell(
        lambda: nn.Conv1d(4, 6, 3, stride=2, dilation=1),
        lambda: [layers.Conv1D(6, 3, strides=2)],
        (2, 4, 11),
        CONV,
        True,
    ),
    "conv1d causal": Cell(
        lambda: nn.Sequential(nn.ConstantPad1d((4, 0), 0.0), nn.Conv1d(4, 6, 3, dilation=2)),
        lambda: [layers.Conv1D(6, 3, dilation_rate=2, padding="causal")],
        (2, 4, 11),
        lambda t, k: hand.conv(t[1], k.layers[-1]),
        True,
    ),
    "conv2d": Cell(lambda: nn.Conv2d(4, 6, 3), lambda: [layers.Conv2D(6, 3)], IMAGE, CONV, True),
    "conv2d same": Cell(
        lambda: nn.Conv2d(4, 6, 3, padding="same"), lambda: [layers.Conv2D(6, 3, padding="same")], IMAGE, CONV, True
    ),
    "conv2d same even kernel": Cell(
        lambda: nn.Conv2d(4, 6, 4, padding="same"), lambda: [layers.Conv2D(6, 4, padding="same")], IMAGE, CONV, True
    ),
    "conv2d padded stride": Cell(
        lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1),
        lambda: [layers.ZeroPadding2D(1), layers.Conv2D(6, 3, strides=2)],
        IMAGE,
        CONV,
        True,
    ),
    "conv2d same stride odd": Cell(
        lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1),
        lambda: [layers.Conv2D(6, 3, strides=2, padding="same")],
        (2, 4, 9, 9),
        CONV,
        True,
    ),
    "conv2d groups": Cell(
        lambda: nn.Conv2d(4, 6, 3, groups=2), lambda: [layers.Conv2D(6, 3, groups=2)], IMAGE, CONV, True
    ),
    "conv2d dilated": Cell(
        lambda: nn.Conv2d(4, 6, 3, dilation=2), lambda: [layers.Conv2D(6, 3, dilation_rate=2)], IMAGE, CONV, True
    ),
    "conv2d reflect": Cell(
        lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"),
        lambda: [layers.Lambda(pad_reflect), layers.Conv2D(6, 3)],
        IMAGE,
        CONV,
        True,
    ),
    "conv3d": Cell(lambda: nn.Conv3d(3, 4, 3), lambda: [layers.Conv3D(4, 3)], (2, 3, 5, 6, 7), CONV, True),
    "conv transpose 1d": Cell(
        lambda: nn.ConvTranspose1d(4, 6, 4, stride=2),
        lambda: [layers.Conv1DTranspose(6, 4, strides=2)],
        (2, 4, 7),
        CONV,
        True,
    ),
    "conv transpose 2d": Cell(
        lambda: nn.ConvTranspose2d(4, 6, 3, stride=2),
        lambda: [layers.Conv2DTranspose(6, 3, strides=2)],
        IMAGE,
        CONV,
        True,
    ),
    "conv transpose 2d same": Cell(
        lambda: nn.ConvTranspose2d(4, 6, 4, stride=2, padding=1),
        lambda: [layers.Conv2DTranspose(6, 4, strides=2, padding="same")],
        IMAGE,
        CONV,
        True,
    ),
    "conv transpose 2d gaps": Cell(
        lambda: nn.ConvTranspose2d(4, 6, 2, stride=3, output_padding=1),
        lambda: [layers.Conv2DTranspose(6, 2, strides=3)],
        IMAGE,
        CONV,
        True,
    ),
    "conv transpose 2d cropped": Cell(
        lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1),
        lambda: [layers.Conv2DTranspose(6, 3, strides=2), layers.Cropping2D(((1, 0), (1, 0)))],
        IMAGE,
        CONV,
        True,
    ),
    "conv transpose 3d": Cell(
        lambda: nn.ConvTranspose3d(3, 4, 3), lambda: [layers.Conv3DTranspose(4, 3)], (2, 3, 4, 4, 5), CONV, True
    ),
    "depthwise": Cell(
        lambda: nn.Conv2d(4, 4, 3, groups=4), lambda: [layers.DepthwiseConv2D(3)], IMAGE, of_first(hand.depthwise), True
    ),
    "depthwise multiplier": Cell(
        lambda: nn.Conv2d(4, 8, 3, groups=4),
        lambda: [layers.DepthwiseConv2D(3, depth_multiplier=2)],
        IMAGE,
        multiplied,
        True,
    ),
    "separable": Cell(
        lambda: nn.Sequential(nn.Conv2d(4, 4, 3, groups=4, bias=False), nn.Conv2d(4, 6, 1)),
        lambda: [layers.SeparableConv2D(6, 3)],
        IMAGE,
        separable,
        True,
    ),
    # normalisation
    "layer norm": Cell(lambda: nn.LayerNorm(9), lambda: [layers.LayerNormalization(epsilon=1e-5)], carry=NORM),
    "layer norm two axes": Cell(
        lambda: nn.LayerNorm((5, 9)), lambda: [layers.LayerNormalization(axis=(1, 2), epsilon=1e-5)], carry=NORM
    ),
    "layer norm plain": Cell(
        lambda: nn.LayerNorm(9, elementwise_affine=False),
        lambda: [layers.LayerNormalization(epsilon=1e-5, scale=False, center=False)],
    ),
    "rms norm": Cell(lambda: nn.RMSNorm(9, eps=1e-6), lambda: [layers.RMSNormalization(epsilon=1e-6)], carry=NORM),
    "batch norm 2d": Cell(
        lambda: nn.BatchNorm2d(4), lambda: [layers.BatchNormalization(epsilon=1e-5, momentum=0.9)], IMAGE, NORM, True
    ),
    "batch norm plain": Cell(
        lambda: nn.BatchNorm2d(4, affine=False),
        lambda: [layers.BatchNormalization(epsilon=1e-5, momentum=0.9, scale=False, center=False)],
        IMAGE,
        lambda t, k: [
            hand.linked(t.running_mean, k.layers[-1].moving_mean),
            hand.linked(t.running_var, k.layers[-1].moving_variance),
        ],
        True,
    ),
    "batch norm 1d": Cell(
        lambda: nn.BatchNorm1d(9), lambda: [layers.BatchNormalization(epsilon=1e-5, momentum=0.9)], (6, 9), NORM
    ),
    "group norm": Cell(
        lambda: nn.GroupNorm(2, 4), lambda: [layers.GroupNormalization(2, epsilon=1e-5)], IMAGE, NORM, True
    ),
    "instance norm": Cell(
        lambda: nn.InstanceNorm2d(4, affine=True),
        lambda: [layers.GroupNormalization(-1, epsilon=1e-5)],
        IMAGE,
        NORM,
        True,
    ),
    "instance norm plain": Cell(
        lambda: nn.InstanceNorm2d(4),
        lambda: [layers.GroupNormalization(-1, epsilon=1e-5, scale=False, center=False)],
        IMAGE,
        None,
        True,
    ),
    "unit norm": Cell(lambda: Function(lambda x: F.normalize(x, dim=-1)), lambda: [layers.UnitNormalization()]),
}
