"""Embeddings: padding row, maximum norm, scale, positions."""

from __future__ import annotations

from ambidex.core.rule import Cause
from ambidex.rules.registry import rule
from ambidex.rules.words import Known, both, code, layer, number, repairing, write


@rule
class PaddingRow(Known):
    """The row of the padding id holds other values: zeros on one side, a trained or random row on the other.

    How it shows: only samples with padding differ, and only when the padding is not masked behind the embedding.

    Why it happens: nn.Embedding(padding_idx=0) starts the row at zero and never updates it; keras.layers.Embedding with
    mask_zero=True starts it at random and trains it: the mask only tells later layers to skip those steps.
    """

    code, name, title = "AMB170", "embedding-padding-row", "Padding row of an embedding differs"
    stage = "weights"
    weight = 25
    unpaired = "a difference of weights, which carrying them over removes"
    sample = Cause(
        "weight",
        "Gather",
        "rows",
        ["emb.weight"],
        ["emb/embeddings"],
        detail={"roles": ["W"], "text": "only row 0 differs (the reference's is zero)"},
    )

    def claims(self, cause: Cause) -> bool:
        return cause.kind == "weight" and cause.op in {"Gather", "EmbeddingBag"} and cause.name == "rows"

    def message(self, cause: Cause) -> str:
        return f"In the embedding {cause.detail.get('text') or 'some rows differ'}: the padding row."

    def fix(self, cause: Cause) -> str:
        return write(
            cause,
            torch=f"{layer(cause)}(..., padding_idx=0), and copy the table as it is",
            keras="set row 0 to zero after loading and multiply the output by the mask: "
            "x * keras.ops.cast(ids != 0, x.dtype)[..., None]",
        )


@rule
class MaxNorm(Known):
    """An embedding shortens its rows to a maximum norm, or by another norm.

    How it shows: rows longer than the bound differ in length, not in direction.

    Why it happens: torch's max_norm acts at look-up and changes the table in place; Keras' MaxNorm constraint acts
    after the optimizer's step on all rows, and over axis 0 unless told otherwise.
    """

    code, name, title = "AMB171", "embedding-max-norm", "Maximum norm of an embedding differs"
    weight = 20
    kinds, ops, names = ("attr",), ("Gather", "EmbeddingBag"), ("max_norm", "norm_type")
    unpaired = "Keras has it only as a constraint that acts in training"
    sample = Cause("attr", "Gather", "max_norm", 1.0, None)

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        return f"The embedding's {cause.name} is {c} in the candidate, {r} in the reference."

    def fix(self, cause: Cause) -> str:
        bound = code(cause.reference)
        if cause.reference is None:
            return write(cause, torch=f"{layer(cause)} without max_norm", keras="leave the shortening out")
        return write(
            cause,
            torch=f"{layer(cause)}(..., {cause.name}={bound})",
            keras=f"x * keras.ops.minimum(1, {bound} / (keras.ops.norm(x, axis=-1, keepdims=True) + 1e-7)), and "
            f"embeddings_constraint=keras.constraints.MaxNorm({bound}, axis=1) for training",
        )


@rule
class EmbeddingScale(Known):
    """Embeddings are multiplied by the square root of their width on one side only.

    How it shows: everything behind the embedding is off; after a LayerNorm the difference shrinks and looks small.

    Why it happens: the original Transformer and SASRec multiply by sqrt(d), BERT does not. One port does it in the
    embedding, another before the positions are added, a third not at all.
    """

    code, name, title = "AMB172", "embedding-scale", "Embedding not multiplied by sqrt(width)"
    weight = 30
    unpaired = "the factor stands in code, in no layer"
    sample = Cause("scale", "Gather", "", None, 0.25, detail={"guess": "1/sqrt(width)", "consumer": "Add"})

    def claims(self, cause: Cause) -> bool:
        tables = {"Gather", "EmbeddingBag"}
        return cause.kind == "scale" and (cause.op in tables or cause.detail.get("producer") in tables)

    def message(self, cause: Cause) -> str:
        guess = cause.detail.get("guess")
        said = f" ({guess})" if guess else ""
        return (
            f"The candidate's embedding is {number(cause.candidate)} times the reference's{said}: the "
            "scale (usually sqrt of the width) is missing or extra."
        )

    def fix(self, cause: Cause) -> str:
        return f"multiply the embedding by {repairing(cause)}: x = embedding(ids) * factor"


