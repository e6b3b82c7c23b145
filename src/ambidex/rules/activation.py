"""Activations: another approximation, another slope, another activation, one missing or one too many."""

from __future__ import annotations

from typing import Any

from ambidex.core.rule import Cause, Side
from ambidex.rules import defaults
from ambidex.rules.pairs import agree, differ, other
from ambidex.rules.registry import rule
from ambidex.rules.words import Known, activation, both, called, code, functional, layer, number, write

_GELU = {"tanh": "the tanh approximation of GELU", "none": "the exact (erf) GELU"}


def _fused(cause: Cause) -> str:
    """Where an activation goes in the candidate: Keras layers take it as an argument."""
    return "activation=" if cause.framework == "keras" else ""


@rule
class GeluApproximation(Known):
    """One side computes GELU exactly (with erf), the other its tanh approximation.

    How it shows: differences below 5e-4 at each activation, which add up to 1e-3 and more over an encoder; cosine and
    mean criteria do not see it, gates at 1e-3 do not either.

    Why it happens: keras.ops.gelu takes the tanh approximation when nothing is said; keras.activations.gelu, the
    string "gelu", tf.nn.gelu and torch take erf. Checkpoints say it in their configuration: hidden_act "gelu" is erf,
    "gelu_new" and "gelu_pytorch_tanh" are tanh; converters that ignore the field give one for all. GPT-2 and original
    BERT in TensorFlow use tanh, BERT in torch uses erf.
    """

    code, name, title = "AMB110", "gelu-approximation", "GELU: exact (erf) against tanh approximation"
    weight = 20
    kinds, ops, names = ("attr",), ("Gelu",), ("approximate", "Gelu")
    sample = Cause("attr", "Gelu", "approximate", "none", "tanh")
    examples = (
        differ("Gelu", {"approximate": "none"}, {"approximate": "tanh"}, (3, 5, 7)),
        differ("Gelu", {"approximate": "tanh"}, {"approximate": "none"}, (4, 11)),
        agree("Gelu", {}, {}, (3, 5, 7), approximate="none"),
        agree("Gelu", {}, {}, (3, 5, 7), approximate="tanh"),
    )

    def title_for(self, cause: Cause) -> str:
        return (
            "GELU: candidate uses tanh, the reference erf"
            if cause.candidate == "tanh"
            else "GELU: candidate uses erf, the reference tanh"
        )

    def message(self, cause: Cause) -> str:
        c, r = (_GELU.get(str(v), str(v)) for v in (cause.candidate, cause.reference))
        return f"The candidate uses {c}, the reference {r}.{defaults.note(cause)}"

    def fix(self, cause: Cause) -> str:
        tanh = cause.reference == "tanh"
        name = "tanh" if tanh else "none"
        function = functional(cause)
        return write(
            cause,
            torch=f"F.gelu(x, approximate='{name}')" if function else f"nn.GELU(approximate='{name}')",
            keras=f"keras.ops.gelu(x, approximate={tanh})"
            if function
            else f"activation=lambda x: keras.activations.gelu(x, approximate={tanh})",
        )


@rule
class LeakySlope(Known):
    """The slope of LeakyReLU for negative values differs.

    How it shows: every negative value is off by a constant factor, positive ones are equal.

    Why it happens: there are four defaults: nn.LeakyReLU and F.leaky_relu take 0.01, keras.layers.LeakyReLU 0.3,
    keras.activations.leaky_relu, the string "leaky_relu" and tf.nn.leaky_relu 0.2. Graph attention means 0.2.
    """

    code, name, title = "AMB111", "leaky-slope", "LeakyReLU slope differs"
    weight = 20
    kinds, ops, names = ("attr",), ("LeakyRelu",), ("alpha", "LeakyRelu")
    sample = Cause("attr", "LeakyRelu", "alpha", 0.01, 0.3)
    examples = (
        differ("LeakyRelu", {"alpha": 0.01}, {"alpha": 0.3}, (3, 5, 7)),
        differ("LeakyRelu", {"alpha": 0.2}, {"alpha": 0.01}, (4, 9)),
        agree("LeakyRelu", {}, {}, (3, 5, 7), alpha=0.2),
    )

    def title_for(self, cause: Cause) -> str:
        c, r = both(cause)
        return f"LeakyReLU slope is {c}, the reference has {r}"

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        return (
            f"The candidate multiplies negative values by {c} (negative slope, alpha), the reference by "
            f"{r}.{defaults.note(cause)}"
        )

    def fix(self, cause: Cause) -> str:
        slope = code(cause.reference)
        f = functional(cause)
        return write(
            cause,
            torch=f"F.leaky_relu(x, {slope})" if f else f"nn.LeakyReLU({slope})",
            keras=f"keras.activations.leaky_relu(x, negative_slope={slope})"
            if f
            else f"keras.layers.LeakyReLU(negative_slope={slope})",
        )


