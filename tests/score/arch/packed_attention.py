"""torch's packed layers (MultiheadAttention, TransformerEncoderLayer) against Dense layers and ops."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import torch
from keras import layers, ops
from torch import nn

from tests.score import hand, zoo
from tests.score.hand import Link
from tests.score.zoo import Arch, Clean, expect


class Packed(nn.Module):
    def __init__(self, features: int, dim: int, heads: int, inner: int) -> None:
        super().__init__()
        self.inp = nn.Linear(features, dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True, dropout=0.1)
        self.norm = nn.LayerNorm(dim)
        self.block = nn.TransformerEncoderLayer(dim, heads, inner, activation="gelu", batch_first=True, norm_first=True)
        self.query = nn.Parameter(torch.randn(1, 1, dim) * 0.2)
        self.pool = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.out = nn.Linear(dim, 5)

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.inp(x)
        y, weights = self.attn(x, x, x, key_padding_mask=padding)
        x = self.norm(x + y)
        x = self.block(x)
        seed = self.query.expand(x.shape[0], -1, -1)
        pooled, _ = self.pool(seed, x, x, key_padding_mask=padding)
        return self.out(pooled.squeeze(1)), weights


def torch_model(cfg: dict[str, Any], f: frozenset[str]) -> nn.Module:
    return Packed(cfg["features"], cfg["dim"], cfg["heads"], cfg["inner"])


def heads_of(x: Any, heads: int) -> Any:
    n, size = x.shape[1], x.shape[-1] // heads
    return ops.transpose(ops.reshape(x, (-1, n, heads, size)), (0, 2, 1, 3))


class FourDense(layers.Layer):
    """Attention from four Dense layers; gives the weights averaged over the heads as well."""

    def __init__(self, dim: int, heads: int, f: frozenset[str], name: str) -> None:
        super().__init__(name=name)
        self.heads, self.f = heads, f
        self.wo = layers.Dense(dim, name="wo")
        self.wv, self.wk, self.wq = (layers.Dense(dim, name=n) for n in ("wv", "wk", "wq"))

    def build(self, query_shape: Any, source_shape: Any) -> None:
        for part in (self.wq, self.wk, self.wv, self.wo):
            part.build(query_shape)

    def call(self, query: Any, source: Any, padding: Any = None) -> Any:
        f = self.f
        q, k, v = (heads_of(d(x), self.heads) for d, x in ((self.wq, query), (self.wk, source), (self.wv, source)))
        if "scale_missing" not in f:
            q = q / float(q.shape[-1]) ** 0.5
        scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2)))
        if padding is not None and "mask_missing" not in f:
            bias = ops.cast(padding, scores.dtype)[:, None, None, :]
            scores = scores + bias * (1e9 if "mask_sign" in f else -1e9)
        weights = ops.softmax(scores, axis=1 if "softmax_heads" in f else -1)
        mixed = ops.matmul(weights, v)
        if "heads_not_moved" not in f:
            mixed = ops.transpose(mixed, (0, 2, 1, 3))
        joined = ops.reshape(mixed, (-1, query.shape[1], query.shape[-1]))
        return self.wo(joined), ops.mean(weights, axis=1)


class PreNormBlock(layers.Layer):
    """The encoder layer with one fused projection for query, key and value."""

    def __init__(self, cfg: dict[str, Any], f: frozenset[str], name: str) -> None:
        super().__init__(name=name)
        self.heads, self.f = cfg["heads"], f
        self.before = layers.LayerNormalization(epsilon=1e-3 if "block_eps" in f else 1e-5, name="before")
        self.middle = layers.LayerNormalization(epsilon=1e-5, name="middle")
        self.qkv = layers.Dense(3 * cfg["dim"], use_bias="qkv_bias_dropped" not in f, name="qkv")
        self.merge = layers.Dense(cfg["dim"], name="merge")
        self.grow = layers.Dense(cfg["inner"], activation="relu" if "wrong_activation" in f else "gelu", name="grow")
        self.shrink = layers.Dense(cfg["dim"], name="shrink")

    def call(self, x: Any) -> Any:
        f = self.f
        parts = ops.split(self.qkv(self.before(x)), 3, axis=-1)
        if "split_order" in f:
            parts = [parts[1], parts[2], parts[0]]
        q, k, v = (heads_of(part, self.heads) for part in parts)
        scale = float(x.shape[-1] if "scale_wrong_dim" in f else q.shape[-1]) ** -0.5
        weights = ops.softmax(ops.einsum("bhqd,bhkd->bhqk", q, k) * scale)
        y = ops.einsum("bhqk,bhkd->bqhd", weights, v)
        y = self.merge(ops.reshape(y, (-1, x.shape[1], x.shape[-1])))
        x = y if "residual_missing" in f else x + y
        return x + self.shrink(self.grow(x if "norm_skipped" in f else self.middle(x)))


class PooledModel(keras.Model):
    def __init__(self, cfg: dict[str, Any], f: frozenset[str]) -> None:
        super().__init__(name="pooled_model")
        self.f = f
        dim, heads = cfg["dim"], cfg["heads"]
        in_first = f & {"mask_sign", "softmax_heads", "heads_not_moved"}
        in_pool = f & {"scale_missing", "mask_missing"}
        self.embed = layers.Dense(dim, name="embed")
        self.mixer = FourDense(dim, heads, in_first, "mixer")
        self.mixer_norm = layers.LayerNormalization(epsilon=1e-4 if "norm_eps" in f else 1e-5, name="mixer_norm")
        self.body = PreNormBlock(cfg, f, "body")
        self.summary = FourDense(dim, heads, in_pool, "summary")
        self.seed = self.add_weight(shape=(1, 1, dim), name="seed")
        self.classes = layers.Dense(5, name="classes")

    def call(self, inputs: Any) -> Any:
        x, padding = inputs
        x = self.embed(x)
        y, weights = self.mixer(x, x, padding)
        x = self.mixer_norm(x + y)
        x = self.body(x)
        start = ops.tile(self.seed, (x.shape[0], 1, 1))
        pooled, _ = self.summary(start, x, padding)
        return self.classes(pooled[:, 0]), weights


def keras_model(cfg: dict[str, Any], f: frozenset[str]) -> keras.Model:
    return PooledModel(cfg, f)


def links(t: Any, k: Any) -> list[Link]:
    found = hand.dense(t.inp, k.embed) + hand.norm(t.norm, k.mixer_norm) + hand.dense(t.out, k.classes)
    for a, b in ((t.attn, k.mixer), (t.pool, k.summary)):
        found += hand.packed(a, b.wq, b.wk, b.wv, b.wo)
    own, block = t.block, k.body
    found += [Link([own.self_attn.in_proj_weight], [block.qkv.kernel], lambda v: [v[0].T], lambda v: [v[0].T])]
    found += [hand.linked(own.self_attn.in_proj_bias, block.qkv.bias), hand.linked(t.query, k.seed)]
    found += hand.dense(own.self_attn.out_proj, block.merge) + hand.norm(own.norm1, block.before)
    found += hand.dense(own.linear1, block.grow) + hand.dense(own.linear2, block.shrink)
    return found + (hand.norm(own.norm2, block.middle) if block.middle.built else [])


def spoil(f: frozenset[str], t: Any, k: Any) -> None:
    if "q_k_swapped" in f:
        hand.swap(k.mixer.wq.kernel, k.mixer.wk.kernel)
        hand.swap(k.mixer.wq.bias, k.mixer.wk.bias)
    if "out_transposed" in f:
        hand.change(k.mixer.wo.kernel, np.transpose)
    if "stale" in f:
        hand.change(k.summary.wv.kernel, hand.stale)
    if "half_rounded" in f:
        hand.change(k.body.qkv.kernel, hand.to_half)


def make_inputs(cfg: dict[str, Any], rng: np.random.Generator) -> zoo.Inputs:
    x = rng.standard_normal((len(cfg["lengths"]), cfg["steps"], cfg["features"])).astype(np.float32)
    return x, np.arange(cfg["steps"])[None] >= np.array(cfg["lengths"])[:, None]


ARCH = Arch(
    name="packed_attention", reference="torch", torch_model=torch_model, keras_model=keras_model, links=links,
    spoil=spoil, make_inputs=make_inputs,
    faults={
        "mask_sign": expect("mixer attn", "mask, polarity, invert, sign", "mask polarity"),
        "softmax_heads": expect("mixer attn", "axis", "softmax axis"),
        "scale_missing": expect("summary pool", "scale", "attention scale missing"),
        "mask_missing": expect("summary pool", "mask", "mask missing"),
        "heads_not_moved": expect("mixer attn", "head, layout, split, transpos, reshape", "head split layout"),
        "norm_eps": expect("mixer_norm ^norm", "epsilon, eps", "norm epsilon"),
        "block_eps": expect("before norm1", "epsilon, eps", "norm epsilon"),
        "qkv_bias_dropped": expect("qkv self_attn", "bias, parameter, partner", "parameter dropped"),
        "wrong_activation": expect("grow linear1 block gelu", "relu, gelu, activation", "wrong activation"),
        "split_order": expect("body qkv self_attn block", "order, split, swap, query, permut", "concat order"),
        "scale_wrong_dim": expect("body self_attn block", "scale", "attention scale dimension"),
        "residual_missing": expect("body block", "residual, skip, add", "residual missing"),
        "norm_skipped": expect("middle norm2", "norm, missing, unused, partner, parameter", "layer missing"),
        "q_k_swapped": expect("mixer attn", "swap, exchang", "query and key swapped", keep=True),
        "out_transposed": expect("mixer attn", "transpos", "kernel transposed", keep=True),
        "stale": expect("summary pool", "weight, kernel, stale", "stale weight", keep=True),
        "half_rounded": expect("body self_attn block", "fp16, float16, half, round, precision", "rounded weights",
                               keep=True),
    },
    combos=[("norm_eps", "scale_missing"), ("mask_missing", "block_eps"), ("q_k_swapped", "stale"),
            ("wrong_activation", "scale_wrong_dim", "norm_eps")],
    variants={
        "base": {"steps": 9, "lengths": (9, 5, 2), "features": 11, "dim": 24, "heads": 3, "inner": 37},
        "four": {"steps": 6, "lengths": (4, 6), "features": 7, "dim": 20, "heads": 4, "inner": 29},
    },
    clean=[Clean(), Clean("four"), Clean("four", seed=2, weights="keep"), Clean(flip=True), Clean(seed=3)],
)  # fmt: skip
build, FAULTS = ARCH.build, ARCH.faults
