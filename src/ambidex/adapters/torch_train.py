"""The torch side of the stages of training: see :class:`ambidex.core.training.Trainer`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from ambidex.adapters.torch_inputs import Arguments
from ambidex.adapters.torch_slots import named_outputs, numpy_from_tensor
from ambidex.adapters.torch_train_forms import clip_form, loss_form, name_of, optimizer_form, schedule_form, source_of
from ambidex.core.training import Example, Form, Gradients, LossValue, Steps
from ambidex.core.types import Array
from ambidex.errors import InputError, RunError, UnsupportedError

_KNOWN = ("loss", "optimizer", "scheduler", "clip", "accumulate", "divide", "metric")
#: functions that drop at random, with the argument that says how often
_DROPPING = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout",
             "feature_dropout", "native_dropout")  # fmt: skip


def trainer(model: Any, given: Mapping[str, Any] | None) -> TorchTrainer:
    """What the user said for the torch side, checked; ``model`` is the adapter's. Raises InputError."""
    words = dict(given or {})
    unknown = [n for n in words if n not in _KNOWN]
    if unknown:
        raise InputError(
            f"the torch side does not know {unknown[0]!r}", todo=f"It takes {', '.join(_KNOWN)}, all of them optional"
        )
    for name in ("loss", "optimizer", "scheduler", "clip", "metric"):
        if name in words and not callable(words[name]) and not isinstance(words[name], torch.optim.Optimizer):
            raise InputError(f"{name} of the torch side is no function: {type(words[name]).__name__}")
    accumulate = words.get("accumulate", 1)
    if not isinstance(accumulate, int) or isinstance(accumulate, bool) or accumulate < 1:
        raise InputError(f"accumulate of the torch side is {accumulate!r}", todo="Give a whole number from 1")
    return TorchTrainer(model.module, words, accumulate)


