"""What matters only in training, and what is active in inference though it should not be."""

from __future__ import annotations

from ambidex.core.rule import Cause
from ambidex.rules import defaults
from ambidex.rules.registry import rule
from ambidex.rules.words import Known, both, called, code, layer, write

#: layers with a dropout of their own
_INSIDE = {"LSTM", "GRU", "RNN", "Attention"}
_TRAINING = "it shows only in training, which a pair of layers in inference does not"


@rule
class Momentum(Known):
    """The running statistics of a norm follow the batches at another speed.

    How it shows: nothing in one forward pass; after some steps of training inference differs.

    Why it happens: the two mean opposite things: torch's momentum 0.1 is the weight of the new batch, Keras' 0.99 the
    weight of the old value, so keras = 1 - torch; the defaults (0.1 and 0.99) are not each other's counterpart: torch
    forgets ten times faster.
    """

    code, name, title, stage = "AMB301", "norm-momentum", "BatchNorm momentum differs", "training"
    weight = 25
    kinds, ops, names, unpaired = ("attr",), ("BatchNormalization", "InstanceNormalization"), ("momentum",), _TRAINING
    sample = Cause("attr", "BatchNormalization", "momentum", 0.9, 0.99)

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        return (
            f"Of its old running statistics the candidate keeps {c}, the reference {r} (Keras' momentum; "
            f"torch's is one minus that).{defaults.note(cause)}"
        )

    def fix(self, cause: Cause) -> str:
        kept = float(cause.reference) if isinstance(cause.reference, int | float) else 0.9
        return write(
            cause,
            torch=f"{layer(cause)}(..., momentum={code(round(1 - kept, 9))})",
            keras=f"{layer(cause)}(momentum={code(kept)})",
        )


@rule
class UnbiasedVariance(Known):
    """The running variance is updated with the variance over n - 1 on one side, over n on the other.

    How it shows: nothing in training mode; in inference a factor n/(n-1) in the running variance, where n is batch
    times positions: large for small batches without spatial axes.

    Why it happens: torch stores the unbiased variance, Keras the biased one. No setting changes it.
    """

    code, name, title, stage = "AMB302", "running-variance", "Running variance biased against unbiased", "training"
    weight = 25
    kinds, ops, names, unpaired = ("attr", "variant"), ("BatchNormalization",), ("unbiased",), _TRAINING
    sample = Cause("attr", "BatchNormalization", "unbiased", True, False)

    def message(self, cause: Cause) -> str:
        ours, theirs = ("n - 1 (unbiased)", "n (biased)") if cause.candidate else ("n (biased)", "n - 1 (unbiased)")
        return (
            f"The candidate updates its running variance with the batch's variance over {ours}, the "
            f"reference over {theirs}."
        )

    def fix(self, cause: Cause) -> str:
        return write(
            cause,
            torch="after each step running_var -= momentum * batch_var / n (a subclass of nn.BatchNorm)",
            keras="a subclass of BatchNormalization whose update multiplies the batch's variance by n / (n - 1)",
        )


@rule
class DropoutRatio(Known):
    """Dropout has another rate, or is missing on one side.

    How it shows: nothing in inference; another regularisation in training.

    Why it happens: p of nn.Dropout (default 0.5) and rate of keras.layers.Dropout both are the part that is dropped;
    TensorFlow 1's keep_prob is the rest. nn.LSTM's dropout acts between its layers only; nn.TransformerEncoderLayer
    has 0.1 in four places unless told otherwise.
    """

    code, name, title, stage = "AMB303", "dropout-ratio", "Dropout rate differs", "training"
    weight = 25
    unpaired = _TRAINING
    sample = Cause("attr", "Dropout", "ratio", 0.1, 0.5)

    def claims(self, cause: Cause) -> bool:
        inside = (
            cause.op in _INSIDE and cause.kind == "attr" and cause.name in {"dropout", "recurrent_dropout", "ratio"}
        )
        return inside or (cause.op in {"Dropout", "AlphaDropout"} and cause.kind in {"attr", "missing", "extra", "op"})

    def title_for(self, cause: Cause) -> str:
        return {"missing": "Dropout missing", "extra": "Dropout that the reference does not have"}.get(
            cause.kind, self.title
        )

    def message(self, cause: Cause) -> str:
        if cause.kind in {"missing", "extra"}:
            has, lacks = ("reference", "candidate") if cause.kind == "missing" else ("candidate", "reference")
            return f"The {has} has a dropout here, the {lacks} has not; it matters in training only."
        if cause.kind == "op":
            return (
                f"The candidate has {called(cause.name)} here, the reference {called(cause.op)}; it "
                "matters in training only."
            )
        c, r = both(cause)
        if cause.op in _INSIDE:
            return (
                f"Inside its {called(cause.op)} the candidate drops {c} ({cause.name}) in training, the reference {r}."
            )
        return f"The candidate drops {c} of the values in training, the reference {r}.{defaults.note(cause)}"

    def fix(self, cause: Cause) -> str:
        if cause.kind == "extra":
            return "take the dropout out"
        if cause.op in _INSIDE:
            rate = code(cause.reference) if isinstance(cause.reference, int | float) else "0.0"
            keras = "recurrent_dropout" if cause.name == "recurrent_dropout" else "dropout"
            torch = f"{layer(cause)}(..., dropout={rate}), which acts between its layers only"
            if cause.op == "Attention":
                torch = f"{layer(cause)}(..., dropout={rate})"
            return write(cause, torch=torch, keras=f"{layer(cause)}({keras}={rate})")
        rate = code(cause.reference) if isinstance(cause.reference, int | float) else "the reference's rate"
        return write(cause, torch=f"nn.Dropout({rate})", keras=f"keras.layers.Dropout({rate})")


