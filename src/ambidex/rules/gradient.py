"""Gradients, clipping them, and weights that are left out: what no forward pass shows."""

from __future__ import annotations

from typing import Any

from ambidex.core.rule import Cause
from ambidex.rules.recipe import UNKNOWN, Stage, only, ops_of, sides
from ambidex.rules.registry import rule
from ambidex.rules.words import both, code, number, write


class _Clip(Stage):
    stage, ops = "clip", ops_of("clip")


class _Gradient(Stage):
    stage, ops = "gradient", ("gradient",)
    kinds: tuple[Any, ...] = ("variant", "attr", "scale")


def _clipping(cause: Cause, op: str, attrs: Any) -> str:
    """The clipping as code; the limit is left open where the cause does not tell it."""
    given = attrs if isinstance(attrs, dict) else {}
    if op == "ClipValue":
        limit = code(given.get("value", UNKNOWN))
        return write(cause, torch=f"nn.utils.clip_grad_value_(parameters, {limit})",
                     keras=f"the optimizer with clipvalue={limit}")  # fmt: skip
    limit = code(given.get("max_norm", UNKNOWN))
    if given.get("scope", "global") == "global":
        return write(cause, torch=f"nn.utils.clip_grad_norm_(parameters, {limit})",
                     keras=f"the optimizer with global_clipnorm={limit}")  # fmt: skip
    return write(cause, torch=f"for p in parameters: nn.utils.clip_grad_norm_([p], {limit})",
                 keras=f"the optimizer with clipnorm={limit}")  # fmt: skip


_HOW = {"ClipNorm": "by norm", "ClipValue": "by value"}


@rule
class ClipMissing(_Clip):
    """Gradients are clipped on one side only.

    How it shows: nothing until a large gradient comes; then one side jumps and the other does not.

    Why it happens: clip_grad_norm_ is a line of the training loop in torch, an option of the optimizer in Keras.
    """

    code, name, title = "AMB340", "clip-missing", "Gradients are clipped on one side only"
    kinds = ("missing", "extra")
    sample = Cause("missing", "ClipNorm", "clip", {"max_norm": 1.0, "scope": "global"}, None)

    def message(self, cause: Cause) -> str:
        given = cause.reference if cause.kind == "missing" else cause.candidate
        limit = given.get("max_norm", given.get("value")) if isinstance(given, dict) else None
        one, other = ("reference", "candidate") if cause.kind == "missing" else ("candidate", "reference")
        at = f" {_HOW.get(cause.op, '')}" + ("" if limit is None else f" at {number(limit)}")
        return f"The {one} clips its gradients{at.rstrip()}, the {other} does not."

    def fix(self, cause: Cause) -> str:
        if cause.kind == "extra":
            return write(cause, torch="leave clip_grad_norm_ / clip_grad_value_ out",
                         keras="leave clipnorm, global_clipnorm and clipvalue out")  # fmt: skip
        own = "clip as the reference's own code does, before the optimizer's step"
        return _clipping(cause, cause.op, cause.reference) if cause.op in _HOW else own


@rule
class ClipScope(_Clip):
    """One side clips each variable's gradient on its own, the other all of them together.

    How it shows: directions of updates change: layers with large gradients are cut more than the others.

    Why it happens: clipnorm of Keras is per variable, global_clipnorm joint; torch's clip_grad_norm_ over all
    parameters is joint, called for each parameter group it is neither.
    """

    code, name, title = "AMB341", "clip-scope", "Clipping per variable against joint"
    kinds, names = ("attr", "variant"), ("scope",)
    sample = Cause("attr", "ClipNorm", "scope", "global", "weight")

    def message(self, cause: Cause) -> str:
        said = {"global": "the norm of all gradients together", "weight": "the norm of each gradient on its own"}
        c, r = (said.get(str(v), str(v)) for v in sides(cause))
        return f"The candidate limits {c}, the reference {r}."

    def fix(self, cause: Cause) -> str:
        given = cause.candidate if isinstance(cause.candidate, dict) else {}
        return _clipping(cause, "ClipNorm", {**given, "scope": sides(cause)[1]})


