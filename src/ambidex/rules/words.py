"""How rules write values and code: short numbers, both sides, the candidate's framework."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ambidex.core import ops
from ambidex.core.rule import Cause, Kind, Rule

#: canonical operator -> (torch module, Keras layer)
CLASSES: dict[str, tuple[str, str]] = {
    "Gemm": ("nn.Linear", "keras.layers.Dense"),
    "Conv": ("nn.Conv2d", "keras.layers.Conv2D"),
    "ConvTranspose": ("nn.ConvTranspose2d", "keras.layers.Conv2DTranspose"),
    "BatchNormalization": ("nn.BatchNorm2d", "keras.layers.BatchNormalization"),
    "LayerNormalization": ("nn.LayerNorm", "keras.layers.LayerNormalization"),
    "RMSNormalization": ("nn.RMSNorm", "keras.layers.RMSNormalization"),
    "GroupNormalization": ("nn.GroupNorm", "keras.layers.GroupNormalization"),
    "InstanceNormalization": ("nn.InstanceNorm2d", "keras.layers.GroupNormalization"),
    "Gather": ("nn.Embedding", "keras.layers.Embedding"),
    "LSTM": ("nn.LSTM", "keras.layers.LSTM"),
    "GRU": ("nn.GRU", "keras.layers.GRU"),
    "RNN": ("nn.RNN", "keras.layers.SimpleRNN"),
    "PRelu": ("nn.PReLU", "keras.layers.PReLU"),
    "MaxPool": ("nn.MaxPool2d", "keras.layers.MaxPooling2D"),
    "AveragePool": ("nn.AvgPool2d", "keras.layers.AveragePooling2D"),
    "GlobalAveragePool": ("nn.AdaptiveAvgPool2d(1)", "keras.layers.GlobalAveragePooling2D()"),
    "GlobalMaxPool": ("nn.AdaptiveMaxPool2d(1)", "keras.layers.GlobalMaxPooling2D()"),
    "Dropout": ("nn.Dropout", "keras.layers.Dropout"),
    "Flatten": ("nn.Flatten", "keras.layers.Flatten"),
    "Resize": ("F.interpolate", "keras.layers.Resizing"),
    "Attention": ("nn.MultiheadAttention", "keras.layers.MultiHeadAttention"),
    "Concat": ("torch.cat", "keras.layers.Concatenate"),
}

#: what people call an operator, where the canonical name is not it
_NAMES = {
    "Gemm": "linear layer",
    "Conv": "convolution",
    "ConvTranspose": "transposed convolution",
    "Gather": "embedding",
    "Swish": "SiLU (swish)",
    "Relu": "ReLU",
    "Gelu": "GELU",
    "LeakyRelu": "LeakyReLU",
    "Elu": "ELU",
    "Selu": "SELU",
    "Celu": "CELU",
    "PRelu": "PReLU",
    "Add": "addition",
    "Mul": "multiplication",
    "Div": "division",
    "LayerNormalization": "LayerNorm",
    "BatchNormalization": "BatchNorm",
    "RMSNormalization": "RMSNorm",
    "GroupNormalization": "GroupNorm",
    "InstanceNormalization": "InstanceNorm",
    "MaxPool": "max pooling",
    "AveragePool": "average pooling",
    "GlobalAveragePool": "global average pooling",
    "GlobalMaxPool": "global max pooling",
    "ReduceMean": "mean",
    "ReduceSum": "sum",
    "ReduceMax": "maximum",
    "ReduceMin": "minimum",
    "HardSigmoid": "hard sigmoid",
    "HardSwish": "hard swish",
    "Concat": "concatenation",
    "LpNormalization": "L2 normalisation",
    "RNN": "simple RNN",
    "Softmax": "softmax",
    "LogSoftmax": "log-softmax",
    "Attention": "attention",
    "Dropout": "dropout",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "Softplus": "softplus",
    "Identity": "identity (no activation)",
}

#: operator -> (torch code, Keras code) of the activation; %s is filled from the attributes
_ACTIVATIONS = {
    "Relu": ("nn.ReLU()", "keras.activations.relu"),
    "Sigmoid": ("nn.Sigmoid()", "keras.activations.sigmoid"),
    "Tanh": ("nn.Tanh()", "keras.activations.tanh"),
    "Swish": ("nn.SiLU()", "keras.activations.silu"),
    "Mish": ("nn.Mish()", "keras.activations.mish"),
    "Selu": ("nn.SELU()", "keras.activations.selu"),
    "Softsign": ("nn.Softsign()", "keras.activations.softsign"),
    "HardSwish": ("nn.Hardswish()", "keras.activations.hard_swish"),
    "LogSigmoid": ("nn.LogSigmoid()", "keras.activations.log_sigmoid"),
    "TanhShrink": ("nn.Tanhshrink()", "keras.activations.tanh_shrink"),
    "Identity": ("nn.Identity()", "None"),
    "Exp": ("torch.exp(x)", "keras.activations.exponential"),
}


def number(value: Any) -> str:
    """A value as a person writes it: six digits, so that a constant that passed through float32 reads as meant."""
    if isinstance(value, bool) or value is None or isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "(" + ", ".join(number(v) for v in value) + ("," if len(value) == 1 else "") + ")"
    return str(value)


def both(cause: Cause) -> tuple[str, str]:
    """Candidate's and reference's value, with as many digits as it takes to tell them apart."""
    c, r = number(cause.candidate), number(cause.reference)
    if c == r and isinstance(cause.candidate, float) and isinstance(cause.reference, float):
        return repr(cause.candidate), repr(cause.reference)
    return c, r


def code(value: Any) -> str:
    """A value as Python source; a float32 constant as the decimal it was written as."""
    if isinstance(value, float):
        short = float(f"{value:.7g}")
        return repr(short) if abs(short - value) <= 1e-7 * abs(value) else repr(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        items = [code(v) for v in value]
        same = len(set(items)) == 1 and bool(items)
        return items[0] if same else "(" + ", ".join(items) + ")"
    return repr(value)


def called(op: str, attrs: Any = None) -> str:
    """What people call an operator, with the settings that tell it from its siblings."""
    attrs = attrs if isinstance(attrs, dict) else {}
    if op == "Gelu":
        return {"tanh": "GELU (tanh approximation)", "none": "GELU (exact, erf)"}.get(
            attrs.get("approximate", ""), "GELU"
        )
    if op == "Clip":
        low, high = attrs.get("min"), attrs.get("max")
        if low is None and high is None:
            return "clipping"
        return "ReLU6" if (low, high) == (0, 6) else f"clipping to {number(low)}..{number(high)}"
    if op in {"LeakyRelu", "Elu", "Celu", "ThresholdedRelu"} and "alpha" in attrs:
        return f"{_NAMES.get(op, op)} (alpha {number(attrs['alpha'])})"
    return _NAMES.get(op, op)


def real(value: Any, default: float) -> float:
    """A value as a number; the default for what is none."""
    return float(value) if isinstance(value, int | float) else default


def functional(cause: Cause) -> bool:
    """Whether the candidate's operator is a function call (classes are written with a capital, functions without)."""
    return bool(cause.candidate_cls) and cause.candidate_cls[0].islower()


