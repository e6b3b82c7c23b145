"""Cases of the forward pass, code: attention, positions, masks, numbers, graphs, recommenders, versions of a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import torch
import torch.nn.functional as F
from torch import nn

import keras  # isort: skip  (torch first)
from keras import layers, ops  # isort: skip

from tests.catalogue.case import Case, Pair
from tests.catalogue.elsewhere import KerasNet, Net, image, pair
from tests.catalogue.forward import Array, random, rows, sequence
from tests.catalogue.weights import HEADS, SIZE, rotary_table

IDS = np.array([[3, 4, 5, 1, 7], [2, 8, 0, 0, 0], [7, 5, 6, 0, 0]])
WIDTH = 8


# ------------------------------------------------------------------------------------------------------------ attention
def mask_polarity() -> Pair:
    def reference(m: Any, ids: torch.Tensor) -> torch.Tensor:
        x = m.items(ids)
        return m.out(m.attention(x, x, x, key_padding_mask=ids == 0, need_weights=False)[0])

    def candidate(m: Any, ids: Any) -> Any:
        x = m.items(ids)
        return m.out(m.attention(x, x, attention_mask=(ids == 0)[:, None, :]))

    ours = Net(reference, items=nn.Embedding(9, WIDTH), attention=nn.MultiheadAttention(WIDTH, 2, batch_first=True),
               out=nn.Linear(WIDTH, 3))  # fmt: skip
    theirs = KerasNet(candidate, items=layers.Embedding(9, WIDTH), attention=layers.MultiHeadAttention(2, WIDTH // 2),
                      out=layers.Dense(3))  # fmt: skip
    return pair(random(ours), theirs, np.array([[3, 4, 5, 1, 0], [2, 8, 0, 0, 0], [7, 5, 6, 0, 0]]))


Masked = Callable[[Any, Any], Any]


def _by_hand(reference: Masked, candidate: Masked, *inputs: Array, scale: float = 1.0) -> Pair:
    """Attention of one head as code; the functions put the mask (True: may be seen) into the scores."""

    def ours(m: Any, ids: torch.Tensor) -> torch.Tensor:
        x = m.items(ids) * scale
        scores = m.q(x) @ m.k(x).transpose(1, 2) / WIDTH**0.5
        return m.out(reference(scores, ids != 0).softmax(-1) @ m.v(x))

    def theirs(m: Any, ids: Any) -> Any:
        x = m.items(ids) * scale
        scores = m.q(x) @ ops.swapaxes(m.k(x), 1, 2) / WIDTH**0.5
        return m.out(ops.softmax(candidate(scores, ids != 0)) @ m.v(x))

    names = {"q": WIDTH, "k": WIDTH, "v": WIDTH, "out": 3}
    return pair(
        random(Net(ours, items=nn.Embedding(9, WIDTH), **{n: nn.Linear(WIDTH, w) for n, w in names.items()})),
        KerasNet(theirs, items=layers.Embedding(9, WIDTH), **{n: layers.Dense(w) for n, w in names.items()}),
        *inputs,
    )


def fill_value() -> Pair:
    """Scores of some ten thousands: a sum with -1e4 does not take a masked key out."""
    return _by_hand(
        lambda s, seen: s.masked_fill(~seen[:, None, :], -torch.inf),
        lambda s, seen: s + (1.0 - ops.cast(seen, "float32"))[:, None, :] * -1e4,
        np.array([[i, (i + 3) % 9, 0, 0] for i in range(1, 9)]),
        scale=300.0,
    )


def query_axis() -> Pair:
    """A finite fill value hides that the rows of padded queries see nothing."""
    return _by_hand(
        lambda s, seen: s.masked_fill(~seen[:, None, :], -1e9),
        lambda s, seen: ops.where(seen[:, :, None], s, -1e9),
        IDS,
    )


def score_scale() -> Pair:
    def reference(m: Any, x: torch.Tensor) -> torch.Tensor:
        return m.out(F.scaled_dot_product_attention(m.q(x), m.k(x), m.v(x)))

    def candidate(m: Any, x: Any) -> Any:
        return m.out(m.attention([m.q(x), m.v(x), m.k(x)]))

    names = {"q": WIDTH, "k": WIDTH, "v": WIDTH, "out": 3}
    return pair(
        random(Net(reference, **{n: nn.Linear(WIDTH, w) for n, w in names.items()})),
        KerasNet(candidate, attention=layers.Attention(), **{n: layers.Dense(w) for n, w in names.items()}),
        sequence(width=WIDTH),
    )


def layer_coefficient() -> Pair:
    """Both divide the scores by the number of the layer; the candidate does not multiply it back."""

    def reference(m: Any, x: torch.Tensor) -> torch.Tensor:
        for n in (1, 2, 3):
            q, k, v = (m.get_submodule(f"{part}{n}")(x) for part in "qkv")
            scores = q @ k.transpose(1, 2) / (WIDTH**0.5 * n)
            x = x + (scores * n).softmax(-1) @ v
        return m.out(x)

    def candidate(m: Any, x: Any) -> Any:
        for n in (1, 2, 3):
            q, k, v = (getattr(m, f"{part}{n}")(x) for part in "qkv")
            x = x + ops.softmax(q @ ops.swapaxes(k, 1, 2) / (WIDTH**0.5 * n)) @ v
        return m.out(x)

    names = [f"{part}{n}" for n in (1, 2, 3) for part in "qkv"]
    return pair(
        random(Net(reference, out=nn.Linear(WIDTH, 3), **{n: nn.Linear(WIDTH, WIDTH) for n in names})),
        KerasNet(candidate, out=layers.Dense(3), **{n: layers.Dense(WIDTH, name=n) for n in names}),
        sequence(width=WIDTH),
    )


def zero_rows() -> Pair:
    """Samples are filled up with rows of zeros, whose keys are the bias."""

    def reference(m: Any, x: torch.Tensor) -> torch.Tensor:
        return m.out(m.attention(x, x, x, key_padding_mask=(x == 0).all(-1), need_weights=False)[0])

    x = sequence(width=WIDTH)
    x[1, 4:], x[2, 2:] = 0.0, 0.0
    ours = Net(reference, attention=nn.MultiheadAttention(WIDTH, 2, batch_first=True), out=nn.Linear(WIDTH, 3))
    theirs = KerasNet(lambda m, x: m.out(m.attention(x, x)), attention=layers.MultiHeadAttention(2, WIDTH // 2),
                      out=layers.Dense(3))  # fmt: skip
    return pair(random(ours), theirs, x)


# ------------------------------------------------------------------------------------------------------------ positions
def sinusoids() -> Pair:
    """Sines and cosines by turns against in two halves, of the same angles."""
    angle = np.arange(6)[:, None] / 100.0 ** (np.arange(WIDTH // 2) / (WIDTH // 2))
    turns = np.stack([np.sin(angle), np.cos(angle)], -1).reshape(6, WIDTH).astype(np.float32)
    halves = np.concatenate([np.sin(angle), np.cos(angle)], -1).astype(np.float32)
    reference = Net(lambda m, x: m.out(m.first(x) + torch.tensor(turns)), first=nn.Linear(WIDTH, WIDTH),
                    out=nn.Linear(WIDTH, 3))  # fmt: skip
    candidate = KerasNet(lambda m, x: m.out(m.first(x) + halves), first=layers.Dense(WIDTH), out=layers.Dense(3))
    return pair(random(reference), candidate, sequence(steps=6, width=WIDTH))


def rotary_pairs() -> Pair:
    """Neighbours are turned on one side, i and i + d / 2 on the other."""
    steps, width = 6, HEADS * SIZE
    cos, sin = (t[:, : SIZE // 2] for t in rotary_table(steps))

    def ours(y: torch.Tensor) -> torch.Tensor:
        a, b, c, s = y[..., ::2], y[..., 1::2], torch.tensor(cos), torch.tensor(sin)
        return torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2)

    def theirs(y: Any) -> Any:
        a, b = ops.split(y, 2, -1)
        return ops.concatenate([a * cos - b * sin, a * sin + b * cos], -1)

    def reference(m: Any, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (m.get_submodule(n)(x).unflatten(-1, (HEADS, SIZE)).transpose(1, 2) for n in "qkv")
        y = (ours(q) @ ours(k).transpose(-1, -2) / SIZE**0.5).softmax(-1) @ v
        return m.out(y.transpose(1, 2).flatten(-2))

    def candidate(m: Any, x: Any) -> Any:
        q, k, v = (ops.transpose(ops.reshape(getattr(m, n)(x), (-1, steps, HEADS, SIZE)), (0, 2, 1, 3)) for n in "qkv")
        y = ops.softmax(theirs(q) @ ops.swapaxes(theirs(k), -1, -2) / SIZE**0.5) @ v
        return m.out(ops.reshape(ops.transpose(y, (0, 2, 1, 3)), (-1, steps, width)))

    return pair(
        random(Net(reference, out=nn.Linear(width, 3), **{n: nn.Linear(WIDTH, width) for n in "qkv"})),
        KerasNet(candidate, out=layers.Dense(3), **{n: layers.Dense(width, name=n) for n in "qkv"}),
        sequence(steps=steps, width=WIDTH),
    )


# -------------------------------------------------------------------------------------------------------------- numbers
def promotion() -> Pair:
    """torch makes counts and fractions one type; TensorFlow refuses, so the port casts the fractions to integers."""
    counts, x = np.arange(48).reshape(6, 8) % 7, rows()
    reference = Net(lambda m, n, x: m.out(n + x), out=nn.Linear(8, 3))
    candidate = KerasNet(
        lambda m, n, x: m.out(ops.cast(n + ops.cast(x, n.dtype), "float32")),
        out=layers.Dense(3),
    )
    return pair(random(reference), candidate, counts, x)


def deviation() -> Pair:
    reference = Net(lambda m, x: m.out(m.first(x).std(1)), first=nn.Linear(6, 5), out=nn.Linear(5, 3))
    candidate = KerasNet(lambda m, x: m.out(ops.std(m.first(x), axis=1)), first=layers.Dense(5), out=layers.Dense(3))
    return pair(random(reference), candidate, sequence())


def median() -> Pair:
    """Rows of eight: torch takes the lower of the two middle values, Keras their mean."""
    reference = Net(lambda m, x: m.out(x - x.median(1, keepdim=True).values), out=nn.Linear(8, 3))
    candidate = KerasNet(lambda m, x: m.out(x - ops.median(x, axis=1, keepdims=True)), out=layers.Dense(3))
    return pair(random(reference), candidate, rows())


def rounding_below_zero() -> Pair:
    """Buckets of relative positions, some of which are negative."""
    reference = Net(
        lambda m, i: m.out(m.buckets(torch.div(i, 3, rounding_mode="trunc") + 4)),
        buckets=nn.Embedding(9, 5),
        out=nn.Linear(5, 3),
    )
    candidate = KerasNet(
        lambda m, i: m.out(m.buckets(ops.floor_divide(i, 3) + 4)), buckets=layers.Embedding(9, 5), out=layers.Dense(3)
    )
    return pair(random(reference), candidate, np.arange(-9, 9).reshape(2, 9))


def ties() -> Pair:
    """Items of equal score: other ones are recommended."""
    scores = np.array([[1, 1, 1, 0], [0, 2, 2, 2], [3, 1, 3, 3]], np.float32)
    reference = Net(lambda m, x: m.out(m.items(x.topk(2).indices)), items=nn.Embedding(4, 5), out=nn.Linear(5, 3))
    candidate = KerasNet(
        lambda m, x: m.out(m.items(ops.top_k(x, 2)[1])), items=layers.Embedding(4, 5), out=layers.Dense(3)
    )
    return pair(random(reference), candidate, scores)


# --------------------------------------------------------------------------------------------------------------- graphs
PATH = np.zeros((6, 6), np.float32)
PATH[np.arange(5), np.arange(1, 6)] = PATH[np.arange(1, 6), np.arange(5)] = 1.0
EDGES = np.stack(np.nonzero(PATH))


def degree_without_loops() -> Pair:
    def reference(m: Any, x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        a = a + torch.eye(len(a))
        root = a.sum(1) ** -0.5
        return m.out((root[:, None] * a * root[None, :] @ m.first(x)).relu())

    def candidate(m: Any, x: Any, a: Any) -> Any:
        root = ops.sum(a, axis=1) ** -0.5
        a = a + ops.eye(len(a))
        return m.out(ops.relu(root[:, None] * a * root[None, :] @ m.first(x)))

    return pair(
        random(Net(reference, first=nn.Linear(5, 4), out=nn.Linear(4, 3))),
        KerasNet(candidate, first=layers.Dense(4), out=layers.Dense(3)),
        rows(6, 5),
        PATH,
    )


def loops_ignored() -> Pair:
    """A plain sum over the neighbours, and over the node itself on one side only."""

    def reference(m: Any, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        h, loops = m.first(x), torch.arange(len(x))
        source, target = torch.cat([edges, torch.stack([loops, loops])], 1)
        return m.out(torch.zeros_like(h).index_add(0, target, h[source]).relu())

    def candidate(m: Any, x: Any, edges: Any) -> Any:
        h = m.first(x)
        return m.out(ops.relu(ops.segment_sum(ops.take(h, edges[0], axis=0), edges[1], len(x))))

    return pair(
        random(Net(reference, first=nn.Linear(5, 4), out=nn.Linear(4, 3))),
        KerasNet(candidate, first=layers.Dense(4), out=layers.Dense(3)),
        rows(6, 5),
        EDGES,
    )


def empty_segment() -> Pair:
    """The last node has no edges: zero on one side, the lowest float on the other."""
    edges = EDGES[:, (EDGES != 5).all(0)]

    def reference(m: Any, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        h = m.first(x)
        found = torch.zeros_like(h)
        at = edges[1][:, None].expand(-1, h.shape[1])
        return m.out(found.scatter_reduce(0, at, h[edges[0]], "amax", include_self=False))

    def candidate(m: Any, x: Any, edges: Any) -> Any:
        return m.out(tf.math.unsorted_segment_max(ops.take(m.first(x), edges[0], axis=0), edges[1], len(x)))

    return pair(
        random(Net(reference, first=nn.Linear(5, 4), out=nn.Linear(4, 3))),
        KerasNet(candidate, first=layers.Dense(4), out=layers.Dense(3)),
        rows(6, 5),
        edges,
    )


# ------------------------------------------------------------------------------------ recommenders, releases of a model
def item_embedding() -> Pair:
    """SASRec: the padding item is a row of zeros, and items are multiplied by the root of their width."""

    def reference(m: Any, ids: Any) -> Any:
        table = ops.concatenate([ops.zeros((1, WIDTH)), m.items.embeddings[1:]], axis=0)
        return m.out(ops.take(table, ids, axis=0) * WIDTH**0.5)

    items = layers.Embedding(9, WIDTH)
    items.build()
    candidate = Net(lambda m, ids: m.out(m.items(ids)), items=nn.Embedding(9, WIDTH), out=nn.Linear(WIDTH, 3))
    made = pair(KerasNet(reference, items=items, out=layers.Dense(3)), candidate.eval(), IDS)
    random(made.reference)
    return made


def application() -> Pair:
    """EfficientNet's stem: a later release divides by the root of the deviations once more."""

    def built(*more: layers.Layer) -> keras.Model:
        parts = [layers.Rescaling(1 / 255.0), layers.Normalization(mean=MEAN, variance=DEVIATION), *more]
        stem = [layers.Conv2D(4, 3, 2, activation="silu"), layers.GlobalAveragePooling2D(), layers.Dense(3)]
        return keras.Sequential([keras.Input((9, 9, 3)), *parts, *stem])

    again = layers.Rescaling([1 / d**0.5 for d in DEVIATION])
    return pair(random(built()), built(again), np.round(image(size=9, scale=255.0)))


