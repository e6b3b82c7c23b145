"""Attention: scale, causal mask, softmax axis, heads, rows that may see nothing."""

from __future__ import annotations

from ambidex.core.rule import Cause
from ambidex.rules.pairs import agree, differ
from ambidex.rules.registry import rule
from ambidex.rules.words import Known, both, called, code, layer, number, write

_E = {"num_heads": 2}
_QKV = ((2, 5, 8), (2, 5, 8), (2, 5, 8))


@rule
class AttentionScale(Known):
    """Attention scores are multiplied by another constant: not scaled, scaled by the wrong width, or twice.

    How it shows: attention that is too sharp or too flat; small errors for small weights, so an untrained model hides
    it.

    Why it happens: the scale is 1/sqrt(width of one head). By hand it is left out, taken of the model width, or
    applied to the query and to the scores. keras.layers.Attention and keras.layers.AdditiveAttention do not scale
    unless use_scale=True; T5 means no scale; some checkpoints multiply it by the layer's number.
    """

    code, name, title = "AMB160", "attention-scale", "Attention scale differs"
    weight = 25
    sample = Cause("attr", "Attention", "scale", 8**-0.5, 1.0, detail={"scale_name": "1"})
    unpaired = "the layers of both frameworks always scale by the head's width; code by hand does not"

    def claims(self, cause: Cause) -> bool:
        if cause.kind == "scale":
            consumer = str(cause.detail.get("consumer", ""))
            return (
                cause.op == "Attention"
                or consumer in {"Attention", "Softmax"}
                or "head" in str(cause.detail.get("guess", ""))
            )
        return cause.kind == "attr" and cause.op == "Attention" and cause.name == "scale"

    def message(self, cause: Cause) -> str:
        if cause.kind == "scale":
            guess = cause.detail.get("guess")
            return (
                f"The candidate's attention scores are {number(cause.candidate)} times the reference's"
                + (f" ({guess})" if guess else "")
                + ": the scale is missing, applied twice, or of another width."
            )
        name = cause.detail.get("scale_name") or ""
        c, r = both(cause)
        said = f" ({name})" if name and name != c else ""
        if isinstance(cause.candidate, float) and cause.candidate == 1.0:
            return f"The candidate does not scale the attention scores (scale 1), the reference multiplies them by {r}."
        return f"The candidate multiplies the attention scores by {c}{said}, the reference by {r}."

    def fix(self, cause: Cause) -> str:
        scale = code(cause.reference) if isinstance(cause.reference, float) else "head_width ** -0.5"
        width = ""
        if (
            isinstance(cause.reference, float)
            and cause.reference > 0
            and abs(round(cause.reference**-2) - cause.reference**-2) < 1e-3
        ):
            width = f"{round(cause.reference**-2)} ** -0.5"
        scale = width or scale
        return write(
            cause,
            torch=f"scores = q @ k.transpose(-1, -2) * {scale}, or F.scaled_dot_product_attention(q, k, v, "
            f"scale={scale})",
            keras=f"scores = keras.ops.matmul(q, k_transposed) * {scale}; in keras.layers.MultiHeadAttention "
            "key_dim is the "
            "width of one head",
        )


