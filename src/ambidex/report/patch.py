"""Fixes as a unified diff of the user's source, for findings whose fix is one call with the right arguments.

A fix such as ``keras.layers.LayerNormalization(epsilon=1e-5)`` is merged into the call that stands at the finding's
line: its keywords replace or join those that are written there, everything else stays as it is, comments too. What
comes out is parsed again and must be exactly that change; otherwise the finding is left with the reason why.
"""

from __future__ import annotations

import ast
import copy
import difflib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ambidex.core.report import Finding, Report

#: the positional parameters of a class or function as a fix names it (``nn.LayerNorm``), None where they are not known
Parameters = Callable[[str], Sequence[str] | None]


@dataclass
class Patch:
    """``text`` is the diff, of files named from ``root``; ``left`` are the findings that it does not mend, with why."""

    text: str = ""
    root: str = ""
    mended: list[Finding] = field(default_factory=list)
    left: list[tuple[Finding, str]] = field(default_factory=list)


@dataclass
class _Edit:
    """What one call gets: keyword to expression, and positional arguments by index."""

    call: ast.Call
    keywords: dict[str, ast.expr] = field(default_factory=dict)
    positional: dict[int, ast.expr] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


class _Left(Exception):
    """Why a finding has no place in the diff."""


def make(report: Report, parameters: Parameters = lambda name: None) -> Patch:
    """The diff for a report whose source files are here. Raises nothing: what cannot be done is in ``left``."""
    patch = Patch()
    by_file: dict[str, list[Finding]] = {}
    for finding in report.findings:
        if finding.where.file and finding.where.line and finding.where.candidate:
            by_file.setdefault(finding.where.file, []).append(finding)
        else:
            patch.left.append((finding, "no line of source is known for it"))
    here = os.getcwd()
    patch.root = here if all(_below(f, here) for f in by_file) else os.sep
    for file, findings in by_file.items():
        try:
            old = Path(file).read_text(encoding="utf-8")
            tree = ast.parse(old)
        except (OSError, ValueError, SyntaxError) as error:
            patch.left += [(f, f"its source cannot be read: {error}") for f in findings]
            continue
        new, mended = _file(old, tree, findings, parameters, patch.left, _elsewhere(report, file, findings))
        patch.mended += mended
        patch.text += _diff(old, new, os.path.relpath(file, patch.root))
    return patch


def _below(file: str, folder: str) -> bool:
    return os.path.abspath(file).startswith(folder.rstrip(os.sep) + os.sep)


def _elsewhere(report: Report, file: str, findings: Sequence[Finding]) -> dict[int, str]:
    """Lines of findings that also build layers of the same kind without a fault: a change there would break those."""
    faulty = {f.where.candidate for f in findings}
    ops = {row.candidate: row.op for row in report.layers}
    kinds = {(f.where.line, ops.get(f.where.candidate)) for f in findings}
    found: dict[int, str] = {}
    for row in report.layers:
        name, _, line = (row.source or "").rpartition(":")
        if name == file and row.candidate and row.candidate not in faulty and (int(line), row.op) in kinds:
            found[int(line)] = row.candidate
    return found


def _file(
    old: str,
    tree: ast.Module,
    findings: Sequence[Finding],
    parameters: Parameters,
    left: list[tuple[Finding, str]],
    shared: dict[int, str],
) -> tuple[str, list[Finding]]:
    edits: dict[tuple[int, int], _Edit] = {}
    bound = _bound(tree)
    for finding in findings:
        try:
            line = finding.where.line or 0
            if line in shared:
                raise _Left(f"its line also builds {shared[line]}, which is right as it is")
            fix = _fix(finding.fix)
            call = _call_at(tree, line, _last_name(fix.func))
            edit = edits.setdefault((call.lineno, call.col_offset), _Edit(call))
            _merge(edit, fix, parameters, bound)
            edit.findings.append(finding)
        except _Left as reason:
            left.append((finding, str(reason)))
    new = old
    mended: list[Finding] = []
    for place in sorted(edits, reverse=True):  # from the end, so that the places before stay where they are
        edit = edits[place]
        edit.call = _again(new, edit.call)  # a call inside it may have been changed: its own places moved
        changed = _applied(new, edit)
        if changed is None:
            left += [(f, "the call could not be rewritten safely") for f in edit.findings]
        elif edit.findings:
            new, mended = changed, [*mended, *edit.findings]
    return new, mended


def _again(text: str, call: ast.Call) -> ast.Call:
    """The same call in the text as it is now: of that name, and beginning at that place (where x()() begins too)."""
    place, name = (call.lineno, call.col_offset), _last_name(call.func)
    calls = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call) and (n.lineno, n.col_offset) == place]
    return next(n for n in calls if _last_name(n.func) == name)


def _fix(text: str | None) -> ast.Call:
    if not text:
        raise _Left("it names no change")
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise _Left("its fix is more than one expression") from None
    if not isinstance(node, ast.Call) or not _last_name(node.func):
        raise _Left("its fix is no call")
    return node


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _call_at(tree: ast.Module, line: int, name: str) -> ast.Call:
    """The one call of that name that begins at the line, or that spans it, or in the function that begins there."""
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and _last_name(n.func) == name]
    starting = [n for n in calls if _name_line(n) == line]
    spanning = [n for n in calls if n.lineno <= line <= (n.end_lineno or n.lineno)]
    makers = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.Lambda) and n.lineno == line]
    inside = [n for maker in makers for n in ast.walk(maker) if n in calls]
    found = starting or spanning or inside
    if not found:
        raise _Left(f"no call of {name} stands at its line")
    if len(found) > 1:
        raise _Left(f"{len(found)} calls of {name} stand at its line")
    return found[0]


