"""Where the marks of the page's pictures go. Across is a share of the width, so a picture fits any screen."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ambidex.core.report import LayerRow, Report
from ambidex.report import view

#: height of a picture and its margins in pixels; the bands at both ends hold zeros and numbers without end
HEIGHT, TOP, BOTTOM, BAND = 260, 14, 14, 16


@dataclass(frozen=True, slots=True)
class Tick:
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Mark:
    """One layer: ``y`` of the main value, ``y2`` of the other end of its stem. ``row`` counts the report's layers."""

    row: int
    x: float
    y: float
    y2: float
    status: str
    label: str = ""
    anchor: str = "start"


@dataclass(slots=True)
class Chart:
    height: int
    ticks: list[Tick]
    marks: list[Mark]
    line: float | None = None
    line_text: str = ""
    missing: int = 0


@dataclass(slots=True)
class _Scale:
    """Logarithmic: ``low`` and ``high`` are powers of ten."""

    low: int
    high: int
    zero: bool = False
    endless: bool = False
    ticks: list[Tick] = field(default_factory=list)

    def y(self, value: float) -> float:
        top = TOP + (BAND if self.endless else 0)
        bottom = HEIGHT - BOTTOM - (BAND if self.zero else 0)
        if math.isnan(value) or math.isinf(value):
            return TOP
        if value <= 0:
            return HEIGHT - BOTTOM
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return round(bottom - min(max(share, 0.0), 1.0) * (bottom - top), 1)


def _scale(values: list[float], low: float, high: float) -> _Scale:
    """A scale for the values that covers low..high at least."""
    finite = [value for value in values if math.isfinite(value) and value > 0] + [low, high]
    # beyond this many decades the rest is at the edge: a denormal number must not flatten everything else
    top = min(math.ceil(math.log10(max(finite)) + 0.02), 40)
    bottom = max(math.floor(math.log10(min(finite))), top - 16)
    scale = _Scale(bottom, max(top, bottom + 1), any(v == 0 for v in values), any(not math.isfinite(v) for v in values))
    step = max(1, math.ceil((scale.high - scale.low) / 6))
    for power in range(scale.low, scale.high + 1):
        if power % step == 0 or scale.high - scale.low == 1:
            text = f"{10**power:,}" if 0 <= power <= 3 else f"1e{power}"
            scale.ticks.append(Tick(scale.y(10.0**power), text))
    if scale.zero:
        scale.ticks.append(Tick(scale.y(0.0), "0"))
    if scale.endless:
        scale.ticks.append(Tick(scale.y(math.inf), "NaN, ∞"))
    return scale


def _across(number: int, many: int) -> float:
    return round((number + 0.5) / many * 100, 3)


def floor_chart(report: Report) -> Chart:
    """Shadow difference in units of the layer's own rounding, layer after layer."""
    rows = [(i, row.ratio, row) for i, row in enumerate(report.layers) if row.ratio is not None]
    line, text = _threshold(report)
    scale = _scale([ratio for _, ratio, _ in rows], 0.1, max(10.0, (line or 1.0) * 2))
    labels = _labels(report, [(i, ratio, row) for i, ratio, row in rows if row.status == "faulty"])
    base = scale.y(1.0)
    marks = []
    for i, ratio, row in rows:
        x = _across(i, len(report.layers))
        label = labels.get(i, "")
        anchor = "end" if x > 70 else "start" if x < 30 else "middle"
        marks.append(Mark(i, x, scale.y(ratio), base, row.status, label, anchor))
    return Chart(
        HEIGHT,
        scale.ticks,
        marks,
        line=None if line is None else scale.y(line),
        line_text=text,
        missing=len(report.layers) - len(rows),
    )


