"""Weights that were carried over wrongly, or not at all."""

from __future__ import annotations

from ambidex.core.rule import Cause
from ambidex.rules.registry import rule
from ambidex.rules.words import Known, called, write

_KEPT = "a difference of weights, which only --weights keep looks at and carrying them over removes"
_SET = "or run ambidex compare with --weights carry to go on with the reference's weights"


def _names(cause: Cause) -> str:
    """The candidate's weights concerned."""
    found = cause.candidate if isinstance(cause.candidate, list | tuple) else [cause.candidate]
    named = [str(v) for v in found if v]
    return ", ".join(named) or called(cause.op)


@rule
class KernelTransposed(Known):
    """A kernel was loaded transposed, or without the transpose that the other framework's layout needs.

    How it shows: errors of the size of the values; only square kernels, since others do not fit.

    Why it happens: nn.Linear stores (out, in), keras.layers.Dense (in, out); nn.Conv2d (out, in, h, w), Conv2D (h, w,
    in, out). A transpose too few or too many passes every check of shapes on a square kernel: attention projections,
    hidden layers of equal width, recurrent kernels.
    """

    code, name, title, stage = "AMB201", "kernel-transposed", "Kernel is transposed", "weights"
    weight = 20
    kinds, names, unpaired = ("weight",), ("transposed",), _KEPT
    sample = Cause("weight", "Gemm", "transposed", ["fc.weight"], ["fc/kernel"], detail={"roles": ["W"]})

    def message(self, cause: Cause) -> str:
        return f"The candidate's kernel {_names(cause)} is the reference's transposed (input and output exchanged)."

    def fix(self, cause: Cause) -> str:
        conv = called(cause.op) == "convolution"
        keras = "kernel.assign(weight.transpose(2, 3, 1, 0))" if conv else "kernel.assign(weight.T)"
        torch = (
            "weight.copy_(torch.from_numpy(kernel.transpose(3, 2, 0, 1)))"
            if conv
            else "weight.copy_(torch.from_numpy(kernel.T))"
        )
        return write(cause, torch=torch, keras=keras)


@rule
class KernelSpace(Known):
    """Height and width of a convolution kernel are exchanged.

    How it shows: errors that are small for kernels that look symmetric; only square kernels.

    Why it happens: transpose(3, 2, 1, 0) where transpose(2, 3, 1, 0) is meant.
    """

    code, name, title, stage = "AMB202", "kernel-space", "Height and width of the kernel are swapped", "weights"
    weight = 20
    kinds, names, unpaired = ("weight",), ("transposed_space",), _KEPT
    sample = Cause("weight", "Conv", "transposed_space", ["conv.weight"], ["conv/kernel"], detail={"roles": ["W"]})

    def message(self, cause: Cause) -> str:
        return f"In the candidate's kernel {_names(cause)} height and width are swapped (transposed in space)."

    def fix(self, cause: Cause) -> str:
        return write(
            cause,
            torch="weight.copy_(torch.from_numpy(kernel.transpose(3, 2, 0, 1)))",
            keras="kernel.assign(weight.transpose(2, 3, 1, 0))",
        )


@rule
class KernelFlipped(Known):
    """A kernel is flipped in space: convolution in the sense of mathematics against cross-correlation.

    How it shows: edges detected on the other side; kernels that look symmetric hide it.

    Why it happens: Theano and some signal libraries flip the kernel, torch and TensorFlow do not.
    """

    code, name, title, stage = "AMB203", "kernel-flipped", "Kernel is flipped", "weights"
    weight = 20
    kinds, names, unpaired = ("weight",), ("flipped",), _KEPT
    sample = Cause("weight", "Conv", "flipped", ["conv.weight"], ["conv/kernel"], detail={"roles": ["W"]})

    def message(self, cause: Cause) -> str:
        return (
            f"The candidate's kernel {_names(cause)} is the reference's flipped in space (convolution "
            "against cross-correlation)."
        )

    def fix(self, cause: Cause) -> str:
        return write(cause, torch="weight.copy_(weight.flip(2, 3))", keras="kernel.assign(kernel[::-1, ::-1])")


