"""Two LSTM layers over padded sequences: packed on the torch side, an explicit mask on the Keras side."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import torch
from keras import layers, ops
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.score import hand, zoo
from tests.score.hand import Link
from tests.score.zoo import Arch, Clean, expect


class IntentNet(nn.Module):
    def __init__(self, vocab: int, dim: int, hidden: int, intents: int) -> None:
        super().__init__()
        self.dim = dim
        self.embedding = nn.Embedding(vocab, dim, padding_idx=0)
        self.lstm = nn.LSTM(dim, hidden, num_layers=2, batch_first=True, dropout=0.1)
        self.intent = nn.Linear(hidden, intents)
        self.topic = nn.Linear(hidden, 4)

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mask = ids != 0
        lengths = mask.sum(dim=1)
        x = self.embedding(ids) * self.dim**0.5
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        out, (h, _) = self.lstm(packed)
        out, _ = pad_packed_sequence(out, batch_first=True, total_length=ids.shape[1])
        mean = out.sum(dim=1) / lengths.unsqueeze(1)
        return self.intent(h[-1]), self.topic(mean)


def torch_model(cfg: dict[str, Any], f: frozenset[str]) -> nn.Module:
    return IntentNet(cfg["vocab"], cfg["dim"], cfg["hidden"], cfg["intents"])


class IntentModel(keras.Model):
    def __init__(self, cfg: dict[str, Any], f: frozenset[str]) -> None:
        super().__init__(name="intent_model")
        self.f = f
        self.dim = cfg["dim"]
        gate = "hard_sigmoid" if "hard_gate" in f else "sigmoid"
        self.words = layers.Embedding(cfg["vocab"], cfg["dim"], name="words")
        self.lower = layers.LSTM(cfg["hidden"], return_sequences=True, recurrent_activation=gate, name="lower")
        self.upper = layers.LSTM(cfg["hidden"], return_sequences=True, name="upper",
                                 activation="relu" if "cell_activation" in f else "tanh",
                                 go_backwards="backwards" in f, use_bias="bias_dropped" not in f)  # fmt: skip
        self.pool = layers.GlobalAveragePooling1D(name="pool")
        self.topic_out = layers.Dense(4, name="topic_out")
        self.intent_out = layers.Dense(cfg["intents"], name="intent_out")

    def call(self, ids: Any, training: bool = False) -> Any:
        mask = ops.not_equal(ids, 0)
        x = self.words(ids)
        if "scale_missing" not in self.f:
            x = x * (self.dim**0.5)
        x = self.lower(x) if "mask_missing" in self.f else self.lower(x, mask=mask)
        if "mask_lost" in self.f:
            x = ops.stop_gradient(x)  # freezes the lower layer, and silently drops the mask that Keras hands on
        x = self.upper(x, mask=ops.logical_not(mask)) if "mask_inverted" in self.f else self.upper(x)
        last = x[:, -1]
        pooled = ops.mean(x, axis=1) if "mean_over_padding" in self.f else self.pool(x, mask=mask)
        return self.intent_out(last), self.topic_out(pooled)


def keras_model(cfg: dict[str, Any], f: frozenset[str]) -> keras.Model:
    return IntentModel(cfg, f)


def links(t: Any, k: Any) -> list[Link]:
    return [
        *hand.embedding(t.embedding, k.words), *hand.lstm(t.lstm, k.lower), *hand.lstm(t.lstm, k.upper, "l1"),
        *hand.dense(t.intent, k.intent_out), *hand.dense(t.topic, k.topic_out),
    ]  # fmt: skip


def spoil(f: frozenset[str], t: Any, k: Any) -> None:
    def reorder(w: np.ndarray) -> np.ndarray:
        i, g, c, o = np.split(w, 4, axis=-1)
        return np.concatenate([i, c, g, o], axis=-1)

    if "gate_order" in f:
        cell = k.lower.cell
        for weight in (cell.kernel, cell.recurrent_kernel, cell.bias):
            hand.change(weight, reorder)
    if "second_bias" in f:
        hand.change(k.upper.cell.bias, lambda _: t.lstm.bias_ih_l1.detach().numpy())
    if "stale" in f:
        hand.change(k.intent_out.kernel, hand.stale)
    if "recurrent_transposed" in f:
        hand.change(k.lower.cell.recurrent_kernel, lambda w: t.lstm.weight_hh_l0.detach().numpy().reshape(w.shape))


def make_inputs(cfg: dict[str, Any], rng: np.random.Generator) -> zoo.Inputs:
    ids = rng.integers(1, cfg["vocab"], (cfg["batch"], cfg["steps"]))
    for row, length in enumerate(cfg["lengths"]):
        ids[row, length:] = 0
    return (ids.astype(np.int64),)


ARCH = Arch(
    name="lstm_tagger", reference="torch", torch_model=torch_model, keras_model=keras_model, links=links, spoil=spoil,
    make_inputs=make_inputs,
    faults={
        "hard_gate": expect("lower lstm", "hard, sigmoid, recurrent_activation, activation", "hard-sigmoid variant"),
        "cell_activation": expect("upper lstm", "activation, relu, tanh", "wrong activation"),
        "backwards": expect("upper lstm", "direction, backward, reverse", "direction"),
        "bias_dropped": expect("upper lstm", "bias, parameter, partner", "parameter dropped"),
        "scale_missing": expect("words embedding mul lower", "scale, sqrt, factor, multipl, Mul",
                                "embedding scale missing"),
        "mask_lost": expect("lower upper stop_gradient lstm", "mask, padding", "mask lost"),
        "mask_missing": expect("lower upper lstm", "mask, padding", "mask missing"),
        "mask_inverted": expect("upper lstm", "mask, polarity, invert", "mask polarity"),
        "mean_over_padding": expect("pool mean topic sum div", "mask, padding, mean", "mean over padding"),
        "gate_order": expect("lower lstm", "gate, order", "LSTM gate order", keep=True),
        "second_bias": expect("upper lstm", "bias", "LSTM second bias missing", keep=True),
        "stale": expect("intent", "weight, kernel, stale", "stale weight", keep=True),
        "recurrent_transposed": expect("lower lstm", "transpos, reshap, layout, permut", "kernel transposed",
                                       keep=True),
    },
    combos=[("hard_gate", "mask_missing"), ("mean_over_padding", "stale"),
            ("scale_missing", "second_bias", "mean_over_padding")],
    variants={
        "base": {"batch": 3, "steps": 11, "lengths": (11, 7, 3), "vocab": 41, "dim": 18, "hidden": 22, "intents": 5},
        "short": {"batch": 4, "steps": 7, "lengths": (4, 7, 6, 1), "vocab": 23, "dim": 12, "hidden": 17, "intents": 6},
    },
    clean=[Clean(), Clean("short"), Clean("short", seed=2, weights="keep"), Clean(flip=True, seed=3)],
)  # fmt: skip
build, FAULTS = ARCH.build, ARCH.faults
