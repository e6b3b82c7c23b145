"""The Keras trainer: updates, rates, losses and metrics of many kinds, and what it refuses."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tests.adapters.keras_train_models import KO, ONE_HOT, RNG, SPARSE, TARGETS, S, Warm, X, Y, dense, two

from ambidex.adapters import keras_
from ambidex.core.training import Example
from ambidex.errors import InputError, RunError, UnsupportedError


# -------------------------------------------------------------------------------------------------------------- updates
def test_updates_are_those_of_the_optimizer_without_clipping_and_accumulation() -> None:
    model = dense(kernel_regularizer=keras.regularizers.L1(0.05))
    optimizer = KO.Adam(0.05, global_clipnorm=1e-3, gradient_accumulation_steps=3, use_ema=True, weight_decay=0.1)
    trainer = keras_.trainer(keras_.wrap(model), {"optimizer": optimizer})
    assert trainer.forms["optimizer"].op == ""  # an L1 penalty is no decay that has a name
    assert trainer.accumulate == 3 and trainer.forms["clip"].attrs["max_norm"] == 1e-3
    names = [v.path for v in model.trainable_variables]
    gradients = [{v.path: RNG.standard_normal(v.shape).astype(np.float32) for v in model.trainable_variables}
                 for _ in range(3)]  # fmt: skip
    after = trainer.update(gradients, [1.0, 0.5, 0.25])
    plain = dense()
    own_one = KO.Adam(0.05, weight_decay=0.1)
    for one, factor, got in zip(gradients, [1.0, 0.5, 0.25], after, strict=True):
        own_one.learning_rate = 0.05 * factor
        extra = 0.05 * tf.sign(plain.get_layer("a").kernel.value)
        own_one.apply([one[n] + (extra if n == "a/kernel" else 0.0) for n in names], plain.trainable_variables)
        for v in plain.trainable_variables:
            np.testing.assert_allclose(got[v.path], np.asarray(v.value), rtol=1e-5, atol=1e-6)


def test_an_update_without_gradients_changes_nothing() -> None:
    model = dense()
    trainer = keras_.trainer(keras_.wrap(model), {"optimizer": "adam"})
    after = trainer.update([{}], [1.0])
    assert all(np.array_equal(after[0][v.path], np.asarray(v.value)) for v in model.variables if v.path in after[0])


def test_rates_are_those_that_training_uses() -> None:
    """Asked in the middle of training, also of a schedule that counts micro-steps."""
    for schedule, n in ((S.PolynomialDecay(0.1, 10, 0.0), 3), (Warm(), None), (lambda: 0.25, None)):
        model = dense()
        optimizer = KO.SGD(schedule, gradient_accumulation_steps=n)
        trainer = keras_.trainer(keras_.wrap(model), {"optimizer": optimizer})
        seen: list[float] = []
        real = optimizer.update_step
        optimizer.update_step = lambda g, v, rate, real=real, seen=seen: (seen.append(float(rate)), real(g, v, rate))
        for _ in range(4 * (n or 1)):
            optimizer.apply([tf.zeros(v.shape) for v in model.trainable_variables], model.trainable_variables)
        np.testing.assert_allclose(trainer.rates(4), seen[:: len(model.trainable_variables)], rtol=1e-6)


def test_the_rate_of_a_schedule_without_a_name_is_the_one_it_rises_to() -> None:
    form = keras_.trainer(keras_.wrap(dense()), {"optimizer": KO.SGD(Warm())}).forms
    assert form["schedule"].op == "" and form["schedule"].cls == "Warm"
    assert form["optimizer"].attrs["learning_rate"] == pytest.approx(0.1 * 7.0**-0.5, rel=1e-6)
    rates = [10 * min((s + 1) / 4000, 1.0) for s in range(3)]

    class Long(S.LearningRateSchedule):
        def __call__(self, step: Any) -> Any:
            step = keras.ops.cast(step, "float32")
            return 10 * keras.ops.where(step < 3999, (step + 1) / 4000, keras.ops.exp(-(step - 3999) / 1e4))

    trainer = keras_.trainer(keras_.wrap(dense()), {"optimizer": KO.SGD(Long())})
    np.testing.assert_allclose(trainer.rates(3), rates, rtol=1e-6)
    assert trainer.forms["optimizer"].attrs["learning_rate"] == pytest.approx(10.0, rel=1e-6)


def test_clipping_is_that_of_the_optimizer_also_within_a_scaled_one() -> None:
    gradients = {"a/kernel": RNG.standard_normal((6, 8)).astype(np.float32), "a/bias": np.ones(8, np.float32)}
    scaled = KO.LossScaleOptimizer(KO.SGD(0.1, clipnorm=0.5))
    got = keras_.trainer(keras_.wrap(dense()), {"optimizer": scaled}).clip(gradients)
    for n, g in gradients.items():
        np.testing.assert_allclose(got[n], g * 0.5 / np.linalg.norm(g), rtol=1e-5)
    same = keras_.trainer(keras_.wrap(dense()), {}).clip(gradients)
    assert all(np.array_equal(same[n], g) for n, g in gradients.items())


# --------------------------------------------------------------------------------------------------- losses and metrics
def test_the_only_loss_of_a_model_has_its_name_and_its_weight() -> None:
    model = dense()
    model.compile("sgd", {"b": "mse"}, loss_weights={"b": 0.25})
    trainer = keras_.trainer(keras_.wrap(model), None)
    form = trainer.forms["loss"]
    assert (form.op, form.attrs["factor"]) == ("MSE", 0.25)
    assert trainer.loss({"0": X[:, :3]}, X[:, 3:]).value == pytest.approx(((X[:, :3] - X[:, 3:]) ** 2).mean() / 4)


def test_losses_of_several_outputs_are_added_with_their_weights() -> None:
    model = two()
    model.compile("sgd", {"kind": SPARSE, "size": "mae"}, loss_weights={"kind": 0.5, "size": 2.0})
    trainer = keras_.trainer(keras_.wrap(model), None)
    assert trainer.forms["loss"].op == ""
    got = trainer.loss({"0": X[:, :3], "1": X[:, 3:4]}, TARGETS)
    wanted = 0.5 * float(SPARSE(Y, X[:, :3])) + 2 * np.abs(X[:, 3:4] - X[:, :1]).mean()
    assert got.value == pytest.approx(wanted, rel=1e-5) and set(got.gradients) == {"0", "1"}


def test_class_weights_have_one_number_for_each_class() -> None:
    given = {"loss": SPARSE, "class_weight": {0: 2.0}}
    assert keras_.trainer(keras_.wrap(dense()), given).forms["loss"].attrs["class_weights"] == [2.0, 1.0, 1.0]


def test_metrics_take_weights_only_where_fit_gives_them() -> None:
    weights = RNG.uniform(0.2, 2.0, 24).astype(np.float32)
    error = np.abs(X[:, :3] - X[:, 3:]).mean(1)
    for argument, wanted in (("metrics", error.mean()), ("weighted_metrics", (error * weights).sum() / weights.sum())):
        model = dense()
        model.compile("sgd", "mse", **{argument: ["mae"]})
        got = keras_.trainer(keras_.wrap(model), None).metric({"0": X[:, :3]}, X[:, 3:], weights)
        assert got == pytest.approx(wanted, rel=1e-5)


def test_a_metric_keeps_what_it_has_counted() -> None:
    metric = keras.metrics.MeanAbsoluteError()
    metric.update_state([[0.0]], [[3.0]])
    trainer = keras_.trainer(keras_.wrap(dense()), {"metric": metric})
    assert trainer.metric({"0": X[:, :3]}, X[:, 3:]) == pytest.approx(np.abs(X[:, :3] - X[:, 3:]).mean(), rel=1e-5)
    assert float(metric.result()) == 3.0
    late = keras.metrics.AUC(multi_label=True)  # makes its variables when it first sees something
    two_labels = (Y[:, None] == np.arange(2)).astype(np.float32)
    keras_.trainer(keras_.wrap(dense()), {"metric": late}).metric({"0": 1 / (1 + np.exp(-X[:, :2]))}, two_labels)
    assert not any(np.any(keras.ops.convert_to_numpy(v)) for v in late.variables)


@pytest.mark.parametrize(
    ("metric", "outputs", "targets", "wanted"),
    [
        ("accuracy", X[:, :3], Y, float((X[:, :3].argmax(1) == Y).mean())),
        ("accuracy", X[:, :3], ONE_HOT, float((X[:, :3].argmax(1) == Y).mean())),
        ("acc", X[:, :1], Y[:, None] > 0, float(((X[:, 0] > 0.5) == (Y > 0)).mean())),
        (lambda y, out: float(np.abs(y - out).max()), X[:, :3], X[:, 3:], float(np.abs(X[:, :3] - X[:, 3:]).max())),
    ],
)
def test_metrics_by_name_and_functions(metric: Any, outputs: Any, targets: Any, wanted: float) -> None:
    trainer = keras_.trainer(keras_.wrap(dense()), {"metric": metric})
    assert trainer.metric({"0": outputs}, targets) == pytest.approx(wanted, rel=1e-5)


def test_the_metric_of_a_model_with_several_outputs() -> None:
    model = two()
    model.compile("sgd", {"kind": SPARSE, "size": "mse"}, metrics={"size": ["mae"]})
    got = keras_.trainer(keras_.wrap(model), None).metric({"0": X[:, :3], "1": X[:, 3:4]}, TARGETS)
    assert got == pytest.approx(np.abs(X[:, 3:4] - X[:, :1]).mean(), rel=1e-5)


# ------------------------------------------------------------------------------------------------------------- refusals
class OwnStep(keras.Model):
    def train_step(self, data: Any) -> Any:
        return {"loss": 0.0}


def own_step() -> keras.Model:
    plain = dense()
    model = OwnStep(plain.input, plain.output)
    model.compile("sgd", "mse")
    return model


@pytest.mark.parametrize(
    ("make", "given", "act", "error", "words"),
    [
        (dense, {"class_weight": {"0": 1.0}}, lambda t: t, InputError, "number of the class"),
        (dense, {"optimizer": "no such"}, lambda t: t, RunError, "optimizer of the Keras side raised ValueError"),
        (dense, {"compiled": lambda m: own_step()}, lambda t: t, InputError, "another model"),
        (dense, {"loss": SPARSE}, lambda t: t.loss({"0": X[:, :3]}, None), InputError, "needs targets"),
        (dense, {"loss": SPARSE, "class_weight": {0: 2.0}}, lambda t: t.loss({"0": X[:, :3]}, Y, X[:, 0]), InputError,
         "fit takes one of them"),
        (dense, {"loss": SPARSE}, lambda t: t.steps([Example([X], Y)]), InputError, "has no optimizer"),
        (dense, {"loss": "no such"}, lambda t: t.loss({"0": X[:, :3]}, Y), RunError, "no such"),
        (dense, {"metric": lambda y, out: "good"}, lambda t: t.metric({"0": X}, Y), RunError, "returned str"),
        (own_step, None, lambda t: t.steps([Example([X], ONE_HOT)]), UnsupportedError, "train_step of OwnStep"),
        (dense, {"optimizer": KO.SGD(lambda: 1 / 0)}, lambda t: t, RunError, "ZeroDivisionError"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said(make: Any, given: Any, act: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        act(keras_.trainer(keras_.wrap(make()), given))
