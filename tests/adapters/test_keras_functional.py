"""keras.ops, activations and raw TensorFlow operators in canonical words."""

from __future__ import annotations

import functools
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers as L
from keras import ops

from ambidex.adapters import keras_activations as ka
from ambidex.adapters import keras_layers as kl
from ambidex.adapters import reference_

act = keras.activations


@pytest.mark.parametrize(
    "fn,found",
    [
        (None, None),
        ("linear", None),
        ("relu", ("Relu", {})),
        ("gelu", ("Gelu", {"approximate": "none"})),
        (act.gelu, ("Gelu", {"approximate": "none"})),
        (ops.gelu, ("Gelu", {"approximate": "tanh"})),
        (functools.partial(act.gelu, approximate=True), ("Gelu", {"approximate": "tanh"})),
        (lambda v: act.gelu(v, approximate=True), ("Gelu", {"approximate": "tanh"})),
        (lambda v: ops.gelu(v, approximate=False), ("Gelu", {"approximate": "none"})),
        (lambda v: 0.5 * v * (1 + ops.erf(v / 2**0.5)), ("Gelu", {"approximate": "none"})),
        (lambda v: v * ops.sigmoid(1.702 * v), ("Swish", {"alpha": 1.702})),
        (lambda v: v * ops.sigmoid(v), ("Swish", {"alpha": 1.0})),
        ("leaky_relu", ("LeakyRelu", {"alpha": 0.2})),
        (lambda v: ops.leaky_relu(v, 0.01), ("LeakyRelu", {"alpha": 0.01})),
        (functools.partial(act.leaky_relu, negative_slope=0.1), ("LeakyRelu", {"alpha": 0.1})),
        (L.LeakyReLU(0.3), ("LeakyRelu", {"alpha": 0.3})),
        ("relu6", ("Clip", {"min": 0.0, "max": 6.0})),
        (lambda v: ops.clip(v, -1, 1), ("Clip", {"min": -1.0, "max": 1.0})),
        (lambda v: ops.clip(0.2 * v + 0.5, 0, 1), ("HardSigmoid", {"alpha": 0.2, "beta": 0.5})),
        (lambda v: ops.softmax(v, axis=-1), ("Softmax", {"axis": -1})),
        (lambda v: ops.softplus(2 * v) / 2, ("Softplus", {"beta": 2.0, "threshold": None})),
        (lambda v: ops.elu(v, 0.5), ("Elu", {"alpha": 0.5})),
        (tf.nn.swish, ("Swish", {"alpha": 1.0})),
        (lambda v: v, None),
        (lambda v: v * 3.0, ("", {})),
        (lambda v: ops.sum(v), ("", {})),
        (lambda v: v + keras.random.normal(v.shape), ("", {})),
        (L.PReLU(), ("", {})),
    ],
)
def test_fused_activations_are_recognised(fn: Any, found: Any) -> None:
    if isinstance(fn, L.PReLU):
        fn.build((None, 4))
    assert kl.split_activation(L.Dense(3, activation=fn)) == found


@pytest.mark.parametrize("name", sorted(set(act.__dict__) & set(ka._NAMED)))
def test_every_keras_activation_is_what_its_name_says(name: str) -> None:
    """By name, and blindly by what it computes; its canonical form computes the same, and can be put back."""
    if name in ("threshold", "glu"):
        return
    fn = getattr(act, name)
    op, attrs = ka.canonical(name)
    grid = ka._grid()
    want = np.asarray(ops.convert_to_numpy(fn(grid)))
    if name != "sparsemax":
        got = ka.evaluate(op, attrs, grid.astype("float64"))
        assert got is not None
        np.testing.assert_allclose(got, want, rtol=3e-6, atol=3e-6)
        if reference_.supports(op):
            np.testing.assert_allclose(reference_.evaluate(op, attrs, {}, [grid])[0], want, rtol=3e-6, atol=3e-6)
        blind = ka.probe(lambda v: fn(v))
        assert blind[0] == op or (blind[0], op) == ("Elu", "Celu")  # the same function while alpha is 1
        np.testing.assert_allclose(np.asarray(ka.function(op, attrs)(grid)), want, rtol=1e-5, atol=1e-5)