@rule
class CausalAttention(Known):
    """Attention sees the future on one side and not on the other.

    How it shows: the first positions differ most, the last one not at all; in training the loss is suspiciously low.

    Why it happens: nn.MultiheadAttention's is_causal is a hint that needs attn_mask, F.scaled_dot_product_attention's
    acts by itself, Keras wants use_causal_mask=True in the call; a nn.TransformerDecoder masks nothing unless
    tgt_mask is passed.
    """

    code, name, title = "AMB161", "attention-causal", "Causal mask on one side only"
    weight = 25
    sample = Cause("attr", "Attention", "is_causal", True, False)
    examples = (
        differ("Attention", {"is_causal": True}, {"is_causal": False}, *_QKV, **_E),
        differ("Attention", {"is_causal": False}, {"is_causal": True}, *_QKV, **_E),
        agree("Attention", {}, {}, *_QKV, is_causal=True, **_E),
    )

    def claims(self, cause: Cause) -> bool:
        attr = cause.kind == "attr" and cause.op == "Attention" and cause.name == "is_causal"
        return attr or (cause.kind == "mask" and cause.name == "causal_missing")

    def message(self, cause: Cause) -> str:
        if cause.kind == "mask" or cause.reference:
            return (
                "The reference's attention is causal (no position sees a later one), the candidate's sees "
                "the whole sequence."
            )
        return (
            "The candidate's attention is causal (no position sees a later one), the reference's sees the "
            "whole sequence."
        )

    def fix(self, cause: Cause) -> str:
        if cause.kind == "mask" or cause.reference:
            return write(
                cause,
                torch="attn_mask=torch.triu(torch.ones(T, T, dtype=torch.bool), 1) in nn.MultiheadAttention, or "
                "F.scaled_dot_product_attention(..., is_causal=True)",
                keras="attention(q, v, use_causal_mask=True)",
            )
        return write(cause, torch="leave attn_mask and is_causal out", keras="use_causal_mask=False")


@rule
class AttentionSoftmaxAxis(Known):
    """The attention weights sum to one over the queries, not over the keys.

    How it shows: errors of the size of the values; each column of the attention map sums to one instead of each row.

    Why it happens: F.softmax(scores) without dim, dim=1 on (batch, heads, query, key) scores, or scores stored
    transposed.
    """

    code, name, title = "AMB162", "attention-softmax-axis", "Softmax of the attention over another axis"
    weight = 25
    kinds, ops, names = ("attr", "variant"), ("Attention",), ("softmax_axis",)
    unpaired = "only code by hand can choose the axis"
    sample = Cause("attr", "Attention", "softmax_axis", -1, -2)

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        return (
            f"The candidate's attention weights sum to one over axis {c} of the scores, the reference's "
            f"over axis {r} (the keys are -1)."
        )

    def fix(self, cause: Cause) -> str:
        axis = code(cause.reference if cause.reference is not None else -1)
        return write(cause, torch=f"scores.softmax(dim={axis})", keras=f"keras.ops.softmax(scores, axis={axis})")


@rule
class HeadLayout(Known):
    """The projected width is cut into heads in another order.

    How it shows: the shapes agree, all values differ; with one head nothing.

    Why it happens: (heads, head width) against (head width, heads): view(B, T, H, D) is right for torch's weights,
    reshape(B, T, D, H) interleaves; a transpose(1, 2) left out before the view mixes heads with positions. Keras'
    MultiHeadAttention keeps the heads as an axis of its kernels (in, heads, width).
    """

    code, name, title = "AMB163", "attention-heads", "Heads are split in another order"
    weight = 25
    kinds, names = ("order",), ("heads",)
    unpaired = "only code by hand can split the heads otherwise"
    sample = Cause("order", "Attention", "heads", None, "interleaved")

    def message(self, cause: Cause) -> str:
        how = f" ({cause.candidate})" if isinstance(cause.candidate, str) else ""
        return (
            f"The candidate splits the projected width into heads in another order{how} than the reference "
            "(heads, head width)."
        )

    def fix(self, cause: Cause) -> str:
        return write(
            cause,
            torch="q.view(B, T, heads, head_width).transpose(1, 2), and transpose(1, 2).reshape(B, T, -1) on "
            "the way back",
            keras="keras.ops.transpose(keras.ops.reshape(q, (B, T, heads, head_width)), (0, 2, 1, 3)), and "
            "the same back",
        )


