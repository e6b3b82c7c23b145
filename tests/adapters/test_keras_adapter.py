"""The Keras adapter on real Keras: what a run records, forces, computes in float64, and leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

keras = pytest.importorskip("keras")
tf = pytest.importorskip("tensorflow")

from keras import layers as L  # noqa: E402
from keras import ops  # noqa: E402
from keras.src.layers.layer import Layer as KerasLayer  # noqa: E402
from keras.src.ops.operation import Operation  # noqa: E402
from tensorflow.python import pywrap_tfe  # noqa: E402
from tensorflow.python.eager import execute as tf_execute  # noqa: E402

from ambidex.adapters import keras_ as adapter  # noqa: E402
from ambidex.core.model import Inspectable  # noqa: E402
from ambidex.core.types import Plan  # noqa: E402
from ambidex.errors import InputError, RunError, UnsupportedError  # noqa: E402

RNG = np.random.default_rng(7)


def x_of(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def rel(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.abs(got - want).max() / (np.abs(want).max() + 1e-12))


def check_exact(trace) -> None:
    for call in trace.calls:
        if call.exact is not None:
            for got, want in zip(call.computed, call.exact, strict=True):
                if got.dtype.kind == "f":
                    assert want.dtype == np.float64, call.key
                    assert rel(got, want) < 1e-4, call.key


@pytest.fixture(autouse=True)
def nothing_left():
    """No run leaves a patch behind."""
    before = (
        KerasLayer.__call__,
        Operation.__call__,
        Operation.__init__,
        keras.ops.add,
        keras.activations.relu,
        keras.Variable.assign,
        pywrap_tfe.TFE_Py_FastPathExecute,
        tf_execute.execute,
        tf.nn.gelu,
    )
    yield
    after = (
        KerasLayer.__call__,
        Operation.__call__,
        Operation.__init__,
        keras.ops.add,
        keras.activations.relu,
        keras.Variable.assign,
        pywrap_tfe.TFE_Py_FastPathExecute,
        tf_execute.execute,
        tf.nn.gelu,
    )
    assert all(a is b for a, b in zip(before, after, strict=True))
    assert not tf.config.functions_run_eagerly()


def functional():
    inp = keras.Input((9, 7, 3), name="image")
    y = L.Conv2D(4, 3, strides=2, padding="same", activation="relu", name="conv")(inp)
    y = L.BatchNormalization(name="bn")(y)
    z = L.SeparableConv2D(4, 3, padding="same", activation="tanh", name="sep")(y)
    y = ops.relu(y * 2.0 + z)
    y = L.GlobalAveragePooling2D(name="pool")(y)
    return keras.Model(inp, L.Dense(5, activation="softmax", name="head")(y))


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


class Encoder(keras.Model):
    def __init__(self):
        super().__init__()
        self.embed = L.Embedding(17, 8, mask_zero=True)
        self.attn = L.MultiHeadAttention(2, 4)
        self.norms = [L.LayerNormalization(epsilon=1e-5), L.LayerNormalization()]
        self.rnn = L.Bidirectional(L.GRU(5, return_sequences=True))
        self.ffn = {"up": L.Dense(16, activation="gelu"), "down": L.Dense(10)}
        self.spread = L.TimeDistributed(L.Dense(3, activation="relu"))

    def call(self, ids, training=False):
        x = self.embed(ids)
        x = self.norms[0](x + self.attn(x, x))
        y = self.rnn(x, mask=self.embed.compute_mask(ids))
        y = y + self.ffn["down"](self.ffn["up"](y))
        return {"steps": self.spread(y), "sum": ops.sum(y, axis=1)}


def test_subclassed_encoder_with_masks():
    with adapter.remember_sources():
        model = Encoder()
    wrapped = adapter.wrap(model)
    ids = np.array([[3, 4, 5, 0, 0], [6, 7, 8, 9, 1]], "int32")
    trace = wrapped.run([ids], exact=True)
    keys = [c.key for c in trace.calls]
    assert keys[:6] == [
        "embed#0",
        "attn/query#0",
        "attn/key#0",
        "attn/value#0",
        "attn/attention#0",
        "attn/attention_output#0",
    ]
    assert "ffn/up#0" in keys and "ffn/up:activation#0" in keys and "spread/layer#0" in keys and "norms/0#0" in keys
    core = trace.by_key()["attn/attention#0"]
    assert core.op == "Attention" and core.names == ["q", "k", "v", "mask"] and core.layer.layout == "BTHD"
    assert core.inputs[3].dtype == bool and core.inputs[3].shape[-1] == 5 and not core.inputs[3][0, ..., 3:].any()
    assert core.layer.attrs["is_causal"] is False and np.isclose(core.layer.attrs["scale"], 0.5)
    for direction in ("forward", "reverse"):
        rnn = next(c for c in trace.calls if c.op == "GRU" and c.layer.attrs["direction"] == direction)
        assert rnn.path.startswith("rnn/") and "mask" in rnn.names and rnn.exact is not None
    assert np.array_equal(trace.masks["embed#0"], ids != 0)
    check_exact(trace)
    assert all(c.exact is not None for c in trace.calls)
    direct = model(ids)
    assert sorted(trace.outputs) == ["steps", "sum"]
    assert all(np.array_equal(trace.outputs[k], direct[k].numpy()) for k in direct)
    by_path = {layer.path: layer for layer in wrapped.layers()}
    assert "self.norms = " in by_path["norms/0"].source.text and by_path["norms/0"].source.file == __file__
    assert by_path["attn/query"].source == by_path["attn/attention"].source
    assert [p for p in by_path if p.startswith("attn/")] == [
        "attn/query",
        "attn/key",
        "attn/value",
        "attn/attention",
        "attn/attention_output",
    ]
    directions = [layer for path, layer in by_path.items() if path.startswith("rnn/")]
    assert len(directions) == 2 and all(set(layer.weights) == {"W", "R", "B"} for layer in directions)


def test_sources_without_remembering():
    model = Encoder()
    wrapped = adapter.wrap(model)
    wrapped.run([np.array([[1, 2, 3]], "int32")])
    source = next(layer for layer in wrapped.layers() if layer.path.startswith("rnn/")).source
    assert source.file == __file__ and "self.rnn = " in source.text


def test_shared_layer_twice_and_alone():
    class Twice(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = L.Dense(4, activation="relu")
            self.same = self.dense

        def call(self, a, b):
            return self.dense(a), self.same(b) - tf.constant(1.0)

    model = Twice()
    wrapped = adapter.wrap(model)
    a, b = x_of(3, 4), x_of(3, 4)
    trace = wrapped.run([a, b])
    assert [c.key for c in trace.calls] == ["dense#0", "dense:activation#0", "dense#1", "dense:activation#1", ":sub#0"]
    assert sorted(trace.outputs) == ["0", "1"] and [layer.path for layer in wrapped.layers()] == ["dense"]
    again = wrapped.run({"a": a, "b": b})
    assert np.array_equal(again.outputs["1"], trace.outputs["1"]) and sorted(again.inputs) == ["a", "b"]
    call = trace.calls[2]
    assert np.allclose(wrapped.call("dense", [b], like=call)[0], call.outputs[0])
    assert np.allclose(wrapped.call("dense", [b])[0], call.outputs[0])
    assert wrapped.call("dense", [b], exact=True)[0].dtype == np.float64
    assert np.allclose(wrapped.call(":sub", [b], like=trace.calls[4])[0], b - 1)
    assert np.allclose(wrapped.call("dense:activation", [b])[0], np.maximum(b, 0))
    with pytest.raises(UnsupportedError):
        wrapped.call("nothing", [b])
    with wrapped.patched("dense:activation", op="Tanh"):
        assert np.allclose(wrapped.call("dense:activation", [b])[0], np.tanh(b), atol=1e-6)


def test_attention_core_alone():
    inp = keras.Input((5, 8))
    model = keras.Model(inp, L.MultiHeadAttention(2, 4, name="mha")(inp, inp, use_causal_mask=True))
    wrapped = adapter.wrap(model)
    trace = wrapped.run([x_of(2, 5, 8)], exact=True)
    core = trace.by_key()["mha/attention#0"]
    assert core.layer.attrs["is_causal"] is True or "mask" in core.names
    assert np.allclose(wrapped.call("mha/attention", core.inputs, like=core)[0], core.outputs[0])
    with wrapped.patched("mha/attention", scale=1.0):
        assert not np.allclose(wrapped.call("mha/attention", core.inputs, like=core)[0], core.outputs[0])
    q, k, v = (a.astype("float64") for a in core.inputs[:3])
    scores = np.einsum("bthd,bshd->bhts", q, k) * 0.5
    scores = np.where(np.tril(np.ones((5, 5), bool)), scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    want = np.einsum("bhts,bshd->bthd", p / p.sum(-1, keepdims=True), v)
    assert rel(core.exact[0], want) < 1e-9


def test_keras_attention_inputs_are_in_canonical_order():
    q, v = keras.Input((4, 6)), keras.Input((5, 6))
    model = keras.Model([q, v], L.Attention(name="att")([q, v]))
    a, b = x_of(2, 4, 6), x_of(2, 5, 6)
    trace = adapter.wrap(model).run([a, b], exact=True)
    call = trace.by_key()["att#0"]
    assert call.op == "Attention" and call.names == ["q", "k", "v"] and np.array_equal(call.inputs[1], b)
    assert rel(call.outputs[0], call.exact[0]) < 1e-5 and np.array_equal(trace.outputs["0"], model([a, b]).numpy())


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


def test_tf_functions_inside_are_seen():
    class Graph(keras.Model):
        @tf.function
        def inner(self, x):
            return tf.nn.relu(x) + 1.0

        def call(self, x):
            return self.inner(x) * 2.0

    trace = adapter.wrap(Graph()).run([x_of(2, 3)])
    assert [c.op for c in trace.calls] == ["Relu", "Add", "Mul"]


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


def test_keras_activations_and_random_functions():
    class Acts(keras.Model):
        def call(self, x, training=False):
            a = keras.activations.gelu(x)
            b = ops.gelu(x)
            c = tf.keras.activations.leaky_relu(x)
            return a + b + keras.random.dropout(c, 0.5 if training else 0.0, seed=3)

    trace = adapter.wrap(Acts()).run([x_of(2, 3)], exact=True)
    gelus = [c.layer.attrs["approximate"] for c in trace.calls if c.op == "Gelu"]
    assert gelus == ["none", "tanh"] and "LeakyRelu" in [c.op for c in trace.calls]
    check_exact(trace)


def test_layers_made_in_every_call_have_stable_keys():
    class Inline(keras.Model):
        def call(self, x):
            return L.LeakyReLU(negative_slope=0.3)(x) + L.ReLU()(x)

    wrapped = adapter.wrap(Inline())
    runs = [[c.key for c in wrapped.run([x_of(2, 3)]).calls] for _ in range(3)]
    assert runs[0] == ["leaky_re_lu#0", "re_lu#0", ":add#0"] and runs[0] == runs[1] == runs[2]


class OwnCore(L.MultiHeadAttention):
    """The attention core replaced: it is no longer Keras' own, so its code is recorded."""

    def _compute_attention(self, query, key, value, attention_mask=None, training=None, return_attention_scores=False):
        scores = ops.softmax(ops.einsum("bthd,bshd->bhts", query, key), axis=-1)
        return ops.einsum("bhts,bshd->bthd", scores, value), scores


