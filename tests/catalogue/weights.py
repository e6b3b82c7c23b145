"""Cases whose fault sits in the weights that the candidate has loaded; all other weights are carried over rightly."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import nn

import keras  # isort: skip  (torch first)
from keras import layers, ops  # isort: skip

from tests.catalogue.case import Case, Pair
from tests.catalogue.elsewhere import KerasNet, Net, image, pair, rng
from tests.score import hand
from tests.score.hand import Array, Link


def loaded(reference: nn.Module, candidate: Any, links: Iterable[Link], made: Pair) -> Pair:
    """Random weights in the reference, the same in the candidate, which keeps what it has from here on."""
    hand.randomise_torch(reference, np.random.default_rng(7))
    for link in links:
        hand.transfer(link, True, True)
    made.more["weights"] = "keep"
    return made


def sequence(steps: int = 7, width: int = 5) -> Array:
    return rng().standard_normal((4, steps, width)).astype(np.float32)


def dense_kernel() -> Pair:
    x = rng().standard_normal((4, 8)).astype(np.float32)
    reference = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    candidate = keras.Sequential([layers.Dense(8, activation="relu"), layers.Dense(3)])
    made = pair(reference, candidate, x)
    first, last = candidate.layers
    made = loaded(reference, candidate, hand.dense(reference[0], first) + hand.dense(reference[2], last), made)
    hand.change(first.kernel, lambda w: w.T)
    return made


def conv_kernels() -> Pair:
    """The first kernel is reshaped in place of transposed, in the second height and width change places."""
    x = image(size=9)
    reference = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 3)).eval()
    candidate = keras.Sequential([layers.Conv2D(4, 3, activation="relu"), layers.Conv2D(5, 3)])
    made = pair(reference, candidate, x, channels_last=True)
    first, last = candidate.layers
    made = loaded(reference, candidate, hand.conv(reference[0], first) + hand.conv(reference[2], last), made)
    hand.change(first.kernel, lambda w: w.transpose(3, 2, 0, 1).reshape(w.shape))
    hand.change(last.kernel, lambda w: w.transpose(1, 0, 2, 3))
    return made


def gru_gates() -> Pair:
    """The LSTM in front is right: its gates stand in one order in both frameworks, those of a GRU do not."""
    x = sequence()
    reference = Net(
        lambda m, x: m.out(m.gru(m.lstm(x)[0])[0]),
        lstm=nn.LSTM(5, 6, batch_first=True),
        gru=nn.GRU(6, 6, batch_first=True),
        out=nn.Linear(6, 3),
    ).eval()
    candidate = keras.Sequential(
        [layers.LSTM(6, return_sequences=True), layers.GRU(6, return_sequences=True), layers.Dense(3)]
    )
    made = pair(reference, candidate, x)
    lstm, gru, out = candidate.layers
    links = [*hand.lstm(reference.lstm, lstm), *hand.gru(reference.gru, gru), *hand.dense(reference.out, out)]
    made = loaded(reference, candidate, links, made)
    for weight in (gru.cell.kernel, gru.cell.recurrent_kernel, gru.cell.bias):
        hand.change(weight, lambda w: np.concatenate([w[..., 6:12], w[..., :6], w[..., 12:]], -1))
    return made


def lstm_gates() -> Pair:
    """A checkpoint of TensorFlow 1 (i, j, f, o) read as if it were i, f, g, o."""
    x = sequence()
    reference = Net(lambda m, x: m.out(m.lstm(x)[0]), lstm=nn.LSTM(5, 6, batch_first=True), out=nn.Linear(6, 3)).eval()
    candidate = keras.Sequential([layers.LSTM(6, return_sequences=True), layers.Dense(3)])
    made = pair(reference, candidate, x)
    lstm, out = candidate.layers
    made = loaded(reference, candidate, [*hand.lstm(reference.lstm, lstm), *hand.dense(reference.out, out)], made)
    for weight in (lstm.cell.kernel, lstm.cell.recurrent_kernel, lstm.cell.bias):
        hand.change(weight, lambda w: np.concatenate([w[..., :6], w[..., 12:18], w[..., 6:12], w[..., 18:]], -1))
    return made


HEADS, SIZE = 2, 6


def rotary_table(steps: int) -> tuple[Array, Array]:
    """cos and sin of each position, for pairs (i, i + SIZE / 2)."""
    angle = np.arange(steps)[:, None] / 10.0 ** (np.arange(SIZE // 2) / (SIZE // 2))
    angle = np.concatenate([angle, angle], -1).astype(np.float32)
    return np.cos(angle), np.sin(angle)


def torch_rotary(m: Any, x: torch.Tensor) -> torch.Tensor:
    cos, sin = (torch.tensor(t) for t in rotary_table(x.shape[1]))

    def heads(y: torch.Tensor) -> torch.Tensor:
        return y.reshape(y.shape[0], y.shape[1], HEADS, SIZE).transpose(1, 2)

    def turned(y: torch.Tensor) -> torch.Tensor:
        a, b = y.chunk(2, -1)
        return y * cos + torch.cat([-b, a], -1) * sin

    q, k, v = turned(heads(m.q(x))), turned(heads(m.k(x))), heads(m.v(x))
    y = (q @ k.transpose(-1, -2) / SIZE**0.5).softmax(-1) @ v
    return m.out(y.transpose(1, 2).reshape(x.shape[0], x.shape[1], HEADS * SIZE))


def keras_rotary(m: Any, x: Any) -> Any:
    cos, sin = rotary_table(x.shape[1])

    def heads(y: Any) -> Any:
        return ops.transpose(ops.reshape(y, (y.shape[0], y.shape[1], HEADS, SIZE)), (0, 2, 1, 3))

    def turned(y: Any) -> Any:
        a, b = ops.split(y, 2, -1)
        return y * cos + ops.concatenate([-b, a], -1) * sin

    q, k, v = turned(heads(m.q(x))), turned(heads(m.k(x))), heads(m.v(x))
    y = ops.softmax(q @ ops.swapaxes(k, -1, -2) / SIZE**0.5) @ v
    return m.out(ops.reshape(ops.transpose(y, (0, 2, 1, 3)), (x.shape[0], x.shape[1], HEADS * SIZE)))


def rotary_rows() -> Pair:
    """Both rotate halves; the candidate's checkpoint still has the rows of q and k as neighbouring pairs."""
    x, width = sequence(6, 8), HEADS * SIZE
    parts = {"q": width, "k": width, "v": width, "out": 4}
    reference = Net(torch_rotary, **{n: nn.Linear(width if n == "out" else 8, w) for n, w in parts.items()}).eval()
    candidate = KerasNet(keras_rotary, **{n: layers.Dense(w, name=n) for n, w in parts.items()})
    made = pair(reference, candidate, x)
    links = [link for n in parts for link in hand.dense(getattr(reference, n), getattr(candidate, n))]
    made = loaded(reference, candidate, links, made)
    order = np.arange(width).reshape(HEADS, 2, SIZE // 2).swapaxes(1, 2).reshape(-1)
    for part in (candidate.q, candidate.k):
        hand.change(part.kernel, lambda w: w[:, order])
        hand.change(part.bias, lambda b: b[order])
    return made


def _classifier() -> nn.Module:
    trunk = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 16), nn.LayerNorm(16))
    return nn.Sequential(trunk, nn.Sequential(nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 3)))


