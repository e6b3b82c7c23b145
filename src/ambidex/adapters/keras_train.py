"""The Keras side of the stages of training, on the TensorFlow backend: see :class:`ambidex.core.training.Trainer`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
from keras.src.trainers.compile_utils import CompileLoss, CompileMetrics, get_metric
from keras.src.trainers.data_adapters.data_adapter_utils import class_weight_to_sample_weights

from ambidex.adapters.keras_inputs import Arguments, is_graph, outputs_by_name
from ambidex.adapters.keras_state import kept_state
from ambidex.adapters.keras_tensors import BACKEND, is_float, numpy_from_tensor
from ambidex.adapters.keras_train_forms import (
    clip_form,
    first_rate,
    loss_form,
    metric_form,
    optimizer_form,
    rate_and_schedule,
    rate_at,
)
from ambidex.adapters.keras_train_given import Optimizers, checked, only, with_compiled
from ambidex.adapters.keras_train_quiet import no_dropout
from ambidex.adapters.keras_train_watch import outputs_kept
from ambidex.adapters.keras_train_words import source_of, user
from ambidex.core.training import Example, Form, Gradients, LossValue, Steps
from ambidex.core.types import Array
from ambidex.errors import InputError, RunError, UnsupportedError


def trainer(model: Any, given: Mapping[str, Any] | None) -> KerasTrainer:
    """What the user said for the Keras side, checked; ``model`` is the adapter's. A model that is compiled needs
    nothing more. Raises InputError, and UnsupportedError on another backend than TensorFlow."""
    if BACKEND != "tensorflow":
        raise UnsupportedError(
            f"the stages of training on the {BACKEND} backend of Keras",
            "they go back through TensorFlow's tape",
            "Set KERAS_BACKEND=tensorflow",
        )
    return KerasTrainer(model, with_compiled(model.model, checked(given), _as_found))


class KerasTrainer:
    """A model with the user's loss, optimizer and so on; leaves the model as it found it."""

    framework = "keras"

    def __init__(self, adapter: Any, words: Mapping[str, Any]) -> None:
        self.model, self.words, self.tree = adapter.model, words, adapter._tree()
        self.names: dict[int, str] = self.tree.names
        self.adapter = adapter
        self.output_names = getattr(self.model, "output_names", None)
        self.accumulate, self.averages = 1, True
        self.forms: dict[str, Form] = {}
        if "loss" in words:
            self.forms["loss"] = self._loss_form()
        if "metric" in words:
            self.forms["metric"] = metric_form(self._metric_object(only(words["metric"])))
        if "optimizer" in words:
            policy = getattr(getattr(self.model, "dtype_policy", None), "name", "")
            self.optimizers = Optimizers(words["optimizer"], policy)
            self._describe(self.optimizers.fresh())

    def _loss_form(self) -> Form:
        weights = [w for w in keras.tree.flatten(self.words.get("loss_weights")) if w is not None]
        loss = only(self.words["loss"]) if len(weights) < 2 else self.words["loss"]
        shape = self.model.output_shape if is_graph(self.model) else None
        single = isinstance(shape, tuple) and shape and all(n is None or isinstance(n, int) for n in shape)
        classes = int(shape[-1] or 0) if single and shape is not None else 0
        return loss_form(loss, self.words.get("class_weight"), weights[0] if weights else 1.0, classes)

    def _describe(self, optimizer: Any) -> None:
        source = source_of(self.words["optimizer"])
        self.forms["optimizer"] = optimizer_form(optimizer, self.model, self.names, source)
        self.accumulate = int(optimizer.gradient_accumulation_steps or 1)
        clip = clip_form(optimizer, self.forms["optimizer"].source)
        if clip is not None:
            self.forms["clip"] = clip
        _, schedule = rate_and_schedule(optimizer)
        if schedule is not None:
            op, attrs, cls = schedule
            if op and self.accumulate > 1:  # Keras asks the schedule with the number of the micro-step
                attrs = {**attrs, "stride": float(self.accumulate), "offset": self.accumulate - 1}
            self.forms["schedule"] = Form(op, attrs, cls=cls, source=self.forms["optimizer"].source)

    # ------------------------------------------------------------------------------------------------ loss and metric
    def loss(self, outputs: Mapping[str, Array], targets: Any, weights: Array | None = None) -> LossValue:
        import tensorflow as tf

        leaves = {n: tf.constant(v) for n, v in outputs.items()}
        with tf.GradientTape() as tape:
            tape.watch([t for t in leaves.values() if is_float(t)])
            for n, mask in self.adapter.output_masks.items():  # Keras averages over what the outputs' mask leaves
                if n in leaves and tuple(mask.shape) == tuple(leaves[n].shape[: len(mask.shape)]):
                    keras.src.backend.set_keras_mask(leaves[n], mask)
            value = self._loss(_rebuilt(leaves), targets, weights)
        found = tape.gradient(value, leaves)
        return LossValue(float(value), {n: _dense(g) for n, g in found.items() if g is not None})

    def _loss(self, outputs: Any, targets: Any, weights: Array | None) -> Any:
        """As compile and fit have it: penalties, of weights or of activations, are no part of it."""
        if targets is None:
            raise InputError("the Keras side's loss needs targets")
        y = keras.tree.map_structure(keras.ops.convert_to_tensor, targets)
        class_weight = self.words.get("class_weight")
        if class_weight:
            if weights is not None:
                raise InputError("the Keras side has class_weight and weights of samples", "fit takes one of them")
            if keras.tree.is_nested(y):
                raise InputError("class_weight of the Keras side with several outputs", "fit takes it for one output")
            weights = user("class_weight", class_weight_to_sample_weights, y, class_weight)
        loss = user("loss", CompileLoss, self.words["loss"], self.words.get("loss_weights"),
                    output_names=self.output_names)  # fmt: skip
        value = user("loss", loss, y, outputs, weights)
        if value is None:
            raise RunError("the Keras side's loss returned nothing")
        return value

    def metric(self, outputs: Mapping[str, Array], targets: Any, weights: Array | None = None) -> float:
        """Weights of the samples count where the metric is one of ``weighted_metrics``, as in fit."""
        y = keras.tree.map_structure(keras.ops.convert_to_tensor, targets)
        out = _rebuilt({n: keras.ops.convert_to_tensor(v) for n, v in outputs.items()})
        weights = weights if self.words.get("weighted") else None
        if keras.tree.is_nested(out) and len(outputs) > 1:
            metric: Any = CompileMetrics(self.words["metric"], None, output_names=self.output_names)
        else:
            metric = self._metric_object(only(self.words["metric"]), y, out)
        if not isinstance(metric, keras.metrics.Metric):
            return _number(user("metric", metric, y, out))
        known = [m for m in keras.tree.flatten(self.words["metric"]) if isinstance(m, keras.metrics.Metric)]
        before = [(v, numpy_from_tensor(v).copy()) for m in known for v in m.variables]
        try:
            for m in known:
                m.reset_state()
            user("metric", metric.update_state, y, out, *([] if weights is None else [weights]))
            return _number(user("metric", metric.result))
        finally:
            for m in known:
                m.reset_state()  # one that made its variables just now
            for v, value in before:
                v.assign(value)

    @staticmethod
    def _metric_object(given: Any, y: Any = None, out: Any = None) -> Any:
        if not isinstance(given, str):
            return given
        if y is None or given not in ("accuracy", "acc", "crossentropy", "ce"):
            try:
                return keras.metrics.get(given)
            except ValueError:
                if y is None:
                    return given
        return user("metric", get_metric, given, y, out)

    # ------------------------------------------------------------------------------------------------------ gradients
    def gradients(
        self, example: Example, *, training: bool = False, seeds: Mapping[str, Array] | None = None
    ) -> Gradients:
        import tensorflow as tf

        if seeds is None:
            self._follows("loss")
        with _as_found(self.model, weights=False), no_dropout(self.model):
            variables = list(self.model.trainable_variables)
            trained = {id(v) for v in variables}
            fixed = [v for v in self.model.variables if id(v) in self.names and id(v) not in trained]
            before = [numpy_from_tensor(v).copy() for v in fixed]
            kept: dict[str, Any] = {}
            with tf.GradientTape() as tape, outputs_kept(self.tree, kept):
                output = self._forward(example, training)
                named = dict(outputs_by_name(output))
                if seeds is None:
                    total = self._loss(output, example.targets, example.weights) + self._of_activations()
                else:
                    total = sum(
                        (_towards(named[n], g) for n, g in seeds.items() if n in named), tf.zeros((), "float64")
                    )
            loss = float(total) if seeds is None else float("nan")
            found = tape.gradient(total, [named, [v.value for v in variables], kept])
            return Gradients(
                loss,
                {n: _dense(g) for n, g in found[0].items() if g is not None},
                {self.names[id(v)]: _dense(g) for v, g in zip(variables, found[1], strict=True)
                 if g is not None and id(v) in self.names},
                {n: _dense(g) for n, g in found[2].items() if g is not None},
                {self.names[id(v)]: numpy_from_tensor(v).copy() for v, old in zip(fixed, before, strict=True)
                 if not np.array_equal(numpy_from_tensor(v), old)},
            )  # fmt: skip

    def _follows(self, *parts: str) -> None:
        """Whether the side's own training can be followed. Raises InputError and UnsupportedError."""
        for part in parts:
            if part not in self.forms:
                raise InputError(f"the Keras side has no {part}")
        if "own_step" in self.words:
            raise UnsupportedError(
                f"{self.words['own_step']} is the user's own: how it trains is not followed",
                todo="Say loss and optimizer one by one",
            )

    def _forward(self, example: Example, training: bool) -> Any:
        arguments = Arguments(self.model, example.batch)
        return user("call", arguments.call, training)

    def _of_weights(self) -> list[Any]:
        """Variables that are trained and have a penalty."""
        return [v for v in self.model.trainable_variables if getattr(v, "regularizer", None) is not None]

    def _of_activations(self) -> Any:
        """What layers added to the loss in the forward pass just run; Keras lists penalties of weights behind it."""
        added = list(self.model.losses)
        added = added[: len(added) - len(self._of_weights())]
        return sum((keras.ops.sum(keras.ops.cast(x, keras.config.floatx())) for x in added), 0.0)

    def _penalty(self) -> Any:
        """Penalties of the weights, float64."""
        return sum((keras.ops.sum(keras.ops.cast(v.regularizer(v), "float64")) for v in self._of_weights()), 0.0)

    # -------------------------------------------------------------------------------------------------------- updates
    def clip(self, gradients: Mapping[str, Array]) -> dict[str, Array]:
        if "clip" not in self.forms:
            return {n: np.array(g) for n, g in gradients.items()}
        known = set(self.names.values())
        names = [n for n in gradients if n in known]
        cut = self.optimizers.fresh()._clip_gradients([keras.ops.convert_to_tensor(gradients[n]) for n in names])
        return {n: _dense(g) for n, g in zip(names, cut, strict=True)}

    def update(self, gradients: Sequence[Mapping[str, Array]], factors: Sequence[float]) -> list[dict[str, Array]]:
        import tensorflow as tf

        self._follows("optimizer")
        found: list[dict[str, Array]] = []
        rate = first_rate(self.optimizers.fresh())
        with _as_found(self.model):
            optimizer = self.optimizers.fresh(
                clipnorm=None, clipvalue=None, global_clipnorm=None, gradient_accumulation_steps=None, use_ema=False,
                ema_overwrite_frequency=None, learning_rate=rate,
            )  # fmt: skip
            variables = self._variables()
            user("optimizer", optimizer.build, variables)
            for factor, one in zip(factors, gradients, strict=True):
                optimizer.learning_rate = rate * factor
                with tf.GradientTape() as tape:
                    penalty = tf.convert_to_tensor(self._penalty())
                extra = tape.gradient(penalty, [v.value for v in variables])
                total = [_sum(one.get(self.names[id(v)]), e, v) for v, e in zip(variables, extra, strict=True)]
                if any(g is not None for g in total):
                    user("optimizer", optimizer.apply, total, variables)
                found.append(self._values())
        return found

    def _variables(self) -> list[Any]:
        return [v for v in self.model.trainable_variables if id(v) in self.names]

    def _values(self) -> dict[str, Array]:
        known = {self.names[id(v)]: v for v in self.model.variables if id(v) in self.names}
        return {n: numpy_from_tensor(v).copy() for n, v in known.items()}

    def rates(self, count: int) -> list[float]:
        """What the schedule says for each update. With accumulation it is asked with the number of the micro-step."""
        optimizer, n = self.optimizers.fresh(), self.accumulate
        return [rate_at(optimizer, k * n + n - 1) for k in range(count)]

    def steps(self, examples: Sequence[Example]) -> Steps:
        import tensorflow as tf

        self._follows("loss", "optimizer")
        losses: list[float] = []
        with _as_found(self.model), no_dropout(self.model):
            optimizer = self.optimizers.training()
            variables = self._variables()
            user("optimizer", optimizer.build, variables)
            for example in examples:
                with tf.GradientTape() as tape:
                    output = self._forward(example, True)
                    value = self._loss(output, example.targets, example.weights) + self._of_activations()
                    # penalties of the weights are part of the update, as decay is
                    total = optimizer.scale_loss(value + keras.ops.cast(self._penalty(), value.dtype))
                losses.append(float(value))
                user("optimizer", optimizer.apply, tape.gradient(total, [v.value for v in variables]), variables)
            return Steps(losses, self._values())