@rule
class ClipLimit(_Clip):
    """Gradients are clipped at another limit.

    How it shows: steps with large gradients have another size.

    Why it happens: the limit belongs to the loss's scale: with a sum for a mean, or accumulation, it is another one.
    """

    code, name, title = "AMB342", "clip-limit", "Clipping at another limit"
    kinds, names = ("attr",), ("max_norm", "value")
    sample = Cause("attr", "ClipNorm", "max_norm", 1.0, 5.0)

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        return f"The candidate clips at {c}, the reference at {r}."

    def fix(self, cause: Cause) -> str:
        scope = "weight" if cause.candidate_cls == "clipnorm" else "global"
        op = "ClipValue" if cause.name == "value" else "ClipNorm"
        return _clipping(cause, op, {cause.name: cause.reference, "scope": scope})


@rule
class ClipKind(_Clip):
    """One side clips by value, the other by norm.

    How it shows: clipping by value changes the direction of the update, by norm only its size.

    Why it happens: clipvalue and clipnorm differ in a few letters, clip_grad_value_ and clip_grad_norm_ as well.
    """

    code, name, title = "AMB343", "clip-kind", "Clipping by value against by norm"
    kinds = ("op",)
    sample = Cause("op", "ClipNorm", "ClipValue", {"max_norm": 1.0, "scope": "global"}, {"value": 1.0})

    def message(self, cause: Cause) -> str:
        c, r = (_HOW.get(op, "in its own way") for op in (cause.name, cause.op))
        return f"The candidate clips {c}, the reference {r}."

    def fix(self, cause: Cause) -> str:
        return _clipping(cause, cause.op, cause.reference)


@rule
class ClipEpsilon(_Clip):
    """The norm has an epsilon added on one side.

    How it shows: only with gradients whose norm is near the epsilon.

    Why it happens: torch's clip_grad_norm_ divides by norm + 1e-6, Keras by the norm.
    """

    code, name, title = "AMB344", "clip-epsilon", "Clipping with another epsilon"
    kinds, names = ("attr",), ("epsilon",)
    sample = Cause("attr", "ClipNorm", "epsilon", 1e-6, 0.0)

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        return f"The candidate adds {c} to the norm it divides by, the reference {r}."

    def fix(self, cause: Cause) -> str:
        scaled = f"g * min(1, limit / (norm + {code(cause.reference)}))"
        return write(cause, torch=f"for each p.grad by hand: {scaled}", keras=f"in a train_step of your own: {scaled}")


@rule
class UnknownClip(_Clip):
    """The gradients differ after clipping, and no known cause explains it.

    How it shows: both sides got the same gradients and hand different ones to the optimizer.

    Why it happens: a clipping of one's own that no known form reproduces: by parameter group, with two limits one after
    the other, of gradients that are still multiplied by a loss scale (unscale_ comes first).
    """

    code, name, title = "AMB349", "clip-unexplained", "Clipping differs and no known cause explains it"
    kinds, ops = ("unknown",), ("clip",)
    sample = Cause("unknown", "clip", "")

    def message(self, cause: Cause) -> str:
        return "Of the same gradients the two clippings make different ones."

    def fix(self, cause: Cause) -> str:
        return "compare the two clippings on one gradient above the limit"


def _which(cause: Cause) -> str:
    weights = [str(w) for w in cause.detail.get("weights", ())] or [cause.candidate_path or "a weight"]
    text = ", ".join(weights[:3]) + (f" and {len(weights) - 3} more" if len(weights) > 3 else "")
    return text + (" (in training mode)" if cause.detail.get("mode") == "train" else "")


