"""Cases of the catalogue: forward."""

from __future__ import annotations

from tests.catalogue.case import Case

CASES: list[Case] = []