@rule
class PositionShift(Known):
    """Ids or positions are shifted by a constant: position 0 against position 1, or an item id off by one.

    How it shows: every row of the look-up is another row of the same table; the tables are equal.

    Why it happens: RoBERTa starts positions at padding_idx + 1 (2), BART adds an offset of 2, BERT starts at 0; item
    ids start at 1 on the side that keeps 0 for padding.
    """

    code, name, title = "AMB173", "position-shift", "Ids or positions shifted"
    weight = 25
    kinds, names = ("wiring",), ("index",)
    unpaired = "the ids come from code, not from a layer"
    sample = Cause("wiring", "Gather", "index", "positions", "positions", detail={"shift": 1})

    def message(self, cause: Cause) -> str:
        shift = cause.detail.get("shift")
        if shift is None:
            return "The candidate looks up other ids (index, position) than the reference; they differ by no constant."
        by = f" by {number(shift)}"
        return (
            f"The candidate looks up ids that are shifted{by} against the reference's (position or index "
            "off by a constant)."
        )

    def fix(self, cause: Cause) -> str:
        shift = cause.detail.get("shift")
        term = (
            f"{'-' if isinstance(shift, int) and shift > 0 else '+'} {abs(shift)}"
            if isinstance(shift, int)
            else "as the reference has them"
        )
        return write(
            cause,
            torch=f"ids {term} before the embedding (positions: torch.arange(T) {term})",
            keras=f"ids {term} before the embedding (positions: keras.ops.arange(T) {term})",
        )


@rule
class PositionLayout(Known):
    """The columns of the last axis are interleaved on one side and stand in two halves on the other.

    How it shows: a sinusoidal position table has the same numbers, every position differs; with rotary positions the
    attention drifts with the distance.

    Why it happens: "Attention is all you need" writes sin in even and cos in odd columns (interleaved); tensor2tensor,
    many Keras ports and rotary embeddings in the GPT-NeoX style write all sines, then all cosines (halves).
    """

    code, name, title = "AMB174", "position-layout", "Position table: interleaved against two halves"
    weight = 25
    kinds, names = ("order",), ("halves", "interleaved")
    unpaired = "it takes a table that is computed by code"
    sample = Cause("order", "Add", "halves")

    def message(self, cause: Cause) -> str:
        here, there = ("in two halves", "interleaved")[:: 1 if cause.name == "halves" else -1]
        return (
            f"The last axis holds the reference's values in another order: {here} in the candidate, {there} in the "
            "reference (sine and cosine of a position table, rotary pairs)."
        )

    def fix(self, cause: Cause) -> str:
        if cause.name == "halves":
            return write(
                cause,
                torch="torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)",
                keras="keras.ops.reshape(keras.ops.stack([keras.ops.sin(angle), keras.ops.cos(angle)], -1), "
                "(steps, -1))",
            )
        return write(
            cause,
            torch="torch.cat([angle.sin(), angle.cos()], dim=-1)",
            keras="keras.ops.concatenate([keras.ops.sin(angle), keras.ops.cos(angle)], axis=-1)",
        )


@rule
class EmbeddingSetting(Known):
    """An embedding differs in a setting that no more special rule covers, or is missing on one side.

    How it shows: the looked-up rows differ, or a part of the sum of embeddings is not there.

    Why it happens: token type or position embeddings left out, a bag that sums against one that averages, masks that
    one side derives from id 0. The message has both sides.
    """

    code, name, title = "AMB179", "embedding-setting", "Embedding differs"
    kinds, families = ("attr", "variant", "op", "missing", "extra"), ("embedding",)
    unpaired = "the settings that layers of both frameworks share have rules of their own"
    sample = Cause("attr", "EmbeddingBag", "mode", "mean", "sum")

    def message(self, cause: Cause) -> str:
        if cause.kind in {"missing", "extra"}:
            has, lacks = ("reference", "candidate") if cause.kind == "missing" else ("candidate", "reference")
            return f"The {has} adds an embedding here, the {lacks} does not."
        c, r = both(cause)
        return f"The embedding's {cause.name or 'kind'} is {c} in the candidate, {r} in the reference."

    def fix(self, cause: Cause) -> str:
        if cause.kind in {"missing", "extra"}:
            return f"{'add' if cause.kind == 'missing' else 'take out'} the embedding"
        return f"set {cause.name}={code(cause.reference)} on {layer(cause)}"
