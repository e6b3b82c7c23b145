"""A pre-norm decoder: nn.MultiheadAttention in torch, attention written by hand from Dense and ops in Keras."""

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


def sinusoid(steps: int, dim: int, halves: bool = False, first: int = 0) -> np.ndarray:
    angle = np.arange(first, first + steps)[:, None] / 10000 ** (np.arange(0, dim, 2) / dim)
    if halves:
        return np.concatenate([np.sin(angle), np.cos(angle)], axis=-1).astype(np.float32)
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(steps, dim).astype(np.float32)


class DecoderLayer(nn.Module):
    def __init__(self, dim: int, heads: int, inner: int) -> None:
        super().__init__()
        self.self_attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.cross_attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.linear1, self.linear2 = nn.Linear(dim, inner), nn.Linear(inner, dim)

    def forward(self, x: torch.Tensor, memory: torch.Tensor, causal: torch.Tensor, pad: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        x = x + self.self_attn(y, y, y, attn_mask=causal, need_weights=False)[0]
        y = self.norm2(x)
        x = x + self.cross_attn(y, memory, memory, key_padding_mask=pad, need_weights=False)[0]
        return x + self.linear2(F.relu(self.linear1(self.norm3(x))))


class Decoder(nn.Module):
    def __init__(self, vocab: int, dim: int, heads: int, inner: int, steps: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        pe = torch.from_numpy(sinusoid(steps, dim))
        pe.fixed = True  # no weight: the zoo must not draw it anew
        self.register_buffer("pe", pe)
        self.memory_norm = nn.LayerNorm(dim)
        self.layers = nn.ModuleList(DecoderLayer(dim, heads, inner) for _ in range(2))
        self.final_norm = nn.LayerNorm(dim)

    def forward(self, ids: torch.Tensor, memory: torch.Tensor, memory_padding: torch.Tensor) -> torch.Tensor:
        steps = ids.shape[1]
        x = self.embed(ids) + self.pe[:steps]
        memory = self.memory_norm(memory)
        causal = torch.triu(torch.ones(steps, steps, dtype=torch.bool), diagonal=1)
        for layer in self.layers:
            x = layer(x, memory, causal, memory_padding)
        return F.linear(self.final_norm(x), self.embed.weight)


def torch_model(cfg: dict[str, Any], f: frozenset[str]) -> nn.Module:
    return Decoder(cfg["vocab"], cfg["dim"], cfg["heads"], cfg["inner"], cfg["max_steps"])


class Heads(layers.Layer):
    """Scaled dot-product attention over heads, by hand."""

    def __init__(self, dim: int, heads: int, f: frozenset[str], name: str) -> None:
        super().__init__(name=name)
        self.dim, self.heads, self.f = dim, heads, f
        self.to_q, self.to_k = layers.Dense(dim, name="to_q"), layers.Dense(dim, name="to_k")
        self.to_v, self.to_out = layers.Dense(dim, name="to_v"), layers.Dense(dim, name="to_out")

    def split(self, x: Any) -> Any:
        steps, size = x.shape[1], self.dim // self.heads
        if "heads_interleaved" in self.f:
            return ops.transpose(ops.reshape(x, (-1, steps, size, self.heads)), (0, 3, 1, 2))
        return ops.transpose(ops.reshape(x, (-1, steps, self.heads, size)), (0, 2, 1, 3))

    def call(self, x: Any, source: Any, allowed: Any = None) -> Any:
        q, k, v = self.split(self.to_q(x)), self.split(self.to_k(source)), self.split(self.to_v(source))
        scores = ops.einsum("bhqd,bhkd->bhqk", q, k)
        width = self.dim if "scale_wrong_dim" in self.f else self.dim // self.heads
        if "attention_scale_missing" not in self.f:
            scores = scores * (1.0 / width**0.5)
        if allowed is not None:
            scores = ops.where(allowed, scores, -1e9)
        weights = ops.softmax(scores, axis=-2 if "attention_softmax_axis" in self.f else -1)
        y = ops.transpose(ops.matmul(weights, v), (0, 2, 1, 3))
        return self.to_out(ops.reshape(y, (-1, x.shape[1], self.dim)))


class Block(layers.Layer):
    def __init__(self, cfg: dict[str, Any], number: int, f: frozenset[str]) -> None:
        super().__init__(name=f"layer_{number}")
        self.f, self.first = f, number == 0
        dim = cfg["dim"]
        # faults of the self-attention sit in the first block, those of the cross-attention in the second
        own = f & {"attention_scale_missing", "heads_interleaved"} if self.first else frozenset()
        other = frozenset() if self.first else f & {"scale_wrong_dim", "attention_softmax_axis"}
        self.look_back = Heads(dim, cfg["heads"], own, "look_back")
        self.look_across = Heads(dim, cfg["heads"], other, "look_across")
        eps = 1e-4 if "norm_eps" in f and self.first else 1e-5
        self.norm_a = layers.LayerNormalization(epsilon=1e-3 if "default_eps" in f and not self.first else 1e-5,
                                                name="norm_a")  # fmt: skip
        self.norm_b = layers.LayerNormalization(epsilon=eps, name="norm_b")
        self.norm_c = layers.LayerNormalization(epsilon=1e-5, name="norm_c")
        self.widen = layers.Dense(cfg["inner"], name="widen",
                                  activation="gelu" if "wrong_activation" in f and self.first else "relu")  # fmt: skip
        self.narrow = layers.Dense(dim, name="narrow")

    def call(self, x: Any, memory: Any, causal: Any, known: Any) -> Any:
        f = self.f
        if "postnorm" in f and not self.first:
            x = self.norm_a(x + self.look_back(x, x, allowed=causal))
            x = self.norm_b(x + self.look_across(x, memory, allowed=known))
            return self.norm_c(x + self.narrow(self.widen(x)))
        y = self.norm_a(x)
        x = x + self.look_back(y, y, allowed=None if "causal_missing" in f and self.first else causal)
        y = self.norm_b(x)
        y = self.look_across(y, memory, allowed=None if "cross_mask_missing" in f and not self.first else known)
        x = y if "residual_missing" in f and self.first else x + y
        return x + self.narrow(self.widen(self.norm_c(x)))


class DecoderModel(keras.Model):
    def __init__(self, cfg: dict[str, Any], f: frozenset[str]) -> None:
        super().__init__(name="decoder_model")
        self.f = f
        self.words = layers.Embedding(cfg["vocab"], cfg["dim"], name="words")
        self.table = sinusoid(cfg["max_steps"], cfg["dim"], "position_halves" in f, int("position_off_by_one" in f))
        self.memory_scaled = layers.LayerNormalization(epsilon=1e-5, name="memory_scaled")
        self.stack = [Block(cfg, n, f) for n in range(2)]
        self.last_norm = layers.LayerNormalization(epsilon=1e-5, name="last_norm")

    def call(self, inputs: Any) -> Any:
        ids, memory, padding = inputs
        steps = ids.shape[1]
        x = self.words(ids) + self.table[:steps]
        if "memory_norm_missing" not in self.f:
            memory = self.memory_scaled(memory)
        causal = ops.tril(ops.ones((steps, steps), dtype="bool"), k=1 if "causal_off_by_one" in self.f else 0)
        known = ops.logical_not(padding)[:, None, None, :]
        if "cross_mask_inverted" in self.f:
            known = padding[:, None, None, :]
        for block in self.stack:
            x = block(x, memory, causal, known)
        return ops.matmul(self.last_norm(x), ops.transpose(self.words.embeddings))


def keras_model(cfg: dict[str, Any], f: frozenset[str]) -> keras.Model:
    return DecoderModel(cfg, f)


def links(t: Any, k: Any) -> list[Link]:
    found = hand.embedding(t.embed, k.words) + hand.norm(t.final_norm, k.last_norm)
    if k.memory_scaled.built:
        found += hand.norm(t.memory_norm, k.memory_scaled)
    for a, b in zip(t.layers, k.stack, strict=True):
        for own, other in ((a.self_attn, b.look_back), (a.cross_attn, b.look_across)):
            found += hand.packed(own, other.to_q, other.to_k, other.to_v, other.to_out)
        found += hand.norm(a.norm1, b.norm_a) + hand.norm(a.norm2, b.norm_b) + hand.norm(a.norm3, b.norm_c)
        found += hand.dense(a.linear1, b.widen) + hand.dense(a.linear2, b.narrow)
    return found


def spoil(f: frozenset[str], t: Any, k: Any) -> None:
    if "q_k_swapped" in f:
        attention = k.stack[1].look_back
        hand.swap(attention.to_q.kernel, attention.to_k.kernel)
        hand.swap(attention.to_q.bias, attention.to_k.bias)
    if "kernel_transposed" in f:
        hand.change(k.stack[0].look_across.to_out.kernel, np.transpose)
    if "half_rounded" in f:
        hand.change(k.stack[1].narrow.kernel, hand.to_half)


def make_inputs(cfg: dict[str, Any], rng: np.random.Generator) -> zoo.Inputs:
    ids = rng.integers(0, cfg["vocab"], (cfg["batch"], cfg["steps"])).astype(np.int64)
    memory = rng.standard_normal((cfg["batch"], cfg["memory"], cfg["dim"])).astype(np.float32) * 1.7
    padding = np.arange(cfg["memory"])[None] >= np.array(cfg["lengths"])[:, None]
    return ids, memory, padding


ARCH = Arch(
    name="decoder", reference="torch", torch_model=torch_model, keras_model=keras_model, links=links, spoil=spoil,
    make_inputs=make_inputs,
    faults={
        "attention_scale_missing": expect("layer_0/look_back layers.0.self_attn", "scale",
                                          "attention scale missing"),
        "scale_wrong_dim": expect("layer_1/look_across layers.1.cross_attn", "scale", "attention scale dimension"),
        "heads_interleaved": expect("layer_0/look_back layers.0.self_attn", "head, interleav, layout, split, reshape",
                                    "head split layout"),
        "attention_softmax_axis": expect("layer_1/look_across layers.1.cross_attn", "axis", "softmax axis"),
        "norm_eps": expect("layer_0/norm_b layers.0.norm2", "epsilon, eps", "norm epsilon"),
        "default_eps": expect("layer_1/norm_a layers.1.norm1", "epsilon, eps", "norm epsilon"),
        "wrong_activation": expect("layer_0/widen layers.0.linear1 layers.0 relu", "relu, gelu, activation",
                                   "wrong activation"),
        "postnorm": expect("layer_1 layers.1", "norm, order, pre, post, residual", "pre- or post-norm"),
        "causal_missing": expect("layer_0/look_back layers.0.self_attn", "causal, mask", "causal mask missing"),
        "causal_off_by_one": expect("look_back self_attn tril causal", "causal, mask, off by one, diagonal",
                                    "causal mask off by one"),
        "cross_mask_missing": expect("layer_1/look_across layers.1.cross_attn", "mask", "mask missing"),
        "cross_mask_inverted": expect("look_across cross_attn", "mask, polarity, invert", "mask polarity"),
        "residual_missing": expect("layer_0 layers.0", "residual, skip, add", "residual missing"),
        "position_halves": expect("pe add words embed const ^$", "position, sin, constant, interleav, table",
                                  "position layout"),
        "position_off_by_one": expect("pe add words embed const ^$", "position, off by one, shift, constant, table",
                                      "position off by one"),
        "memory_norm_missing": expect("memory", "norm, missing, partner, parameter, unused", "layer missing"),
        "q_k_swapped": expect("layer_1/look_back layers.1.self_attn", "swap, exchang", "query and key swapped",
                              keep=True),
        "kernel_transposed": expect("layer_0/look_across layers.0.cross_attn", "transpos", "kernel transposed",
                                    keep=True),
        "half_rounded": expect("layer_1/narrow layers.1.linear2", "fp16, float16, half, round, precision",
                               "rounded weights", keep=True),
    },
    combos=[("attention_scale_missing", "norm_eps"), ("causal_missing", "scale_wrong_dim"),
            ("cross_mask_missing", "wrong_activation", "default_eps"), ("q_k_swapped", "kernel_transposed"),
            ("heads_interleaved", "attention_softmax_axis", "norm_eps", "half_rounded")],
    variants={
        "base": {"batch": 3, "steps": 7, "memory": 10, "lengths": (10, 6, 3), "vocab": 37, "dim": 24, "heads": 3,
                 "inner": 41, "max_steps": 16},
        "wide": {"batch": 2, "steps": 9, "memory": 5, "lengths": (5, 4), "vocab": 29, "dim": 20, "heads": 5,
                 "inner": 30, "max_steps": 12},
    },
    clean=[Clean(), Clean("wide"), Clean("wide", seed=3, weights="keep"), Clean(flip=True), Clean(seed=6)],
)  # fmt: skip
build, FAULTS = ARCH.build, ARCH.faults
