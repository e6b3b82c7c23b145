"""What the table of single layers is written with: cells, small modules, and how their weights go over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from keras import layers, ops
from torch import nn

from tests.score import hand
from tests.score.hand import Link

Carry = Callable[[Any, Any], list[Link]]


@dataclass(frozen=True)
class Cell:
    torch: Callable[[], Any]
    keras: Callable[[], list[Any]]
    shape: tuple[int, ...] = (3, 5, 9)
    carry: Carry | None = None
    image: bool = False
    ids: int = 0


class Function(nn.Module):
    """A function of torch as a module."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


class Last(nn.Module):
    """A recurrent layer of which the outputs count, or the last one."""

    def __init__(self, layer: nn.Module, last: bool = False) -> None:
        super().__init__()
        self.layer = layer
        self.last = last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)[0]
        return y[:, -1] if self.last else y


class Attend(nn.Module):
    def __init__(self, **more: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(12, 3, batch_first=True, **more)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.attention(x, x, x, need_weights=False)[0]
        return y


class AttendKeras(layers.Layer):
    def __init__(self, **more: Any) -> None:
        super().__init__()
        self.attention = layers.MultiHeadAttention(3, 4, **more)

    def build(self, shape: Any) -> None:
        self.attention.build(shape, shape)

    def call(self, x: Any) -> Any:
        return self.attention(x, x)


def pad_reflect(x: Any) -> Any:
    return ops.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)], mode="reflect")


def of_first(part: Callable[[Any, Any], list[Link]]) -> Carry:
    """The torch layer and the Keras layer that has weights."""
    return lambda t, k: part(t, next(x for x in k.layers if x.weights))


def multiplied(t: Any, k: Any) -> list[Link]:
    layer = k.layers[-1]
    shape = tuple(layer.kernel.shape)  # (h, w, channels, multiplier)

    def there(v: list[np.ndarray]) -> list[np.ndarray]:
        return [v[0].reshape(shape[2], shape[3], *shape[:2]).transpose(2, 3, 0, 1)]

    def back(v: list[np.ndarray]) -> list[np.ndarray]:
        return [v[0].transpose(2, 3, 0, 1).reshape(-1, 1, *shape[:2])]

    return [Link([t.weight], [layer.kernel], there, back), hand.linked(t.bias, layer.bias)]


def separable(t: Any, k: Any) -> list[Link]:
    layer = k.layers[-1]
    return [
        Link([t[0].weight], [layer.depthwise_kernel], lambda v: [v[0][:, 0].transpose(1, 2, 0)[..., None]],
             lambda v: [v[0][..., 0].transpose(2, 0, 1)[:, None]]),
        Link([t[1].weight], [layer.pointwise_kernel], lambda v: [v[0].transpose(2, 3, 1, 0)],
             lambda v: [v[0].transpose(3, 2, 0, 1)]),
        hand.linked(t[1].bias, layer.bias),
    ]  # fmt: skip


def bidirectional(part: Callable[..., list[Link]]) -> Carry:
    def carry(t: Any, k: Any) -> list[Link]:
        both = k.layers[-1]
        return [*part(t.layer, both.forward_layer), *part(t.layer, both.backward_layer, "l0_reverse")]

    return carry


def simple(t: Any, k: Any) -> list[Link]:
    return hand.lstm(t.layer, k.layers[-1])


def prelu(t: Any, k: Any) -> list[Link]:
    alpha = k.layers[-1].alpha
    shape = tuple(alpha.shape)
    return [Link([t.weight], [alpha], lambda v: [np.broadcast_to(v[0], shape).copy()], lambda v: [v[0].reshape(-1)])]


def heads(t: Any, k: Any) -> list[Link]:
    return hand.packed_heads(t.attention, k.layers[-1].attention)


def inner(part: Callable[..., list[Link]]) -> Carry:
    return lambda t, k: part(t.layer, k.layers[-1])


CONV = of_first(hand.conv)
DENSE = of_first(hand.dense)
NORM = of_first(hand.norm)
IMAGE: tuple[int, ...] = (2, 4, 9, 8)
