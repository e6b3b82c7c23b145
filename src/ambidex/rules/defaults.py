"""What each framework takes when a value is not passed. Measured with torch 2.13 and Keras 3.15."""

from __future__ import annotations

from typing import Any

from ambidex.core import ops
from ambidex.core.rule import Cause

#: (op, attribute) -> framework -> (value, whose default it is)
_DEFAULTS: dict[tuple[str, str], dict[str, tuple[tuple[Any, str], ...]]] = {
    **{
        (op, "epsilon"): {"torch": ((1e-5, f"nn.{t}"),), "keras": ((1e-3, f"keras.layers.{k}"),)}
        for op, t, k in (
            ("LayerNormalization", "LayerNorm", "LayerNormalization"),
            ("BatchNormalization", "BatchNorm1d/2d/3d", "BatchNormalization"),
            ("GroupNormalization", "GroupNorm", "GroupNormalization"),
            ("InstanceNormalization", "InstanceNorm1d/2d/3d", "GroupNormalization"),
        )
    },
    ("RMSNormalization", "epsilon"): {
        "torch": ((2.0**-23, "nn.RMSNorm (eps=None means the epsilon of the dtype)"),),
        "keras": ((1e-6, "keras.layers.RMSNormalization"),),
    },
    ("BatchNormalization", "momentum"): {
        "torch": ((0.9, "nn.BatchNorm1d/2d/3d (momentum=0.1)"),),
        "keras": ((0.99, "keras.layers.BatchNormalization"),),
    },
    ("GroupNormalization", "num_groups"): {"keras": ((32, "keras.layers.GroupNormalization"),)},
    ("LeakyRelu", "alpha"): {
        "torch": ((0.01, "nn.LeakyReLU"),),
        "keras": ((0.3, "keras.layers.LeakyReLU"), (0.2, "keras.activations.leaky_relu")),
    },
    ("Gelu", "approximate"): {
        "torch": (("none", "nn.GELU"),),
        "keras": (("tanh", "keras.ops.gelu"), ("none", "keras.activations.gelu")),
    },
    ("Elu", "alpha"): {"torch": ((1.0, "nn.ELU"),), "keras": ((1.0, "keras.layers.ELU"),)},
    ("Celu", "alpha"): {"torch": ((1.0, "nn.CELU"),), "keras": ((1.0, "keras.activations.celu"),)},
    ("Softplus", "beta"): {"torch": ((1.0, "nn.Softplus"),), "keras": ((1.0, "keras.activations.softplus"),)},
    ("AveragePool", "count_include_pad"): {
        "torch": ((True, "nn.AvgPool1d/2d/3d"),),
        "keras": ((False, "keras.layers.AveragePooling1D/2D/3D"),),
    },
    ("GRU", "linear_before_reset"): {
        "torch": ((1, "nn.GRU (which has no other way)"),),
        "keras": ((1, "keras.layers.GRU (reset_after=True since Keras 2 for TensorFlow 2)"),),
    },
    ("Resize", "cubic_coeff_a"): {
        "torch": ((-0.75, "F.interpolate without antialias"), (-0.5, "F.interpolate with antialias")),
        "keras": ((-0.5, "keras.ops.image.resize"),),
    },
    ("Resize", "antialias"): {
        "torch": ((False, "F.interpolate"),),
        "keras": ((False, "keras.layers.Resizing"),),
    },
    ("Concat", "axis"): {"torch": ((0, "torch.cat"),), "keras": ((-1, "keras.layers.Concatenate"),)},
    ("Dropout", "ratio"): {"torch": ((0.5, "nn.Dropout"),)},
    ("Attention", "is_causal"): {"torch": ((False, "torch"),), "keras": ((False, "keras.layers.MultiHeadAttention"),)},
    **{
        (op, "zero_output_for_mask"): {
            "torch": ((True, "pad_packed_sequence"),),
            "keras": ((False, f"keras.layers.{op if op != 'RNN' else 'SimpleRNN'}"),),
        }
        for op in ("LSTM", "GRU", "RNN")
    },
}


def owner(op: str, name: str, framework: str, value: Any) -> str:
    """Whose default this value is in a framework; "" when it is nobody's."""
    for default, who in _DEFAULTS.get((op, name), {}).get(framework, ()):
        if ops.equal_values(default, value) or _close(default, value):
            return who
    return ""


def _close(a: Any, b: Any) -> bool:
    numbers = isinstance(a, int | float) and isinstance(b, int | float)
    return numbers and abs(a - b) <= 1e-6 * max(abs(a), abs(b))  # a constant that passed through float32


def note(cause: Cause) -> str:
    """A sentence when the candidate has what its framework takes by itself and the reference has not; else ""."""
    who = owner(cause.op, cause.name, cause.framework, cause.candidate)
    if not who:
        return ""
    theirs = owner(cause.op, cause.name, cause.reference_framework, cause.reference)
    if theirs:
        return f" These are the defaults of {who} and {theirs}: the value was probably never passed."
    return f" That is the default of {who}: the value was probably never passed (configuration value ignored)."