def layer(cause: Cause, op: str = "") -> str:
    """The class to write in the candidate's framework: its own class when it has one, else the operator's."""
    known = CLASSES.get(op or cause.op)
    own = cause.candidate_cls if cause.candidate_cls and not functional(cause) and not op else ""
    if own.startswith(("keras.", "nn.")):
        return own
    if own and (known is not None or cause.framework in {"torch", "keras"}):
        return f"{'nn' if cause.framework == 'torch' else 'keras.layers'}.{own}"
    if known is not None:
        return known[1 if cause.framework == "keras" else 0]
    return op or cause.op or "the layer"


def write(cause: Cause, *, torch: str, keras: str, other: str = "") -> str:
    """The text for the candidate's framework; for any other runtime ``other``, or both."""
    if cause.framework == "torch":
        return torch
    if cause.framework == "keras":
        return keras
    return other or f"in torch: {torch}; in Keras: {keras}"


def repairing(cause: Cause) -> str:
    """The factor that repairs a scale cause: one over the candidate's, with the size it is the root of when known."""
    k, guess = cause.candidate, str(cause.detail.get("guess") or "")
    if not isinstance(k, int | float) or not k:
        return "the reference's factor"
    inverse = guess[2:] if guess.startswith("1/") else f"1/{guess}"
    return number(1 / k) + (f" (that is {inverse})" if guess else "")


