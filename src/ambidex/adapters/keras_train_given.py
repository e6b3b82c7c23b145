"""What a user hands over for the Keras side, read: the parts of a compiled model, fresh optimizers, their rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

import keras

from ambidex.adapters.keras_train_forms import optimizer_config
from ambidex.adapters.keras_train_words import user
from ambidex.errors import InputError

_KNOWN = ("loss", "loss_weights", "optimizer", "class_weight", "metric", "compiled")


def checked(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The user's dictionary. Raises InputError for a name or a class weight that means nothing."""
    words = dict(given or {})
    unknown = [n for n in words if n not in _KNOWN]
    if unknown:
        raise InputError(
            f"the Keras side does not know {unknown[0]!r}", todo=f"It takes {', '.join(_KNOWN)}, all of them optional"
        )
    weights = words.get("class_weight")
    if weights is None:
        return words
    if not isinstance(weights, Mapping):
        raise InputError(
            "class_weight of the Keras side is no dictionary", todo="Give {class: weight}, as fit takes it"
        )
    for key, value in weights.items():
        if not isinstance(key, Real) or key != int(key) or int(key) < 0 or not isinstance(value, Real):
            raise InputError(
                f"class_weight of the Keras side has {key!r}: {value!r}",
                "fit looks weights up by the number of the class",
                "Give {0: 1.0, 1: 2.0}",
            )
    return words


def with_compiled(model: Any, words: dict[str, Any], as_found: Callable[[Any], Any]) -> dict[str, Any]:
    """The parts of a compiled model, under those that are given one by one.

    ``as_found``: a context in which the model is put back. Besides the user's words there may be "weighted" (its
    metric takes sample weights) and "own_step" (the method by which the model trains in a way of its own).
    """
    if "compiled" in words:
        with as_found(model):
            made = user("compiled", words.pop("compiled"), model)
        if not getattr(made, "compiled", False):
            raise InputError("compiled of the Keras side returned no compiled model", todo="Return model after compile")
        if [id(v) for v in made.variables] != [id(v) for v in model.variables]:
            raise InputError(
                "compiled of the Keras side returned another model",
                "its variables are not those of the model that is compared",
                "Compile the model that it is given, and return it",
            )
        model = made
    if not getattr(model, "compiled", False):
        return words
    found: dict[str, Any] = {}
    compiled = getattr(model, "_compile_loss", None)
    if compiled is not None:
        found = {"loss": compiled._user_loss, "loss_weights": compiled._user_loss_weights}
        own = [n for n in ("train_step", "compute_loss") if getattr(type(model), n) is not getattr(keras.Model, n)]
        if own and "loss" not in words:
            found["own_step"] = f"{own[0]} of {type(model).__name__}"
    if getattr(model, "optimizer", None) is not None:
        found["optimizer"] = model.optimizer
    metrics = getattr(model, "_compile_metrics", None)
    for name, weighted in (("_user_metrics", False), ("_user_weighted_metrics", True)):
        one = getattr(metrics, name, None)
        if "metric" not in found and any(m is not None for m in keras.tree.flatten(one)):
            found |= {"metric": one, "weighted": weighted}
    if "loss" in words:
        found.pop("loss_weights", None)
    if "metric" in words:
        found.pop("weighted", None)
    return {n: v for n, v in found.items() if v is not None} | words


def only(given: Any) -> Any:
    """The one loss or metric in a list or dictionary of one; what it is otherwise."""
    flat = [x for x in keras.tree.flatten(given) if x is not None]
    return flat[0] if len(flat) == 1 else given


# ---------------------------------------------------------------------------------------------------------- optimizers
class Optimizers:
    """Makes fresh optimizers with the user's settings."""

    def __init__(self, given: Any, policy: str) -> None:
        self.given, self.policy = given, policy

    def _original(self) -> Any:
        made = self.given
        if not isinstance(made, str | keras.optimizers.Optimizer):
            made = user("optimizer", made)
        if isinstance(made, str):
            made = user("optimizer", keras.optimizers.get, made)
        if not isinstance(made, keras.optimizers.Optimizer):
            raise InputError(
                f"optimizer of the Keras side is {type(made).__name__}",
                todo="Give a keras optimizer, or a function that makes one",
            )
        return made

    def fresh(self, **changes: Any) -> Any:
        """A new optimizer with the user's settings, some of them changed; the one inside a LossScaleOptimizer."""
        original = self._original()
        original = getattr(original, "inner_optimizer", original)
        # the scale is taken out again before anything is computed from the gradients
        config = user("get_config of the optimizer", optimizer_config, original) | {"loss_scale_factor": None} | changes
        made = user("optimizer", type(original).from_config, config)
        for name in ("_exclude_from_weight_decay", "_exclude_from_weight_decay_pattern"):
            if hasattr(original, name):
                setattr(made, name, getattr(original, name))
        return made

    def training(self) -> Any:
        """A new optimizer as fit has it: compile wraps one of a model in mixed float16."""
        original, made = self._original(), self.fresh()
        wrapper = keras.optimizers.LossScaleOptimizer
        if isinstance(original, wrapper):
            return wrapper(made, original.initial_scale, original.dynamic_growth_steps)
        return wrapper(made) if self.policy == "mixed_float16" else made
