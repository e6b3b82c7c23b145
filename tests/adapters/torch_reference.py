"""What tests of torch layers share: data, drawn weights, and the float64 reference of a layer."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from ambidex.adapters import torch_layers as tl
from ambidex.adapters.reference_ import evaluate

TOLERANCE = 1e-9


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    """Normal numbers with an offset, so that the mean is not zero."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 1.5 + 0.3


def prepared(module: nn.Module, seed: int = 1) -> nn.Module:
    """float64, evaluation mode, every weight and statistic drawn (fresh layers have ones and zeros)."""
    module = module.double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, t in [*module.named_parameters(), *module.named_buffers()]:
            if t.is_floating_point():
                drawn = torch.randn(t.shape, generator=generator, dtype=torch.float64) * 0.4
                t.copy_(drawn.abs() + 0.5 if name.endswith("var") else drawn)
    return module


def reference(module: nn.Module, *inputs: torch.Tensor) -> list[np.ndarray]:
    t = tl.translate(module)
    assert t is not None
    return evaluate(t.op, t.attrs, tl.get_weights(module), [x.numpy() for x in inputs], layout=t.layout)


def assert_close(found: np.ndarray, wanted: torch.Tensor, tolerance: float = TOLERANCE) -> None:
    assert found.shape == tuple(wanted.shape)
    np.testing.assert_allclose(found, wanted.detach().numpy(), rtol=tolerance, atol=tolerance)


X1, X2, X3 = draw(2, 4, 11), draw(2, 4, 9, 12), draw(2, 4, 6, 7, 8)
V, SEQ = draw(5, 6), draw(3, 7, 6)
IDS = torch.tensor([[1, 0, 3], [4, 4, 2]])
