"""100 training steps of both frameworks with mapped settings, in float64 and float32: ``make steps``.

Settings are those that make the two optimizers the same (``docs/canonical.md``): epsilon so small that its place does
not matter, decay on the same side of the gradient, hyper-parameters that float32 holds exactly, because Keras'
optimizers pass them through it. The difference is relative to the largest weight.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

import keras  # isort: skip  (torch first)
from ambidex.adapters import keras_, torch_
from ambidex.core.training import Example

STEPS = 100
#: what no setting brings closer, and why
OUT_OF_REACH = {"NAdam": "Keras' Nadam takes its 0.96 through float32 in one place of the formula and not in the other"}
WANTED = {"float64": 1e-9, "float32": 1e-4}
#: exactly representable in float32
RATE, HALF, B1, B2 = 2.0**-7, 0.5, 0.875, 1 - 2.0**-9
TINY = 1e-30


@dataclass(frozen=True)
class Mapped:
    """The two optimizers, and an L2 penalty of the Keras layers where that is torch's decay."""

    torch: Callable[[Any], torch.optim.Optimizer]
    keras: Callable[[], Any]
    penalty: float = 0.0


T, K = torch.optim, keras.optimizers
ADAM: dict[str, Any] = {"lr": RATE, "betas": (B1, B2), "eps": TINY}
KADAM: dict[str, Any] = {"learning_rate": RATE, "beta_1": B1, "beta_2": B2, "epsilon": TINY}
OPTIMIZERS: dict[str, Mapped] = {
    "SGD": Mapped(lambda p: T.SGD(p, RATE), lambda: K.SGD(RATE)),
    "SGD, momentum": Mapped(lambda p: T.SGD(p, RATE, B1), lambda: K.SGD(RATE, B1)),
    "SGD, Nesterov": Mapped(lambda p: T.SGD(p, RATE, B1, nesterov=True), lambda: K.SGD(RATE, B1, nesterov=True)),
    "SGD, momentum and decay": Mapped(
        lambda p: T.SGD(p, RATE, B1, weight_decay=2.0**-5), lambda: K.SGD(RATE, B1), penalty=2.0**-6
    ),
    "Adam": Mapped(lambda p: T.Adam(p, **ADAM), lambda: K.Adam(**KADAM)),
    "Adam, AMSGrad": Mapped(lambda p: T.Adam(p, amsgrad=True, **ADAM), lambda: K.Adam(amsgrad=True, **KADAM)),
    "Adam, decay in the gradient": Mapped(
        lambda p: T.Adam(p, weight_decay=2.0**-5, **ADAM), lambda: K.Adam(**KADAM), penalty=2.0**-6
    ),
    "AdamW": Mapped(lambda p: T.AdamW(p, weight_decay=2.0**-5, **ADAM), lambda: K.AdamW(weight_decay=2.0**-5, **KADAM)),
    "AdamW against Keras' Adam": Mapped(
        lambda p: T.AdamW(p, weight_decay=2.0**-5, **ADAM), lambda: K.Adam(weight_decay=2.0**-5, **KADAM)
    ),
    "Adamax": Mapped(lambda p: T.Adamax(p, **ADAM), lambda: K.Adamax(**KADAM)),
    "NAdam": Mapped(lambda p: T.NAdam(p, momentum_decay=1.0, **ADAM), lambda: K.Nadam(**KADAM)),
    "Adagrad": Mapped(
        lambda p: T.Adagrad(p, RATE, initial_accumulator_value=0.125, eps=TINY),
        lambda: K.Adagrad(RATE, initial_accumulator_value=0.125, epsilon=TINY),
    ),
    "RMSprop": Mapped(lambda p: T.RMSprop(p, RATE, B1, TINY), lambda: K.RMSprop(RATE, B1, epsilon=TINY)),
    "RMSprop, momentum, centred": Mapped(
        lambda p: T.RMSprop(p, RATE, B1, TINY, momentum=HALF, centered=True),
        lambda: K.RMSprop(RATE, B1, HALF, TINY, centered=True),
    ),
    "Adadelta": Mapped(lambda p: T.Adadelta(p, HALF, B1, 2.0**-20), lambda: K.Adadelta(HALF, B1, 2.0**-20)),
    "Adafactor": Mapped(
        lambda p: T.Adafactor(p, RATE, eps=(TINY, 2.0**-10)),
        lambda: K.Adafactor(RATE, epsilon_1=TINY, epsilon_2=2.0**-10),
    ),
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 10), nn.Linear(10, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.tanh(self.a(x)))


def keras_net(dtype: str, penalty: float) -> keras.Model:
    more = {"dtype": dtype, "kernel_regularizer": None, "bias_regularizer": None}
    if penalty:
        more |= {n: keras.regularizers.L2(penalty) for n in ("kernel_regularizer", "bias_regularizer")}
    x = i = keras.Input((6,), dtype=dtype)
    x = keras.layers.Dense(10, activation="tanh", name="a", **more)(x)
    return keras.Model(i, keras.layers.Dense(3, name="b", **more)(x))


def apart(name: str, dtype: str) -> float:
    """Largest difference of a weight after the steps, relative to the largest weight."""
    case = OPTIMIZERS[name]
    keras.config.set_floatx(dtype)
    try:
        torch.manual_seed(1)
        module = Net().to(getattr(torch, dtype))
        model = keras_net(dtype, case.penalty)
        for layer in ("a", "b"):
            weight, bias = (getattr(getattr(module, layer), n).detach().numpy() for n in ("weight", "bias"))
            model.get_layer(layer).set_weights([weight.T, bias])
        rng = np.random.default_rng(2)
        examples = [Example([rng.standard_normal((8, 6)).astype(dtype)], rng.standard_normal((8, 3)).astype(dtype))
                    for _ in range(STEPS)]  # fmt: skip
        ours = torch_.trainer(torch_.wrap(module), {"loss": nn.MSELoss(), "optimizer": case.torch})
        theirs = keras_.trainer(
            keras_.wrap(model), {"loss": keras.losses.MeanSquaredError(dtype=dtype), "optimizer": case.keras()}
        )
        a, b = ours.steps(examples).weights, theirs.steps(examples).weights
    finally:
        keras.config.set_floatx("float32")
    worst = 0.0
    for layer in ("a", "b"):
        for x, y in ((a[f"{layer}.weight"].T, b[f"{layer}/kernel"]), (a[f"{layer}.bias"], b[f"{layer}/bias"])):
            worst = max(worst, float(np.abs(x - y).max() / np.abs(x).max()))
    return worst


def measured() -> dict[str, dict[str, float]]:
    return {name: {dtype: apart(name, dtype) for dtype in WANTED} for name in OPTIMIZERS}


def main() -> int:
    torch.set_num_threads(1)
    found = measured()
    if "--json" in sys.argv:
        print(json.dumps(found))
        return 0
    print(f"{STEPS} steps, largest difference of a weight relative to the largest; torch {torch.__version__}, "
          f"keras {keras.__version__}\n")  # fmt: skip
    print("optimizer".ljust(32) + "".join(f"{d} (<= {w:g})".rjust(22) for d, w in WANTED.items()))
    good = True
    for name, row in found.items():
        held = all(row[d] <= w for d, w in WANTED.items())
        good &= held
        print(
            name.ljust(32)
            + "".join(f"{row[d]:.1e}".rjust(22) for d in WANTED)
            + ("" if held else f"   missed: {OUT_OF_REACH.get(name, '')}")
        )
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
