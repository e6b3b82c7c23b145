"""The Keras adapter on real Keras: what a run records, forces, computes in float64, and leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers as L
from keras import ops
from tests.adapters.keras_runs import RNG, check_exact, functional, rel, x_of

from ambidex.adapters import keras_ as adapter
from ambidex.core.model import Inspectable
from ambidex.core.types import Plan
from ambidex.errors import InputError, RunError

pytestmark = pytest.mark.usefixtures("nothing_left")


class RawBlock(L.Layer):
    """A block as people write it with raw TensorFlow."""

    def __init__(self, dim: int, **kwargs):
        super().__init__(**kwargs)
        self.dim = dim
        self.up = L.Dense(dim)
        self.table = self.add_weight(name="table", shape=(11, dim), initializer="random_normal")
        self.shift = self.add_weight(name="shift", shape=(dim,), initializer="random_normal")

    def call(self, ids, x):
        t = tf.shape(x)[1]
        pos = tf.gather(self.table, tf.range(t))
        e = tf.nn.embedding_lookup(self.table, ids) + pos[tf.newaxis]
        h = self.up(x) * self.shift - e / 2.0
        h = tf.concat([h, tf.nn.gelu(h)], axis=-1)
        scores = tf.matmul(h, h, transpose_b=True) / tf.sqrt(tf.cast(self.dim, tf.float32))
        return tf.reduce_mean(tf.matmul(tf.nn.softmax(scores), h), axis=1)[:, : self.dim]


def test_accepts_by_name_only():
    assert adapter.accepts(functional()) and adapter.accepts(L.Dense(2))
    assert not adapter.accepts(object()) and not adapter.accepts(keras.losses.MeanSquaredError())
    code = (
        "import sys, ambidex.adapters.keras_ as k; k.accepts(3); "
        "sys.exit(any(m in sys.modules for m in ('keras', 'tensorflow', 'torch')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_functional_model():
    model = functional()
    wrapped = adapter.wrap(model)
    assert isinstance(wrapped, Inspectable)
    x = x_of(2, 9, 7, 3)
    trace = wrapped.run([x], exact=True)
    assert {c.key: c.op for c in trace.calls} == {
        "conv#0": "Conv",
        "conv:activation#0": "Relu",
        "bn#0": "BatchNormalization",
        ":multiply#0": "Mul",
        "sep/depthwise#0": "Conv",
        "sep/pointwise#0": "Conv",
        "sep/pointwise:activation#0": "Tanh",
        ":add#0": "Add",
        ":relu#0": "Relu",
        "pool#0": "GlobalAveragePool",
        "head#0": "Gemm",
        "head:activation#0": "Softmax",
    }
    assert np.array_equal(trace.outputs["0"], model(x).numpy())
    assert trace.output_origins["0"] == ("call", 11, 0)
    assert trace.calls[0].origins == [("input", "0", 0)] and trace.calls[0].names == ["inputs"]
    sources = [trace.calls[o[1]].key for o in trace.by_key()[":add#0"].origins]
    assert sources == [":multiply#0", "sep/pointwise:activation#0"]
    assert all(c.exact is not None for c in trace.calls)
    check_exact(trace)
    spec = wrapped.signature()
    assert [(s.name, s.dtype, s.shape, s.high) for s in spec] == [("image", "float32", (None, 9, 7, 3), None)]


def test_sequential_not_built_and_unknown_weight():
    model = keras.Sequential([L.Embedding(13, 6), L.LSTM(5), L.Dense(2)])
    wrapped = adapter.wrap(model)
    with pytest.raises(InputError):
        wrapped.layers()
    ids = RNG.integers(0, 13, (3, 4))
    trace = wrapped.run([ids], exact=True)
    assert [c.op for c in trace.calls] == ["Gather", "LSTM", "Gemm"]
    check_exact(trace)
    assert [layer.op for layer in wrapped.layers()] == ["Gather", "LSTM", "Gemm"]
    assert wrapped.signature()[0].high == 13
    weights = wrapped.weights()
    assert len(weights) == len(model.weights)
    with pytest.raises(InputError):
        wrapped.set_weights({"nothing": np.zeros(2)})
    name = next(n for n in weights if n.endswith("embeddings"))
    with pytest.raises(InputError):
        wrapped.set_weights({name: np.zeros((2, 2))})
    wrapped.set_weights({name: weights[name] * 0})
    assert not wrapped.weights()[name].any()
    path = trace.calls[2].path
    roles = wrapped.layer_weights(path)
    assert roles["W"].shape == (2, 5)
    wrapped.set_layer_weights(path, {"B": np.array([1.0, 2.0], "float32")})
    assert np.allclose(wrapped.layer_weights(path)["B"], [1, 2])


def test_raw_tensorflow_operators():
    inner = RawBlock(4)
    wrapped = adapter.wrap(inner)
    ids, x = RNG.integers(0, 11, (2, 5)).astype("int32"), x_of(2, 5, 3)
    trace = wrapped.run([ids, x], exact=True)
    ops_seen = [c.op for c in trace.calls]
    for op in ("Gather", "Gemm", "Mul", "Sub", "Div", "Concat", "MatMul", "Softmax", "ReduceMean", "Slice", "Gelu"):
        assert op in ops_seen, (op, ops_seen)
    assert np.array_equal(trace.outputs["0"], inner(ids, x).numpy())
    check_exact(trace)
    assert all(c.exact is not None for c in trace.calls)
    table = next(name for name in wrapped.weights() if name.endswith("table"))
    lookup = [c for c in trace.calls if c.op == "Gather" and ("input", "0", 0) in c.origins]
    assert lookup and ("weight", table, 0) in lookup[0].origins
    source = next(c for c in trace.calls if c.op == "ReduceMean").layer.source
    assert source.file == __file__ and "reduce_mean" in source.text
    assert any(layer.path == "" and set(layer.weights) == {"table", "shift"} for layer in wrapped.layers())


@pytest.mark.parametrize("number", range(8))
def test_forced_functional_output_takes_effect(number):
    wrapped = adapter.wrap(RawBlock(4))
    batch = [RNG.integers(0, 11, (2, 5)).astype("int32"), x_of(2, 5, 3)]
    clean = wrapped.run(batch)
    call = clean.calls[number]
    forced = [np.asarray(call.outputs[0] * 2 + 1)]
    plan = Plan(outputs={call.key: forced})
    for record in (True, False):
        again = wrapped.run(batch, plan, record=record)
        assert not np.allclose(again.outputs["0"], clean.outputs["0"])
        assert bool(again.calls) is record
    again = wrapped.run(batch, plan)
    assert [c.key for c in again.calls] == [c.key for c in clean.calls]
    same = again.by_key()[call.key]
    assert np.array_equal(same.computed[0], call.computed[0]) and np.array_equal(same.outputs[0], forced[0])
    user = next(c for c in again.calls if ("call", call.index, 0) in c.origins)
    assert np.array_equal(user.received[user.origins.index(("call", call.index, 0))], forced[0])


def test_forced_inputs_replacements_and_activations():
    model = functional()
    wrapped = adapter.wrap(model)
    x = x_of(2, 9, 7, 3)
    clean = wrapped.run([x]).by_key()
    other = x_of(*clean["bn#0"].inputs[0].shape)
    trace = wrapped.run([x], Plan(inputs={"bn#0": [other]}))
    call = trace.by_key()["bn#0"]
    assert np.array_equal(call.inputs[0], other) and np.array_equal(call.received[0], clean["bn#0"].received[0])
    assert np.allclose(call.computed[0], model.get_layer("bn")(other).numpy(), atol=1e-6)
    assert np.array_equal(trace.by_key()["sep/depthwise#0"].received[0], call.outputs[0])
    seen = []

    def double(call, inputs):
        seen.append([a.shape for a in inputs])
        return [np.asarray(inputs[0]) * 2]

    trace = wrapped.run([x], Plan(replace={"conv:activation#0": double}))
    assert np.array_equal(trace.by_key()["bn#0"].received[0], clean["conv#0"].outputs[0] * 2) and len(seen) == 1
    trace = wrapped.run([x], Plan(outputs={"head#0": [np.zeros((2, 5), "float32")]}), record=False)
    assert np.allclose(trace.outputs["0"], 0.2)
    trace = wrapped.run([x], Plan(patch={"bn": {"epsilon": 5.0}}))
    assert not np.allclose(trace.by_key()["bn#0"].outputs[0], clean["bn#0"].outputs[0])
    trace = wrapped.run([x], Plan(patch={"conv:activation": {"op": "Sigmoid"}}))
    sigmoid = 1 / (1 + np.exp(-clean["conv#0"].outputs[0]))
    assert np.allclose(trace.by_key()["conv:activation#0"].outputs[0], sigmoid, atol=1e-6)
    assert np.array_equal(wrapped.run([x]).outputs["0"], model(x).numpy())


def test_training_mode_leaves_state_alone():
    model = keras.Sequential(
        [keras.Input((6,)), L.Dense(5), L.BatchNormalization(), L.Dropout(0.5), L.GaussianNoise(0.1)]
    )
    wrapped = adapter.wrap(model)
    before = [v.numpy() for v in model.variables]
    seed = keras.src.random.seed_generator.global_seed_generator().state.numpy()
    x = x_of(8, 6)
    first, second = wrapped.run([x], training=True, exact=True), wrapped.run([x], training=True)
    assert np.array_equal(first.outputs["0"], second.outputs["0"])
    assert not np.array_equal(first.outputs["0"], wrapped.run([x]).outputs["0"])
    assert sorted(n.rsplit("/", 1)[1] for n in first.updates) == ["moving_mean", "moving_variance"]
    norm = first.calls[1]
    assert norm.exact is not None and rel(norm.outputs[0], norm.exact[0]) < 1e-4
    expect = norm.inputs[0].mean(0) * 0.01
    name = next(n for n in first.updates if n.endswith("moving_mean"))
    assert np.allclose(first.updates[name], expect, atol=1e-6)
    assert all(np.array_equal(a, v.numpy()) for a, v in zip(before, model.variables, strict=True))
    assert np.array_equal(seed, keras.src.random.seed_generator.global_seed_generator().state.numpy())
    assert not wrapped.run([x]).updates


def test_a_model_that_raises():
    class Broken(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = L.Dense(3)
            self.bad = L.Dense(3)

        def call(self, x):
            return self.bad(tf.concat([self.inner(x), x], -1)) if x.shape[0] < 4 else tf.matmul(x, x)

    model = Broken()
    wrapped = adapter.wrap(model)
    wrapped.run([x_of(2, 3)])
    with pytest.raises(RunError) as caught:
        wrapped.run([x_of(5, 3)])
    assert "InvalidArgumentError" in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(RunError) as caught:
        wrapped.run([x_of(2, 4)])
    assert "'inner' (Dense)" in str(caught.value)
    assert wrapped.run([x_of(2, 3)]).outputs["0"].shape == (2, 3)
    with pytest.raises(InputError):
        adapter.wrap(functional()).run([x_of(2, 9, 7, 3), x_of(1)])


def test_mappings_lists_and_signatures():
    a, b = keras.Input((3,), name="a"), keras.Input((None,), name="ids", dtype="int32")
    y = L.Dense(4, name="d")(a) + ops.mean(L.Embedding(9, 4, name="e")(b), axis=1)
    as_dict, as_list = keras.Model({"a": a, "ids": b}, {"y": y}), keras.Model([a, b], [y])
    x, ids = x_of(2, 3), np.array([[1, 2], [3, 4]], "int32")
    one, two = adapter.wrap(as_dict), adapter.wrap(as_list)
    want = one.run({"a": x, "ids": ids}).outputs["y"]
    assert np.array_equal(one.run([x, ids]).outputs["y"], want)
    assert np.array_equal(two.run([x, ids]).outputs["0"], want)
    assert np.array_equal(two.run({"ids": ids, "a": x}).outputs["0"], want)
    for wrapped in (one, two):
        spec = {s.name: s for s in wrapped.signature()}
        assert spec["ids"].high == 9 and spec["ids"].dtype == "int32" and spec["ids"].shape == (None, None)
    with pytest.raises(InputError):
        one.run({"x": x, "ids": ids})

    class Plain(keras.Model):
        def call(self, inputs):
            return inputs["a"] + inputs["b"]

    trace = adapter.wrap(Plain()).run({"a": x, "b": x})
    assert np.array_equal(trace.outputs["0"], x + x)
    assert trace.calls[0].origins == [("input", "a", 0), ("input", "b", 0)]


LEAVES = [
    (L.Conv1D(3, 3, padding="causal"), (2, 7, 4)),
    (L.Conv3D(2, 2), (1, 4, 4, 4, 2)),
    (L.Conv2D(4, 3, groups=2), (1, 6, 5, 4)),
    (L.Conv2DTranspose(3, 3, strides=2, padding="same"), (1, 5, 4, 2)),
    (L.DepthwiseConv2D(3), (1, 6, 5, 3)),
    (L.SimpleRNN(3), (2, 4, 3)),
    (L.LSTM(3, return_state=True, return_sequences=True), (2, 4, 3)),
    (L.GRU(3, reset_after=False), (2, 4, 3)),
    (L.Bidirectional(L.LSTM(3)), (2, 4, 3)),
    (L.GroupNormalization(2), (2, 5, 4)),
    (L.UnitNormalization(), (2, 5)),
    (L.RMSNormalization(), (2, 5)),
    (L.LayerNormalization(axis=[1, 2]), (2, 5, 3)),
    (L.Normalization(mean=1.0, variance=2.0), (2, 4)),
    (L.EinsumDense("abc,cd->abd", (None, 3)), (2, 4, 5)),
    (L.PReLU(), (2, 4)),
    (L.Softmax(), (2, 4)),
    (L.MaxPooling2D(2), (1, 5, 4, 2)),
    (L.AveragePooling1D(2, padding="same"), (1, 5, 2)),
    (L.Flatten(), (2, 3, 4)),
    (L.Reshape((4, 3)), (2, 3, 4)),
    (L.UpSampling2D(2, interpolation="nearest"), (1, 3, 3, 2)),
    (L.Identity(), (2, 3)),
    (L.Rescaling(2.0, 1.0), (2, 3)),
]


@pytest.mark.parametrize(("layer", "shape"), LEAVES, ids=[type(layer).__name__ for layer, _ in LEAVES])
def test_every_leaf_has_a_float64_reference(layer, shape):
    model = keras.Sequential([layer, L.Activation("linear")]) if not getattr(layer, "return_state", False) else layer
    x = x_of(*shape)
    trace = adapter.wrap(model).run([x], exact=True)
    call = trace.calls[0]
    assert call.exact is not None and call.exact[0].dtype == np.float64
    assert len(call.outputs) == (3 if getattr(layer, "return_state", False) else 1)
    check_exact(trace)


def test_float64_resize_has_none_but_runs():
    trace = adapter.wrap(keras.Sequential([L.Resizing(4, 4)])).run([x_of(1, 3, 3, 2)], exact=True)
    call = trace.calls[0]
    assert call.exact is None or rel(call.computed[0], call.exact[0]) < 1e-5


@pytest.mark.parametrize("backend", ["torch"])
def test_other_backends_at_keras_level(backend):
    code = """
