"""A report in the terminal: what is wrong, where, why, and what to type; never more than a screen."""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ambidex.core.report import Report
from ambidex.report import stages, view

#: lines in all, for a pair that differs and for one that is the same
ROOM, ROOM_EQUAL = 40, 10

_VERDICT_STYLE = {
    "equal": "bold green",
    "different": "bold red",
    "undecided": "bold yellow",
    "not_reproducible": "bold yellow",
}
_INDENT = 10


@dataclass(slots=True)
class _Page:
    """Makes physical lines, so that they can be counted before they are printed."""

    console: Console

    @property
    def width(self) -> int:
        return max(40, self.console.width)

    def say(self, text: object) -> str:
        """Harmless text that the console's encoding can carry."""
        encoding = self.console.encoding or "utf-8"
        return view.clean(text).encode(encoding, "backslashreplace").decode(encoding)

    def lines(self, *parts: str | tuple[str, str], label: str = "", indent: int = 0, room: int = 3) -> list[Text]:
        """The parts (text, or text and style) under each other behind a label, at most ``room`` lines."""
        body = Text()
        for part in parts:
            text, style = (part, "") if isinstance(part, str) else part
            body.append(self.say(text), style)
        width = self.width - indent
        wrapped = list(body.wrap(self.console, width))
        if len(wrapped) > room:
            wrapped = wrapped[:room]
            wrapped[-1].truncate(width - 4)
            wrapped[-1].append(" ...")
        result = []
        for number, line in enumerate(wrapped):
            line.rstrip()
            head = f"  {label}".ljust(indent) if label and number == 0 else " " * indent
            result.append(Text(head, "dim", end="") + line)
        return result

    def code(self, text: str, label: str, room: int = 3) -> list[Text]:
        """Code keeps its own lines."""
        result: list[Text] = []
        source = text.strip("\n").expandtabs(4).splitlines() or [""]
        for number, line in enumerate(source):
            left = room - len(result)
            if left <= 0 or (left == 1 and number < len(source) - 1 and number > 0):
                result += self.lines(f"... {len(source) - number} more lines in the report", indent=_INDENT, room=1)
                break
            leading = len(line) - len(line.lstrip())
            wrapped = self.lines(
                (line.lstrip(), "bold"), label="" if number else label, indent=_INDENT + leading, room=left
            )
            result += wrapped
        return result


def render(report: Report, console: Console, *, json_path: str | None = None, html_path: str | None = None) -> None:
    """Print the report; ``json_path`` and ``html_path`` say where its long forms were written."""
    page = _Page(console)
    groups = view.group(report.findings)
    room = ROOM_EQUAL if report.verdict == "equal" else ROOM
    head = _head(page, report, groups)
    tail = _tail(page, report, groups, json_path, html_path)
    body = _findings(page, groups, room - len(head) - len(tail))
    left = room - len(head) - len(tail) - len(body)
    table = _worst(page, report, left) if report.verdict != "equal" else []
    for line in (*head, *body, *table, *tail):
        console.print(line, soft_wrap=True, highlight=False)


def _head(page: _Page, report: Report, groups: list[view.Group]) -> list[Text]:
    verdict = view.VERDICT_WORDS[report.verdict].upper()
    numbers = view.numbers(report)
    if len(verdict) + 2 + len(numbers) > page.width:
        numbers = view.numbers(report, short=True)
    lines = page.lines((verdict, _VERDICT_STYLE[report.verdict]), f"  {numbers}", room=2)
    names = [("reference", report.reference), ("candidate", report.candidate)]
    if any(name for _, name in names):
        lines += page.lines(", ".join(f"{side} {name}" for side, name in names if name), room=1)
    lines += page.lines(view.summary(report, groups))
    whole = report.whole_model
    if whole.after_fixes is not None:
        before_after = f"{view.number(whole.max_abs)} -> {view.number(whole.after_fixes)}"
        lines += page.lines(f"With every faulty place as in the reference: {before_after}", room=1)
    if report.stages:
        parts: list[str | tuple[str, str]] = []
        for row in report.stages:
            if row.status != "not_defined":
                style = {"different": "bold red", "same": "green"}.get(row.status, "yellow")
                parts += [", "] if parts else []
                parts.append((stages.text(row, report.first_stage), style))
        lines += page.lines(*parts, label="stages", indent=_INDENT, room=3)
    for step in view.next_steps(report):
        lines += page.lines(step, label="next", indent=_INDENT, room=2)
    return lines


def _brief(page: _Page, number: int, one: view.Group) -> list[Text]:
    place = view.count(len(one.findings), "place") if len(one.findings) > 1 else view.listed(one.places, 1)
    result = "proven" if one.proven else "suspected"
    return page.lines(f"{number} ", (one.code, "bold"), f" {result}: {one.first.title} ({place})", room=1)


