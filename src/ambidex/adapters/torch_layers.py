"""The layers of ``torch.nn`` in canonical (ONNX) words: operator, attributes, and weights in canonical layout.

:func:`translate` looks at one module alone. A subclass with a ``forward`` of its own is no longer the layer that it
derives from and has no translation. The layers one by one are in ``torch_layers_modules`` and ``torch_layers_rnn``,
functions in ``torch_layers_functional``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parametrize

from ambidex.adapters.torch_layers_functional import functional
from ambidex.adapters.torch_layers_modules import TABLE, gpt_linear
from ambidex.adapters.torch_layers_rnn import rnn_layer
from ambidex.adapters.torch_layers_words import Translation
from ambidex.core.types import Array
from ambidex.errors import InputError, UnsupportedError

__all__ = [
    "functional",
    "get_weights",
    "set_weights",
    "stack",
    "translate",
    "weight_names",
    "weight_sources",
]


def _builder(m: nn.Module) -> Callable[[Any], Translation | None] | None:
    """The table entry of the nearest torch class whose forward this module still runs."""
    cls = type(m)
    if cls.__name__ == "Conv1D" and cls.__module__.startswith("transformers."):
        return gpt_linear
    for base in cls.__mro__:
        if base in TABLE:
            return TABLE[base] if getattr(cls, "forward", None) is base.forward else None
    return None


def translate(m: nn.Module) -> Translation | None:
    """The canonical description of one layer; None when there is none (see :func:`stack` for deep recurrent layers)."""
    make = _builder(m)
    return make(m) if make is not None else None


def stack(m: nn.Module) -> list[Translation]:
    """A recurrent layer of several layers as one translation each; [] for anything else."""
    if not isinstance(m, nn.RNNBase) or _builder(m) is None:
        return []
    found = [rnn_layer(m, i) for i in range(m.num_layers)]
    return [t for t in found if t is not None]


# ---------------------------------------------------------------------- weights
def _stored(m: nn.Module, name: str) -> str:
    """The name under which a tensor stands in ``named_parameters()``: a parametrised one under its original's."""
    if parametrize.is_parametrized(m, name):
        prefix = f"parametrizations.{name}."
        return next((n for n, _ in m.named_parameters() if n.startswith(prefix)), name)
    for old in (f"{name}_v", f"{name}_orig"):  # torch.nn.utils.weight_norm, spectral_norm
        if name not in m._parameters and old in m._parameters:
            return old
    return name


def weight_names(m: nn.Module) -> dict[str, str]:
    """Canonical role -> the torch weight, relative to the module; a role of several has them joined by " + "."""
    return {role: " + ".join(names) for role, names in weight_sources(m).items()}


def weight_sources(m: nn.Module) -> dict[str, tuple[str, ...]]:
    """Canonical role -> every torch weight it is made of (LSTM ``B``: bias_ih_l0, bias_hh_l0, ...)."""
    t = translate(m)
    return {} if t is None else {role: tuple(_stored(m, n) for n in r.names) for role, r in t.roles.items()}


def _value(m: nn.Module, name: str) -> Array:
    t = getattr(m, name).detach()
    return (t.float() if t.dtype == torch.bfloat16 else t).cpu().numpy()


def get_weights(m: nn.Module, translation: Translation | None = None) -> dict[str, Array]:
    """The weights of a layer by canonical role, canonical layout (views of the module's memory where they can be)."""
    t = translation or translate(m)
    return {} if t is None else {role: r.read([_value(m, n) for n in r.names]) for role, r in t.roles.items()}


def set_weights(m: nn.Module, values: Mapping[str, Array], translation: Translation | None = None) -> None:
    """Write canonical weights into a layer. Either all of ``values`` fit and are written, or none.

    A recurrent ``B`` may hold one bias instead of two: the recurrent half becomes zero. A bias for a layer without
    one is accepted only when it is all zero.
    """
    t = translation or translate(m)
    roles = {} if t is None else t.roles
    ready: list[tuple[str, Array]] = []
    for role, value in values.items():
        value = np.asarray(value)
        if role not in roles:
            if role == "B" and t is not None and t.op != "PRelu" and not value.any():
                continue
            raise InputError(
                f"{type(m).__name__} has no weight with the role {role!r}", f"it has {sorted(roles) or 'none'}"
            )
        shapes = [tuple(getattr(m, n).shape) for n in roles[role].names]
        parts = roles[role].write(value, shapes)
        for name, shape, part in zip(roles[role].names, shapes, parts, strict=True):
            if tuple(part.shape) != shape:
                raise InputError(f"weight {name!r} of {type(m).__name__} has shape {shape}, given {tuple(part.shape)}")
            ready.append((name, part))
    for name, part in ready:
        _write(m, name, part)


def _write(m: nn.Module, name: str, value: Array) -> None:
    old = getattr(m, name)
    new = torch.from_numpy(np.array(value)).to(old.dtype).to(old.device)
    with torch.no_grad():
        if parametrize.is_parametrized(m, name):
            try:
                setattr(m, name, new)
            except (NotImplementedError, RuntimeError) as e:
                raise UnsupportedError(
                    f"weight {name!r} of {type(m).__name__} is parametrised and cannot be set",
                    str(e),
                    "Remove the parametrisation first",
                ) from e
        elif name in m._parameters or name in m._buffers:
            old.copy_(new)
        else:  # recomputed before every call: writing it would have no effect
            raise UnsupportedError(
                f"weight {name!r} of {type(m).__name__} is recomputed from other weights",
                todo="Remove weight_norm or spectral_norm first",
            )
