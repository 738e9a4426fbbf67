"""What the page's script tells of a night that is pointed at: the numbers of every figure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness.report.nights.board import Board
from harness.report.nights.figures import LEFT, RIGHT, WIDTH, layers, letters
from harness.report.nights.series import MEDIAN_NEEDS, History, Numbers
from harness.report.nights.words import anchor, fold
from harness.report.units import ENDLESS, scale


def data(history: History, boards: Sequence[Board]) -> str:
    """JSON that can stand in a script element."""
    document = {
        "dates": [str(history.date(night)) for night in range(history.nights)],
        "plot": {"left": LEFT, "right": RIGHT, "width": WIDTH},
        "needed": MEDIAN_NEEDS,
        "labs": [_lab(board) for board in boards],
        "figures": {name: one for board in boards for name, one in _figures(board).items()},
    }
    # Nothing in it may end the element.
    return json.dumps(document, separators=(",", ":")).replace("<", "\\u003c")


def _lab(board: Board) -> Mapping[str, Any]:
    named = zip(letters(len(board.events)), board.events, strict=True)
    return {
        "simulated": board.lab.simulated,
        "runs": [[[run, run in board.reported] for run in runs] for runs in board.lab.runs],
        "events": [[event.night, letter, event.text] for letter, event in named],
    }


def _figures(board: Board) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for quantity in board.quantities:
        if len(quantity.series) > len(quantity.drawn):
            least, _, middle, _, most = layers(quantity.series)
            numbers = _numbers(quantity.series[0].unit, median=middle, lower=least, upper=most)
            found[fold(board.index, quantity.name)] = {**numbers, "of": len(quantity.series)}
    for number, series in board.figures.items():
        p99 = (
            {"p99": series.p99, "bound": series.p99_upper} if np.isfinite(series.p99).any() else {}
        )
        numbers = _numbers(
            series.unit, median=series.median, lower=series.lower, upper=series.upper, **p99
        )
        n = series.n.astype(int).tolist()
        found[anchor(board.index, number)] = {**numbers, "n": n}
    return {name: {**one, "lab": board.index} for name, one in found.items()}


def _numbers(unit: str, **columns: Numbers) -> dict[str, Any]:
    """Each column in the unit that suits all, four digits; None where there is no number."""
    greatest = max(_greatest(column) for column in columns.values())
    size, name = scale(unit, greatest)
    told: dict[str, Any] = {
        what: [
            float(f"{value / size:.4g}") if abs(value) < ENDLESS else None
            for value in column.tolist()
        ]
        for what, column in columns.items()
    }
    return {**told, "unit": name}


def _greatest(column: Numbers) -> float:
    return float(np.max(np.abs(column), where=np.isfinite(column), initial=0.0))
