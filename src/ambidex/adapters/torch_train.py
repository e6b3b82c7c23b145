"""The torch side of the stages of training: see :class:`ambidex.core.training.Trainer`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from ambidex.adapters.torch_inputs import Arguments
from ambidex.adapters.torch_slots import named_outputs, numpy_from_tensor
from ambidex.adapters.torch_train_clips import clip_form
from ambidex.adapters.torch_train_forms import loss_form, metric_form, optimizer_form, schedule_form
from ambidex.adapters.torch_train_given import Updates, checked, fresh_metric
from ambidex.adapters.torch_train_outputs import Returned, as_floats, rebuilt, tensors
from ambidex.adapters.torch_train_quiet import as_found, mode
from ambidex.adapters.torch_train_watch import watched
from ambidex.adapters.torch_train_words import source_of, takes_weights, user, wanted
from ambidex.core.training import Example, Form, Gradients, LossValue, Steps
from ambidex.core.types import Array
from ambidex.errors import InputError, RunError

#: losses whose targets may be whole numbers (ids of classes); torch's others go back from real ones only
_BY_ID = ("", "CrossEntropy")


def trainer(model: Any, given: Mapping[str, Any] | None) -> TorchTrainer:
    """What the user said for the torch side, checked; ``model`` is the adapter's. Raises InputError."""
    lost = next((n for n, p in model.module.named_parameters() if p.is_inference()), None)
    if lost is not None:
        raise InputError(
            f"weight {lost!r} of the torch side cannot be trained",
            "it was made in inference mode, where autograd sees nothing",
            "Build or load the model outside torch.inference_mode()",
        )
    return TorchTrainer(model, checked(given))


