"""What a Keras model is called with, and what it answers."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from ambidex.adapters.keras_tensors import is_tensor, tensor_from_numpy
from ambidex.core.model import Batch, TensorSpec
from ambidex.errors import InputError

_CONTEXT = {"training", "mask", "attention_mask", "self", "args", "kwargs"}


def is_graph(model: Any) -> bool:
    """A functional model, or a sequential one that is built: it declares its inputs."""
    return getattr(model, "_inputs_struct", None) is not None or getattr(model, "_functional", None) is not None


def _struct(model: Any) -> Any:
    functional = getattr(model, "_functional", None)
    return getattr(functional if functional is not None else model, "_inputs_struct", None)


class Arguments:
    """A batch as the arguments of a model: one input alone, several as a list, a dictionary as a dictionary.

    A subclassed model whose ``call`` takes several tensors gets them one by one.
    """

    def __init__(self, model: Any, batch: Batch) -> None:
        self.model = model
        if isinstance(batch, Mapping):
            self.named = {str(k): tensor_from_numpy(v) for k, v in batch.items()}
        else:
            self.named = {str(i): tensor_from_numpy(v) for i, v in enumerate(batch)}
        if not self.named:
            raise InputError("the batch holds no inputs")
        self.args: tuple[Any, ...]
        self.kwargs: dict[str, Any] = {}
        self.args = self._arranged(isinstance(batch, Mapping))
        parameters = inspect.signature(model.call).parameters
        variadic = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
        self.takes_training = "training" in parameters or variadic or getattr(model, "_call_has_training_arg", False)

    def _arranged(self, mapping: bool) -> tuple[Any, ...]:
        values = list(self.named.values())
        struct = _struct(self.model)
        if struct is not None:
            return (self._fitted(struct, mapping),)
        taken = [
            p
            for p in inspect.signature(self.model.call).parameters.values()
            if p.name not in _CONTEXT and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        ]
        masks = {"mask", "attention_mask"} & set(inspect.signature(self.model.call).parameters)
        names = {p.name for p in taken} | masks
        if mapping:
            if set(self.named) <= names:
                self.kwargs = dict(self.named)
                first = taken[0].name if taken else ""
                return (self.kwargs.pop(first),) if first in self.kwargs else ()
            return (dict(self.named),)
        if len(values) == 1:
            return (values[0],)
        required = [p for p in taken if p.default is p.empty]
        several = len(required) > 1 or (len(taken) >= len(values) and len(taken) > 1 and _tensors_by_default(taken))
        return tuple(values) if several and len(values) <= len(taken) else (values,)

    def _fitted(self, struct: Any, mapping: bool) -> Any:
        """The inputs in the structure that a functional model was made with."""
        values = list(self.named.values())
        flat = keras.tree.flatten(struct)
        if len(flat) != len(values):
            names = ", ".join(t.name for t in flat)
            raise InputError(
                f"the Keras model {self.model.name!r} takes {len(flat)} inputs ({names}), given {len(values)}"
            )
        if isinstance(struct, dict):
            if mapping:
                if set(self.named) == set(struct):
                    return {k: self.named[k] for k in struct}
                raise InputError(
                    f"the Keras model {self.model.name!r} takes inputs {sorted(struct)}, given {sorted(self.named)}"
                )
            return dict(zip(struct, values, strict=True))
        if mapping:
            by_name = [self.named.get(t.name) for t in flat]
            if all(v is not None for v in by_name):
                values = by_name
        if is_one(struct):
            return values[0]
        return keras.tree.pack_sequence_as(struct, values)

    def call(self, training: bool) -> Any:
        # in inference nothing is passed, as users call it: Keras would overrule a layer's own training=True
        extra = {"training": True} if training and self.takes_training else {}
        return self.model(*self.args, **self.kwargs, **extra)


def _tensors_by_default(parameters: list[inspect.Parameter]) -> bool:
    """Optional parameters that look like further tensors: None by default, not flags or numbers."""
    return all(p.default is p.empty or p.default is None for p in parameters)


def is_one(struct: Any) -> bool:
    return not isinstance(struct, list | tuple | dict)


def outputs_by_name(output: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """The tensors of any output structure with their names: dictionary keys, or positions."""
    if is_tensor(output):
        return [(prefix or "0", output)]
    if isinstance(output, Mapping):
        items = [(str(k), v) for k, v in output.items()]
    elif isinstance(output, list | tuple):
        items = [(str(i), v) for i, v in enumerate(output)]
    else:
        return []
    found: list[tuple[str, Any]] = []
    for name, value in items:
        found += outputs_by_name(value, f"{prefix}.{name}" if prefix else name)
    return found


# ---------------------------------------------------------------- signature


def signature(model: Any) -> list[TensorSpec] | None:
    """The inputs of a functional or built sequential model; None for others."""
    struct = _struct(model)
    if struct is None:
        return None
    names = list(struct) if isinstance(struct, dict) else [None] * len(keras.tree.flatten(struct))
    tensors = [struct[k] for k in names] if isinstance(struct, dict) else keras.tree.flatten(struct)
    source = getattr(model, "_functional", None) or model
    found = []
    for name, tensor in zip(names, tensors, strict=True):
        shape = tuple(None if n is None else int(n) for n in tensor.shape)
        high = _vocabulary(source, tensor)
        dtype = str(keras.backend.standardize_dtype(tensor.dtype))
        if high is not None and "int" not in dtype:
            dtype = "int32"  # ids declared as floats: Embedding casts them
        known = "float32" if dtype == "bfloat16" else np.dtype(dtype).name  # numpy has no bfloat16
        found.append(TensorSpec(name or tensor.name, known, shape, high))
    return found


def _vocabulary(model: Any, tensor: Any) -> int | None:
    """The smallest vocabulary among the embeddings that an input feeds directly."""
    found: list[int] = []
    for operation in getattr(model, "_operations", ()):
        for node in operation._inbound_nodes:
            if not any(t is tensor for t in node.input_tensors):
                continue
            if isinstance(operation, keras.layers.Embedding):
                found.append(int(operation.input_dim))
            elif is_graph(operation) and isinstance(operation, keras.Model):
                inner = getattr(operation, "_functional", None) or operation
                for outer, own in zip(node.input_tensors, keras.tree.flatten(_struct(operation)), strict=False):
                    if outer is tensor and (n := _vocabulary(inner, own)) is not None:
                        found.append(n)
            else:
                members = (
                    [m for m in operation._flatten_layers() if isinstance(m, keras.layers.Embedding)]
                    if (isinstance(operation, keras.layers.Layer))
                    else []
                )
                if members and len(node.input_tensors) == 1:
                    found.append(min(int(m.input_dim) for m in members))
    return min(found) if found else None
