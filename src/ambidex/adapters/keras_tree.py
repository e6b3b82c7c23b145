"""The object tree of a Keras model: stable paths, and how each layer takes part in a run.

A layer is a ``leaf`` (one call), is ``opened`` (its own code is recorded), or is taken apart in a way of its own
(``attention``, ``parts``, ``time``, ``dot``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import keras

from ambidex.adapters import keras_activations
from ambidex.adapters import keras_layers as kl
from ambidex.adapters.keras_sources import assigned_at, built_at
from ambidex.adapters.keras_words import own_class
from ambidex.core.types import Layer, Source

#: attributes of layers that hold bookkeeping of Keras, not members
_BOOKKEEPING = {
    "_layers",
    "_metrics",
    "_tracker",
    "_functional",
    "_operations",
    "_nodes",
    "_loss_tracker",
    "optimizer",
    "_compile_metrics",
    "_inputs",
    "_outputs",
    "_inbound_nodes",
    "_outbound_nodes",
    "_losses",
    "_parent",
    "_modules",
    "_parameters",
    "_buffers",
}


def _graph_of(layer: Any) -> bool:
    """A functional or sequential model, or a subclass of one: its members go by their names."""
    if isinstance(layer, keras.Sequential):
        return True
    return isinstance(layer, keras.Model) and getattr(layer, "_operations", None) is not None


#: operators whose layers may apply an activation at their end
_FUSING = ("Gemm", "Einsum", "Conv", "ConvTranspose")
_ATTENTION = (keras.layers.MultiHeadAttention, keras.layers.GroupQueryAttention)


def kind_of(layer: Any) -> str:
    """ "leaf", "opened", "attention", "parts", "time" or "dot"."""
    if isinstance(layer, keras.Model):
        return "opened"
    if isinstance(layer, _ATTENTION):
        return "attention" if _core_is_keras(layer) else "opened"
    if own_class(layer) is None or isinstance(layer, keras.layers.Lambda | keras.layers.Pipeline):
        return "opened"
    if isinstance(layer, keras.layers.Bidirectional):
        return "opened"  # each direction is a layer of its own
    if layer.built and kl.parts(layer) and all(part is not layer for _, part in kl.parts(layer)):
        return "parts" if getattr(layer, "padding", "") != "causal" else "leaf"
    if isinstance(layer, keras.layers.TimeDistributed):
        return "time"
    if own_class(layer) is keras.layers.Attention:
        return "dot"
    return "leaf"


def _core_is_keras(layer: Any) -> bool:
    """Whether the attention core is Keras' own (a subclass may replace ``call`` around it)."""
    names = ("_compute_attention", "_masked_softmax")
    found = [next((c for c in type(layer).__mro__ if name in vars(c)), None) for name in names]
    return all(c is None or c.__module__.startswith("keras.src.") for c in found)


def _members(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, keras.layers.Layer):
        yield name, value
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _members(item, f"{name}/{i}")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _members(item, f"{name}/{key}")


def children(layer: Any) -> list[tuple[str, Any]]:
    """The layers inside one, with their names, in definition order."""
    found: list[tuple[str, Any]] = []
    seen: set[int] = set()
    if _graph_of(layer):
        for member in layer.layers:
            if not isinstance(member, keras.layers.InputLayer):
                found.append((member.name, member))
                seen.add(id(member))
    else:
        # with the torch backend a layer is a torch module, which keeps its members in a dictionary of its own
        for attribute, value in {**vars(layer).get("_modules", {}), **vars(layer)}.items():
            if attribute in _BOOKKEEPING or attribute.startswith("_self_"):  # the latter are TensorFlow's
                continue
            for name, member in _members(value, attribute.lstrip("_")):
                if id(member) not in seen:
                    seen.add(id(member))
                    found.append((name, member))
    for member in getattr(layer, "_layers", []):
        if id(member) not in seen and not isinstance(member, keras.layers.InputLayer):
            seen.add(id(member))
            found.append((member.name, member))
    return found


