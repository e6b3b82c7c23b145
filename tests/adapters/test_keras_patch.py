"""A patched Keras layer computes what the reference says for the new attributes, and is itself again afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers as L

from ambidex.adapters import keras_layers as kl
from ambidex.adapters import reference_
from ambidex.errors import UnsupportedError

F64 = {"dtype": "float64"}
S3, S4 = (2, 10, 4), (2, 10, 8, 4)


def x(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def run(layer: Any, data: Any, **kwargs: Any) -> np.ndarray:
    out = layer(data, **kwargs)
    return np.asarray(keras.ops.convert_to_numpy(out[0] if isinstance(out, list | tuple) else out))


def built(make: Callable[[], Any], shape: tuple[int, ...]) -> Any:
    layer = make()
    layer(x(*shape))
    r = np.random.default_rng(3)
    for v in layer.weights:
        if str(v.dtype).startswith("float"):
            value = r.normal(size=v.shape)
            v.assign(np.abs(value) + 0.5 if "variance" in v.path else value)
    return layer


CASES: dict[str, tuple[Callable[[], Any], tuple[int, ...], dict[str, Any]]] = {
    "bn epsilon": (lambda: L.BatchNormalization(**F64), S4, {"epsilon": 0.5}),
    "ln epsilon": (lambda: L.LayerNormalization(**F64), S3, {"epsilon": 0.5}),
    "ln axis": (lambda: L.LayerNormalization(center=False, scale=False, **F64), S3, {"axis": -2}),
    "rms epsilon": (lambda: L.RMSNormalization(**F64), S3, {"epsilon": 0.5}),
    "gn epsilon": (lambda: L.GroupNormalization(2, **F64), S4, {"epsilon": 0.5}),
    "gn groups": (lambda: L.GroupNormalization(2, **F64), S4, {"num_groups": 4}),
    "unit epsilon": (lambda: L.UnitNormalization(**F64), S3, {"epsilon": 2.5}),
    "leaky": (lambda: L.LeakyReLU(**F64), S3, {"alpha": 0.01}),
    "elu": (lambda: L.ELU(**F64), S3, {"alpha": 0.5}),
    "clip": (lambda: L.ReLU(max_value=6.0, **F64), S3, {"max": 1.0}),
    "gelu": (lambda: L.Activation("gelu", **F64), S3, {"approximate": "tanh"}),
    "hard sigmoid": (lambda: L.Activation("hard_sigmoid", **F64), S3, {"alpha": 0.2}),
    "softplus": (lambda: L.Activation("softplus", **F64), S3, {"beta": 2.0}),
    "softmax axis": (lambda: L.Softmax(**F64), S3, {"axis": -2}),
    "conv pads": (
        lambda: L.Conv2D(5, 3, strides=2, padding="same", **F64),
        S4,
        {"pads": [1, 1, 1, 1], "auto_pad": "NOTSET"},
    ),
    "conv to same": (lambda: L.Conv2D(5, 3, strides=2, **F64), S4, {"auto_pad": "SAME_UPPER"}),
    "conv to same lower": (lambda: L.Conv2D(5, 3, strides=2, **F64), S4, {"auto_pad": "SAME_LOWER"}),
    "conv reflect": (lambda: L.Conv2D(5, 3, padding="same", **F64), S4, {"pad_mode": "reflect"}),
    "conv edge": (lambda: L.Conv1D(5, 3, padding="same", **F64), S3, {"pad_mode": "edge"}),
    "conv wrap": (lambda: L.Conv1D(5, 3, padding="same", **F64), S3, {"pad_mode": "wrap"}),
    "conv strides": (lambda: L.Conv1D(5, 3, padding="same", **F64), S3, {"strides": [2]}),
    "conv dilation": (lambda: L.Conv1D(5, 3, **F64), S3, {"dilations": [2]}),
    "conv causal to same": (lambda: L.Conv1D(5, 3, padding="causal", **F64), S3, {"pads": [1, 1]}),
    "conv to causal": (lambda: L.Conv1D(5, 3, padding="same", **F64), S3, {"pads": [2, 0]}),
    "depthwise pads": (
        lambda: L.DepthwiseConv2D(3, strides=2, padding="same", **F64),
        S4,
        {"pads": [1, 1, 1, 1], "auto_pad": "NOTSET"},
    ),
    "tconv torch": (
        lambda: L.Conv2DTranspose(5, 3, strides=2, padding="same", **F64),
        S4,
        {"pads": [1, 1, 1, 1], "output_padding": [1, 1]},
    ),
    "tconv crop": (lambda: L.Conv1DTranspose(5, 4, strides=2, **F64), S3, {"pads": [1, 1]}),
    "tconv strides": (lambda: L.Conv1DTranspose(5, 4, strides=2, **F64), S3, {"strides": [3]}),
    "maxpool pads": (
        lambda: L.MaxPooling2D(3, strides=2, padding="same", **F64),
        S4,
        {"pads": [1, 1, 1, 1], "auto_pad": "NOTSET"},
    ),
    "maxpool ceil": (lambda: L.MaxPooling1D(3, strides=2, **F64), S3, {"ceil_mode": True}),
    "maxpool kernel": (lambda: L.MaxPooling1D(3, strides=2, **F64), S3, {"kernel_shape": [2]}),
    "avgpool count": (lambda: L.AveragePooling2D(3, strides=1, padding="same", **F64), S4, {"count_include_pad": True}),
    "avgpool ceil count": (
        lambda: L.AveragePooling1D(3, strides=2, **F64),
        (2, 11, 4),
        {"ceil_mode": True, "count_include_pad": True, "pads": [1, 1]},
    ),
    "avgpool pads": (
        lambda: L.AveragePooling2D(3, strides=2, padding="same", **F64),
        S4,
        {"pads": [1, 1, 1, 1], "auto_pad": "NOTSET"},
    ),
    "global keepdims": (lambda: L.GlobalAveragePooling2D(**F64), S4, {"keepdims": True}),
    "adaptive": (lambda: L.AdaptiveAveragePooling1D(4, **F64), S3, {"output_size": [5]}),
    "pad": (lambda: L.ZeroPadding2D(1, **F64), S4, {"mode": "reflect"}),
    "pad more": (lambda: L.ZeroPadding1D(1, **F64), S3, {"pads": [2, -1], "value": 3.0}),
    "crop": (lambda: L.Cropping1D(1, **F64), S3, {"pads": [-2, 0]}),
    "resize corners": (
        lambda: L.UpSampling2D(2, interpolation="bilinear", **F64),
        S4,
        {"coordinate_transformation_mode": "align_corners"},
    ),
    "resize cubic": (
        lambda: L.UpSampling2D(2, interpolation="bicubic", **F64),
        S4,
        {"cubic_coeff_a": -0.75, "exclude_outside": 0},
    ),
    "resize nearest": (
        lambda: L.Resizing(7, 5, interpolation="nearest", **F64),
        S4,
        {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    ),
    "resize sizes": (lambda: L.UpSampling2D(2, **F64), S4, {"sizes": [7, 5]}),
    "reshape": (lambda: L.Reshape((4, 10), **F64), S3, {"shape": [0, 10, 4]}),
    "permute": (lambda: L.Permute((2, 1), **F64), S3, {"perm": [0, 1, 2]}),
    "lstm activations": (lambda: L.LSTM(4, **F64), S3, {"activations": ["Sigmoid", "Relu", "Relu"]}),
    "gru gate": (lambda: L.GRU(4, **F64), S3, {"activations": [["HardSigmoid", {"alpha": 0.2, "beta": 0.5}], "Tanh"]}),
    "lstm sequences": (lambda: L.LSTM(4, **F64), S3, {"return_sequences": True}),
    "lstm reverse": (lambda: L.LSTM(4, return_sequences=True, **F64), S3, {"direction": "reverse"}),
    "lstm backwards": (
        lambda: L.LSTM(4, return_sequences=True, **F64),
        S3,
        {"direction": "reverse", "keep_reversed": True},
    ),
    "bidirectional merge": (lambda: L.Bidirectional(L.GRU(4, **F64), **F64), S3, {"merge": "sum"}),
    "bidirectional sequences": (lambda: L.Bidirectional(L.GRU(4, **F64), **F64), S3, {"return_sequences": True}),
    "dropout": (lambda: L.Dropout(0.5, **F64), S3, {"ratio": 0.1}),
}


@pytest.mark.parametrize("name", CASES)
def test_patch_changes_and_restores(name: str) -> None:
    make, shape, attrs = CASES[name]
    layer = built(make, shape)
    data = x(*shape)
    found = kl.translate(layer)
    assert found is not None
    held = dict(vars(layer))
    before = run(layer, data)
    new = {**found.attrs, **attrs}
    if "sizes" in attrs:
        new["scales"] = None
    want = reference_.evaluate(found.op, new, kl.get_weights(layer), [data], layout=found.layout)[0]
    with kl.patch(layer, **attrs):
        got = run(layer, data)
    # TensorFlow resizes in float32
    loose = 1e-7 if found.op in ("Gelu", "Elu", "Resize") else 1e-9
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=loose, atol=loose)
    if name not in ("dropout", "permute"):
        assert got.shape != before.shape or not np.allclose(got, before, atol=1e-6)
    np.testing.assert_array_equal(run(layer, data), before)
    after = vars(layer)
    assert set(after) == set(held) and all(after[k] is held[k] for k in held)


def test_what_only_training_shows() -> None:
    layer = built(lambda: L.BatchNormalization(**F64), S4)
    mean = np.asarray(layer.moving_mean)
    data = x(*S4)
    with kl.patch(layer, momentum=0.25):
        layer(data, training=True)
    np.testing.assert_allclose(np.asarray(layer.moving_mean), 0.25 * mean + 0.75 * data.mean((0, 1, 2)), rtol=1e-9)
    assert layer.momentum == 0.99
    drop = L.Dropout(0.0)
    with kl.patch(drop, ratio=0.5):
        assert (run(drop, np.ones((50, 50), "float32"), training=True) == 0).mean() > 0.3
    np.testing.assert_array_equal(run(drop, np.ones((3, 3), "float32"), training=True), 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: L.Dense(5, activation="gelu", **F64),
        lambda: L.Conv1D(5, 3, activation="relu", **F64),
        lambda: L.EinsumDense("abc,cd->abd", (None, 5), activation="tanh", **F64),
    ],
)
def test_fused_activation(make: Callable[[], Any]) -> None:
    layer = built(make, S3)
    data = x(*S3)
    before = run(layer, data)
    with kl.patch(layer, activation=None):
        plain = run(layer, data)
    with kl.patch(layer, activation=("LeakyRelu", {"alpha": 0.2})):
        np.testing.assert_allclose(run(layer, data), np.where(plain >= 0, plain, 0.2 * plain))
    with kl.patch(layer, activation="Sigmoid"):
        np.testing.assert_allclose(run(layer, data), 1 / (1 + np.exp(-plain)), rtol=1e-12)
    np.testing.assert_array_equal(run(layer, data), before)
    dense = built(lambda: L.Dense(5, activation="gelu", **F64), S3)
    with kl.patch(dense, approximate="tanh"):
        assert kl.split_activation(dense) == ("Gelu", {"approximate": "tanh"})
    assert kl.split_activation(dense) == ("Gelu", {"approximate": "none"})
    relu = L.ReLU(**F64)
    with kl.patch(relu, activation="Tanh"):
        np.testing.assert_allclose(run(relu, data), np.tanh(data))


def test_parts_can_be_patched() -> None:
    layer = built(lambda: L.SeparableConv2D(5, 3, strides=2, padding="same", **F64), S4)
    part = dict(kl.parts(layer))["depthwise"]
    found = kl.translate(part)
    data = keras.ops.convert_to_tensor(x(*S4))
    attrs = {"pads": [1, 1, 1, 1], "auto_pad": "NOTSET"}
    want = reference_.evaluate("Conv", {**found.attrs, **attrs}, kl.get_weights(part), [x(*S4)], layout="NHWC")[0]
    before = run(part, data)
    with kl.patch(part, **attrs):
        np.testing.assert_allclose(run(part, data), want, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(run(part, data), before)


def test_attention_scale_and_causality() -> None:
    layer = L.MultiHeadAttention(2, 3, **F64)
    data = x(2, 5, 6)
    before = np.asarray(layer(data, data))
    causal = np.asarray(layer(data, data, use_causal_mask=True))
    with kl.patch(layer, scale=1.0):
        assert not np.allclose(np.asarray(layer(data, data)), before)
        assert kl.attention_attrs(layer)["scale"] == 1.0
    with kl.patch(layer, is_causal=True):
        np.testing.assert_allclose(np.asarray(layer(data, data)), causal)
    np.testing.assert_array_equal(np.asarray(layer(data, data)), before)
    dot = L.Attention(**F64)
    dot([data, data])
    with kl.patch(dot, scale=0.5):
        scores = 0.5 * data @ data.swapaxes(1, 2)
        probs = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        np.testing.assert_allclose(run(dot, [data, data]), probs @ data, rtol=1e-9)


def test_mask_zero() -> None:
    layer = L.Embedding(5, 3)
    ids = np.array([[0, 1]])
    with kl.patch(layer, mask_zero=True):
        assert layer.compute_mask(keras.ops.convert_to_tensor(ids)) is not None
    assert layer.compute_mask(keras.ops.convert_to_tensor(ids)) is None


@pytest.mark.parametrize(
    "make,attrs",
    [
        (lambda: L.GRU(4, **F64), {"linear_before_reset": 0}),
        (lambda: L.LSTM(4, **F64), {"hidden_size": 5}),
        (lambda: L.LSTM(4, **F64), {"activations": ["Sigmoid", "Tanh", "Relu"]}),
        (lambda: L.LSTM(4, **F64), {"direction": "bidirectional"}),
        (lambda: L.BatchNormalization(**F64), {"unbiased": True}),
        (lambda: L.LayerNormalization(**F64), {"axis": -2}),
        (lambda: L.GroupNormalization(2, **F64), {"num_groups": 3}),
        (lambda: L.Conv1D(4, 3, **F64), {"group": 2}),
        (lambda: L.Dense(4, **F64), {"anything": 1}),
        (lambda: L.Dense(4, **F64), {"activation": "Nonsense"}),
        (lambda: L.Flatten(**F64), {"axis": 2}),
        (lambda: L.Lambda(lambda v: v), {"epsilon": 1.0}),
        (lambda: L.Conv1DTranspose(4, 3, **F64), {"pads": [0, 0], "output_padding": [2]}),
    ],
)
def test_what_keras_cannot_be_made_to_compute(make: Callable[[], Any], attrs: dict[str, Any]) -> None:
    layer = built(make, S3)
    held = dict(vars(layer))
    with pytest.raises(UnsupportedError), kl.patch(layer, **attrs):
        pass
    assert vars(layer).keys() == held.keys() and all(vars(layer)[k] is v for k, v in held.items())


def test_restored_when_the_call_raises() -> None:
    layer = built(lambda: L.LayerNormalization(**F64), S3)
    with pytest.raises(RuntimeError, match="mine"), kl.patch(layer, epsilon=1.0):
        raise RuntimeError("mine")
    assert layer.epsilon == 1e-3


def test_padding_index_is_refused() -> None:
    layer = L.Embedding(5, 3)
    with pytest.raises(UnsupportedError), kl.patch(layer, padding_idx=0):
        pass
