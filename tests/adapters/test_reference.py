"""The float64 reference: against ONNX's own evaluator, and against what is known of each framework.

Comparisons with ONNX use attributes that float32 holds exactly: ONNX stores float attributes as float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ambidex.adapters import reference_conv
from ambidex.adapters.reference_ import evaluate, onnx_outputs, supports
from ambidex.core import ops
from ambidex.errors import InputError, UnsupportedError

EPS = 2.0**-10


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape) + 0.3


def check(found: list[np.ndarray], wanted: list[np.ndarray], tolerance: float = 1e-12) -> None:
    for mine, theirs in zip(found, wanted, strict=False):
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)


def test_every_canonical_operator_has_a_reference() -> None:
    assert [op for op in ops.names() if not supports(op)] == []


def test_unknown_operator_and_inputs_that_do_not_fit() -> None:
    assert not supports("Fancy")
    with pytest.raises(UnsupportedError, match="Fancy"):
        evaluate("Fancy", {}, {}, [draw(2)])
    with pytest.raises(InputError, match="Gemm"):
        evaluate("Gemm", {}, {"W": draw(3, 4)}, [draw(2, 5)])
    with pytest.raises(InputError, match="Conv"):
        evaluate("Conv", {}, {"W": draw(3, 4, 3)}, [draw(2, 5, 8)])
    with pytest.raises(InputError, match=r"Add.*\(2, 3\), \(2, 4\)"):
        evaluate("Add", {}, {}, [draw(2, 3), draw(2, 4)])


def test_floats_are_computed_in_float64_and_integers_stay() -> None:
    x = np.array([1, 2**-30], np.float32)
    assert evaluate("Add", {}, {}, [x, x[::-1]])[0].dtype == np.float64
    assert evaluate("Mul", {"other": 2}, {}, [np.arange(3)])[0].dtype == np.int64


# ---------------------------------------------------------------------- against ONNX
SPATIAL: list[tuple[int, dict[str, Any]]] = [
    (1, {"strides": [2], "pads": [2, 1], "dilations": [2]}),
    (1, {"auto_pad": "SAME_UPPER", "strides": [2]}),
    (2, {"strides": [2, 1], "pads": [1, 0, 2, 1], "dilations": [1, 2], "group": 2}),
    (2, {"strides": [3, 2], "auto_pad": "SAME_UPPER", "group": 4}),
    (2, {"strides": [3, 2], "auto_pad": "SAME_LOWER"}),
    (2, {"auto_pad": "VALID"}),
    (3, {"strides": [2, 1, 2], "pads": [1, 0, 1, 0, 1, 1]}),
]


@pytest.mark.parametrize(("n", "attrs"), SPATIAL)
def test_conv_is_onnx_conv(n: int, attrs: dict[str, Any]) -> None:
    x = draw(2, 4, *(9, 8, 7)[:n])
    w, b = draw(8, 4 // attrs.get("group", 1), *(3, 2, 3)[:n], seed=1), draw(8, seed=2)
    check(evaluate("Conv", attrs, {"W": w, "B": b}, [x]), onnx_outputs("Conv", [x, w, b], **attrs))
    check(evaluate("Conv", attrs, {}, [x, w, b]), onnx_outputs("Conv", [x, w, b], **attrs))
    last = evaluate("Conv", attrs, {"W": w, "B": b}, [np.moveaxis(x, 1, -1)], layout=("NLC", "NHWC", "NDHWC")[n - 1])
    check([np.moveaxis(last[0], -1, 1)], onnx_outputs("Conv", [x, w, b], **attrs))


@pytest.mark.parametrize(("n", "attrs"), [
    (1, {"strides": [2], "pads": [1, 0], "output_padding": [1]}),
    (2, {"strides": [2, 1], "pads": [1, 0, 0, 1], "dilations": [1, 2]}),
    (2, {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    (2, {"strides": [2, 1], "auto_pad": "SAME_LOWER"}),
    (3, {"strides": [1, 2, 1]}),
])  # fmt: skip
def test_conv_transpose_is_onnx_conv_transpose(n: int, attrs: dict[str, Any]) -> None:
    x, w, b = draw(2, 4, *(5, 4, 3)[:n]), draw(4, 3, *(3, 4, 2)[:n], seed=1), draw(3, seed=2)
    check(evaluate("ConvTranspose", attrs, {"W": w, "B": b}, [x]), onnx_outputs("ConvTranspose", [x, w, b], **attrs))


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("attrs", [
    {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
    {"kernel_shape": [2, 3], "dilations": [2, 1]},
    {"kernel_shape": [3, 3], "strides": [2, 3], "pads": [1, 1, 1, 1], "ceil_mode": 1},
])  # fmt: skip
def test_pools_are_onnx_pools(op: str, attrs: dict[str, Any]) -> None:
    x = draw(2, 3, 9, 8) - 4
    check(evaluate(op, attrs, {}, [x]), onnx_outputs(op, [x], **attrs))
    if op == "AveragePool" and "auto_pad" not in attrs and "ceil_mode" not in attrs:
        both = {**attrs, "count_include_pad": 1}
        check(evaluate(op, both, {}, [x]), onnx_outputs(op, [x], **both))


@pytest.mark.parametrize(("op", "attrs"), [
    ("LeakyRelu", {"alpha": 0.25}), ("Elu", {"alpha": 0.5}), ("Celu", {"alpha": 0.5}), ("HardSigmoid", {
        "alpha": 0.25, "beta": 0.5}), ("ThresholdedRelu", {"alpha": 0.5}), ("Softmax", {"axis": -2}),
    ("LogSoftmax", {"axis": -1}), ("Relu", {}), ("Sigmoid", {}), ("Tanh", {}), ("Softsign", {}), ("HardSwish", {}),
    ("Mish", {}), ("Erf", {}), ("Softplus", {}),
])  # fmt: skip
def test_activations_are_those_of_onnx(op: str, attrs: dict[str, Any]) -> None:
    x = draw(3, 4, 5) * 2
    check(evaluate(op, attrs, {}, [x]), onnx_outputs(op, [x], **attrs), 1e-7)  # Mish, HardSwish: float32 constants


def test_norms_are_those_of_onnx_as_far_as_float32_goes() -> None:
    x, s, b = draw(2, 4, 5, 6), draw(4, seed=1), draw(4, seed=2)
    mean, var = draw(4, seed=3), draw(4, seed=4) ** 2 + 0.5
    w = {"scale": s, "B": b, "mean": mean, "var": var}
    check(
        evaluate("BatchNormalization", {"epsilon": EPS}, w, [x]),
        onnx_outputs("BatchNormalization", [x, s, b, mean, var], epsilon=EPS),
    )
    w = {"scale": s, "B": b}
    check(
        evaluate("InstanceNormalization", {"epsilon": EPS}, w, [x]),
        onnx_outputs("InstanceNormalization", [x, s, b], epsilon=EPS),
    )
    check(
        evaluate("GroupNormalization", {"epsilon": EPS, "num_groups": 2}, w, [x]),
        onnx_outputs("GroupNormalization", [x, s, b], epsilon=EPS, num_groups=2),
        2e-6,
    )
    s, b = draw(5, 6, seed=1), draw(5, 6, seed=2)
    check(
        evaluate("LayerNormalization", {"epsilon": EPS, "axis": -2}, {"scale": s, "B": b}, [x]),
        onnx_outputs("LayerNormalization", [x, s, b], epsilon=EPS, axis=-2),
        2e-6,
    )
    check(
        evaluate("RMSNormalization", {"epsilon": EPS, "axis": -2}, {"scale": s}, [x]),
        onnx_outputs("RMSNormalization", [x, s], epsilon=EPS, axis=-2),
        2e-6,
    )
    x = draw(4, 4, 5, 6)  # as many samples as channels: ONNX's evaluator counts the one for the other
    check(
        evaluate("LRN", {"size": 3, "alpha": 0.25, "beta": 0.75, "bias": 1.0}, {}, [x]),
        onnx_outputs("LRN", [x], size=3, alpha=0.25, beta=0.75, bias=1.0),
        1e-7,
    )


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("reset", [0, 1])
def test_recurrent_layers_are_those_of_onnx(op: str, direction: str, reset: int) -> None:
    if op != "GRU" and reset:
        return
    dirs, gates = 2 if direction == "bidirectional" else 1, {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    x, w = draw(7, 2, 3), draw(dirs, gates * 5, 3, seed=1) * 0.5
    r, b = draw(dirs, gates * 5, 5, seed=2) * 0.5, draw(dirs, 2 * gates * 5, seed=3)
    attrs: dict[str, Any] = {"hidden_size": 5, "direction": direction}
    attrs |= {"linear_before_reset": reset} if op == "GRU" else {}
    outputs = 3 if op == "LSTM" else 2
    wanted = onnx_outputs(op, [x, w, r, b], outputs, **attrs)
    wanted[0] = np.concatenate(list(wanted[0].transpose(1, 0, 2, 3)), axis=-1)
    check(evaluate(op, attrs, {"W": w, "R": r, "B": b}, [x], layout="TNF"), wanted)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("how", ["half_pixel", "asymmetric", "align_corners", "half_pixel_symmetric"])
@pytest.mark.parametrize("sizes", [[14, 6], [3, 11], [5, 8]])
def test_resize_is_onnx_resize(mode: str, how: str, sizes: list[int]) -> None:
    x = draw(1, 2, 7, 8)
    attrs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": how}
    attrs |= {"nearest_mode": "floor"} if mode == "nearest" else {"cubic_coeff_a": -0.5} if mode == "cubic" else {}
    given = [x, np.array([], np.float32), np.array([], np.float32), np.array([1, 2, *sizes])]
    # ONNX's evaluator weighs with float32 coefficients in cubic mode; test_torch_layers holds cubic to 1e-9
    tolerance = 2e-6 if mode == "cubic" else 1e-9
    check(evaluate("Resize", {**attrs, "sizes": sizes}, {}, [x]), _resize_onnx(given, attrs), tolerance)
    if mode != "nearest" and how == "half_pixel":
        more = {**attrs, "antialias": 1, "exclude_outside": 1}
        check(evaluate("Resize", {**more, "sizes": sizes}, {}, [x]), _resize_onnx(given, more), tolerance)


def _resize_onnx(given: list[np.ndarray], attrs: dict[str, Any]) -> list[np.ndarray]:
    return onnx_outputs("Resize", given, **attrs)


def test_shapes_and_arithmetic_are_those_of_onnx() -> None:
    x, y = draw(2, 8, 4, 6), draw(2, 8, 4, 6, seed=1)
    for mode in ("DCR", "CRD"):
        check(
            evaluate("DepthToSpace", {"blocksize": 2, "mode": mode}, {}, [x]),
            onnx_outputs("DepthToSpace", [x], blocksize=2, mode=mode),
        )
    check(
        evaluate("SpaceToDepth", {"blocksize": 2, "mode": "DCR"}, {}, [x]),
        onnx_outputs("SpaceToDepth", [x], blocksize=2),
    )
    for op in ("Add", "Sub", "Mul", "Div", "Max", "Min"):
        check(evaluate(op, {}, {}, [x, y]), onnx_outputs(op, [x, y]))
    check(evaluate("MatMul", {}, {}, [x, y.swapaxes(2, 3)]), onnx_outputs("MatMul", [x, y.swapaxes(2, 3)]))
    for op in ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceL2", "ReduceLogSumExp"):
        check(evaluate(op, {"axes": [1, 3], "keepdims": True}, {}, [x]), onnx_outputs(op, [x, np.array([1, 3])]))
    check(evaluate("Flatten", {"axis": 1}, {}, [x]), onnx_outputs("Flatten", [x], axis=1))
    check(evaluate("Concat", {"axis": -1}, {}, [x, y]), onnx_outputs("Concat", [x, y], axis=-1))
    check(
        evaluate("Pad", {"pads": [1, 0, 2, 1], "mode": "reflect"}, {}, [x]),
        onnx_outputs("Pad", [x, np.array([0, 0, 1, 0, 0, 0, 2, 1])], mode="reflect"),
    )


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("kind", ["none", "bool", "float"])
def test_attention_is_onnx_attention(causal: int, kind: str) -> None:
    q, k, v = draw(2, 4, 5, 8), draw(2, 2, 7, 8, seed=1), draw(2, 2, 7, 3, seed=2)
    mask = {"none": [], "bool": [draw(5, 7, seed=3) > 0], "float": [draw(2, 4, 5, 7, seed=3)]}[kind]
    if kind == "bool":
        mask[0][:, 0] = True
    k4, v4 = np.repeat(k, 2, axis=1), np.repeat(v, 2, axis=1)
    attrs: dict[str, Any] = {"scale": 0.25, "is_causal": causal}
    wanted = onnx_outputs("Attention", [q, k4, v4, *mask], **attrs)[0]
    check(evaluate("Attention", attrs, {}, [q, k, v, *mask]), [wanted], 1e-9)
    turned = [t.swapaxes(1, 2) for t in (q, k, v)]
    found = evaluate("Attention", attrs, {}, [*turned, *mask], layout="BTHD")[0]
    check([found.swapaxes(1, 2)], [wanted], 1e-9)
    flat = [t.swapaxes(1, 2).reshape(2, t.shape[2], -1) for t in (q, k4, v4)]
    found = evaluate("Attention", {**attrs, "num_heads": 4}, {}, [*flat, *mask], layout="BTE")[0]
    check([found], [wanted.swapaxes(1, 2).reshape(2, 5, -1)], 1e-9)


# ---------------------------------------------------------------------- what ONNX does not say
def test_fully_masked_rows_and_other_softmax_axes() -> None:
    q, k, v = draw(1, 2, 3, 4), draw(1, 2, 5, 4, seed=1), draw(1, 2, 5, 4, seed=2)
    mask = np.ones((3, 5), bool)
    mask[1] = False
    rows = ("uniform", "zero", "nan")
    out = {row: evaluate("Attention", {"masked_row": row}, {}, [q, k, v, mask])[0] for row in rows}
    np.testing.assert_allclose(out["uniform"][:, :, 1], v.mean(2))
    assert not out["zero"][:, :, 1].any() and np.isnan(out["nan"][:, :, 1]).all()
    for row in out.values():
        np.testing.assert_array_equal(row[:, :, 0], out["uniform"][:, :, 0])
    scores = q @ k.swapaxes(-1, -2) / 2
    for axis in (-1, -2, 1):
        p = np.exp(scores) / np.exp(scores).sum(axis, keepdims=True)
        found = evaluate("Attention", {"softmax_axis": axis, "return_weights": True}, {}, [q, k, v])
        check(found, [p @ v, p])


@pytest.mark.parametrize(("kernel", "stride"), [(3, 2), (4, 2), (2, 2), (5, 3), (2, 3), (3, 1)])
def test_same_transposed_convolution_crops_as_tensorflow(kernel: int, stride: int) -> None:
    """Output n * stride, cut out of the full result from (k - s) // 2 on (zeros follow when k < s)."""
    x, w = draw(1, 2, 6), draw(2, 3, kernel, seed=1)
    full = evaluate("ConvTranspose", {"strides": [stride]}, {"W": w}, [x])[0]
    begin = max(kernel - stride, 0) // 2
    wanted = np.zeros((1, 3, 6 * stride))
    part = full[..., begin : begin + 6 * stride]
    wanted[..., : part.shape[-1]] = part
    check(evaluate("ConvTranspose", {"strides": [stride], "auto_pad": "SAME_UPPER"}, {"W": w}, [x]), [wanted])


