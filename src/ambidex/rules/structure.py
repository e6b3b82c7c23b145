"""What stands where: residuals, wiring, factors, layers too many or too few, outputs, constants; the unexplained."""

from __future__ import annotations

from ambidex.core.rule import Cause
from ambidex.rules.registry import rule
from ambidex.rules.words import Known, both, called, code, layer, number, repairing, write


@rule
class Unexplained(Known):
    """A layer differs and no known change of it makes the two sides agree.

    How it shows: fed the reference's input, the candidate's layer gives another output, more than rounding explains.
    What was tried is listed, so that those causes are ruled out.

    Why it happens: code by hand that computes something of its own, a custom layer, or several faults in one place.
    Compare the two pieces of source side by side; write a smaller pair around this layer; if both look right, report
    it.
    """

    code, name, title = "AMB100", "unexplained", "The layer differs and no known cause explains it"
    weight = 0
    unpaired = "what a pair of layers can show has a rule"
    sample = Cause("unknown", "Gemm", "Dense")

    def message(self, cause: Cause) -> str:
        times = ""
        if cause.before is not None and cause.floor:
            times = f", {number(float(f'{cause.before / cause.floor:.2g}'))} times more than rounding"
        differs = cause.detail.get("differs") or []
        said = f" The two differ in {', '.join(differs)}, but making that equal does not repair it." if differs else ""
        if not cause.candidate_cls and not cause.op:  # an output, or the whole model
            return f"The candidate's {cause.candidate_path or 'output'} is not the reference's{times}.{said}"
        return (
            f"Fed the same inputs, the candidate's {cause.candidate_cls or called(cause.op)} gives another "
            f"result{times}.{said}"
        )

    def fix(self, cause: Cause) -> str:
        return "compare the two pieces of source; ruled out: " + (
            ", ".join(cause.tried) if cause.tried else "nothing could be tried"
        )


@rule
class ResidualMissing(Known):
    """A skip connection (residual) is missing on one side.

    How it shows: a large difference at the end of the block, all layers of the block are right.

    Why it happens: the addition is code, not a layer, so nothing reminds one of it; x = f(x) for x = x + f(x).
    """

    code, name, title = "AMB190", "residual-missing", "Residual (skip connection) missing"
    weight = 25
    kinds, names = ("missing", "extra"), ("residual",)
    unpaired = "it takes a block of several layers"
    sample = Cause("missing", "Add", "residual")

    def title_for(self, cause: Cause) -> str:
        return self.title if cause.kind == "missing" else "Residual (skip connection) that the reference does not have"

    def message(self, cause: Cause) -> str:
        if cause.kind == "missing":
            return (
                "The reference adds the block's input to its output (residual, skip connection), the "
                "candidate does not."
            )
        return "The candidate adds the block's input to its output (residual, skip connection), the reference does not."

    def fix(self, cause: Cause) -> str:
        if cause.kind == "extra":
            return "take the addition out"
        return write(cause, torch="x = x + block(x)", keras="x = keras.layers.Add()([x, block(x)])")


@rule
class Wiring(Known):
    """A layer is fed from another place: the skip from the wrong tensor, pre-norm against post-norm, branches
    exchanged.

    How it shows: the layers themselves are right, their inputs differ.

    Why it happens: residual = x taken before or after the norm (pre-norm: x + f(norm(x)), post-norm: norm(x + f(x));
    nn.TransformerEncoderLayer is post-norm unless norm_first=True); the activation before or after the addition
    (ResNet v1 and v2); query, key and value exchanged: Keras' MultiHeadAttention takes (query, value, key), torch's
    (query, key, value).
    """

    code, name, title = "AMB191", "wiring", "Fed from another place"
    weight = 15
    kinds = ("wiring",)
    unpaired = "it takes a model of several layers"
    sample = Cause("wiring", "Add", "input", "block.norm1", "block/conv1")

    def title_for(self, cause: Cause) -> str:
        return "Inputs exchanged" if cause.detail.get("exchanged") else self.title

    def message(self, cause: Cause) -> str:
        if cause.detail.get("exchanged"):
            return (
                f"Two inputs of the candidate's {called(cause.op)} are exchanged (swapped): it takes {cause.candidate} "
                f"where the reference takes {cause.reference}."
            )
        if cause.candidate and cause.reference:
            return (
                f"The candidate's {called(cause.op)} takes its input from {cause.candidate}, the reference's "
                "from the counterpart of "
                f"{cause.reference} (residual or input connected to the wrong tensor)."
            )
        return (
            f"The candidate's {called(cause.op)} takes its input from another place than the reference's "
            "(wrong tensor)."
        )

    def fix(self, cause: Cause) -> str:
        source = f"the counterpart of {cause.reference}" if cause.reference else "the tensor that the reference takes"
        instead = f" instead of {cause.candidate}" if cause.candidate else ""
        if cause.op == "Attention":
            return write(
                cause,
                torch=f"feed {source}{instead}: attention(query, key, value)",
                keras=f"feed {source}{instead}: attention(query=q, value=v, key=k), by keyword",
            )
        return f"feed {source}{instead}"