class TorchTrainer:
    """A module with the user's loss, optimizer and so on; leaves the module as it found it."""

    framework = "torch"

    def __init__(self, module: nn.Module, words: Mapping[str, Any], accumulate: int) -> None:
        self.module, self.words, self.accumulate = module, words, accumulate
        self.averages = bool(words.get("divide", True))
        self.forms: dict[str, Form] = {}
        if "loss" in words:
            self.forms["loss"] = loss_form(words["loss"])
        if "clip" in words:
            self.forms["clip"] = clip_form(words["clip"])
        if "metric" in words:
            self.forms["metric"] = _metric_form(words["metric"])
        if "optimizer" in words:
            with _as_found(module):
                optimizer, scheduler = self._fresh()
            names = {id(p): n for n, p in module.named_parameters()}
            self.forms["optimizer"] = optimizer_form(optimizer, names, source_of(words["optimizer"]))
            if scheduler is not None:
                self.forms["schedule"] = schedule_form(scheduler, source_of(words["scheduler"]))

    # ------------------------------------------------------------------------------------------------ loss and metric
    def loss(self, outputs: Mapping[str, Array], targets: Any, weights: Array | None = None) -> LossValue:
        leaves = {n: torch.from_numpy(np.array(v)) for n, v in outputs.items()}
        for leaf in leaves.values():
            if leaf.is_floating_point():
                leaf.requires_grad_(True)
        value = self._loss(_rebuilt(leaves), targets, weights)
        if value.requires_grad:
            value.backward()
        found = {n: numpy_from_tensor(t.grad) for n, t in leaves.items() if t.grad is not None}
        return LossValue(float(value.detach()), found)

    def _loss(self, outputs: Any, targets: Any, weights: Array | None) -> torch.Tensor:
        like = next((t for _, t in named_outputs(outputs) if t.is_floating_point()), None)
        given = [outputs, _tensors(targets, like)]
        if weights is not None:
            given.append(_tensors(weights, like))
        value = _user("loss", self.words["loss"], *given)
        if not isinstance(value, torch.Tensor):
            raise RunError(f"the torch side's loss returned {type(value).__name__}", todo="Return a tensor")
        if value.numel() != 1:
            raise RunError(
                f"the torch side's loss returned {tuple(value.shape)} values",
                "a training step goes back from one number",
                "Reduce it: reduction='mean', or .mean()",
            )
        return value.reshape(())

    def metric(self, outputs: Mapping[str, Array], targets: Any, weights: Array | None = None) -> float:
        leaves = {n: torch.from_numpy(np.array(v)) for n, v in outputs.items()}
        like = next((t for t in leaves.values() if t.is_floating_point()), None)
        with torch.no_grad():
            value = _user("metric", self.words["metric"], _rebuilt(leaves), _tensors(targets, like))
        try:
            return float(value)
        except (TypeError, ValueError) as e:
            raise RunError(f"the torch side's metric returned {type(value).__name__}", todo="Return a number") from e

    # ------------------------------------------------------------------------------------------------------ gradients
    def gradients(
        self, example: Example, *, training: bool = False, seeds: Mapping[str, Array] | None = None
    ) -> Gradients:
        with _as_found(self.module, weights=False), _mode(self.module, training):
            buffers = {n: numpy_from_tensor(b).copy() for n, b in self.module.named_buffers()}
            kept: dict[str, torch.Tensor] = {}
            self.module.zero_grad(set_to_none=True)
            with _outputs_kept(self.module, kept):
                output = self._forward(example)
            named = dict(named_outputs(output))
            for t in named.values():
                if t.requires_grad and not t.is_leaf:
                    t.retain_grad()
            if seeds is None:
                value = self._loss(output, example.targets, example.weights)
                if value.requires_grad:
                    value.backward()
                loss = float(value.detach())
            else:
                loss = float("nan")
                roots = [(named[n], torch.from_numpy(np.array(g)).to(named[n].dtype)) for n, g in seeds.items()
                         if n in named and named[n].requires_grad]  # fmt: skip
                if roots:
                    torch.autograd.backward([t for t, _ in roots], [g.reshape(t.shape) for t, g in roots])
            return Gradients(
                loss,
                _grads(named),
                _grads(dict(self.module.named_parameters())),
                _grads(kept),
                {
                    n: numpy_from_tensor(b).copy()
                    for n, b in self.module.named_buffers()
                    if not np.array_equal(numpy_from_tensor(b), buffers[n])
                },
            )

    def _forward(self, example: Example) -> Any:
        batch = example.batch
        items = batch.items() if isinstance(batch, Mapping) else enumerate(batch)
        named = {str(name): torch.from_numpy(np.array(value)) for name, value in items}
        arguments = Arguments(self.module.forward, named, isinstance(batch, Mapping))
        return _user("forward", self.module, *arguments.args, **arguments.kwargs)

    # -------------------------------------------------------------------------------------------------------- updates
    def _fresh(self) -> tuple[torch.optim.Optimizer, Any]:
        """A new optimizer on the module's parameters, and its scheduler if the side has one."""
        given = self.words["optimizer"]
        if isinstance(given, torch.optim.Optimizer):
            groups = [dict(g) for g in given.param_groups]
            optimizer: Any = type(given)(groups)
        else:
            optimizer = _user("optimizer", given, self._wanted(given))
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise InputError(
                f"optimizer of the torch side returned {type(optimizer).__name__}",
                todo="Let it return a torch.optim.Optimizer: lambda parameters: torch.optim.Adam(parameters, lr=1e-3)",
            )
        if isinstance(optimizer, torch.optim.LBFGS):
            raise UnsupportedError("the torch side's optimizer LBFGS needs the loss again in each update")
        scheduler = self.words.get("scheduler")
        return optimizer, None if scheduler is None else _user("scheduler", scheduler, optimizer)

    def _wanted(self, function: Callable[..., Any]) -> Any:
        """Parameters, or named ones or the module where the function's own parameter is called so."""
        try:
            first = next(iter(inspect.signature(function).parameters), "")
        except (TypeError, ValueError):
            first = ""
        if first in ("named_parameters", "named_params"):
            return list(self.module.named_parameters())
        return self.module if first in ("model", "module", "net") else list(self.module.parameters())

    def clip(self, gradients: Mapping[str, Array]) -> dict[str, Array]:
        if "clip" not in self.words:
            return {n: np.array(g) for n, g in gradients.items()}
        with _as_found(self.module):
            self._set(gradients)
            _user("clip", self.words["clip"], self._wanted(self.words["clip"]))
            return {n: g for n, g in _grads(dict(self.module.named_parameters())).items() if n in gradients}

    def update(self, gradients: Sequence[Mapping[str, Array]], factors: Sequence[float]) -> list[dict[str, Array]]:
        found: list[dict[str, Array]] = []
        with _as_found(self.module):
            optimizer, _ = self._fresh()
            first = [float(g.get("initial_lr", g["lr"])) for g in optimizer.param_groups]
            for one, factor in zip(gradients, factors, strict=True):
                self._set(one)
                for group, rate in zip(optimizer.param_groups, first, strict=True):
                    group["lr"] = rate * factor
                optimizer.step()
                found.append(self._trained())
        return found

    def rates(self, count: int) -> list[float]:
        found: list[float] = []
        with _as_found(self.module):
            optimizer, scheduler = self._fresh()
            for p in self.module.parameters():
                p.grad = None
            for _ in range(count):
                found.append(float(optimizer.param_groups[0]["lr"]))
                optimizer.step()
                _advance(scheduler)
        return found

    def steps(self, examples: Sequence[Example]) -> Steps:
        losses: list[float] = []
        with _as_found(self.module), _mode(self.module, True):
            optimizer, scheduler = self._fresh()
            self.module.zero_grad(set_to_none=True)
            for n, example in enumerate(examples, start=1):
                value = self._loss(self._forward(example), example.targets, example.weights)
                losses.append(float(value.detach()))
                (value / self.accumulate if self.averages else value).backward()
                if n % self.accumulate:
                    continue
                if "clip" in self.words:
                    _user("clip", self.words["clip"], self._wanted(self.words["clip"]))
                optimizer.step()
                _advance(scheduler)
                optimizer.zero_grad(set_to_none=True)
            return Steps(losses, self._trained() | {n: numpy_from_tensor(b).copy() for n, b in
                                                    self.module.named_buffers()})  # fmt: skip

    def _set(self, gradients: Mapping[str, Array]) -> None:
        for name, p in self.module.named_parameters():
            given = gradients.get(name)
            p.grad = None if given is None else torch.from_numpy(np.array(given)).to(p.dtype).reshape(p.shape)

    def _trained(self) -> dict[str, Array]:
        return {n: numpy_from_tensor(p).copy() for n, p in self.module.named_parameters()}


