"""Normalisation: epsilon, axes, groups, another norm, hand-written norms, batch statistics."""

from __future__ import annotations

from collections.abc import Sequence

from ambidex.core.rule import Cause, Side, Variant
from ambidex.core.types import Call
from ambidex.rules import defaults
from ambidex.rules.pairs import agree, differ, other
from ambidex.rules.registry import rule
from ambidex.rules.words import Known, both, called, code, layer, number, real, write

_NORMS = ("LayerNormalization", "BatchNormalization", "GroupNormalization", "InstanceNormalization", "RMSNormalization")


@rule
class NormEpsilon(Known):
    """The two sides add another epsilon to the variance before they divide by its root.

    How it shows: small differences (1e-4 to 1e-2) at every norm, largest for rows of low variance; the layer's
    weights are equal. A comparison of a whole model at tolerance 1e-3 often passes and the metric is still off.

    Why it happens: torch takes 1e-5 in nn.LayerNorm, nn.BatchNorm and nn.GroupNorm, Keras 1e-3 in all of them, so a
    port that passes nothing differs. RMSNorm: torch takes the epsilon of the dtype (about 1.2e-7 in float32, another
    in float16) when eps is None, Keras 1e-6. And epsilon belongs to the checkpoint: BERT has 1e-12, MobileNet 1e-3,
    EfficientNet 1e-3, ResNet in Keras 1.001e-5; a converter that ignores layer_norm_eps of the configuration gives
    the framework's default instead.
    """

    code, name, title = "AMB101", "norm-epsilon", "Normalisation epsilon differs"
    weight = 20
    kinds, ops, names = ("attr",), _NORMS, ("epsilon",)
    sample = Cause("attr", "LayerNormalization", "epsilon", 1e-5, 1e-3)
    examples = (
        differ("LayerNormalization", {"epsilon": 1e-5}, {"epsilon": 1e-3}, (3, 5, 7)),
        differ("LayerNormalization", {"epsilon": 1e-12}, {"epsilon": 1e-5}, (2, 9, 6)),
        differ("BatchNormalization", {"epsilon": 1e-5}, {"epsilon": 1e-3}, (3, 4, 5, 7)),
        differ("GroupNormalization", {"epsilon": 1e-5}, {"epsilon": 1e-3}, (3, 6, 5, 7), num_groups=3),
        differ("RMSNormalization", {"epsilon": 1e-6}, {"epsilon": 1e-3}, (3, 5, 7)),
        agree("LayerNormalization", {}, {}, (3, 5, 7), epsilon=1e-5),
        agree("BatchNormalization", {}, {}, (3, 4, 5, 7), epsilon=1e-3),
        agree("RMSNormalization", {}, {}, (3, 5, 7), epsilon=1e-6),
    )

    def title_for(self, cause: Cause) -> str:
        c, r = both(cause)
        return f"{called(cause.op)} epsilon is {c}, the reference has {r}"

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        return (
            f"The candidate divides by sqrt(variance + {c}), the reference by sqrt(variance + "
            f"{r}).{defaults.note(cause)}"
        )

    def fix(self, cause: Cause) -> str:
        eps = code(cause.reference)
        return write(
            cause,
            torch=f"{layer(cause)}(..., eps={eps})",
            keras=f"{layer(cause)}(epsilon={eps})",
            other=f"epsilon={eps}",
        )


