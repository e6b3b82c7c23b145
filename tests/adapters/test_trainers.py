"""Both trainers against plain loops of their own framework; nothing of a model is changed by them."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch
from torch import nn

from ambidex.adapters import keras_, torch_
from ambidex.core.training import Example
from ambidex.errors import InputError, RunError, UnsupportedError

RNG = np.random.default_rng(1)
X = RNG.standard_normal((16, 6)).astype(np.float32)
Y = RNG.integers(0, 3, 16)
BATCHES = [(X[i : i + 4], Y[i : i + 4]) for i in range(0, 16, 4)]
EXAMPLES = [Example([x], y) for x, y in BATCHES]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.n, self.b = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.dropout(torch.relu(self.n(self.a(x))), 0.4, self.training)
        return self.b(self.drop(x))


def net() -> Net:
    torch.manual_seed(0)
    module = Net().eval()
    for p in module.modules():
        if isinstance(p, nn.Dropout):
            p.p = 0.5
    return module


def keras_net(dropout: float = 0.5) -> keras.Model:
    keras.utils.set_random_seed(0)
    x = i = keras.Input((6,))
    x = keras.layers.Dense(8, name="a")(x)
    x = keras.layers.BatchNormalization(name="n")(x)
    x = keras.layers.Dropout(dropout)(keras.layers.ReLU()(x))
    return keras.Model(i, keras.layers.Dense(3, name="b")(x))


def without_dropout(model: keras.Model) -> keras.Model:
    plain = keras_net(0.0)
    for name in ("a", "n", "b"):
        plain.get_layer(name).set_weights(model.get_layer(name).get_weights())
    return plain


def sgd(p: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(p, 0.1, momentum=0.9)


GIVEN = {"loss": nn.CrossEntropyLoss(), "optimizer": sgd}
KERAS_GIVEN = {
    "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    "optimizer": keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=0.1),
}


def everything(model: Any) -> dict[str, np.ndarray]:
    return {n: np.array(a) for n, a in model.weights().items()}


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[n], b[n]) for n in a)


# ---------------------------------------------------------------------------------------------------------------- torch
@pytest.mark.parametrize("training", [False, True])
def test_torch_gradients_are_those_of_autograd_without_dropout(training: bool) -> None:
    module = net()
    model = torch_.wrap(module)
    before, state = everything(model), torch.get_rng_state()
    got = torch_.trainer(model, GIVEN).gradients(EXAMPLES[0], training=training)
    assert same(everything(model), before) and torch.equal(torch.get_rng_state(), state) and not module.training
    plain = net().train(training)
    plain.drop.p = 0.0
    plain.forward = lambda x: plain.b(torch.relu(plain.n(plain.a(x))))  # type: ignore[method-assign]
    loss = nn.functional.cross_entropy(plain(torch.tensor(BATCHES[0][0])), torch.tensor(BATCHES[0][1]))
    loss.backward()
    assert got.loss == pytest.approx(float(loss), rel=1e-6)
    for name, p in plain.named_parameters():
        assert p.grad is not None
        np.testing.assert_allclose(got.weights[name], p.grad.numpy(), rtol=1e-5, atol=1e-7)
    assert set(got.updates) == ({"n.running_mean", "n.running_var", "n.num_batches_tracked"} if training else set())


def test_torch_gradients_of_calls_have_the_keys_of_a_recorded_run() -> None:
    model = torch_.wrap(net())
    recorded = {c.key for c in model.run([X]).calls}
    got = torch_.trainer(model, GIVEN).gradients(Example([X], Y))
    assert {"a#0", "n#0", "b#0"} <= set(got.calls) <= recorded


def test_torch_gradients_from_given_ones_need_neither_loss_nor_targets() -> None:
    model = torch_.wrap(net())
    seeds = {"0": np.ones((16, 3), np.float32)}
    got = torch_.trainer(model, {}).gradients(Example([X], None), seeds=seeds)
    np.testing.assert_allclose(got.weights["b.bias"], 16.0, rtol=1e-6)
    assert np.isnan(got.loss)


def test_torch_steps_are_those_of_a_loop() -> None:
    model = torch_.wrap(net())
    before = everything(model)
    given = {**GIVEN, "clip": lambda p: nn.utils.clip_grad_norm_(p, 0.1), "accumulate": 2,
             "scheduler": lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.5)}  # fmt: skip
    got = torch_.trainer(model, given).steps(EXAMPLES)
    assert same(everything(model), before)
    plain = net().train()
    optimizer = sgd(plain.parameters())
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    plain.forward = lambda x: plain.b(torch.relu(plain.n(plain.a(x))))  # type: ignore[method-assign]
    losses = []
    for n, (x, y) in enumerate(BATCHES, start=1):
        loss = nn.functional.cross_entropy(plain(torch.tensor(x)), torch.tensor(y))
        losses.append(float(loss))
        (loss / 2).backward()
        if n % 2 == 0:
            nn.utils.clip_grad_norm_(plain.parameters(), 0.1)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    np.testing.assert_allclose(got.losses, losses, rtol=1e-6)
    for name, t in [*plain.named_parameters(), *plain.named_buffers()]:
        np.testing.assert_allclose(got.weights[name], t.detach().numpy(), rtol=1e-5, atol=1e-7)


def test_torch_outputs_by_name_are_given_back_as_they_came() -> None:
    seen: list[Any] = []

    def loss(out: Any, y: Any) -> torch.Tensor:
        seen.append(out)
        return sum(t.sum() for t in (out.values() if isinstance(out, dict) else out))

    trainer = torch_.trainer(torch_.wrap(net()), {"loss": loss})
    trainer.loss({"0": X, "1": X}, None)
    trainer.loss({"logits": X}, None)
    assert isinstance(seen[0], tuple) and seen[1].logits is seen[1]["logits"]


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"los": 1}, InputError, "does not know 'los'"),
        ({"loss": "mse"}, InputError, "no function"),
        ({"accumulate": 0}, InputError, "whole number"),
        ({"optimizer": lambda p: 3}, InputError, "torch.optim.Optimizer"),
        ({"optimizer": lambda p: torch.optim.LBFGS(p)}, UnsupportedError, "LBFGS"),
        ({"optimizer": lambda p: 1 / 0}, RunError, "ZeroDivisionError"),
    ],
)
def test_what_torch_cannot_be_given(given: dict[str, Any], error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        torch_.trainer(torch_.wrap(net()), given)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda out, y: 1 / 0, "ZeroDivisionError"),
        (lambda out, y: 3.0, "returned float"),
        (lambda out, y: out, "values"),
    ],
)
def test_a_torch_loss_that_is_none(loss: Any, words: str) -> None:
    model = torch_.wrap(net())
    before = everything(model)
    with pytest.raises(RunError, match=words):
        torch_.trainer(model, {**GIVEN, "loss": loss}).steps(EXAMPLES)
    assert same(everything(model), before)


# ---------------------------------------------------------------------------------------------------------------- Keras
def test_keras_gradients_are_those_of_a_tape_without_dropout() -> None:
    model = keras_.wrap(keras_net())
    before = everything(model)
    got = keras_.trainer(model, KERAS_GIVEN).gradients(EXAMPLES[0], training=True)
    assert same(everything(model), before)
    plain = without_dropout(model.model)
    with tf.GradientTape() as tape:
        loss = KERAS_GIVEN["loss"](BATCHES[0][1], plain(BATCHES[0][0], training=True))
    assert got.loss == pytest.approx(float(loss), rel=1e-6)
    for v, g in zip(plain.trainable_variables, tape.gradient(loss, plain.trainable_variables), strict=True):
        np.testing.assert_allclose(got.weights[v.path], g.numpy(), rtol=1e-5, atol=1e-7)
    assert set(got.updates) == {"n/moving_mean", "n/moving_variance"}
    assert {"a#0", "n#0", "b#0"} <= set(got.calls)


def test_keras_steps_are_those_of_train_on_batch() -> None:
    model = keras_.wrap(keras_net())
    before = everything(model)
    got = keras_.trainer(model, {**KERAS_GIVEN, "class_weight": {0: 1.0, 1: 2.0, 2: 0.5}}).steps(EXAMPLES)
    assert same(everything(model), before)
    plain = without_dropout(model.model)
    plain.compile(keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=0.1), KERAS_GIVEN["loss"])
    losses = [plain.train_on_batch(x, y, class_weight={0: 1.0, 1: 2.0, 2: 0.5}) for x, y in BATCHES]
    assert got.losses[0] == pytest.approx(float(losses[0]), rel=1e-5)
    for v in plain.variables:
        if v.path in got.weights:
            np.testing.assert_allclose(got.weights[v.path], np.asarray(v), rtol=2e-4, atol=1e-6)


def test_a_compiled_keras_model_needs_nothing() -> None:
    model = keras_net()
    model.compile("sgd", "mse", metrics=["mae"])
    trainer = keras_.trainer(keras_.wrap(model), None)
    said = {n: f.op for n, f in trainer.forms.items()}
    assert said == {"loss": "MSE", "optimizer": "SGD", "metric": "MeanAbsoluteError"}
    mean = float(np.abs(X[:, :3] - X[:, 3:]).mean())
    assert trainer.metric({"0": X[:, :3]}, X[:, 3:]) == pytest.approx(mean, rel=1e-5)
    by_function = keras_.trainer(keras_.wrap(keras_net()), {"compiled": lambda m: (m.compile("adam", "mae"), m)[1]})
    assert by_function.forms["optimizer"].op == "Adam" and by_function.forms["loss"].op == "MAE"


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"scheduler": 1}, InputError, "does not know 'scheduler'"),
        ({"class_weight": [1, 2]}, InputError, "no dictionary"),
        ({"optimizer": lambda: 3}, InputError, "is int"),
        ({"optimizer": lambda: 1 / 0}, RunError, "ZeroDivisionError"),
        ({"compiled": lambda m: m}, InputError, "no compiled model"),
    ],
)
def test_what_keras_cannot_be_given(given: dict[str, Any], error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        keras_.trainer(keras_.wrap(keras_net()), given)


def test_a_keras_loss_that_raises_changes_nothing() -> None:
    model = keras_.wrap(keras_net())
    before = everything(model)

    def loss(y: Any, out: Any) -> Any:
        raise ValueError("no such thing")

    with pytest.raises(RunError, match="no such thing"):
        keras_.trainer(model, {**KERAS_GIVEN, "loss": loss}).steps(EXAMPLES)
    assert same(everything(model), before)


def test_rates_of_keras_under_accumulation_are_those_of_micro_steps() -> None:
    schedule = keras.optimizers.schedules.PolynomialDecay(0.1, 10, 0.0)
    optimizer = keras.optimizers.SGD(schedule, gradient_accumulation_steps=2)
    trainer = keras_.trainer(keras_.wrap(keras_net()), {**KERAS_GIVEN, "optimizer": optimizer})
    np.testing.assert_allclose(trainer.rates(3), [0.09, 0.07, 0.05], rtol=1e-6)
