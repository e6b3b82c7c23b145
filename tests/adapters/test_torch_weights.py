"""Writing canonical weights into torch layers: what does not fit, what is made of other tensors, small types."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from tests.adapters.torch_reference import draw
from torch import nn

from ambidex.adapters import torch_layers as tl
from ambidex.errors import InputError, UnsupportedError


def test_weights_that_do_not_fit_are_refused_and_nothing_is_written() -> None:
    module = nn.Linear(3, 2)
    before = module.weight.detach().clone()
    with pytest.raises(InputError, match="shape"):
        tl.set_weights(module, {"W": np.zeros((2, 3)), "B": np.zeros(3)})
    assert torch.equal(module.weight, before)
    with pytest.raises(InputError, match="scale"):
        tl.set_weights(module, {"scale": np.zeros(3)})
    bare = nn.Linear(3, 2, bias=False)
    tl.set_weights(bare, {"B": np.zeros(2)})
    with pytest.raises(InputError, match="'B'"):
        tl.set_weights(bare, {"B": np.ones(2)})
    with pytest.raises(InputError, match="directions"):
        tl.set_weights(nn.GRU(3, 2), {"W": np.zeros((6, 3))})


def test_parametrised_weights() -> None:
    module = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2).double())
    value = draw(2, 3).numpy()
    tl.set_weights(module, {"W": value})
    np.testing.assert_allclose(tl.get_weights(module)["W"], value, rtol=1e-12)
    assert tl.weight_names(module)["W"] in dict(module.named_parameters())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        old = nn.utils.weight_norm(nn.Linear(3, 2))
    assert tl.weight_names(old)["W"] in dict(old.named_parameters())
    with pytest.raises(UnsupportedError, match="recomputed"):
        tl.set_weights(old, {"W": value})


def test_bfloat16_weights_are_read_as_float32() -> None:
    module = nn.Linear(3, 2, dtype=torch.bfloat16)
    assert tl.get_weights(module)["W"].dtype == np.float32
    tl.set_weights(module, {"W": np.full((2, 3), 1.25)})
    assert module.weight.dtype == torch.bfloat16 and module.weight.detach()[0, 0] == 1.25
