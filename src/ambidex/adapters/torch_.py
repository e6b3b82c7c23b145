"""The PyTorch adapter: any ``nn.Module`` as an :class:`ambidex.core.model.Inspectable`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from ambidex.adapters import torch_layers as tl
from ambidex.adapters.torch_inputs import Arguments
from ambidex.adapters.torch_parts import Composite, plain
from ambidex.adapters.torch_slots import Slots, named_outputs, numpy_from_tensor
from ambidex.adapters.torch_sources import remember_sources
from ambidex.adapters.torch_tape import Tape
from ambidex.adapters.torch_train import trainer
from ambidex.adapters.torch_train_outputs import Returned
from ambidex.adapters.torch_tree import Tree
from ambidex.core.model import Batch, TensorSpec
from ambidex.core.trace import Trace
from ambidex.core.types import Array, Call, Layer, Plan
from ambidex.errors import InputError, RunError, UnsupportedError

__all__ = ["TorchModel", "accepts", "remember_sources", "trainer", "wrap"]

#: canonical attribute -> (torch attribute, value from canonical)
_PATCH: dict[str, tuple[tuple[str, ...], Callable[[Any], Any]]] = {
    "epsilon": (("eps",), float),
    "momentum": (("momentum",), lambda v: 1.0 - v),
    "alpha": (("negative_slope", "alpha"), float),
    "approximate": (("approximate",), str),
    "ratio": (("p",), float),
    "beta": (("beta",), float),
    "threshold": (("threshold",), float),
    "ceil_mode": (("ceil_mode",), bool),
    "count_include_pad": (("count_include_pad",), bool),
    "dilations": (("dilation",), tuple),
    "strides": (("stride",), tuple),
    "axis": (("dim",), int),
}
#: with weights of these the whole model rounds as they do
_HALF = {torch.float16, torch.bfloat16}


def accepts(obj: Any) -> bool:
    """Whether ``obj`` is a torch module (decided by class names, so that asking imports nothing)."""
    return any(c.__module__ == "torch.nn.modules.module" and c.__name__ == "Module" for c in type(obj).__mro__)


def wrap(obj: nn.Module) -> TorchModel:
    module = _uncompiled(obj)
    if isinstance(module, torch.jit.ScriptModule):
        raise UnsupportedError(
            f"{type(obj).__name__} is a scripted or traced module",
            "its layers are compiled and cannot be looked into",
            "Give the nn.Module that it was made from",
        )
    lost = next((n for n, t in [*module.named_parameters(), *module.named_buffers()] if t.is_meta), None)
    if lost is not None:
        raise InputError(
            f"weight {lost!r} of {type(module).__name__} is on the meta device",
            "it has a shape and no values",
            "Load the checkpoint first: module.to_empty(device='cpu'), then load_state_dict(...)",
        )
    return TorchModel(module)


def _uncompiled(module: nn.Module) -> nn.Module:
    """What ``torch.compile(module)`` wraps: the same parameters, with the layers still to be seen."""
    inner = getattr(module, "_orig_mod", None) if type(module).__name__ == "OptimizedModule" else None
    return inner if isinstance(inner, nn.Module) else module


class TorchModel:
    """See :class:`ambidex.core.model.Inspectable`. The module's own state is never changed by a run."""

    framework = "torch"

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.was_training = module.training
        self._saved: dict[str, tuple[Callable[..., Any], Slots]] = {}
        self._tree = Tree(module)
        self.returned: Returned | None = None  # the structure of the outputs, once it has run

    def layers(self) -> list[Layer]:
        return list(self._tree.layers)

    def signature(self) -> list[TensorSpec] | None:
        return None

    # ------------------------------------------------------------------ weights
    def weights(self) -> dict[str, Array]:
        return {n: numpy_from_tensor(t) for n, t in self._tensors().items()}

    def _tensors(self) -> dict[str, torch.Tensor]:
        return {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}

    def constants(self) -> set[str]:
        return {n for n, _ in self.module.named_buffers()}

    def set_weights(self, values: Mapping[str, Array]) -> None:
        known = self._tensors()
        for name, value in values.items():
            if name not in known:
                raise InputError(
                    f"the torch model has no weight {name!r}", todo="Names are those of named_parameters()"
                )
            if tuple(known[name].shape) != tuple(value.shape):
                raise InputError(f"weight {name!r} has shape {tuple(known[name].shape)}, given {tuple(value.shape)}")
        with torch.no_grad():
            for name, value in values.items():
                with _writable(known[name]):
                    known[name].copy_(torch.from_numpy(np.array(value)))

    def layer_weights(self, path: str) -> dict[str, Array]:
        layer = self._tree.by_path[path]
        return tl.get_weights(plain(self._tree.modules[path])) if layer.op and path in self._tree.modules else {}

    def set_layer_weights(self, path: str, values: Mapping[str, Array]) -> None:
        module = plain(self._tree.modules[path])
        with torch.no_grad(), _writable(*module.parameters()):
            tl.set_weights(module, dict(values))

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
        tape = Tape(plan, record=record, exact=exact)
        for name, t in self._tensors().items():
            tape.origins[id(t)] = ("weight", name, 0)
            tape.alive.append(t)
        items = batch.items() if isinstance(batch, Mapping) else enumerate(batch)
        named = {str(name): torch.from_numpy(np.array(value)) for name, value in items}
        arguments = Arguments(self.module.forward, named, isinstance(batch, Mapping))
        given = {n: numpy_from_tensor(t).copy() for n, t in named.items()}  # the model may write into its inputs
        for name, t in named.items():
            tape.know(t, ("input", name, 0))
        buffers = {n: b.clone() for n, b in self.module.named_buffers()}
        modes = {m: m.training for m in self.module.modules()}
        fast = torch.backends.mha.get_fastpath_enabled()
        if record and (plan is None or not (plan.replace or plan.feed)):
            self._saved = {}  # two runs need not be held at once
        trace = Trace("torch", {"torch": torch.__version__})
        dtypes = {t.dtype for t in self.module.parameters() if t.dtype in _HALF}
        if dtypes:
            trace.meta["eps"] = max(torch.finfo(d).eps for d in dtypes)
        try:
            torch.backends.mha.set_fastpath_enabled(False)
            if training:
                self.module.train()
            elif self.was_training and self.module.training:
                self.module.eval()
            with ExitStack() as stack:
                stack.enter_context(torch.no_grad())
                stack.enter_context(self._intercept(tape))
                for path, attrs in tape.plan.patch.items():
                    stack.enter_context(self.patched(path, **attrs))
                if record or any(
                    ":" in k for k in (*tape.plan.inputs, *tape.plan.outputs, *tape.plan.replace, *tape.plan.feed)
                ):
                    stack.enter_context(tape)
                if training:
                    torch.manual_seed(0)
                output = self._answer(arguments, tape)
            if training:
                trace.updates = {
                    n: numpy_from_tensor(b).copy()
                    for n, b in self.module.named_buffers()
                    if not torch.equal(b, buffers[n])
                }
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)
            for m, mode in modes.items():
                m.training = mode
            with torch.no_grad():
                for n, b in self.module.named_buffers():
                    if n in buffers and not torch.equal(b, buffers[n]):
                        with _writable(b):
                            b.copy_(buffers[n])
        self.returned = Returned(output)
        for name, t in named_outputs(output):
            trace.outputs[name] = tape.value(t)
            trace.output_origins[name] = tape.origins.get(id(t), ("const", "", 0))
        trace.inputs = given
        trace.calls, trace.layers = tape.calls, self._tree.layers
        if record:
            self._saved = tape.saved
        if not trace.outputs:
            raise RunError(
                "the torch model returned no tensor", todo="Return a tensor, a tuple or a dictionary of them"
            )
        return trace

    def _answer(self, given: Arguments, tape: Tape) -> Any:
        try:
            return self.module(*given.args, **given.kwargs)
        except torch.OutOfMemoryError as e:
            raise RunError("the torch model ran out of memory", str(e).splitlines()[0], "Use a smaller batch") from e
        except MemoryError as e:
            raise RunError("the torch model ran out of memory", todo="Use a smaller batch") from e
        except (RunError, InputError, UnsupportedError):
            raise
        except SystemExit as e:
            why = f"its forward calls sys.exit({e.code!r})"
            raise RunError("the torch model ended Python", why, "Take that out") from e
        except Exception as e:
            last = (tape.calls[-1].path if tape.calls else "") or "its first layer"
            text = (str(e).strip().splitlines() or [""])[0][:300]
            if "DefaultCPUAllocator" in text or "out of memory" in text:
                raise RunError("the torch model ran out of memory", text, "Use a smaller batch") from e
            raise RunError(
                f"the torch model raised {type(e).__name__} (last call that ran: {last})",
                text,
                "Check the inputs' number, order, shapes and dtypes" + (f": {given.packed}" if given.packed else ""),
            ) from e

    @contextmanager
    def _intercept(self, tape: Tape) -> Iterator[None]:
        touched: list[tuple[nn.Module, Any]] = []  # with the forward of its own that an object may have
        hooked: dict[int, str] = {}
        try:
            for path, m in self._tree.modules.items():
                if id(m) not in hooked and path not in self._tree.composites:
                    hooked[id(m)] = path
                    touched.append((m, m.__dict__.get("forward")))
                    m.__dict__["forward"] = partial(self._leaf_forward, tape, m, path, m.forward)
            for path, composite in self._tree.composites.items():
                m = composite.module
                touched.append((m, m.__dict__.get("forward")))
                m.__dict__["forward"] = partial(self._composite_forward, tape, path, composite, m.forward)
            for path, m in self.module.named_modules():
                if id(m) not in hooked and path not in self._tree.composites:
                    inner = _uncompiled(m)
                    touched.append((m, m.__dict__.get("forward")))
                    m.__dict__["forward"] = partial(self._scope_forward, tape, path, m.forward if inner is m else inner)
            yield
        finally:
            for m, own in reversed(touched):
                if own is None:
                    m.__dict__.pop("forward", None)
                else:
                    m.__dict__["forward"] = own

    def _leaf_forward(self, tape: Tape, m: nn.Module, path: str, original: Any, *args: Any, **kwargs: Any) -> Any:
        if tape.depth:
            return original(*args, **kwargs)
        return tape.execute(
            self._tree.by_path[path],
            original,
            args,
            kwargs,
            leaf=True,
            inplace=bool(getattr(m, "inplace", False)),
            exact_fn=partial(_in_float64, m, original),
            batch_first=bool(getattr(m, "batch_first", False)),
        )

    def _composite_forward(
        self, tape: Tape, path: str, composite: Composite, original: Any, *args: Any, **kwargs: Any
    ) -> Any:
        if tape.depth:
            return original(*args, **kwargs)
        with tape.scope(path):
            return composite.forward(tape, path, *args, **kwargs)

    @staticmethod
    def _scope_forward(tape: Tape, path: str, original: Any, *args: Any, **kwargs: Any) -> Any:
        if tape.depth:
            return original(*args, **kwargs)
        with tape.scope(path):
            return original(*args, **kwargs)

    def call(self, path: str, inputs: Sequence[Array], *, like: Call | None = None, exact: bool = False) -> list[Array]:
        tensors = [torch.from_numpy(np.array(v)) for v in inputs]
        if exact:
            tensors = [t.double() if t.is_floating_point() else t for t in tensors]
        module = self._tree.modules.get(path)
        fn: Callable[..., Any]
        slots: Slots | None = None
        modes = {m: m.training for m in self.module.modules()} if self.was_training else {}
        for m in modes:
            m.training = False
        try:
            with torch.no_grad():
                if like is not None and like.key in self._saved:
                    fn, slots = self._saved[like.key]
                    given = [
                        t.to(o.dtype) if not (exact and o.is_floating_point()) else t
                        for t, o in zip(tensors, slots.tensors, strict=True)
                    ]
                    args, kwargs = slots.rebuilt(given)
                elif module is not None:
                    fn, args, kwargs = module.forward, tuple(tensors), {}
                else:
                    raise UnsupportedError(f"{path!r} cannot be called alone")
                if exact and module is not None:
                    fn = partial(_in_float64, module, fn)
                first = slots.batch_first if slots is not None else bool(getattr(module, "batch_first", False))
                return [numpy_from_tensor(t) for t in Slots((fn(*args, **kwargs),), first).tensors]
        except (RuntimeError, TypeError, ValueError, IndexError) as e:
            raise RunError(f"layer {path!r} raised {type(e).__name__} when called alone", str(e).splitlines()[0]) from e
        finally:
            for m, mode in modes.items():
                m.training = mode

    @contextmanager
    def patched(self, path: str, **attrs: Any) -> Iterator[None]:
        module = self._tree.modules.get(path)
        if module is None:
            raise UnsupportedError(f"{path!r} is no layer that can be changed")
        changes: dict[str, Any] = {}
        for name, value in attrs.items():
            names, convert = _PATCH.get(name, ((), lambda v: v))
            target = next((n for n in names if hasattr(module, n)), None)
            if target is None or (name == "threshold" and not isinstance(module, nn.Softplus)):
                raise UnsupportedError(f"{name} of {type(module).__name__} {path!r} cannot be changed on a built layer")
            changes[target] = convert(value)
        before = {n: getattr(module, n) for n in changes}
        try:
            for n, v in changes.items():
                setattr(module, n, v)
            yield
        finally:
            for n, v in before.items():
                setattr(module, n, v)

    def close(self) -> None:
        self._saved.clear()


def _writable(*tensors: torch.Tensor) -> AbstractContextManager[Any]:
    """Weights made in inference mode can be written to in inference mode only."""
    return torch.inference_mode() if any(t.is_inference() for t in tensors) else nullcontext()


def _in_float64(module: nn.Module, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The layer with all its weights in float64 (state is put back)."""
    if type(module) is nn.Embedding and module.max_norm is None:
        return fn(*args, **kwargs).double()  # it only picks rows: no need for a table of twice the size
    tensors = [*module.named_parameters(), *module.named_buffers()]
    doubled = {n: t.detach().double() for n, t in tensors if t.is_floating_point()}
    if not doubled:
        return fn(*args, **kwargs)
    return torch.func.functional_call(module, doubled, args, kwargs)
