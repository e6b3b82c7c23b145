"""ambidex: one deep-learning model, two implementations. Which layers differ, why, and the proof.

>>> import ambidex
>>> report = ambidex.compare(torch_module, keras_model, signature="int64[None,None]<30522")   # doctest: +SKIP
>>> report.verdict, [finding.message for finding in report.findings]                          # doctest: +SKIP

Public names are loaded when first used; importing ambidex loads no framework.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ambidex.adapters import open_model
    from ambidex.api import check, compare, explain, patch, record
    from ambidex.core.report import Report
    from ambidex.core.trace import Trace

__version__ = "0.1.0"

_HOME = {
    "Report": "ambidex.core.report",
    "Trace": "ambidex.core.trace",
    "check": "ambidex.api",
    "compare": "ambidex.api",
    "explain": "ambidex.api",
    "open_model": "ambidex.adapters",
    "patch": "ambidex.api",
    "record": "ambidex.api",
}

__all__ = ["Report", "Trace", "__version__", "check", "compare", "explain", "open_model", "patch", "record"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ambidex' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
