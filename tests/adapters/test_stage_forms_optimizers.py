"""Canonical optimizers against torch's and Keras' own in float64: 100 updates, rates that change, 1e-9 of the weight.

Hyper-parameters are sums of few powers of two, because Keras passes them through float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import keras  # isort: skip  (torch first)
import tensorflow as tf  # isort: skip

from ambidex.engine.stages import optimizers

STEPS = 100
RATE, HALF, B1, B2, DECAY = 2.0**-5, 0.5, 0.875, 1 - 2.0**-9, 2.0**-4
TINY, SMALL = 1e-30, 2.0**-20
STEADY, CHANGING = [1.0] * STEPS, [1.0] * 20 + [0.25] * 30 + [0.5] * 50
T, K = torch.optim, keras.optimizers
BETAS: dict[str, Any] = {"beta_1": B1, "beta_2": B2}
COUPLED: dict[str, Any] = {"weight_decay": DECAY}
DECOUPLED: dict[str, Any] = {"weight_decay": DECAY, "decoupled": True}


def problem(shape: tuple[int, ...], scale: float = 1.0) -> tuple[np.ndarray, list[np.ndarray]]:
    """A weight and its gradients; one entry never gets any."""
    rng = np.random.default_rng(len(shape))
    gradients = [scale * rng.standard_normal(shape) for _ in range(STEPS)]
    for g in gradients:
        g.flat[0] = 0.0
    return rng.standard_normal(shape), gradients


def of_torch(make: Callable[..., Any], weight: np.ndarray, gradients: Sequence[np.ndarray], shares: Sequence[float]) -> list[np.ndarray]:  # noqa: E501  # fmt: skip
    p = torch.nn.Parameter(torch.tensor(weight))
    optimizer = make([p])
    base, found = optimizer.param_groups[0]["lr"], []
    for g, share in zip(gradients, shares, strict=True):
        optimizer.param_groups[0]["lr"] = base * share
        p.grad = torch.tensor(g)
        optimizer.step()
        found.append(p.detach().numpy().copy())
    return found


def of_keras(make: Callable[[], Any], weight: np.ndarray, gradients: Sequence[np.ndarray], shares: Sequence[float]) -> list[np.ndarray]:  # noqa: E501  # fmt: skip
    v = keras.Variable(weight, dtype="float64")
    optimizer = make()
    base, found = float(optimizer.learning_rate), []
    for g, share in zip(gradients, shares, strict=True):
        optimizer.learning_rate = base * share
        optimizer.apply([tf.constant(g)], [v])
        found.append(v.numpy().copy())
    return found


def of_form(op: str, attrs: dict[str, Any], weight: np.ndarray, gradients: Sequence[np.ndarray], shares: Sequence[float], rate: float = RATE) -> list[np.ndarray]:  # noqa: E501  # fmt: skip
    return optimizers.updates(op, attrs, weight, gradients, [rate * s for s in shares])


def apart(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> float:
    assert len(a) == len(b) == STEPS
    return max(float(np.abs(x - y).max() / np.abs(x).max()) for x, y in zip(a, b, strict=True))


Row = tuple[str, dict[str, Any], Callable[..., Any]]
TORCH: dict[str, Row] = {
    "sgd": ("SGD", COUPLED, lambda p: T.SGD(p, RATE, weight_decay=DECAY)),
    "momentum": ("SGD", {"momentum": B1, **COUPLED}, lambda p: T.SGD(p, RATE, B1, weight_decay=DECAY)),
    "nesterov": ("SGD", {"momentum": B1, "nesterov": True}, lambda p: T.SGD(p, RATE, B1, nesterov=True)),
    "dampening": ("SGD", {"momentum": B1, "dampening": 0.25}, lambda p: T.SGD(p, RATE, B1, dampening=0.25)),
    "adam": ("Adam", {**BETAS, **COUPLED}, lambda p: T.Adam(p, RATE, (B1, B2), weight_decay=DECAY)),
    "adam, epsilon": ("Adam", {**BETAS, "epsilon": HALF}, lambda p: T.Adam(p, RATE, (B1, B2), HALF)),
    "amsgrad": ("Adam", {**BETAS, "amsgrad": True}, lambda p: T.Adam(p, RATE, (B1, B2), amsgrad=True)),
    "adamw": ("Adam", {**BETAS, **DECOUPLED}, lambda p: T.AdamW(p, RATE, (B1, B2), weight_decay=DECAY)),
    "adamax": ("Adamax", {**BETAS, **COUPLED, "epsilon": SMALL, "epsilon_in_max": True},
               lambda p: T.Adamax(p, RATE, (B1, B2), SMALL, DECAY)),
    "nadam": ("Nadam", {**BETAS, **COUPLED}, lambda p: T.NAdam(p, RATE, (B1, B2), weight_decay=DECAY)),
    "nadam, decoupled": ("Nadam", {**BETAS, **DECOUPLED, "momentum_decay": 1.0}, lambda p: T.NAdam(
        p, RATE, (B1, B2), weight_decay=DECAY, momentum_decay=1.0, decoupled_weight_decay=True)),
    "adagrad": ("Adagrad", {"initial": 0.125, "epsilon": SMALL, "rate_decay": 0.25, **COUPLED},
                lambda p: T.Adagrad(p, RATE, 0.25, DECAY, 0.125, SMALL)),
    "rmsprop": ("RMSprop", {"rho": B1, "epsilon": SMALL, **COUPLED}, lambda p: T.RMSprop(p, RATE, B1, SMALL, DECAY)),
    "rmsprop, momentum": ("RMSprop", {"rho": B1, "epsilon": SMALL, "momentum": HALF, "centered": True},
                          lambda p: T.RMSprop(p, RATE, B1, SMALL, momentum=HALF, centered=True)),
    "adadelta": ("Adadelta", {"rho": B1, "epsilon": SMALL, **COUPLED},
                 lambda p: T.Adadelta(p, RATE, B1, SMALL, DECAY)),
    "adafactor": ("Adafactor", {"epsilon_1": SMALL, "epsilon_in_max": True, "epsilon_2": 2.0**-10},
                  lambda p: T.Adafactor(p, RATE, eps=(SMALL, 2.0**-10))),
    "adafactor, decay": ("Adafactor", {**DECOUPLED, "epsilon_1": SMALL, "epsilon_in_max": True,
                                       "epsilon_2": 2.0**-10, "size_before_decay": True, "clip_threshold": 1.5},
                         lambda p: T.Adafactor(p, RATE, eps=(SMALL, 2.0**-10), d=1.5, weight_decay=DECAY)),
}  # fmt: skip
KBETAS = {"learning_rate": RATE, "beta_1": B1, "beta_2": B2}
ADAM: dict[str, Any] = {**BETAS, "epsilon_before_correction": True, "epsilon": SMALL}
KERAS: dict[str, tuple[str, dict[str, Any], Callable[[], Any]]] = {
    "sgd": ("SGD", DECOUPLED, lambda: K.SGD(RATE, weight_decay=DECAY)),
    "momentum": ("SGD", {"momentum": B1, "rate_in_buffer": True}, lambda: K.SGD(RATE, B1)),
    "nesterov": ("SGD", {"momentum": B1, "nesterov": True, "rate_in_buffer": True, **DECOUPLED},
                 lambda: K.SGD(RATE, B1, nesterov=True, weight_decay=DECAY)),
    "adam": ("Adam", {**ADAM, **DECOUPLED}, lambda: K.Adam(epsilon=SMALL, weight_decay=DECAY, **KBETAS)),
    "adam, epsilon": ("Adam", {**ADAM, "epsilon": HALF}, lambda: K.Adam(epsilon=HALF, **KBETAS)),
    "amsgrad": ("Adam", {**ADAM, "amsgrad": True}, lambda: K.Adam(epsilon=SMALL, amsgrad=True, **KBETAS)),
    "adamw": ("Adam", {**ADAM, **DECOUPLED}, lambda: K.AdamW(epsilon=SMALL, weight_decay=DECAY, **KBETAS)),
    "adamax": ("Adamax", {**BETAS, "epsilon": SMALL}, lambda: K.Adamax(epsilon=SMALL, **KBETAS)),
    "nadam": ("Nadam", {**BETAS, "epsilon": SMALL, "momentum_decay": 1.0},
              lambda: K.Nadam(epsilon=SMALL, **KBETAS)),
    "adagrad": ("Adagrad", {"initial": 0.125, "epsilon": SMALL, "epsilon_inside": True},
                lambda: K.Adagrad(RATE, 0.125, SMALL)),
    "rmsprop": ("RMSprop", {"rho": B1, "epsilon": SMALL, "epsilon_inside": True, **DECOUPLED},
                lambda: K.RMSprop(RATE, B1, epsilon=SMALL, weight_decay=DECAY)),
    "rmsprop, momentum": ("RMSprop", {"rho": B1, "epsilon": SMALL, "epsilon_inside": True, "momentum": HALF,
                                      "centered": True, "rate_in_buffer": True},
                          lambda: K.RMSprop(RATE, B1, HALF, SMALL, centered=True)),
    "adadelta": ("Adadelta", {"rho": B1, "epsilon": SMALL, **DECOUPLED},
                 lambda: K.Adadelta(RATE, B1, SMALL, weight_decay=DECAY)),
    "lion": ("Lion", {"beta_1": B1, "beta_2": 0.75, **DECOUPLED}, lambda: K.Lion(RATE, B1, 0.75, weight_decay=DECAY)),
    "adafactor": ("Adafactor", {"epsilon_1": SMALL, "epsilon_2": 2.0**-10, **DECOUPLED},
                  lambda: K.Adafactor(RATE, epsilon_1=SMALL, epsilon_2=2.0**-10, weight_decay=DECAY)),
    "adafactor, relative_step": ("Adafactor", {"epsilon_1": SMALL, "epsilon_2": 2.0**-10}, lambda: K.Adafactor(
        RATE, epsilon_1=SMALL, epsilon_2=2.0**-10, relative_step=False)),
}  # fmt: skip
#: Keras' Nadam takes its 0.96 through float32 for the product of the momenta and through float64 beside it
ROUNDED = {"nadam": 1e-7}


@pytest.mark.parametrize("shape", [(4, 3), (5,)], ids=["matrix", "vector"])
@pytest.mark.parametrize("name", TORCH)
def test_torch(name: str, shape: tuple[int, ...]) -> None:
    op, attrs, make = TORCH[name]
    for shares in (STEADY, CHANGING):
        for scale in (1.0, 2.0**-10):
            weight, gradients = problem(shape, scale)
            found = of_form(op, attrs, weight, gradients, shares)
            assert apart(of_torch(make, weight, gradients, shares), found) <= 1e-9, (shares[-1], scale)


@pytest.mark.parametrize(("shape", "scale"), [((4, 3), 2.0**-10), ((5,), 1.0)], ids=["matrix", "vector"])
@pytest.mark.parametrize("name", KERAS)
def test_keras(name: str, shape: tuple[int, ...], scale: float) -> None:
    op, attrs, make = KERAS[name]
    weight, gradients = problem(shape, scale)
    found = of_form(op, attrs, weight, gradients, CHANGING)
    assert apart(of_keras(make, weight, gradients, CHANGING), found) <= ROUNDED.get(name, 1e-9)


def test_kerass_relative_step_changes_nothing() -> None:
    """The step is the smaller of the rate and 1 / sqrt(t) either way, also at rates where that shows."""
    weight, gradients = problem((4, 3))
    a, b = (of_keras(lambda on=on: K.Adafactor(HALF, relative_step=on), weight, gradients, STEADY)
            for on in (True, False))  # fmt: skip
    assert apart(a, b) == 0.0
    plain = of_form("Adafactor", {"epsilon_1": 1e-30, "epsilon_2": 1e-3}, weight, gradients, STEADY, HALF)
    assert apart(a, plain) <= 1e-9


@dataclass(frozen=True)
class Mapped:
    """The settings with which two optimizers are one, as both sides write them, and their forms."""

    op: str
    torch: Callable[..., Any]
    ours: dict[str, Any]
    keras: Callable[[], Any]
    theirs: dict[str, Any]


TINY_ADAM: dict[str, Any] = {**BETAS, "epsilon": TINY}
KTINY = {**KBETAS, "epsilon": TINY}
RMS: dict[str, Any] = {"rho": B1, "epsilon": TINY}
MAPPED: dict[str, Mapped] = {
    "SGD": Mapped("SGD", lambda p: T.SGD(p, RATE), {}, lambda: K.SGD(RATE), {"rate_in_buffer": True}),
    "SGD, decay without momentum": Mapped(
        "SGD", lambda p: T.SGD(p, RATE, weight_decay=DECAY), COUPLED,
        lambda: K.SGD(RATE, weight_decay=DECAY), DECOUPLED),
    "SGD, momentum": Mapped("SGD", lambda p: T.SGD(p, RATE, B1), {"momentum": B1}, lambda: K.SGD(RATE, B1),
                            {"momentum": B1, "rate_in_buffer": True}),
    "SGD, Nesterov": Mapped(
        "SGD", lambda p: T.SGD(p, RATE, B1, nesterov=True), {"momentum": B1, "nesterov": True},
        lambda: K.SGD(RATE, B1, nesterov=True), {"momentum": B1, "nesterov": True, "rate_in_buffer": True}),
    "Adam": Mapped("Adam", lambda p: T.Adam(p, RATE, (B1, B2), TINY), TINY_ADAM, lambda: K.Adam(**KTINY),
                   {**TINY_ADAM, "epsilon_before_correction": True}),
    "AMSGrad": Mapped(
        "Adam", lambda p: T.Adam(p, RATE, (B1, B2), TINY, amsgrad=True), {**TINY_ADAM, "amsgrad": True},
        lambda: K.Adam(amsgrad=True, **KTINY), {**TINY_ADAM, "amsgrad": True, "epsilon_before_correction": True}),
    "AdamW against Keras' Adam": Mapped(
        "Adam", lambda p: T.AdamW(p, RATE, (B1, B2), TINY, DECAY), {**TINY_ADAM, **DECOUPLED},
        lambda: K.Adam(weight_decay=DECAY, **KTINY), {**TINY_ADAM, **DECOUPLED, "epsilon_before_correction": True}),
    "Adamax": Mapped(
        "Adamax", lambda p: T.Adamax(p, RATE, (B1, B2), TINY), {**TINY_ADAM, "epsilon_in_max": True},
        lambda: K.Adamax(**KTINY), TINY_ADAM),
    "NAdam": Mapped(
        "Nadam", lambda p: T.NAdam(p, RATE, (B1, B2), TINY, momentum_decay=1.0), {**TINY_ADAM, "momentum_decay": 1.0},
        lambda: K.Nadam(**KTINY), {**TINY_ADAM, "momentum_decay": 1.0}),
    "Adagrad": Mapped(
        "Adagrad", lambda p: T.Adagrad(p, RATE, initial_accumulator_value=0.125, eps=TINY),
        {"initial": 0.125, "epsilon": TINY}, lambda: K.Adagrad(RATE, 0.125, TINY),
        {"initial": 0.125, "epsilon": TINY, "epsilon_inside": True}),
    "Adadelta": Mapped(
        "Adadelta", lambda p: T.Adadelta(p, RATE, B1, SMALL), {"rho": B1, "epsilon": SMALL},
        lambda: K.Adadelta(RATE, B1, SMALL), {"rho": B1, "epsilon": SMALL}),
    "RMSprop": Mapped("RMSprop", lambda p: T.RMSprop(p, RATE, B1, TINY), RMS,
                      lambda: K.RMSprop(RATE, B1, epsilon=TINY), {**RMS, "epsilon_inside": True}),
    "RMSprop, momentum, centred": Mapped(
        "RMSprop", lambda p: T.RMSprop(p, RATE, B1, TINY, momentum=HALF, centered=True),
        {**RMS, "momentum": HALF, "centered": True}, lambda: K.RMSprop(RATE, B1, HALF, TINY, centered=True),
        {**RMS, "momentum": HALF, "centered": True, "epsilon_inside": True, "rate_in_buffer": True}),
    "Adafactor": Mapped(
        "Adafactor", lambda p: T.Adafactor(p, RATE, eps=(TINY, 2.0**-10)),
        {"epsilon_1": TINY, "epsilon_in_max": True, "epsilon_2": 2.0**-10},
        lambda: K.Adafactor(RATE, epsilon_1=TINY, epsilon_2=2.0**-10), {"epsilon_1": TINY, "epsilon_2": 2.0**-10}),
}  # fmt: skip
#: what float32 inside Keras leaves between the two frameworks (the forms themselves agree)
FRAMEWORKS_APART = {"NAdam": 1e-7}


@pytest.mark.parametrize("name", MAPPED)
def test_mapped_settings_are_one_optimizer(name: str) -> None:
    """Both frameworks, and both forms, with the mapping of the measured table. Every entry gets gradients: 0 / TINY."""
    case = MAPPED[name]
    rng = np.random.default_rng(3)
    weight, gradients = rng.standard_normal((4, 3)), [rng.standard_normal((4, 3)) for _ in range(STEPS)]
    ours, theirs = (of_form(case.op, a, weight, gradients, STEADY) for a in (case.ours, case.theirs))
    assert apart(ours, theirs) <= 1e-9
    assert apart(of_torch(case.torch, weight, gradients, STEADY), ours) <= 1e-9
    assert apart(of_keras(case.keras, weight, gradients, STEADY), theirs) <= FRAMEWORKS_APART.get(name, 1e-9)


def test_an_epsilon_that_follows_the_bias_correction_is_kerass() -> None:
    """torch's eps = epsilon / sqrt(1 - beta_2^t), set before every step, is Keras' place of epsilon."""
    weight, gradients = problem((4, 3), 2.0**-10)
    p = torch.nn.Parameter(torch.tensor(weight))
    optimizer, found = T.Adam([p], RATE, (B1, B2)), []
    for n, g in enumerate(gradients, start=1):
        optimizer.param_groups[0]["eps"] = SMALL / (1 - B2**n) ** 0.5
        p.grad = torch.tensor(g)
        optimizer.step()
        found.append(p.detach().numpy().copy())
    assert apart(found, of_form("Adam", ADAM, weight, gradients, STEADY)) <= 1e-9
    assert apart(found, of_form("Adam", {**ADAM, "epsilon_before_correction": False}, weight, gradients, STEADY)) > 1e-5


def test_a_buffer_rescaled_at_each_change_of_the_rate_is_kerass() -> None:
    """torch's momentum buffer times old rate / new rate is Keras' velocity, which holds the rate."""
    weight, gradients = problem((4, 3))
    p = torch.nn.Parameter(torch.tensor(weight))
    optimizer, found = T.SGD([p], RATE, B1), []
    for n, g in enumerate(gradients):
        if n and CHANGING[n] != CHANGING[n - 1]:
            optimizer.state[p]["momentum_buffer"] *= CHANGING[n - 1] / CHANGING[n]
        optimizer.param_groups[0]["lr"] = RATE * CHANGING[n]
        p.grad = torch.tensor(g)
        optimizer.step()
        found.append(p.detach().numpy().copy())
    held: dict[str, Any] = {"momentum": B1, "rate_in_buffer": True}
    assert apart(found, of_form("SGD", held, weight, gradients, CHANGING)) <= 1e-9
    assert apart(found, of_form("SGD", {"momentum": B1}, weight, gradients, CHANGING)) > 1e-3


def test_an_l2_penalty_is_coupled_decay() -> None:
    """torch's weight_decay with momentum is a penalty l2 = decay / 2 added to the loss: its gradient is decay * w."""
    weight, gradients = problem((4, 3))
    v, optimizer, found = keras.Variable(weight, dtype="float64"), K.SGD(RATE, B1), []
    for g in gradients:
        optimizer.apply([tf.constant(g) + DECAY * v.value], [v])
        found.append(v.numpy().copy())
    ours = of_torch(lambda p: T.SGD(p, RATE, B1, weight_decay=DECAY), weight, gradients, STEADY)
    assert apart(ours, found) <= 1e-9
    attrs = {"momentum": B1, "rate_in_buffer": True, **COUPLED}
    assert apart(found, of_form("SGD", attrs, weight, gradients, STEADY)) <= 1e-9