@rule
class HardSigmoid(Known):
    """Two definitions of the hard sigmoid: relu6(x + 3) / 6 (slope 1/6) and clip(0.2 x + 0.5, 0, 1) (slope 0.2).

    How it shows: errors up to 0.1 between -3 and 3, none outside; in LSTMs and GRUs of old Keras models at every
    step; in MobileNetV3 in every squeeze-and-excite block and, through hard swish, in every block.

    Why it happens: torch and Keras 3 use 1/6; Keras 2, Theano-era checkpoints and the ONNX operator's default use
    0.2.
    """

    code, name, title = "AMB112", "hard-sigmoid", "Hard sigmoid: slope 1/6 against 0.2"
    weight = 20
    kinds, ops, names = ("attr",), ("HardSigmoid",), ("alpha", "beta", "HardSigmoid")
    sample = Cause("attr", "HardSigmoid", "alpha", 1 / 6, 0.2)
    unpaired = "the layers of torch and of Keras 3 agree (slope 1/6); the other slope is in older models and in code"

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        what = "slope (alpha)" if cause.name != "beta" else "offset (beta)"
        return f"The hard sigmoid has the {what} {c} in the candidate, {r} in the reference."

    def fix(self, cause: Cause) -> str:
        attrs = {"alpha": 1 / 6, "beta": 0.5, **cause.detail.get("reference_attrs", {})}
        if cause.name in {"alpha", "beta"}:
            attrs[cause.name] = cause.reference
        return _fused(cause) * (cause.framework == "keras" and not functional(cause)) + activation(
            "HardSigmoid", attrs, cause.framework
        )


@rule
class SoftplusSetting(Known):
    """Softplus with another beta, or with another threshold above which it is the identity.

    How it shows: beta changes every value; the threshold only values near it (2e-9 at torch's default of 20, which is
    no finding; visible when it was set low).

    Why it happens: nn.Softplus has beta and threshold, keras.activations.softplus has neither.
    """

    code, name, title = "AMB113", "softplus", "Softplus beta or threshold differs"
    weight = 20
    kinds, ops = ("attr",), ("Softplus",)
    sample = Cause("attr", "Softplus", "beta", 2.0, 1.0)
    examples = (
        differ("Softplus", {"beta": 2.0}, {"beta": 1.0}, (3, 5, 7)),
        agree("Softplus", {}, {}, (3, 5, 7), beta=1.0),
    )

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        return f"Softplus has {cause.name} {c} in the candidate, {r} in the reference."

    def fix(self, cause: Cause) -> str:
        value = code(cause.reference)
        if cause.name == "threshold":
            return write(
                cause,
                torch=f"nn.Softplus(threshold={value})",
                keras=f"keras.ops.where(x > {value}, x, keras.ops.softplus(x))",
            )
        return write(cause, torch=f"nn.Softplus(beta={value})", keras=f"keras.ops.softplus({value} * x) / {value}")


