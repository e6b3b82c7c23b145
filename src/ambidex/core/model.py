"""The adapter interface: nested protocols, no capability flags.

Module level, every adapter in ``ambidex.adapters`` also has ``accepts(obj) -> bool`` (decides without importing
the framework) and ``wrap(obj) -> Model``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ambidex.core.trace import Trace
from ambidex.core.types import Array, Layer, Plan

#: what a model is called with: positional arrays, or arrays by keyword
Batch = Sequence[Array] | Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input of a model: numpy dtype name and shape, None for any size. ``high``: ids must stay below it."""

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None
    high: int | None = None


@runtime_checkable
class Model(Protocol):
    """Anything that answers a batch."""

    framework: str

    def signature(self) -> list[TensorSpec] | None:
        """The inputs the model declares; None when it declares nothing (most torch modules)."""

    def run(
        self,
        batch: Batch,
        plan: Plan | None = None,
        *,
        record: bool = True,
        training: bool = False,
        exact: bool | Collection[str] = False,
    ) -> Trace:
        """Run once. ``record``: keep every call; ``exact``: also compute each call in float64 (see Trace), or only
        the layers whose call keys are given, and all functional code."""

    def close(self) -> None: ...


@runtime_checkable
class Inspectable(Model, Protocol):
    """A model whose layers can be listed, called alone, and changed."""

    def layers(self) -> list[Layer]:
        """Every layer that has a canonical op, or owns weights of its own; in definition order, shared ones once."""

    def weights(self) -> dict[str, Array]:
        """All weights and buffers by the framework's own names, own layout."""

    def constants(self) -> set[str]:
        """Names of weights that no training changes (buffers): without a partner they are no finding."""

    def set_weights(self, values: Mapping[str, Array]) -> None:
        """Write weights by the framework's own names, own layout; unknown names or wrong shapes raise InputError."""

    def layer_weights(self, path: str) -> dict[str, Array]:
        """The weights of one layer by canonical role in canonical layout (empty when op is "")."""

    def set_layer_weights(self, path: str, values: Mapping[str, Array]) -> None:
        """Write canonical roles of one layer; roles that the layer does not have raise InputError."""

    def call(self, path: str, inputs: Sequence[Array], *, like: Any = None, exact: bool = False) -> list[Array]:
        """One layer alone on tensor inputs. ``like``: a Call of it, whose other arguments are used again."""

    def patched(self, path: str, **attrs: Any) -> AbstractContextManager[None]:
        """The layer as if built with these canonical attributes; UnsupportedError when it cannot be."""
