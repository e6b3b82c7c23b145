"""Graph attention over a dense adjacency, from raw parameters on both sides."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import torch
import torch.nn.functional as F
from keras import layers, ops
from torch import nn

from tests.score import hand, zoo
from tests.score.hand import Link
from tests.score.zoo import Arch, Clean, expect


class GATLayer(nn.Module):
    def __init__(self, fin: int, fout: int, heads: int, concat: bool) -> None:
        super().__init__()
        self.concat = concat
        self.W = nn.Parameter(torch.randn(heads, fin, fout) * 0.2)
        self.a_src = nn.Parameter(torch.randn(heads, fout) * 0.2)
        self.a_dst = nn.Parameter(torch.randn(heads, fout) * 0.2)
        self.bias = nn.Parameter(torch.zeros(heads * fout if concat else fout))

    def forward(self, x: torch.Tensor, adj: torch.Tensor) -> torch.Tensor:
        h = torch.einsum("ni,hio->hno", x, self.W)
        source = torch.einsum("hno,ho->hn", h, self.a_src)
        target = torch.einsum("hno,ho->hn", h, self.a_dst)
        e = F.leaky_relu(target[:, :, None] + source[:, None, :], negative_slope=0.2)
        e = e.masked_fill(adj == 0, float("-inf"))
        out = torch.softmax(e, dim=-1) @ h
        out = out.permute(1, 0, 2).flatten(1) if self.concat else out.mean(dim=0)
        return out + self.bias


class GAT(nn.Module):
    def __init__(self, fin: int, hidden: int, heads: int, classes: int) -> None:
        super().__init__()
        self.gat1 = GATLayer(fin, hidden, heads, concat=True)
        self.gat2 = GATLayer(hidden * heads, classes, heads, concat=False)
        self.skip = nn.Linear(fin, classes, bias=False)

    def forward(self, x: torch.Tensor, adj: torch.Tensor) -> torch.Tensor:
        adj = ((adj + torch.eye(adj.shape[0])) > 0).float()
        y = F.elu(self.gat1(x, adj))
        return F.log_softmax(self.gat2(y, adj) + self.skip(x), dim=-1)


def torch_model(cfg: dict[str, Any], f: frozenset[str]) -> nn.Module:
    return GAT(cfg["features"], cfg["hidden"], cfg["heads"], cfg["classes"])


class GraphAttention(layers.Layer):
    def __init__(self, units: int, heads: int, join: bool, f: frozenset[str], **more: Any) -> None:
        super().__init__(**more)
        self.units, self.heads, self.join, self.f = units, heads, join, f

    def build(self, shapes: Any) -> None:
        width = shapes[0][-1]
        self.kernel = self.add_weight(shape=(width, self.heads, self.units), name="kernel")
        self.attn_self = self.add_weight(shape=(self.units, self.heads, 1), name="attn_self")
        self.attn_neigh = self.add_weight(shape=(self.units, self.heads, 1), name="attn_neigh")
        total = self.units * self.heads if self.join else self.units
        self.offset = None if "bias_dropped" in self.f else self.add_weight(shape=(total,), name="offset",
                                                                            initializer="zeros")  # fmt: skip

    def call(self, inputs: Any) -> Any:
        x, a = inputs
        f = self.f
        h = ops.einsum("ni,iho->nho", x, self.kernel)
        own = ops.einsum("nho,ohk->nhk", h, self.attn_self)
        other = ops.einsum("nho,ohk->nhk", h, self.attn_neigh)
        if "src_dst_swapped" in f:
            own, other = other, own
        scores = own + ops.transpose(other, (2, 1, 0))  # (target, head, source)
        scores = keras.layers.LeakyReLU(0.3 if "slope" in f else 0.2)(scores)
        if "mask_missing" not in f:
            edges = ops.transpose(a) if "adjacency_transposed" in f else a
            scores = scores + (-1e9) * (1.0 - edges[:, None, :])
        weights = ops.softmax(scores, axis=0 if "attention_axis" in f else -1)
        y = ops.einsum("nhm,mho->nho", weights, h)
        if self.join:
            order = (0, 2, 1) if "heads_interleaved" in f else (0, 1, 2)
            y = ops.reshape(ops.transpose(y, order), (-1, self.heads * self.units))
        else:
            y = ops.sum(y, axis=1) if "sum_of_heads" in f else ops.mean(y, axis=1)
        return y if self.offset is None else y + self.offset


class GraphNet(keras.Model):
    def __init__(self, cfg: dict[str, Any], f: frozenset[str]) -> None:
        super().__init__(name="graph_net")
        self.f = f
        in_first = {"slope", "heads_interleaved", "src_dst_swapped", "mask_missing"}
        in_second = {"attention_axis", "sum_of_heads", "bias_dropped", "adjacency_transposed"}
        self.conv_a = GraphAttention(cfg["hidden"], cfg["heads"], True, f & in_first, name="conv_a")
        self.conv_b = GraphAttention(cfg["classes"], cfg["heads"], False, f & in_second, name="conv_b")
        self.shortcut = layers.Dense(cfg["classes"], use_bias=False, name="shortcut")

    def call(self, inputs: Any) -> Any:
        x, a = inputs
        if "self_loops_missing" not in self.f:
            a = ops.maximum(a, ops.eye(a.shape[0]))
        y = self.conv_a([x, a])
        y = ops.relu(y) if "wrong_activation" in self.f else ops.elu(y)
        y = self.conv_b([y, a])
        if "residual_missing" not in self.f:
            y = y + self.shortcut(x)
        return ops.log_softmax(y, axis=0 if "output_axis" in self.f else -1)


def keras_model(cfg: dict[str, Any], f: frozenset[str]) -> keras.Model:
    return GraphNet(cfg, f)


def links(t: Any, k: Any) -> list[Link]:
    found: list[Link] = []
    for a, b in ((t.gat1, k.conv_a), (t.gat2, k.conv_b)):
        found.append(Link([a.W], [b.kernel], lambda v: [v[0].transpose(1, 0, 2)], lambda v: [v[0].transpose(1, 0, 2)]))
        for own, other in ((a.a_dst, b.attn_self), (a.a_src, b.attn_neigh)):
            found.append(Link([own], [other], lambda v: [v[0].T[..., None]], lambda v: [v[0][..., 0].T]))
        found.append(hand.linked(a.bias, b.offset))
    return found + (hand.dense(t.skip, k.shortcut) if k.shortcut.built else [])


def spoil(f: frozenset[str], t: Any, k: Any) -> None:
    if "vectors_swapped" in f:
        hand.swap(k.conv_b.attn_self, k.conv_b.attn_neigh)
    if "stale" in f:
        hand.change(k.conv_a.kernel, hand.stale)


def make_inputs(cfg: dict[str, Any], rng: np.random.Generator) -> zoo.Inputs:
    n = cfg["nodes"]
    adjacency = (rng.random((n, n)) < 0.3).astype(np.float32)
    for node in range(n):  # nobody is alone, also without self loops
        adjacency[node, (node + 1) % n] = 1.0
    np.fill_diagonal(adjacency, 0.0)
    return rng.standard_normal((n, cfg["features"])).astype(np.float32), adjacency


ARCH = Arch(
    name="gat_dense", reference="torch", torch_model=torch_model, keras_model=keras_model, links=links, spoil=spoil,
    make_inputs=make_inputs,
    faults={
        "slope": expect("conv_a gat1", "slope, alpha", "GAT slope"),
        # with weights carried by us the two vectors could simply be carried the other way round
        "src_dst_swapped": expect("conv_a gat1", "swap, exchang, source, transpos", "source and target swapped",
                                  keep=True),
        "mask_missing": expect("conv_a gat1", "mask, adjacen", "mask missing"),
        "heads_interleaved": expect("conv_a gat1", "head, layout, order, interleav, transpos, permut",
                                    "head split layout"),
        "attention_axis": expect("conv_b gat2", "axis, dim", "softmax axis"),
        "sum_of_heads": expect("conv_b gat2", "mean, sum", "sum for mean pooling"),
        "bias_dropped": expect("conv_b gat2", "bias, parameter, partner", "parameter dropped"),
        "adjacency_transposed": expect("conv_b gat2", "transpos, mask, adjacen", "source and target swapped"),
        "self_loops_missing": expect("eye maximum conv_ gat add", "self, loop, eye, adjacen, mask, diagonal",
                                     "self loops missing"),
        "wrong_activation": expect("elu relu conv_a gat1", "relu, elu, activation, alpha", "wrong activation"),
        "residual_missing": expect("shortcut skip add", "residual, skip, add, unused, missing, partner",
                                   "residual missing"),
        "output_axis": expect("softmax", "axis, dim", "softmax axis"),
        "vectors_swapped": expect("conv_b gat2", "swap, exchang", "weights of two layers swapped", keep=True),
        "stale": expect("conv_a gat1", "weight, kernel, stale", "stale weight", keep=True),
    },
    combos=[("slope", "sum_of_heads"), ("wrong_activation", "bias_dropped"),
            ("stale", "vectors_swapped", "output_axis")],
    variants={
        "base": {"nodes": 13, "features": 11, "hidden": 7, "heads": 3, "classes": 5},
        "larger": {"nodes": 19, "features": 8, "hidden": 6, "heads": 4, "classes": 7},
    },
    clean=[Clean(), Clean("larger"), Clean("larger", seed=2, weights="keep"), Clean(flip=True)],
)  # fmt: skip
build, FAULTS = ARCH.build, ARCH.faults