def activation(op: str, attrs: Any, framework: str) -> str:
    """The activation as code."""
    attrs = attrs if isinstance(attrs, dict) else {}
    torch, keras = _ACTIVATIONS.get(op, ("", ""))
    alpha = code(real(attrs.get("alpha"), 0.01 if op == "LeakyRelu" else 1.0))
    if op == "Gelu":
        tanh = attrs.get("approximate") == "tanh"
        torch = "nn.GELU(approximate='tanh')" if tanh else "nn.GELU(approximate='none')"
        keras = f"lambda x: keras.activations.gelu(x, approximate={tanh})"
    elif op == "LeakyRelu":
        torch, keras = f"nn.LeakyReLU({alpha})", f"keras.layers.LeakyReLU(negative_slope={alpha})"
    elif op == "Elu":
        torch, keras = f"nn.ELU({alpha})", f"keras.layers.ELU(alpha={alpha})"
    elif op == "Celu":
        torch, keras = f"nn.CELU({alpha})", f"lambda x: keras.activations.celu(x, alpha={alpha})"
    elif op in {"Softmax", "LogSoftmax"}:
        axis = attrs.get("axis", -1)
        torch = f"nn.{op}(dim={axis})"
        keras = f"lambda x: keras.activations.{'softmax' if op == 'Softmax' else 'log_softmax'}(x, axis={axis})"
    elif op == "Clip":
        low, high = attrs.get("min"), attrs.get("max")
        six = (low, high) == (0, 6)
        torch = "nn.ReLU6()" if six else f"torch.clamp(x, {code(low)}, {code(high)})"
        keras = "keras.activations.relu6" if six else f"keras.ops.clip(x, {code(low)}, {code(high)})"
    elif op == "HardSigmoid":
        a, b = real(attrs.get("alpha"), 0.2), real(attrs.get("beta"), 0.5)
        sixth = abs(a - 1 / 6) < 1e-6 and b == 0.5
        torch = "nn.Hardsigmoid()" if sixth else f"torch.clamp({code(a)} * x + {code(b)}, 0, 1)"
        keras = "keras.activations.hard_sigmoid" if sixth else f"keras.ops.clip({code(a)} * x + {code(b)}, 0, 1)"
    elif op == "Softplus":
        beta = real(attrs.get("beta"), 1.0)
        torch = f"nn.Softplus(beta={code(beta)})"
        keras = "keras.activations.softplus" if beta == 1 else f"keras.ops.softplus({code(beta)} * x) / {code(beta)}"
    return (keras if framework == "keras" else torch) or called(op, attrs)


class Known(Rule):
    """A rule that claims by kind, operator (or family of operators) and name; empty means any.

    ``sample`` is one cause of the rule as the engine hands it over: the page shows its message and fixes, the tests
    check that this rule wins it. ``unpaired`` says why no pair of single layers can show the fault.
    """

    kinds: Iterable[Kind] = ()
    ops: Iterable[str] = ()
    families: Iterable[str] = ()
    names: Iterable[str] = ()
    sample: Cause
    unpaired: str = ""

    def claims(self, cause: Cause) -> bool:
        return (
            (not self.kinds or cause.kind in self.kinds)
            and (not self.names or cause.name in self.names)
            and (not (self.ops or self.families) or cause.op in self.ops or family(cause.op) in self.families)
        )


def family(op: str) -> str:
    """The family of a canonical operator, "" for any other name."""
    return ops.spec(op).family if ops.known(op) else ""
