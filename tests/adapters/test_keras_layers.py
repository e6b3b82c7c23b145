"""Keras layers against the float64 reference: the same layer in float64 and its canonical description agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers as L

from ambidex.adapters import keras_layers as kl
from ambidex.adapters import reference_
from ambidex.errors import InputError

F64 = {"dtype": "float64"}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def x(*shape: int, seed: int = 1) -> np.ndarray:
    return rng(seed).normal(size=shape)


def randomise(layer: Any) -> None:
    """Every weight random, variances positive: initial zeros and ones hide mistakes."""
    r = rng(3)
    for v in layer.weights:
        if "seed" in v.path or not str(v.dtype).startswith(("float", "bfloat")):
            continue
        value = r.normal(size=v.shape)
        v.assign(np.abs(value) + 0.5 if "variance" in v.path else value)


def run(layer: Any, *inputs: Any, **kwargs: Any) -> list[np.ndarray]:
    out = layer(inputs[0] if len(inputs) == 1 else list(inputs), **kwargs)
    return [np.asarray(keras.ops.convert_to_numpy(y)) for y in (out if isinstance(out, list | tuple) else [out])]


def expected(layer: Any, *inputs: Any) -> np.ndarray:
    found = kl.translate(layer)
    assert found is not None
    y = reference_.evaluate(found.op, found.attrs, kl.get_weights(layer), list(inputs), layout=found.layout)[0]
    fused = kl.split_activation(layer)
    if fused is not None and found.op not in ("Relu", fused[0]):
        y = reference_.evaluate(fused[0], fused[1], {}, [y])[0]
    return y


def conv(n: int, **kw: Any) -> Callable[[], Any]:
    return lambda: getattr(L, f"Conv{n}D")(6, **{"kernel_size": 3, **F64, **kw})


def tconv(n: int, **kw: Any) -> Callable[[], Any]:
    return lambda: getattr(L, f"Conv{n}DTranspose")(5, **{"kernel_size": 3, **F64, **kw})


S3, S4, S5 = (2, 11, 4), (2, 11, 8, 4), (2, 5, 7, 6, 4)
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


RNNS: dict[str, Callable[[], Any]] = {
    "lstm": lambda: L.LSTM(4, **F64),
    "lstm sequences": lambda: L.LSTM(4, return_sequences=True, **F64),
    "lstm no bias": lambda: L.LSTM(4, use_bias=False, **F64),
    "lstm activations": lambda: L.LSTM(4, activation="relu", recurrent_activation="hard_sigmoid", **F64),
    "lstm backwards": lambda: L.LSTM(4, go_backwards=True, return_sequences=True, **F64),
    "lstm backwards last": lambda: L.LSTM(4, go_backwards=True, **F64),
    "lstm unroll": lambda: L.LSTM(4, unroll=True, **F64),
    "gru": lambda: L.GRU(4, return_sequences=True, **F64),
    "gru reset before": lambda: L.GRU(4, reset_after=False, **F64),
    "gru no bias": lambda: L.GRU(4, use_bias=False, **F64),
    "rnn": lambda: L.SimpleRNN(4, return_sequences=True, **F64),
    "rnn linear": lambda: L.SimpleRNN(4, activation=None, **F64),
    "rnn of a cell": lambda: L.RNN(L.GRUCell(4, **F64), return_sequences=True, **F64),
    **{
        f"bidirectional {m} {s}": (
            lambda m=m, s=s: L.Bidirectional(L.LSTM(4, return_sequences=s, **F64), merge_mode=m, **F64)
        )
        for m in ("concat", "sum", "mul", "ave")
        for s in (True, False)
    },
    "bidirectional gru": lambda: L.Bidirectional(L.GRU(4, return_sequences=True, **F64), **F64),
    "bidirectional rnn": lambda: L.Bidirectional(L.SimpleRNN(4, **F64), **F64),
}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", RNNS)
def test_recurrent(name: str, masked: bool) -> None:
    layer = RNNS[name]()
    data = x(3, 6, 5)
    mask = np.arange(6)[None] < np.array([6, 3, 4])[:, None]
    run(layer, data)
    randomise(layer)
    kwargs = {"mask": keras.ops.convert_to_tensor(mask)} if masked else {}
    got = run(layer, data, **kwargs)[0]
    want = expected(layer, data, mask) if masked else expected(layer, data)
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)
    weights = kl.get_weights(layer)
    for v in layer.weights:
        if str(v.dtype).startswith("float"):
            v.assign(np.zeros(v.shape))
    kl.set_weights(layer, weights)
    np.testing.assert_array_equal(run(layer, data, **kwargs)[0], got)


def test_bidirectional_without_merging() -> None:
    layer = L.Bidirectional(L.GRU(4, return_sequences=True, **F64), merge_mode=None, **F64)
    data = x(3, 6, 5)
    run(layer, data)
    randomise(layer)
    found = kl.translate(layer)
    assert found is not None and found.attrs["merge"] is None
    want = reference_.evaluate(found.op, found.attrs, kl.get_weights(layer), [data], layout=found.layout)
    for got, w in zip(run(layer, data), want, strict=False):
        np.testing.assert_allclose(got, w, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "make", [lambda: L.LSTM(4, **F64), lambda: L.SimpleRNN(4, **F64), lambda: L.GRU(4, reset_after=False, **F64)]
)
def test_two_biases_become_their_sum(make: Callable[[], Any]) -> None:
    """A layer with one bias computes with the sum of the input and recurrent biases of the other framework."""
    layer = make()
    data = x(3, 6, 5)
    run(layer, data)
    randomise(layer)
    found = kl.translate(layer)
    assert found is not None
    weights = kl.get_weights(layer)
    weights["B"] = x(*weights["B"].shape, seed=9)
    kl.set_weights(layer, weights)
    want = reference_.evaluate(found.op, found.attrs, weights, [data], layout=found.layout)[0]
    np.testing.assert_allclose(run(layer, data)[0], want, rtol=1e-9, atol=1e-9)


def test_gru_with_two_biases_keeps_both() -> None:
    layer = L.GRU(4, **F64)
    run(layer, x(3, 6, 5))
    weights = kl.get_weights(layer)
    weights["B"] = x(*weights["B"].shape, seed=9)
    kl.set_weights(layer, weights)
    np.testing.assert_array_equal(kl.get_weights(layer)["B"], weights["B"])


@pytest.mark.parametrize(
    "make,shape",
    [
        (lambda: L.SeparableConv2D(6, 3, depth_multiplier=2, strides=2, padding="same", **F64), S4),
        (lambda: L.SeparableConv1D(6, 3, use_bias=False, activation="relu", **F64), S3),
    ],
)
def test_separable_convolution_is_two(make: Callable[[], Any], shape: tuple[int, ...]) -> None:
    layer = make()
    data = x(*shape)
    run(layer, data)
    randomise(layer)
    assert kl.translate(layer) is None
    value: Any = data
    for _, part in kl.parts(layer):
        found = kl.translate(part)
        assert found is not None
        want = reference_.evaluate(found.op, found.attrs, kl.get_weights(part), [value], layout=found.layout)[0]
        np.testing.assert_allclose(run(part, keras.ops.convert_to_tensor(value))[0], want, rtol=1e-9, atol=1e-9)
        value = want
        old = kl.get_weights(part)
        kl.set_weights(part, {"W": 2 * old["W"]})
        np.testing.assert_array_equal(kl.get_weights(part)["W"], 2 * old["W"])
        kl.set_weights(part, old)
    fused = kl.split_activation(layer)
    if fused:
        value = reference_.evaluate(fused[0], fused[1], {}, [value])[0]
    np.testing.assert_allclose(run(layer, data)[0], value, rtol=1e-9, atol=1e-9)


def test_channels_first_flatten_is_two() -> None:
    layer = L.Flatten(data_format="channels_first", **F64)
    data = x(*S4)
    got = run(layer, data)[0]
    assert kl.translate(layer) is None
    value: Any = data
    for _, part in kl.parts(layer):
        found = kl.translate(part)
        assert found is not None
        value = reference_.evaluate(found.op, found.attrs, {}, [value])[0]
    np.testing.assert_array_equal(got, value)


def test_embeddings() -> None:
    ids = rng().integers(0, 9, (3, 5))
    layer = L.Embedding(9, 4, mask_zero=True, **F64)
    got = run(layer, ids)[0]
    np.testing.assert_array_equal(got, expected(layer, ids))
    found = kl.translate(layer)
    assert found is not None and found.attrs["mask_zero"] is True
    tied = L.ReversibleEmbedding(9, 4, tie_weights=False, **F64)
    run(tied, ids)
    randomise(tied)
    names = dict(kl.parts(tied))
    assert kl.get_weights(names["reverse"])["W"].shape == (9, 4)
    data = x(3, 4)
    np.testing.assert_allclose(np.asarray(tied(data, reverse=True)), data @ kl.get_weights(names["reverse"])["W"].T)


def test_multi_head_attention_parts() -> None:
    layer = L.MultiHeadAttention(3, 5, value_dim=4, **F64)
    data = x(2, 6, 7)
    layer(data, data)
    randomise(layer)
    assert kl.translate(layer) is None
    parts = dict(kl.parts(layer))
    assert list(parts) == ["query", "key", "value", "output"]
    assert all(kl.translate(p).op == "Gemm" for p in parts.values())  # type: ignore[union-attr]
    q, k, v = (expected(parts[n], data).reshape(2, 6, 3, -1) for n in ("query", "key", "value"))
    attrs = {**kl.attention_attrs(layer), "is_causal": True}
    core = reference_.evaluate("Attention", attrs, {}, [q, k, v], layout="BTHD")[0]
    want = expected(parts["output"], core)
    np.testing.assert_allclose(np.asarray(layer(data, data, use_causal_mask=True)), want, rtol=1e-7, atol=1e-7)
    assert kl.attention_attrs(L.MultiHeadAttention(3, 5))["masked_row"] == "uniform"
    assert kl.attention_attrs(L.MultiHeadAttention(3, 5, dropout=0.1))["masked_row"] == "zero"
    grouped = L.GroupQueryAttention(5, 4, 2)
    assert kl.attention_attrs(grouped)["kv_num_heads"] == 2
    assert kl.attention_attrs(grouped)["num_heads"] == 4


@pytest.mark.parametrize("scaled", [False, True])
def test_dot_attention(scaled: bool) -> None:
    layer = L.Attention(use_scale=scaled, **F64)
    q, v, k = x(2, 4, 5), x(2, 6, 5, seed=2), x(2, 6, 5, seed=3)
    run(layer, q, v, k)
    randomise(layer)
    np.testing.assert_allclose(run(layer, q, v, k)[0], expected(layer, q, k, v), rtol=1e-9, atol=1e-9)
    assert kl.translate(L.Attention(score_mode="concat")) is None


@pytest.mark.parametrize("cls,op", [(L.Add, "Add"), (L.Multiply, "Mul"), (L.Maximum, "Max"), (L.Minimum, "Min")])
def test_merging(cls: Any, op: str) -> None:
    layer = cls(**F64)
    data = [x(*S3), x(*S3, seed=2), x(*S3, seed=3)]
    np.testing.assert_allclose(run(layer, *data)[0], expected(layer, *data))
    assert kl.translate(layer).op == op  # type: ignore[union-attr]


def test_subtract_and_dot() -> None:
    data = [x(2, 3, 5), x(2, 3, 5, seed=2)]
    np.testing.assert_allclose(run(L.Subtract(**F64), *data)[0], expected(L.Subtract(**F64), *data))
    for axes, shapes in (
        (2, [(2, 3, 5), (2, 4, 5)]),
        ((2, 1), [(2, 3, 5), (2, 5, 4)]),
        ((1, 2), [(2, 5, 3), (2, 4, 5)]),
    ):
        layer = L.Dot(axes, **F64)
        pair = [x(*s, seed=i) for i, s in enumerate(shapes)]
        got = run(layer, *pair)[0]
        np.testing.assert_allclose(got, expected(layer, *pair), rtol=1e-12)
    flat = L.Dot(1)
    run(flat, x(2, 3), x(2, 3))
    assert kl.translate(flat) == kl.Translation("Dot", {"axes": [1, 1], "normalize": False})


def test_layers_named_in_their_own_words() -> None:
    rms = L.LayerNormalization(rms_scaling=True)
    run(rms, x(2, 3))
    assert kl.translate(rms).op == "LayerNormalizationRmsScaling"  # type: ignore[union-attr]
    assert kl.translate(L.Rescaling(1 / 255, offset=-1)) == kl.Translation("Affine", {"alpha": 1 / 255, "beta": -1.0})
    assert kl.translate(L.Masking(2.0)) == kl.Translation("Masking", {"mask_value": 2.0})
    assert kl.translate(L.RepeatVector(3)) == kl.Translation("RepeatVector", {"n": 3})
    norm = L.Normalization()
    norm.adapt(x(20, 4))
    assert kl.translate(norm).op == "Standardize"  # type: ignore[union-attr]
    assert set(kl.get_weights(norm)) == {"mean", "var"}
    assert kl.translate(L.Average()).op == "Mean"  # type: ignore[union-attr]
    assert kl.translate(L.SpatialDropout2D(0.2)).attrs == {"ratio": 0.2, "channelwise": True}  # type: ignore[union-attr]
    assert kl.translate(L.GaussianNoise(0.2)).attrs == {"stddev": 0.2}  # type: ignore[union-attr]
    assert kl.translate(L.Softmax(axis=1), ndim=3).attrs == {"axis": -2}  # type: ignore[union-attr]


def test_no_canonical_operator() -> None:
    for layer in (
        L.RNN([L.LSTMCell(3), L.LSTMCell(3)]),
        L.SpectralNormalization(L.Dense(3)),
        L.CategoryEncoding(4),
        L.MultiHeadAttention(2, 3),
        L.AdditiveAttention(),
        L.TimeDistributed(L.Dense(3)),
        L.Activation(lambda v: v * keras.ops.sin(v)),
        L.ReLU(max_value=2.0, negative_slope=0.1),
    ):
        assert kl.translate(layer) is None


def test_a_subclass_counts_only_while_keras_computes() -> None:
    class Plain(L.Dense):
        def __init__(self, units: int) -> None:
            super().__init__(units)
            self.note = "mine"

        def get_config(self) -> dict[str, Any]:
            return {**super().get_config(), "note": self.note}

    class Other(L.Dense):
        def call(self, inputs: Any) -> Any:
            return super().call(inputs) * 2

    class Standardised(L.Conv2D):
        def convolution_op(self, inputs: Any, kernel: Any) -> Any:
            return super().convolution_op(inputs, kernel - keras.ops.mean(kernel))

    assert kl.translate(Plain(3)).op == "Gemm"  # type: ignore[union-attr]
    assert kl.translate(Other(3)) is None
    assert kl.translate(Standardised(3, 3)) is None


def test_wrong_weights_are_refused_and_nothing_is_written() -> None:
    layer = L.Dense(3, use_bias=False, **F64)
    run(layer, x(2, 4))
    before = kl.get_weights(layer)
    with pytest.raises(InputError, match="no weight 'B'"):
        kl.set_weights(layer, {"W": np.zeros((3, 4)), "B": np.zeros(3)})
    with pytest.raises(InputError, match=r"shape \(3, 4\), got \(4, 3\)"):
        kl.set_weights(layer, {"W": np.zeros((4, 3))})
    np.testing.assert_array_equal(kl.get_weights(layer)["W"], before["W"])
    shared = L.EinsumDense("ab,bcd->acd", (3, 5), bias_axes="c", **F64)
    run(shared, x(2, 4))
    with pytest.raises(InputError, match="cannot hold"):
        kl.set_weights(shared, {"B": np.arange(15.0)})
    with pytest.raises(InputError, match="no weights yet"):
        kl.get_weights(L.Dense(3))
