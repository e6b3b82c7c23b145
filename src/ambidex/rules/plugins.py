"""Rules of other packages: whoever installs one with an entry point in the group ``ambidex.rules`` has its rules.

::

    [project.entry-points."ambidex.rules"]
    acme = "acme_models.ambidex_rules"      # a module with classes under @ambidex.rules.rule

Their codes begin with three to six capital letters of their own (``ACME101``); AMB is taken. They are checked as the
built-in ones are; a package whose rules cannot be loaded is named in the error. AMBIDEX_PLUGINS=0 leaves all of them
out.
"""

from __future__ import annotations

import os
from importlib.metadata import entry_points

from ambidex.errors import RuleError

GROUP = "ambidex.rules"
_state = {"loaded": False}


def load() -> None:
    """Import the modules behind the entry points, once. Raises RuleError that names the package."""
    if _state["loaded"]:
        return
    _state["loaded"] = True  # first: a module that asks for rules while it is imported must not come here again
    if os.environ.get("AMBIDEX_PLUGINS", "1") == "0":
        return
    for point in sorted(entry_points(group=GROUP), key=lambda p: (p.name, p.value)):
        package = point.dist.name if point.dist is not None else "an installed package"
        try:
            point.load()
        except Exception as error:
            _state["loaded"] = False
            raise RuleError(
                f"the rules of {package} (entry point {point.name!r}, {point.value}) cannot be loaded",
                f"{type(error).__name__}: {error}",
                "Mend or uninstall it, or set AMBIDEX_PLUGINS=0",
            ) from error