@rule
class NormAxis(Known):
    """The two sides normalise over other axes.

    How it shows: errors of the size of the values themselves at the norm, with equal weights when the axes have equal
    sizes; else the weights do not even fit.

    Why it happens: torch names the trailing axes by their sizes (normalized_shape=(H, W) takes two axes), Keras by
    index (axis=-1 takes one); on channels-first data axis=-1 is the width and not the channel; and the channel of a
    BatchNormalization is axis=-1 in Keras whatever the data's layout is, axis 1 in torch.
    """

    code, name, title = "AMB102", "norm-axis", "Normalised axes differ"
    weight = 20
    kinds, ops, names = ("attr", "variant"), (*_NORMS, "LpNormalization"), ("axis",)
    sample = Cause("attr", "LayerNormalization", "axis", -2, -1)
    examples = (
        differ("LayerNormalization", {"axis": -2}, {"axis": -1}, (3, 5, 7), epsilon=1e-5, affine=False),
        agree("LayerNormalization", {}, {}, (3, 5, 7), axis=-2, epsilon=1e-5),
    )

    def message(self, cause: Cause) -> str:
        return (
            f"The candidate normalises from axis {number(cause.candidate)} on, the reference from axis "
            f"{number(cause.reference)} on (axes counted from the end)."
        )

    def fix(self, cause: Cause) -> str:
        axis = cause.reference
        axes = list(range(axis, 0)) if isinstance(axis, int) and axis < 0 else axis
        sizes = ", ".join(f"x.shape[{a}]" for a in axes) if isinstance(axes, list) else "the trailing sizes"
        return write(
            cause,
            torch=f"{layer(cause)}(({sizes},)) so that it takes axes {number(axes)}",
            keras=f"{layer(cause)}(axis={axes if isinstance(axes, list) and len(axes) > 1 else code(axis)})",
        )


@rule
class NumGroups(Known):
    """A group norm cuts the channels into another number of groups.

    How it shows: errors of the size of the values at the norm, with equal weights (their shape does not depend on the
    number of groups).

    Why it happens: nn.GroupNorm has no default, keras.layers.GroupNormalization takes 32. groups=-1 in Keras means one
    group a channel (instance norm); groups=1 means layer norm over everything but the batch.
    """

    code, name, title = "AMB103", "norm-groups", "Number of groups of the norm differs"
    weight = 20
    kinds, ops, names = ("attr",), ("GroupNormalization",), ("num_groups",)
    sample = Cause("attr", "GroupNormalization", "num_groups", 4, 32)
    examples = (
        differ("GroupNormalization", {"num_groups": 2}, {"num_groups": 3}, (3, 6, 5, 7), epsilon=1e-5),
        agree("GroupNormalization", {}, {}, (3, 6, 5, 7), num_groups=2, epsilon=1e-5),
    )

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        return f"The candidate normalises in {c} groups, the reference in {r}.{defaults.note(cause)}"

    def fix(self, cause: Cause) -> str:
        n = code(cause.reference)
        return write(cause, torch=f"{layer(cause)}({n}, ...)", keras=f"{layer(cause)}(groups={n})")


@rule
class OtherNorm(Known):
    """Another kind of norm stands in this place: LayerNorm against RMSNorm, BatchNorm against LayerNorm and so on.

    How it shows: errors of the size of the values; for LayerNorm against RMSNorm they are small where the rows have a
    mean near zero, so it can pass a quick look. A parameter (the bias of LayerNorm) has no partner.

    Why it happens: RMSNorm does not subtract the mean. keras.layers.LayerNormalization(rms_scaling=True) looks like
    RMSNorm and is not: it divides by the root of the variance; keras.layers.RMSNormalization is the one. There is no
    InstanceNormalization in Keras: GroupNormalization(groups=-1) is it.
    """

    code, name, title = "AMB104", "norm-kind", "Another kind of normalisation"
    weight = 20
    kinds, families = ("op",), ("norm",)
    sample = Cause("op", "RMSNormalization", "LayerNormalization", {"epsilon": 1e-6}, {"epsilon": 1e-6})
    examples = (
        other(
            Side("RMSNormalization", {"epsilon": 1e-6}, ((3, 5, 7),)),
            Side("LayerNormalization", {"epsilon": 1e-6, "bias": False}, ((3, 5, 7),)),
        ),
        agree("RMSNormalization", {}, {}, (2, 3, 5), epsilon=1e-5),
    )

    def title_for(self, cause: Cause) -> str:
        return f"{called(cause.name)} stands where the reference has {called(cause.op)}"

    def message(self, cause: Cause) -> str:
        return f"The candidate computes {called(cause.name)}, the reference {called(cause.op)}."

    def fix(self, cause: Cause) -> str:
        attrs = cause.reference if isinstance(cause.reference, dict) else {}
        eps = code(real(attrs.get("epsilon"), 1e-5))
        groups = "groups=-1, " if cause.op == "InstanceNormalization" else ""
        return write(
            cause,
            torch=f"{layer(cause, cause.op)}(..., eps={eps})",
            keras=f"{layer(cause, cause.op)}({groups}epsilon={eps})",
        )


