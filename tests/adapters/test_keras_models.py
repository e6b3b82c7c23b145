"""Keras models as people write them: subclasses, masks, shared layers, layers of their own, functions of TensorFlow."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers as L
from keras import ops
from tests.adapters.keras_runs import check_exact, rel, x_of

from ambidex.adapters import keras_ as adapter
from ambidex.errors import UnsupportedError

pytestmark = pytest.mark.usefixtures("nothing_left")


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


def test_tf_functions_inside_are_seen():
    class Graph(keras.Model):
        @tf.function
        def inner(self, x):
            return tf.nn.relu(x) + 1.0

        def call(self, x):
            return self.inner(x) * 2.0

    trace = adapter.wrap(Graph()).run([x_of(2, 3)])
    assert [c.op for c in trace.calls] == ["Relu", "Add", "Mul"]


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
