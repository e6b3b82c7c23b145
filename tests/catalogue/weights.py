"""Cases of the catalogue: weights."""

from __future__ import annotations

from tests.catalogue.case import Case

CASES: list[Case] = []
