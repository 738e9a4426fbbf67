"""Any quantity: its table, and the figures that its rows allow.

What a figure needs is read off the rows: subjects such as `ocs 1>17` that fill a grid make a
heat map, one numeric condition that was varied makes a curve, many samples a distribution.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from harness.report.captions import captioned, keys
from harness.report.distributions import Curve, panel
from harness.report.drawing import Numbers
from harness.report.estimates import CONFIDENCE, Estimate
from harness.report.figures import Line, curve, heat_map
from harness.report.frames import COUNTERS, Series, TestbedFrame, TestFrame, label_of, natural
from harness.report.markup import heading, median_figure, row, table, text, verdict_mark
from harness.report.tables import named
from harness.statistics import Quantile, quantile
from testbeds import Limit

_HEAD = ("test", "samples", "median", "verdict")
_LEAST_POINTS, _LEAST_SAMPLES, _MOST_LINES = 3, 10, 6


def quantity_section(
    frame: TestbedFrame, quantity: str, found: list[Estimate], limit: Limit | None
) -> str:
    """One quantity of a testbed: its table, and the figures that its rows allow."""
    tests = frame.having(quantity)
    simulated = any(test.simulated for test in tests)
    index = {id(test): place for place, test in enumerate(frame.tests)}
    rows = []
    for one in found:
        verdict = verdict_mark(one.verdict) if one.verdict else ""
        median = median_figure(one.median, one.test.simulated, one.unit)
        series = one.test.series[quantity]
        if any(map(_varies, series.conditions.values())):
            median = '<span class="lr-few">varied: see below</span>'
        subjects = len(set(series.subject))
        of = f'{one.n:,} <span class="lr-with">of {subjects:,} subjects</span>'
        counted = f"{one.n:,}" if subjects == 1 else of
        rows.append(row((named(one.test, index[id(one.test)]), counted, median, verdict)))
    claim = f"Limit: {limit}." if limit else ""
    return (
        heading(quantity.replace("_", " "), simulated, claim)
        + table(_HEAD, rows, quantity)
        + f'<div class="lr-figures">{"".join(_figures(frame, quantity, limit))}</div>'
    )


def _figures(frame: TestbedFrame, quantity: str, limit: Limit | None) -> Iterator[str]:
    tests = frame.having(quantity)
    drawn = list(_curves(tests, quantity, limit))
    yield from drawn
    grids = [found for test in tests for found in _grids(test, quantity)]
    yield from grids
    if not drawn and not grids:
        yield from _distribution(frame, tests, quantity, limit)


# ------------------------------------------------------------------------- distributions


def _distribution(
    frame: TestbedFrame, tests: list[TestFrame], quantity: str, limit: Limit | None
) -> Iterator[str]:
    index = {id(test): place for place, test in enumerate(frame.tests)}
    curves = [
        Curve(index[id(test)], *test.series[quantity].samples())
        for test in tests
        if test.series[quantity].value.size >= _LEAST_SAMPLES
    ]
    if curves:
        unit = tests[0].series[quantity].unit
        about = "Share of samples at or below a value; colours as in the table."
        drawn = panel(curves, limit, f"Distribution of {quantity}", unit)
        simulated = any(test.simulated for test in tests)
        yield captioned(quantity, simulated, about, drawn, "lr-narrow")


# ------------------------------------------------------------------------------ heat maps


def _grids(test: TestFrame, quantity: str) -> Iterator[str]:
    """A heat map for each switch whose circuits were measured from several ports to several."""
    series = test.series[quantity]
    cells: dict[str, dict[tuple[str, str], list[float]]] = {}
    for subject, value in zip(series.subject, series.value.tolist(), strict=True):
        found = re.fullmatch(r"(?:(.*\S)\s+)?(\S+?)\s?>\s?(\S+)", subject)
        if found is None:
            return
        cells.setdefault(found[1] or "", {}).setdefault((found[2], found[3]), []).append(value)
    for name, grid in cells.items():
        rows = sorted({ingress for ingress, _ in grid}, key=natural)
        columns = sorted({egress for _, egress in grid}, key=natural)
        # A plan's circuits alone leave a grid as good as empty.
        if len(rows) < 2 or len(columns) < 2 or len(grid) <= len(rows) + len(columns):
            continue
        matrix = np.full((len(rows), len(columns)), np.nan)
        for (ingress, egress), values in grid.items():
            matrix[rows.index(ingress), columns.index(egress)] = np.median(values)
        counts = [len(values) for values in grid.values()]
        each = str(min(counts)) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
        title = f"{quantity} {name}".strip()
        about = f"{text(test.label)}: median of {each} for each of {len(grid):,} circuits."
        drawn = heat_map(
            *(matrix, rows, columns, series.unit),
            label=f"Heat map of {title}",
            row_name="ingress",
            column_name="egress",
        )
        yield captioned(title, test.simulated, about, drawn)


# --------------------------------------------------------------------------------- curves


@dataclass(slots=True)
class _Samples:
    """Samples of several tests that differ in numbers alone, one row each."""

    subject: list[str]
    low: Numbers
    value: Numbers
    high: Numbers
    held: dict[str, Numbers]
    simulated: bool
    unit: str


def _curves(tests: list[TestFrame], quantity: str, limit: Limit | None) -> Iterator[str]:
    alike: dict[tuple[str, bool], list[TestFrame]] = {}
    for test in tests:
        alike.setdefault((_what(test), test.simulated), []).append(test)
    for (title, _), group in alike.items():
        found = _pooled([(test, test.series[quantity]) for test in group])
        varied = [name for name, values in found.held.items() if _varies(values)]
        if len(varied) != 1:
            continue
        (name,) = varied
        lines = list(_lines(found, name))
        about = (
            f"{text(title)}. Medians; the band holds their 95 % intervals, or where there are "
            "too few samples for one, all that the samples allow."
            + keys(enumerate(line.name for line in lines))
        )
        bound = limit.value if limit is not None and limit.unit == found.unit else None
        said, unit = _condition(name)
        drawn = curve(
            lines,
            x=said,
            x_unit=unit,
            y_unit=found.unit,
            label=f"{quantity} over {said}",
            limit=bound,
        )
        yield captioned(f"{quantity} over {said}", found.simulated, about, drawn)


def _what(test: TestFrame) -> str:
    """What `test` was, but for the numbers that were set."""
    context = test.contexts[0]
    words = {k: v for k, v in context.conditions.items() if isinstance(v, str | bool)}
    return label_of(context, words)


def _pooled(parts: list[tuple[TestFrame, Series]]) -> _Samples:
    held: dict[str, list[Numbers]] = {}
    names = {name for _, series in parts for name in series.conditions}
    for test, _ in parts:
        for name, value in test.contexts[0].conditions.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                names |= {name} - COUNTERS
    for name in sorted(names):
        for test, series in parts:
            whole = test.contexts[0].conditions.get(name, np.nan)
            own = series.conditions.get(name)
            held.setdefault(name, []).append(
                np.full(series.value.size, whole) if own is None else own
            )
    return _Samples(
        [subject for _, series in parts for subject in series.subject],
        np.concatenate([series.lower for _, series in parts]),
        np.concatenate([series.value for _, series in parts]),
        np.concatenate([series.upper for _, series in parts]),
        {name: np.concatenate(columns) for name, columns in held.items()},
        parts[0][0].simulated,
        parts[0][1].unit,
    )


def _varies(values: Numbers) -> bool:
    """Whether a condition was set to several values, not measured anew with each row."""
    found = np.unique(values[np.isfinite(values)])
    measured = found.size > values.size / 2 and not (found == np.rint(found)).all()
    return found.size >= _LEAST_POINTS and not measured


def _lines(found: _Samples, name: str) -> Iterator[Line]:
    subjects = sorted(set(found.subject), key=natural)
    everyone = np.array(found.subject)
    few = len(subjects) <= _MOST_LINES
    for subject in subjects if few else [""]:
        own = everyone == subject if few else np.ones(everyone.size, dtype=bool)
        own &= np.isfinite(found.held[name])
        at = np.unique(found.held[name][own])
        points = [_point(found, own & (found.held[name] == x)) for x in at]
        said = subject if few else f"{len(subjects):,} subjects together"
        if points:
            yield Line(said, at, *np.array(points).T)


def _point(found: _Samples, own: Numbers) -> tuple[float, float, float]:
    """Median with its interval, or with the ends of all samples where they are too few."""
    value, low, high = found.value[own], found.low[own], found.high[own]
    middle = quantile(low, high, 0.5, CONFIDENCE)
    if isinstance(middle, Quantile) and middle.lower is not None:
        return float(np.median(value)), middle.lower, middle.upper
    return float(np.median(value)), float(low.min()), float(high.max())


_UNITS = {"dbm": "dBm", "db": "dB", "ns": "ns", "s": "s", "c": "°C", "bps": "bit/s"}


def _condition(name: str) -> tuple[str, str]:
    """A condition's name in words, and the unit that it carries: `received_power_dbm`."""
    words = name.split("_")
    if len(words) > 1 and words[-1] in _UNITS:
        return " ".join(words[:-1]), _UNITS[words[-1]]
    return " ".join(words), ""