def _name_line(call: ast.Call) -> int:
    return call.func.end_lineno or call.lineno


def _bound(tree: ast.Module) -> set[str]:
    """Names that the file imports or assigns at its top level."""
    names = {"True", "False", "None", "float", "int", "str"}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(a.asname or a.name).split(".")[0] for a in node.names}
    return names


def _merge(edit: _Edit, fix: ast.Call, parameters: Parameters, bound: set[str]) -> None:
    """Put the fix's arguments into the edit. Names among its positional arguments stand for what is there already."""
    keywords: dict[str, ast.expr] = {}
    positional: dict[int, ast.expr] = {}
    for k in fix.keywords:
        if k.arg is None:
            raise _Left("its fix unpacks a dictionary")
        keywords[k.arg] = k.value
    open_ended = any(isinstance(a, ast.Constant) and a.value is Ellipsis for a in fix.args)
    for index, argument in enumerate(fix.args):
        if not isinstance(argument, ast.Name) and not open_ended:
            positional[index] = argument
    if not keywords and not positional:
        raise _Left("its fix changes no argument")
    for value in (*keywords.values(), *positional.values()):
        if any(isinstance(n, ast.Constant) and n.value is Ellipsis for n in ast.walk(value)):
            raise _Left("its fix leaves something open")
        unknown = {n.id for n in ast.walk(value) if isinstance(n, ast.Name)} - bound
        if unknown:
            raise _Left(f"its fix needs {', '.join(sorted(unknown))}, which the file does not import")
    call = edit.call
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        raise _Left("the call unpacks its arguments")
    names = parameters(ast.unparse(fix.func))
    written = {k.arg for k in call.keywords}
    placed: dict[str | int, ast.expr] = {}
    for name, value in keywords.items():
        # as many positional arguments as the fix has, or fewer: it is not among them
        if name in written or not call.args or (not open_ended and len(call.args) <= len(fix.args)):
            placed[name] = value
        elif names is None:
            raise _Left(f"whether {name} stands among the positional arguments is not known")
        else:
            place = list(names).index(name) if name in names else len(call.args)
            placed[place if place < len(call.args) else name] = value
    for index, value in positional.items():
        if index < len(call.args):
            placed[index] = value
        elif names is not None and index < len(names):
            placed[names[index]] = value
        else:
            raise _Left("its fix has more positional arguments than the call")
    _join(edit, placed)


def _join(edit: _Edit, placed: dict[str | int, ast.expr]) -> None:
    for key, value in placed.items():
        known = edit.positional.get(key) if isinstance(key, int) else edit.keywords.get(key)
        if known is not None and ast.dump(known) != ast.dump(value):
            raise _Left("its line builds several layers that need different values")
    for key, value in placed.items():
        if isinstance(key, int):
            edit.positional[key] = value
        else:
            edit.keywords[key] = value


# --------------------------------------------------------------------------------------------------- rewriting a call
def _applied(text: str, edit: _Edit) -> str | None:
    """The text with the call changed, or None where what comes out is not exactly the change that is wanted."""
    wanted = copy.deepcopy(edit.call)
    for index, value in edit.positional.items():
        wanted.args[index] = value
    known = {k.arg: k for k in wanted.keywords}
    for name, value in edit.keywords.items():
        if name in known:
            known[name].value = value
        else:
            wanted.keywords.append(ast.keyword(name, value))
    for after_last in (True, False):
        made = _spliced(text, edit, after_last)
        if made is not None and _holds(made, edit.call, wanted):
            return made
    return None


def _spliced(text: str, edit: _Edit, after_last: bool) -> str | None:
    """Exchange the values and put new keywords behind the last argument, or before the closing bracket."""
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    data = text.encode()

    def offset(line: int, column: int) -> int:
        return starts[line - 1] + column

    call = edit.call
    pieces: list[tuple[int, int, str]] = []
    replaced = [(call.args[i], v) for i, v in edit.positional.items()]
    written = {k.arg: k.value for k in call.keywords}
    replaced += [(written[n], v) for n, v in edit.keywords.items() if n in written]
    for old, value in replaced:
        if old.end_lineno is None or old.end_col_offset is None:
            return None
        begin, end = offset(old.lineno, old.col_offset), offset(old.end_lineno, old.end_col_offset)
        pieces.append((begin, end, ast.unparse(value)))
    fresh = ", ".join(f"{n}={ast.unparse(v)}" for n, v in edit.keywords.items() if n not in written)
    if fresh:
        if call.end_lineno is None or call.end_col_offset is None:
            return None
        closing = offset(call.end_lineno, call.end_col_offset) - 1
        arguments = [*call.args, *(k.value for k in call.keywords)]
        if not arguments:
            pieces.append((closing, closing, fresh))
        elif after_last:
            last = max(arguments, key=lambda n: (n.end_lineno or 0, n.end_col_offset or 0))
            end = offset(last.end_lineno or 0, last.end_col_offset or 0)
            pieces.append((end, end, f", {fresh}"))
        else:
            comma = "" if data[:closing].rstrip().endswith(b",") else ", "
            pieces.append((closing, closing, comma + fresh))
    for begin, end, new in sorted(pieces, reverse=True):
        data = data[:begin] + new.encode() + data[end:]
    return data.decode()


def _holds(text: str, old: ast.Call, wanted: ast.Call) -> bool:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return False
    here = (old.lineno, old.col_offset)
    found = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and (n.lineno, n.col_offset) == here]
    return any(ast.dump(n) == ast.dump(wanted) for n in found)


def _diff(old: str, new: str, path: str) -> str:
    if old == new:
        return ""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    lines = difflib.unified_diff(before, after, f"a/{path}", f"b/{path}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
