"""Order of values and axes: flatten, concatenate, reduce, shuffle, pad."""

from __future__ import annotations

from ambidex.core.rule import Cause
from ambidex.rules import defaults
from ambidex.rules.pairs import agree, differ
from ambidex.rules.registry import rule
from ambidex.rules.words import Known, both, called, code, number, real, write


@rule
class FlattenOrder(Known):
    """The values of an image are flattened in another order: channels last (NHWC) against channels first (NCHW).

    How it shows: the flattened vector holds the same numbers elsewhere; the next dense layer gives errors of the size
    of its values though its weights are "equal".

    Why it happens: torch flattens C, H, W, Keras H, W, C. The kernel of the first dense layer was stored for the
    other order. After a global pool there is nothing to order and the fault cannot happen.
    """

    code, name, title = "AMB140", "flatten-order", "Flatten order: NHWC against NCHW"
    weight = 25
    kinds, names = ("order",), ("flatten",)
    unpaired = "it shows in the layer after the flatten; the planted faults of the quality figure have it"
    sample = Cause("order", "Flatten", "flatten")

    def message(self, cause: Cause) -> str:
        first, last = ("C, H, W (channels first)", "H, W, C (channels last)")
        ours, theirs = (last, first) if cause.framework == "keras" else (first, last)
        return (
            f"The candidate flattens in the order {ours}, the reference in {theirs}: the same values in another order."
        )

    def fix(self, cause: Cause) -> str:
        return write(
            cause,
            torch="x.permute(0, 2, 3, 1).flatten(1), or reorder the next weight: W.reshape(out, H, W, "
            "C).permute(0, 3, 1, 2).flatten(1)",
            keras="keras.layers.Permute((3, 1, 2)) before Flatten, or reorder the next kernel: "
            "W.reshape(out, C, H, W).transpose(2, 3, 1, 0).reshape(-1, out)",
        )


@rule
class ConcatOrder(Known):
    """The parts of a concatenation stand in another order.

    How it shows: the same values in another order; the layer behind it gets its features mixed up.

    Why it happens: torch.cat([a, b]) and Concatenate()([b, a]) have the same shape when the parts have equal widths;
    forward and backward states of a bidirectional RNN, skip connections of a U-Net, features of a recommender.
    """

    code, name, title = "AMB141", "concat-order", "Order of a concatenation differs"
    weight = 20
    kinds, names = ("order",), ("concat",)
    unpaired = "it takes a model of several layers; the planted faults of the quality figure show it"
    sample = Cause("order", "Concat", "concat", None, (1, 0))

    def message(self, cause: Cause) -> str:
        order = cause.candidate if cause.candidate is not None else cause.reference
        said = f" (order {number(order)} of the other side's parts)" if order is not None else ""
        return f"The candidate concatenates the same parts as the reference in another order{said}."

    def fix(self, cause: Cause) -> str:
        return write(
            cause,
            torch="torch.cat([...], dim=...) with the parts in the reference's order",
            keras="keras.layers.Concatenate()([...]) with the parts in the reference's order",
        )


@rule
class ConcatAxis(Known):
    """Concatenation, stacking or splitting along another axis.

    How it shows: another shape, or, for square shapes, other values.

    Why it happens: torch.cat and torch.stack take axis 0 when nothing is said, keras.layers.Concatenate the last; the
    channel axis is 1 in torch's images and the last in Keras'.
    """

    code, name, title = "AMB142", "concat-axis", "Axis of a concatenation differs"
    weight = 20
    kinds, ops, names = ("attr", "variant"), ("Concat", "Stack", "Split"), ("axis",)
    unpaired = "it takes a model with several inputs of equal shape"
    sample = Cause("attr", "Concat", "axis", -1, 0)

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        return f"The candidate joins along axis {c}, the reference along axis {r}.{defaults.note(cause)}"

    def fix(self, cause: Cause) -> str:
        axis = code(cause.reference)
        name = "cat" if cause.op == "Concat" else "stack" if cause.op == "Stack" else "split"
        return write(
            cause,
            torch=f"torch.{name}(..., dim={axis})",
            keras=f"keras.ops.{'concatenate' if name == 'cat' else name}(..., axis={axis})",
        )


