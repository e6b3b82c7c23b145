"""Keras layers against the float64 reference: the same layer in float64 and its canonical description agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from keras import layers as L
from tests.adapters.keras_reference import F64, S3, S4, S5, expected, randomise, run, x

from ambidex.adapters import keras_layers as kl


def conv(n: int, **kw: Any) -> Callable[[], Any]:
    return lambda: getattr(L, f"Conv{n}D")(6, **{"kernel_size": 3, **F64, **kw})


def tconv(n: int, **kw: Any) -> Callable[[], Any]:
    return lambda: getattr(L, f"Conv{n}DTranspose")(5, **{"kernel_size": 3, **F64, **kw})


CASES: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "dense": (lambda: L.Dense(5, **F64), (3, 7)),
    "dense 3d gelu": (lambda: L.Dense(5, activation="gelu", **F64), (3, 4, 7)),
    "dense no bias": (lambda: L.Dense(5, use_bias=False, activation="tanh", **F64), (3, 7)),
    "einsum query": (lambda: L.EinsumDense("abc,cde->abde", (None, 3, 5), bias_axes="de", **F64), (2, 4, 7)),
    "einsum output": (lambda: L.EinsumDense("abcd,cde->abe", (None, 9), bias_axes="e", **F64), (2, 4, 3, 5)),
    "einsum ellipsis": (lambda: L.EinsumDense("...x,xy->...y", 6, bias_axes="y", **F64), (2, 4, 3, 5)),
    "einsum kernel turned": (lambda: L.EinsumDense("abcd,edc->abe", (None, 9), **F64), (2, 4, 3, 5)),
    "einsum bias first axis": (lambda: L.EinsumDense("ab,bcd->acd", (3, 5), bias_axes="c", **F64), (2, 4)),
    "einsum bias last axis": (lambda: L.EinsumDense("ab,bcd->acd", (3, 5), bias_axes="d", **F64), (2, 4)),
    "einsum batch kernel": (lambda: L.EinsumDense("abc,bcd->abd", (4, 5), bias_axes="d", **F64), (2, 4, 7)),
    "einsum bias on free axis": (lambda: L.EinsumDense("abc,cd->abd", (4, 5), bias_axes="bd", **F64), (2, 4, 7)),
    "conv1d valid": (conv(1), S3),
    "conv1d same s2": (conv(1, padding="same", strides=2), (2, 10, 4)),
    "conv1d same s2 odd": (conv(1, padding="same", strides=2), S3),
    "conv1d causal dilated": (conv(1, padding="causal", dilation_rate=2), S3),
    "conv1d even kernel same": (conv(1, padding="same", kernel_size=4), S3),
    "conv1d groups": (conv(1, groups=2, padding="same"), S3),
    "conv2d relu": (conv(2, kernel_size=(3, 2), activation="relu"), S4),
    "conv2d same s2": (conv(2, kernel_size=(5, 3), padding="same", strides=(2, 2)), S4),
    "conv2d 1x1 s2 same": (conv(2, kernel_size=1, padding="same", strides=2), S4),
    "conv2d groups dilated": (conv(2, groups=2, dilation_rate=(2, 1), padding="same", use_bias=False), S4),
    "conv3d": (conv(3, kernel_size=(3, 2, 3), padding="same"), S5),
    "conv3d s2": (conv(3, kernel_size=(3, 2, 3), padding="same", strides=2), S5),
    "tconv1d same s2": (tconv(1, padding="same", strides=2), S3),
    "tconv1d valid k2 s3": (tconv(1, kernel_size=2, strides=3), S3),
    "tconv1d same k2 s3": (tconv(1, kernel_size=2, strides=3, padding="same"), S3),
    "tconv2d same s2 k5": (tconv(2, kernel_size=(5, 4), padding="same", strides=2), S4),
    "tconv2d same op0": (tconv(2, padding="same", strides=2, output_padding=0), S4),
    "tconv2d same op1": (tconv(2, kernel_size=(5, 4), padding="same", strides=2, output_padding=1), S4),
    "tconv2d valid op1": (tconv(2, strides=2, output_padding=1), S4),
    "tconv3d same": (tconv(3, kernel_size=(3, 2, 4), padding="same", strides=2), S5),
    "depthwise1d": (lambda: L.DepthwiseConv1D(3, depth_multiplier=2, padding="same", **F64), S3),
    "depthwise2d": (lambda: L.DepthwiseConv2D((3, 5), depth_multiplier=2, **F64), S4),
    "depthwise2d same s2": (lambda: L.DepthwiseConv2D(3, strides=2, padding="same", activation="relu6", **F64), S4),
    "batchnorm": (lambda: L.BatchNormalization(**F64), S4),
    "batchnorm axis 1": (lambda: L.BatchNormalization(axis=1, **F64), S4),
    "batchnorm 2d": (lambda: L.BatchNormalization(**F64), (5, 6)),
    "batchnorm 3d": (lambda: L.BatchNormalization(epsilon=0.1, **F64), S3),
    "batchnorm no scale": (lambda: L.BatchNormalization(scale=False, **F64), S4),
    "batchnorm no center": (lambda: L.BatchNormalization(center=False, **F64), S4),
    "layernorm": (lambda: L.LayerNormalization(epsilon=1e-2, **F64), S3),
    "layernorm two axes": (lambda: L.LayerNormalization(axis=[-2, -1], **F64), S3),
    "layernorm positive": (lambda: L.LayerNormalization(axis=(1, 2, 3), **F64), S4),
    "layernorm first axis": (lambda: L.LayerNormalization(axis=1, **F64), S4),
    "layernorm outer axes": (lambda: L.LayerNormalization(axis=(1, 3), **F64), S4),
    "layernorm no center": (lambda: L.LayerNormalization(center=False, **F64), S3),
    "layernorm plain": (lambda: L.LayerNormalization(center=False, scale=False, **F64), S3),
    "rmsnorm": (lambda: L.RMSNormalization(epsilon=1e-2, **F64), S3),
    "rmsnorm axis 1": (lambda: L.RMSNormalization(axis=1, **F64), (2, 4, 4)),
    "groupnorm": (lambda: L.GroupNormalization(groups=2, **F64), S4),
    "groupnorm -1": (lambda: L.GroupNormalization(groups=-1, **F64), S4),
    "groupnorm axis 1": (lambda: L.GroupNormalization(groups=4, axis=1, epsilon=0.1, **F64), (2, 8, 5, 3)),
    "groupnorm 3d": (lambda: L.GroupNormalization(groups=2, center=False, **F64), S3),
    "unitnorm": (lambda: L.UnitNormalization(**F64), S3),
    "unitnorm axis 1": (lambda: L.UnitNormalization(axis=1, **F64), S3),
    "prelu": (lambda: L.PReLU(**F64), S3),
    "prelu shared": (lambda: L.PReLU(shared_axes=[1, 2], **F64), S4),
    "prelu channels first": (lambda: L.PReLU(shared_axes=[2, 3], **F64), S4),
    "prelu 2d": (lambda: L.PReLU(**F64), (3, 7)),
    "prelu one": (lambda: L.PReLU(shared_axes=[1, 2], **F64), (2, 5, 1)),
    "leaky": (lambda: L.LeakyReLU(**F64), S3),
    "elu": (lambda: L.ELU(0.7, **F64), S3),
    "relu": (lambda: L.ReLU(**F64), S3),
    "relu max": (lambda: L.ReLU(max_value=1.0, **F64), S3),
    "relu slope": (lambda: L.ReLU(negative_slope=0.25, **F64), S3),
    "relu threshold": (lambda: L.ReLU(threshold=0.5, **F64), S3),
    "softmax": (lambda: L.Softmax(**F64), S3),
    "softmax axis 1": (lambda: L.Softmax(axis=1, **F64), S3),
    "maxpool1d": (lambda: L.MaxPooling1D(2, **F64), S3),
    "maxpool2d same": (lambda: L.MaxPooling2D(3, strides=2, padding="same", **F64), S4),
    "maxpool2d same s1": (lambda: L.MaxPooling2D(3, strides=1, padding="same", **F64), S4),
    "avgpool1d same": (lambda: L.AveragePooling1D(3, strides=2, padding="same", **F64), S3),
    "avgpool2d": (lambda: L.AveragePooling2D((3, 2), **F64), S4),
    "avgpool2d same s1": (lambda: L.AveragePooling2D(3, strides=1, padding="same", **F64), S4),
    "avgpool2d channels first": (
        lambda: L.AveragePooling2D(3, strides=2, padding="same", data_format="channels_first", **F64),
        S4,
    ),
    **{
        f"global {k}{n}d {keep}": (
            lambda k=k, n=n, keep=keep: getattr(L, f"Global{k}Pooling{n}D")(keepdims=keep, **F64),
            (S3, S4, S5)[n - 1],
        )
        for k in ("Max", "Average")
        for n in (1, 2, 3)
        for keep in (False, True)
    },
    "global average first": (lambda: L.GlobalAveragePooling2D(data_format="channels_first", **F64), S4),
    "adaptive average": (lambda: L.AdaptiveAveragePooling2D((3, 2), **F64), S4),
    "adaptive max": (lambda: L.AdaptiveMaxPooling1D(4, **F64), S3),
    "dropout": (lambda: L.Dropout(0.5, **F64), S3),
    "flatten": (lambda: L.Flatten(**F64), S4),
    "reshape": (lambda: L.Reshape((4, -1), **F64), S4),
    "permute": (lambda: L.Permute((2, 3, 1), **F64), S4),
    "pad1": (lambda: L.ZeroPadding1D((1, 2), **F64), S3),
    "pad2": (lambda: L.ZeroPadding2D(((1, 0), (2, 3)), **F64), S4),
    "pad2 first": (lambda: L.ZeroPadding2D(((1, 0), (2, 3)), data_format="channels_first", **F64), S4),
    "pad3": (lambda: L.ZeroPadding3D((1, 2, 1), **F64), S5),
    "crop1": (lambda: L.Cropping1D((1, 2), **F64), S3),
    "crop2": (lambda: L.Cropping2D(((1, 0), (2, 3)), **F64), S4),
    "crop3": (lambda: L.Cropping3D(((1, 0), (2, 1), (0, 1)), **F64), S5),
    "up1": (lambda: L.UpSampling1D(3, **F64), S3),
    "up2 nearest": (lambda: L.UpSampling2D((2, 3), **F64), S4),
    "up2 first": (lambda: L.UpSampling2D((2, 3), data_format="channels_first", **F64), S4),
    "up3": (lambda: L.UpSampling3D((2, 1, 2), **F64), S5),
    "concat": (lambda: L.Concatenate(axis=1, **F64), S3),
    "identity": (lambda: L.Identity(**F64), S3),
}


@pytest.mark.parametrize("name", CASES)
def test_translation_agrees_with_the_layer(name: str) -> None:
    make, shape = CASES[name]
    layer = make()
    inputs = [x(*shape), x(*shape, seed=2)] if isinstance(layer, L.Concatenate) else [x(*shape)]
    run(layer, *inputs)
    randomise(layer)
    got, want = run(layer, *inputs)[0], expected(layer, *inputs)
    if name.startswith("einsum") and got.size == want.size:
        want = want.reshape(got.shape)  # the canonical Gemm has one output axis, Keras may have several
    assert got.shape == want.shape
    # the square root of 2 in GELU and the slope of LeakyReLU pass through float32 in Keras
    loose = 1e-7 if "gelu" in name or "leaky" in name else 1e-9
    np.testing.assert_allclose(got, want, rtol=loose, atol=loose)


@pytest.mark.parametrize("name", [n for n in CASES if not n.startswith(("pad", "crop", "up", "global", "max", "avg"))])
def test_weights_round_trip_and_follow(name: str) -> None:
    make, shape = CASES[name]
    layer = make()
    inputs = [x(*shape), x(*shape, seed=2)] if isinstance(layer, L.Concatenate) else [x(*shape)]
    run(layer, *inputs)
    randomise(layer)
    before = [np.asarray(v) for v in layer.weights]
    weights = kl.get_weights(layer)
    assert set(kl.weight_names(layer)) == set(weights)
    first = run(layer, *inputs)[0]
    for v in layer.weights:
        if str(v.dtype).startswith("float"):
            v.assign(np.ones(v.shape))
    kl.set_weights(layer, weights)
    np.testing.assert_array_equal(run(layer, *inputs)[0], first)
    for v, old in zip(layer.weights, before, strict=True):
        if str(v.dtype).startswith("float"):
            np.testing.assert_array_equal(np.asarray(v), old)


FLOAT32 = {
    "bilinear": lambda: L.UpSampling2D((2, 3), interpolation="bilinear"),
    "bicubic": lambda: L.UpSampling2D((2, 3), interpolation="bicubic"),
    "resizing bilinear": lambda: L.Resizing(7, 13),
    "resizing antialias": lambda: L.Resizing(5, 6, antialias=True),
    "resizing nearest": lambda: L.Resizing(7, 13, interpolation="nearest"),
    "resizing bicubic": lambda: L.Resizing(14, 11, interpolation="bicubic"),
    "resizing bicubic smaller": lambda: L.Resizing(5, 6, interpolation="bicubic"),
    "maxpool3d": lambda: L.MaxPooling3D(2, padding="same"),
    "avgpool3d": lambda: L.AveragePooling3D(2, padding="same"),
    "lanczos": lambda: L.Resizing(5, 6, interpolation="lanczos3", antialias=True),
    "conv2d channels first": lambda: L.Conv2D(6, 3, strides=2, padding="same", data_format="channels_first"),
    "conv1d channels first": lambda: L.Conv1D(6, 3, padding="same", data_format="channels_first"),
    "batchnorm": lambda: L.BatchNormalization(axis=1),
}


@pytest.mark.parametrize("name", FLOAT32)
def test_where_tensorflow_computes_in_float32(name: str) -> None:
    """Images are resized in float32 whatever their type; some kernels exist on the CPU only so."""
    layer = FLOAT32[name]()
    data = x(*(S3 if "1d" in name else S5 if "3d" in name else S4)).astype("float32")
    run(layer, data)
    randomise(layer)
    # TensorFlow rounds the places of a bicubic resize to 1/1024 of a pixel, unless it antialiases
    loose = 5e-3 if "bicubic" in name else 2e-5
    np.testing.assert_allclose(run(layer, data)[0], expected(layer, data), rtol=1e-4, atol=loose)