@rule
class PaddingGradient(Known):
    """The padding row of an embedding is trained on one side and frozen on the other.

    How it shows: nothing in one forward pass; after training the padding row differs, and with it everything that is
    not masked.

    Why it happens: torch's padding_idx stops the row's gradient; Keras' mask_zero does not.
    """

    code, name, title, stage = "AMB304", "padding-gradient", "Gradient of the padding row", "training"
    weight = 25
    kinds, ops, names, unpaired = ("attr",), ("Gather", "EmbeddingBag"), ("padding_idx",), _TRAINING
    sample = Cause("attr", "Gather", "padding_idx", 0, None)

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        return (
            f"The row whose gradient is stopped (padding_idx) is {c} in the candidate, {r} in the "
            "reference (None: all rows are trained)."
        )

    def fix(self, cause: Cause) -> str:
        idx = code(cause.reference)
        if cause.reference is None:
            return write(cause, torch=f"{layer(cause)} without padding_idx", keras="train all rows")
        return write(
            cause,
            torch=f"{layer(cause)}(..., padding_idx={idx})",
            keras=f"zero the gradient of row {idx} in train_step, or multiply the output by the mask",
        )


@rule
class DropoutActive(Known):
    """The candidate gives another result at each run: a dropout (or another random operator) is active in inference.

    How it shows: two runs on the same input differ; parts of the values are zero and the others too large by 1/(1 -
    p).

    Why it happens: torch modules start in train mode: model.eval() is missing, or F.dropout(x) without
    training=self.training; in Keras a layer is called with training=True. An exporter keeps the mode the model was
    in.
    """

    code, name, title = "AMB310", "dropout-active", "Dropout active in inference"
    weight = 20
    kinds, ops = ("random",), ("Dropout", "AlphaDropout", "RRelu")
    unpaired = "a mode of the run, not a setting of a layer"
    sample = Cause("random", "Dropout")

    def message(self, cause: Cause) -> str:
        return f"The candidate's {called(cause.op)} is active in inference: two runs on the same input differ."

    def fix(self, cause: Cause) -> str:
        return write(
            cause,
            torch="model.eval() before inference; F.dropout(x, p, training=self.training), whose default is "
            "training=True",
            keras="call with training=False (leave training=True out of the call)",
        )


@rule
class RandomOperator(Known):
    """The candidate gives another result at each run, from a random operator.

    How it shows: two runs on the same input differ.

    Why it happens: noise layers, sampling (a variational encoder), random augmentation in the model, or kernels whose
    sums run in another order each time.
    """

    code, name, title = "AMB311", "random", "Result differs from run to run"
    weight = 10
    kinds = ("random",)
    unpaired = "a mode of the run, not a setting of a layer"
    sample = Cause("random", "GaussianNoise")

    def message(self, cause: Cause) -> str:
        return (
            f"Two runs of the candidate's {cause.candidate_cls or called(cause.op) or 'code'} on the same input differ."
        )

    def fix(self, cause: Cause) -> str:
        return write(
            cause,
            torch="model.eval(); take the mean in place of a sample; torch.use_deterministic_algorithms(True)",
            keras="training=False; take the mean in place of a sample; keras.utils.set_random_seed and "
            "tf.config.experimental.enable_op_determinism()",
        )