@rule
class EluAlpha(Known):
    """The alpha of ELU, CELU, SELU, swish or a thresholded ReLU differs.

    How it shows: only values on one side of the threshold differ (for ELU the negative ones), by a constant factor.

    Why it happens: the defaults agree (1.0), so one side was configured and the other was not; CELU with alpha a is not
    ELU with alpha a.
    """

    code, name, title = "AMB114", "elu-alpha", "alpha of the activation differs"
    weight = 20
    kinds, ops, names = (
        ("attr",),
        ("Elu", "Celu", "ThresholdedRelu", "Swish", "Selu"),
        ("alpha", "gamma", "Elu", "Celu"),
    )
    sample = Cause("attr", "Elu", "alpha", 1.0, 0.5)
    examples = (
        differ("Elu", {"alpha": 1.0}, {"alpha": 0.5}, (3, 5, 7)),
        agree("Elu", {}, {}, (3, 5, 7), alpha=0.5),
    )

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        return f"{called(cause.op)} has {cause.name} {c} in the candidate, {r} in the reference.{defaults.note(cause)}"

    def fix(self, cause: Cause) -> str:
        return activation(cause.op, {"alpha": cause.reference}, cause.framework)


@rule
class OtherActivation(Known):
    """Another activation stands in this place.

    How it shows: which values differ depends on the two: ReLU against ReLU6 only above 6, GELU against ReLU around
    zero, softmax against log-softmax everywhere.

    Why it happens: a configuration field (hidden_act, activation) that one side ignores; ReLU6 of MobileNet written
    as ReLU; nn.SiLU and "swish" are the same and are not reported; a linear output layer against a softmax one, or
    logits on one side and probabilities on the other.
    """

    code, name, title = "AMB115", "activation-kind", "Another activation"
    weight = 20
    kinds, families = ("op",), ("activation",)
    sample = Cause("op", "Gelu", "Relu", {"approximate": "none"}, {})
    examples = (
        other(Side("Gelu", {"approximate": "none"}), Side("Relu")),
        other(Side("Swish"), Side("Sigmoid")),
        other(Side("Tanh"), Side("Softsign")),
        other(Side("Softmax", {"axis": -1}), Side("LogSoftmax", {"axis": -1})),
        agree("Swish", {}, {}, (3, 5, 7)),
        agree("Mish", {}, {}, (3, 5, 7)),
    )

    def title_for(self, cause: Cause) -> str:
        return (
            f"activation is {called(cause.name, cause.candidate)}, the reference has "
            f"{called(cause.op, cause.reference)}"
        )

    def message(self, cause: Cause) -> str:
        c, r = called(cause.name, cause.candidate), called(cause.op, cause.reference)
        if cause.name == "Identity":
            return f"The candidate applies no activation where the reference applies {r}."
        return f"The candidate applies {c}, the reference {r}."

    def fix(self, cause: Cause) -> str:
        written = activation(cause.op, cause.reference, cause.framework)
        if cause.op == "Identity":
            return write(cause, torch="leave the activation out", keras="activation=None")
        plain = cause.framework != "keras" or functional(cause) or written.startswith("keras.layers.")
        return written if plain else f"activation={written}"


@rule
class ActivationMissing(Known):
    """An activation that the reference applies is missing in the candidate.

    How it shows: values below zero (or outside the activation's range) survive; all weights are equal.

    Why it happens: Keras layers take activation=None when nothing is said, and torch layers never have one, so an
    activation that is an argument on one side must be a call on the other. Likewise a sigmoid or softmax at the end
    that the loss of the other framework contains (logits against probabilities).
    """

    code, name, title = "AMB116", "activation-missing", "Activation missing"
    weight = 20
    kinds, families = ("missing",), ("activation",)
    unpaired = "it takes a layer and its activation; a missing one shows as an identity or not at all in a single layer"
    sample = Cause("missing", "Relu")

    def title_for(self, cause: Cause) -> str:
        return f"activation missing: the reference applies {called(cause.op, cause.reference)}"

    def message(self, cause: Cause) -> str:
        return f"The reference applies {called(cause.op, cause.reference)} here, the candidate applies no activation."

    def fix(self, cause: Cause) -> str:
        written = activation(cause.op, cause.reference, cause.framework)
        if cause.framework == "keras" and not written.startswith("keras.layers.") and not functional(cause):
            return f"{layer(cause) if cause.candidate_cls else 'keras.layers.Dense'}(..., activation={written})"
        return f"add {written} here"


