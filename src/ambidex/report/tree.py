"""The two layer trees of the page: modules by path, who belongs to whom, and what is folded at first."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ambidex.core.report import LayerRow, Report, Status
from ambidex.report import view

#: deeper paths than this are kept as one name: nobody reads fifteen levels of indentation
DEPTH = 10
#: with more layers than this, modules without a problem start folded
FOLD_ABOVE = 40

Key = tuple[str, ...]


@dataclass(slots=True)
class Node:
    """A module or a layer of one side. ``rows`` are numbers of rows at this very path, ``below`` those under it too."""

    id: str
    key: Key
    name: str
    path: str
    parent: Node | None
    rows: list[int] = field(default_factory=list)
    below: list[int] = field(default_factory=list)
    children: dict[str, Node] = field(default_factory=dict)
    status: Status = "same"
    twin: str = ""
    folded: bool = False

    @property
    def depth(self) -> int:
        return 0 if self.parent is None else self.parent.depth + 1


@dataclass(slots=True)
class Trees:
    """``rows`` are the report's layers and after them what coverage lists without a row."""

    rows: list[LayerRow]
    reference: list[Node]
    candidate: list[Node]
    reference_of: dict[int, str]
    candidate_of: dict[int, str]


def trees(report: Report) -> Trees:
    """Both trees, each a flat list in reading order."""
    rows = list(report.layers)
    lonely = {(row.reference, row.candidate) for row in rows}
    for path in report.coverage.only_in_reference:
        if (path, None) not in lonely:
            rows.append(LayerRow(reference=path, candidate=None, op="", matched_by="", status="unmatched"))
    for path in report.coverage.only_in_candidate:
        if (None, path) not in lonely:
            rows.append(LayerRow(reference=None, candidate=path, op="", matched_by="", status="unmatched"))

    fold = len(rows) > FOLD_ABOVE
    reference, reference_of = _side(rows, [row.reference for row in rows], "r", fold)
    candidate, candidate_of = _side(rows, [row.candidate for row in rows], "c", fold)
    _pair_modules(reference, reference_of, candidate, candidate_of)
    return Trees(rows, reference, candidate, reference_of, candidate_of)


def _split(path: str) -> Key:
    """The path in pieces, each with the separator before it, so that joining gives the path back."""
    pieces = re.findall(r"[/.]*[^/.]+|[/.]+$", path) or [path]
    return (*pieces[: DEPTH - 1], "".join(pieces[DEPTH - 1 :])) if len(pieces) > DEPTH else tuple(pieces)


def _side(rows: list[LayerRow], paths: list[str | None], prefix: str, fold: bool) -> tuple[list[Node], dict[int, str]]:
    root = Node(prefix, (), "", "", None)
    for number, path in enumerate(paths):
        if path is None:
            continue
        node = root
        for piece in _split(path):
            if piece not in node.children:
                node.children[piece] = Node("", (*node.key, piece), piece, node.path + piece, node)
            node = node.children[piece]
            node.below.append(number)
        node.rows.append(number)

    flat: list[Node] = []

    def walk(node: Node, parent: Node | None) -> None:
        # a module with one child and nothing of its own is written in one line with it: encoder.layers
        name = node.name
        while len(node.children) == 1 and not node.rows:
            (node,) = node.children.values()
            name += node.name
        node.name, node.parent, node.id = name.lstrip("/.") or name or "(root)", parent, f"{prefix}{len(flat)}"
        node.status = view.worst_status(rows[number].status for number in node.below)
        node.folded = fold and bool(node.children) and node.status in ("same", "glue", "skipped")
        flat.append(node)
        for child in node.children.values():
            walk(child, node)

    for child in root.children.values():
        walk(child, None)
    owner = {number: node.id for node in flat for number in node.rows}
    return flat, owner


def _pair_modules(
    reference: list[Node], reference_of: dict[int, str], candidate: list[Node], candidate_of: dict[int, str]
) -> None:
    """Modules whose layers lie in each other's get to know it: they fold and unfold together."""
    sides = ((reference, candidate, candidate_of), (candidate, reference, reference_of))
    guesses: list[dict[str, str]] = []
    for mine, theirs, owner in sides:
        by_id = {node.id: node for node in theirs}
        by_key = {node.key: node for node in theirs if node.children}
        guess = {}
        for node in mine:
            keys = [by_id[owner[number]].key for number in node.below if number in owner]
            if not node.children or not keys:
                continue
            shared = _common(keys)
            while shared and shared not in by_key:
                shared = shared[:-1]
            if shared:
                guess[node.id] = by_key[shared].id
        guesses.append(guess)
    for node in (*reference, *candidate):
        there, back = guesses if node.id.startswith("r") else guesses[::-1]
        twin = there.get(node.id, "")
        if twin and back.get(twin) == node.id:
            node.twin = twin


def _common(keys: list[Key]) -> Key:
    low, high = min(keys), max(keys)
    same = 0
    while same < min(len(low), len(high)) and low[same] == high[same]:
        same += 1
    return low[:same]
