"""Cases of the catalogue: training."""

from __future__ import annotations

from tests.catalogue.case import Case

CASES: list[Case] = []
