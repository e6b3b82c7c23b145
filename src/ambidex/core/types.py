"""The nouns that every part shares: layers, calls, plans and layouts.

A model run is a list of *calls*: one execution of a layer or of a functional operator. A call holds the
canonical description of what ran (:class:`Layer`) and, after recording, the arrays that went in and came out.
Canonical means the ONNX standard: operator names, attribute names and weight layouts are those of ONNX
(``docs/design.md``, "Canonical operators").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray

#: where an input of a call comes from: ("call", call index, output number), ("input", name, 0),
#: ("weight", weight name, 0) or ("const", "", 0)
Origin = tuple[str, Any, int]


@dataclass(frozen=True, slots=True)
class Source:
    """A place in the user's code: where a layer is built, or where a functional operator is called."""

    file: str
    line: int
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(slots=True)
class Layer:
    """One layer or functional operator in canonical (ONNX) words.

    ``op`` is "" when the adapter has no canonical name for it. ``weights`` maps a canonical role ("W", "B",
    "scale", "mean", ...) to the framework's own weight name. ``layout`` names the axes of the main input when
    they carry meaning ("NCHW", "NHWC", "NLC", "NCL", "NTF", "TNF"), else "".
    """

    path: str
    op: str
    attrs: dict[str, Any] = field(default_factory=dict)
    weights: dict[str, str] = field(default_factory=dict)
    cls: str = ""
    layout: str = ""
    source: Source | None = None
    functional: bool = False
    trainable: bool = True


@dataclass(slots=True)
class Call:
    """One execution of a layer. Arrays are numpy, in the framework's own layout.

    ``received`` are the tensor inputs that arrived (before a plan replaced them), ``inputs`` those the layer
    really computed on, ``computed`` its outputs, ``outputs`` what was handed on (after a plan replaced them).
    ``exact`` are the outputs for the same inputs in float64 when the run was asked for them (the layer's own
    round-off floor is ``|computed - exact|``); ``floors`` is what ``ambidex.core.floor`` found from it, by output.
    """

    key: str
    layer: Layer
    index: int
    names: list[str] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    received: list[Array] = field(default_factory=list)
    inputs: list[Array] = field(default_factory=list)
    computed: list[Array] = field(default_factory=list)
    outputs: list[Array] = field(default_factory=list)
    exact: list[Array] | None = None
    scope: str = ""
    floors: list[float | None] | None = None

    @property
    def op(self) -> str:
        return self.layer.op

    @property
    def path(self) -> str:
        return self.layer.path


Replacement = Callable[[Call, Sequence[Array]], Sequence[Array]]


@dataclass(slots=True)
class Plan:
    """What a run should do at which call (keys are :attr:`Call.key`).

    ``inputs``/``outputs`` replace single tensors (None leaves one alone), ``replace`` computes the outputs
    instead of the layer, ``patch`` sets canonical attributes of a layer while it is called. ``feed`` computes single
    inputs (by number) just before the call, from what the run has done so far; None leaves the input alone. A call in
    ``skip`` with a replaced output need not be computed: an adapter may hand on the replacement and call it computed.
    """

    inputs: dict[str, list[Array | None]] = field(default_factory=dict)
    outputs: dict[str, list[Array | None]] = field(default_factory=dict)
    replace: dict[str, Replacement] = field(default_factory=dict)
    patch: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    feed: dict[str, list[tuple[int, Callable[[], Array | None]]]] = field(default_factory=dict)
    skip: set[str] = field(default_factory=set)
