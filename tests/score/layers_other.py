"""Cells of the other layers: pooling, resizing, shape, embedding, recurrent, attention, activations."""

from __future__ import annotations

import torch.nn.functional as F
from keras import layers
from torch import nn

from tests.score import hand
from tests.score.layer_parts import (
    IMAGE,
    Attend,
    AttendKeras,
    Cell,
    Function,
    Last,
    bidirectional,
    heads,
    inner,
    of_first,
    prelu,
    simple,
)

CELLS: dict[str, Cell] = {
    # pooling
    "max pool": Cell(lambda: nn.MaxPool2d(2), lambda: [layers.MaxPooling2D(2)], IMAGE, None, True),
    "max pool same odd": Cell(
        lambda: nn.MaxPool2d(3, 2, padding=1),
        lambda: [layers.MaxPooling2D(3, 2, padding="same")],
        (2, 4, 9, 9),
        None,
        True,
    ),
    "max pool ceil": Cell(
        lambda: nn.MaxPool2d(3, 2, ceil_mode=True),
        lambda: [layers.MaxPooling2D(3, 2, padding="same")],
        (2, 4, 8, 8),
        None,
        True,
    ),
    "average pool": Cell(lambda: nn.AvgPool2d(2), lambda: [layers.AveragePooling2D(2)], IMAGE, None, True),
    "average pool same": Cell(
        lambda: nn.AvgPool2d(3, 2, padding=1, count_include_pad=False),
        lambda: [layers.AveragePooling2D(3, 2, padding="same")],
        (2, 4, 9, 9),
        None,
        True,
    ),
    "average pool padded": Cell(
        lambda: nn.AvgPool2d(3, 2, padding=1),
        lambda: [layers.ZeroPadding2D(1), layers.AveragePooling2D(3, 2)],
        IMAGE,
        None,
        True,
    ),
    "average pool 1d": Cell(lambda: nn.AvgPool1d(3), lambda: [layers.AveragePooling1D(3)], (2, 4, 9), None, True),
    "max pool 3d": Cell(lambda: nn.MaxPool3d(2), lambda: [layers.MaxPooling3D(2)], (2, 3, 6, 6, 4), None, True),
    "adaptive average": Cell(
        lambda: nn.AdaptiveAvgPool2d(4), lambda: [layers.AdaptiveAveragePooling2D(4)], (2, 4, 9, 9), None, True
    ),
    "adaptive max": Cell(
        lambda: nn.AdaptiveMaxPool2d(3), lambda: [layers.AdaptiveMaxPooling2D(3)], (2, 4, 9, 9), None, True
    ),
    "global average": Cell(
        lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        lambda: [layers.GlobalAveragePooling2D()],
        IMAGE,
        None,
        True,
    ),
    "global max": Cell(
        lambda: Function(lambda x: x.amax((2, 3))), lambda: [layers.GlobalMaxPooling2D()], IMAGE, None, True
    ),
    # resizing, padding, shape
    "upsample nearest": Cell(lambda: nn.Upsample(scale_factor=2), lambda: [layers.UpSampling2D(2)], IMAGE, None, True),
    "upsample bilinear": Cell(
        lambda: nn.Upsample(scale_factor=2, mode="bilinear"),
        lambda: [layers.UpSampling2D(2, interpolation="bilinear")],
        IMAGE,
        None,
        True,
    ),
    "resize bilinear": Cell(
        lambda: Function(lambda x: F.interpolate(x, (13, 7), mode="bilinear", align_corners=False)),
        lambda: [layers.Resizing(13, 7)],
        IMAGE,
        None,
        True,
    ),
    "resize nearest exact": Cell(
        lambda: Function(lambda x: F.interpolate(x, (13, 7), mode="nearest-exact")),
        lambda: [layers.Resizing(13, 7, interpolation="nearest")],
        IMAGE,
        None,
        True,
    ),
    "upsample 1d": Cell(lambda: nn.Upsample(scale_factor=3), lambda: [layers.UpSampling1D(3)], (2, 4, 6), None, True),
    "zero pad": Cell(
        lambda: nn.ZeroPad2d((1, 2, 0, 3)), lambda: [layers.ZeroPadding2D(((0, 3), (1, 2)))], IMAGE, None, True
    ),
    "crop": Cell(
        lambda: Function(lambda x: x[:, :, 1:-2, 2:]), lambda: [layers.Cropping2D(((1, 2), (2, 0)))], IMAGE, None, True
    ),
    "permute": Cell(lambda: Function(lambda x: x.transpose(1, 2)), lambda: [layers.Permute((2, 1))]),
    "flatten rows": Cell(lambda: nn.Flatten(), lambda: [layers.Flatten()]),
    "reshape": Cell(lambda: Function(lambda x: x.reshape(x.shape[0], 9, 5)), lambda: [layers.Reshape((9, 5))]),
    "repeat": Cell(
        lambda: Function(lambda x: x.unsqueeze(1).repeat(1, 4, 1)), lambda: [layers.RepeatVector(4)], (3, 9)
    ),
    # embedding, recurrent, attention
    "embedding": Cell(
        lambda: nn.Embedding(20, 6), lambda: [layers.Embedding(20, 6)], (3, 5), of_first(hand.embedding), ids=20
    ),
    "embedding padding": Cell(
        lambda: nn.Embedding(20, 6, padding_idx=0),
        lambda: [layers.Embedding(20, 6, mask_zero=True)],
        (3, 5),
        of_first(hand.embedding),
        ids=20,
    ),
    "lstm": Cell(
        lambda: Last(nn.LSTM(9, 6, batch_first=True)),
        lambda: [layers.LSTM(6, return_sequences=True)],
        carry=inner(hand.lstm),
    ),
    "lstm last": Cell(
        lambda: Last(nn.LSTM(9, 6, batch_first=True), True), lambda: [layers.LSTM(6)], carry=inner(hand.lstm)
    ),
    "lstm both ways": Cell(
        lambda: Last(nn.LSTM(9, 6, batch_first=True, bidirectional=True)),
        lambda: [layers.Bidirectional(layers.LSTM(6, return_sequences=True))],
        carry=bidirectional(hand.lstm),
    ),
    "gru": Cell(
        lambda: Last(nn.GRU(9, 6, batch_first=True)),
        lambda: [layers.GRU(6, return_sequences=True)],
        carry=inner(hand.gru),
    ),
    "gru both ways": Cell(
        lambda: Last(nn.GRU(9, 6, batch_first=True, bidirectional=True)),
        lambda: [layers.Bidirectional(layers.GRU(6, return_sequences=True))],
        carry=bidirectional(hand.gru),
    ),
    "simple rnn": Cell(
        lambda: Last(nn.RNN(9, 6, batch_first=True)), lambda: [layers.SimpleRNN(6, return_sequences=True)], carry=simple
    ),
    "simple rnn relu": Cell(
        lambda: Last(nn.RNN(9, 6, batch_first=True, nonlinearity="relu")),
        lambda: [layers.SimpleRNN(6, activation="relu", return_sequences=True)],
        carry=simple,
    ),
    "attention": Cell(Attend, lambda: [AttendKeras()], (3, 5, 12), heads),
    # activations
    "prelu": Cell(lambda: nn.PReLU(4), lambda: [layers.PReLU(shared_axes=[1, 2])], IMAGE, prelu, True),
    "dropout": Cell(lambda: nn.Dropout(0.3), lambda: [layers.Dropout(0.3)]),
    "dropout 2d": Cell(lambda: nn.Dropout2d(0.3), lambda: [layers.SpatialDropout2D(0.3)], IMAGE, None, True),
    "softmax channels": Cell(lambda: nn.Softmax(dim=1), lambda: [layers.Softmax(axis=-1)], IMAGE, None, True),
    "glu": Cell(lambda: nn.GLU(-1), lambda: [layers.Activation("glu")], (3, 8)),
    "leaky relu": Cell(lambda: nn.LeakyReLU(0.3), lambda: [layers.LeakyReLU()]),
    "relu max": Cell(lambda: nn.ReLU6(), lambda: [layers.ReLU(max_value=6.0)]),
    "elu alpha": Cell(lambda: nn.ELU(0.5), lambda: [layers.ELU(0.5)]),
    "softmax": Cell(lambda: nn.Softmax(-1), lambda: [layers.Softmax()]),
}
for _name, _module in {
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "elu": nn.ELU,
    "selu": nn.SELU,
    "celu": nn.CELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "mish": nn.Mish,
    "hard_silu": nn.Hardswish,
    "hard_sigmoid": nn.Hardsigmoid,
    "softplus": nn.Softplus,
    "log_sigmoid": nn.LogSigmoid,
    "softsign": nn.Softsign,
    "hard_tanh": nn.Hardtanh,
    "tanh_shrink": nn.Tanhshrink,
    "soft_shrink": nn.Softshrink,
    "hard_shrink": nn.Hardshrink,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "log_softmax": lambda: nn.LogSoftmax(-1),
}.items():
    CELLS[_name] = Cell(_module, lambda name=_name: [layers.Activation(name)])
