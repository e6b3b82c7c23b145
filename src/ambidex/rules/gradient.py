"""Gradients and the steps that follow: what no forward pass shows."""

from __future__ import annotations

from ambidex.core.rule import Cause
from ambidex.rules.recipe import UNPAIRED
from ambidex.rules.registry import rule
from ambidex.rules.words import Known, number, write


class _Gradient(Known):
    stage, unpaired, weight, ops = "gradient", UNPAIRED, 40, ("gradient",)


def _which(cause: Cause) -> str:
    weights = [str(w) for w in cause.detail.get("weights", ())] or [cause.candidate_path or "a weight"]
    text = ", ".join(weights[:3]) + (f" and {len(weights) - 3} more" if len(weights) > 3 else "")
    mode = " (in training mode)" if cause.detail.get("mode") == "train" else ""
    return text + mode


@rule
class Stopped(_Gradient):
    """A weight gets no gradient in the candidate, though the forward pass is the same.

    How it shows: the weight keeps its first value while everything else learns.

    Why it happens: detach() or torch.no_grad(), stop_gradient, a value taken out as numpy and put back, an integer
    cast, a layer with trainable=False, or an operator without a gradient (round, argmax).
    """

    code, name, title = "AMB370", "gradient-stopped", "A weight gets no gradient"
    kinds, names = ("variant",), ("stopped",)
    sample = Cause("variant", "gradient", "stopped", candidate_path="encoder/kernel")

    def message(self, cause: Cause) -> str:
        return f"In the candidate no gradient reaches {_which(cause)}; in the reference one does."

    def fix(self, cause: Cause) -> str:
        return write(
            cause,
            torch="take out detach(), .data, torch.no_grad() or .numpy() between this weight and the loss; "
            "requires_grad_(True)",
            keras="take out keras.ops.stop_gradient (tf.stop_gradient) or .numpy() between this weight and the loss; "
            "trainable=True",
        )


@rule
class ExtraGradient(_Gradient):
    """A weight gets a gradient in the candidate, and none in the reference.

    How it shows: a weight that is meant to be fixed moves.

    Why it happens: the port lost a detach(), stop_gradient, requires_grad=False or trainable=False.
    """

    code, name, title = "AMB374", "gradient-extra", "A weight gets a gradient that the reference stops"
    kinds, names = ("variant",), ("extra",)
    sample = Cause("variant", "gradient", "extra", candidate_path="encoder/kernel")

    def message(self, cause: Cause) -> str:
        return f"In the candidate a gradient reaches {_which(cause)}; in the reference none does."

    def fix(self, cause: Cause) -> str:
        return write(cause, torch="x.detach() where the reference stops it, or requires_grad_(False)",
                     keras="keras.ops.stop_gradient(x) where the reference stops it, or trainable=False")  # fmt: skip


@rule
class PaddingRow(_Gradient):
    """The row of the padding token gets a gradient on one side.

    How it shows: the padding vector, zero at first, moves; outputs at short sequences follow it.

    Why it happens: padding_idx of nn.Embedding keeps the row's gradient at zero; mask_zero of Keras does not.
    """

    code, name, title = "AMB371", "gradient-padding-row", "The padding row of an embedding is trained on one side"
    kinds, names = ("variant",), ("padding_row",)
    sample = Cause("variant", "gradient", "padding_row", candidate_path="embedding/embeddings")

    def message(self, cause: Cause) -> str:
        value = cause.detail.get("value")
        frozen = value.get("frozen", "reference") if isinstance(value, dict) else "reference"
        rows = value.get("rows", [0]) if isinstance(value, dict) else [0]
        other = "candidate" if frozen == "reference" else "reference"
        listed = ", ".join(map(str, rows[:3]))
        return f"Row {listed} of {_which(cause)} gets no gradient in the {frozen} and one in the {other}."

    def fix(self, cause: Cause) -> str:
        return write(
            cause,
            torch="nn.Embedding(..., padding_idx=0), or without it",
            keras="set the row's gradient to zero in train_step, or a constraint that keeps row 0 at zero",
        )


@rule
class DoubledBias(_Gradient):
    """A recurrent layer has two biases that are added in torch and one in Keras: each step moves the sum twice.

    How it shows: gates open or close faster on the side with two biases; with SGD exactly twice as fast.

    Why it happens: bias_ih and bias_hh both get the whole gradient, so their sum moves by two updates.
    """

    code, name, title = "AMB372", "gradient-doubled-bias", "Two biases move twice as fast as one"
    kinds, names = ("variant",), ("doubled_bias",)
    sample = Cause("variant", "gradient", "doubled_bias", candidate_path="lstm/bias")

    def message(self, cause: Cause) -> str:
        return (
            f"The gradient of {_which(cause)} is half of what the reference's two biases get together: "
            "with one bias the gates move at half the speed."
        )

    def fix(self, cause: Cause) -> str:
        return write(cause, torch="bias_hh at zero and requires_grad_(False)",
                     keras="in the reference: bias_hh at zero and requires_grad_(False)")  # fmt: skip


@rule
class ScaledGradient(_Gradient):
    """A weight's gradient is the reference's times a factor.

    How it shows: that weight learns faster or slower by the factor.

    Why it happens: a gradient written by hand (an autograd function, tf.custom_gradient), a gradient reversal, a weight
    shared on one side and copied on the other.
    """

    code, name, title = "AMB373", "gradient-scaled", "A gradient is scaled"
    kinds, names = ("variant",), ("scaled",)
    sample = Cause("variant", "gradient", "scaled", candidate_path="dense/kernel", detail={"value": 2.0})

    def message(self, cause: Cause) -> str:
        k = cause.detail.get("value")
        return f"The gradient of {_which(cause)} is {number(k) if k is not None else 'a factor'} times the reference's."

    def fix(self, cause: Cause) -> str:
        return "look for a custom gradient between this weight and the loss, or for a weight that is shared on one side"


@rule
class UnknownGradient(_Gradient):
    """Gradients differ though the forward pass is the same, and no known cause explains it.

    How it shows: both sides went back from the same gradients of the outputs and arrive at different ones.

    Why it happens: a custom gradient, an operator whose derivative is another at special points (hardtanh and selu at
    zero, maxima with ties), cross-entropy on targets that do not sum to one, or statistics of the batch.
    """

    code, name, title = "AMB379", "gradient-unexplained", "Gradients differ and no known cause explains it"
    kinds = ("unknown",)
    sample = Cause("unknown", "gradient", "", candidate_path="dense/kernel")

    def message(self, cause: Cause) -> str:
        place = cause.detail.get("place")
        where = f"; the difference starts behind {place}" if place else ""
        return f"Going back from the same gradients of the outputs, those of {_which(cause)} differ{where}."

    def fix(self, cause: Cause) -> str:
        place = cause.detail.get("place")
        return f"compare the gradients of what follows {place}" if place else "compare the last layers' gradients first"


@rule
class UnknownSteps(Known):
    """Every stage agrees on its own, and some training steps together do not.

    How it shows: the losses part after the first update.

    Why it happens: state that one side carries from step to step and the other does not, an order of operations (clip
    before or after unscaling), or data that is not the same.
    """

    code, name, title = "AMB389", "steps-unexplained", "Training steps differ though every stage agrees"
    stage, unpaired, weight, kinds, ops = "steps", UNPAIRED, 40, ("unknown",), ("steps",)
    sample = Cause("unknown", "steps", "")

    def message(self, cause: Cause) -> str:
        return "After some training steps from the same weights the losses or the weights are not the same."

    def fix(self, cause: Cause) -> str:
        return "compare the state of both sides after one step: weights, buffers, optimizer state"
