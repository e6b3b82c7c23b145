"""Small models with a loss, an optimizer and the rest: faults behind the forward pass, which agrees."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import torch
from keras import layers, ops
from torch import nn

from tests.score import hand, recipes, zoo
from tests.score.hand import Link
from tests.score.recipes import BASE, CLEAN, COMBOS, FAULTS, OPTIMIZER, Recipe
from tests.score.zoo import Arch, Clean, Expect

OUTPUTS = {"classes": 5, "binary": 1, "real": 3, "sequence": 5}
BATCH = 96


class Net(nn.Module):
    def __init__(self, head: str, turns: frozenset[str]) -> None:
        super().__init__()
        self.turns, self.sequence = turns, head == "sequence"
        if self.sequence:
            self.embedding = nn.Embedding(11, 8, padding_idx=0 if "padding" in turns else None)
            if "lstm" in turns:
                self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.hidden = nn.Linear(8, 12)
        self.out = nn.Linear(12, OUTPUTS[head])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.sequence:
            x = self.embedding(x)
            x = self.lstm(x)[0].mean(1) if "lstm" in self.turns else x.mean(1)
        x = torch.tanh(self.hidden(x))
        return self.out(x.detach() if "stopped" in self.turns else x)


@keras.saving.register_keras_serializable("score")
class Backwards(layers.Layer):
    """Hands its input on and its gradient back, negated."""

    def call(self, x: Any) -> Any:
        return 2 * ops.stop_gradient(x) - x


@keras.saving.register_keras_serializable("score")
class Stopped(layers.Layer):
    def call(self, x: Any) -> Any:
        return ops.stop_gradient(x)


def torch_model(cfg: dict[str, Any], f: frozenset[str]) -> nn.Module:
    return Net(cfg["head"], cfg["torch_turns"])


def keras_model(cfg: dict[str, Any], f: frozenset[str]) -> keras.Model:
    head, turns = cfg["head"], cfg["turns"]
    l2 = 0.1 if "l2_whole" in turns else 0.05
    more = {}
    if turns & {"l2_whole", "l2_half"}:
        more = {n: keras.regularizers.L2(l2) for n in ("kernel_regularizer", "bias_regularizer")}
    if head == "sequence":
        i = keras.Input((7,), dtype="int32")
        x = layers.Embedding(11, 8, name="embedding")(i)
        x = layers.LSTM(8, return_sequences=True, name="lstm")(x) if "lstm" in turns else x
        x = layers.GlobalAveragePooling1D()(x)
    else:
        x = i = keras.Input((8,))
    x = layers.Dense(12, activation="tanh", name="hidden", trainable="frozen" not in turns, **more)(x)
    x = Stopped()(x) if "stopped" in turns else Backwards()(x) if "reversed" in turns else x
    return keras.Model(i, layers.Dense(OUTPUTS[head], name="out", **more)(x))


def links(t: Any, k: Any) -> list[Link]:
    get = k.get_layer
    found = [*hand.dense(t.hidden, get("hidden")), *hand.dense(t.out, get("out"))]
    if t.sequence:
        found += hand.embedding(t.embedding, get("embedding"))
        found += hand.lstm(t.lstm, get("lstm")) if "lstm" in t.turns else []
    return found


def make_inputs(cfg: dict[str, Any], rng: np.random.Generator) -> zoo.Inputs:
    if cfg["head"] == "sequence":
        return (rng.integers(0, 11, (BATCH, 7)),)
    return (rng.standard_normal((BATCH, 8)).astype(np.float32),)


def targets(head: str) -> np.ndarray:
    rng = np.random.default_rng(9)
    if head in ("classes", "sequence"):
        return rng.integers(0, 5, BATCH)
    if head == "binary":
        return rng.integers(0, 2, (BATCH, 1)).astype(np.float32)
    return rng.standard_normal((BATCH, 3)).astype(np.float32)


class Training(Arch):
    """The recipes as an architecture: a case says what both sides are trained with."""

    def build(self, faults: Any = (), variant: str = "plain", *more: Any, **named: Any) -> zoo.Pair:
        chosen = [FAULTS[n] for n in sorted(faults)] or [CLEAN[variant]]
        heads = {c.head for c in chosen}
        if len(heads) != 1:
            raise ValueError(f"{sorted(faults)} belong to different models")
        cfg = {"head": heads.pop(), "turns": frozenset().union(*(c.turns for c in chosen)),
               "torch_turns": frozenset().union(*(c.torch_turns for c in chosen))}  # fmt: skip
        self.variants = {"now": cfg}
        pair = super().build((), "now", *more, **named)
        pair.training = {
            "reference": _made([BASE[cfg["head"]][0], OPTIMIZER[0], *(c.torch for c in chosen)]),
            "candidate": _made(_keras_parts(cfg["head"], chosen)),
        }
        pair.targets = targets(cfg["head"])
        return pair


def _made(parts: list[recipes.Parts]) -> dict[str, Any]:
    merged: recipes.Parts = {}
    for one in parts:
        merged |= one
    return {name: make() for name, make in merged.items()}


def _keras_parts(head: str, chosen: list[Recipe]) -> list[recipes.Parts]:
    """Options of the optimizer from several recipes meet in one: those of the later ones are put onto the first."""
    makers = [c.keras["optimizer"] for c in chosen if "optimizer" in c.keras]
    rest = [{n: v for n, v in c.keras.items() if n != "optimizer"} for c in chosen]

    def joined() -> Any:
        made = [make() for make in makers]
        if not made or isinstance(made[0], str):
            return made[0] if made else OPTIMIZER[1]["optimizer"]()
        kinds = {type(m) for m in made} - {keras.optimizers.SGD}
        cls = kinds.pop() if kinds else keras.optimizers.SGD
        own = next(m for m in made if type(m) is cls).get_config()
        plain = keras.optimizers.SGD(recipes.RATE).get_config()
        for other in made:
            changed = {n: v for n, v in other.get_config().items() if n in plain and n != "name" and v != plain[n]}
            own |= {n: v for n, v in changed.items() if n in own}
        return cls.from_config(own)

    return [BASE[head][1], *rest, {"optimizer": joined if len(makers) != 1 else makers[0]}]


def expected(recipe: Recipe) -> Expect:
    kind = {"clip": "clipping", "schedule": "learning rate", "update": "optimizer"}.get(recipe.stage, recipe.stage)
    return Expect((recipe.where,), (), kind, codes=recipe.codes, stage=recipe.stage, silent=True)


ARCH = Training(
    name="training", reference="torch", torch_model=torch_model, keras_model=keras_model, links=links,
    make_inputs=make_inputs, faults={name: expected(recipe) for name, recipe in FAULTS.items()}, combos=COMBOS,
    variants={}, clean=[Clean(name) for name in CLEAN],
)  # fmt: skip
build = ARCH.build
