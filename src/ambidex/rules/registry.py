"""Registration of rules, and finding the rule of a cause."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import TypeVar

from ambidex.core.rule import Cause, Rule, Variant
from ambidex.core.types import Call
from ambidex.errors import RuleError
from ambidex.rules import plugins

_RULES: dict[str, Rule] = {}
_CODE = re.compile(r"[A-Z]{3,6}[1-9]\d\d")
#: built-in rules are those of this package; no other may use its letters
_OWN, _LETTERS = "ambidex.rules.", "AMB"
_STAGES = {"environment", "data", "weights", "forward", "training", "loss", "gradient", "clip", "update", "schedule",
           "metric", "steps"}  # fmt: skip

R = TypeVar("R", bound=type[Rule])


def rule(cls: R) -> R:
    """Class decorator: check the rule and register one instance of it. RuleError with file and line when it is bad."""
    problems = _problems(cls)
    if problems:
        raise RuleError(f"{_place(cls)}: rule {cls.__name__} is badly written", "; ".join(problems))
    _RULES[cls.code] = cls()
    return cls


def _problems(cls: type[Rule]) -> list[str]:
    found = []
    code = getattr(cls, "code", "")
    if not isinstance(code, str) or not _CODE.fullmatch(code):
        found.append(f"code {code!r} is not of the form AMB123 (three to six capitals of your own, three digits)")
    elif code in _RULES:
        found.append(f"code {code} belongs to {type(_RULES[code]).__name__} ({_place(type(_RULES[code]))})")
    elif code.startswith(_LETTERS) != cls.__module__.startswith(_OWN):
        found.append(f"code {code}: the letters {_LETTERS} are those of the built-in rules, others take their own")
    for what in ("name", "title"):
        if not getattr(cls, what, ""):
            found.append(f"it has no {what}")
    if cls.stage not in _STAGES:
        found.append(f"stage {cls.stage!r} is none of {', '.join(sorted(_STAGES))}")
    doc = (cls.__dict__.get("__doc__") or "").strip()
    if not doc:
        found.append("it has no docstring, which is its page")
    elif "\n\n" not in doc:
        found.append("its docstring is one paragraph: say what it is, then how it shows and why it happens")
    for what in ("claims", "message", "fix"):
        if getattr(cls, what) is getattr(Rule, what):
            found.append(f"it does not define {what}()")
    if not getattr(cls, "unpaired", ""):  # why no pair of single layers can show it
        shows = {e.shows for e in cls.examples}
        if shows != {True, False}:
            found.append(
                "it needs an example that shows the fault and one that does not (or `unpaired` with the reason)"
            )
    return found


def _place(cls: type) -> str:
    try:
        return f"{inspect.getsourcefile(cls)}:{inspect.getsourcelines(cls)[1]}"
    except (OSError, TypeError):
        return cls.__module__


def all_rules() -> list[Rule]:
    """Every rule, by code; those of other packages too."""
    plugins.load()
    return [_RULES[code] for code in sorted(_RULES)]


def find(code: str) -> Rule:
    """The rule of a code (``AMB101``, ``amb101`` or ``101``); RuleError when there is none."""
    plugins.load()
    wanted = code.strip().upper()
    wanted = f"AMB{wanted}" if wanted.isdigit() else wanted
    if wanted not in _RULES:
        near = [c for c in sorted(_RULES) if c[:4] == wanted[:4]] or sorted(_RULES)
        raise RuleError(f"there is no rule {code!r}", todo=f"Known ones near it: {', '.join(near[:12])}")
    return _RULES[wanted]


def best(cause: Cause) -> Rule:
    """The rule that claims the cause with the highest weight; AMB100 claims every cause."""
    claiming = [r for r in all_rules() if r.claims(cause)]
    return max(claiming, key=lambda r: r.weight)  # of equals the one with the lowest code


def variants(call: Call) -> Sequence[Variant]:
    """Every rule's own ways to compute this call."""
    return [v for r in all_rules() for v in r.variants(call)]
