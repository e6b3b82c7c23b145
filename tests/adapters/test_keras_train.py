"""The Keras trainer against ``train_on_batch`` and plain tapes: many ways to compile a model, nothing left changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tests.adapters.keras_train_models import (
    IDS,
    KO,
    ONE_HOT,
    RNG,
    SPARSE,
    TARGETS,
    L,
    S,
    Warm,
    X,
    Y,
    dense,
    half,
    own,
    table,
    two,
)

from ambidex.adapters import keras_
from ambidex.core.training import Example


def without_decay() -> Any:
    made = KO.AdamW(S.CosineDecay(0.02, 6), weight_decay=0.2, gradient_accumulation_steps=2)
    made.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    return made


def own_loss(y: Any, out: Any) -> Any:
    return keras.ops.mean(keras.ops.square(keras.ops.one_hot(y, 3) - out), axis=-1)


Case = tuple[Callable[[], keras.Model], Callable[[], dict[str, Any]], Any, Any, dict[str, Any]]
#: model, arguments of compile, inputs, targets, further arguments of train_on_batch
CASES: dict[str, Case] = {
    "momentum": (dense, lambda: {"optimizer": KO.SGD(0.1, momentum=0.9, nesterov=True), "loss": SPARSE}, X, Y, {}),
    "names": (dense, lambda: {"optimizer": "rmsprop", "loss": "mse"}, X, ONE_HOT, {}),
    "table": (table, lambda: {"optimizer": KO.Adam(0.05, clipnorm=0.05), "loss": SPARSE}, IDS, Y, {}),
    "global norm": (table, lambda: {"optimizer": KO.SGD(0.5, global_clipnorm=0.05), "loss": SPARSE}, IDS, Y, {}),
    "micro-steps": (dense, lambda: {"optimizer": without_decay(), "loss": SPARSE}, X, Y, {}),
    "average": (dense, lambda: {"optimizer": KO.Adam(0.05, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2),
                                "loss": SPARSE}, X, Y, {}),
    "scaled": (dense, lambda: {"optimizer": KO.SGD(0.1, loss_scale_factor=512.0), "loss": SPARSE}, X, Y, {}),
    "penalties": (lambda: dense(kernel_regularizer="l1l2", activity_regularizer=keras.regularizers.L2(0.1),
                                kernel_constraint=keras.constraints.MaxNorm(0.5)),
                  lambda: {"optimizer": KO.SGD(0.2, momentum=0.5), "loss": SPARSE}, X, Y, {}),
    "samples": (dense, lambda: {"optimizer": KO.Adam(0.05), "loss": SPARSE}, X, Y,
                {"sample_weight": RNG.uniform(0.2, 2.0, 24)}),
    "classes": (dense, lambda: {"optimizer": KO.SGD(0.1), "loss": keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=0.1)}, X, ONE_HOT, {"class_weight": {0: 1.0, 2: 3.0}}),
    "own loss": (dense, lambda: {"optimizer": KO.Nadam(0.05), "loss": own_loss}, X, Y, {}),
    "own schedule": (dense, lambda: {"optimizer": KO.SGD(Warm(), momentum=0.9), "loss": SPARSE}, X, Y, {}),
    "own rate": (dense, lambda: {"optimizer": KO.Adam(lambda: 0.03), "loss": SPARSE}, X, Y, {}),
    "two outputs": (two, lambda: {"optimizer": KO.SGD(0.1), "loss": {"kind": SPARSE, "size": "mae"},
                                  "loss_weights": {"kind": 0.5, "size": 2.0}}, X, TARGETS, {}),
    "one by name": (dense, lambda: {"optimizer": KO.SGD(0.1), "loss": {"b": SPARSE}, "loss_weights": [0.5]}, X, Y, {}),
    "half": (half, lambda: {"optimizer": KO.SGD(0.1, momentum=0.9), "loss": SPARSE}, X, Y, {}),
    "own model": (own, lambda: {"optimizer": KO.Lion(0.01), "loss": SPARSE}, X, Y, {}),
}  # fmt: skip


def cut(value: Any, part: slice) -> Any:
    return {k: v[part] for k, v in value.items()} if isinstance(value, dict) else value[part]


def state(model: keras.Model) -> list[np.ndarray]:
    held = [*model.variables, *(model.optimizer.variables if model.compiled else [])]
    return [np.asarray(keras.ops.convert_to_numpy(v)).copy() for v in [*held, *model.metrics_variables]]


@pytest.mark.filterwarnings("ignore:The model used with LossScaleOptimizer")
@pytest.mark.parametrize("name", CASES)
def test_steps_are_those_of_train_on_batch(name: str) -> None:
    make, compiled, inputs, targets, more = CASES[name]
    parts = [slice(i, i + 4) for i in range(0, 24, 4)]
    plain = make()
    plain.compile(**compiled())
    theirs = [plain.train_on_batch(inputs[p], cut(targets, p), **{k: v if k == "class_weight" else v[p]
                                                                 for k, v in more.items()}) for p in parts]  # fmt: skip
    model = make()
    model.compile(**compiled())
    trainer = keras_.trainer(keras_.wrap(model), {n: more[n] for n in ("class_weight",) if n in more})
    before = state(model)
    weights = more.get("sample_weight")
    got = trainer.steps([Example([inputs[p]], cut(targets, p), None if weights is None else weights[p]) for p in parts])
    for a, b in zip(state(model), before, strict=True):
        np.testing.assert_array_equal(a, b)
    for mine, v in zip(model.variables, plain.variables, strict=True):
        name_of_it = trainer.names.get(id(mine))
        if name_of_it is not None:
            np.testing.assert_allclose(got.weights[name_of_it], np.asarray(v.value), rtol=2e-4, atol=2e-6)
    first = theirs[0] if np.ndim(theirs[0]) == 0 else theirs[0][0]
    penalty = float(keras.regularizers.L1L2()(model.get_layer("a").kernel)) if name == "penalties" else 0.0
    assert got.losses[0] + penalty == pytest.approx(float(first), rel=1e-4)


# ------------------------------------------------------------------------------------------------------------ gradients
def test_gradients_of_calls_are_those_of_what_a_recorded_run_calls_by_that_name() -> None:
    """A layer with an activation at its end is two calls: what the first one gives goes into the activation."""
    model = dense()
    got = keras_.trainer(keras_.wrap(model), {"loss": SPARSE}).gradients(Example([X], Y))
    a, n, b = (model.get_layer(name) for name in "anb")
    with tf.GradientTape() as tape:
        linear = tf.convert_to_tensor(X) @ a.kernel.value + a.bias.value
        tape.watch(linear)
        curved = tf.tanh(linear)
        loss = SPARSE(Y, b(n(curved)))
    wanted = tape.gradient(loss, [linear, curved])
    np.testing.assert_allclose(got.calls["a#0"], wanted[0], rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(got.calls["a:activation#0"], wanted[1], rtol=1e-4, atol=1e-7)
    recorded = {c.key: c for c in keras_.wrap(model).run([X]).calls}
    assert set(got.calls) == set(recorded)


def test_gradients_of_a_table_are_dense_and_masks_are_followed() -> None:
    model = table()
    got = keras_.trainer(keras_.wrap(model), {"loss": SPARSE}).gradients(Example([IDS], Y), training=True)
    with tf.GradientTape() as tape:
        loss = SPARSE(Y, model(IDS, training=True))
    wanted = tf.convert_to_tensor(tape.gradient(loss, model.trainable_variables[0].value)).numpy()
    np.testing.assert_allclose(got.weights["e/embeddings"], wanted, rtol=1e-5, atol=1e-8)
    assert not got.weights["e/embeddings"][0].any()  # the padding's row is masked away


def test_gradients_leave_penalties_of_weights_to_the_update_and_hold_those_of_activations() -> None:
    model = dense(kernel_regularizer="l2", activity_regularizer=keras.regularizers.L2(0.1))
    got = keras_.trainer(keras_.wrap(model), {"loss": SPARSE}).gradients(Example([X], Y))
    with tf.GradientTape() as tape:
        loss = SPARSE(Y, model(X)) + model.losses[0]
    assert len(model.losses) == 2 and got.loss == pytest.approx(float(loss), rel=1e-6)
    wanted = tape.gradient(loss, model.get_layer("a").kernel.value)
    np.testing.assert_allclose(got.weights["a/kernel"], wanted, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("training", [False, True])
def test_gradients_from_given_ones(training: bool) -> None:
    model = two()
    seeds = {"0": RNG.standard_normal((24, 3)).astype(np.float32), "1": RNG.standard_normal((24, 1))}
    got = keras_.trainer(keras_.wrap(model), None).gradients(Example([X], None), seeds=seeds, training=training)
    with tf.GradientTape() as tape:
        out = model(X, training=training)
        total = sum(tf.reduce_sum(o * g) for o, g in zip(out, seeds.values(), strict=True))
    assert np.isnan(got.loss)
    np.testing.assert_allclose(got.outputs["0"], seeds["0"], rtol=1e-6)
    for v, g in zip(model.trainable_variables, tape.gradient(total, [v.value for v in model.trainable_variables]),
                    strict=True):  # fmt: skip
        np.testing.assert_allclose(got.weights[v.path], g, rtol=1e-4, atol=1e-6)


def test_what_nothing_reaches_has_no_gradient() -> None:
    model = two()
    trainer = keras_.trainer(keras_.wrap(model), None)
    some = trainer.gradients(Example([X], None), seeds={"1": np.ones((24, 1), np.float32)})
    assert set(some.weights) == {"a/kernel", "a/bias", "size/kernel", "size/bias"}
    assert trainer.gradients(Example([X], None), seeds={}).weights == {}


@pytest.mark.parametrize("training", [False, True])
def test_attention_that_drops_is_computed_on_its_own_way(training: bool) -> None:
    """Keras computes attention differently, also in inference, as soon as it drops: a query that sees nothing."""
    keras.utils.set_random_seed(0)
    x = i = keras.Input((4, 6))
    seen = keras.Input((4, 4), dtype="bool")
    x = L.MultiHeadAttention(2, 3, dropout=0.3, name="m")(x, x, attention_mask=seen)
    model = keras.Model([i, seen], x)
    inputs = [RNG.standard_normal((2, 4, 6)).astype(np.float32), np.zeros((2, 4, 4), bool)]
    got = keras_.trainer(keras_.wrap(model), None).gradients(
        Example(inputs, None), seeds={"0": np.ones((2, 4, 6), np.float32)}, training=training
    )
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(model(inputs))
    values = model.get_layer("m").value_dense.kernel
    np.testing.assert_allclose(got.weights[values.path], tape.gradient(total, values.value), rtol=1e-5, atol=1e-6)
    assert not got.weights[values.path].any()


def test_what_is_random_in_training_is_off_and_on_again_afterwards() -> None:
    keras.utils.set_random_seed(0)
    x = i = keras.Input((8, 8, 3))
    for layer in (L.RandomFlip(), L.GaussianNoise(0.5), L.SpatialDropout2D(0.5), L.Flatten(), L.Dropout(0.5)):
        x = layer(x)
    model = keras.Model(i, L.Dense(2, name="b")(x))
    images = RNG.uniform(size=(3, 8, 8, 3)).astype(np.float32)
    seeds = {"0": np.ones((3, 2), np.float32)}
    before = [dict(vars(layer)) for layer in model.layers]
    got = keras_.trainer(keras_.wrap(model), None).gradients(Example([images], None), seeds=seeds, training=True)
    wanted = np.repeat(images.reshape(3, -1).sum(0)[:, None], 2, 1)
    np.testing.assert_allclose(got.weights["b/kernel"], wanted, rtol=1e-5)
    assert [dict(vars(layer)) for layer in model.layers] == before
    assert keras.random.dropout(np.ones(1000, np.float32), 0.5).numpy().min() == 0.0
    assert keras.ops.any(model(images, training=True) != model(images, training=True))
