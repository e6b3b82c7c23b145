"""100 steps of both frameworks in float64 with mapped settings end at the same weights."""

from __future__ import annotations

import pytest

from tests.training import steps


@pytest.mark.parametrize("name", [n for n in steps.OPTIMIZERS if n not in steps.OUT_OF_REACH])
def test_mapped_optimizers_agree(name: str) -> None:
    assert steps.apart(name, "float64") <= steps.WANTED["float64"]


def test_what_is_out_of_reach_is_still_near_and_still_out_of_reach() -> None:
    for name in steps.OUT_OF_REACH:
        assert steps.WANTED["float64"] < steps.apart(name, "float64") <= 2e-8