class TorchTrainer:
    """A module with the user's loss, optimizer and so on; leaves the module as it found it."""

    framework = "torch"

    def __init__(self, model: Any, words: Mapping[str, Any]) -> None:
        self.model, self.words = model, words
        self.module: nn.Module = model.module
        self.accumulate = int(words.get("accumulate", 1))
        self.averages = bool(words.get("divide", True))
        self.updates = Updates(words, self.module)
        loss = words.get("loss")
        # a loss may have weights and statistics of its own
        self.kept = (self.module, loss) if isinstance(loss, nn.Module) else (self.module,)
        self.forms: dict[str, Form] = {}
        if loss is not None:
            self.forms["loss"] = loss_form(loss)
        if "clip" in words:
            with self._as_found(weights=False):
                self.forms["clip"] = clip_form(words["clip"], self.module)
        if "metric" in words:
            self.forms["metric"] = metric_form(words["metric"])
        if "optimizer" in words:
            with self._as_found():
                optimizer, scheduler = self.updates.fresh()
            self.forms["optimizer"] = optimizer_form(optimizer, self.module, source_of(words["optimizer"]))
            if scheduler is not None:
                self.forms["schedule"] = schedule_form(scheduler, source_of(words["scheduler"]))

    def _as_found(self, *, weights: bool = True) -> Any:
        return as_found(*self.kept, weights=weights)

    def _has(self, *parts: str) -> None:
        for part in parts:
            if part not in self.forms:
                raise InputError(f"the torch side has no {part}")

    # ------------------------------------------------------------------------------------------------ loss and metric
    def loss(self, outputs: Mapping[str, Array], targets: Any, weights: Array | None = None) -> LossValue:
        leaves = _leaves(outputs)
        slopes = {n: t.requires_grad_(True) for n, t in leaves.items() if t.is_floating_point()}
        with self._as_found(weights=False):
            value = self._loss(rebuilt(leaves, self.model.returned), targets, weights)
            found: Sequence[torch.Tensor | None] = ()
            if value.requires_grad and slopes:
                # with respect to the outputs alone: a loss may hold weights, of its own or of the model (penalties)
                found = user("backward of the loss", torch.autograd.grad, value, list(slopes.values()),
                             allow_unused=True)  # fmt: skip
            made = {n: numpy_from_tensor(g).copy() for n, g in zip(slopes, found, strict=False) if g is not None}
            return LossValue(float(value.detach()), made)

    def _loss(self, outputs: Any, targets: Any, weights: Array | None) -> torch.Tensor:
        self._has("loss")
        loss = self.words["loss"]
        like = next((t for _, t in named_outputs(outputs) if t.is_floating_point()), None)
        y = tensors(targets, like)
        if self.forms["loss"].op not in _BY_ID:
            y = as_floats(y, like)
        given = [outputs, y]
        if weights is not None:
            if not takes_weights(loss):
                raise InputError(
                    "the batches have weights of samples, which the torch side's loss does not take",
                    todo="Let it take them: lambda outputs, targets, weights: ...",
                )
            given.append(tensors(weights, like))
        value = user("loss", loss, *given)
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
        """Weights of the samples go to a function that takes them by such a name."""
        self._has("metric")
        leaves = _leaves(outputs)
        like = next((t for t in leaves.values() if t.is_floating_point()), None)
        metric = fresh_metric(self.words["metric"])
        given = [rebuilt(leaves, self.model.returned), tensors(targets, like)]
        if weights is not None and takes_weights(metric):
            given.append(tensors(weights, like))
        with self._as_found(weights=False), torch.no_grad():
            value = user("metric", metric, *given)
        try:
            return float(value)
        except (TypeError, ValueError, RuntimeError) as e:
            raise RunError(f"the torch side's metric returned {type(value).__name__}", todo="Return a number") from e

    # ------------------------------------------------------------------------------------------------------ gradients
    def gradients(
        self, example: Example, *, training: bool = False, seeds: Mapping[str, Array] | None = None
    ) -> Gradients:
        with self._as_found(weights=False), mode(self.module, training):
            buffers = {n: numpy_from_tensor(b).copy() for n, b in self.module.named_buffers()}
            with watched(self.module, self.model._tree) as tape:
                output = self._forward(example)
            named = dict(named_outputs(output))
            for t in named.values():
                if t.requires_grad:
                    t.retain_grad()
            loss = float("nan")
            if seeds is None:
                value = self._loss(output, example.targets, example.weights)
                loss = float(value.detach())
                _back([value], None)
            else:
                roots = {n: torch.from_numpy(np.array(g)) for n, g in seeds.items()
                         if n in named and named[n].requires_grad}  # fmt: skip
                _back([named[n] for n in roots], [g.to(named[n].dtype).reshape(named[n].shape)
                                                  for n, g in roots.items()])  # fmt: skip
            return Gradients(
                loss,
                _grads(named),
                _grads(dict(self.module.named_parameters())),
                tape.gradients(),
                {
                    n: numpy_from_tensor(b).copy()
                    for n, b in self.module.named_buffers()
                    if n not in buffers or not np.array_equal(numpy_from_tensor(b), buffers[n])
                },
            )

    def _forward(self, example: Example) -> Any:
        batch = example.batch
        items = batch.items() if isinstance(batch, Mapping) else enumerate(batch)
        named = {str(name): torch.from_numpy(np.array(value)) for name, value in items}
        arguments = Arguments(self.module.forward, named, isinstance(batch, Mapping))
        output = user("forward", self.module, *arguments.args, **arguments.kwargs)
        self.model.returned = Returned(output)
        return output

    # -------------------------------------------------------------------------------------------------------- updates
    def clip(self, gradients: Mapping[str, Array]) -> dict[str, Array]:
        if "clip" not in self.words:
            return {n: np.array(g) for n, g in gradients.items()}
        with self._as_found():
            self._set(gradients, frozen=True)
            user("clip", self.words["clip"], wanted(self.words["clip"], self.module))
            return {n: g for n, g in _grads(dict(self.module.named_parameters())).items() if n in gradients}

    def update(self, gradients: Sequence[Mapping[str, Array]], factors: Sequence[float]) -> list[dict[str, Array]]:
        self._has("optimizer")
        found: list[dict[str, Array]] = []
        with self._as_found():
            optimizer, _ = self.updates.fresh()
            first = [g.get("initial_lr", g["lr"]) for g in optimizer.param_groups]
            for one, factor in zip(gradients, factors, strict=True):
                self._set(one)
                for group, rate in zip(optimizer.param_groups, first, strict=True):
                    group["lr"] = rate * factor
                user("step of the optimizer", optimizer.step)
                found.append(_values(self.module.named_parameters()))
        return found

    def rates(self, count: int) -> list[float]:
        self._has("optimizer")
        found: list[float] = []
        with self._as_found():
            optimizer, scheduler = self.updates.fresh()
            for _ in range(count):
                found.append(float(optimizer.param_groups[0]["lr"]))
                user("step of the optimizer", optimizer.step)  # no parameter has a gradient: nothing moves
                self.updates.advance(scheduler)
        return found

    def steps(self, examples: Sequence[Example]) -> Steps:
        self._has("loss", "optimizer")
        losses: list[float] = []
        with self._as_found(), mode(self.module, True):
            optimizer, scheduler = self.updates.fresh()
            for n, example in enumerate(examples, start=1):
                value = self._loss(self._forward(example), example.targets, example.weights)
                losses.append(float(value.detach()))
                _back([value / self.accumulate if self.averages else value], None)
                if n % self.accumulate:
                    continue
                if "clip" in self.words:
                    user("clip", self.words["clip"], wanted(self.words["clip"], self.module))
                user("step of the optimizer", optimizer.step)
                self.updates.advance(scheduler)
                self.module.zero_grad(set_to_none=True)
            return Steps(losses, _values(self.module.named_parameters()) | _values(self.module.named_buffers()))

    def _set(self, gradients: Mapping[str, Array], *, frozen: bool = False) -> None:
        """``frozen``: parameters that ask for no gradient get one all the same."""
        sparse = {id(m.weight) for m in self.module.modules()
                  if isinstance(m, nn.Embedding | nn.EmbeddingBag) and m.sparse}  # fmt: skip
        for name, p in self.module.named_parameters():
            given = gradients.get(name)
            if given is None or not (p.requires_grad or frozen):
                p.grad = None
                continue
            grad = torch.from_numpy(np.array(given)).to(p.dtype).reshape(p.shape)
            p.grad = grad.to_sparse(1) if id(p) in sparse else grad


# ---------------------------------------------------------------------------------------------------------------- small
def _leaves(outputs: Mapping[str, Array]) -> dict[str, torch.Tensor]:
    return {n: torch.from_numpy(np.array(v)) for n, v in outputs.items()}


def _back(roots: Sequence[torch.Tensor], seeds: Sequence[torch.Tensor] | None) -> None:
    """Backwards, where there is a way back."""
    if roots and all(t.requires_grad for t in roots):
        user("backward pass", torch.autograd.backward, list(roots), None if seeds is None else list(seeds))


def _grads(named: Mapping[str, torch.Tensor]) -> dict[str, Array]:
    return {n: numpy_from_tensor(t.grad).copy() for n, t in named.items() if t.grad is not None}


def _values(named: Any) -> dict[str, Array]:
    return {n: numpy_from_tensor(t).copy() for n, t in named}
