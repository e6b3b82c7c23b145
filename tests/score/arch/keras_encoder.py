"""A pre-norm encoder with Keras' implicit masks as the reference; torch with scaled_dot_product_attention."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
import torch
import torch.nn.functional as F
from keras import layers
from torch import nn

from tests.score import hand, zoo
from tests.score.hand import Link
from tests.score.zoo import Arch, Clean, expect


@keras.saving.register_keras_serializable("zoo")
class Positions(layers.Layer):
    def __init__(self, length: int, dim: int, **more: Any) -> None:
        super().__init__(**more)
        self.supports_masking = True
        self.length, self.dim = length, dim

    def build(self, shape: Any) -> None:
        self.embeddings = self.add_weight(shape=(self.length, self.dim), name="embeddings")

    def call(self, x: Any) -> Any:
        return x + self.embeddings[: x.shape[1]]


def keras_model(cfg: dict[str, Any], f: frozenset[str]) -> keras.Model:
    dim, heads = cfg["dim"], cfg["heads"]
    ids = keras.Input((cfg["steps"],), dtype="int64", name="ids")
    x = layers.Embedding(cfg["vocab"], dim, mask_zero=True, name="tokens")(ids)
    x = Positions(cfg["positions"], dim, name="positions")(x)
    for n in range(2):
        y = layers.LayerNormalization(name=f"ln_a{n}")(x)
        y = layers.MultiHeadAttention(heads, dim // heads, name=f"mha{n}")(y, y)
        x = layers.Add(name=f"add_a{n}")([x, layers.Dropout(0.1)(y)])
        y = layers.LayerNormalization(name=f"ln_b{n}")(x)
        y = layers.Dense(cfg["inner"], activation="gelu", name=f"wide{n}")(y)
        y = layers.Dense(dim, name=f"slim{n}")(y)
        x = layers.Add(name=f"add_b{n}")([x, y])
    x = layers.LayerNormalization(epsilon=1e-6, name="ln_last")(x)
    x = layers.GlobalAveragePooling1D(name="mean")(x)
    x = layers.Dense(dim, activation="tanh", name="pre")(x)
    return keras.Model(ids, layers.Dense(cfg["classes"], name="scores")(x), name="keras_encoder")


class TorchBlock(nn.Module):
    def __init__(self, cfg: dict[str, Any], number: int, f: frozenset[str]) -> None:
        super().__init__()
        self.f, self.number, dim = f, number, cfg["dim"]
        self.heads = cfg["heads"]
        self.norm_attn = nn.LayerNorm(dim, eps=1e-5 if "default_eps" in f and number == 0 else 1e-3)
        self.q_proj = nn.Linear(dim, dim)
        self.kv_proj = nn.Linear(dim, 2 * dim)
        self.o_proj = nn.Linear(dim, dim)
        self.norm_mlp = nn.LayerNorm(dim, eps=1e-3)
        self.mlp = nn.Sequential(
            nn.Linear(dim, cfg["inner"]),
            nn.GELU(approximate="tanh" if "gelu_tanh" in f and number == 1 else "none"),
            nn.Linear(cfg["inner"], dim, bias=not ("bias_dropped" in f and number == 1)),
        )

    def forward(self, x: torch.Tensor, keep: torch.Tensor | None) -> torch.Tensor:
        f, b, t = (self.f if self.number == 0 else frozenset()), x.shape[0], x.shape[1]
        y = self.norm_attn(x)
        k, v = self.kv_proj(y).chunk(2, dim=-1)
        if "chunk_order" in f:
            k, v = v, k
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in (self.q_proj(y), k, v))
        if "double_scale" in f:
            q = q / math.sqrt(q.shape[-1])  # scaled_dot_product_attention divides as well
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep, is_causal="causal_added" in f and keep is None)
        if "causal_added" in f and keep is not None:
            causal = torch.ones(t, t, dtype=torch.bool).tril()
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep & causal)
        y = y.reshape(b, t, -1) if "heads_not_moved" in f else y.transpose(1, 2).reshape(b, t, -1)
        y = self.o_proj(y)
        if "dropout_active" in f:
            y = F.dropout(y, 0.1)
        x = x + y
        late = self.f if self.number == 1 else frozenset()
        if "mlp_prenorm_lost" in late:
            return self.norm_mlp(x + self.mlp(x))
        y = self.mlp(self.norm_mlp(x))
        return y if "residual_missing" in late else x + y


class TorchEncoder(nn.Module):
    def __init__(self, cfg: dict[str, Any], f: frozenset[str]) -> None:
        super().__init__()
        self.f, dim = f, cfg["dim"]
        self.tok = nn.Embedding(cfg["vocab"], dim)
        self.pos = nn.Parameter(torch.randn(cfg["positions"], dim) * 0.1)
        self.blocks = nn.ModuleList(TorchBlock(cfg, n, f) for n in range(2))
        self.norm = nn.LayerNorm(dim, eps=1e-3 if "last_eps" in f else 1e-6)
        self.pre = nn.Linear(dim, dim)
        self.head = nn.Linear(dim, cfg["classes"])

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        f, steps = self.f, ids.shape[1]
        valid = ids != 0
        first = 1 if "position_off_by_one" in f else 0
        x = self.tok(ids)
        if "extra_scale" in f:
            x = x * math.sqrt(x.shape[-1])
        x = x + self.pos[first : first + steps]
        keep = (ids == 0 if "mask_inverted" in f else valid)[:, None, None, :]
        for block in self.blocks:
            x = block(x, None if "mask_missing" in f else keep)
        x = self.norm(x)
        if "mean_over_padding" in f:
            x = x.mean(dim=1)
        else:
            x = (x * valid.unsqueeze(-1)).sum(dim=1) / valid.sum(dim=1, keepdim=True)
        x = self.pre(x)
        return self.head(x if "tanh_missing" in f else torch.tanh(x))


def torch_model(cfg: dict[str, Any], f: frozenset[str]) -> nn.Module:
    return TorchEncoder(cfg, f)


def links(t: Any, k: Any) -> list[Link]:
    get = k.get_layer
    found = hand.embedding(t.tok, get("tokens")) + [hand.linked(t.pos, get("positions").embeddings)]
    for n, block in enumerate(t.blocks):
        mha = get(f"mha{n}")
        parts = [mha._key_dense, mha._value_dense]
        shape = tuple(mha._query_dense.kernel.shape)

        def there(v: list[np.ndarray], s: tuple[int, ...] = shape) -> list[np.ndarray]:
            return [*(w.T.reshape(s) for w in np.split(v[0], 2)), *(b.reshape(s[1:]) for b in np.split(v[1], 2))]

        def back(v: list[np.ndarray]) -> list[np.ndarray]:
            width = v[0].shape[0]
            return [np.concatenate([w.reshape(width, -1).T for w in v[:2]]),
                    np.concatenate([b.reshape(-1) for b in v[2:]])]  # fmt: skip

        found.append(Link([block.kv_proj.weight, block.kv_proj.bias],
                          [p.kernel for p in parts] + [p.bias for p in parts], there, back))  # fmt: skip
        four = hand.keras_heads([block.q_proj, block.q_proj, block.q_proj, block.o_proj], mha)
        found += four[:2] + four[6:]
        found += hand.norm(block.norm_attn, get(f"ln_a{n}")) + hand.norm(block.norm_mlp, get(f"ln_b{n}"))
        found += hand.dense(block.mlp[0], get(f"wide{n}")) + hand.dense(block.mlp[2], get(f"slim{n}"))
    found += hand.norm(t.norm, get("ln_last")) + hand.dense(t.pre, get("pre"))
    return found + hand.dense(t.head, get("scores"))


def spoil(f: frozenset[str], t: Any, k: Any) -> None:
    if "q_transposed" in f:
        hand.change(t.blocks[0].q_proj.weight, np.transpose)
    if "stale" in f:
        hand.change(t.blocks[1].mlp[0].weight, hand.stale)
    if "norms_swapped" in f:
        one, two = t.blocks[0].norm_attn, t.blocks[0].norm_mlp
        hand.swap(one.weight, two.weight)
        hand.swap(one.bias, two.bias)
    if "half_rounded" in f:
        hand.change(t.pre.weight, hand.to_half)


def make_inputs(cfg: dict[str, Any], rng: np.random.Generator) -> zoo.Inputs:
    ids = rng.integers(1, cfg["vocab"], (len(cfg["lengths"]), cfg["steps"]))
    for row, length in enumerate(cfg["lengths"]):
        ids[row, length:] = 0
    return (ids.astype(np.int64),)


ARCH = Arch(
    name="keras_encoder", reference="keras", torch_model=torch_model, keras_model=keras_model, links=links,
    spoil=spoil, make_inputs=make_inputs,
    faults={
        "default_eps": expect("blocks.0.norm_attn ln_a0", "epsilon, eps", "norm epsilon"),
        "last_eps": expect("^norm ln_last", "epsilon, eps", "norm epsilon"),
        "gelu_tanh": expect("blocks.1.mlp wide1", "approximate, gelu, tanh, erf", "GELU variant"),
        "bias_dropped": expect("blocks.1.mlp.2 slim1", "bias, parameter, partner", "parameter dropped"),
        "chunk_order": expect("blocks.0 mha0", "order, split, swap, key, value, permut", "concat order"),
        "double_scale": expect("blocks.0 mha0", "scale", "attention scale dimension"),
        "causal_added": expect("blocks.0 mha0", "causal, mask", "causal mask missing"),
        "heads_not_moved": expect("blocks.0 mha0", "head, layout, transpos, reshape, split", "head split layout"),
        "dropout_active": expect("blocks.0 mha0 drop", "dropout, training, random", "dropout active"),
        "mlp_prenorm_lost": expect("blocks.1 ln_b1 add_b1", "norm, order, pre, post, residual", "pre- or post-norm"),
        "residual_missing": expect("blocks.1 add_b1 slim1", "residual, skip, add", "residual missing"),
        "position_off_by_one": expect("pos add tok", "position, off by one, shift, slice, offset, index",
                                      "position off by one"),
        "extra_scale": expect("tok positions mul", "scale, sqrt, factor, multipl, Mul", "embedding scale missing"),
        "mask_inverted": expect("blocks mha", "mask, polarity, invert", "mask polarity"),
        "mask_missing": expect("blocks mha", "mask", "mask missing"),
        "mean_over_padding": expect("mean sum div", "mask, padding, mean", "mean over padding"),
        "tanh_missing": expect("^pre tanh", "tanh, activation", "missing activation"),
        "q_transposed": expect("blocks.0.q_proj mha0", "transpos", "kernel transposed", keep=True),
        "stale": expect("blocks.1.mlp.0 wide1", "weight, kernel, stale", "stale weight", keep=True),
        "norms_swapped": expect("blocks.0.norm ln_[ab]0", "swap, exchang", "weights of two layers swapped", keep=True),
        "half_rounded": expect("^pre", "fp16, float16, half, round, precision", "rounded weights", keep=True),
    },
    combos=[("default_eps", "gelu_tanh"), ("mask_missing", "last_eps"), ("double_scale", "bias_dropped"),
            ("q_transposed", "stale", "tanh_missing"), ("mean_over_padding", "default_eps", "residual_missing")],
    variants={
        "base": {"steps": 11, "lengths": (11, 6, 3), "vocab": 43, "dim": 24, "heads": 4, "inner": 37, "positions": 17,
                 "classes": 5},
        "six": {"steps": 8, "lengths": (8, 5), "vocab": 31, "dim": 18, "heads": 3, "inner": 29, "positions": 11,
                "classes": 7},
    },
    clean=[Clean(), Clean("six"), Clean("six", seed=2, weights="keep"), Clean(flip=True), Clean(seed=4)],
)  # fmt: skip
build, FAULTS = ARCH.build, ARCH.faults
