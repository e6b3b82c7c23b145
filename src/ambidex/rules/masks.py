"""Masks: missing, inverted, lost on the way, or on one side only."""

from __future__ import annotations

from ambidex.core.rule import Cause
from ambidex.rules.registry import rule
from ambidex.rules.words import Known, called, write

_UNPAIRED = "a mask comes from the inputs or from another layer, not from a single one"
_RNN = ("LSTM", "GRU", "RNN")
_POOLS = (
    "ReduceMean",
    "ReduceSum",
    "ReduceMax",
    "ReduceMin",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "AveragePool",
    "Div",
    "Mul",
)


@rule
class AttentionMaskMissing(Known):
    """The candidate's attention (or softmax) gets no padding mask.

    How it shows: samples without padding agree, samples with padding do not; the error grows with the padding.

    Why it happens: torch has no implicit masks: key_padding_mask must be passed to every attention; a Keras attention
    takes the mask of Embedding(mask_zero=True) by itself as long as it survives to there.
    """

    code, name, title, stage = "AMB401", "mask-missing", "Padding mask missing", "data"
    weight = 20
    kinds, names, unpaired = ("mask",), ("missing",), _UNPAIRED
    sample = Cause("mask", "Attention", "missing")

    def message(self, cause: Cause) -> str:
        return (
            f"The reference's {called(cause.op)} leaves padding out by a mask, the candidate's uses every "
            "position: the mask is missing."
        )

    def fix(self, cause: Cause) -> str:
        return write(
            cause,
            torch="attention(q, k, v, key_padding_mask=(ids == 0)) (True = ignore), or "
            "scores.masked_fill(~mask, -torch.inf)",
            keras="attention(q, v, attention_mask=(ids != 0)[:, None, :]) (True = attend), or "
            "Embedding(mask_zero=True)",
        )


@rule
class MaskInverted(Known):
    """The mask means the opposite: True for "ignore" on one side, for "may be seen" on the other.

    How it shows: real tokens are ignored and padding is used; samples without padding give NaN or the mean of all
    values.

    Why it happens: nn.MultiheadAttention and nn.TransformerEncoder: True = ignore. F.scaled_dot_product_attention,
    Keras and Hugging Face tokenizers: True (1) = attend. Keras' RNN masks: True = valid step.
    """

    code, name, title, stage = "AMB402", "mask-inverted", "Mask polarity: inverted", "data"
    weight = 25
    kinds, names, unpaired = ("mask",), ("inverted",), _UNPAIRED
    sample = Cause("mask", "Attention", "inverted")

    def message(self, cause: Cause) -> str:
        return (
            f"The candidate's {called(cause.op)} uses the reference's mask inverted (mask polarity): it "
            "sees what it should ignore."
        )

    def fix(self, cause: Cause) -> str:
        return write(
            cause,
            torch="key_padding_mask=~valid in nn.MultiheadAttention (True = ignore), attn_mask=valid in "
            "F.scaled_dot_product_attention (True = attend)",
            keras="attention_mask=valid (True = attend), so ~mask of a torch key_padding_mask",
        )


@rule
class MaskExtra(Known):
    """The candidate masks positions that the reference does not.

    How it shows: samples with padding (or with id 0 as an ordinary item) differ.

    Why it happens: Keras' Embedding(mask_zero=True) hands its mask on to every later layer that takes one, wanted or
    not; id 0 may be an ordinary id on the other side.
    """

    code, name, title, stage = "AMB403", "mask-extra", "Mask that the reference does not have", "data"
    weight = 20
    kinds, names, unpaired = ("mask",), ("extra",), _UNPAIRED
    sample = Cause("mask", "Attention", "extra")

    def message(self, cause: Cause) -> str:
        return (
            f"The candidate's {called(cause.op)} leaves positions out by a mask, the reference's uses "
            "every position: an extra mask."
        )

    def fix(self, cause: Cause) -> str:
        return write(
            cause,
            torch="leave key_padding_mask / attn_mask / the packing out here",
            keras="mask_zero=False, or attention(..., attention_mask=None) on values without an implicit mask",
        )


@rule
class MaskLost(Known):
    """An implicit Keras mask does not reach the layer that needs it.

    How it shows: the mask is there at the embedding and gone later: the layer treats padding as data.

    Why it happens: Keras drops the mask at x + y (every residual written with +), at any keras.ops function, Conv1D,
    Reshape, Permute, Lambda, EinsumDense and RMSNormalization; it keeps it through Dense, Dropout,
    LayerNormalization, Add, Concatenate and the recurrent layers. An explicit query_mask= of MultiHeadAttention is
    ignored.
    """

    code, name, title, stage = "AMB404", "mask-lost", "Mask lost on the way", "data"
    weight = 25
    kinds, names, unpaired = ("mask",), ("lost",), _UNPAIRED
    sample = Cause("mask", "GlobalAveragePool", "lost")

    def message(self, cause: Cause) -> str:
        at = cause.detail.get("at")
        where = f" (dropped at {at})" if at else ""
        return (
            f"The padding mask is lost before the candidate's {called(cause.op)}{where}: it uses padding "
            "as data, the reference leaves it out."
        )

    def fix(self, cause: Cause) -> str:
        return write(
            cause,
            torch="hand the mask on explicitly",
            keras="keras.layers.Add()([x, y]) in place of x + y, supports_masking = True on own layers, or "
            "pass mask= explicitly",
        )


