"""100 steps of both frameworks in float64 with mapped settings end at the same weights."""

from __future__ import annotations

import pytest

from tests.training import steps


@pytest.mark.parametrize("name", steps.OPTIMIZERS)
def test_mapped_optimizers_agree(name: str) -> None:
    assert steps.apart(name, "float64") <= steps.WANTED["float64"]
