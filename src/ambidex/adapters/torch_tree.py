"""The layers of a torch module: what is listed, described and intercepted, and under which paths."""

from __future__ import annotations

from torch import nn

from ambidex.adapters import torch_layers as tl
from ambidex.adapters.torch_parts import Composite, composite_of, plain
from ambidex.adapters.torch_sources import assigned_at
from ambidex.core.types import Layer, Source


class Tree:
    """The module tree seen as layers: a composite stands there as its parts, a layer without a name whole."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.names: dict[int, str] = {}
        for name, t in [*module.named_parameters(), *module.named_buffers()]:
            self.names.setdefault(id(t), name)
        self.modules: dict[str, nn.Module] = {}  # leaf path -> module (parts of composites included)
        self.composites: dict[str, Composite] = {}
        self.owners: dict[str, str] = {}  # path of a part -> path of its composite
        for path, m in module.named_modules():
            composite = composite_of(m)
            if composite is not None:
                self.composites[path] = composite
                for name, part in composite.parts.items():
                    full = f"{path}.{name}" if path else name
                    self.modules[full] = part
                    self.owners[full] = path
        self.layers = self._list_layers()
        self.by_path = {layer.path: layer for layer in self.layers}

    def _list_layers(self) -> list[Layer]:
        found: list[Layer] = []
        for path, m in self.module.named_modules():
            if any(path == owner or path.startswith(owner + ".") for owner in self.composites if owner != path):
                if path in self.modules:
                    continue
            if path in self.composites:
                composite = self.composites[path]
                for name, part in composite.parts.items():
                    full = f"{path}.{name}" if path else name
                    found.append(self._layer(full, part, composite.weight_names(path, name)))
                continue
            translation = tl.translate(m)
            if translation is not None:
                self.modules[path] = m
                dot = f"{path}." if path else ""
                names = {role: " + ".join(dot + n for n in names) for role, names in tl.weight_sources(m).items()}
                names = {role: " + ".join(map(self._shared_name, name.split(" + "))) for role, name in names.items()}
                found.append(self._layer(path, m, names))
            elif self._opaque(m):
                self.modules[path] = m
                found.append(Layer(path, "", {}, self._raw(path, m), type(m).__name__, source=self._source(path, m)))
            else:
                raw = self._raw(path, m)
                if raw:
                    found.append(Layer(path, "", {}, raw, type(m).__name__, source=self._source(path, m)))
        return found

    def _shared_name(self, name: str) -> str:
        """The name under which the model lists a weight: a tied one has that of its first owner."""
        owner, _, last = name.rpartition(".")
        found = getattr(self.module.get_submodule(owner), last, None)
        return self.names.get(id(found), name)

    @staticmethod
    def _opaque(m: nn.Module) -> bool:
        """A layer of torch itself without a canonical name, and without children: kept whole."""
        return (
            type(m).__module__.startswith("torch.nn.modules")
            and not any(True for _ in m.children())
            and type(m).__name__ not in {"Sequential", "ModuleList", "ModuleDict", "Module"}
        )

    @staticmethod
    def _raw(path: str, m: nn.Module) -> dict[str, str]:
        own = [*m.named_parameters(recurse=False), *m.named_buffers(recurse=False)]
        return {n: f"{path}.{n}" if path else n for n, _ in own}

    def _layer(self, path: str, m: nn.Module, names: dict[str, str]) -> Layer:
        t = tl.translate(plain(m))
        assert t is not None
        trainable = any(p.requires_grad for p in m.parameters(recurse=False))
        attrs = dict(t.attrs)
        if getattr(m, "backward_in_time", False):
            attrs["direction"] = "reverse"
        return Layer(path, t.op, attrs, names, type(m).__name__, t.layout, self._source(path, m), trainable=trainable)

    def _source(self, path: str, m: nn.Module) -> Source | None:
        owner = self.owners.get(path, path)
        module = self.module.get_submodule(owner)
        known = module.__dict__.get("_ambidex_source")
        return known if known is not None else (assigned_at(self.module, owner) if owner else None)