@rule
class ReduceAxes(Known):
    """A mean, sum or maximum is taken over other axes, or keeps the axis on one side.

    How it shows: another shape, or, with equal sizes, other values.

    Why it happens: spatial axes are (2, 3) in torch's layout and (1, 2) in Keras'; ports that keep the numbers. ambidex
    compares axes by their meaning, so the same mean in two layouts is no finding.
    """

    code, name, title = "AMB143", "reduce-axes", "Axes of a reduction differ"
    weight = 20
    kinds, families, names = ("attr", "variant"), ("reduce",), ("axes", "axis", "keepdims")
    unpaired = "neither framework has a reduction as a layer"
    sample = Cause("attr", "ReduceMean", "axes", [1], [2])

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        if cause.name == "keepdims":
            return f"The candidate takes the {called(cause.op)} with keepdims={c}, the reference with {r}."
        return f"The candidate takes the {called(cause.op)} over axes {c}, the reference over {r}."

    def fix(self, cause: Cause) -> str:
        v = code(cause.reference)
        key = {
            "torch": "keepdim" if cause.name == "keepdims" else "dim",
            "keras": "keepdims" if cause.name == "keepdims" else "axis",
        }
        word = called(cause.op)
        word = {"maximum": "max", "minimum": "min"}.get(word, word)
        torch = {"max": "amax", "min": "amin"}.get(word, word)
        return write(cause, torch=f"x.{torch}({key['torch']}={v})", keras=f"keras.ops.{word}(x, {key['keras']}={v})")


@rule
class DepthToSpace(Known):
    """Channels are spread over space in another order: pixel shuffle (CRD) against depth-to-space (DCR).

    How it shows: the shapes agree; with one output channel the values too, with more the colours are mixed in a
    pattern of the block's size. Super-resolution heads.

    Why it happens: nn.PixelShuffle takes channel c * r * r + i * r + j, tf.nn.depth_to_space (i * r + j) * C + c.
    """

    code, name, title = "AMB144", "pixel-shuffle", "PixelShuffle against depth_to_space: channel order"
    weight = 20
    kinds, ops, names = ("attr",), ("DepthToSpace", "SpaceToDepth"), ("mode",)
    unpaired = "Keras has it only as an operator of TensorFlow, not as a layer"
    sample = Cause("attr", "DepthToSpace", "mode", "CRD", "DCR")

    def message(self, cause: Cause) -> str:
        names = {
            "CRD": "channel first, then block (CRD, torch's PixelShuffle)",
            "DCR": "block first, then channel (DCR, tf.nn.depth_to_space)",
        }
        return (
            f"The candidate orders channels as {names.get(str(cause.candidate), cause.candidate)}, the "
            f"reference as {names.get(str(cause.reference), cause.reference)}."
        )

    def fix(self, cause: Cause) -> str:
        if cause.reference == "CRD":
            return write(
                cause,
                torch="nn.PixelShuffle(r)",
                keras="permute the channels first: idx = np.arange(C * r * r).reshape(C, r * r).T.ravel(); "
                "tf.nn.depth_to_space(keras.ops.take(x, idx, axis=-1), r)",
            )
        return write(
            cause,
            torch="x[:, torch.arange(C * r * r).view(r * r, C).T.flatten()] before nn.PixelShuffle(r)",
            keras="tf.nn.depth_to_space(x, r) without permuting",
        )


@rule
class PadSetting(Known):
    """A padding has another width, mode or value.

    How it shows: errors along the border, or another size.

    Why it happens: F.pad lists the last axis first (left, right, top, bottom), keras.ops.pad and ZeroPadding2D the
    first (top, bottom, left, right); keras.ops.pad knows constant, reflect and symmetric, torch has no symmetric.
    """

    code, name, title = "AMB145", "pad", "Padding differs"
    weight = 20
    kinds, ops = ("attr", "variant"), ("Pad",)
    sample = Cause("attr", "Pad", "pads", [1, 0, 1, 0], [0, 1, 0, 1])
    examples = (
        differ("Pad", {"pads": [1, 0, 1, 0]}, {"pads": [0, 0, 2, 0]}, (2, 3, 5, 6), mode="constant", value=0.0),
        agree("Pad", {}, {}, (2, 3, 5, 6), pads=[1, 0, 2, 1], mode="constant", value=0.0),
    )

    def message(self, cause: Cause) -> str:
        c, r = both(cause)
        what = {"pads": "widths (begin of each axis, then end)"}.get(cause.name, cause.name)
        return f"The padding's {what} is {c} in the candidate, {r} in the reference."

    def fix(self, cause: Cause) -> str:
        if cause.name != "pads" or not isinstance(cause.reference, list | tuple):
            return f"pad with {cause.name}={code(cause.reference)}"
        pads, n = list(cause.reference), len(cause.reference) // 2
        last_first = ", ".join(f"{pads[i]}, {pads[n + i]}" for i in reversed(range(n)))
        pairs = ", ".join(f"({pads[i]}, {pads[n + i]})" for i in range(n))
        return write(
            cause,
            torch=f"F.pad(x, ({last_first}))",
            keras=f"keras.layers.ZeroPadding{n}D({f'({pairs})' if n > 1 else pairs})",
        )