@rule
class HandWrittenNorm(Known):
    """A norm written by hand differs from the framework's in its standard deviation: n - 1, or epsilon outside the
    root.

    How it shows: a nearly constant factor; sqrt(n/(n-1)) for the unbiased deviation, so large for short rows and
    small for wide ones, plus a difference on rows of low variance for the epsilon.

    Why it happens: torch's x.std() and x.var() divide by n - 1 when nothing is said, keras.ops.std and numpy by n;
    the layers of both frameworks divide by n and add epsilon under the root. (x - mean) / (x.std(-1) + eps), as in
    the Annotated Transformer, is neither.
    """

    code, name, title = "AMB105", "norm-by-hand", "Hand-written norm: unbiased deviation or epsilon outside the root"
    weight = 25
    kinds, names = ("variant", "attr"), ("std_epsilon", "correction", "epsilon_outside")
    ops = (*_NORMS,)
    unpaired = "no layer of either framework computes a norm this way, only code by hand does"
    sample = Cause("variant", "LayerNormalization", "std_epsilon", None, "std (n - 1) + epsilon")

    def message(self, cause: Cause) -> str:
        how = cause.candidate if isinstance(cause.candidate, str) else ""
        if cause.name == "epsilon_outside" and not how:
            how = "standard deviation + epsilon"
        if cause.name == "correction":
            how = "a variance that divides by n - 1" if cause.candidate else "a variance that divides by n"
        outside = " (epsilon outside the root)" if cause.name in {"epsilon_outside", "std_epsilon"} else ""
        if not how:
            return (
                f"The reference computes {called(cause.op)} by hand ({cause.reference}), the candidate the framework's."
            )
        theirs = "sqrt(variance + epsilon) with the variance over n"
        return f"The candidate divides by {how}{outside}; the reference by {theirs}."

    def fix(self, cause: Cause) -> str:
        return write(
            cause,
            torch="(x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True, unbiased=False) + "
            "eps), or nn.LayerNorm",
            keras="(x - mean) * keras.ops.rsqrt(keras.ops.var(x, axis=-1, keepdims=True) + eps), "
            "or keras.layers.LayerNormalization",
        )

    def variants(self, call: Call) -> Sequence[Variant]:
        """The usual hand-written forms of a norm."""
        if call.op not in {"LayerNormalization", "GroupNormalization", "InstanceNormalization", "RMSNormalization"}:
            return ()
        return [
            Variant(
                "variant",
                "std_epsilon",
                text,
                call.op,
                {**call.layer.attrs, "correction": correction, "epsilon_outside": outside},
            )
            for text, correction, outside in (_BY_HAND if call.op != "RMSNormalization" else _BY_HAND[1:2])
        ]


#: (in words, correction of the variance, epsilon outside the root)
_BY_HAND = (
    ("standard deviation (over n - 1) + epsilon", 1, True),
    ("standard deviation (over n) + epsilon", 0, True),
    ("sqrt(variance over n - 1 + epsilon)", 1, False),
)


@rule
class BatchStatistics(Known):
    """BatchNorm normalises by the statistics of the batch in inference, not by the running ones.

    How it shows: outputs depend on what else is in the batch; large differences for small batches; equal weights.

    Why it happens: the torch module was left in train mode (modules start in it: nn.Module.training is True), or was
    built with track_running_stats=False, or one BatchNorm was put back by a train() call of its parent; in Keras the
    layer is called with training=True, or keras.backend.set_learning_phase / a custom call passes it on. The other
    way round, Keras' trainable=False makes a BatchNormalization run in inference mode, torch's requires_grad=False
    does not.
    """

    code, name, title = "AMB106", "norm-batch-statistics", "BatchNorm uses batch statistics in inference"
    weight = 25
    kinds, ops, names = ("variant", "attr"), ("BatchNormalization",), ("training_mode",)
    unpaired = "a mode of the run, not a setting of a layer"
    sample = Cause("variant", "BatchNormalization", "training_mode", None, True)

    def message(self, cause: Cause) -> str:
        if cause.kind == "variant" and cause.reference:
            return (
                "The reference normalises by the statistics of the batch (train mode), the candidate by "
                "the running ones."
            )
        return (
            "The candidate normalises by the mean and variance of the batch (train mode), the reference by the running "
            "statistics."
        )

    def fix(self, cause: Cause) -> str:
        if cause.kind == "variant" and cause.reference:
            return write(
                cause,
                torch="call eval() on the reference too, or train() on this BatchNorm if training mode is meant",
                keras="call the reference in inference mode, or this layer with training=True if that is meant",
            )
        return write(
            cause,
            torch="model.eval() before the call, and no train() on this module afterwards; track_running_stats=True",
            keras="call the layer with training=False (or pass `training` on)",
        )


