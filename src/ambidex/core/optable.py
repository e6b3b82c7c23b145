"""The canonical operators of a model: families, weight roles, attributes with defaults.

``docs/canonical.md`` is the prose of the table below. Names and attributes are those of ONNX; what ONNX lacks is
named in its style. An attribute left out means its default; a default of None means "not set" or "not known".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One canonical operator.

    ``attrs`` maps attribute to default. ``training_only`` attributes change nothing in inference, ``masking_only``
    ones nothing without a mask; ``ignored`` ones describe the layer but are no setting of it (its kernel size stands
    in its weight already).
    """

    name: str
    family: str
    roles: tuple[str, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    training_only: frozenset[str] = frozenset()
    masking_only: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()


TABLE: dict[str, OpSpec] = {}


def _add(
    names: str, family: str, roles: str = "", *, training: str = "", masking: str = "", ignored: str = "", **attrs: Any
) -> None:
    sets = [frozenset(text.split()) for text in (training, masking, ignored)]
    for name in names.split():
        TABLE[name] = OpSpec(name, family, tuple(roles.split()), attrs, *sets)


# fmt: off
_add("Gemm", "linear", "W B")
_add("Einsum", "linear", "W B", equation=None)
_add("MatMul", "linear", transpose_a=False, transpose_b=False, adj_x=False, adj_y=False)
_add("Conv", "conv", "W B", strides=1, dilations=1, group=1, pads=0, auto_pad="NOTSET", pad_mode="constant",
     kernel_shape=None, ignored="kernel_shape")
_add("ConvTranspose", "conv", "W B", strides=1, dilations=1, group=1, pads=0, output_padding=0, auto_pad="NOTSET",
     output_shape=None, kernel_shape=None, ignored="kernel_shape")
_add("BatchNormalization", "norm", "scale B mean var", epsilon=1e-5, momentum=0.9, unbiased=False, training_mode=False,
     epsilon_outside=False,
     training="momentum unbiased")
_add("LayerNormalization", "norm", "scale B", axis=-1, epsilon=1e-5, correction=0, epsilon_outside=False)
_add("LayerNormalizationRmsScaling", "norm", "scale", axis=-1, epsilon=1e-5)
_add("RMSNormalization", "norm", "scale", axis=-1, epsilon=1e-5, epsilon_outside=False)
_add("GroupNormalization", "norm", "scale B", num_groups=None, epsilon=1e-5, correction=0, epsilon_outside=False)
_add("InstanceNormalization", "norm", "scale B mean var", epsilon=1e-5, momentum=0.9, correction=0,
     epsilon_outside=False,
     training="momentum")
_add("LRN", "norm", size=5, alpha=1e-4, beta=0.75, bias=1.0, before=None)
_add("LpNormalization", "norm", axis=-1, p=2, epsilon=0.0)
_add("Gather", "embedding", "W", axis=0, padding_idx=None, mask_zero=False, max_norm=None, norm_type=2.0,
     training="padding_idx", masking="mask_zero")
_add("EmbeddingBag", "embedding", "W", mode="mean", padding_idx=None, max_norm=None, norm_type=2.0,
     include_last_offset=False)

_RNN: dict[str, Any] = {
    "training": "dropout recurrent_dropout", "masking": "zero_output_for_mask", "hidden_size": None,
    "direction": "forward", "activations": None, "return_sequences": True, "merge": "concat",
    "zero_output_for_mask": False, "cell": False, "keep_reversed": False, "dropout": 0.0, "recurrent_dropout": 0.0,
}
_add("LSTM RNN", "rnn", "W R B", **_RNN)
_add("GRU", "rnn", "W R B", linear_before_reset=0, **_RNN)

_add("Relu Sigmoid Tanh Softsign HardSwish Mish LogSigmoid TanhShrink Identity", "activation")
_add("PRelu", "activation", "slope")
_add("Swish", "activation", alpha=1.0)
_add("Selu", "activation", alpha=1.6732632423543772848170429916717, gamma=1.0507009873554804934193349852946)
_add("Gelu", "activation", approximate="none")
_add("LeakyRelu", "activation", alpha=0.01)
_add("Elu Celu ThresholdedRelu", "activation", alpha=1.0)
_add("HardSigmoid", "activation", alpha=0.2, beta=0.5)
_add("Softplus", "activation", beta=1.0, threshold=None)
_add("Clip", "activation", min=None, max=None)
_add("Threshold", "activation", threshold=0.0, value=0.0)
_add("HardShrink SoftShrink", "activation", lambd=0.5)
_add("RRelu", "activation", lower=1 / 8, upper=1 / 3)
_add("Glu Softmax LogSoftmax Softmin", "activation", axis=-1)

_WINDOW: dict[str, Any] = {"kernel_shape": None, "strides": 1, "pads": 0, "dilations": 1, "ceil_mode": False,
                           "auto_pad": "NOTSET"}
_add("MaxPool", "pool", **_WINDOW)
_add("AveragePool", "pool", **_WINDOW, count_include_pad=False, divisor_override=None)
_add("LpPool", "pool", **_WINDOW, p=2.0, signed=False)
_add("GlobalAveragePool GlobalMaxPool", "pool", keepdims=True)
_add("AdaptiveAveragePool AdaptiveMaxPool", "pool", output_size=None)

_add("Dropout AlphaDropout", "regularize", ratio=0.5, channelwise=False, training="ratio channelwise")
_add("Flatten", "shape", axis=1, end_axis=-1)
_add("Reshape Expand", "shape", shape=None)
_add("Unflatten", "shape", axis=1, shape=None)
_add("Transpose", "shape", perm=None)
_add("Squeeze Unsqueeze Flip SwapAxes", "shape", axes=None)
_add("MoveAxis", "shape", source=None, destination=None)
_add("Tile", "shape", repeats=None)
_add("Cast", "shape", to=None)
_add("Concat", "shape", axis=None)
_add("Stack Unstack GatherElements IndexSelect", "shape", axis=0)
_add("Split", "shape", axis=0, num_outputs=None, indices=None)
_add("Slice", "shape", index=None)
_add("Pad", "shape", pads=0, mode="constant", value=0.0)
_add("DepthToSpace SpaceToDepth", "shape", blocksize=None, mode="DCR")
_add("ChannelShuffle", "shape", group=None)
_add("Roll", "shape", shifts=None, axes=None)
_add("Trilu", "shape", upper=True, k=0)
_add("Repeat", "shape", repeats=None, axis=None)
_add("OneHot", "shape", depth=None, axis=-1)
_add("Resize", "resize", mode="nearest", coordinate_transformation_mode="half_pixel",
     nearest_mode="round_prefer_floor", antialias=False, cubic_coeff_a=-0.75, exclude_outside=False,
     coefficient_steps=None, scales=None, sizes=None, recompute=False)

_add("Attention", "attention", scale=None, is_causal=False, num_heads=None, softmax_axis=-1, masked_row="uniform",
     softcap=0.0, ratio=0.0, return_weights=False, masking="masked_row", training="ratio", ignored="return_weights")

_add("Erf Erfc Exp Log Abs Sign Neg Floor Ceil Round Sin Cos Tan Sqrt Rsqrt Reciprocal Square Log1p Expm1 Sinh Cosh "
     "Asin Acos Atan Asinh Acosh Atanh Not IsNaN IsInf Where", "arithmetic")
_add("Add Sub", "arithmetic", alpha=1.0)
_add("Mul Div Pow Max Min And Or Xor Equal NotEqual Less LessOrEqual Greater GreaterOrEqual FloorDiv DivNoNan "
     "SquaredDifference", "arithmetic")
_add("Mod", "arithmetic", fmod=False)
_add("MaskedFill", "arithmetic", value=None)
_add("ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSumExp ReduceSumSquare",
     "reduce", axes=None, keepdims=False)
_add("ReduceVar ReduceStd", "reduce", axes=None, keepdims=False, correction=0)
_add("ArgMax ArgMin", "reduce", axis=None, keepdims=False)
_add("CumSum CumProd", "reduce", axis=0)
# fmt: on