@pytest.mark.parametrize("zero", [False, True])
def test_masked_steps_carry_the_state_and_repeat_or_zero_the_output(zero: bool) -> None:
    w = {"W": draw(1, 8, 3), "R": draw(1, 8, 2, seed=1), "B": draw(1, 16, seed=2)}
    x, mask = draw(2, 5, 3), np.array([[1, 1, 1, 0, 0], [0, 1, 0, 1, 1]], bool)
    attrs = {"hidden_size": 2, "zero_output_for_mask": zero}
    y, h, c = evaluate("LSTM", attrs, w, [x, mask])
    for row, steps in zip(range(2), (x[0, :3], x[1, [1, 3, 4]]), strict=True):
        alone = evaluate("LSTM", {"hidden_size": 2}, w, [steps[None]])
        check([h[:, row], c[:, row], y[row, mask[row]]], [alone[1][:, 0], alone[2][:, 0], alone[0][0]])
    check([y[0, 4]], [np.zeros(2) if zero else y[0, 2]])
    check([y[1, 0], y[1, 2]], [np.zeros(2), np.zeros(2) if zero else y[1, 1]])
    last = evaluate("LSTM", {**attrs, "return_sequences": False}, w, [x, mask])[0]
    check([last], [y[:, -1]])


def test_bidirectional_merging_and_last_outputs() -> None:
    w = {"W": draw(2, 6, 3), "R": draw(2, 6, 2, seed=1)}
    x = draw(2, 5, 3)
    parts = evaluate("GRU", {"direction": "bidirectional", "merge": None}, w, [x])[:2]
    for how, wanted in {
        "concat": np.concatenate(parts, -1),
        "sum": parts[0] + parts[1],
        "mul": parts[0] * parts[1],
        "ave": (parts[0] + parts[1]) / 2,
    }.items():
        attrs = {"direction": "bidirectional", "merge": how}
        check(evaluate("GRU", attrs, w, [x]), [wanted])
    last = evaluate("GRU", {"direction": "bidirectional", "return_sequences": False}, w, [x])[0]
    check([last], [np.concatenate([parts[0][:, -1], parts[1][:, 0]], -1)])


