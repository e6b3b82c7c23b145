"""The error tree.

::

    AmbidexError            what (name and value), why if known, what to do; exit code 2
    ├── SpecError           a model spec cannot be opened (missing file, factory raised, wrong kind)
    ├── InputError          inputs are missing, damaged or do not fit the model
    ├── AlignError          the two models cannot be lined up at all
    ├── TraceError          a recorded trace is damaged, hostile or of an unknown format
    ├── MapError            a user's map does not fit the models
    ├── RunError            a model raised or ran out of memory while running
    ├── RuleError           a rule is badly written (no page, no examples, a code used twice)
    └── UnsupportedError    a framework, layer or option that this version does not reach
"""

from __future__ import annotations


class AmbidexError(Exception):
    """``what``: the problem with names and values; ``why``: its cause if known; ``todo``: what to do about it."""

    def __init__(self, what: str, why: str = "", todo: str = "") -> None:
        self.what, self.why, self.todo = what.rstrip("."), why.rstrip("."), todo.rstrip(".")
        super().__init__(str(self))

    def __str__(self) -> str:
        text = _ended(f"{self.what}: {self.why}" if self.why else self.what)
        return f"{text} {_ended(self.todo)}" if self.todo else text


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith(("?", "!")) else f"{sentence}."


class SpecError(AmbidexError):
    pass


class InputError(AmbidexError):
    pass


class AlignError(AmbidexError):
    pass


class TraceError(AmbidexError):
    pass


class MapError(AmbidexError):
    pass


class RunError(AmbidexError):
    pass


class UnsupportedError(AmbidexError):
    pass


class RuleError(AmbidexError):
    pass
