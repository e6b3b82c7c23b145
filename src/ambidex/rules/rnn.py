"""Recurrent layers: reset gate, activations, direction, what is handed on."""

from __future__ import annotations

from ambidex.core.rule import Cause
from ambidex.rules import defaults
from ambidex.rules.pairs import agree, differ
from ambidex.rules.registry import rule
from ambidex.rules.words import Known, both, called, code, layer, number, write

_RNN = ("LSTM", "GRU", "RNN")
_IN = (2, 7, 5)


@rule
class ResetAfter(Known):
    """A GRU applies its reset gate before the recurrent product on one side, after it on the other.

    How it shows: small errors at the first step, growing over the sequence; the two recurrent biases of one side have
    no partner.

    Why it happens: torch and cuDNN reset after the product (with a bias of its own inside); Keras' reset_after=True,
    its default since TensorFlow 2, does the same, reset_after=False (old Keras, Theano) before it. In ONNX the
    attribute is linear_before_reset, whose default 0 is the old way. The two are different functions: no weights make
    them equal.
    """

    code, name, title = "AMB150", "gru-reset-after", "GRU: reset_after differs"
    weight = 20
    kinds, ops, names = ("attr",), ("GRU",), ("linear_before_reset",)
    sample = Cause("attr", "GRU", "linear_before_reset", 1, 0)
    examples = (
        differ("GRU", {"linear_before_reset": 1}, {"linear_before_reset": 0}, _IN, hidden_size=6),
        agree("GRU", {}, {}, _IN, hidden_size=6, linear_before_reset=1),
    )

    def message(self, cause: Cause) -> str:
        after, before = ("candidate", "reference") if cause.candidate else ("reference", "candidate")
        return (
            f"The {after}'s GRU applies the reset gate after the recurrent product (reset_after=True), the "
            f"{before}'s before it."
        )

    def fix(self, cause: Cause) -> str:
        torch = (
            "nn.GRU (it resets after the product)"
            if cause.reference
            else "nn.GRU cannot reset before the product: write the cell by hand, h~ = tanh(W x + U (r * h) + b)"
        )
        return write(
            cause,
            torch=torch,
            keras=f"{layer(cause)}(..., reset_after={bool(cause.reference)})",
            other=f"linear_before_reset={int(bool(cause.reference))}",
        )


@rule
class RecurrentActivation(Known):
    """The activations inside a recurrent layer differ (of the gates, or of the candidate state and output).

    How it shows: errors at every step, with equal weights.

    Why it happens: Keras has activation and recurrent_activation, torch's LSTM and GRU neither (tanh and sigmoid);
    old Keras took hard_sigmoid for the gates; a port of an LSTM with activation='relu' cannot use nn.LSTM.
    """

    code, name, title = "AMB151", "rnn-activation", "Activation inside a recurrent layer differs"
    weight = 20
    kinds, ops = ("attr",), _RNN
    names = ("activations", "activation_alpha", "activation_beta")
    sample = Cause("attr", "LSTM", "activations", ["Sigmoid", "Tanh", "Tanh"], ["HardSigmoid", "Tanh", "Tanh"])
    examples = (
        differ("LSTM", {}, {"activations": ["HardSigmoid", "Tanh", "Tanh"]}, _IN, hidden_size=6),
        differ("RNN", {"activations": ["Relu"]}, {"activations": ["Tanh"]}, _IN, hidden_size=6),
        agree("RNN", {}, {}, _IN, hidden_size=6, activations=["Relu"]),
    )

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        what = {"activations": "activations (gates first)"}.get(
            cause.name, cause.name.replace("activation_", "parameter ") + " of the activations"
        )
        return f"The {called(cause.op)}'s {what} are {c} in the candidate, {r} in the reference."

    def fix(self, cause: Cause) -> str:
        given = cause.reference if cause.name == "activations" and isinstance(cause.reference, list | tuple) else []
        names = ["hard_sigmoid" if n == "HardSigmoid" else str(n).lower() for n in given]
        keras = f"{layer(cause)}(..., activation='{names[-1]}'" if names else f"{layer(cause)}(..., activation=..."
        keras += f", recurrent_activation='{names[0]}')" if len(names) > 1 else ")"
        torch = (
            f"nn.RNN(..., nonlinearity='{names[0]}')"
            if cause.op == "RNN" and names
            else (
                f"{layer(cause)} has sigmoid gates and tanh only: write the cell by hand with {number(cause.reference)}"
            )
        )
        return write(cause, torch=torch, keras=keras)