@rule
class Stopped(_Gradient):
    """A weight gets no gradient in the candidate, though the forward pass is the same.

    How it shows: the weight keeps its first value while everything else learns.

    Why it happens: detach() or torch.no_grad(), stop_gradient, a value taken out as numpy and put back, an integer
    cast, a layer with trainable=False, or an operator without a gradient (round, argmax).
    """

    code, name, title = "AMB370", "gradient-stopped", "A weight gets no gradient"
    names = ("stopped",)
    sample = Cause("variant", "gradient", "stopped", candidate_path="encoder/kernel")

    def message(self, cause: Cause) -> str:
        return f"In the candidate no gradient reaches {_which(cause)}; in the reference one does."

    def fix(self, cause: Cause) -> str:
        way = "between this weight and the loss"
        return write(cause, torch=f"take out detach(), .data, torch.no_grad() or .numpy() {way}; requires_grad_(True)",
                     keras=f"take out stop_gradient or .numpy() {way}; trainable=True")  # fmt: skip


@rule
class ExtraGradient(_Gradient):
    """A weight gets a gradient in the candidate, and none in the reference.

    How it shows: a weight that is meant to be fixed moves.

    Why it happens: the port lost a detach(), stop_gradient, requires_grad=False or trainable=False.
    """

    code, name, title = "AMB374", "gradient-extra", "A weight gets a gradient that the reference stops"
    names = ("extra",)
    sample = Cause("variant", "gradient", "extra", candidate_path="encoder/kernel")

    def message(self, cause: Cause) -> str:
        return f"In the candidate a gradient reaches {_which(cause)}; in the reference none does."

    def fix(self, cause: Cause) -> str:
        return write(cause, torch="x.detach() where the reference stops it, or requires_grad_(False)",
                     keras="keras.ops.stop_gradient(x) where the reference stops it, or trainable=False")  # fmt: skip


@rule
class PaddingRow(_Gradient):
    """The row of the padding token gets a gradient on one side.

    How it shows: the padding vector, zero at first, moves, and outputs at short sequences with it.

    Why it happens: padding_idx of nn.Embedding keeps the row's gradient at zero; mask_zero of Keras does not.
    """

    code, name, title = "AMB371", "gradient-padding-row", "The padding row of an embedding is trained on one side"
    names = ("padding_row",)
    sample = Cause("variant", "gradient", "padding_row", candidate_path="embedding/embeddings")

    def message(self, cause: Cause) -> str:
        frozen, rows = self._seen(cause)
        other = "candidate" if frozen == "reference" else "reference"
        return f"Row {rows} of {_which(cause)} gets no gradient in the {frozen} and one in the {other}."

    @staticmethod
    def _seen(cause: Cause) -> tuple[str, str]:
        """Which side leaves the rows alone, and which they are."""
        value = cause.detail.get("value")
        found = value if isinstance(value, dict) else {}
        return found.get("frozen", "reference"), ", ".join(map(str, found.get("rows", [0])[:3]))

    def fix(self, cause: Cause) -> str:
        frozen, rows = self._seen(cause)
        if frozen == "candidate":
            return write(cause, torch="nn.Embedding(...) without padding_idx",
                         keras=f"train row {rows} too: no stop_gradient, mask or constraint on it")  # fmt: skip
        return write(cause, torch=f"nn.Embedding(..., padding_idx={rows.split(',')[0]})",
                     keras=f"set row {rows} of the gradient to zero in train_step, or constrain it")  # fmt: skip


@rule
class DoubledBias(_Gradient):
    """A recurrent layer has two biases that are added in torch and one in Keras: each step moves the sum twice.

    How it shows: gates open or close faster on the side with two biases; with SGD exactly twice as fast.

    Why it happens: bias_ih and bias_hh both get the whole gradient, so their sum moves by two updates.
    """

    code, name, title = "AMB372", "gradient-doubled-bias", "Two biases move twice as fast as one"
    names = ("doubled_bias",)
    sample = Cause("variant", "gradient", "doubled_bias", candidate_path="lstm/bias")

    def message(self, cause: Cause) -> str:
        return f"The gradient of {_which(cause)} is half of what the reference's two biases get together."

    def fix(self, cause: Cause) -> str:
        still = "bias_hh at zero and requires_grad_(False)"
        return write(cause, torch=still, keras=f"in the reference: {still}")