@rule
class AxesOrder(Known):
    """Axes are exchanged, or a reshape stands where a transpose is meant.

    How it shows: the shapes agree (or are made to agree by a reshape) and the values stand elsewhere.

    Why it happens: x.view(B, C, T) of a (B, T, C) tensor is not a transpose; height and width exchanged; (seq, batch)
    against (batch, seq): torch's recurrent layers and attention have the sequence first unless batch_first=True.
    """

    code, name, title = "AMB146", "axes-order", "Axes in another order"
    weight = 20
    kinds, names = ("order",), ("axes", "reshape", "transpose")
    unpaired = "neither framework has this as one layer that the other could mistake"
    sample = Cause("order", "Reshape", "axes", None, (0, 2, 1))

    def message(self, cause: Cause) -> str:
        order = cause.candidate if cause.candidate is not None else cause.detail.get("perm")
        said = f" (axes {number(order)})" if order is not None else ""
        return (
            f"The candidate has the same values with the axes in another order{said}: a transpose is "
            "missing, or a reshape stands in its place."
        )

    def fix(self, cause: Cause) -> str:
        return write(
            cause,
            torch="x.permute(...) to the reference's order of axes, not x.view/x.reshape; batch_first=True "
            "for nn.LSTM, nn.GRU and nn.MultiheadAttention",
            keras="keras.ops.transpose(x, ...) or keras.layers.Permute to the reference's order of axes, not Reshape",
        )


@rule
class ReduceKind(Known):
    """A sum on one side, a mean or a maximum on the other.

    How it shows: a factor that is the number of values (sum against mean), so it grows with the sequence's length.

    Why it happens: pooling of bags (EmbeddingBag takes the mean when nothing is said), neighbourhoods of a graph (aggr
    'add' or 'mean'), and masked means that divide by the padded length.
    """

    code, name, title = "AMB147", "reduce-kind", "Another reduction (sum, mean, maximum)"
    weight = 20
    kinds, families = ("op",), ("reduce",)
    unpaired = "neither framework has a reduction as a layer"
    sample = Cause("op", "ReduceMean", "ReduceSum")

    def message(self, cause: Cause) -> str:
        return f"The candidate takes the {called(cause.name)}, the reference the {called(cause.op)}."

    def fix(self, cause: Cause) -> str:
        word = called(cause.op)
        word = {"maximum": "max", "minimum": "min"}.get(word, word)
        return write(
            cause,
            torch=f"x.{ {'max': 'amax', 'min': 'amin'}.get(word, word) }(dim=...)",
            keras=f"keras.ops.{word}(x, axis=...)",
        )


@rule
class VarianceCorrection(Known):
    """A variance or standard deviation divides by n on one side and by n - 1 on the other.

    How it shows: a constant factor n/(n-1) (its root for the deviation), large for short rows.

    Why it happens: torch.std and torch.var divide by n - 1 when nothing is said (unbiased), keras.ops.std, tf.math
    and numpy by n.
    """

    code, name, title = "AMB148", "variance-n", "Variance over n against n - 1"
    weight = 20
    kinds, ops, names = ("attr", "variant"), ("ReduceVar", "ReduceStd"), ("correction",)
    unpaired = "neither framework has a variance as a layer"
    sample = Cause("variant", "ReduceStd", "correction", 0, 1)

    def message(self, cause: Cause) -> str:
        what = "standard deviation" if cause.op == "ReduceStd" else "variance"
        candidate = real(cause.candidate, 1 - real(cause.reference, 0))
        ours, theirs = ("n - 1 (unbiased)", "n (biased)") if candidate else ("n (biased)", "n - 1 (unbiased)")
        return f"The candidate's {what} divides by {ours}, the reference's by {theirs}."

    def fix(self, cause: Cause) -> str:
        name = "std" if cause.op == "ReduceStd" else "var"
        reference = int(real(cause.reference, 1 - real(cause.candidate, 0)))
        keras = f"keras.ops.{name}(x, axis=-1)"
        if reference:
            keras += " * (n / (n - 1)) ** 0.5" if name == "std" else " * n / (n - 1)"
        return write(cause, torch=f"x.{name}(-1, correction={reference})", keras=keras)