MEAN, DEVIATION = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def tied_scale() -> Pair:
    """Logits by the table of the tokens; after a refactoring the hidden states are scaled here too."""

    def net(scale: float | None) -> nn.Module:
        def code(m: Any, ids: torch.Tensor) -> torch.Tensor:
            h = m.norm(m.hidden(m.tokens(ids)).relu())
            return (h if scale is None else h * scale) @ m.tokens.weight.T

        return Net(code, tokens=nn.Embedding(9, WIDTH), hidden=nn.Linear(WIDTH, WIDTH), norm=nn.RMSNorm(WIDTH, 1e-6))

    return pair(random(net(None)), net(WIDTH**-0.5).eval(), IDS)


CASES: list[Case] = [
    Case("AT01", "Attention mask polarity", mask_polarity, ("AMB402",)),
    Case("AT03", "Fill value -1e4, -1e9, -1e30 or finfo.min", fill_value, ("AMB409",),
         note="found: the softmax or what is in front of it differs, no cause by name"),
    Case("AT05", "Padding mask broadcast on the query axis", query_axis, ("AMB409", "AMB411"),
         note="found: the softmax differs, no cause by name"),
    Case("AT06", "Score scaling missing or with the wrong size", score_scale, ("AMB160",)),
    Case("AT08", "Score coefficient multiplied by the layer number", layer_coefficient, ("AMB160",)),
    Case("PO01", "Sinusoids interleaved or concatenated, divisor d/2 or d/2-1", sinusoids, ("AMB174",)),
    Case("PO02", "Rotary pairing: neighbours or halves", rotary_pairs, ("AMB174",),
         note="found: the product of queries and keys differs, no cause by name"),
    Case("E04", "Zero-padded inputs are not masked in attention", zero_rows, ("AMB401",)),
    Case("DT01", "Type promotion", promotion, ("AMB603",),
         note="found: the sum differs, no cause by name"),
    Case("DT03", "std/var: n-1 or n", deviation, ("AMB148",)),
    Case("DT04", "Median of an even count", median, ("AMB147", "AMB198"),
         note="found: the median differs, no cause by name"),
    Case("DT05", "Floor or truncate for negative integers", rounding_below_zero, ("AMB195", "AMB198"),
         note="found: other ids are looked up (AMB173), not how they are rounded"),
    Case("DT09", "top-k ties", ties, ("AMB198",),
         note="found: other ids are looked up (AMB173), not that scores are equal"),
    Case("GN02", "Self loops added after the degree was computed", degree_without_loops, ("AMB191",),
         note="found: a product of the normalisation differs, no cause by name"),
    Case("GN03", "add_self_loops ignored when normalize is off", loops_ignored, ("AMB138",)),
    Case("GN06", "Empty segments", empty_segment, ("AMB198",),
         note="found: the maximum over segments differs, no cause by name"),
    Case("RE01", "Item embedding zero row and sqrt(d) scale", item_embedding, ("AMB170", "AMB172"),
         note="found: the embedding differs, no cause by name"),
    Case("UP03", "Application model changed between releases", application, ("AMB192", "AMB194")),
    Case("UP07", "Refactor of tied weights changed a scale", tied_scale, ("AMB192",)),
]  # fmt: skip