def test_initial_states_as_torch_and_as_keras_give_them() -> None:
    w = {"W": draw(2, 8, 3), "R": draw(2, 8, 2, seed=1)}
    x, h, c = draw(4, 5, 3), draw(2, 4, 2, seed=3), draw(2, 4, 2, seed=4)
    attrs = {"direction": "bidirectional"}
    check(evaluate("LSTM", attrs, w, [x, h[0], c[0], h[1], c[1]]), evaluate("LSTM", attrs, w, [x, h, c]))
    with pytest.raises(InputError, match="initial states"):
        evaluate("LSTM", attrs, w, [x, h])


def test_channels_last_layouts_come_back_channels_last() -> None:
    x = draw(2, 5, 6, 4)
    first = np.moveaxis(x, -1, 1)
    w = {"scale": draw(4), "B": draw(4, seed=1)}
    for op, attrs, weights in (
        ("GroupNormalization", {"num_groups": 2}, w), ("BatchNormalization", {}, w), ("InstanceNormalization", {}, w),
        ("MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "SAME_UPPER"}, {}),
        ("Resize", {"mode": "linear", "scales": [2.0, 2.0]}, {}), ("Pad", {"pads": [1, 0, 0, 2]}, {}),
        ("DepthToSpace", {"blocksize": 2}, {}), ("PRelu", {}, {"slope": draw(4)}),
    ):  # fmt: skip
        found = evaluate(op, attrs, weights, [x], layout="NHWC")[0]
        check([np.moveaxis(found, -1, 1)], evaluate(op, attrs, weights, [first], layout="NCHW"))
    check(evaluate("GlobalAveragePool", {"keepdims": False}, {}, [x], layout="NHWC"), [x.mean((1, 2))])


def test_big_convolutions_are_fast_enough() -> None:
    """A ResNet stage in float64 has to take far less than a second; loops over pixels would take minutes."""
    import time

    x, w = draw(4, 64, 28, 28), draw(64, 64, 3, 3, seed=1)
    start = time.perf_counter()
    y = reference_conv.conv({"pads": 1}, {"W": w}, [x])[0]
    assert time.perf_counter() - start < 10 and y.shape == x.shape