@rule
class PartMissing(Known):
    """One side concatenates a part that the other side leaves out: self loops of a graph, a class token, a column.

    How it shows: in a graph network every node differs (it does not see itself); with a feature left out everything
    behind the next linear layer does.

    Why it happens: PyTorch Geometric's GATConv and GCNConv add self loops by themselves (add_self_loops=True), a
    hand-written graph layer does not; adding them twice counts every node twice.
    """

    code, name, title = "AMB138", "part-missing", "Part of a concatenation missing"
    weight = 25
    kinds, names = ("missing", "extra"), ("part",)
    unpaired = "it takes code between layers"
    sample = Cause("missing", "Concat", "part", detail={"part": "self loops"})

    def title_for(self, cause: Cause) -> str:
        what = str(cause.detail.get("part") or "part of a concatenation").capitalize()
        return f"{what} {'missing' if cause.kind == 'missing' else 'that the reference does not have'}"

    def message(self, cause: Cause) -> str:
        has, lacks = ("reference", "candidate") if cause.kind == "missing" else ("candidate", "reference")
        what = {"self loops": "self loops (edges from every node to itself)"}.get(
            str(cause.detail.get("part")), "a part"
        )
        return f"The {has} concatenates {what} here, the {lacks} does not."

    def fix(self, cause: Cause) -> str:
        if cause.kind == "extra":
            return "leave this part out of the concatenation"
        if cause.detail.get("part") == "self loops":
            return write(
                cause,
                torch="loops = torch.arange(n); edges = torch.cat([edges, torch.stack([loops, loops])], dim=1)",
                keras="loops = keras.ops.arange(n); edges = keras.ops.concatenate([edges, "
                "keras.ops.stack([loops, loops])], axis=1)",
            )
        return "concatenate the reference's part here as well"


@rule
class ShapeSetting(Known):
    """Values are moved, cut or laid out differently, in a way that no more special rule covers.

    How it shows: the same values in another order, or other values of the same tensor.

    Why it happens: a slice that starts one later, a flip that is missing, a roll by another shift, a reshape with other
    sizes. The message has both sides.
    """

    code, name, title = "AMB149", "shape-setting", "Values laid out differently"
    kinds, families = ("attr", "variant", "op", "missing", "extra", "order"), ("shape", "reduce")
    unpaired = "the settings that layers of both frameworks share have rules of their own"
    sample = Cause("attr", "Flip", "axes", [1], [2])

    def claims(self, cause: Cause) -> bool:
        return cause.kind == "order" or super().claims(cause)

    def title_for(self, cause: Cause) -> str:
        return (
            f"{called(cause.op)} {'missing' if cause.kind == 'missing' else 'only in the candidate'}"
            if cause.kind in {"missing", "extra"}
            else self.title
        )

    def message(self, cause: Cause) -> str:
        if cause.kind == "order":
            return "The candidate has the reference's values in another order."
        if cause.kind in {"missing", "extra"}:
            has, lacks = ("reference", "candidate") if cause.kind == "missing" else ("candidate", "reference")
            return f"The {has} computes {called(cause.op)} here, the {lacks} does not."
        if cause.kind == "op":
            return f"The candidate computes {called(cause.name)}, the reference {called(cause.op)}."
        c, r = both(cause)
        return f"The {called(cause.op)} has {cause.name} {c} in the candidate, {r} in the reference."

    def fix(self, cause: Cause) -> str:
        if cause.kind == "order":
            return "bring the values into the reference's order (transpose, not reshape)"
        if cause.kind in {"missing", "extra"}:
            return f"{'add' if cause.kind == 'missing' else 'take out'} the {called(cause.op)} here"
        return (
            f"write {called(cause.op)} here"
            if cause.kind == "op"
            else f"{called(cause.op)} with {cause.name}={code(cause.reference)}"
        )