def test_operations_of_a_functional_graph() -> None:
    a = keras.Input((4, 6))
    y = ops.gelu(a)
    y = ops.softmax(y, axis=1)
    y = ops.mean(y, axis=-1, keepdims=True)
    y = ops.transpose(y, (0, 2, 1))
    y = ops.reshape(y, (-1, 2, 2))
    y = ops.concatenate([y, y], axis=1)
    y = ops.matmul(y, ops.swapaxes(y, 1, 2))
    y = y * 2.0 + 1.0
    y = y[:, 0]
    y = ops.leaky_relu(y)
    y = ops.einsum("xy,xz->xyz", y, y)
    model = keras.Model(a, ops.where(y > 0.0, y, 0.0))
    found = []
    for layer in model.operations:
        node = layer._inbound_nodes[0]
        if not isinstance(layer, keras.layers.Layer):
            found.append(kl.operation(layer, node.arguments.args, node.arguments.kwargs))
    assert found == [
        ("Gelu", {"approximate": "tanh"}),
        ("Softmax", {"axis": 1}),
        ("ReduceMean", {"axes": [-1], "keepdims": True}),
        ("Transpose", {"perm": [0, 2, 1]}),
        ("Reshape", {"shape": [-1, 2, 2]}),
        ("Concat", {"axis": 1}),
        ("SwapAxes", {"axes": [1, 2]}),
        ("MatMul", {}),
        ("Mul", {"other": 2.0}),
        ("Add", {"alpha": 1.0, "other": 1.0}),
        ("Slice", {"index": [[None, None, None], 0]}),
        ("LeakyRelu", {"alpha": 0.2}),
        ("Einsum", {"equation": "ab,ac->abc"}),
        ("Greater", {"other": 0.0}),
        ("Where", {"y": 0.0}),
    ]


T = np.zeros((2, 4, 6))


@pytest.mark.parametrize(
    "name,args,kwargs,found",
    [
        ("gelu", (T,), {}, ("Gelu", {"approximate": "tanh"})),
        ("Gelu", (T,), {"approximate": False}, ("Gelu", {"approximate": "none"})),
        ("relu", (T,), {}, ("Relu", {})),
        ("softmax", (T,), {}, ("Softmax", {"axis": -1})),
        ("softmax", (T, 1), {}, ("Softmax", {"axis": 1})),
        ("subtract", (1.0, T), {}, ("Sub", {"alpha": 1.0, "other": 1.0, "swapped": True})),
        ("sum", (T,), {"axis": (0, 1)}, ("ReduceSum", {"axes": [0, 1], "keepdims": False})),
        ("var", (T, -1), {}, ("ReduceVar", {"axes": [-1], "keepdims": False, "correction": 0})),
        ("clip", (T, 0, 6), {}, ("Clip", {"min": 0.0, "max": 6.0})),
        ("expand_dims", (T, 1), {}, ("Unsqueeze", {"axes": [1]})),
        ("ExpandDims", (T, -1), {}, ("Unsqueeze", {"axes": [-1]})),
        ("take", (T, T), {"axis": 0}, ("Gather", {"axis": 0, "padding_idx": None, "mask_zero": False})),
        ("split", (T, 2), {"axis": -1}, ("Split", {"axis": -1, "num_outputs": 2})),
        ("cast", (T, "int32"), {}, ("Cast", {"to": "int32"})),
        (
            "pad",
            (T, [[0, 0], [1, 2], [0, 0]]),
            {},
            ("Pad", {"pads": [0, 1, 0, 0, 2, 0], "mode": "constant", "value": 0.0}),
        ),
        ("stack", ([T, T],), {"axis": 1}, ("Stack", {"axis": 1})),
        ("tril", (T,), {}, ("Trilu", {"upper": False, "k": 0})),
        ("one_hot", (T, 5), {}, ("OneHot", {"depth": 5, "axis": -1})),
        ("rsqrt", (T,), {}, ("Rsqrt", {})),
        ("layer_normalization", (T,), {"epsilon": 1e-5}, ("LayerNormalization", {"axis": -1, "epsilon": 1e-5})),
        ("normalize", (T,), {"axis": 1}, ("LpNormalization", {"axis": 1, "p": 2, "epsilon": 1e-7})),
        ("einsum", ("bij,bjk->bik", T, T), {}, ("Einsum", {"equation": "abc,acd->abd"})),
        (
            "max_pool",
            (np.zeros((1, 5, 5, 2)), 2),
            {},
            (
                "MaxPool",
                {
                    "kernel_shape": [2, 2],
                    "strides": [2, 2],
                    "dilations": [1, 1],
                    "pads": [0, 0, 0, 0],
                    "auto_pad": "NOTSET",
                    "ceil_mode": False,
                },
            ),
        ),
        (
            "conv",
            (np.zeros((1, 5, 5, 2)), np.zeros((3, 3, 2, 4))),
            {"padding": "same"},
            (
                "Conv",
                {
                    "kernel_shape": [3, 3],
                    "strides": [1, 1],
                    "dilations": [1, 1],
                    "pads": [1, 1, 1, 1],
                    "auto_pad": "NOTSET",
                    "pad_mode": "constant",
                },
            ),
        ),
        ("fft", (T,), {}, None),
        ("unknown_thing", (T,), {}, None),
    ],
)
def test_keras_functions(name: str, args: Any, kwargs: Any, found: Any) -> None:
    assert kl.operation(name, args, kwargs) == found