def other_prefix() -> Pair:
    """The checkpoint calls the head by another name: read with strict=False, the head stays as it was made."""
    x = rng().standard_normal((4, 16)).astype(np.float32)
    reference, candidate = _classifier().eval(), _classifier().eval()
    hand.randomise_torch(reference, np.random.default_rng(7))
    renamed = {n if n.startswith("0.") else f"head.{n[2:]}": v for n, v in reference.state_dict().items()}
    candidate.load_state_dict(renamed, strict=False)
    return pair(reference, candidate, x, weights="keep")


def statistics() -> Pair:
    """Only what is trainable was carried over."""
    x = image(size=9)
    reference = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 5, 3)).eval()
    norm = layers.BatchNormalization(epsilon=1e-5, momentum=0.9)
    candidate = keras.Sequential([layers.Conv2D(4, 3), norm, layers.ReLU(), layers.Conv2D(5, 3)])
    made = pair(reference, candidate, x, channels_last=True)
    links = hand.conv(reference[0], candidate.layers[0]) + hand.conv(reference[3], candidate.layers[3])
    return loaded(reference, candidate, links + hand.norm(reference[1], norm)[:2], made)


def another_release() -> Pair:
    """One architecture, two trainings of it."""
    x = image(size=9)
    reference = Net(
        lambda m, x: m.out(m.second(m.first(x).relu()).relu().mean((2, 3))),
        first=nn.Conv2d(3, 4, 3),
        second=nn.Conv2d(4, 6, 3),
        out=nn.Linear(6, 3),
    ).eval()
    candidate = keras.Sequential(
        [
            layers.Conv2D(4, 3, activation="relu"),
            layers.Conv2D(6, 3, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(3),
        ]
    )
    made = pair(reference, candidate, x, channels_last=True)
    hand.randomise_torch(reference, np.random.default_rng(7))
    hand.randomise_keras(candidate, np.random.default_rng(8))
    made.more["weights"] = "keep"
    return made


CASES: list[Case] = [
    Case("W01", "Dense kernel not transposed", dense_kernel, ("AMB201",)),
    Case("W02", "Conv kernel order OIHW against HWIO", conv_kernels, ("AMB209", "AMB202")),
    Case("W06", "GRU gate order z,r,h against r,z,n", gru_gates, ("AMB204",)),
    Case("W08", "LSTM gate block order differs per format", lstm_gates, ("AMB204",)),
    Case("W09", "RoPE needs q/k rows permuted between conventions", rotary_rows, ("AMB209",)),
    Case("W11", "Checkpoint names do not match, layers stay random", other_prefix, ("AMB206", "AMB211")),
    Case("W12", "BatchNorm moving mean/variance not transferred", statistics, ("AMB207",)),
    Case("W13", "The published weights are not the same weights", another_release, ("AMB211",)),
]