@rule
class Factor(Known):
    """Values are multiplied by a constant on one side only.

    How it shows: the candidate's value is the reference's times one number throughout.

    Why it happens: a scale that is code: sqrt(width) behind an embedding, a residual scale (0.1 in Inception-ResNet), a
    temperature, 1/255 of the images, a mean that divides by another count.
    """

    code, name, title = "AMB192", "factor", "Constant factor (scale) differs"
    weight = 15
    unpaired = "the factor stands in code, in no layer"
    sample = Cause("scale", "Mul", "", None, 2.0, detail={"guess": "", "consumer": "Add"})

    def claims(self, cause: Cause) -> bool:
        return cause.kind == "scale" or (
            cause.kind in {"missing", "extra"} and (cause.name == "scale" or cause.op in {"Mul", "Div"})
        )

    def title_for(self, cause: Cause) -> str:
        return {
            "missing": "Scale (constant factor) missing",
            "extra": "Scale (constant factor) that the reference does not have",
        }.get(cause.kind, self.title)

    def message(self, cause: Cause) -> str:
        if cause.kind == "scale":
            guess = cause.detail.get("guess")
            return (
                f"The candidate's value is {number(cause.candidate)} times the "
                f"reference's{f' ({guess})' if guess else ''}: a scale is missing or extra."
            )
        has, lacks = ("reference", "candidate") if cause.kind == "missing" else ("candidate", "reference")
        known = cause.reference if cause.kind == "missing" else cause.candidate
        by = f" by {number(known)}" if isinstance(known, int | float) else ""
        verb = "divides" if cause.op == "Div" else "multiplies"
        return f"The {has} {verb} the value{by} here (scale, constant factor), the {lacks} does not."

    def fix(self, cause: Cause) -> str:
        if cause.kind == "scale":
            return f"multiply by {repairing(cause)} here"
        if cause.kind == "extra":
            return "take the factor out"
        known = code(cause.reference) if isinstance(cause.reference, int | float) else "the reference's factor"
        return f"{'divide' if cause.op == 'Div' else 'multiply'} by {known} here"


@rule
class LayerMissing(Known):
    """The reference has a layer or operator that the candidate has not.

    How it shows: the value differs from here on; the layer's weights have no partner.

    Why it happens: a projection at the end of a branch, a second linear layer, a term of a sum left out; an operator
    that is code on one side.
    """

    code, name, title = "AMB193", "layer-missing", "Layer or operator missing"
    weight = 12
    kinds = ("missing",)
    unpaired = "it takes a model of several layers"
    sample = Cause("missing", "Gemm")

    def title_for(self, cause: Cause) -> str:
        return f"{called(cause.op)} missing"

    def message(self, cause: Cause) -> str:
        return f"The reference computes {called(cause.op)} here, the candidate hands the value on as it is."

    def fix(self, cause: Cause) -> str:
        at = f" (as the reference's {cause.reference_path})" if cause.reference_path else ""
        return f"add {layer(cause, cause.op)}{at}"


@rule
class LayerExtra(Known):
    """The candidate has a layer or operator that the reference has not.

    How it shows: the value differs from here on; leaving the layer out repairs it.

    Why it happens: an extra projection, normalisation of inputs done both in the data and in the model, a leftover of a
    former version.
    """

    code, name, title = "AMB194", "layer-extra", "Layer or operator that the reference does not have"
    weight = 12
    kinds = ("extra",)
    unpaired = "it takes a model of several layers"
    sample = Cause("extra", "Gemm")

    def title_for(self, cause: Cause) -> str:
        return f"extra {called(cause.op)}"

    def message(self, cause: Cause) -> str:
        return f"The candidate computes {called(cause.op)} here, the reference does not."

    def fix(self, cause: Cause) -> str:
        return f"take the {called(cause.op)} out"


