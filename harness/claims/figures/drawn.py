"""A figure with its series and its printed values, each compared with ours."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from lightrig.harness.claims.answering_rows import AnsweringRows, kind_of, one_an_event
from lightrig.harness.claims.computed import Computed, computed_by
from lightrig.harness.claims.figures.curves import Curve, Figures
from lightrig.harness.claims.figures.declarations import (
    Figure,
    Panel,
    PrintedValue,
    RowsPart,
    SourcePart,
)
from lightrig.harness.claims.figures.stored import (
    StoredSeries,
    StoredSeriesError,
    code_digest,
    read_stored,
)
from lightrig.harness.claims.published import Lookup, Published, Statistic
from lightrig.harness.claims.verdicts import (
    KIND_TEXTS,
    ClaimOutcome,
    Estimate,
    Kind,
    compare,
    estimate,
    tolerance_of,
)
from lightrig.harness.record import Results
from lightrig.harness.system_registry import installed_systems
from lightrig.testbeds import LightrigError

if TYPE_CHECKING:
    import pandas as pd

_BAND = 0.05
"""One minus the confidence of the band of a distribution."""


class FigureError(LightrigError):
    """A figure cannot be made of its declaration."""


@dataclass(frozen=True, slots=True)
class Series:
    """A series of ours; origin: how it came about, in a sentence."""

    curve: Curve
    kind: Kind
    origin: str

    @property
    def simulated(self) -> bool:
        """Whether anything simulated took part in a measurement."""
        return self.kind in {"namespaces", "closure"}


@dataclass(frozen=True, slots=True)
class ComparedValue:
    """A printed value and ours in the same place, None where there is none."""

    value: PrintedValue
    ours: Estimate | None
    outcome: ClaimOutcome
    reason: str

    @property
    def difference(self) -> float:
        """How far ours is from the printed range, as a share of the printed value; NaN without."""
        if self.ours is None:
            return float("nan")
        figure = self.value.figure
        beyond = max(figure.low - self.ours.value, self.ours.value - figure.high, 0.0)
        return beyond / abs(self.value.middle) if beyond and self.value.middle else float(beyond)

    @property
    def contradicts(self) -> bool:
        """Whether ours differs from the printed value without a stated reason."""
        return self.outcome == "differs" and not self.value.difference


@dataclass(frozen=True, slots=True)
class DrawnPanel:
    """A panel with its series, what they lack with the reason, and its printed values."""

    panel: Panel
    series: tuple[Series, ...]
    absent: Mapping[str, str]
    compared: tuple[ComparedValue, ...]


@dataclass(frozen=True, slots=True)
class DrawnFigure:
    """A figure with what is drawn; without series it says why."""

    figure: Figure
    panels: tuple[DrawnPanel, ...]

    @property
    def compared(self) -> tuple[ComparedValue, ...]:
        """All printed values."""
        return tuple(one for panel in self.panels for one in panel.compared)

    @property
    def simulated(self) -> bool:
        """Whether a series was measured with anything simulated."""
        return any(one.simulated for panel in self.panels for one in panel.series)

    @property
    def is_drawn(self) -> bool:
        """Whether there is a series of ours."""
        return any(panel.series for panel in self.panels)

    @property
    def shown_panels(self) -> tuple[DrawnPanel, ...]:
        """The panels with anything to draw; what the rest lacks is stated below the figure."""
        return tuple(
            panel
            for panel in self.panels
            if panel.series or any(math.isfinite(one.value.middle) for one in panel.compared)
        )

    def names(self) -> tuple[str, ...]:
        """Return the names of all series in the order of the declaration."""
        found = (one.curve.name for panel in self.panels for one in panel.series)
        return tuple(dict.fromkeys(found))

    def origins(self) -> tuple[str, ...]:
        """Return how the series came about, a sentence each."""
        found = (one.origin for panel in self.panels for one in panel.series)
        return tuple(dict.fromkeys(found))


class FigureMaker:
    """Makes the figures of one paper from its functions, the rows in `results`, and stored series.

    Raises `SystemRegistryError` where its functions cannot be imported.
    """

    def __init__(self, published: Published, results: Results) -> None:
        self._published, self._results = published, results
        self._system = installed_systems().get(published.system)
        registry: Figures | None = self._system.load("figures") if self._system else None
        self._functions = registry or {}

    @cached_property
    def _rows(self) -> AnsweringRows:
        return AnsweringRows(self._results, self._published.testbed)

    def make(self, figure: Figure) -> DrawnFigure:
        """Return a figure with all of its series.

        Raises `FigureError` for a function that is not there and for a printed value whose series
        is not there, `StoredSeriesError` for stored ones that are missing, stale or damaged, and
        `RecordError`.
        """
        panels = (
            self._panel(
                panel, [f"{figure.number}/{place}/{n}" for n in range(len(panel.part.sources))]
            )
            for place, panel in enumerate(figure.panels)
        )
        return DrawnFigure(figure, tuple(panels))

    def make_or_explain(self, figure: Figure) -> DrawnFigure:
        """Return a figure as `make` does; one whose stored series are stale says so instead."""
        try:
            return self.make(figure)
        except StoredSeriesError as error:
            part = figure.part.model_copy(update={"panels": [], "not_drawn": str(error)})
            return DrawnFigure(Figure(figure.number, part, ()), ())

    def sources(self, figure: Figure) -> Iterator[tuple[str, SourcePart]]:
        """Yield each source of a figure with the name of its stored series."""
        for place, panel in enumerate(figure.panels):
            for n, source in enumerate(panel.part.sources):
                yield f"{figure.number}/{place}/{n}", source

    def is_current(self, source: SourcePart, stored: StoredSeries) -> bool:
        """Whether stored series were computed by the code as it is now; those of a run always."""
        if source.computed is None or self._system is None:
            return True
        function = self._functions.get(source.computed)
        return function is not None and stored.code == code_digest(self._system, function)

    def fresh(self, source: SourcePart) -> StoredSeries | None:
        """Return the series of a source computed now or read from `results`; None without rows."""
        if source.rows is not None:
            return self._measured(source.rows)
        assert source.computed is not None
        assert source.basis is not None
        function = self._functions.get(source.computed)
        if function is None or self._system is None:
            known = ", ".join(sorted(self._functions)) or "nothing"
            raise FigureError(f"found {source.computed!r}, but what draws figures is: {known}")
        curves = tuple(function(**source.arguments))
        code = code_digest(self._system, function) if source.stored else ""
        return StoredSeries(source.basis, "", KIND_TEXTS[source.basis], code, curves)

    def _panel(self, panel: Panel, names: list[str]) -> DrawnPanel:
        series: list[Series] = []
        absent = dict(panel.part.absent)
        for name, source in zip(names, panel.part.sources, strict=True):
            found = self._found(name, source)
            if found is None:
                assert source.rows is not None
                absent[source.rows.series] = f"no run here measured it: {source.run}"
                continue
            origin = f"{found.origin}, {found.day}" if found.day else found.origin
            series += (Series(curve, found.kind, origin) for curve in found.curves)
        by_name = {one.curve.name: one for one in series}
        compared = tuple(self._compared(value, by_name, absent) for value in panel.printed)
        return DrawnPanel(panel, tuple(series), absent, compared)

    def _found(self, name: str, source: SourcePart) -> StoredSeries | None:
        if not source.stored:
            return self.fresh(source)
        if source.rows is not None and (measured := self._measured(source.rows)) is not None:
            return measured
        stored = read_stored(self._published, name)
        if stored is None:
            if source.rows is not None:
                return None
            raise StoredSeriesError(f"figure {name}: nothing is stored; `make figures` computes it")
        if not self.is_current(source, stored):
            raise StoredSeriesError(
                f"figure {name}: what is stored of {stored.day} was computed by other code; "
                "`make figures` computes it again"
            )
        return stored

    def _measured(self, part: RowsPart) -> StoredSeries | None:
        found = {}
        for name, quantity in (part.quantities or {part.series: part.quantity or ""}).items():
            rows = self._rows.found(_lookup(part, quantity))
            if rows is not None:
                found[name] = rows
        if not found:
            return None
        rows = next(iter(found.values()))
        lookup = _lookup(part, "")
        points: dict[float | str, Estimate] = {}
        if part.by is not None:
            for x, chosen in rows.groupby(part.by, sort=True):
                key = float(x) if isinstance(x, int | float | np.number) else str(x)
                _add(points, key, chosen, part, lookup)
        elif part.quantities:
            for name, chosen in found.items():
                _add(points, name, chosen, part, lookup)
        if points:
            values = list(points.values())
            curve = Curve(
                part.series,
                tuple(points),  # type: ignore[arg-type]
                tuple(one.value for one in values),
                tuple(one.lower for one in values),
                tuple(one.upper for one in values),
                min(one.n for one in values),
            )
        elif part.by is None and not part.quantities:
            curve = _distribution(part.series, rows, lookup)
        else:
            return None
        day, kind = f"{rows['night'].iloc[0]:%Y-%m-%d}", kind_of(rows)
        origin = f"{KIND_TEXTS[kind]}; run {rows['run'].iloc[-1]} on {part.testbed}"
        return StoredSeries(kind, day, origin, "", (curve,))

    def _compared(
        self, value: PrintedValue, series: Mapping[str, Series], absent: Mapping[str, str]
    ) -> ComparedValue:
        if value.not_compared is not None:
            return ComparedValue(value, None, "cannot tell", value.not_compared)
        if value.series is None:
            assert value.claim is not None
            claim = value.claim
            if claim.computed is None or claim.basis is None:
                return ComparedValue(value, None, "not measured", "No series of ours answers it.")
            computed: Computed | None = computed_by(self._published.system)[claim.computed]()
            kind: Kind = claim.basis
        else:
            one = series.get(value.series)
            if one is None and value.series in absent:
                return ComparedValue(value, None, "not measured", absent[value.series])
            if one is None:
                raise FigureError(
                    f"found no series {value.series!r}; there are: {', '.join(series) or 'none'}"
                )
            kind, computed = one.kind, _at(one.curve, value)
        if computed is None:
            return ComparedValue(value, None, "not measured", "Ours does not reach this place.")
        found = Estimate(computed.value, computed.lower, computed.upper, computed.n)
        tolerance = tolerance_of(kind, found)
        if value.claim is not None and value.claim.tolerance is not None:
            tolerance = value.claim.tolerance[0]
        return ComparedValue(value, found, *compare(value.figure, found, tolerance))


def _lookup(part: RowsPart, quantity: str) -> Lookup:
    statistic: Statistic = "median" if part.statistic == "stated" else part.statistic
    return Lookup(quantity, part.since, statistic, part.conditions, part.pick, part.testbed)


def _add(
    points: dict[float | str, Estimate],
    x: float | str,
    rows: "pd.DataFrame",
    part: RowsPart,
    lookup: Lookup,
) -> None:
    """Add a point of rows; none where they are too few for its statistic."""
    if part.statistic == "stated":
        last = rows.iloc[-1]
        points[x] = Estimate(float(last["value"]), float(last["lower"]), float(last["upper"]), 1)
        return
    value = estimate(part.statistic, *one_an_event(rows, lookup))
    if isinstance(value, Estimate):
        points[x] = value


def _at(curve: Curve, value: PrintedValue) -> Computed | None:
    if value.number is not None:
        return curve.numbers.get(value.number)
    if value.y is not None:
        return curve.reaching(value.y)
    return None if value.x is None else curve.at(value.x)


def _distribution(name: str, rows: "pd.DataFrame", lookup: Lookup) -> Curve:
    """Return the distribution of events with a band of 95 % for all of it.

    The band is that of Dvoretzky, Kiefer and Wolfowitz with Massart's constant (1990).
    """
    low, high = (np.asarray(each, dtype=float) for each in one_an_event(rows, lookup))
    middle = np.sort((low + np.where(np.isfinite(high), high, low)) / 2)
    n = middle.size
    shares = np.arange(1, n + 1) / n
    half = float(np.sqrt(np.log(2 / _BAND) / (2 * n)))
    return Curve(
        name,
        tuple(middle.tolist()),
        tuple(shares.tolist()),
        tuple(np.clip(shares - half, 0, 1).tolist()),
        tuple(np.clip(shares + half, 0, 1).tolist()),
        n,
    )