def test_slices_agree_with_the_reference() -> None:
    data = np.random.default_rng(0).normal(size=(3, 5, 7))
    for key in (
        (slice(None), 1),
        (slice(1, None), slice(None, -1)),
        (Ellipsis, 2),
        (Ellipsis, slice(0, 6, 2)),
        -1,
        (None, 0),
    ):
        found = kl.operation("GetItem", (data, key))
        assert found is not None
        np.testing.assert_array_equal(reference_.evaluate(*found, {}, [data])[0], data[key])


def test_tensorflow_operators_of_a_traced_function() -> None:
    @tf.function
    def fn(v: Any) -> Any:
        y = tf.nn.conv2d(v, tf.ones((3, 3, 2, 4)), [1, 2, 2, 1], "SAME")
        y = tf.nn.leaky_relu(tf.nn.bias_add(y, tf.ones(4)), 0.1)
        y = tf.nn.max_pool2d(y, 2, 2, "VALID")
        y = tf.reduce_mean(y, [1, 2], keepdims=True)
        return tf.nn.softmax(tf.concat([y, y], -1))

    graph = fn.get_concrete_function(tf.TensorSpec((1, 9, 9, 2))).graph
    found = {}
    for op in graph.get_operations():
        attrs = {name: op.get_attr(name) for name in op.node_def.attr}
        found[op.type] = kl.tf_op(op.type, attrs)
    assert found["Conv2D"] == (
        "Conv",
        {
            "strides": [2, 2],
            "dilations": [1, 1],
            "pads": [0, 0, 0, 0],
            "auto_pad": "SAME_UPPER",
            "pad_mode": "constant",
        },
    )
    assert found["BiasAdd"] == ("Add", {"alpha": 1.0})
    assert found["LeakyRelu"][0] == "LeakyRelu" and abs(found["LeakyRelu"][1]["alpha"] - 0.1) < 1e-7
    assert found["MaxPool"][1]["kernel_shape"] == [2, 2]
    assert found["Mean"] == ("ReduceMean", {"axes": None, "keepdims": True})
    assert found["ConcatV2"] == ("Concat", {"axis": None})
    assert found["Softmax"] == ("Softmax", {"axis": -1})
    assert found["Const"] is None
    assert kl.tf_op("Mean", {"axis": np.array([1, 2])}) == ("ReduceMean", {"axes": [1, 2], "keepdims": False})
    assert kl.tf_op("BatchMatMulV2", {"adj_y": True}) == ("MatMul", {"adj_y": True})
    assert kl.tf_op("Pad", {"paddings": [[0, 0], [1, 2]]}) == (
        "Pad",
        {"pads": [0, 1, 0, 2], "mode": "constant", "value": 0.0},
    )
    assert (
        kl.tf_op("ResizeBilinear", {"align_corners": True, "half_pixel_centers": False})[1][  # type: ignore[index]
            "coordinate_transformation_mode"
        ]
        == "align_corners"
    )
