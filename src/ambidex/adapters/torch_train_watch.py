"""The calls of a forward pass under the keys of a recorded run, for the gradients of their outputs.

The pass goes through the user's modules as they are. A composite (attention, a recurrent layer of several layers or
directions), which a recorded run takes apart, runs whole: only its output has a call of that run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from ambidex.adapters.torch_parts import Attention, Composite, Stack
from ambidex.adapters.torch_slots import numpy_from_tensor
from ambidex.adapters.torch_tape import Tape
from ambidex.adapters.torch_tree import Tree
from ambidex.core.types import Array, Layer


class Watch(Tape):
    """A tape that counts calls as a recording one does, and keeps the gradients that reach their first outputs."""

    def __init__(self) -> None:
        super().__init__(None, record=False, exact=False)
        self.found: dict[str, torch.Tensor] = {}

    def _execute(self, layer: Layer, fn: Callable[..., Any], args: Any, kwargs: Any, *more: Any) -> Any:
        number = self.counts[layer.path]
        self.counts[layer.path] += 1
        made = fn(*args, **kwargs)
        self.watch(f"{layer.path}#{number}", made)
        return made

    def watch(self, key: str, made: Any, turned: bool = False) -> None:
        """``turned``: a recorded run has the first two axes exchanged."""
        if isinstance(made, torch.Tensor):
            first: Any = made
        else:
            leaf = lambda x: isinstance(x, torch.nn.utils.rnn.PackedSequence)  # noqa: E731
            first = next((x for x in pytree.tree_leaves(made, is_leaf=leaf) if isinstance(x, torch.Tensor) or leaf(x)),
                         None)  # fmt: skip
        if isinstance(first, torch.Tensor) and first.requires_grad:
            # a hook stays with the value that the call made, also where an in-place operation then writes into the
            # tensor; retain_grad would move on with the tensor
            first.register_hook(partial(self._keep, key, turned))

    def _keep(self, key: str, turned: bool, gradient: torch.Tensor) -> None:
        self.found[key] = gradient.transpose(0, 1) if turned else gradient

    def gradients(self) -> dict[str, Array]:
        return {key: numpy_from_tensor(g).copy() for key, g in self.found.items()}


@contextmanager
def watched(module: nn.Module, tree: Tree) -> Iterator[Watch]:
    """Inside, a forward pass of the module is watched."""
    tape = Watch()
    touched: list[tuple[nn.Module, Any]] = []
    leaves = {id(m): path for path, m in reversed(tree.modules.items()) if path not in tree.owners}
    composites = {id(c.module): path for path, c in tree.composites.items()}

    def forward_of(path: str, m: nn.Module) -> Callable[..., Any]:
        if id(m) in leaves:
            return partial(_leaf, tape, tree.by_path[leaves[id(m)]], m.forward)
        if id(m) in composites:
            composite = tree.composites[composites[id(m)]]
            return partial(_composite, tape, composites[id(m)], composite, m.forward)
        inner = getattr(m, "_orig_mod", None) if type(m).__name__ == "OptimizedModule" else None
        return partial(_scope, tape, path, m.forward if inner is None else inner)

    try:
        for path, m in module.named_modules():
            own = m.__dict__.get("forward")
            made = forward_of(path, m)
            touched.append((m, own))
            m.__dict__["forward"] = made
        with tape:
            yield tape
    finally:
        for m, own in reversed(touched):
            if own is None:
                m.__dict__.pop("forward", None)
            else:
                m.__dict__["forward"] = own


def _leaf(tape: Watch, layer: Layer, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if tape.depth:
        return original(*args, **kwargs)
    return tape.execute(layer, original, args, kwargs, leaf=True)


def _scope(tape: Watch, path: str, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if tape.depth:
        return original(*args, **kwargs)
    with tape.scope(path):
        return original(*args, **kwargs)


def _composite(
    tape: Watch, path: str, composite: Composite, original: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    if tape.depth:
        return original(*args, **kwargs)
    tape.depth += 1
    try:
        made = original(*args, **kwargs)
    finally:
        tape.depth -= 1
    dot = f"{path}." if path else ""
    if isinstance(composite, Attention):
        number = tape.counts[f"{dot}out_proj"]
        tape.counts[f"{dot}out_proj"] += 1
        tape.watch(f"{dot}out_proj#{number}", made, turned=not composite.module.batch_first)
    elif isinstance(composite, Stack):
        both_ways = len(composite.steps[-1]) > 1
        last = f"{path}:concat" if both_ways else f"{dot}{composite.steps[-1][0][0]}"
        # one joining of both directions a layer; the output is that of the last layer
        number = tape.counts[last] + (len(composite.steps) - 1 if both_ways else 0)
        tape.counts[last] = number + 1
        tape.watch(f"{last}#{number}", made)
    return made
