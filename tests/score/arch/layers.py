"""One layer a pair: every layer type of both frameworks with its exact mapping, as clean controls.

A variant is a cell of the table: the torch layer, the Keras layers that compute the same, the input's shape (torch's
layout) and how the weights go over. ``image`` cells have channels first on the torch side and last on the Keras side.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from torch import nn

from tests.score import layers_other, layers_with_weights, zoo
from tests.score.hand import Link
from tests.score.zoo import Arch, Clean

CELLS = layers_with_weights.CELLS | layers_other.CELLS


def torch_model(cfg: dict[str, Any], f: frozenset[str]) -> nn.Module:
    module: nn.Module = CELLS[cfg["cell"]].torch()
    module.zoo_cell = cfg["cell"]  # type: ignore[assignment]  # says which carry belongs to it
    return module


def keras_model(cfg: dict[str, Any], f: frozenset[str]) -> keras.Model:
    cell = CELLS[cfg["cell"]]
    shape = (*cell.shape[2:], cell.shape[1]) if cell.image else cell.shape[1:]
    return keras.Sequential([keras.Input(shape, dtype="int32" if cell.ids else "float32"), *cell.keras()])


def make_inputs(cfg: dict[str, Any], rng: np.random.Generator) -> zoo.Inputs:
    cell = CELLS[cfg["cell"]]
    if cell.ids:
        return (rng.integers(0, cell.ids, cell.shape).astype(np.int64),)
    return ((1.5 * rng.standard_normal(cell.shape)).astype(np.float32),)


def links(t: Any, k: Any) -> list[Link]:
    carry = CELLS[t.zoo_cell].carry
    return [] if carry is None else carry(t, k)


class Layers(Arch):
    """The table as an architecture: whether the layout changes is the cell's to say."""

    def build(self, faults: Any = (), variant: str = "base", *more: Any, **named: Any) -> zoo.Pair:
        if CELLS[variant].image:
            self.keras_from_torch_inputs = zoo.images_to_keras
            self.torch_from_keras_outputs = zoo.nchw_from_nhwc
        else:
            self.keras_from_torch_inputs = self.torch_from_keras_outputs = lambda x: x
        return super().build(faults, variant, *more, **named)


ARCH = Layers(
    name="layers", reference="torch", torch_model=torch_model, keras_model=keras_model, links=links,
    make_inputs=make_inputs, faults={}, combos=[], variants={name: {"cell": name} for name in CELLS},
    clean=[Clean(name) for name in CELLS],
)  # fmt: skip
build, FAULTS = ARCH.build, ARCH.faults