@rule
class ActivationTwice(Known):
    """The candidate applies an activation that the reference does not: an extra one, or the same one twice.

    How it shows: softmax of a softmax is nearly flat; a ReLU after the last layer cuts half of the logits off.

    Why it happens: the activation is written as an argument and once more as a call; the last layer has a softmax and
    the loss or the serving code applies another; a block of the paper ends without an activation and the port adds
    one.
    """

    code, name, title = "AMB117", "activation-extra", "Activation that the reference does not have"
    weight = 20
    kinds, families = ("extra",), ("activation",)
    unpaired = "it takes a layer and its activation"
    sample = Cause("extra", "Softmax")

    def title_for(self, cause: Cause) -> str:
        return f"extra activation: the candidate applies {called(cause.op, cause.candidate)}"

    def message(self, cause: Cause) -> str:
        return f"The candidate applies {called(cause.op, cause.candidate)} here, the reference applies no activation."

    def fix(self, cause: Cause) -> str:
        return write(
            cause,
            torch=f"take {activation(cause.op, cause.candidate, 'torch')} out here",
            keras="activation=None here, or take the activation layer out",
        )


@rule
class SoftmaxAxis(Known):
    """Softmax is taken over another axis.

    How it shows: rows do not sum to one over the axis that is meant; errors of the size of the probabilities.

    Why it happens: nn.Softmax() and F.softmax without dim choose axis 0 for 1-D and 3-D inputs and axis 1 for others
    (with a warning that is easily lost), Keras takes the last; on channels-first data the class axis is 1, on
    channels-last the last one. In hand-written graph attention the softmax belongs over the neighbours, not over the
    heads.
    """

    code, name, title = "AMB118", "softmax-axis", "Softmax over another axis"
    weight = 20
    kinds, ops, names = (
        ("attr", "variant"),
        ("Softmax", "LogSoftmax", "Softmin", "Glu"),
        ("axis", "Softmax", "LogSoftmax"),
    )
    sample = Cause("attr", "Softmax", "axis", -1, 0)
    examples = (
        differ("Softmax", {"axis": -1}, {"axis": -2}, (3, 5, 7)),
        differ("LogSoftmax", {"axis": -2}, {"axis": -1}, (3, 5, 7)),
        agree("Softmax", {}, {}, (3, 5, 7), axis=-2),
    )

    def message(self, cause: Cause) -> str:
        if cause.reference is None or cause.candidate is None:
            who, axis = ("candidate", cause.candidate) if cause.reference is None else ("reference", cause.reference)
            return f"The {who} takes {called(cause.op)} over axis {number(axis)}, the other side over its own."
        return (
            f"The candidate takes {called(cause.op)} over axis {number(cause.candidate)}, the reference "
            f"over {number(cause.reference)}."
        )

    def fix(self, cause: Cause) -> str:
        axis = -1 if cause.reference is None else cause.reference
        name = "softmax" if cause.op == "Softmax" else "log_softmax" if cause.op == "LogSoftmax" else "glu"
        return write(cause, torch=f"F.{name}(x, dim={axis})", keras=f"keras.activations.{name}(x, axis={axis})")


@rule
class ActivationSetting(Known):
    """An activation differs in a setting that no more special rule covers.

    How it shows: the activation's output differs on equal inputs, and making this one setting equal repairs it.

    Why it happens: both frameworks let the bounds of clip, hard shrink, threshold and the like be set, and their
    defaults mostly agree: one side was configured and the other was not. The message has both values.
    """

    code, name, title = "AMB119", "activation-setting", "Setting of an activation differs"
    kinds, families = ("attr", "variant"), ("activation",)
    sample = Cause("attr", "Clip", "max", 6.0, 1.0)
    examples = (
        differ("Clip", {"max": 0.5}, {"max": 1.0}, (3, 5, 7), min=-1.0),
        agree("Clip", {}, {}, (3, 5, 7), min=0.0, max=6.0),
    )

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        return f"The {called(cause.op)} has {cause.name} {c} in the candidate, {r} in the reference."

    def fix(self, cause: Cause) -> str:
        attrs: dict[str, Any] = {**cause.detail.get("reference_attrs", {}), cause.name: cause.reference}
        return (
            activation(cause.op, attrs, cause.framework)
            if cause.op == "Clip"
            else f"set {cause.name}={code(cause.reference)}"
        )