# ---------------------------------------------------------------------------------------------------------------- small
def _number(value: Any) -> float:
    """One number of what a metric gave: the first of several by name."""
    if isinstance(value, Mapping) and value:
        value = next(iter(value.values()))
    try:
        return float(np.mean(keras.ops.convert_to_numpy(value)))
    except (TypeError, ValueError) as e:
        raise RunError(f"the Keras side's metric returned {type(value).__name__}", todo="Return a number") from e


def _towards(output: Any, gradient: Array) -> Any:
    """A number whose gradient with respect to the output is the given one."""
    import tensorflow as tf

    return tf.reduce_sum(tf.cast(output, "float64") * gradient.reshape(tuple(output.shape)).astype("float64"))


def _sum(gradient: Array | None, penalty: Any, variable: Any) -> Any:
    """A weight's gradient with that of its penalty; None where the loss does not reach it."""
    if gradient is None:
        return None
    made = keras.ops.convert_to_tensor(gradient, variable.dtype)
    return made if penalty is None else made + keras.ops.cast(penalty, variable.dtype)


def _dense(gradient: Any) -> Array:
    """An array of a gradient; rows of a table (IndexedSlices) are summed into it."""
    import tensorflow as tf

    return numpy_from_tensor(tf.convert_to_tensor(gradient)).copy()


def _rebuilt(outputs: Mapping[str, Any]) -> Any:
    """What the model returned: one tensor, a list, or a dictionary (see ``outputs_by_name``)."""
    if list(outputs) == ["0"]:
        return outputs["0"]
    if list(outputs) == [str(i) for i in range(len(outputs))]:
        return list(outputs.values())
    return dict(outputs)


@contextmanager
def _as_found(model: Any, *, weights: bool = True) -> Iterator[None]:
    """Variables and seeds are afterwards what they were: optimizers write past ``keras.Variable.assign``. Trained
    weights only where something writes them."""
    held = model.variables if weights else model.non_trainable_variables
    values = [(v, numpy_from_tensor(v).copy()) for v in held]
    try:
        with kept_state(model, training=True):
            yield
    finally:  # after the other one, which would take these for changes of its own
        for v, value in values:
            if not np.array_equal(numpy_from_tensor(v), value):
                v.assign(value)