class Tree:
    """Paths and canonical descriptions of every layer of a model."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.paths: dict[int, str] = {}
        self.kinds: dict[int, str] = {}
        self.members: dict[str, Any] = {}  # path -> layer, containers too; keeps them alive, so that ids stay true
        self.objects: dict[str, Any] = {}  # path of a leaf -> its layer or part
        self.cores: dict[str, Any] = {}  # path of an attention core -> the multi-head layer
        self.activations: dict[str, tuple[str, dict[str, Any]]] = {}  # path of a leaf -> the activation at its end
        self.sources: dict[str, Source | None] = {}
        self.variables: dict[str, Any] = {}  # weight name -> variable
        self.names: dict[int, str] = {}  # id(variable) -> weight name
        keras_activations.canonical("relu")  # fills its table while keras.ops is as Keras made it
        self._name_variables()
        self.layers: list[Layer] = []
        self.by_path: dict[str, Layer] = {}
        self._walk(model, "", None, "", None)

    def _name_variables(self) -> None:
        for variable in self.model.weights:
            if id(variable) in self.names:
                continue
            name, n = variable.path, 1
            while name in self.variables:
                name, n = f"{variable.path}_{n}", n + 1
            self.variables[name] = variable
            self.names[id(variable)] = name

    # ------------------------------------------------------------------ walking
    def _walk(self, layer: Any, path: str, parent: Any, attribute: str, source: Source | None) -> None:
        if id(layer) in self.paths:
            return
        while path in self.sources and path:
            path += "_"
        self.paths[id(layer)] = path
        self.members[path] = layer
        kind = self.kinds[id(layer)] = kind_of(layer)
        found = built_at(layer)
        if found is None and parent is not None:
            found = source if source is not None else assigned_at(parent, attribute.split("/")[0])
        self.sources[path] = found
        if kind in ("leaf", "dot"):
            self._leaf(layer, path)
            for name, part in kl.parts(layer):
                if part is not layer:
                    self._leaf(part, join(path, name))
        elif kind == "parts":
            for name, part in kl.parts(layer):
                self._leaf(part, join(path, name))
        elif kind == "attention":
            self._attention(layer, path)
        else:
            raw: dict[str, str] = {}
            for v in own_variables(layer):
                if id(v) in self.names:
                    raw[short_name(v, raw)] = self.names[id(v)]
            if raw:
                self._add(Layer(path, "", {}, raw, type(layer).__name__, source=found, trainable=bool(layer.trainable)))
            inherited = (
                found if isinstance(layer, keras.layers.Wrapper | keras.layers.Bidirectional) else None
            )  # its inner layers are Keras' own code
            for name, member in children(layer):
                self._walk(member, join(path, name), layer, self._attribute_of(layer, name), inherited)

    @staticmethod
    def _attribute_of(layer: Any, name: str) -> str:
        first = name.split("/")[0]
        return f"_{first}" if not hasattr(layer, first) and hasattr(layer, f"_{first}") else first

    def _attention(self, layer: Any, path: str) -> None:
        source = self.sources[path]
        found = {
            name: getattr(layer, f"_{attribute}_dense", None)
            for name, attribute in (
                ("query", "query"),
                ("key", "key"),
                ("value", "value"),
                ("gate", "gate"),
                ("attention_output", "output"),
            )
        }
        core = join(path, "attention")
        self.sources[core] = source
        attrs = {**kl.attention_attrs(layer), "is_causal": False}
        for name, member in found.items():
            if name == "attention_output":
                self._add(Layer(core, "Attention", attrs, {}, type(layer).__name__, "BTHD", source))
                self.cores[core] = layer
            if member is not None:
                self._walk(member, join(path, name), layer, name, source)
        for name in ("_softmax", "_dropout_layer", "_dot_product_attention"):
            if getattr(layer, name, None) is not None:
                inner = join(path, name)  # inside the core, never a call of its own
                self.paths[id(getattr(layer, name))], self.members[inner] = inner, getattr(layer, name)
                self.kinds[id(getattr(layer, name))] = "leaf"
        for name, member in children(layer):
            self._walk(member, join(path, name), layer, self._attribute_of(layer, name), None)

    @staticmethod
    def _is_tied(layer: Any) -> bool:
        """The projection of a reversible embedding that is its table again: no weights of its own."""
        return isinstance(layer, kl.Part) and layer.name == "reverse" and bool(layer.layer.tie_weights)

    def _add(self, layer: Layer, listed: bool = True) -> None:
        if listed:
            self.layers.append(layer)
        self.by_path[layer.path] = layer

    # ------------------------------------------------------------------ describing
    def _leaf(self, layer: Any, path: str) -> None:
        """A layer, or a part of one, that is one call."""
        owner = owner_of(layer)
        self.objects[path] = layer
        self.sources.setdefault(path, self.sources[self.paths[id(owner)]])
        self._add(self.describe(layer, path), listed=not self._is_tied(layer))
        if self.by_path[path].op in _FUSING and getattr(layer, "name", "") not in ("depthwise", "reverse"):
            activation = kl.split_activation(owner)
            if activation is not None:
                self.activations[path] = activation

    def describe(self, layer: Any, path: str) -> Layer:
        """One leaf in canonical words; op "" when there is no canonical name."""
        owner = owner_of(layer)
        source, cls, trainable = self.sources.get(path), type(owner).__name__, bool(owner.trainable)
        if owner is not layer:
            translation = layer.translation()
        elif layer.built or not _needs_building(layer):
            translation = kl.translate(layer)
        else:
            translation = None
        if translation is None or not translation.op:
            raw: dict[str, str] = {}
            for variable in layer.weights:
                if id(variable) in self.names:
                    raw[short_name(variable, raw)] = self.names[id(variable)]
            return Layer(path, "", {}, raw, cls, source=source, trainable=trainable)
        names = {
            role: " + ".join(dict.fromkeys(self.names.get(id(v), v.path) for v in variables))
            for role, variables in (kl.weight_variables(layer) if layer.weights else {}).items()
        }
        return Layer(
            path, translation.op, dict(translation.attrs), names, cls, translation.layout, source, trainable=trainable
        )

    def place_of(self, layer: Any, scope: str) -> tuple[str, str]:
        """Path and kind of a layer that is called.

        One that the model makes anew at every call has its class' name under the running scope: its own name counts up.
        """
        known = self.paths.get(id(layer))
        if known is not None and self.members[known] is layer:
            return known, self.kinds[id(layer)]
        kind = kind_of(layer)
        if kind in ("attention", "parts", "dot", "time"):
            kind = "leaf" if own_class(layer) is not None else "opened"
        return join(scope, re.sub(r"_\d+$", "", layer.name)), kind


def owner_of(layer: Any) -> Any:
    """The Keras layer behind a leaf: itself, or the one it is a part of."""
    return layer.layer if isinstance(layer, kl.Part) else layer


def _needs_building(layer: Any) -> bool:
    """A layer that makes its weights when built: one that was never called has none to be described by."""
    return type(layer).build is not keras.layers.Layer.build and not layer.weights


def is_built(model: Any) -> bool:
    """Whether every layer inside has its weights."""
    return all(layer.built or not _needs_building(layer) for layer in model._flatten_layers())


def short_name(variable: Any, taken: Mapping[str, str]) -> str:
    """A variable's own name, with as much of its path as it takes to be unique in ``taken``."""
    pieces = variable.path.split("/")
    for n in range(1, len(pieces) + 1):
        name = "/".join(pieces[-n:])
        if name not in taken:
            return name
    return f"{variable.path}_{len(taken)}"


def own_variables(layer: Any) -> list[Any]:
    """Weights that a layer holds itself (not those of its members, and no seeds)."""
    members = {id(v) for _, member in children(layer) for v in member.variables}
    return [v for v in layer.weights if id(v) not in members]


def join(scope: str, name: str) -> str:
    return f"{scope}/{name}" if scope else name