@rule
class AttentionOperands(Known):
    """The attention takes its query, key and value in another order.

    How it shows: the shapes agree, all values differ; self-attention whose three projections are alike hides it at
    initialisation.

    Why it happens: a fused projection cut as k, v = chunk(2) where the other side has v, k; torch takes (query, key,
    value), Keras' MultiHeadAttention (query, value, key).
    """

    code, name, title = "AMB165", "attention-operands", "Query, key and value exchanged"
    weight = 25
    kinds, names = ("order",), ("attention",)
    unpaired = "it takes code between layers to exchange them"
    sample = Cause("order", "Attention", "attention", None, (0, 2, 1))

    def message(self, cause: Cause) -> str:
        names = ("query", "key", "value")
        order = cause.candidate if isinstance(cause.candidate, list | tuple) else cause.reference or (0, 2, 1)
        moved = " and ".join(names[i] for i in range(3) if order[i] != i)
        return f"The candidate's attention has {moved} exchanged: in its call, or where a fused projection is cut."

    def fix(self, cause: Cause) -> str:
        return write(
            cause,
            torch="q, k, v = qkv.chunk(3, dim=-1) in the order of the weights; attention(query, key, value)",
            keras="keras.ops.split(qkv, 3, axis=-1) in the order of the weights; keras.layers take (query, value, key)",
        )


@rule
class MaskedRow(Known):
    """A query that may see no key at all gets another answer: NaN, zeros, or the mean of all values.

    How it shows: only in samples that are padding throughout (or left-padded rows under a causal mask).

    Why it happens: torch gives NaN with need_weights=True and zeros without; Keras' MultiHeadAttention the mean of
    all values with dropout=0, and zeros with dropout > 0 or when the scores are asked for, also in inference; code by
    hand with -1e9 gives the mean, with -inf NaN.
    """

    code, name, title = "AMB164", "attention-masked-row", "Fully masked attention row differs"
    weight = 20
    kinds, ops, names = ("attr",), ("Attention",), ("masked_row",)
    unpaired = "it takes a mask that hides a whole row"
    sample = Cause("attr", "Attention", "masked_row", "zero", "uniform")

    def message(self, cause: Cause) -> str:
        words = {"zero": "zeros", "uniform": "the mean of all values", "nan": "NaN"}
        return (
            f"A query that may see nothing gets {words.get(str(cause.candidate), cause.candidate)} in the candidate, "
            f"{words.get(str(cause.reference), cause.reference)} in the reference."
        )

    def fix(self, cause: Cause) -> str:
        return "let every row see at least one key, or set the outputs of fully masked rows to zero on both sides"


@rule
class AttentionSetting(Known):
    """An attention differs in a setting that no more special rule covers, or is missing on one side.

    How it shows: the attention's output differs with equal projections.

    Why it happens: another number of heads (Keras' key_dim is the width of one head, torch's embed_dim of all; a
    wrong one changes both), soft capping, attention weights averaged over the heads on one side. The message has both
    values.
    """

    code, name, title = "AMB169", "attention-setting", "Attention differs"
    kinds, families = ("attr", "variant", "op", "missing", "extra"), ("attention",)
    sample = Cause("attr", "Attention", "num_heads", 4, 2)
    unpaired = "with other heads the projections of Keras' layer have other shapes too"

    def message(self, cause: Cause) -> str:
        if cause.kind in {"missing", "extra"}:
            has, lacks = ("reference", "candidate") if cause.kind == "missing" else ("candidate", "reference")
            return f"The {has} has an attention here, the {lacks} has not."
        if cause.kind == "op":
            return f"The candidate computes {called(cause.name)}, the reference {called(cause.op)}."
        c, r = both(cause)
        return f"Attention: {cause.name} is {c} in the candidate, {r} in the reference."

    def fix(self, cause: Cause) -> str:
        if cause.kind in {"missing", "extra"}:
            return f"{'add' if cause.kind == 'missing' else 'take out'} the attention here"
        if cause.kind == "op":
            return f"write {layer(cause, cause.op)} here"
        if cause.name == "num_heads":
            n = code(cause.reference)
            return write(
                cause,
                torch=f"nn.MultiheadAttention(embed_dim, num_heads={n})",
                keras=f"keras.layers.MultiHeadAttention(num_heads={n}, key_dim=embed_dim // {n})",
            )
        return f"set {cause.name}={code(cause.reference)} on {layer(cause)}"