def travel_chart(report: Report) -> Chart:
    """Chained (``y2``) against shadow (``y``) difference: where one is born, and how far it travels."""
    rows = [(i, row) for i, row in enumerate(report.layers) if row.shadow is not None and row.chained is not None]
    values = [value for _, row in rows for value in (row.shadow, row.chained) if value is not None]
    finite = [value for value in values if value > 0 and math.isfinite(value)]
    least = min(finite, default=1e-8)
    scale = _scale(values, least, max(finite, default=1e-7))
    many = len(report.layers)
    marks = [
        Mark(i, _across(i, many), scale.y(row.shadow or 0.0), scale.y(row.chained or 0.0), row.status)
        for i, row in rows
    ]
    return Chart(HEIGHT, scale.ticks, marks, missing=many - len(rows))


def _threshold(report: Report) -> tuple[float | None, str]:
    """The line between clean and faulty: as the report says, else the lowest ratio that was judged faulty."""
    if report.threshold is not None and math.isfinite(report.threshold) and report.threshold > 0:
        return report.threshold, f"faulty above {view.number(report.threshold)}×"
    faulty = [row.ratio for row in report.layers if row.status == "faulty" and row.ratio and math.isfinite(row.ratio)]
    return (min(faulty), f"faulty from {view.number(min(faulty))}×") if faulty else (None, "")


def _labels(report: Report, rows: list[tuple[int, float, LayerRow]]) -> dict[int, str]:
    """Names for the few highest marks, as far apart as names need."""
    many = len(report.layers)
    chosen: dict[int, str] = {}
    for i, _, row in sorted(rows, key=lambda item: item[1], reverse=True):
        if all(abs(_across(i, many) - _across(other, many)) > 34 for other in chosen):
            name = (row.candidate or row.reference or "").rstrip("/.")
            chosen[i] = name.replace("/", ".").rsplit(".", 1)[-1][-18:]
    return chosen


@dataclass(frozen=True, slots=True)
class Beam:
    """Before, after and floor of one finding on one logarithmic line, as shares of the width."""

    before: float
    after: float | None
    floor: float | None


def beam(before: float | None, after: float | None, floor: float | None) -> Beam | None:
    """None when there is nothing to draw."""
    if before is None or not math.isfinite(before) or before <= 0:
        return None
    others = [v for v in (after, floor) if v is not None and math.isfinite(v) and v > 0]
    low = math.log10(min([before, *others]) / 4)
    width = math.log10(before * 2) - low

    def share(value: float | None) -> float | None:
        if value is None or not math.isfinite(value):
            return None
        return 1.5 if value <= 0 else round(3 + min(max((math.log10(value) - low) / width, 0), 1) * 94, 2)

    return Beam(share(before) or 97.0, share(after), share(floor))


@dataclass(frozen=True, slots=True)
class Curves:
    """Lines over steps, as SVG points in a box of ``width`` x ``height``; ``ticks`` are values of the ordinate."""

    width: int
    height: int
    lines: list[tuple[str, str]]
    ticks: list[Tick]
    steps: int


def curves(values: dict[str, list[float]]) -> Curves | None:
    """The reference's and the candidate's values step by step on one linear scale; None without two finite points."""
    width, height, left, margin = 480, 150, 64, 14
    finite = [v for line in values.values() for v in line if math.isfinite(v)]
    steps = max((len(line) for line in values.values()), default=0)
    if len(finite) < 2 or steps < 2:
        return None
    low, high = min(finite), max(finite)
    if low == high:
        low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2

    def y(value: float) -> float:
        return round(height - margin - (value - low) / (high - low) * (height - 2 * margin), 1)

    def x(step: int) -> float:
        return round(left + step / (steps - 1) * (width - left - margin), 1)

    lines = [
        (name, " ".join(f"{x(n)},{y(v)}" for n, v in enumerate(line) if math.isfinite(v)))
        for name, line in values.items()
    ]
    ticks = [Tick(y(v), view.number(v)) for v in (low, (low + high) / 2, high)]
    return Curves(width, height, lines, ticks, steps)
