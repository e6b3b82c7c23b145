"""One BERT in PyTorch and in Keras, written plainly: the pair that the cost of a comparison is measured on."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

import keras  # isort: skip  (after torch: the other order can crash)
from keras import layers, ops  # isort: skip

EPSILON = 1e-12


@dataclass(frozen=True)
class Size:
    """``Size()`` has 100 million weights."""

    layers: int = 12
    dim: int = 768
    heads: int = 12
    inner: int = 3072
    vocabulary: int = 19_300
    positions: int = 512
    batch: int = 2
    length: int = 48


TWO_LAYERS = Size(layers=2, dim=128, heads=4, inner=512, vocabulary=1000, positions=64, batch=2, length=16)


class TorchAttention(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads, self.width = size.heads, size.dim // size.heads
        self.query = nn.Linear(size.dim, size.dim)
        self.key = nn.Linear(size.dim, size.dim)
        self.value = nn.Linear(size.dim, size.dim)
        self.output = nn.Linear(size.dim, size.dim)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(*x.shape[:2], self.heads, self.width).transpose(1, 2)

    def forward(self, x: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.width)
        scores = scores.masked_fill(~allowed[:, None, None, :], -1e9)
        context = torch.softmax(scores, dim=-1) @ v
        return self.output(context.transpose(1, 2).flatten(2))


class TorchBlock(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.attention = TorchAttention(size)
        self.attention_norm = nn.LayerNorm(size.dim, eps=EPSILON)
        self.up = nn.Linear(size.dim, size.inner)
        self.gelu = nn.GELU()
        self.down = nn.Linear(size.inner, size.dim)
        self.norm = nn.LayerNorm(size.dim, eps=EPSILON)

    def forward(self, x: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
        x = self.attention_norm(x + self.attention(x, allowed))
        return self.norm(x + self.down(self.gelu(self.up(x))))


class TorchBert(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.dim)
        self.positions = nn.Embedding(size.positions, size.dim)
        self.norm = nn.LayerNorm(size.dim, eps=EPSILON)
        self.blocks = nn.ModuleList(TorchBlock(size) for _ in range(size.layers))
        self.pooler = nn.Linear(size.dim, size.dim)

    def forward(self, ids: torch.Tensor, allowed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.norm(self.tokens(ids) + self.positions(torch.arange(ids.shape[1])))
        for block in self.blocks:
            x = block(x, allowed)
        return x, torch.tanh(self.pooler(x[:, 0]))


class KerasBlock(layers.Layer):
    """``faults``: "gelu" (the tanh approximation) and "epsilon" (of the second norm)."""

    def __init__(self, size: Size, faults: Collection[str], name: str) -> None:
        super().__init__(name=name)
        self.attention = layers.MultiHeadAttention(size.heads, size.dim // size.heads, name="attention")
        self.attention_norm = layers.LayerNormalization(epsilon=EPSILON, name="attention_norm")
        self.up = layers.Dense(size.inner, name="up")
        self.down = layers.Dense(size.dim, name="down")
        self.norm = layers.LayerNormalization(epsilon=1e-3 if "epsilon" in faults else EPSILON, name="norm")
        self.approximate = "gelu" in faults

    def call(self, x: Any, allowed: Any) -> Any:
        x = self.attention_norm(x + self.attention(x, x, attention_mask=allowed[:, None, :]))
        return self.norm(x + self.down(keras.activations.gelu(self.up(x), approximate=self.approximate)))


class KerasBert(keras.Model):
    def __init__(self, size: Size, faults: dict[int, set[str]]) -> None:
        super().__init__(name="bert")
        self.tokens = layers.Embedding(size.vocabulary, size.dim, name="tokens")
        self.positions = layers.Embedding(size.positions, size.dim, name="positions")
        self.norm = layers.LayerNormalization(epsilon=EPSILON, name="norm")
        self.blocks = [KerasBlock(size, faults.get(n, ()), f"block_{n}") for n in range(size.layers)]
        self.pooler = layers.Dense(size.dim, activation="tanh", name="pooler")

    def call(self, inputs: Any) -> Any:
        ids, allowed = inputs
        x = self.norm(self.tokens(ids) + self.positions(ops.arange(ids.shape[1])))
        for block in self.blocks:
            x = block(x, allowed)
        return x, self.pooler(x[:, 0])


def torch_bert(size: Size) -> nn.Module:
    torch.manual_seed(0)
    return TorchBert(size).eval()


def keras_bert(size: Size, faults: dict[int, set[str]], inputs: tuple[np.ndarray, np.ndarray]) -> Any:
    """Built by one call; ``faults`` by block number."""
    keras.utils.set_random_seed(1)
    model = KerasBert(size, faults)
    model(list(inputs))
    return model


def make_inputs(size: Size) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    ids = rng.integers(1, size.vocabulary, (size.batch, size.length))
    allowed = np.ones(ids.shape, dtype=bool)
    allowed[1, size.length * 3 // 4 :] = False
    return ids, allowed


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())
