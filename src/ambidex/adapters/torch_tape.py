"""Recording, forcing and replaying one run of a torch module.

Leaf modules (those with a canonical translation, and other layers of ``torch.nn``) are intercepted by an instance
attribute ``forward``; functional code between them by a ``TorchFunctionMode``. Both hand every execution to
:meth:`Tape.execute`, which is the one place where inputs are replaced, outputs replaced, and values kept.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from ambidex.adapters import torch_layers as tl
from ambidex.adapters.torch_slots import Slots, numpy_from_tensor
from ambidex.adapters.torch_sources import user_frame
from ambidex.core.types import Array, Call, Layer, Origin, Plan

#: functions whose result is the same tensor for our purposes: no call, the origin goes on
_ALIASES = {"contiguous", "clone", "detach", "requires_grad_", "__get__", "cpu", "alias", "type_as"}
_NOT_RECORDED = {"__set__", "dim", "size", "numel", "__len__", "item", "tolist", "is_floating_point", "backward"}


class Tape(TorchFunctionMode):
    """One run. ``paths`` maps id(module) to its path, ``weights`` id(parameter) to its name."""

    def __init__(self, plan: Plan | None, *, record: bool, exact: bool | Collection[str]) -> None:
        super().__init__()
        self.plan = plan or Plan()
        self.record, self.want_exact = record, exact
        self.calls: list[Call] = []
        self.saved: dict[str, tuple[Callable[..., Any], Any]] = {}
        self.depth = 0
        self.scopes: list[str] = [""]
        self.counts: dict[str, int] = defaultdict(int)
        self.origins: dict[int, Origin] = {}
        self.values: dict[int, Array] = {}
        self.exacts: dict[int, torch.Tensor] = {}
        self.alive: list[torch.Tensor] = []
        self.shared: dict[int, list[int]] = defaultdict(list)  # storage -> ids of recorded tensors on it
        self.late: list[Callable[[], None]] = []
        self.layers_by_path: dict[str, Layer] = {}
        self.random_calls: list[str] = []

    # ------------------------------------------------------------------ tensors
    def know(self, tensor: torch.Tensor, origin: Origin) -> None:
        self.origins[id(tensor)] = origin
        self.values.pop(id(tensor), None)
        self.exacts.pop(id(tensor), None)
        self.alive.append(tensor)

    def value(self, tensor: torch.Tensor) -> Array:
        key = id(tensor)
        if key not in self.values:
            self.alive.append(tensor)
            self.values[key] = numpy_from_tensor(tensor)
            if not tensor.is_sparse:
                self.shared[tensor.untyped_storage().data_ptr()].append(key)
        return self.values[key]

    def about_to_write(self, tensor: torch.Tensor) -> None:
        """Recorded arrays share memory with their tensors: copy those that an in-place operation will change."""
        if tensor.is_sparse:
            return
        for key in self.shared.pop(tensor.untyped_storage().data_ptr(), []):
            old = self.values.pop(key, None)
            if old is None:
                continue
            fresh = old.copy()
            for call in self.calls:
                for group in (call.received, call.inputs, call.computed, call.outputs):
                    for i, array in enumerate(group):
                        if array is old:
                            group[i] = fresh

    # ------------------------------------------------------------------ the one place
    def execute(
        self,
        layer: Layer,
        fn: Callable[..., Any],
        args: Any,
        kwargs: Any,
        *,
        leaf: bool,
        inplace: bool = False,
        exact_fn: Callable[..., Any] | None = None,
        batch_first: bool = False,
    ) -> Any:
        """Run ``fn(*args, **kwargs)`` as one call of ``layer``, with what the plan says."""
        self.depth += 1  # neither the layer's inside nor the tape's own work is user code
        try:
            return self._execute(layer, fn, args, kwargs, leaf, inplace, exact_fn, batch_first)
        finally:
            self.depth -= 1

    def _execute(
        self,
        layer: Layer,
        fn: Callable[..., Any],
        args: Any,
        kwargs: Any,
        leaf: bool,
        inplace: bool,
        exact_fn: Callable[..., Any] | None,
        batch_first: bool,
    ) -> Any:
        number = self.counts[layer.path]
        self.counts[layer.path] += 1
        key = f"{layer.path}#{number}"
        plan = self.plan
        touched = key in plan.inputs or key in plan.outputs or key in plan.replace or key in plan.feed
        if not (self.record or touched):
            return fn(*args, **kwargs)
        slots = Slots((args, kwargs), batch_first)
        call = Call(key, layer, len(self.calls), [n.split(".", 1)[-1] for n in slots.names], scope=self.scopes[-1])
        call.origins = [self.origins.get(slots.known_as.get(id(t), id(t)), ("const", "", 0)) for t in slots.tensors]
        call.received = [self.value(t) for t in slots.tensors]
        tensors = list(slots.tensors)
        for i, wanted in enumerate(plan.inputs.get(key, [])):
            if wanted is not None and i < len(tensors):
                tensors[i] = torch.from_numpy(np.array(wanted)).to(tensors[i].dtype)
        for i, compute in plan.feed.get(key, []):
            value = compute()
            if value is not None and i < len(tensors):
                tensors[i] = torch.from_numpy(np.array(value)).to(tensors[i].dtype)
        forced = any(a is not b for a, b in zip(tensors, slots.tensors, strict=True))
        call.inputs = [self.value(t) for t in tensors] if forced else list(call.received)
        if forced or slots.packed:
            args, kwargs = slots.rebuilt(tensors)
        self.saved[key] = (fn, Slots((args, kwargs), batch_first))
        exact_args = self._exact_args(slots, tensors, chained=not leaf) if self.wants_exact(key, not leaf) else None
        self.calls.append(call)
        if inplace:
            for t in tensors:
                self.about_to_write(t)
        result = self._skipped(key, tensors) if key in plan.skip and leaf and not inplace else None
        if result is None:
            result = fn(*args, **kwargs)
        out = Slots((result,), batch_first)
        before = {id(t) for t in tensors}
        results = list(out.tensors)
        if (
            not inplace and not out.packed and any(id(t) in before for t in results)
        ):  # handed through: a tensor of its own
            results = [t.view_as(t) if id(t) in before and not t.is_sparse else t for t in results]
            (result,) = out.rebuilt(results)
            out = Slots((result,), batch_first)
        call.computed = [self._fresh(t, inplace) for t in results]
        if exact_args is not None:
            self._run_exact(call, exact_fn or fn, exact_args, slots, out, batch_first, chained=not leaf)
        if key in plan.replace:
            made = [torch.from_numpy(np.array(v)) for v in plan.replace[key](call, call.inputs)]
            results = [m.to(r.dtype).reshape(r.shape) for m, r in zip(made, results, strict=False)] + results[
                len(made) :
            ]
        for i, wanted in enumerate(plan.outputs.get(key, [])):
            if wanted is not None and i < len(results):
                results[i] = torch.from_numpy(np.array(wanted)).to(results[i].dtype)
        changed = any(a is not b for a, b in zip(results, out.tensors, strict=True))
        if inplace and (changed or forced) and not (slots.packed or out.packed):
            results = self._written_back(slots.tensors, tensors, out.tensors, results)
            changed = True
        if changed:
            (result,) = out.rebuilt(results)
        call.outputs = [self.value(t) for t in results] if changed else list(call.computed)
        visible = Slots((result,), batch_first).tensors if out.packed else results
        for n, t in enumerate(visible):
            exact = self.exacts.get(id(t)) if not (changed or leaf) else None
            self.know(t, ("call", call.index, n))
            if exact is not None:
                self.exacts[id(t)] = exact
            self.values[id(t)] = call.outputs[n]
            if not t.is_sparse:
                self.shared[t.untyped_storage().data_ptr()].append(id(t))
        if out.packed:  # the packed data itself is what travels on
            for seen in out.packed.values():
                self.origins[id(seen.packed.data)] = ("call", call.index, 0)
                self.alive.append(seen.packed.data)
        return result

    def _written_back(
        self, held: list[torch.Tensor], given: list[torch.Tensor], own: list[torch.Tensor], wanted: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        """What an in-place operation gives, or is made to give, stands in the very tensor that the user's code holds:
        that code may never look at the result (``x.mul_(2)``)."""
        made = []
        for mine, value in zip(own, wanted, strict=True):
            target = next((h for h, g in zip(held, given, strict=True) if g is mine), None)
            if target is not None and target is not value and target.shape == value.shape and not target.is_sparse:
                self.about_to_write(target)
                target.copy_(value)
                self.values.pop(id(target), None)
                value = target
            made.append(value)
        return made

    def _skipped(self, key: str, tensors: list[torch.Tensor]) -> torch.Tensor | None:
        """The replaced output of a call that need not be computed; None where its type would have to be found out."""
        wanted = self.plan.outputs.get(key, [])
        if len(wanted) != 1 or wanted[0] is None or any(t.dtype in (torch.float16, torch.bfloat16) for t in tensors):
            return None
        return torch.from_numpy(np.array(wanted[0]))

    def _fresh(self, tensor: torch.Tensor, inplace: bool) -> Array:
        if inplace:
            self.values.pop(id(tensor), None)
        return self.value(tensor)

    # ------------------------------------------------------------------ float64
    def wants_exact(self, key: str, chained: bool) -> bool:
        wanted = self.want_exact
        return wanted if isinstance(wanted, bool) else chained or key in wanted

    def _exact_args(self, slots: Slots, tensors: list[torch.Tensor], *, chained: bool) -> list[torch.Tensor]:
        made = []
        for t in tensors:
            known = self.exacts.get(id(t)) if chained else None
            if known is None and t.is_floating_point():
                known = t.detach().double()
                if known is t:
                    known = t.clone()
            made.append(t if known is None else known.clone())
        return made

    def _run_exact(
        self,
        call: Call,
        fn: Callable[..., Any],
        tensors: list[torch.Tensor],
        slots: Slots,
        out: Slots,
        batch_first: bool,
        *,
        chained: bool,
    ) -> None:
        try:
            args, kwargs = slots.rebuilt(tensors)
            with torch.random.fork_rng():
                found = Slots((fn(*args, **kwargs),), batch_first).tensors
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            call.exact = None  # an operator without a float64 kernel: this call has no measured floor
            return
        call.exact = [numpy_from_tensor(t) for t in found]
        if chained:
            for mine, t in zip(found, out.tensors, strict=False):
                if mine.is_floating_point():
                    self.exacts[id(t)] = mine

    # ------------------------------------------------------------------ functional code
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", str(func))
        if self.depth or name in _NOT_RECORDED:
            return func(*args, **kwargs)
        first = args[0] if args else None
        if name in _ALIASES or (name in {"to", "float", "type"} and isinstance(first, torch.Tensor)):
            result = func(*args, **kwargs)
            if isinstance(result, torch.Tensor) and isinstance(first, torch.Tensor):
                attribute = getattr(getattr(func, "__self__", None), "__name__", "") if name == "__get__" else ""
                if attribute not in {"", "data", "grad"}:
                    pass  # .T, .mT, .real: a real operation, recorded below
                elif result.dtype == first.dtype or (
                    result.is_floating_point()
                    and first.is_floating_point()
                    and result.element_size() >= first.element_size()
                ):
                    if result is not first:
                        self._alias(first, result)
                    return result
            elif not isinstance(result, torch.Tensor):
                return result
        leaves = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        if not leaves:
            return func(*args, **kwargs)
        if name == "__setitem__":
            return self._write(func, args)
        if name == "__get__":
            name = getattr(getattr(func, "__self__", None), "__name__", name)
        meaning = tl.functional(name, args, kwargs)
        op, attrs = meaning if meaning else ("", {})
        if sys._getframe(1).f_code.co_filename.endswith("/nn/utils/rnn.py"):
            op = "Pack"  # packing and unpacking of sequences
        inplace = (
            (name.endswith("_") and not name.endswith("__"))
            or name.startswith("__i")
            and name not in ("__invert__", "__index__", "__int__")
            or bool(kwargs.get("inplace"))
            or "out" in kwargs
        )
        probe = func
        if not self._makes_tensor(name):
            return func(*args, **kwargs)
        scope = self.scopes[-1]
        label = name.strip("_") if name not in {"T", "mT", "H", "mH"} else "transpose"
        layer = Layer(f"{scope}:{label}", op, dict(attrs), cls=label, source=user_frame(2), functional=True)
        return self.execute(layer, probe, args, kwargs, leaf=False, inplace=inplace)

    def _write(self, func: Callable[..., Any], args: Any) -> None:
        """``x[key] = value``: a call that makes a new state of ``x``, which the tensor itself then stands for."""
        target = args[0]
        layer = Layer(f"{self.scopes[-1]}:setitem", "", {}, cls="setitem", source=user_frame(3), functional=True)

        def written(x: torch.Tensor, *rest: Any) -> torch.Tensor:
            func(x, *rest)
            return x

        result = self.execute(layer, written, args, {}, leaf=False, inplace=True)
        if result is target:
            return
        self.depth += 1
        try:
            self.about_to_write(target)
            target.copy_(result)
        finally:
            self.depth -= 1
        origin, value, exact = (kept.get(id(result)) for kept in (self.origins, self.values, self.exacts))
        if origin is not None:
            self.know(target, origin)
        if value is not None:
            self.values[id(target)] = value
        if exact is not None:
            self.exacts[id(target)] = exact

    @staticmethod
    def _makes_tensor(name: str) -> bool:
        return name not in {
            "is_complex",
            "is_same_size",
            "equal",
            "allclose",
            "is_nonzero",
            "data_ptr",
            "stride",
            "any_",
            "__bool__",
            "__float__",
            "__int__",
            "__index__",
            "__repr__",
            "__format__",
            "__hash__",
            "__contains__",
            "get_device",
            "storage_offset",
            "is_contiguous",
            "untyped_storage",
            "unbind_",
            "empty_like",
            "new_empty",
            "new_zeros",
            "new_ones",
            "new_full",
        }

    def _alias(self, old: torch.Tensor, new: torch.Tensor) -> None:
        origin = self.origins.get(id(old))
        exact = self.exacts.get(id(old))
        if origin is not None:
            self.know(new, origin)
        if exact is not None:
            self.exacts[id(new)] = exact

    @contextmanager
    def scope(self, path: str) -> Iterator[None]:
        self.scopes.append(path)
        try:
            yield
        finally:
            self.scopes.pop()
