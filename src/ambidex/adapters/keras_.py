"""The Keras 3 adapter: any Keras model or layer as an :class:`ambidex.core.model.Inspectable`."""

from __future__ import annotations

import re
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ambidex.adapters.keras_sources import remember_sources
from ambidex.core.model import Batch, TensorSpec
from ambidex.core.trace import Trace
from ambidex.core.types import Array, Call, Layer, Plan
from ambidex.errors import AmbidexError, InputError, RunError, UnsupportedError

if TYPE_CHECKING:
    from ambidex.adapters.keras_tape import Saved, Tape
    from ambidex.adapters.keras_train import KerasTrainer
    from ambidex.adapters.keras_tree import Tree

__all__ = ["KerasModel", "accepts", "remember_sources", "trainer", "wrap"]


#: the unit in the last place of 1 of the half precisions that a layer may compute in
_EPS: dict[Any, float] = {"float16": 2.0**-10, "bfloat16": 2.0**-7}


def accepts(obj: Any) -> bool:
    """Whether ``obj`` is a Keras 3 model or layer (by class names: asking imports nothing). A legacy one is not."""
    names = {(c.__module__, c.__name__) for c in type(obj).__mro__}
    return ("keras.src.layers.layer", "Layer") in names and ("keras.src.ops.operation", "Operation") in names


def wrap(obj: Any) -> KerasModel:
    return KerasModel(obj)


def trainer(model: KerasModel, given: Mapping[str, Any] | None) -> KerasTrainer:
    """The model with what it is trained with, see :func:`ambidex.adapters.keras_train.trainer`."""
    from ambidex.adapters.keras_train import trainer as make

    return make(model, given)


