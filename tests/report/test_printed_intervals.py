"""Random rows, printed on the terminal, the page and as JSON, contain the rows when read again."""

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from itertools import cycle
from typing import Any

from report_runs import context

from lightrig.harness.plugin.quantities import MedianFigure, Quantities, in_a_line
from lightrig.harness.record import Row

ROWS, EVENTS = 1000, 6
"""The median of six equal samples has the bounds of one as its 95 % interval (2 / 2^6 < 5 %)."""

KINDS = (
    ("reconfiguration.carrier_up", "ns", 3, 10),
    ("rdma.bandwidth", "bit/s", 6, 12),
    ("insertion_loss", "dB", -2, 1.5),
    ("sensitivity", "dBm", -1, 1.5),
    ("module_power.core", "W", -2, 1),
    ("module_temperature", "°C", 0, 2),
    ("insertion_loss.factory_en", "1", -4, 1),
)
"""Quantity, unit and the powers of ten of its values."""

SCALES = {
    "ns": 1,
    "µs": 1e3,
    "us": 1e3,
    "ms": 1e6,
    "s": 1e9,
    "min": 60e9,
    "h": 3600e9,
    "bit/s": 1,
    "kbit/s": 1e3,
    "Mbit/s": 1e6,
    "Gbit/s": 1e9,
    "Tbit/s": 1e12,
    "W": 1,
    "mW": 1e-3,
    "µW": 1e-6,
    "kW": 1e3,
    "dB": 1,
    "dBm": 1,
    "°C": 1,
    "": 1,
}
_NUMBER = r"-?[\d.,]+(?:e-?\d+)?"


def drawn() -> Iterator[Row]:
    """Rows of uneven bounds, from parts in ten million of a value to half of it."""
    dice = random.Random(62)
    for number, (quantity, unit, least, most) in zip(range(ROWS), cycle(KINDS), strict=False):
        value = 10 ** dice.uniform(least, most)
        value = -value if unit == "dBm" and dice.random() < 0.7 else value
        low, high = (abs(value) * 10 ** dice.uniform(-7, -0.3) for _ in range(2))
        ends: Any = (value, value - low, value + high)
        if unit == "ns":
            ends = (round(value), int(value - low), int(value + high) + 1)
        yield Row(f"x{number}", quantity, *ends, unit, number, {})


def contains(row: Row, unit: str, low: str, high: str) -> bool:
    """Whether a printed interval contains the row's; it is read in decimal, as people do."""
    scale = SCALES[unit]
    ends = [float(each.replace(",", "")) * scale for each in (low, high)]
    assert row.lower is not None
    assert row.upper is not None
    grain = 1e-12 * max(map(abs, ends))  # of the multiplication by the unit
    return ends[0] <= row.lower + grain and row.upper - grain <= ends[1]


def figure_of(row: Row) -> MedianFigure:
    found = Quantities()
    for event in range(EVENTS):
        of_event = {"event": event}
        found.add(False, [Row(row.subject, row.quantity, row.value, row.lower, row.upper,
                              row.unit, event, of_event)])  # fmt: skip
    (figure,) = found.figures()
    return figure


def test_the_terminal_prints_intervals_that_contain_the_rows() -> None:
    pattern = re.compile(rf"\S+ {_NUMBER} ?([^\s\[]*) \[({_NUMBER}) … ({_NUMBER})\] \(median of 6")
    lost = []
    for row in drawn():
        line = in_a_line([figure_of(row)])
        found = pattern.match(line)
        assert found is not None, line
        if not contains(row, *found.groups()):
            lost.append((row, line))
    assert not lost


def test_json_has_the_bounds_of_the_rows() -> None:
    for row in drawn():
        event = json.loads(json.dumps(asdict(figure_of(row))))
        assert (event["lower"], event["upper"]) == (row.lower, row.upper)
        assert event["unit"] == row.unit


def test_the_page_prints_intervals_that_contain_the_rows(show: Callable[..., Any]) -> None:
    drawn_rows = {f"drawn.x{number}": row for number, row in enumerate(drawn())}
    recorded = [
        replace(row, subject="small", quantity=name, conditions={"event": event})
        for name, row in drawn_rows.items()
        for event in range(EVENTS)
    ]
    text = " ".join(show((context(), recorded)).text.split())
    median = rf"6 {_NUMBER} ?([^\s(]*) \(median of 6; 95 % interval ({_NUMBER}) … ({_NUMBER});"
    pattern = (
        rf"(drawn\.x\d+) simulated test samples median verdict moves: \S+ → \S+ simulated {median}"
    )
    found = {name: ends for name, *ends in re.findall(pattern, text)}
    assert found.keys() == drawn_rows.keys()
    lost = [
        (row, found[name]) for name, row in drawn_rows.items() if not contains(row, *found[name])
    ]
    assert not lost
