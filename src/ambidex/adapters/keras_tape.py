"""Recording, forcing and replaying one run of a Keras model.

Every execution of a leaf layer, of a functional operator and of the parts of a composite goes through
:meth:`Tape.execute`, the one place where inputs are replaced, outputs replaced, and values kept. What is executed is
found by :mod:`ambidex.adapters.keras_hooks`. While ``quiet`` is above zero nothing is recorded: the code that runs is
Keras' own, not the model's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from keras.src import backend

from ambidex.adapters.keras_tensors import (
    Slots,
    dtype_of,
    float64_promotion,
    fresh,
    is_float,
    is_tensor,
    is_value,
    numpy_from_tensor,
    tensor_from_numpy,
    tensor_like,
    to_float64,
    wide,
    wide_setting,
)
from ambidex.adapters.keras_tree import Tree
from ambidex.core.types import Array, Call, Layer, Origin, Plan

Run = Callable[..., Any]
CONST: Origin = ("const", "", 0)


@dataclass(slots=True)
class Saved:
    """How a call can be made again: its function, its float64 function, and the arguments it had."""

    fn: Run
    exact_fn: Run | None
    slots: Slots


class Tape:
    """One run of a model whose structure ``tree`` knows."""

    def __init__(
        self,
        tree: Tree,
        plan: Plan | None = None,
        *,
        record: bool = True,
        exact: bool | Collection[str] = False,
        training: bool = False,
    ) -> None:
        self.tree, self.plan = tree, plan or Plan()
        self.record, self.want_exact, self.training = record, exact, training
        self.touched = {*self.plan.inputs, *self.plan.outputs, *self.plan.replace, *self.plan.feed}
        self.functional = record or any(":" in key for key in self.touched)
        self.calls: list[Call] = []
        self.saved: dict[str, Saved] = {}
        self.masks: dict[str, Array] = {}
        self.quiet = 0
        self.scopes: list[str] = [""]
        self.entering: list[tuple[Any, Any, Any]] = []
        self.failed: tuple[str, str] | None = None
        self.last_key = ""
        self.counts: dict[str, int] = defaultdict(int)
        self.origins: dict[int, Origin] = {}
        self.values: dict[int, Array] = {}
        self.exacts: dict[int, Any] = {}
        self.alive: list[Any] = []

    # ------------------------------------------------------------------ tensors
    def know(self, tensor: Any, origin: Origin) -> None:
        self.origins[id(tensor)] = origin
        self.values.pop(id(tensor), None)
        self.exacts.pop(id(tensor), None)
        self.alive.append(tensor)

    def alias(self, old: Any, new: Any) -> None:
        """``new`` stands for ``old``: a conversion, not an operation of the model."""
        if new is old or not is_tensor(new):
            return
        if id(old) in self.origins:
            self.origins[id(new)] = self.origins[id(old)]
            self.alive.append(new)
        if id(old) in self.exacts:
            self.exacts[id(new)] = self.exacts[id(old)]
            self.alive.append(new)

    def origin(self, value: Any) -> Origin:
        return self.origins.get(id(value), CONST)

    def known(self, value: Any) -> bool:
        return id(value) in self.origins

    def value(self, tensor: Any) -> Array:
        found = self.values.get(id(tensor))
        if found is None:
            self.alive.append(tensor)
            found = self.values[id(tensor)] = numpy_from_tensor(tensor)
        return found

    def note_mask(self, result: Any) -> None:
        """Keras hangs the mask on a layer's output after the call: keep it under the call's key."""
        mask = backend.get_keras_mask(result) if is_tensor(result) else None
        made = self.origins.get(id(result), CONST)
        if mask is not None and made[0] == "call":
            self.masks[self.calls[made[1]].key] = numpy_from_tensor(mask)

    # ------------------------------------------------------------------ the one place
    def execute(
        self,
        path: str,
        describe: Callable[[], Layer],
        fn: Run,
        args: Any,
        kwargs: Any,
        *,
        parameters: tuple[str, ...] = (),
        chained: bool = False,
        wanted: Callable[[Any], bool] = is_value,
        exact_fn: Run | None = None,
    ) -> Any:
        """Run ``fn(*args, **kwargs)`` as one call of the layer at ``path``, with what the plan says.

        ``chained``: functional code, float64 all the way since the last layers.
        """
        number = self.counts[path]
        key = f"{path}#{number}"
        self.counts[path] += 1
        self.last_key = key
        try:
            if not (self.record or key in self.touched):
                result = self.inside(fn, args, kwargs)
                if self.functional:
                    result = self._track(key, result, args, kwargs)
                return result
            return self._execute(key, describe(), fn, args, kwargs, parameters, chained, wanted, exact_fn)
        except BaseException:
            self.counts[path] -= 1  # TensorFlow asks again on its slow path after a refused fast one
            raise

    def _track(self, key: str, result: Any, args: Any, kwargs: Any) -> Any:
        """Without recording: later functional calls need to know which tensors came from calls."""
        before = {id(t) for t in Slots(args, kwargs).tensors}
        out = Slots((result,), wanted=is_tensor)
        results = [self._apart(t) if id(t) in before else t for t in out.tensors]
        for n, t in enumerate(results):
            self.know(t, ("call", key, n))
        return out.rebuilt(results)[0][0] if results else result

    def _execute(
        self,
        key: str,
        layer: Layer,
        fn: Run,
        args: Any,
        kwargs: Any,
        parameters: tuple[str, ...],
        chained: bool,
        wanted: Callable[[Any], bool],
        exact_fn: Run | None,
    ) -> Any:
        plan = self.plan
        slots = Slots(args, kwargs, parameters, wanted)
        origins = [self.origin(t) for t in slots.tensors]
        call = Call(key, layer, len(self.calls), slots.names, origins, scope=self.scopes[-1])
        call.received = [self.value(t) for t in slots.tensors]
        tensors = list(slots.tensors)
        forced = False
        for i, given in enumerate(plan.inputs.get(key, ())):
            if given is not None and i < len(tensors):
                tensors[i], forced = tensor_like(given, tensors[i]), True
        for i, compute in plan.feed.get(key, ()):
            value = compute()
            if value is not None and i < len(tensors):
                tensors[i], forced = tensor_like(value, tensors[i]), True
        call.inputs = call.received
        if forced:
            call.inputs = [self.value(t) for t in tensors]
            args, kwargs = slots.rebuilt(tensors)
        result = self._skipped(key, tensors) if key in plan.skip and not chained else None
        if result is None:
            result = self.inside(fn, args, kwargs)
        out = Slots((result,), wanted=is_tensor)
        computed = list(out.tensors)
        before = {id(t) for t in tensors}
        results = [self._apart(t) if id(t) in before else t for t in computed]
        call.computed = [self.value(t) for t in results]
        exacts: list[Any] | None = None
        if self.wants_exact(key, chained):
            exacts = self._exact(call, slots, tensors, fn if exact_fn is None and chained else exact_fn, chained)
        if key in plan.replace:
            made = plan.replace[key](call, call.inputs)
            for i, array in enumerate(made):
                if i < len(results):
                    shape = tuple(int(n) for n in results[i].shape)
                    results[i] = tensor_like(np.asarray(array).reshape(shape), results[i])
        for i, given in enumerate(plan.outputs.get(key, ())):
            if given is not None and i < len(results):
                results[i] = tensor_like(given, results[i])
        replaced = [a is not b for a, b in zip(results, computed, strict=True)]
        if any(replaced):
            for old, new in zip(computed, results, strict=True):
                mask = backend.get_keras_mask(old)
                if mask is not None and new is not old:
                    backend.set_keras_mask(new, mask)
            result = out.rebuilt(results)[0][0]
        if key in plan.replace or key in plan.outputs:
            call.outputs = [self.value(t) for t in results]
        else:
            call.outputs = call.computed
            if chained and exacts is not None:
                for t, e in zip(results, exacts, strict=True):
                    if is_float(e):
                        self.exacts[id(t)] = e
        for n, t in enumerate(results):
            self.origins[id(t)] = ("call", call.index, n)
            self.values[id(t)] = call.outputs[n]
            self.alive.append(t)
        if self.record:
            self.calls.append(call)
            self.saved[key] = Saved(
                fn,
                fn if exact_fn is None and chained else exact_fn,
                Slots(args, kwargs, parameters, wanted) if forced else slots,
            )
        return result

    def _skipped(self, key: str, tensors: list[Any]) -> Any:
        """The replaced output of a call that need not be computed; None where its type would have to be found out."""
        wanted = self.plan.outputs.get(key, [])
        if len(wanted) != 1 or wanted[0] is None or any("float16" in dtype_of(t) for t in tensors):
            return None
        return tensor_from_numpy(wanted[0])

    @staticmethod
    def _apart(tensor: Any) -> Any:
        new = fresh(tensor)
        mask = backend.get_keras_mask(tensor)
        if mask is not None and new is not tensor:
            backend.set_keras_mask(new, mask)
        return new

    def inside(self, fn: Run, args: Any, kwargs: Any) -> Any:
        self.quiet += 1
        try:
            return fn(*args, **kwargs)
        finally:
            self.quiet -= 1

    # ------------------------------------------------------------------ float64
    def wants_exact(self, key: str, chained: bool) -> bool:
        wanted = self.want_exact
        return wanted if isinstance(wanted, bool) else chained or key in wanted

    def _exact(self, call: Call, slots: Slots, tensors: list[Any], fn: Run | None, chained: bool) -> list[Any] | None:
        if fn is None:
            return None
        self.quiet += 1
        try:
            given = []
            for t in tensors:
                known = self.exacts.get(id(t)) if chained else None
                given.append(to_float64(t) if known is None else known)
            made = run_exact(fn, slots, given)
        finally:
            self.quiet -= 1
        if made is None or len(made) != len(call.computed):
            return None
        if any(a.shape != tuple(b.shape) for a, b in zip(call.computed, made, strict=True)):
            return None
        call.exact = [numpy_from_tensor(t) for t in made]
        return made

    # ------------------------------------------------------------------ functional code
    def counts_as_input(self, value: Any) -> bool:
        """Numbers that were made into tensors on the way, and shapes, are settings; the rest are inputs."""
        return is_value(value) and (self.known(value) or len(value.shape) > 0)

    def worth(self, tensors: list[Any]) -> bool:
        """Whether an operator touches the model's data: anything known, or tables of floats or booleans."""
        return any(self.known(t) or (len(t.shape) > 0 and (is_float(t) or dtype_of(t) == "bool")) for t in tensors)

    @contextmanager
    def scope(self, path: str) -> Iterator[None]:
        """The model's own code inside an opened layer: recorded."""
        quiet, self.quiet = self.quiet, 0
        self.scopes.append(path)
        try:
            yield
        finally:
            self.scopes.pop()
            self.quiet = quiet


def run_exact(fn: Run, slots: Slots, given: list[Any]) -> list[Any] | None:
    """``fn`` on float64 values; None when it has no float64 kernel or falls back to a narrower type inside."""
    floats = [t for t in given if is_float(t)]
    if any(dtype_of(t) != "float64" for t in floats):
        return None  # a backend without float64 (JAX unless told otherwise)
    try:
        args, kwargs = slots.rebuilt(given, wide_setting)
        with float64_promotion():
            made = Slots((fn(*args, **kwargs),), wanted=is_tensor).tensors
    except Exception:  # any reason means the same: this operator has no float64 reference here, so no measured floor
        return None
    if floats and any(is_float(t) and dtype_of(t) != "float64" for t in made):
        return None
    return [wide(t) for t in made]