import numpy as np, keras
from keras import layers as L, ops
from ambidex.adapters import keras_ as adapter
from ambidex.core.types import Plan
class M(keras.Model):
    def __init__(self):
        super().__init__()
        self.d = L.Dense(4, activation="gelu"); self.n = L.BatchNormalization(); self.a = L.MultiHeadAttention(2, 3)
    def call(self, x, training=False):
        y = self.a(x, x)
        return ops.softmax(ops.add(self.n(self.d(x), training=training), y), axis=-1)
m = M(); w = adapter.wrap(m); x = np.random.default_rng(0).standard_normal((2, 5, 4)).astype("float32")
t = w.run([x], exact=True)
assert [c.op for c in t.calls][-2:] == ["Add", "Softmax"], [c.key for c in t.calls]
assert np.allclose(t.outputs["0"], keras.ops.convert_to_numpy(m(x)))
for c in t.calls:
    assert c.exact is not None, c.key
    assert np.abs(c.computed[0] - c.exact[0]).max() < 1e-5, c.key
f = w.run([x], Plan(outputs={"d#0": [t.by_key()["d#0"].outputs[0] * 0]}), record=False)
assert not np.allclose(f.outputs["0"], t.outputs["0"])
assert len(w.run([x], training=True).updates) == 2
"""
    env = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
