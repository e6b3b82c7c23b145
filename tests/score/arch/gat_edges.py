"""Graph attention over an edge list; the Keras model is the reference, the torch port scatters by index_add."""

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


class EdgeAttention(layers.Layer):
    """One head; ``edges`` is (2, E): source row, target row."""

    def __init__(self, units: int, slope: float, **more: Any) -> None:
        super().__init__(**more)
        self.units = units
        self.project = layers.Dense(units, use_bias=False, name="project")
        self.leaky = layers.LeakyReLU(slope)

    def build(self, shape: Any) -> None:
        self.project.build(shape)
        self.att_src = self.add_weight(shape=(self.units,), name="att_src")
        self.att_dst = self.add_weight(shape=(self.units,), name="att_dst")
        self.shift = self.add_weight(shape=(self.units,), name="shift")

    def call(self, x: Any, edges: Any) -> Any:
        nodes = x.shape[0]
        source, target = edges[0], edges[1]
        h = self.project(x)
        score = ops.sum(h * self.att_src, axis=-1), ops.sum(h * self.att_dst, axis=-1)
        e = self.leaky(ops.take(score[0], source) + ops.take(score[1], target))
        peak = ops.segment_max(e, target, num_segments=nodes)
        e = ops.exp(e - ops.take(peak, target))
        total = ops.take(ops.segment_sum(e, target, num_segments=nodes), target)
        weight = e / (total + 1e-16)
        message = ops.take(h, source, axis=0) * weight[:, None]
        return ops.segment_sum(message, target, num_segments=nodes) + self.shift


class NodeModel(keras.Model):
    def __init__(self, cfg: dict[str, Any]) -> None:
        super().__init__(name="node_model")
        self.first = EdgeAttention(cfg["hidden"], 0.2, name="first")
        self.second = EdgeAttention(cfg["hidden"], 0.2, name="second")
        self.norm = layers.LayerNormalization(name="norm")
        self.readout = layers.Dense(cfg["classes"], name="readout")

    def call(self, inputs: Any) -> Any:
        x, edges = inputs
        loops = ops.arange(x.shape[0], dtype=edges.dtype)
        edges = ops.concatenate([edges, ops.stack([loops, loops])], axis=1)
        x = ops.elu(self.first(x, edges))
        x = x + ops.elu(self.second(self.norm(x), edges))
        pooled = ops.mean(x, axis=0, keepdims=True)
        return self.readout(x), pooled


def keras_model(cfg: dict[str, Any], f: frozenset[str]) -> keras.Model:
    return NodeModel(cfg)


class GatConv(nn.Module):
    def __init__(self, fin: int, fout: int, slope: float, f: frozenset[str]) -> None:
        super().__init__()
        self.f, self.slope = f, slope
        self.lin = nn.Linear(fin, fout, bias=False)
        self.weight_source = nn.Parameter(0.3 * torch.randn(fout))
        self.weight_target = nn.Parameter(0.3 * torch.randn(fout))
        self.bias = nn.Parameter(torch.zeros(fout))

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        src, dst = edge_index[0], edge_index[1]
        if "src_dst_swapped" in self.f:
            src, dst = dst, src
        n = x.shape[0]
        h = self.lin(x)
        logits = F.leaky_relu((h @ self.weight_source)[src] + (h @ self.weight_target)[dst], self.slope)
        if "softmax_over_all" in self.f:
            alpha = torch.softmax(logits, dim=0)
        else:
            shifted = (logits - logits.max()).exp()
            alpha = shifted / torch.zeros(n).index_add(0, dst, shifted)[dst]
        out = torch.zeros(n, h.shape[1]).index_add(0, dst, alpha.unsqueeze(-1) * h[src])
        if "mean_for_sum" in self.f:
            out = out / torch.bincount(dst, minlength=n).unsqueeze(-1)
        return out if "bias_unused" in self.f else out + self.bias


