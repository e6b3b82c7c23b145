"""The tensors of a forward pass by the keys of a recorded run, for their gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import keras

from ambidex.adapters.keras_composites import set_in_dict
from ambidex.adapters.keras_inputs import outputs_by_name
from ambidex.adapters.keras_tensors import is_float, is_tensor
from ambidex.adapters.keras_tree import Tree

#: kinds of layers that a recorded run takes for one call
_WHOLE = ("leaf", "dot", "time")


@contextmanager
def outputs_kept(tree: Tree, kept: dict[str, Any]) -> Iterator[None]:
    """The first output of each call of a known layer goes into ``kept``, by :attr:`Call.key`.

    A recorded run takes the activation at the end of a layer for a call of its own: the layer's output is then what
    goes into it. Left out is what has no values (inside ``tf.function``), parts of composites, and functional code.
    """
    original = keras.layers.Layer.__call__
    counts: dict[str, int] = {}
    inside: list[Any] = []  # the recorded layer that runs: layers in it are no calls of their own

    def keep(path: str, number: int, made: Any) -> None:
        found = outputs_by_name(made)
        if found and is_float(found[0][1]):
            kept[f"{path}#{number}"] = found[0][1]

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        path = tree.paths.get(id(self))
        if path is None or inside or tree.kinds.get(id(self)) not in _WHOLE:
            return original(self, *args, **kwargs)
        number = counts.get(path, 0)
        counts[path] = number + 1
        end = tree.activations.get(path)
        with ExitStack() as stack:
            inside.append(self)
            stack.callback(inside.clear)
            if end is not None:
                watched = _watched(self.activation, lambda x: keep(path, number, x))
                stack.enter_context(set_in_dict(self, "activation", watched))
            made = original(self, *args, **kwargs)
        keep(path if end is None else f"{path}:activation", number, made)
        return made

    keras.layers.Layer.__call__ = call
    try:
        yield
    finally:
        keras.layers.Layer.__call__ = original


def _watched(activation: Callable[..., Any], note: Callable[[Any], None]) -> Callable[..., Any]:
    def run(x: Any, *args: Any, **kwargs: Any) -> Any:
        if is_tensor(x):
            note(x)
        return activation(x, *args, **kwargs)

    return run
