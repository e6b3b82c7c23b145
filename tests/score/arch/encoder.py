"""A BERT-like encoder: separate projections by hand in torch, Keras' own MultiHeadAttention in the candidate."""

from __future__ import annotations

import math
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

EPS = 1e-12


class SelfAttention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, dim // heads
        self.query, self.key, self.value = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(*x.shape[:2], self.heads, self.size).permute(0, 2, 1, 3)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.size) + bias
        context = torch.softmax(scores, dim=-1) @ v
        return context.permute(0, 2, 1, 3).flatten(2)


class BertLayer(nn.Module):
    def __init__(self, dim: int, heads: int, inner: int) -> None:
        super().__init__()
        self.attention = SelfAttention(dim, heads)
        self.output = nn.Linear(dim, dim)
        self.norm1 = nn.LayerNorm(dim, eps=EPS)
        self.intermediate = nn.Linear(dim, inner)
        self.project = nn.Linear(inner, dim)
        self.norm2 = nn.LayerNorm(dim, eps=EPS)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        x = self.norm1(x + self.dropout(self.output(self.attention(x, bias))))
        return self.norm2(x + self.dropout(self.project(F.gelu(self.intermediate(x)))))


class Bert(nn.Module):
    def __init__(self, vocab: int, dim: int, heads: int, inner: int, positions: int) -> None:
        super().__init__()
        self.dim = dim
        self.word_embeddings = nn.Embedding(vocab, dim, padding_idx=0)
        self.position_embeddings = nn.Embedding(positions, dim)
        self.norm = nn.LayerNorm(dim, eps=EPS)
        self.layers = nn.ModuleList(BertLayer(dim, heads, inner) for _ in range(2))
        self.pooler = nn.Linear(dim, dim)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        positions = torch.arange(ids.shape[1])
        x = self.norm(self.word_embeddings(ids) * math.sqrt(self.dim) + self.position_embeddings(positions))
        bias = (~mask)[:, None, None, :].to(x.dtype) * -1e9
        for layer in self.layers:
            x = layer(x, bias)
        weight = mask.unsqueeze(-1).to(x.dtype)
        mean = (x * weight).sum(1) / weight.sum(1)
        return torch.tanh(self.pooler(x[:, 0])), mean


def torch_model(cfg: dict[str, Any], f: frozenset[str]) -> nn.Module:
    return Bert(cfg["vocab"], cfg["dim"], cfg["heads"], cfg["inner"], cfg["positions"])


