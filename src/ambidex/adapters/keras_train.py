"""The Keras side of the stages of training, on the TensorFlow backend: see :class:`ambidex.core.training.Trainer`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
from keras.src.trainers.compile_utils import CompileLoss, get_metric
from keras.src.trainers.data_adapters.data_adapter_utils import class_weight_to_sample_weights

from ambidex.adapters.keras_inputs import Arguments, outputs_by_name
from ambidex.adapters.keras_state import kept_state
from ambidex.adapters.keras_tensors import BACKEND, is_float, numpy_from_tensor
from ambidex.adapters.keras_train_forms import (
    clip_form,
    first_rate,
    loss_form,
    metric_form,
    name_of,
    optimizer_form,
    rate_and_schedule,
    source_of,
)
from ambidex.adapters.keras_train_quiet import no_dropout
from ambidex.core.training import Example, Form, Gradients, LossValue, Steps
from ambidex.core.types import Array
from ambidex.errors import InputError, RunError, UnsupportedError

_KNOWN = ("loss", "optimizer", "class_weight", "metric", "compiled")


def trainer(model: Any, given: Mapping[str, Any] | None) -> KerasTrainer:
    """What the user said for the Keras side, checked; ``model`` is the adapter's. A model that is compiled needs
    nothing more. Raises InputError, and UnsupportedError on another backend than TensorFlow."""
    if BACKEND != "tensorflow":
        raise UnsupportedError(
            f"the stages of training on the {BACKEND} backend of Keras",
            "they go back through TensorFlow's tape",
            "Set KERAS_BACKEND=tensorflow",
        )
    words = dict(given or {})
    unknown = [n for n in words if n not in _KNOWN]
    if unknown:
        raise InputError(
            f"the Keras side does not know {unknown[0]!r}", todo=f"It takes {', '.join(_KNOWN)}, all of them optional"
        )
    weights = words.get("class_weight")
    if weights is not None and not isinstance(weights, Mapping):
        raise InputError(
            "class_weight of the Keras side is no dictionary", todo="Give {class: weight}, as fit takes it"
        )
    return KerasTrainer(model, _compiled(model.model, words))


def _compiled(model: Any, words: dict[str, Any]) -> dict[str, Any]:
    """The parts of a compiled model, under those that are given one by one."""
    if "compiled" in words:
        with _as_found(model):
            made = _user("compiled", words.pop("compiled"), model)
        if not getattr(made, "compiled", False):
            raise InputError("compiled of the Keras side returned no compiled model", todo="Return model after compile")
        model = made
    if not getattr(model, "compiled", False):
        return words
    found: dict[str, Any] = {}
    if getattr(model, "loss", None) is not None:
        found["loss"] = model.loss
    if getattr(model, "optimizer", None) is not None:
        found["optimizer"] = model.optimizer
    metrics = keras.tree.flatten(getattr(getattr(model, "_compile_metrics", None), "_user_metrics", None))
    if metrics and metrics[0] is not None:
        found["metric"] = metrics[0]
    return {**found, **words}


class KerasTrainer:
    """A model with the user's loss, optimizer and so on; leaves the model as it found it."""

    framework = "keras"

    def __init__(self, adapter: Any, words: Mapping[str, Any]) -> None:
        self.model, self.words = adapter.model, words
        self.names: dict[int, str] = adapter._tree().names
        self.paths = {id(o): path for path, o in adapter._tree().objects.items()}
        self.accumulate, self.averages = 1, True
        self.forms: dict[str, Form] = {}
        if "loss" in words:
            self.forms["loss"] = loss_form(words["loss"], words.get("class_weight"))
        if "metric" in words:
            self.forms["metric"] = metric_form(self._metric_object(words["metric"]))
        if "optimizer" in words:
            self._describe(self._fresh())

    def _describe(self, optimizer: Any) -> None:
        given = self.words["optimizer"]
        source = source_of(given)
        self.forms["optimizer"] = optimizer_form(optimizer, self.model, self.names, source)
        self.accumulate = int(optimizer.gradient_accumulation_steps or 1)
        clip = clip_form(optimizer, self.forms["optimizer"].source)
        if clip is not None:
            self.forms["clip"] = clip
        _, schedule = rate_and_schedule(optimizer.get_config()["learning_rate"])
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
            value = self._loss(_rebuilt(leaves), targets, weights)
        found = tape.gradient(value, leaves)
        return LossValue(float(value), {n: _dense(g) for n, g in found.items() if g is not None})

    def _loss(self, outputs: Any, targets: Any, weights: Array | None) -> Any:
        y = keras.tree.map_structure(keras.ops.convert_to_tensor, targets)
        class_weight = self.words.get("class_weight")
        if class_weight:
            by_class = class_weight_to_sample_weights(y, class_weight)
            weights = by_class if weights is None else weights * by_class
        given = self.words["loss"]
        loss = given if isinstance(given, CompileLoss) else CompileLoss(given)
        value = _user("loss", loss, y, outputs, weights)
        if value is None:
            raise RunError("the Keras side's loss returned nothing")
        return value

    def metric(self, outputs: Mapping[str, Array], targets: Any, weights: Array | None = None) -> float:
        y, out = (
            keras.tree.map_structure(keras.ops.convert_to_tensor, targets),
            _rebuilt({n: keras.ops.convert_to_tensor(v) for n, v in outputs.items()}),
        )
        metric = self._metric_object(self.words["metric"], y, out)
        if not isinstance(metric, keras.metrics.Metric):
            return float(np.mean(keras.ops.convert_to_numpy(_user("metric", metric, y, out))))
        before = [(v, numpy_from_tensor(v).copy()) for v in metric.variables]
        try:
            metric.reset_state()
            _user("metric", metric.update_state, y, out, *([] if weights is None else [weights]))
            return float(metric.result())
        finally:
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
        return _user("metric", get_metric, given, y, out)

    # ------------------------------------------------------------------------------------------------------ gradients
    def gradients(
        self, example: Example, *, training: bool = False, seeds: Mapping[str, Array] | None = None
    ) -> Gradients:
        import tensorflow as tf

        with _as_found(self.model, weights=False), no_dropout(self.model):
            trained = {id(v) for v in self.model.trainable_variables}
            fixed = [v for v in self.model.variables if id(v) in self.names and id(v) not in trained]
            before = [numpy_from_tensor(v).copy() for v in fixed]
            variables = list(self.model.trainable_variables)
            kept: dict[str, Any] = {}
            with tf.GradientTape() as tape, _outputs_kept(self.paths, kept):
                output = self._forward(example, training)
                named = dict(outputs_by_name(output))
                if seeds is None:
                    value = self._loss(output, example.targets, example.weights)
                    total = value + sum(self.model.losses)
                else:
                    total = sum(_towards(named[n], g) for n, g in seeds.items() if n in named)
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

    def _forward(self, example: Example, training: bool) -> Any:
        arguments = Arguments(self.model, example.batch)
        return _user("call", arguments.call, training)

    # -------------------------------------------------------------------------------------------------------- updates
    def _fresh(self, **changes: Any) -> Any:
        """A new optimizer with the user's settings, some of them changed."""
        given = self.words["optimizer"]
        if isinstance(given, str):
            given = keras.optimizers.get(given)
        original = given if isinstance(given, keras.optimizers.Optimizer) else _user("optimizer", given)
        if isinstance(original, str):
            original = keras.optimizers.get(original)
        if not isinstance(original, keras.optimizers.Optimizer):
            raise InputError(
                f"optimizer of the Keras side is {type(original).__name__}",
                todo="Give a keras optimizer, or a function that makes one",
            )
        if type(original).__name__ == "LossScaleOptimizer":
            raise UnsupportedError("a LossScaleOptimizer is not followed", todo="Give the optimizer inside it")
        config = original.get_config() | changes
        made = _user("optimizer", type(original).from_config, config)
        for name in ("_exclude_from_weight_decay", "_exclude_from_weight_decay_pattern"):
            if hasattr(original, name):
                setattr(made, name, getattr(original, name))
        return made

    def clip(self, gradients: Mapping[str, Array]) -> dict[str, Array]:
        optimizer = self._fresh()
        names = [n for n in gradients if n in set(self.names.values())]
        cut = optimizer._clip_gradients([keras.ops.convert_to_tensor(gradients[n]) for n in names])
        return {n: _dense(g) for n, g in zip(names, cut, strict=True)}

    def update(self, gradients: Sequence[Mapping[str, Array]], factors: Sequence[float]) -> list[dict[str, Array]]:
        import tensorflow as tf

        found: list[dict[str, Array]] = []
        rate = first_rate(self._fresh())
        with _as_found(self.model):
            optimizer = self._fresh(
                clipnorm=None, clipvalue=None, global_clipnorm=None, gradient_accumulation_steps=None, use_ema=False,
                learning_rate=rate,
            )  # fmt: skip
            variables = [v for v in self.model.trainable_variables if id(v) in self.names]
            optimizer.build(variables)
            for factor, one in zip(factors, gradients, strict=True):
                optimizer.learning_rate = rate * factor
                with tf.GradientTape() as tape:
                    penalty = sum(self._weight_penalties(), tf.constant(0.0))
                extra = tape.gradient(penalty, [v.value for v in variables])
                total = [_sum(one.get(self.names[id(v)]), e, v) for v, e in zip(variables, extra, strict=True)]
                optimizer.apply(total, variables)
                found.append({n: numpy_from_tensor(v).copy() for v in self.model.variables
                              if (n := self.names.get(id(v))) is not None})  # fmt: skip
        return found

    def _weight_penalties(self) -> list[Any]:
        """Of the weights alone: penalties of activations belong to the loss."""
        regular = [(v, getattr(v, "regularizer", None)) for v in self.model.trainable_variables]
        return [r(v.value) for v, r in regular if r is not None]

    def rates(self, count: int) -> list[float]:
        """What the schedule says for each update. With accumulation it is asked with the number of the micro-step."""
        rate = self._fresh()._learning_rate
        if not isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
            return [float(rate)] * count
        n = self.accumulate
        return [float(rate(keras.ops.convert_to_tensor(k * n + n - 1, "int32"))) for k in range(count)]

    def steps(self, examples: Sequence[Example]) -> Steps:
        import tensorflow as tf

        losses: list[float] = []
        with _as_found(self.model), no_dropout(self.model):
            optimizer = self._fresh()
            variables = [v for v in self.model.trainable_variables if id(v) in self.names]
            optimizer.build(variables)
            for example in examples:
                with tf.GradientTape() as tape:
                    value = self._loss(self._forward(example, True), example.targets, example.weights)
                    total = value + sum(self.model.losses)
                losses.append(float(value))  # penalties of the weights are part of the update, as decay is
                optimizer.apply(tape.gradient(total, [v.value for v in variables]), variables)
            return Steps(losses, {n: numpy_from_tensor(v).copy() for v in self.model.variables
                                  if (n := self.names.get(id(v))) is not None})  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------- small
def _user(what: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not callable(function):
        raise InputError(f"{what} of the Keras side is {name_of(function)!r}, no function")
    try:
        return function(*args, **kwargs)
    except (RunError, InputError, UnsupportedError):
        raise
    except Exception as e:
        why = (str(e).strip().splitlines() or [""])[0][:300]
        raise RunError(f"{what} of the Keras side raised {type(e).__name__}", why) from e


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
def _outputs_kept(paths: Mapping[int, str], kept: dict[str, Any]) -> Iterator[None]:
    """The first output of each call of a known layer, by the key of a recorded call."""
    original = keras.layers.Layer.__call__
    counts: dict[str, int] = {}

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(self, *args, **kwargs)
        path = paths.get(id(self))
        if path is not None:
            number = counts.get(path, 0)
            counts[path] = number + 1
            found = outputs_by_name(made)
            if found and is_float(found[0][1]):
                kept[f"{path}#{number}"] = found[0][1]
        return made

    keras.layers.Layer.__call__ = call
    try:
        yield
    finally:
        keras.layers.Layer.__call__ = original


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