def _full(page: _Page, number: int, one: view.Group, more: bool) -> list[Text]:
    """Title, where, what to write, before -> after; with ``more`` also the explanation and what was ruled out."""
    lines = [Text(), *page.lines(f"{number} ", (one.code, "bold"), " ", (one.first.title, "bold"), room=2)]

    where, source = view.listed(one.places, 12, 300) or "the whole model", view.listed(one.sources, 4)
    if len(one.findings) > 1:
        where = f"{len(one.findings)} places: {where}"
    if source and cell_len(page.say(where)) + cell_len(page.say(source)) + 5 <= page.width - _INDENT:
        lines += page.lines(f"{where}  at {source}", label="where", indent=_INDENT, room=1)
    else:
        lines += page.lines(where, label="where", indent=_INDENT, room=3 if more else 2)
        if source:
            lines += page.lines(source, label="at", indent=_INDENT, room=1)
    if more:
        lines += page.lines(one.worst.message, label="why", indent=_INDENT, room=3)
    if one.first.fix:
        lines += page.code(one.first.fix, "write", room=6 if more else 3)
        if len(one.fixes) > 1:
            lines += page.lines(f"and likewise at {view.count(len(one.fixes) - 1, 'more place')}", indent=_INDENT)
    worst = one.worst
    change = ""
    if worst.before is not None:
        change = f", difference {view.number(worst.before)}"
        change += f" -> {view.number(worst.after)}" if worst.after is not None else ""
        change += f" (floor {view.number(worst.floor)})" if worst.floor is not None else ""
    style = "green" if one.proven else "yellow"
    lines += page.lines((one.status, style), change, label="result", indent=_INDENT, room=2)
    if more and one.tried:
        lines += page.lines("not the cause: " + view.listed(one.tried, 6, 200), label="tried", indent=_INDENT, room=2)
    return lines


def _findings(page: _Page, groups: list[view.Group], room: int) -> list[Text]:
    """Every cause in one line at least; the first ones in full, as far as the room goes."""
    forms = [
        (_brief(page, i, one), _full(page, i, one, more=False), _full(page, i, one, more=True))
        for i, one in enumerate(groups, 1)
    ]
    # the first few are worth their room in full; of the rest as many as fit get a line each
    full = min(4, len(groups))
    while full > 1 and sum(len(form[1]) for form in forms[:full]) + (full < len(groups)) * 2 > room:
        full -= 1
    taken = sum(len(form[1]) for form in forms[:full])
    shown = len(groups)
    if taken + (shown - full) + 1 > room:
        shown = min(len(groups), max(full, full + room - taken - 2))
    level = [1] * full + [0] * (shown - full)
    used = taken + (shown - full) + (shown < len(groups))
    for step in (1, 2):
        for i in range(shown):
            extra = len(forms[i][step]) - len(forms[i][level[i]])
            if level[i] >= step:
                continue
            # a list of lines needs a blank one before it
            if used + extra + (0 in level) > room:
                break
            level[i] = step
            used += extra
    lines: list[Text] = []
    for i in range(shown):
        if level[i] == 0 and i and level[i - 1] > 0 and used < room:
            lines.append(Text())
        lines += forms[i][level[i]]
    if shown < len(groups) and room > 0:
        rest = groups[shown:]
        codes = view.listed(list(dict.fromkeys(one.code for one in rest)), 8)
        lines += page.lines(f"and {view.count(len(rest), 'more cause')}: {codes}", room=1)
    return lines


def _worst(page: _Page, report: Report, room: int) -> list[Text]:
    """A small table of the layers furthest from their floor, where three rows or more fit."""
    rows = view.worst_rows(report, min(5, room - 2))
    if room < 5 or len(rows) < 3:
        return []
    wide = page.width >= 90
    width = page.width - (54 if wide else 46)
    head = "furthest from rounding".ljust(width) + "  op".ljust(22) + "difference".rjust(11) + "x floor".rjust(10)
    lines = [Text(), Text(head, "dim")]
    for row in rows:
        name = _tail_of(page.say(row.candidate or row.reference or "?"), width)
        op = Text("  " + page.say(row.op))
        op.truncate(22, pad=True)
        mark = "  faulty" if row.status == "faulty" and wide else ""
        numbers = view.number(row.shadow).rjust(11) + view.number(row.ratio).rjust(10) + mark
        lines.append(name + op + Text(numbers))
    return lines


def _tail_of(path: str, width: int) -> Text:
    """The end of a path tells layers apart, so the beginning is cut."""
    if cell_len(path) > width:
        while cell_len(path) > width - 3:
            path = path[1:]
        path = "..." + path
    text = Text(path)
    text.truncate(width, pad=True)
    return text


def _tail(
    page: _Page, report: Report, groups: list[view.Group], json_path: str | None, html_path: str | None
) -> list[Text]:
    short = report.verdict == "equal"
    sides = (
        ("reference", report.coverage.only_in_reference, view.without_partner(report)[0]),
        ("candidate", report.coverage.only_in_candidate, view.without_partner(report)[1]),
    )
    lines: list[Text] = []
    for what, place in (("not aligned", 1), ("no partner", 2)):
        parts = []
        for side in sides:
            names = side[place]
            if names:
                assert not isinstance(names, str)
                noun = "layer" if place == 1 else "parameter"
                several = view.listed(view.compact_paths(names), 4, 60)
                parts.append(f"{view.count(len(names), noun)} only in {side[0]}: {several}")
        if parts:
            lines += page.lines(f"{what}: ", "; ".join(parts), room=1 if short else 2)
    notes = report.notes
    cut = len(notes) > (1 if short else 2)
    for note in notes[:1] if cut else notes:
        head = f"{view.count(len(notes), 'note')}, the first: " if cut else "note: "
        lines += page.lines(head + note, room=1 if short or report.verdict == "different" else 2)

    files = [f"{kind} {path}" for kind, path in (("page", html_path), ("JSON", json_path)) if path]
    text = "; ".join(files) if files else "" if short else "--html FILE writes it as a page, --json FILE for programs"
    if text:
        lines += page.lines(f"whole report: {text}", room=2)
    codes = list(dict.fromkeys(one.code for one in groups))
    if codes:
        others = f"   (also {view.listed(codes[1:], 5)})" if len(codes) > 1 else ""
        lines += page.lines("more on a cause: ", (f"ambidex explain {codes[0]}", "bold"), others, room=1)
    return ([] if short or not lines else [Text()]) + lines
