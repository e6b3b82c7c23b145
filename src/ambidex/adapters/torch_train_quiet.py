"""Training of a torch module without randomness, and without a trace of it afterwards."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

#: functions that drop at random
_DROPPING = {"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout",
             "feature_dropout", "native_dropout"}  # fmt: skip
#: layers of other packages that drop whole branches or regions: in inference mode they hand their input on
_DROPPING_LAYERS = {"DropPath", "StochasticDepth", "DropBlock2d", "DropBlock3d"}


class _NoDropout(TorchFunctionMode):
    """Functions that drop at random hand their input on."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "").rstrip("_")
        if name in _DROPPING and (args or "input" in kwargs):
            x = args[0] if args else kwargs["input"]
            return (x, torch.ones_like(x, dtype=torch.bool)) if name == "native_dropout" else x
        if name == "scaled_dot_product_attention":
            if len(args) > 4:  # the rate by position, and what comes behind it
                args = (*args[:4], 0.0, *args[5:])
            else:
                kwargs["dropout_p"] = 0.0
        return func(*args, **kwargs)


@contextmanager
def mode(module: nn.Module, training: bool) -> Iterator[None]:
    """Inference or training mode, in both without dropout. What else is random starts from one seed. What is compiled
    runs as it was written."""
    modes = {m: m.training for m in module.modules()}
    rates = [
        (m, name, getattr(m, name))
        for m in module.modules()
        for name in ("p", "dropout")  # of dropout layers; of attention and recurrent layers (and of the user's own)
        if (name == "p" and isinstance(m, nn.modules.dropout._DropoutNd))
        or (name == "dropout" and type(m.__dict__.get(name)) is float)
    ]
    try:
        module.train(training)
        for m in modes:
            if type(m).__name__ in _DROPPING_LAYERS or isinstance(m, nn.RReLU):
                m.training = False
        for m, name, _ in rates:
            setattr(m, name, 0.0)
        if training:
            torch.manual_seed(0)
        # to say so loads the compiler, which takes seconds: not where nothing has loaded it
        stance = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
        with stance, _NoDropout():
            yield
    finally:
        for m, name, rate in rates:
            setattr(m, name, rate)
        for m, was in modes.items():
            m.training = was


@contextmanager
def as_found(*modules: nn.Module, weights: bool = True) -> Iterator[None]:
    """Weights (unless nothing writes them), buffers, gradients and random states are afterwards what they were.

    Inside, no parameter has a gradient, and autograd is on.
    """
    parameters = [p for m in modules for p in m.parameters()]
    # an embedding with max_norm writes its table in the forward pass
    weights = weights or any(getattr(m, "max_norm", None) is not None for x in modules for m in x.modules())
    kept = [*(parameters if weights else ()), *(b for m in modules for b in m.buffers())]
    values = [(t, t.detach().clone()) for t in kept]
    grads = [(p, p.grad) for p in parameters]
    states = torch.random.get_rng_state(), np.random.get_state(), random.getstate()
    try:
        for p in parameters:
            p.grad = None
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.random.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])
        with torch.no_grad():
            for t, value in values:
                if not _equal(t, value):
                    t.copy_(value)
        for p, grad in grads:
            p.grad = grad


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a, b)
