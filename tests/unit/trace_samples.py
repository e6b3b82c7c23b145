"""A trace of one call, for tests of what is written to disk and read back."""

from __future__ import annotations

import math

import numpy as np

from ambidex.core.trace import Trace
from ambidex.core.types import Call, Layer, Source


def small() -> Trace:
    x = np.arange(6, dtype="float32").reshape(2, 3)
    layer = Layer(
        "a", "Gemm", {"alpha": math.inf, "axes": (1, 2)}, {"W": "a.weight"}, source=Source("m.py", 3, "a = 1")
    )
    call = Call("a#0", layer, 0, ["x"], [("input", "0", 0)], [x], [x], [x + 1], [x + 1], [x.astype("float64") + 1])
    return Trace(
        "torch", {"torch": "2"}, {"0": x}, {"0": x + 1}, {"0": ("call", 0, 0)}, [call], [layer], {"a.weight": x}
    )