class EncoderBlock(layers.Layer):
    def __init__(self, cfg: dict[str, Any], number: int, f: frozenset[str]) -> None:
        super().__init__(name=f"block_{number}")
        self.f, self.number = f, number
        dim = cfg["dim"]
        self.mha = layers.MultiHeadAttention(cfg["heads"], dim // cfg["heads"], name="mha")
        self.attention_norm = layers.LayerNormalization(epsilon=EPS, name="attention_norm")
        late_epsilon = 1e-5 if "block_eps" in f and number == 1 else EPS
        self.ffn_norm = layers.LayerNormalization(epsilon=late_epsilon, name="ffn_norm")
        self.up = layers.Dense(cfg["inner"], name="up")
        self.down = layers.Dense(dim, use_bias=not ("bias_dropped" in f and number == 0), name="down")
        self.drop = layers.Dropout(0.1, name="drop")

    def call(self, x: Any, allowed: Any = None, training: bool = False) -> Any:
        f, first = self.f, self.number == 0
        attend = None if allowed is None else allowed[:, None, :]
        if "prenorm" in f and not first:
            y = self.attention_norm(x)
            x = x + self.mha(y, y, attention_mask=attend)
            return x + self.down(self.gelu(self.up(self.ffn_norm(x))))
        y = self.drop(self.mha(x, x, attention_mask=attend), training=training)
        x = self.attention_norm(y if "residual_missing" in f and first else x + y)
        y = self.down(self.gelu(self.up(x)))
        return self.ffn_norm(x + self.drop(y, training=True if "dropout_active" in f and not first else training))

    def gelu(self, x: Any) -> Any:
        if "gelu_tanh" in self.f:
            return ops.gelu(x)  # ops.gelu approximates unless told otherwise
        if "wrong_activation" in self.f and self.number == 1:
            return ops.silu(x)
        return keras.activations.gelu(x)


class BertModel(keras.Model):
    def __init__(self, cfg: dict[str, Any], f: frozenset[str]) -> None:
        super().__init__(name="bert_model")
        self.f, self.dim, self.count = f, cfg["dim"], cfg["positions"]
        self.token_table = layers.Embedding(cfg["vocab"], cfg["dim"], name="token_table")
        self.position_table = layers.Embedding(cfg["positions"], cfg["dim"], name="position_table")
        self.first_norm = layers.LayerNormalization(epsilon=1e-3 if "first_eps" in f else EPS, name="first_norm")
        self.blocks = [EncoderBlock(cfg, n, f) for n in range(2)]
        self.pooled = layers.Dense(cfg["dim"], activation=None if "tanh_missing" in f else "tanh", name="pooled")
        self.baked: np.ndarray | None = None
        if "baked" in f:  # evaluated once, with the weights of that moment
            self.position_table.build()
            self.baked = np.array(self.position_table.embeddings)

    def call(self, inputs: Any, training: bool = False) -> Any:
        f = self.f
        ids, mask = inputs
        start = 1 if "position_off_by_one" in f else 0
        places = self.position_table(ops.arange(start, start + ids.shape[1]))
        if self.baked is not None:
            places = self.baked[: ids.shape[1]]
        x = self.token_table(ids)
        if "scale_missing" not in f:
            x = x * np.float32(np.sqrt(self.dim))
        x = self.first_norm(x + places)
        attend = None if "mask_missing" in f else ops.logical_not(mask) if "mask_inverted" in f else mask
        for block in self.blocks:
            x = block(x, allowed=attend, training=training)
        if "mean_over_padding" in f:
            mean = ops.mean(x, axis=1)
        else:
            weight = ops.cast(ops.expand_dims(mask, -1), x.dtype)
            mean = ops.sum(x * weight, axis=1)
            if "sum_for_mean" not in f:
                mean = mean / ops.sum(weight, axis=1)
        return self.pooled(x[:, 1 if "wrong_token" in f else 0]), mean


def keras_model(cfg: dict[str, Any], f: frozenset[str]) -> keras.Model:
    return BertModel(cfg, f)


def links(t: Any, k: Any) -> list[Link]:
    found = hand.embedding(t.word_embeddings, k.token_table) + hand.embedding(t.position_embeddings, k.position_table)
    found += hand.norm(t.norm, k.first_norm) + hand.dense(t.pooler, k.pooled)
    for a, b in zip(t.layers, k.blocks, strict=True):
        found += hand.keras_heads([a.attention.query, a.attention.key, a.attention.value, a.output], b.mha)
        found += hand.norm(a.norm1, b.attention_norm) + hand.norm(a.norm2, b.ffn_norm)
        found += hand.dense(a.intermediate, b.up) + hand.dense(a.project, b.down)
    return found


def spoil(f: frozenset[str], t: Any, k: Any) -> None:
    if "q_k_swapped" in f:
        mha = k.blocks[0].mha
        hand.swap(mha._query_dense.kernel, mha._key_dense.kernel)
        hand.swap(mha._query_dense.bias, mha._key_dense.bias)
    if "stale" in f:
        hand.change(k.blocks[1].up.kernel, hand.stale)
    if "bf16_rounded" in f:
        hand.change(k.pooled.kernel, hand.to_bfloat16)


def make_inputs(cfg: dict[str, Any], rng: np.random.Generator) -> zoo.Inputs:
    ids = rng.integers(1, cfg["vocab"], (cfg["batch"], cfg["steps"]))
    for row, length in enumerate(cfg["lengths"]):
        ids[row, length:] = 0
    return ids.astype(np.int64), ids != 0


ARCH = Arch(
    name="encoder", reference="torch", torch_model=torch_model, keras_model=keras_model, links=links, spoil=spoil,
    make_inputs=make_inputs,
    faults={
        "first_eps": expect("first_norm ^norm$", "epsilon, eps", "norm epsilon"),
        "block_eps": expect("block_1/ffn_norm layers.1.norm2", "epsilon, eps", "norm epsilon"),
        "gelu_tanh": expect("block_ layers. gelu", "approximate, gelu, tanh, erf", "GELU variant"),
        "wrong_activation": expect("block_1 layers.1", "gelu, silu, swish, activation", "wrong activation"),
        "bias_dropped": expect("block_0/down layers.0.project", "bias, parameter, partner", "parameter dropped"),
        "prenorm": expect("block_1 layers.1", "norm, order, pre, residual", "pre- or post-norm"),
        "residual_missing": expect("block_0 layers.0", "residual, skip, add", "residual missing"),
        "dropout_active": expect("block_1 layers.1 drop", "dropout, training, random", "dropout active"),
        "tanh_missing": expect("pooled pooler tanh", "tanh, activation", "missing activation"),
        "position_off_by_one": expect("position arange", "position, off by one, shift, index, offset, input",
                                      "position off by one"),
        "baked": expect("position add first_norm norm", "constant, baked, build, initial, parameter, unused",
                        "baked at build time"),
        "scale_missing": expect("token_table word_embeddings mul first_norm norm",
                                "scale, sqrt, factor, multipl, Mul", "embedding scale missing"),
        "mask_missing": expect("block_ layers. mha attention", "mask", "mask missing"),
        "mask_inverted": expect("block_ layers. mha attention", "mask, polarity, invert", "mask polarity"),
        "mean_over_padding": expect("mean sum div ^$ output", "mask, padding, mean", "mean over padding"),
        "sum_for_mean": expect("mean sum div ^$ output", "mean, sum, div", "sum for mean pooling"),
        "wrong_token": expect("pooled pooler getitem slice", "index, slice, position, token, input, step",
                              "wrong token pooled"),
        "q_k_swapped": expect("block_0/mha layers.0.attention", "swap, exchang", "query and key swapped", keep=True),
        "stale": expect("block_1/up layers.1.intermediate", "weight, kernel, stale", "stale weight", keep=True),
        "bf16_rounded": expect("pooled pooler", "bf16, bfloat16, round, precision", "rounded weights", keep=True),
    },
    combos=[("first_eps", "gelu_tanh"), ("mask_missing", "block_eps"), ("q_k_swapped", "tanh_missing"),
            ("scale_missing", "residual_missing", "mean_over_padding"),
            ("first_eps", "gelu_tanh", "bias_dropped", "position_off_by_one")],
    variants={
        "base": {"batch": 3, "steps": 11, "lengths": (11, 6, 3), "vocab": 47, "dim": 24, "heads": 4, "inner": 40,
                 "positions": 19},
        "tiny": {"batch": 2, "steps": 7, "lengths": (5, 7), "vocab": 29, "dim": 18, "heads": 3, "inner": 31,
                 "positions": 13},
    },
    clean=[Clean(), Clean("tiny"), Clean("tiny", seed=2, weights="keep"), Clean(flip=True), Clean("base", seed=5)],
)  # fmt: skip
build, FAULTS = ARCH.build, ARCH.faults