class NodeNet(nn.Module):
    def __init__(self, cfg: dict[str, Any], f: frozenset[str]) -> None:
        super().__init__()
        self.f = f
        hidden = cfg["hidden"]
        in_first = f & {"src_dst_swapped", "bias_unused"}
        in_second = f & {"softmax_over_all", "mean_for_sum"}
        self.conv1 = GatConv(cfg["features"], hidden, 0.01 if "slope" in f else 0.2, in_first)
        self.ln = nn.LayerNorm(hidden, eps=1e-5 if "norm_eps" in f else 1e-3)
        self.conv2 = GatConv(hidden, hidden, 0.2, in_second)
        self.out = nn.Linear(hidden, cfg["classes"])

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        f = self.f
        if "self_loops_missing" not in f:
            loop = torch.arange(x.shape[0]).repeat(2, 1)
            edge_index = torch.cat([edge_index, loop], dim=1)
        x = F.elu(self.conv1(x, edge_index))
        y = self.conv2(x if "norm_skipped" in f else self.ln(x), edge_index)
        y = F.relu(y) if "wrong_activation" in f else F.elu(y)
        x = y if "residual_missing" in f else x + y
        return self.out(x), (x.sum(dim=0, keepdim=True) if "sum_for_mean" in f else x.mean(dim=0, keepdim=True))


def torch_model(cfg: dict[str, Any], f: frozenset[str]) -> nn.Module:
    return NodeNet(cfg, f)


def links(t: Any, k: Any) -> list[Link]:
    found: list[Link] = []
    for a, b in ((t.conv1, k.first), (t.conv2, k.second)):
        found += hand.dense(a.lin, b.project) + [hand.linked(a.weight_source, b.att_src)]
        found += [hand.linked(a.weight_target, b.att_dst), hand.linked(a.bias, b.shift)]
    return found + hand.norm(t.ln, k.norm) + hand.dense(t.out, k.readout)


def spoil(f: frozenset[str], t: Any, k: Any) -> None:
    if "vectors_swapped" in f:
        hand.swap(t.conv2.weight_source, t.conv2.weight_target)
    if "kernel_transposed" in f:
        hand.change(t.conv2.lin.weight, np.transpose)


def make_inputs(cfg: dict[str, Any], rng: np.random.Generator) -> zoo.Inputs:
    n = cfg["nodes"]
    ring = np.stack([np.arange(n), (np.arange(n) + 1) % n])
    extra = rng.integers(0, n, (2, 3 * n))
    edges = np.concatenate([ring, extra[:, extra[0] != extra[1]]], axis=1)
    edges = np.unique(edges, axis=1)
    edges = edges[:, rng.permutation(edges.shape[1])]
    return rng.standard_normal((n, cfg["features"])).astype(np.float32), edges.astype(np.int64)


ARCH = Arch(
    name="gat_edges", reference="keras", torch_model=torch_model, keras_model=keras_model, links=links, spoil=spoil,
    make_inputs=make_inputs,
    faults={
        "slope": expect("conv1 first", "slope, alpha", "GAT slope"),
        "src_dst_swapped": expect("conv1 first", "swap, exchang, source, target, edge, transpos",
                                  "source and target swapped"),
        "bias_unused": expect("conv1 first", "bias, unused, parameter, shift", "parameter dropped"),
        "softmax_over_all": expect("conv2 second", "softmax, axis, segment, neighbour, normal", "softmax axis"),
        "mean_for_sum": expect("conv2 second", "mean, sum, div, degree", "sum for mean pooling"),
        "norm_eps": expect("ln norm", "epsilon, eps", "norm epsilon"),
        "self_loops_missing": expect("conv first second cat concat arange", "self, loop, edge, concat",
                                     "self loops missing"),
        "norm_skipped": expect("ln norm", "norm, missing, unused, partner, parameter", "layer missing"),
        "wrong_activation": expect("elu relu conv2 second", "relu, elu, activation, alpha", "wrong activation"),
        "residual_missing": expect("add conv2 second out readout elu", "residual, skip, add", "residual missing"),
        "sum_for_mean": expect("mean sum ^$", "mean, sum", "sum for mean pooling"),
        "vectors_swapped": expect("conv2 second", "swap, exchang", "weights of two layers swapped", keep=True),
        "kernel_transposed": expect("conv2.lin second", "transpos", "kernel transposed", keep=True),
    },
    combos=[("slope", "norm_eps"), ("wrong_activation", "bias_unused"), ("kernel_transposed", "sum_for_mean")],
    variants={
        "base": {"nodes": 17, "features": 9, "hidden": 14, "classes": 5},
        "more": {"nodes": 23, "features": 13, "hidden": 11, "classes": 4},
    },
    clean=[Clean(), Clean("more"), Clean("more", seed=2, weights="keep"), Clean(flip=True)],
)  # fmt: skip
build, FAULTS = ARCH.build, ARCH.faults