@rule
class RecurrentDirection(Known):
    """A recurrent layer runs in the other direction, or in one instead of two.

    How it shows: for one direction against the other, the values of the last step differ most; for one against two, the
    shapes.

    Why it happens: go_backwards=True of Keras returns the steps in the order it made them (reversed); torch has only
    bidirectional=True; reversing the padded sequence moves the padding to the front.
    """

    code, name, title = "AMB152", "rnn-direction", "Direction of a recurrent layer differs"
    weight = 20
    kinds, ops, names = ("attr",), _RNN, ("direction", "time_reversed")
    sample = Cause("attr", "LSTM", "direction", "reverse", "forward")
    unpaired = "torch has no layer that runs in reverse alone"

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        if cause.name == "time_reversed":
            return (
                f"The candidate hands its steps on in the {'reversed' if cause.candidate else 'input'} "
                "order, the reference in the other."
            )
        return f"The {called(cause.op)} runs {c} in the candidate, {r} in the reference."

    def fix(self, cause: Cause) -> str:
        if cause.name == "time_reversed":
            return write(
                cause,
                torch="y.flip(1) on the output sequence",
                keras="keras.ops.flip(y, axis=1) on the output sequence",
            )
        if cause.reference == "bidirectional":
            return write(
                cause,
                torch=f"{layer(cause)}(..., bidirectional=True)",
                keras=f"keras.layers.Bidirectional({layer(cause)}(...))",
            )
        if cause.reference == "reverse":
            return write(
                cause,
                torch="x.flip(1) before and y.flip(1) after the layer",
                keras=f"{layer(cause)}(..., go_backwards=True)",
            )
        return write(
            cause,
            torch=f"{layer(cause)}(..., bidirectional=False), without flipping",
            keras=f"{layer(cause)}(..., go_backwards=False)",
        )


@rule
class BidirectionalMerge(Known):
    """The two directions of a recurrent layer are merged in another way.

    How it shows: another width (concat), or other values (sum, mean, product).

    Why it happens: torch always concatenates; Keras' Bidirectional has merge_mode concat (default), sum, mul, ave,
    None.
    """

    code, name, title = "AMB153", "rnn-merge", "Merge of the two directions differs"
    weight = 20
    kinds, ops, names = ("attr",), _RNN, ("merge",)
    sample = Cause("attr", "LSTM", "merge", "concat", "sum")
    unpaired = "torch's layers know only concat, which has another shape"

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        return f"The candidate merges forward and backward outputs by {c}, the reference by {r}."

    def fix(self, cause: Cause) -> str:
        how = {"sum": "forward + backward", "ave": "(forward + backward) / 2", "mul": "forward * backward"}.get(
            str(cause.reference)
        )
        torch = (
            f"forward, backward = y.chunk(2, -1); y = {how}" if how else "y as it is: nn.LSTM and nn.GRU concatenate"
        )
        return write(cause, torch=torch, keras=f"keras.layers.Bidirectional(..., merge_mode={cause.reference!r})")