class KerasModel:
    """See :class:`ambidex.core.model.Inspectable`. The model's own state is never changed by a run."""

    framework = "keras"

    def __init__(self, model: Any) -> None:
        self.model = model
        self._known: Tree | None = None
        self._saved: dict[str, Saved] = {}
        self.output_masks: dict[str, Any] = {}  # masks that the outputs of the last run carry: losses weigh by them
        self._handed: dict[
            int, tuple[weakref.ref[Array], Any]
        ] = {}  # id of an array of weights() -> it, and its tensor

    # ------------------------------------------------------------------ structure
    def _tree(self) -> Tree:
        if self._known is None:
            from ambidex.adapters.keras_tree import Tree, is_built

            if not is_built(self.model):
                raise InputError(
                    f"the Keras model {self.model.name!r} has no weights yet",
                    "it is built when it is first called",
                    "Run it once, or build it in the factory",
                )
            self._known = Tree(self.model)
        return self._known

    def layers(self) -> list[Layer]:
        return list(self._tree().layers)

    def signature(self) -> list[TensorSpec] | None:
        from ambidex.adapters.keras_inputs import signature

        return signature(self.model)

    # ------------------------------------------------------------------ weights
    def weights(self) -> dict[str, Array]:
        from ambidex.adapters.keras_tensors import BACKEND, numpy_from_tensor

        found: dict[str, Array] = {}
        for name, variable in self._tree().variables.items():
            if BACKEND != "tensorflow":
                found[name] = numpy_from_tensor(variable)
                continue
            tensor = variable.value.value()  # what the variable holds now: TensorFlow never writes into it
            found[name] = numpy_from_tensor(tensor)
            self._hand_out(found[name], tensor)
        return found

    def constants(self) -> set[str]:
        """Variables that Keras never trains and that no gradient reaches."""
        trained = {id(v) for v in self.model.trainable_variables}
        frozen = {id(v) for layer in self.model._flatten_layers() if not layer.trainable for v in layer.variables}
        return {name for name, v in self._tree().variables.items() if id(v) not in trained and id(v) not in frozen}

    def set_weights(self, values: Mapping[str, Array]) -> None:
        known = self._tree().variables
        for name, value in values.items():
            if name not in known:
                raise InputError(f"the Keras model has no weight {name!r}", todo="Names are the paths of model.weights")
            if tuple(known[name].shape) != tuple(np.shape(value)):
                raise InputError(f"weight {name!r} has shape {tuple(known[name].shape)}, given {np.shape(value)}")
        for name, value in values.items():
            array, tensor = self._handed.get(id(value), (None, None))
            # an array that came from here: the variable takes its memory back, nothing is copied
            known[name].assign(tensor if array is not None and array() is value else value)

    def _hand_out(self, array: Array, tensor: Any) -> None:
        """Remember the tensor whose memory an array shows, as long as the array lives."""
        key, handed = id(array), self._handed
        handed[key] = (weakref.ref(array, lambda _: handed.pop(key, None)), tensor)

    def layer_weights(self, path: str) -> dict[str, Array]:
        from ambidex.adapters import keras_layers as kl

        tree = self._tree()
        if path not in tree.objects or not tree.by_path[path].op or not tree.by_path[path].weights:
            return {}
        return kl.get_weights(tree.objects[path])

    def set_layer_weights(self, path: str, values: Mapping[str, Array]) -> None:
        from ambidex.adapters import keras_layers as kl

        if path not in self._tree().objects:
            raise InputError(f"the Keras model has no layer {path!r} with weights of its own")
        kl.set_weights(self._tree().objects[path], dict(values))

    # ------------------------------------------------------------------ running
    def run(
        self,
        batch: Batch,
        plan: Plan | None = None,
        *,
        record: bool = True,
        training: bool = False,
        exact: bool | Collection[str] = False,
    ) -> Trace:
        from ambidex.adapters.keras_inputs import Arguments, outputs_by_name
        from ambidex.adapters.keras_state import kept_state, versions
        from ambidex.adapters.keras_tape import CONST, Tape
        from ambidex.adapters.keras_tensors import numpy_from_tensor
        from ambidex.adapters.keras_tree import Tree, is_built

        arguments = Arguments(self.model, batch)
        if record and (plan is None or not (plan.replace or plan.feed)):
            self._saved = {}  # two runs need not be held at once
        trace = Trace("keras", versions())
        if self._known is None and not is_built(self.model):
            with kept_state(self.model, training=False):
                self._answer(arguments, None, False)
            self._known = Tree(self.model)
        tree = self._tree()
        widths = [_EPS.get(getattr(layer, "compute_dtype", None), 0.0) for layer in tree.objects.values()]
        if any(widths):
            trace.meta["eps"] = max(widths)
        tape = Tape(tree, plan, record=record, exact=exact, training=training)
        for name, variable in tree.variables.items():
            for held in _holders(variable):
                tape.origins[id(held)] = ("weight", name, 0)
                tape.alive.append(held)
        for name, tensor in arguments.named.items():
            tape.know(tensor, ("input", name, 0))
        with kept_state(self.model, training=training) as changed:
            output = self._answer(arguments, tape, training)
            if training:
                found = [v for v in changed() if id(v) in tree.names]
                trace.updates = {tree.names[id(v)]: numpy_from_tensor(v).copy() for v in found}
        self.output_masks = {}
        for name, tensor in outputs_by_name(output):
            trace.outputs[name] = tape.value(tensor)
            if record:
                trace.output_origins[name] = tape.origins.get(id(tensor), CONST)
            mask = getattr(tensor, "_keras_mask", None)
            if mask is not None:
                tape.masks[name] = numpy_from_tensor(mask)
                self.output_masks[name] = mask
        trace.inputs = {name: numpy_from_tensor(t) for name, t in arguments.named.items()}
        trace.calls, trace.layers, trace.masks = tape.calls, list(tree.layers), tape.masks
        if record:
            self._saved = tape.saved
        if not trace.outputs:
            raise RunError("the Keras model returned no tensor", todo="Return a tensor, a list or a dictionary of them")
        return trace

    def _answer(self, arguments: Any, tape: Tape | None, training: bool) -> Any:
        from ambidex.adapters.keras_hooks import recording

        try:
            if tape is None:
                return arguments.call(training)
            with recording(tape), self._patches(tape.plan):
                return arguments.call(training)
        except AmbidexError:
            raise
        except MemoryError as e:
            raise RunError("the Keras model ran out of memory", todo="Use a smaller batch") from e
        except SystemExit as e:
            why = f"its call runs sys.exit({e.code!r})"
            raise RunError("the Keras model ended Python", why, "Take that out") from e
        except Exception as e:
            text = _reason(e)
            if type(e).__name__ == "ResourceExhaustedError" or "OOM when allocating" in text:
                raise RunError("the Keras model ran out of memory", text, "Use a smaller batch") from e
            where = ""
            if tape is not None and tape.failed is not None:
                path, cls = tape.failed
                where = f" in layer {path!r} ({cls})" if path else ""
            raise RunError(
                f"the Keras model raised {type(e).__name__}{where}",
                text,
                "Check the inputs' number, order, shapes and dtypes",
            ) from e

    @contextmanager
    def _patches(self, plan: Plan) -> Iterator[None]:
        with ExitStack() as stack:
            for path, attrs in plan.patch.items():
                stack.enter_context(self.patched(path, **attrs))
            yield

    def call(self, path: str, inputs: Sequence[Array], *, like: Call | None = None, exact: bool = False) -> list[Array]:
        from ambidex.adapters.keras_replay import replay

        saved = self._saved.get(like.key) if like is not None else None
        try:
            return replay(self._tree(), path, inputs, saved, exact=exact)
        except AmbidexError:
            raise
        except Exception as e:
            raise RunError(f"layer {path!r} raised {type(e).__name__} when called alone", _reason(e)) from e

    def patched(self, path: str, **attrs: Any) -> AbstractContextManager[None]:
        from ambidex.adapters import keras_layers as kl
        from ambidex.adapters.keras_tree import owner_of

        tree = self._tree()
        owner, _, tail = path.rpartition(":")
        if tail == "activation" and owner in tree.activations:
            op, now = tree.activations[owner]
            wanted = str(attrs.pop("op", op))
            kept = now if wanted == op else {}
            return kl.patch(owner_of(tree.objects[owner]), activation=(wanted, {**kept, **attrs}))
        layer = tree.cores.get(path, tree.objects.get(path))
        if layer is None:
            raise UnsupportedError(f"{path!r} is no layer that can be changed")
        return kl.patch(layer, **attrs)

    def close(self) -> None:
        self._saved.clear()
        self._handed.clear()


def _holders(variable: Any) -> list[Any]:
    """Everything that may stand for a weight in a call: the Keras variable, the backend's, and its handle."""
    inner = getattr(variable, "_value", None)
    found = [variable, inner, getattr(inner, "handle", None)]
    return [v for v in found if v is not None]


def _reason(error: Exception) -> str:
    """The first line of an error that says something."""
    for line in re.sub(r"\x1b\[[0-9;]*m", "", str(error)).splitlines():  # Keras sets some of it in bold
        text = line.strip()
        if text and not text.startswith("Exception encountered when calling"):
            return text[:300]
    return type(error).__name__
