"""Recurrent Keras layers, layers of several parts, words of their own, refusals, and the torch backend of Keras."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers as L
from tests.adapters.keras_reference import F64, S3, S4, expected, randomise, rng, run, x

from ambidex.adapters import keras_layers as kl
from ambidex.adapters import reference_
from ambidex.errors import InputError

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


_OTHER_BACKEND = """
import keras, numpy as np
from keras import layers as L
from ambidex.adapters import keras_layers as kl, reference_
assert keras.backend.backend() == "torch"
r = np.random.default_rng(0)
for layer, shape in [
    (L.Dense(5, activation=lambda v: keras.ops.gelu(v)), (3, 4)),
    (L.Conv2D(4, 3, strides=2, padding="same"), (2, 8, 9, 3)),
    (L.Conv2DTranspose(4, 3, strides=2, padding="same"), (2, 8, 9, 3)),
    (L.BatchNormalization(), (2, 8, 9, 3)), (L.LayerNormalization(), (2, 8, 3)),
    (L.LSTM(4), (2, 6, 3)), (L.GRU(4, return_sequences=True), (2, 6, 3)),
    (L.UpSampling2D(2, interpolation="bicubic"), (1, 5, 6, 2)),
    (L.Resizing(7, 9, interpolation="nearest"), (1, 5, 6, 2)),
]:
    x = r.normal(size=shape).astype("float32")
    layer(x)
    weights = {k: np.abs(r.normal(size=v.shape)) + 0.1 for k, v in kl.get_weights(layer).items()}
    if "B" in weights and weights["B"].ndim == 2 and isinstance(layer, L.LSTM):
        weights["B"][:, 16:] = 0
    kl.set_weights(layer, weights)
    found, fused = kl.translate(layer), kl.split_activation(layer)
    want = reference_.evaluate(found.op, found.attrs, weights, [x], layout=found.layout)[0]
    if fused:
        want = reference_.evaluate(fused[0], fused[1], {}, [want])[0]
    np.testing.assert_allclose(keras.ops.convert_to_numpy(layer(x)), want, rtol=1e-4, atol=1e-5, err_msg=layer.name)
with kl.patch(layer, nearest_mode="floor"):
    layer(x)
"""


def test_the_torch_backend_of_keras() -> None:
    env = {**os.environ, "KERAS_BACKEND": "torch", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", _OTHER_BACKEND], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