@rule
class LastState(Known):
    """The summary of a sequence is taken from another step: the last output against the final state.

    How it shows: only for the backward half of a bidirectional layer, or only for sequences with padding; everything
    inside the layer is equal.

    Why it happens: output[:, -1] of a bidirectional torch layer holds the backward pass after ONE step; Keras with
    return_sequences=False takes the backward pass at its end (the first step of the input), as h_n does. With
    padding, output[:, -1] is a padded step.
    """

    code, name, title = "AMB154", "rnn-last-state", "Last step against final state of a recurrent layer"
    weight = 20
    kinds, names = ("wiring", "attr"), ("state", "return_sequences")
    unpaired = "it shows behind the layer, in what is taken from it"
    sample = Cause("wiring", "LSTM", "state", "rnn (final state)", "rnn (last step)")

    def message(self, cause: Cause) -> str:
        if cause.name == "return_sequences":
            c, r = both(cause)
            return f"return_sequences is {c} in the candidate, {r} in the reference."
        return (
            "The candidate summarises the sequence by another step than the reference: last output against final state."
        )

    def fix(self, cause: Cause) -> str:
        if cause.name == "return_sequences":
            return write(
                cause,
                torch="y" if cause.reference else "h_n[-1], or torch.cat([h_n[-2], h_n[-1]], -1) for two directions",
                keras=f"{layer(cause)}(..., return_sequences={bool(cause.reference)})",
            )
        return write(
            cause,
            torch="torch.cat([h_n[-2], h_n[-1]], -1) for the final states (not output[:, -1]), or output[:, -1] when "
            "the last step is meant",
            keras="return_sequences=False for the final states (not y[:, -1]), or y[:, -1] when the last step is meant",
        )


@rule
class PaddedOutputs(Known):
    """Steps that are padding come out as zeros on one side and as the last valid output on the other.

    How it shows: only at padded positions; a mean or maximum over time behind it spreads the error to the whole.

    Why it happens: torch's pad_packed_sequence gives zeros, Keras repeats the last output at masked steps unless
    zero_output_for_mask=True.
    """

    code, name, title = "AMB155", "rnn-padded-output", "Outputs at padded steps differ (zero_output_for_mask)"
    weight = 20
    kinds, ops, names = ("attr",), _RNN, ("zero_output_for_mask",)
    unpaired = "it takes a mask, which a single layer does not have"
    sample = Cause("attr", "LSTM", "zero_output_for_mask", True, False)

    def message(self, cause: Cause) -> str:
        zeros, repeats = ("candidate", "reference") if cause.candidate else ("reference", "candidate")
        return (
            f"At padded steps the {zeros} gives zeros, the {repeats} repeats the last valid "
            f"output.{defaults.note(cause)}"
        )

    def fix(self, cause: Cause) -> str:
        return write(
            cause,
            torch="pack_padded_sequence / pad_packed_sequence, which gives zeros"
            if cause.reference
            else "repeat the last valid output over the padded steps, or mask them behind the layer",
            keras=f"{layer(cause)}(..., zero_output_for_mask={bool(cause.reference)})",
        )


@rule
class RecurrentSetting(Known):
    """A recurrent layer is of another kind, missing, or differs in a setting that no more special rule covers.

    How it shows: the outputs differ with weights that fit, or the weights do not fit.

    Why it happens: LSTM against GRU, a second layer of a stack left out, a stateful layer. torch's dropout= acts
    between the layers of a stack, Keras' on the inputs of each. The message has both sides.
    """

    code, name, title = "AMB159", "rnn-setting", "Recurrent layer differs"
    kinds, families = ("attr", "variant", "op", "missing", "extra"), ("rnn",)
    sample = Cause("op", "LSTM", "GRU")
    unpaired = "the settings that layers of both frameworks share have rules of their own"

    def message(self, cause: Cause) -> str:
        if cause.kind in {"missing", "extra"}:
            has, lacks = ("reference", "candidate") if cause.kind == "missing" else ("candidate", "reference")
            return f"The {has} has a {called(cause.op)} here, the {lacks} has not."
        if cause.kind == "op":
            return f"The candidate has a {called(cause.name)}, the reference a {called(cause.op)}."
        c, r = both(cause)
        return f"The {called(cause.op)} has {cause.name} {c} in the candidate, {r} in the reference."

    def fix(self, cause: Cause) -> str:
        if cause.kind in {"missing", "extra"}:
            return f"{'add' if cause.kind == 'missing' else 'take out'} the {called(cause.op)} here"
        if cause.kind == "op":
            return f"write {layer(cause, cause.op)} here"
        return f"set {cause.name}={code(cause.reference)} on {layer(cause)}"