class OwnCall(L.MultiHeadAttention):
    """As keras_hub's: another call around Keras' core."""

    def call(self, query, value, key=None):
        q, k, v = self._query_dense(query), self._key_dense(value), self._value_dense(value)
        made, _ = self._compute_attention(query=q, key=k, value=v)
        return self._output_dense(made)


def test_subclasses_of_multi_head_attention():
    x = x_of(2, 4, 6)

    class Own(keras.Model):
        def __init__(self, kind):
            super().__init__()
            self.att = kind(2, 3)

        def call(self, x):
            return self.att(x, x)

    seen = [c.op for c in adapter.wrap(Own(OwnCore)).run([x]).calls]
    assert seen.count("Gemm") == 4 and "Softmax" in seen and "Attention" not in seen
    trace = adapter.wrap(Own(OwnCall)).run([x], exact=True)
    assert [c.path for c in trace.calls] == [
        "att/query",
        "att/key",
        "att/value",
        "att/attention",
        "att/attention_output",
    ]
    check_exact(trace)


def test_a_subclass_that_changes_a_layer_is_opened():
    class Scaled(L.Dense):
        def call(self, x):
            return tf.matmul(x, self.kernel * 0.5) + self.bias

    model = keras.Sequential([keras.Input((3,)), Scaled(4, activation="relu", name="scaled")])
    wrapped = adapter.wrap(model)
    trace = wrapped.run([x_of(2, 3)])
    assert [c.key for c in trace.calls] == ["scaled:mul#0", "scaled:matmul#0", "scaled:add#0"]
    assert [(layer.path, layer.op, sorted(layer.weights)) for layer in wrapped.layers()] == [
        ("scaled", "", ["bias", "kernel"])
    ]
    assert trace.calls[0].origins[0][0] == "weight" and trace.calls[2].origins[1][0] == "weight"


@pytest.mark.parametrize("backend", ["torch"])
def test_other_backends_at_keras_level(backend):
    pytest.importorskip(backend)
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