@rule
class ScaledGradient(_Gradient):
    """A weight's gradient is the reference's times a factor.

    How it shows: that weight learns faster or slower by the factor.

    Why it happens: a gradient written by hand (autograd.Function, tf.custom_gradient), or a weight shared on one side.
    """

    code, name, title = "AMB373", "gradient-scaled", "A gradient is scaled"
    names = ("scaled",)
    sample = Cause("variant", "gradient", "scaled", candidate_path="dense/kernel", detail={"value": 2.0})

    def message(self, cause: Cause) -> str:
        k = cause.detail.get("value")
        return f"The gradient of {_which(cause)} is {number(k) if k is not None else 'a factor'} times the reference's."

    def fix(self, cause: Cause) -> str:
        return "look for a custom gradient between this weight and the loss, or for a weight that is shared on one side"


@rule
class SingularPoint(_Gradient):
    """At one point a gradient is NaN, infinite or another number on one side only.

    How it shows: NaN in rare batches, on one side; the forward pass is the same.

    Why it happens: where(x > 0, sqrt(x), 0) has NaN at 0 in torch and 0 in TensorFlow, the norm of zeros the other way
    round; |x|, hardtanh and maxima with ties have derivatives that each framework chooses.
    """

    code, name, title = "AMB375", "gradient-singular-point", "Gradient at a singular point"
    names = ("singular_point",)
    sample = Cause("variant", "gradient", "singular_point", candidate_path="dense/kernel")

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        told = f": {c} in the candidate, {r} in the reference" if cause.candidate != cause.reference else ""
        return f"The gradient of {_which(cause)} is another one at a point where the derivative does not exist{told}."

    def fix(self, cause: Cause) -> str:
        return write(cause, torch="torch.where twice: torch.sqrt(torch.where(x > 0, x, 1)), or + eps",
                     keras="keras.ops.where twice: keras.ops.sqrt(keras.ops.where(x > 0, x, 1)), or + eps")  # fmt: skip


@rule
class FrozenWeight(Stage):
    """A weight is trained on one side and left alone on the other.

    How it shows: it keeps its first value while the rest learns.

    Why it happens: parameters that the optimizer never got (a list for nn.ModuleList), requires_grad, trainable=False.
    """

    code, name, title = "AMB318", "optimizer-frozen", "A weight is trained on one side only"
    stage, kinds, names, ops = "update", ("attr",), ("frozen",), ops_of("optimizer")
    sample = Cause("attr", "Adam", "frozen", None, True)

    def message(self, cause: Cause) -> str:
        c, r = ("leaves it alone" if v else "trains it" for v in sides(cause))
        return f"The candidate {c}, the reference {r}.{only(cause)}"

    def fix(self, cause: Cause) -> str:
        if cause.candidate:
            return write(cause, torch="hand all of model.parameters() to the optimizer",
                         keras="layer.trainable = True before compile")  # fmt: skip
        return write(cause, torch="parameter.requires_grad_(False), or leave it out of the optimizer",
                     keras="layer.trainable = False before compile")  # fmt: skip


@rule
class UnknownGradient(_Gradient):
    """Gradients differ though the forward pass is the same, and no known cause explains it.

    How it shows: both sides went back from the same gradients of the outputs and arrive at different ones.

    Why it happens: a custom gradient, an operator whose derivative is another at special points (hardtanh and selu at
    zero, maxima with ties), statistics of the batch, a weight shared on one side, another version of a kernel.
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
        text = f"compare the gradients of what follows {place}" if place else "compare the last layers' gradients"
        if cause.detail.get("mode") == "train":
            text += (
                "; in training mode only: look at BatchNorm and Dropout (a frozen Keras layer runs in inference mode)"
            )
        return text
