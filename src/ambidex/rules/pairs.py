"""Writing examples: pairs of canonical layers that differ in what a rule is about, or do not."""

from __future__ import annotations

from typing import Any

from ambidex.core.rule import Example, Side

Shapes = tuple[tuple[int, ...], ...]


def differ(
    op: str, reference: dict[str, Any], candidate: dict[str, Any], *inputs: tuple[int, ...], **common: Any
) -> Example:
    """One operator with different attributes: the rule must show."""
    return _pair(op, reference, candidate, inputs, common, True)


def agree(
    op: str, reference: dict[str, Any], candidate: dict[str, Any], *inputs: tuple[int, ...], **common: Any
) -> Example:
    """One operator with attributes that come to the same (``common`` are those of both): nothing may show."""
    return _pair(op, reference, candidate, inputs, common, False)


def other(reference: Side, candidate: Side) -> Example:
    """Two different layers: the rule must show."""
    return Example(reference, candidate, True)


def _pair(
    op: str, a: dict[str, Any], b: dict[str, Any], inputs: Shapes, common: dict[str, Any], shows: bool
) -> Example:
    shapes = inputs or ((3, 5, 7),)
    return Example(Side(op, {**common, **a}, shapes), Side(op, {**common, **b}, shapes), shows)