# ---------------------------------------------------------------------------------------------------------------- small
def _metric_form(metric: Any) -> Form:
    """Metrics of scikit-learn by name; what a function of the user's own computes shows in its values."""
    name = name_of(metric)
    known = {
        "roc_auc_score": ("AUC", {"curve": "ROC", "thresholds": None}),
        "average_precision_score": ("AUC", {"curve": "PR", "thresholds": None}),
    }
    op, attrs = known.get(name, ("", {})) if str(getattr(metric, "__module__", "")).startswith("sklearn") else ("", {})
    return Form(op, dict(attrs), cls=name, source=source_of(metric))


def _user(what: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        return function(*args, **kwargs)
    except (RunError, InputError, UnsupportedError):
        raise
    except Exception as e:
        why = (str(e).strip().splitlines() or [""])[0][:300]
        raise RunError(f"{what} of the torch side raised {type(e).__name__}", why) from e


def _advance(scheduler: Any) -> None:
    if scheduler is None:
        return
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise UnsupportedError("a scheduler that waits for the metric (ReduceLROnPlateau) is not compared by steps")
    scheduler.step()


def _grads(tensors: Mapping[str, torch.Tensor]) -> dict[str, Array]:
    return {n: numpy_from_tensor(t.grad).copy() for n, t in tensors.items() if t.grad is not None}


def _tensors(value: Any, like: torch.Tensor | None) -> Any:
    """Targets as a training loop hands them over: whole numbers as int64, others in the outputs' type."""
    if isinstance(value, Mapping):
        return {k: _tensors(v, like) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_tensors(v, like) for v in value)
    if not isinstance(value, np.ndarray):
        return value
    t = torch.from_numpy(np.array(value))
    if t.is_floating_point():
        return t if like is None else t.to(like.dtype)
    return t if t.dtype == torch.bool else t.to(torch.int64)


class _Named(dict[str, Any]):
    """Outputs by name that answer to attributes too, as those of many libraries do."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def _rebuilt(outputs: Mapping[str, torch.Tensor]) -> Any:
    """What the model returned: one tensor, a tuple, or a dictionary (see ``named_outputs``)."""
    if list(outputs) == ["0"]:
        return outputs["0"]
    if list(outputs) == [str(i) for i in range(len(outputs))]:
        return tuple(outputs.values())
    tree: dict[str, Any] = {}
    for name, value in outputs.items():
        node, parts = tree, name.split(".")
        for part in parts[:-1]:
            node = node.setdefault(part, {})
        node[parts[-1]] = value

    def shaped(node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        made = {k: shaped(v) for k, v in node.items()}
        return tuple(made.values()) if all(k.isdigit() for k in made) else _Named(made)

    return shaped(tree)


class _NoDropout(TorchFunctionMode):
    """Functions that drop at random hand their input on."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "").rstrip("_")
        if name in _DROPPING and (args or "input" in kwargs):
            return args[0] if args else kwargs["input"]
        if name == "scaled_dot_product_attention":
            kwargs["dropout_p"] = 0.0
            args = args[:4]
        return func(*args, **kwargs)


@contextmanager
def _mode(module: nn.Module, training: bool) -> Iterator[None]:
    """Inference or training mode, in both without dropout."""
    modes = {m: m.training for m in module.modules()}
    dropping = [(m, m.__dict__["dropout"]) for m in module.modules() if isinstance(m.__dict__.get("dropout"), float)]
    rates = [(m, m.p) for m in module.modules() if isinstance(m, nn.modules.dropout._DropoutNd)]
    try:
        if training:
            module.train()
        else:
            module.eval()
        for m, _ in dropping:
            m.dropout = 0.0  # type: ignore[assignment]
        for m, _ in rates:
            m.p = 0.0
        with _NoDropout():
            yield
    finally:
        for m, rate in dropping:
            m.dropout = rate  # type: ignore[assignment]
        for m, rate in rates:
            m.p = rate
        for m, mode in modes.items():
            m.training = mode


@contextmanager
def _outputs_kept(module: nn.Module, kept: dict[str, torch.Tensor]) -> Iterator[None]:
    """The first output of each call of a leaf, by the key of a recorded call, with its gradient to come."""
    counts: dict[str, int] = {}

    def hook(path: str) -> Callable[..., None]:
        def note(m: nn.Module, args: Any, output: Any) -> None:
            number = counts.get(path, 0)
            counts[path] = number + 1
            found = named_outputs(output)
            if found and found[0][1].requires_grad and not found[0][1].is_leaf:
                found[0][1].retain_grad()
                kept[f"{path}#{number}"] = found[0][1]

        return note

    handles = [m.register_forward_hook(hook(n)) for n, m in module.named_modules() if n and not list(m.children())]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _as_found(module: nn.Module, *, weights: bool = True) -> Iterator[None]:
    """Weights (unless nothing writes them), buffers, gradients and the random state are afterwards what they were."""
    values = [(t, t.detach().clone()) for t in (*(module.parameters() if weights else ()), *module.buffers())]
    grads = [(p, p.grad) for p in module.parameters()]
    state = torch.random.get_rng_state()
    try:
        with torch.enable_grad():
            yield
    finally:
        torch.random.set_rng_state(state)
        with torch.no_grad():
            for t, value in values:
                if not torch.equal(t, value):
                    t.copy_(value)
        for p, grad in grads:
            p.grad = grad
