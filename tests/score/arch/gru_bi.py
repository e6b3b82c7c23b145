"""Two bidirectional GRUs: Keras' wrapper that sums for the first, two hand-placed directions for the second."""

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


class BiGru(nn.Module):
    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.norm = nn.LayerNorm(features)
        self.gru1 = nn.GRU(features, hidden, batch_first=True, bidirectional=True)
        self.gru2 = nn.GRU(hidden, hidden, batch_first=True, bidirectional=True)
        self.step_head = nn.Linear(2 * hidden, 3)
        self.head = nn.Linear(2 * hidden, classes)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        both, _ = self.gru1(self.norm(x))
        merged = both[..., : self.hidden] + both[..., self.hidden :]
        out, h = self.gru2(merged)
        summary = torch.cat([h[0], h[1]], dim=-1)
        return self.step_head(out), torch.log_softmax(self.head(summary), dim=-1)


def torch_model(cfg: dict[str, Any], f: frozenset[str]) -> nn.Module:
    return BiGru(cfg["features"], cfg["hidden"], cfg["classes"])


def keras_model(cfg: dict[str, Any], f: frozenset[str]) -> keras.Model:
    hidden = cfg["hidden"]
    signal = keras.Input((None, cfg["features"]), name="signal")
    x = layers.LayerNormalization(epsilon=1e-3 if "norm_eps" in f else 1e-5, name="scaled")(signal)
    x = layers.Bidirectional(
        layers.GRU(hidden, return_sequences=True, reset_after="reset_before" not in f, name="first_gru"),
        merge_mode="ave" if "merge_mode" in f else "sum", name="first",
    )(x)  # fmt: skip
    forward = layers.GRU(hidden, return_sequences=True, name="second_ahead")(x)
    backward = layers.GRU(hidden, return_sequences=True, go_backwards=True, name="second_back",
                          activation="sigmoid" if "candidate_activation" in f else "tanh")(x)  # fmt: skip
    turned = backward if "not_turned" in f else layers.Lambda(lambda v: ops.flip(v, axis=1), name="turn")(backward)
    steps = layers.Concatenate(name="both")([turned, forward] if "concat_order" in f else [forward, turned])
    per_step = layers.Dense(3, use_bias="bias_dropped" not in f, name="per_step")(steps)
    ahead = layers.Lambda(lambda v: v[:, -1], name="ahead_last")(forward)
    # the backward direction has read everything at its own last step, which is the first step in time
    position = 0 if "backward_summary" in f else -1
    behind = layers.Lambda(lambda v: v[:, position], name="back_last")(backward)
    summary = layers.Concatenate(name="summary")([ahead, behind])
    scores = layers.Dense(cfg["classes"], name="scores")(summary)
    if "log_missing" in f:
        logp = layers.Softmax(name="log_probability")(scores)
    else:
        logp = layers.Activation("log_softmax", name="log_probability")(scores)
    return keras.Model(signal, [per_step, logp], name="bigru")


def links(t: Any, k: Any) -> list[Link]:
    get = k.get_layer
    return [
        *hand.norm(t.norm, get("scaled")), *hand.gru(t.gru1, get("first").forward_layer),
        *hand.gru(t.gru1, get("first").backward_layer, "l0_reverse"), *hand.gru(t.gru2, get("second_ahead")),
        *hand.gru(t.gru2, get("second_back"), "l0_reverse"), *hand.dense(t.step_head, get("per_step")),
        *hand.dense(t.head, get("scores")),
    ]  # fmt: skip


def spoil(f: frozenset[str], t: Any, k: Any) -> None:
    get = k.get_layer

    def reorder(w: np.ndarray) -> np.ndarray:
        z, r, n = np.split(w, 3, axis=-1)
        return np.concatenate([r, z, n], axis=-1)

    if "gate_order" in f:
        cell = get("second_ahead").cell
        for weight in (cell.kernel, cell.recurrent_kernel, cell.bias):
            hand.change(weight, reorder)
    if "directions_swapped" in f:
        ahead, back = get("second_ahead").cell, get("second_back").cell
        for name in ("kernel", "recurrent_kernel", "bias"):
            hand.swap(getattr(ahead, name), getattr(back, name))
    if "recurrent_bias_left" in f:
        hand.change(get("first").forward_layer.cell.bias, lambda b: np.stack([b[0], np.zeros_like(b[1])]))
    if "half_rounded" in f:
        hand.change(get("second_back").cell.kernel, hand.to_half)


def make_inputs(cfg: dict[str, Any], rng: np.random.Generator) -> zoo.Inputs:
    return (rng.standard_normal((cfg["batch"], cfg["steps"], cfg["features"])).astype(np.float32),)


ARCH = Arch(
    name="gru_bi", reference="torch", torch_model=torch_model, keras_model=keras_model, links=links, spoil=spoil,
    make_inputs=make_inputs,
    faults={
        "norm_eps": expect("scaled norm", "epsilon, eps", "norm epsilon"),
        "reset_before": expect("first gru1", "reset_after, linear_before_reset, reset", "GRU reset_after"),
        "merge_mode": expect("first gru1", "merge, sum, ave", "bidirectional merge"),
        "candidate_activation": expect("second_back gru2", "activation, tanh, sigmoid", "wrong activation"),
        "not_turned": expect("turn both second_back gru2 per_step step_head", "flip, reverse, order, direction, turn",
                             "bidirectional merge"),
        "concat_order": expect("both per_step step_head gru2", "order, concat", "concat order"),
        "bias_dropped": expect("per_step step_head", "bias, parameter, partner", "parameter dropped"),
        "backward_summary": expect("back_last summary head scores gru2", "backward, last step, summary, state, index",
                                   "backward summary from last step"),
        "log_missing": expect("log_probability log_softmax", "log, softmax", "wrong activation"),
        "gate_order": expect("second_ahead gru2", "gate, order", "GRU gate order", keep=True),
        "directions_swapped": expect("second_ahead second_back gru2", "swap, exchang, direction",
                                     "weights of two layers swapped", keep=True),
        "recurrent_bias_left": expect("first gru1", "bias", "LSTM second bias missing", keep=True),
        "half_rounded": expect("second_back gru2", "fp16, float16, half, round, precision", "rounded weights",
                               keep=True),
    },
    combos=[("norm_eps", "gate_order"), ("merge_mode", "backward_summary"),
            ("reset_before", "bias_dropped", "log_missing")],
    variants={
        "base": {"batch": 3, "steps": 9, "features": 13, "hidden": 17, "classes": 5},
        "long": {"batch": 2, "steps": 14, "features": 7, "hidden": 19, "classes": 6},
    },
    clean=[Clean(), Clean("long"), Clean("long", seed=2, weights="keep"), Clean(flip=True)],
)  # fmt: skip
build, FAULTS = ARCH.build, ARCH.faults