@rule
class GateOrder(Known):
    """The gates of an LSTM or GRU were loaded in another order.

    How it shows: outputs of the right size and shape, all wrong; nothing complains, the blocks have equal shapes.

    Why it happens: torch stores a GRU as r, z, n, Keras as z, r, h: the first two blocks of kernel, recurrent kernel
    and both biases change places. An LSTM is i, f, g, o in torch and i, f, c, o in Keras, which is the same order;
    ONNX has i, o, f, c, and TensorFlow 1 cells i, c, f, o.
    """

    code, name, title, stage = "AMB204", "gate-order", "Gate order of a recurrent layer", "weights"
    weight = 20
    kinds, names, unpaired = ("weight",), ("gate_order",), _KEPT
    sample = Cause(
        "weight",
        "GRU",
        "gate_order",
        ["gru.weight_ih_l0"],
        ["gru/kernel"],
        detail={"roles": ["W"], "text": "the gate blocks stand in the order r, z, h where z, r, h is meant"},
    )

    def message(self, cause: Cause) -> str:
        text = cause.detail.get("text") or "the gate blocks stand in another order"
        stored = (
            "torch stores gates r, z, n, Keras z, r, h"
            if cause.op == "GRU"
            else "torch and Keras store gates i, f, g (c), o; ONNX i, o, f, c"
        )
        return (
            f"In the candidate's {called(cause.op)} {text} (canonical names). {stored}: reorder the blocks "
            "when loading."
        )

    def fix(self, cause: Cause) -> str:
        if cause.op == "GRU":
            return write(
                cause,
                torch="z, r, h = kernel.T.split(H); weight_ih = torch.cat([r, z, h]), likewise weight_hh and "
                "both biases",
                keras="r, z, n = np.split(weight_ih, 3); kernel = np.concatenate([z, r, n]).T, likewise the "
                "recurrent kernel and both biases",
            )
        return write(
            cause,
            torch="i, f, g, o blocks of weight_ih, weight_hh and the biases as Keras has them (i, f, c, o): "
            "only transpose",
            keras="i, f, c, o blocks of the kernels and the bias as torch has them (i, f, g, o): only transpose",
        )


@rule
class OtherLayersWeights(Known):
    """A layer was loaded with the weights of another layer.

    How it shows: errors of the size of the values in two layers whose shapes agree.

    Why it happens: weights zipped by position when one side has an extra layer or another order of definition; names
    matched by substring (layer1 in layer10); query and key projections exchanged; forward and backward weights of a
    bidirectional layer exchanged.
    """

    code, name, title, stage = "AMB205", "weights-of-another-layer", "Weights of another layer", "weights"
    weight = 20
    kinds, names, unpaired = ("weight",), ("other_layer",), _KEPT
    sample = Cause(
        "weight",
        "Gemm",
        "other_layer",
        ["a.weight"],
        ["a/kernel"],
        detail={"roles": ["W"], "text": "these are the weights of the reference's b"},
    )

    def message(self, cause: Cause) -> str:
        text = cause.detail.get("text") or "these are the weights of another layer of the reference"
        return f"{_names(cause)}: {text} (swapped or shifted when loading)."

    def fix(self, cause: Cause) -> str:
        wanted = f"the weights of {cause.reference_path}" if cause.reference_path else "its own counterpart's weights"
        return f"load {wanted} here; match layers by name, not by position"


@rule
class NotLoaded(Known):
    """A weight was never loaded: it still has its initial value.

    How it shows: all zeros (a bias, an output layer), all ones (a norm's scale), or random values.

    Why it happens: load_state_dict(strict=False) and load_weights(skip_mismatch=True) pass over what does not fit; a
    layer built only at its first call has nothing to load into before.
    """

    code, name, title, stage = "AMB206", "weights-not-loaded", "Weights not loaded", "weights"
    weight = 20
    kinds, names, unpaired = ("weight",), ("not_loaded",), _KEPT
    sample = Cause(
        "weight",
        "Gemm",
        "not_loaded",
        ["fc.bias"],
        ["fc/bias"],
        detail={"roles": ["B"], "text": "all zeros: never loaded"},
    )

    def message(self, cause: Cause) -> str:
        return f"{_names(cause)}: {cause.detail.get('text') or 'still the initial values, never loaded'}."

    def fix(self, cause: Cause) -> str:
        return write(
            cause,
            torch="load_state_dict(..., strict=True), and read what it reports",
            keras="build the model (call it once) before load_weights, without skip_mismatch",
        )


@rule
class StatisticsNotLoaded(Known):
    """The running mean and variance of a BatchNorm were not carried over.

    How it shows: equal in train mode, different in inference; nothing for an untrained model.

    Why it happens: they are buffers in torch and non-trainable weights in Keras: code that goes over parameters() or
    trainable_weights leaves them out. The order in Keras is gamma, beta, moving_mean, moving_variance.
    """

    code, name, title, stage = "AMB207", "statistics-not-loaded", "BatchNorm running statistics not loaded", "weights"
    weight = 20
    kinds, names, unpaired = ("weight",), ("statistics",), _KEPT
    sample = Cause(
        "weight",
        "BatchNormalization",
        "statistics",
        ["bn.running_mean"],
        ["bn/moving_mean"],
        detail={"roles": ["mean", "var"]},
    )

    def message(self, cause: Cause) -> str:
        return (
            f"{_names(cause)}: the running statistics (moving mean and variance) are not the reference's: "
            "still the initial ones."
        )

    def fix(self, cause: Cause) -> str:
        return write(
            cause,
            torch="copy running_mean and running_var too: they are buffers, in state_dict() and not in parameters()",
            keras="set all four: layer.set_weights([gamma, beta, moving_mean, moving_variance])",
        )