@rule
class NormMissing(Known):
    """A normalisation that one side has is missing, or stands there twice, on the other.

    How it shows: errors of the size of the values from this place on; usually the norm's scale and bias are
    parameters without a partner.

    Why it happens: pre-norm and post-norm transformers differ by a final norm; nn.TransformerEncoder takes it as an
    argument (norm=), so it is easily left out. A BatchNorm may be folded into the convolution before it: then both
    sides are equal and nothing is reported.
    """

    code, name, title = "AMB107", "norm-missing", "Normalisation missing"
    weight = 20
    kinds, families = ("missing", "extra"), ("norm",)
    unpaired = "it takes a model of several layers; the planted faults of the quality figure show it"
    sample = Cause("missing", "LayerNormalization")

    def title_for(self, cause: Cause) -> str:
        return f"{called(cause.op)} {'missing' if cause.kind == 'missing' else 'only in the candidate'}"

    def message(self, cause: Cause) -> str:
        if cause.kind == "missing":
            return f"The reference applies {called(cause.op)} here, the candidate hands the value on as it is."
        return f"The candidate applies {called(cause.op)} here, the reference does not."

    def fix(self, cause: Cause) -> str:
        if cause.kind == "extra":
            return f"take this {called(cause.op)} out"
        return f"add {layer(cause, cause.op)} here, with the reference's epsilon and weights"


@rule
class UnitNorm(Known):
    """Vectors are brought to length one with another guard against division by zero, or another exponent.

    How it shows: nothing at all on ordinary rows, large errors on rows that are zero or tiny (padding embeddings).

    Why it happens: F.normalize divides by max(norm, 1e-12), keras.layers.UnitNormalization does the same,
    tf.math.l2_normalize puts 1e-12 under the root (so a row of norm 1e-8 comes out a hundred times too small), and
    code by hand adds 1e-8 to the norm.
    """

    code, name, title = "AMB108", "unit-norm", "L2 normalisation differs"
    weight = 20
    kinds, ops = ("attr", "variant"), ("LpNormalization",)
    unpaired = "torch has it only as a function, not as a layer"
    sample = Cause("attr", "LpNormalization", "epsilon", 1e-12, 1e-6)

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        what = {"epsilon": "guard (epsilon)", "p": "exponent", "axis": "axis"}.get(cause.name, cause.name)
        return f"The {what} of the normalisation is {c} in the candidate, {r} in the reference."

    def fix(self, cause: Cause) -> str:
        name = {"epsilon": "eps", "axis": "dim"}.get(cause.name, cause.name)
        return write(
            cause,
            torch=f"F.normalize(x, {name}={code(cause.reference)})",
            keras=f"x / keras.ops.maximum(keras.ops.norm(x, axis=-1, keepdims=True), {code(cause.reference)})"
            if cause.name == "epsilon"
            else f"keras.layers.UnitNormalization with {cause.name}={code(cause.reference)}",
        )


@rule
class NormSetting(Known):
    """A normalisation differs in a setting that no more special rule covers.

    How it shows: the layer's output differs with equal weights and inputs, and making this one setting equal repairs
    it.

    Why it happens: see the page of the setting in the framework's documentation; the message has both values.
    """

    code, name, title = "AMB109", "norm-setting", "Setting of a normalisation differs"
    kinds, families = ("attr", "variant"), ("norm",)
    unpaired = "the settings that layers of both frameworks share have rules of their own"
    sample = Cause("attr", "LRN", "size", 5, 3)

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        return f"The {called(cause.op)} has {cause.name} {c} in the candidate, {r} in the reference."

    def fix(self, cause: Cause) -> str:
        return f"set {cause.name}={code(cause.reference)} on {layer(cause)}"
