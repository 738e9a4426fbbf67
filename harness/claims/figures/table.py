"""The data under a figure as CSV and JSON."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

from lightrig.harness.claims.figures.drawing import comparison, notes
from lightrig.harness.claims.figures.drawn import ComparedValue, DrawnFigure
from lightrig.harness.record.results import rows_as_csv

COLUMNS = (
    *("figure", "panel", "series", "origin", "x", "x_unit", "y", "y_unit", "lower", "upper", "n"),
    *("printed", "source", "ours", "verdict", "remark"),
)
"""One row a point of ours, whose `printed` is empty, and one a printed value."""


def csv_of(figures: Iterable[DrawnFigure]) -> str:
    """Return the points and printed values of figures as CSV with a header."""
    return rows_as_csv(COLUMNS, (row for figure in figures for row in _rows(figure)))


def _rows(figure: DrawnFigure) -> Iterator[tuple[object, ...]]:
    number = figure.figure.number
    for panel in figure.panels:
        part = panel.panel.part
        for one in panel.series:
            curve = one.curve
            xs = list(map(_text, curve.x))
            for x, y, lower, upper in zip(xs, curve.y, curve.lower, curve.upper, strict=True):
                values = (_text(y), part.y.unit, _text(lower), _text(upper), curve.n)
                yield (
                    *(number, part.title, curve.name, one.origin, x, part.x.unit),
                    *(*values, "", "", "", "", ""),
                )
        for each in panel.compared:
            yield (number, part.title, *_printed(each, part.x.unit, part.y.unit))


def _printed(one: ComparedValue, x_unit: str, y_unit: str) -> tuple[object, ...]:
    value = one.value
    x, y = value.x, value.y
    if value.along == "x":
        x, low, high = value.middle, "", ""
    else:
        y, low, high = value.middle, _text(value.figure.low), _text(value.figure.high)
    ours = "" if one.ours is None else _text(one.ours.value)
    return (
        *(value.series or "", "printed", _text(x), x_unit, _text(y), y_unit, low, high, ""),
        *(value.figure.printed, value.source, ours, one.outcome),
        value.difference or one.reason,
    )


def _text(value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:.10g}" if math.isfinite(value) else ""


def document(figure: DrawnFigure) -> dict[str, Any]:
    """Return a figure as JSON, absent values as null."""
    part = figure.figure.part
    return {
        "figure": figure.figure.number,
        "title": part.title,
        "section": part.section,
        "states": part.states,
        "not_drawn": part.not_drawn,
        "notes": list(notes(figure)),
        "panels": [
            {
                "title": panel.panel.part.title,
                "x": panel.panel.part.x.model_dump(),
                "y": panel.panel.part.y.model_dump(),
                "series": [
                    {
                        "name": one.curve.name,
                        "kind": one.kind,
                        "origin": one.origin,
                        "simulated": one.simulated,
                        "n": one.curve.n,
                        "x": list(one.curve.x),
                        "y": [_number(each) for each in one.curve.y],
                        "lower": [_number(each) for each in one.curve.lower],
                        "upper": [_number(each) for each in one.curve.upper],
                    }
                    for one in panel.series
                ],
                "absent": dict(panel.absent),
                "printed": [
                    {
                        "series": each.value.series,
                        "printed": each.value.figure.printed,
                        "source": each.value.source,
                        "ours": None if each.ours is None else _number(each.ours.value),
                        "lower": None if each.ours is None else _number(each.ours.lower),
                        "upper": None if each.ours is None else _number(each.ours.upper),
                        "verdict": each.outcome,
                        "comparison": comparison(each),
                    }
                    for each in panel.compared
                ],
            }
            for panel in figure.panels
        ],
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