@rule
class RowsDiffer(Known):
    """Only some rows of a weight differ.

    How it shows: only inputs that use those rows differ.

    Why it happens: special tokens or new classes added after the conversion, a table that was resized, a row that is
    zero on one side.
    """

    code, name, title, stage = "AMB208", "weight-rows", "Some rows of a weight differ", "weights"
    weight = 20
    kinds, names, unpaired = ("weight",), ("rows",), _KEPT
    sample = Cause(
        "weight",
        "Gemm",
        "rows",
        ["fc.weight"],
        ["fc/kernel"],
        detail={"roles": ["W"], "text": "only row 3 differs (others agree)"},
    )

    def message(self, cause: Cause) -> str:
        return f"{_names(cause)}: {cause.detail.get('text') or 'only some rows differ'}."

    def fix(self, cause: Cause) -> str:
        return f"copy those rows from the reference, {_SET}"


@rule
class Permuted(Known):
    """A weight holds the reference's numbers in another order.

    How it shows: errors of the size of the values; sorted, the two are equal.

    Why it happens: a reshape where a transpose is meant (OIHW to HWIO by reshape keeps the order of the numbers);
    kernel behind a flatten not reordered between channels first and last; rows of q and k not permuted for another
    rotary embedding; heads of an attention cut otherwise.
    """

    code, name, title, stage = "AMB209", "weight-permuted", "Weights in another order", "weights"
    weight = 20
    kinds, names, unpaired = ("weight",), ("permuted",), _KEPT
    sample = Cause("weight", "Conv", "permuted", ["conv.weight"], ["conv/kernel"], detail={"roles": ["W"]})

    def message(self, cause: Cause) -> str:
        return (
            f"{_names(cause)}: the same numbers as the reference's in another order (permuted: reshape in "
            "place of transpose, or another layout)."
        )

    def fix(self, cause: Cause) -> str:
        if cause.op == "Conv":
            return write(
                cause,
                torch="kernel.transpose(3, 2, 0, 1), not reshape",
                keras="weight.transpose(2, 3, 1, 0), not reshape",
            )
        return f"transpose (and not reshape) when loading, {_SET}"


@rule
class Scaled(Known):
    """A weight is the reference's times one number.

    How it shows: the layer's output is scaled.

    Why it happens: a scale folded into the weights twice or not at all (1/sqrt(d) in the query projection, equalised
    learning rate, weight norm's gain, loading an average that was summed).
    """

    code, name, title, stage = "AMB210", "weight-scaled", "Weights scaled by a factor", "weights"
    weight = 20
    kinds, names, unpaired = ("weight",), ("scaled",), _KEPT
    sample = Cause(
        "weight",
        "Gemm",
        "scaled",
        ["q.weight"],
        ["q/kernel"],
        detail={"roles": ["W"], "text": "0.5 times the reference's"},
    )

    def message(self, cause: Cause) -> str:
        return f"{_names(cause)}: {cause.detail.get('text') or 'the reference times a factor'} (scaled)."

    def fix(self, cause: Cause) -> str:
        return f"load it without the factor, {_SET}"


@rule
class StaleWeights(Known):
    """A weight has other values than the reference's.

    How it shows: the layer's output differs; with the reference's weights in its place it does not.

    Why it happens: another checkpoint or another step of it (stale), fine-tuned on one side, random because it was
    never loaded, average of weights (EMA) on one side only.
    """

    code, name, title, stage = "AMB211", "weight-values", "Weights have other values", "weights"
    weight = 15
    kinds, unpaired = ("weight",), _KEPT
    sample = Cause("weight", "Gemm", "values", ["fc.weight"], ["fc/kernel"], detail={"roles": ["W"]})

    def message(self, cause: Cause) -> str:
        return (
            f"{_names(cause)}: "
            f"{cause.detail.get('text') or 'other values (stale, not loaded, or from another checkpoint)'}."
        )

    def fix(self, cause: Cause) -> str:
        return f"load the reference's checkpoint here and check that every weight was loaded, {_SET}"
