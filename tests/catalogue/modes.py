"""Cases of the catalogue: modes."""

from __future__ import annotations

from tests.catalogue.case import Case

CASES: list[Case] = []
