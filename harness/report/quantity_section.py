"""Any quantity: its table, and the figures that its rows allow; the section of all the others.

The figures follow from the rows: subjects such as `ocs 1>17` that fill a grid make a heat map,
one numeric condition that was varied makes a curve, many samples a distribution.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from lightrig.harness.quantities.registry import find, quantity_of
from lightrig.harness.record import COUNTERS
from lightrig.harness.report.drawing import Numbers
from lightrig.harness.report.estimates import CONFIDENCE, Estimate
from lightrig.harness.report.figures import Distribution, Line, curve, distribution_plot, heat_map
from lightrig.harness.report.frames import (
    Series,
    TestbedFrame,
    TestFrame,
    condition_name,
    label_of,
    natural,
)
from lightrig.harness.report.markup import median_value
from lightrig.harness.report.sections import (
    Cell,
    Column,
    Figure,
    Figures,
    Part,
    Section,
    SectionData,
    Styled,
    Table,
    of_quantities,
    sentence,
    test_column,
    verdict_column,
)
from lightrig.harness.statistics.quantiles import Quantile, quantile
from lightrig.testbeds.plans import pair_in

_UNSPECIFIED = "Other quantities"
_LEAST_POINTS, _LEAST_SAMPLES, _MOST_LINES = 3, 10, 6


def quantity_parts(quantity: str) -> Sequence[Part]:
    """Return the table of one quantity, and the figures that its rows allow."""
    declared = find(quantity)
    columns = (
        test_column(),
        Column("samples", _samples),
        Column("median", _median),
        *map(beside_column, declared.beside if declared else ()),
        verdict_column(),
    )
    return (
        Table(
            sentence(quantity),
            columns,
            rows=lambda data: data.each(quantity),
            about=partial(_about, quantity),
            quantity=quantity,
        ),
        Figures(partial(_draw, quantity)),
    )


def beside_column(condition: str) -> Column[Estimate]:
    """Return the column of a condition that stands beside values; empty where no row states it."""

    def stated(one: Estimate) -> Cell:
        return Styled(one.test.series[one.quantity].beside.get(condition, ""), "line")

    return Column(condition_name(condition)[0], stated)


def _about(quantity: str, data: SectionData) -> str:
    declared, limit = find(quantity), data.limit(quantity)
    meaning = f"{declared.meaning[:1].upper()}{declared.meaning[1:]}." if declared else ""
    return f"{meaning} Limit: {limit}." if limit else meaning


def _samples(one: Estimate) -> Cell:
    subjects = len(set(one.test.series[one.quantity].subject))
    if subjects == 1:
        return f"{one.n:,}"
    return f"{one.n:,}", Styled(f"of {subjects:,} subjects", "muted")


def _median(one: Estimate) -> Cell:
    if any(map(_varies, one.test.series[one.quantity].conditions.values())):
        return Styled("varied: see below", "few")
    return median_value(one.median, one.test.simulated, one.unit)


def _draw(quantity: str, data: SectionData) -> Iterator[Figure]:
    tests = data.frame.having(quantity)
    if not any(True for _ in data.each(quantity)):
        return
    drawn = [
        *_curves(tests, quantity, data),
        *(grid for test in tests for grid in _grids(test, quantity)),
    ]
    yield from drawn
    if not drawn:
        yield from _distribution(tests, quantity, data)


# ------------------------------------------------------------------------- distributions


def _distribution(tests: Sequence[TestFrame], quantity: str, data: SectionData) -> Iterator[Figure]:
    index = {id(test): place for place, test in enumerate(data.frame.tests)}
    drawn = [
        Distribution(index[id(test)], *test.samples(quantity))
        for test in tests
        if test.series[quantity].value.size >= _LEAST_SAMPLES
    ]
    if drawn:
        yield Figure(
            quantity,
            distribution_plot(
                drawn,
                data.limit(quantity),
                f"Distribution of {quantity}",
                tests[0].series[quantity].unit,
            ),
            any(test.simulated for test in tests),
            "Share of samples at or below a value; colours as in the table.",
            width="narrow",
        )


# ------------------------------------------------------------------------------ heat maps


def _grids(test: TestFrame, quantity: str) -> Iterator[Figure]:
    """Yield a heat map for each switch with circuits from several ports to several."""
    series = test.series[quantity]
    cells: dict[str, dict[tuple[str, str], list[float]]] = {}
    for subject, value in zip(series.subject, series.value.tolist(), strict=True):
        if (found := pair_in(subject)) is None:
            return
        switch, *ends = found
        cells.setdefault(switch, {}).setdefault((ends[0], ends[1]), []).append(value)
    for name, grid in cells.items():
        rows = sorted({ingress for ingress, _ in grid}, key=natural)
        columns = sorted({egress for _, egress in grid}, key=natural)
        # The circuits of one plan leave a grid almost empty.
        if len(rows) < 2 or len(columns) < 2 or len(grid) <= len(rows) + len(columns):
            continue
        matrix = np.full((len(rows), len(columns)), np.nan)
        for (ingress, egress), values in grid.items():
            matrix[rows.index(ingress), columns.index(egress)] = np.median(values)
        title = f"{quantity} {name}".strip()
        each = counted([len(values) for values in grid.values()])
        drawing = heat_map(
            matrix=matrix,
            rows=rows,
            columns=columns,
            unit=series.unit,
            label=f"Heat map of {title}",
            row_name="ingress",
            column_name="egress",
        )
        caption = f"{test.label}: median of {each} for each of {len(grid):,} circuits."
        yield Figure(title, drawing, test.simulated, caption)


def counted(counts: Sequence[int]) -> str:
    """Return the least and the greatest of `counts`, or the one that they all are."""
    least, most = min(counts), max(counts)
    return str(least) if least == most else f"{least} to {most}"


# --------------------------------------------------------------------------------- curves


@dataclass(slots=True)
class _Samples:
    """Samples of several tests that differ only in numeric conditions, one row each."""

    subject: list[str]
    low: Numbers
    value: Numbers
    high: Numbers
    conditions: dict[str, Numbers]
    simulated: bool
    unit: str


def _curves(tests: Sequence[TestFrame], quantity: str, data: SectionData) -> Iterator[Figure]:
    limit = data.limit(quantity)
    alike: dict[tuple[str, bool], list[TestFrame]] = {}
    for test in tests:
        alike.setdefault((_label_without_numbers(test), test.simulated), []).append(test)
    for (title, _), group in alike.items():
        found = _pooled([(test, test.series[quantity]) for test in group])
        varied = [name for name, values in found.conditions.items() if _varies(values)]
        if len(varied) != 1:
            continue
        (name,) = varied
        lines = list(_lines(found, name))
        bound = limit.value if limit is not None else None
        condition, unit = condition_name(name)
        drawing = curve(
            lines,
            x=condition,
            x_unit=unit,
            y_unit=found.unit,
            label=f"{quantity} over {condition}",
            limit=bound,
        )
        caption = (
            f"{title}. Medians; the band is their 95 % intervals, or the range of all samples "
            "where there are too few for an interval."
        )
        yield Figure(
            f"{quantity} over {condition}",
            drawing,
            found.simulated,
            caption,
            [(number, line.name) for number, line in enumerate(lines)],
        )


def _label_without_numbers(test: TestFrame) -> str:
    """Return the label of `test` without the numeric conditions that were set."""
    context = test.contexts[0]
    named = {k: v for k, v in context.conditions.items() if isinstance(v, str | bool)}
    return label_of(context, named)


def _pooled(parts: list[tuple[TestFrame, Series]]) -> _Samples:
    conditions: dict[str, list[Numbers]] = {}
    names = {name for _, series in parts for name in series.conditions}
    for test, _ in parts:
        for name, value in test.contexts[0].conditions.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                names |= {name} - COUNTERS
    for name in sorted(names):
        for test, series in parts:
            whole = test.contexts[0].conditions.get(name, np.nan)
            of_row = series.conditions.get(name)
            conditions.setdefault(name, []).append(
                np.full(series.value.size, whole) if of_row is None else of_row
            )
    return _Samples(
        [subject for _, series in parts for subject in series.subject],
        np.concatenate([series.lower for _, series in parts]),
        np.concatenate([series.value for _, series in parts]),
        np.concatenate([series.upper for _, series in parts]),
        {name: np.concatenate(columns) for name, columns in conditions.items()},
        parts[0][0].simulated,
        parts[0][1].unit,
    )


def _varies(values: Numbers) -> bool:
    """Return whether a condition was set to several values, not measured anew with each row."""
    found = np.unique(values[np.isfinite(values)])
    measured = found.size > values.size / 2 and not (found == np.rint(found)).all()
    return found.size >= _LEAST_POINTS and not measured


def _lines(found: _Samples, name: str) -> Iterator[Line]:
    subjects = sorted(set(found.subject), key=natural)
    every = np.array(found.subject)
    few = len(subjects) <= _MOST_LINES
    for subject in subjects if few else [""]:
        chosen = every == subject if few else np.ones(every.size, dtype=bool)
        chosen &= np.isfinite(found.conditions[name])
        at = np.unique(found.conditions[name][chosen])
        points = [_point(found, chosen & (found.conditions[name] == x)) for x in at]
        title = subject if few else f"{len(subjects):,} subjects together"
        if points:
            yield Line(title, at, *np.array(points).T)


def _point(found: _Samples, chosen: Numbers) -> tuple[float, float, float]:
    """Return the median with its interval, or the range of all samples if they are too few."""
    value, low, high = found.value[chosen], found.low[chosen], found.high[chosen]
    middle = quantile(low, high, 0.5, CONFIDENCE)
    if isinstance(middle, Quantile) and middle.lower is not None:
        return float(np.median(value)), middle.lower, middle.upper
    return float(np.median(value)), float(low.min()), float(high.max())


# ------------------------------------------------------------------------ all the others


def with_unlisted(section: Section, frame: TestbedFrame) -> Section:
    """Return the section with parts for each of its recorded quantities that it does not show."""
    shows = section.shows
    if shows is None:
        return section
    recorded = {name: series.unit for test in frame.tests for name, series in test.series.items()}
    unlisted = [
        name
        for name, unit in recorded.items()
        if quantity_of(name, unit).section == section.title and not shows(name)
    ]
    if not unlisted:
        return section
    more = (part for name in unlisted for part in quantity_parts(name))
    return replace(section, parts=(*section.parts, *more), unlisted=unlisted)


def undeclared_sections(frame: TestbedFrame, shown: Collection[str]) -> list[Section]:
    """Return a section for each title that a recorded quantity names and `shown` lacks.

    A quantity without declaration is in the last one, "Other quantities".
    """
    by_section: dict[str, list[str]] = {}
    for test in frame.tests:
        for name, series in test.series.items():
            title = quantity_of(name, series.unit).section
            if title not in shown and name not in by_section.setdefault(title, []):
                by_section[title].append(name)
    by_section[_UNSPECIFIED] = by_section.pop(_UNSPECIFIED, [])
    return [
        Section(
            title,
            parts=tuple(part for name in names for part in quantity_parts(name)),
            estimates=of_quantities(*names),
        )
        for title, names in by_section.items()
    ]