@rule
class OtherOperator(Known):
    """Another operator stands in this place.

    How it shows: all values differ, the layers around are right.

    Why it happens: a sum for a product (gates, attention over features), a subtraction with its sides exchanged, a
    maximum for a sum.
    """

    code, name, title = "AMB195", "operator", "Another operator"
    weight = 8
    kinds = ("op",)
    sample = Cause("op", "Add", "Mul")
    unpaired = "layers of one kind have rules of their own, and those of different kinds are not taken for each other"

    def title_for(self, cause: Cause) -> str:
        return (
            f"{called(cause.name, cause.candidate)} stands where the reference has {called(cause.op, cause.reference)}"
        )

    def message(self, cause: Cause) -> str:
        return (
            f"The candidate computes {called(cause.name, cause.candidate)}, the reference "
            f"{called(cause.op, cause.reference)}."
        )

    def fix(self, cause: Cause) -> str:
        return f"write {called(cause.op, cause.reference)} here instead of {called(cause.name, cause.candidate)}"


@rule
class OutputsSwapped(Known):
    """Two outputs of the model are exchanged, or come in another order.

    How it shows: each output equals another one of the reference; when their shapes agree no check of shapes sees it.

    Why it happens: a tuple returned in another order, outputs sorted by name by an exporter, a dictionary turned into
    a list.
    """

    code, name, title = "AMB196", "outputs-swapped", "Outputs of the model are swapped"
    weight = 20
    kinds = ("output",)
    unpaired = "it takes a model with two outputs"
    sample = Cause("output", "", "", "0, 1", "1, 0")

    def message(self, cause: Cause) -> str:
        if cause.reference is not None and cause.candidate is not None:
            return (
                f"The candidate's outputs ({number(cause.candidate)}) are the reference's "
                f"({number(cause.reference)}) in another order."
            )
        return "The candidate returns the reference's outputs in another order."

    def fix(self, cause: Cause) -> str:
        return "return the outputs in the reference's order, or as a dictionary by name"


@rule
class LayerOrder(Known):
    """The same operator stands in another place: before a layer where the reference has it behind.

    How it shows: the layers between agree, what reaches them does not; the numbers are those of the operator applied
    one step earlier or later.

    Why it happens: activation and normalisation are exchanged in the port (norm, then activation in one paper,
    activation, then norm in the other), or an activation argument is fused into the layer in front.
    """

    code, name, title = "AMB199", "layer-order", "Layers in another order"
    weight = 20
    kinds, names = ("order",), ("layers",)
    unpaired = "it takes a model of several layers; the planted faults of the quality figure show it"
    sample = Cause("order", "Relu", "layers", "norm", "relu")

    def title_for(self, cause: Cause) -> str:
        return f"Layers in another order: {called(cause.op)} stands elsewhere"

    def message(self, cause: Cause) -> str:
        return (
            f"The candidate applies {called(cause.op)} at {number(cause.candidate)}, the reference at "
            f"{number(cause.reference)}: the order of the layers is swapped."
        )

    def fix(self, cause: Cause) -> str:
        return f"apply {called(cause.op)} where the reference does: at {number(cause.reference)}"


@rule
class BakedConstant(Known):
    """A layer was evaluated once, when the model was built, and its result is a constant in the graph.

    How it shows: all weights are equal, the outputs are not, and changing this layer's weights changes nothing.

    Why it happens: in a functional Keras model a layer called on a plain tensor, as in
    positions(keras.ops.arange(n)), runs at once with the initial weights; set_weights later has no effect on it. In
    torch a tensor computed in __init__ or an exporter that folds constants does the same.
    """

    code, name, title = "AMB197", "baked-constant", "Layer baked in at build time"
    weight = 20
    kinds = ("constant",)
    unpaired = "it takes a model that is built around the layer"
    sample = Cause("constant", "Gather")

    def message(self, cause: Cause) -> str:
        return (
            f"The candidate's {called(cause.op) if cause.op else 'layer'} was evaluated when the model was "
            "built, from the initial weights: "
            "its result is a constant, and loading weights does not change it."
        )

    def fix(self, cause: Cause) -> str:
        return write(
            cause,
            torch="compute it in forward, not in __init__",
            keras="make it depend on the input: a Layer subclass that calls it in call(), or positions = "
            "keras.ops.cumsum(keras.ops.ones_like(ids), axis=1) - 1",
        )


@rule
class Setting(Known):
    """An operator differs in a setting that no more special rule covers.

    How it shows: its output differs on equal inputs, and making this one setting equal repairs it.

    Why it happens: the message has both values; look the setting up in the documentation of the side that did not set
    it.
    """

    code, name, title = "AMB198", "setting", "Setting differs"
    weight = 2
    kinds = ("attr", "variant")
    unpaired = "the settings of layers have rules of their own"
    sample = Cause("attr", "Mod", "fmod", True, False)

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        return f"The {called(cause.op)} has {cause.name} {c} in the candidate, {r} in the reference."

    def fix(self, cause: Cause) -> str:
        return f"set {cause.name}={code(cause.reference)}"