@rule
class RecurrentMaskMissing(Known):
    """A recurrent layer runs over the padding.

    How it shows: the final state of shorter sequences is wrong, and all backward outputs; sequences of full length
    agree.

    Why it happens: torch needs pack_padded_sequence with the lengths; Keras a Masking layer or
    Embedding(mask_zero=True), and the mask must survive to the layer.
    """

    code, name, title, stage = "AMB406", "rnn-mask-missing", "Recurrent layer runs over padding: mask missing", "data"
    weight = 25
    kinds, ops, names, unpaired = ("mask",), _RNN, ("missing",), _UNPAIRED
    sample = Cause("mask", "LSTM", "missing")

    def message(self, cause: Cause) -> str:
        return (
            f"The reference's {called(cause.op)} stops at each sequence's length (mask), the candidate's "
            "runs over the padding: the mask is missing."
        )

    def fix(self, cause: Cause) -> str:
        return write(
            cause,
            torch="packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False); y, h = "
            "rnn(packed); "
            "y, _ = pad_packed_sequence(y, batch_first=True)",
            keras="keras.layers.Masking() or Embedding(mask_zero=True) before it, or rnn(x, mask=ids != 0)",
        )


@rule
class PoolingMaskMissing(Known):
    """A mean, sum or maximum over time counts the padding.

    How it shows: short sequences come out too small (a mean that divides by the padded length) or too large (a
    maximum).

    Why it happens: keras.layers.GlobalAveragePooling1D takes the mask when it gets one, GlobalMaxPooling1D never
    does, x.mean(1) has none.
    """

    code, name, title, stage = "AMB407", "pooling-mask-missing", "Pooling over padding: mask missing", "data"
    weight = 25
    kinds, ops, names, unpaired = ("mask",), _POOLS, ("missing",), _UNPAIRED
    sample = Cause("mask", "ReduceMean", "missing")

    def message(self, cause: Cause) -> str:
        return (
            f"The reference leaves padding out of the {called(cause.op)} by a mask, the candidate counts "
            "it (mask missing, mean over padding)."
        )

    def fix(self, cause: Cause) -> str:
        return write(
            cause,
            torch="(x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)",
            keras="keras.layers.GlobalAveragePooling1D()(x, mask=ids != 0)",
        )


@rule
class CausalDiagonal(Known):
    """The causal mask lies a diagonal off: every position sees one step of the future, or not itself.

    How it shows: training looks too good (the next token is visible) or the first row is NaN or a plain mean (it sees
    nothing); every row but the last of an attention differs.

    Why it happens: torch.triu(ones, diagonal=1) is what is to be hidden, torch.tril(ones) (diagonal 0) what may be
    seen; mixing the two conventions moves the border by one.
    """

    code, name, title, stage = "AMB410", "causal-diagonal", "Causal mask off by one diagonal", "data"
    weight = 25
    kinds, names, unpaired = ("mask",), ("diagonal",), _UNPAIRED
    sample = Cause("mask", "Attention", "diagonal", None, 1)

    def message(self, cause: Cause) -> str:
        sees = "one step of the future" if (cause.candidate or 1) > 0 else "one step less, not even itself"
        return (
            f"The causal mask of the candidate's {called(cause.op)} is off by one: a position sees {sees} (the "
            "diagonal of tril / triu)."
        )

    def fix(self, cause: Cause) -> str:
        return write(
            cause,
            torch="may be seen: torch.ones(t, t, dtype=torch.bool).tril(); to be hidden: "
            "torch.ones(t, t, dtype=torch.bool).triu(1)",
            keras="may be seen: keras.ops.tril(keras.ops.ones((t, t), dtype='bool')), or use_causal_mask=True",
        )


@rule
class MaskTransposed(Known):
    """A square mask or adjacency matrix is used transposed: who sees whom is turned round.

    How it shows: symmetric graphs agree, directed ones differ; a causal mask shows the future and hides the past.

    Why it happens: adjacency[target, source] on one side, [source, target] on the other; edge_index[0] is the source in
    PyTorch Geometric, the row of a dense adjacency the target in most Keras code.
    """

    code, name, title, stage = "AMB411", "mask-transposed", "Mask or adjacency transposed", "data"
    weight = 25
    kinds, names, unpaired = ("mask",), ("transposed",), _UNPAIRED
    sample = Cause("mask", "Attention", "transposed")

    def message(self, cause: Cause) -> str:
        return (
            f"The candidate's {called(cause.op)} uses the reference's mask (adjacency) transposed: sources and targets "
            "are exchanged."
        )

    def fix(self, cause: Cause) -> str:
        return write(cause, torch="mask.transpose(-1, -2) here", keras="keras.ops.swapaxes(mask, -1, -2) here")


@rule
class MaskSetting(Known):
    """Masks differ in a way that no more special rule covers.

    How it shows: only padded or masked positions, and what is computed from them, differ.

    Why it happens: another fill value (-1e4 is not enough in float32 with large scores, -1e9 overflows float16), a
    mask on the query axis in place of the key axis, additive against boolean masks.
    """

    code, name, title, stage = "AMB409", "mask", "Masks differ", "data"
    weight = 5
    kinds, unpaired = ("mask",), _UNPAIRED
    sample = Cause("mask", "Attention", "other")

    def message(self, cause: Cause) -> str:
        return (
            f"The candidate's {called(cause.op)} uses another mask than the reference's "
            f"({cause.name or 'other positions'})."
        )

    def fix(self, cause: Cause) -> str:
        return "hand the reference's mask to this layer: same positions, same axis (keys), same polarity"
