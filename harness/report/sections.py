"""Sections of a run's report, declared: titles, tables with their columns, figures.

A section shows the quantities whose declaration names its title (`harness.quantities`), and says
what its tables and figures consist of; this module renders it. A published system declares its
sections in the same way:

    SECTIONS = (
        Section("Failover", parts=(Table("Stages", _COLUMNS, rows=_stages), Figures(_timeline))),
    )
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from markupsafe import Markup

from lightrig.harness.quantities.registry import all_quantities, in_section
from lightrig.harness.report.estimates import Estimate, estimates_of
from lightrig.harness.report.frames import TestbedFrame, TestFrame
from lightrig.harness.report.markup import outcome_counts, plain_outcome, without_marks
from lightrig.harness.report.templates import render_macro
from lightrig.harness.report.units import Value
from lightrig.harness.statistics.quantiles import NotEnough
from lightrig.harness.statistics.verdicts import Verdict
from lightrig.testbeds import Limit

T = TypeVar("T")

Estimates: TypeAlias = Mapping[str, Sequence[Estimate]]
"""Estimates by quantity, one for each test."""
Limits: TypeAlias = Mapping[str, Limit]
EstimateFunction: TypeAlias = Callable[[TestbedFrame, Limits], Estimates]


# ------------------------------------------------------------------------------- contents


@dataclass(frozen=True, slots=True)
class Styled:
    """Text in one style.

    Attributes:
        kind: "strong", "muted", "missing" for what is expected and absent, "line" for text
            that is never broken into lines, "few" for the reason why there is no number.
    """

    text: str
    kind: Literal["strong", "muted", "missing", "line", "few"]


@dataclass(frozen=True, slots=True)
class Check:
    """A check that is no limit, by sign, word and colour."""

    passed: bool
    text: str


Cell: TypeAlias = (
    str | Value | Styled | Check | Verdict | NotEnough | TestFrame | Sequence["Cell"] | None
)
"""The content of a table's cell; a `TestFrame` is shown by colour, label and link."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """The line above rows of a table that belong together."""

    title: str
    meaning: str = ""
    limit: Limit | None = None


@dataclass(frozen=True, slots=True)
class SectionData:
    """The data that a section is rendered from.

    Attributes:
        frame: the rows of the testbed's tests.
        estimates: of the quantities that its parts show.
        unlisted: of further quantities that name the section, which have parts of their own.
    """

    frame: TestbedFrame
    estimates: Estimates
    unlisted: Estimates = field(default_factory=dict)

    def limit(self, quantity: str) -> Limit | None:
        """Return the limit of an estimated quantity, if the testbed states one in its unit."""
        return next((one.limit for one in self.each(quantity)), None)

    def each(self, *quantities: str) -> Iterator[Estimate]:
        """Yield the estimates of `quantities` in this order; without any, `estimates`."""
        for quantity in quantities or self.estimates:
            yield from self.estimates.get(quantity) or self.unlisted.get(quantity, ())

    def all(self) -> Iterator[Estimate]:
        """Yield the estimates of all quantities."""
        return self.each(*self.estimates, *self.unlisted)

    def by_test(self, *quantities: str) -> list[tuple[TestFrame, dict[str, Estimate]]]:
        """Return the tests with any of `quantities`, each with its estimates by quantity."""
        found: dict[int, tuple[TestFrame, dict[str, Estimate]]] = {}
        for one in self.each(*quantities):
            found.setdefault(id(one.test), (one.test, {}))[1][one.quantity] = one
        return [found[id(test)] for test in self.frame.tests if id(test) in found]


class Column(NamedTuple, Generic[T]):
    """A column of a table: its title, and the cell of each item."""

    title: str
    value: Callable[[T], Cell]


@dataclass(frozen=True, slots=True)
class Table(Generic[T]):
    """A table with one row for each item; without items it is left out.

    Attributes:
        columns: the columns, or a function of the data where they depend on it.
        rows: the items.
        about: a paragraph above the table, or a function of the data.
        group: the line above consecutive items with an equal group.
        quantity: the quantity that decides whether the table is marked as simulated; by
            default any row of the testbed.
    """

    title: str
    columns: Sequence[Column[T]] | Callable[[SectionData], Sequence[Column[T]]]
    rows: Callable[[SectionData], Iterable[T]]
    about: str | Callable[[SectionData], str] = ""
    group: Callable[[T], RowGroup] | None = None
    quantity: str | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing with its title and what it shows.

    Attributes:
        drawing: SVG.
        caption: one or two sentences.
        legend: number and name of each series.
        width: "narrow" fills a third of a page, "wide" half of it, "full" all of it.
    """

    title: str
    drawing: str
    simulated: bool
    caption: str = ""
    legend: Sequence[tuple[int, str]] = ()
    width: Literal["narrow", "wide", "full"] = "wide"


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures side by side; without any it is left out.

    Attributes:
        draw: the figures.
        title, about: a heading above them, where there is a title.
        panels: whether the figures are small multiples on one grid.
    """

    draw: Callable[[SectionData], Iterable[Figure]]
    title: str = ""
    about: str = ""
    panels: bool = False


@dataclass(frozen=True, slots=True)
class TestLegend:
    """The colour of each test of the section; `shown` says whether the section needs it."""

    __test__ = False

    shown: Callable[[SectionData], bool] = lambda _: True


Part: TypeAlias = Table[Any] | Figures | TestLegend


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the report; it is left out where none of its parts has content.

    Attributes:
        title: the `section` of the quantities that it shows.
        parts: tables and figures in their order.
        estimates: the estimates of its quantities, with verdicts; by default of all of them.
        shows: whether the parts show a quantity, by name. Every other one that names this section
            follows with a table of its own. By default they show all of them; in a section of a
            published system those that the system declares.
        unlisted: the names of those other ones, where any were recorded.
        of_harness: it is about the harness, not the lab, so that it is folded on every page.
    """

    title: str
    parts: Sequence[Part]
    estimates: EstimateFunction | None = None
    shows: Callable[[str], bool] | None = None
    unlisted: Sequence[str] = ()
    of_harness: bool = False

    def data(self, frame: TestbedFrame, limits: Limits) -> SectionData:
        """Return the data of the section on one testbed."""
        unlisted = estimates_of(frame, self.unlisted, limits)
        if self.estimates is not None:
            return SectionData(frame, self.estimates(frame, limits), unlisted)
        names = [one.name for one in in_section(self.title) if one.name not in self.unlisted]
        return SectionData(frame, estimates_of(frame, names, limits), unlisted)


def of_quantities(*names: str) -> EstimateFunction:
    """Return a function that estimates the quantities `names`."""
    return lambda frame, limits: estimates_of(frame, names, limits)


def in_declared_order(names: Iterable[str]) -> list[str]:
    """Return each name of a quantity once, in the order of declaration, unknown ones last."""
    found = dict.fromkeys(names)
    declared = [name for name in all_quantities() if name in found]
    return declared + [name for name in found if name not in all_quantities()]


# -------------------------------------------------------------------------------- columns


def test_column() -> Column[Estimate]:
    """Return the column that names the test of an estimate."""
    return Column("test", lambda one: one.test)


def verdict_column() -> Column[Estimate]:
    """Return the column with the verdict of an estimate."""
    return Column("verdict", lambda one: one.verdict)


def sentence(title: str) -> str:
    """Return a quantity's name as words: "insertion loss.relative"."""
    return title.replace("_", " ")


# ------------------------------------------------------------------------------ rendering


_MOST_UNFOLDED = 8
"""Most tests of a testbed whose sections are all unfolded, with a mark at each number."""


def _is_short(frame: TestbedFrame) -> bool:
    return len(frame.tests) <= _MOST_UNFOLDED


def _under_one_mark(frame: TestbedFrame) -> bool:
    """Whether the title of a section bears the simulated mark for all its tables."""
    return not _is_short(frame) and all(test.simulated for test in frame.tests)


def section_id(prefix: str, section: Section) -> str:
    """Return the id of a section of the testbed whose ids begin with `prefix`."""
    return f"{prefix}-{'-'.join(section.title.lower().split())}"


def render(section: Section, data: SectionData, anchor: str) -> Markup:
    """Return the section as HTML with the id `anchor`; empty where no part has content.

    Of a testbed with many tests it is folded unless a limit fails or nearly does: the answers at
    the top of the page and the contents lead to it.
    """
    drawn = [_part(part, data) for part in section.parts]
    shown = any(
        markup
        for part, markup in zip(section.parts, drawn, strict=True)
        if not isinstance(part, TestLegend)
    )
    if not shown:
        return Markup()
    known = outcome_counts(one.verdict.shown for one in data.all() if one.verdict)
    short = _is_short(data.frame) and not section.of_harness
    unfolded = short or bool({"fail", "marginal"} & {*map(plain_outcome, known)})
    parts = Markup().join(drawn)
    named = section.title, anchor, data.frame.simulated
    return render_macro("section", "section", *named, unfolded, known, parts)


def _part(part: Part, data: SectionData) -> Markup:
    if isinstance(part, Table):
        return _table(part, data)
    if isinstance(part, Figures):
        drawn = [*part.draw(data)]
        if not drawn:
            return Markup()
        return render_macro("section", "figures", part, drawn, data.frame.simulated)
    return _test_legend(data) if part.shown(data) else Markup()


def _table(part: Table[Any], data: SectionData) -> Markup:
    columns = part.columns(data) if callable(part.columns) else part.columns
    index = {id(test): place for place, test in enumerate(data.frame.tests)}
    rows = []
    last: RowGroup | None = None
    for item in part.rows(data):
        group = part.group(item) if part.group else None
        first = None if group == last else group
        last = group or last
        rows.append((first, [_cell(column.value(item), index) for column in columns]))
    if not rows:
        return Markup()
    about = part.about(data) if callable(part.about) else part.about
    marked = data.frame.having(part.quantity) if part.quantity else data.frame.tests
    simulated = any(test.simulated for test in marked)
    body = render_macro("section", "rows", part.title, [column.title for column in columns], rows)
    if _under_one_mark(data.frame):
        simulated, body = False, without_marks(body)
    return render_macro("markup", "heading", part.title, simulated, about) + body


_MACROS = {
    Value: "number",
    Styled: "styled",
    Check: "check",
    Verdict: "verdict",
    NotEnough: "not_enough",
}
"""The macro of each kind of cell."""


def _cell(cell: Cell, index: Mapping[int, int]) -> str:
    """Return a cell as text or markup; `index` is the number of each test, by identity."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, TestFrame):
        return render_macro("markup", "test", cell, index[id(cell)])
    if type(cell) in _MACROS:
        return render_macro("markup", _MACROS[type(cell)], cell)
    assert isinstance(cell, Sequence)
    return Markup(" ").join(filter(None, (_cell(each, index) for each in cell)))


def _test_legend(data: SectionData) -> Markup:
    """Return the colour of each test that has an estimate in the section."""
    drawn = {id(one.test) for one in data.each()}
    tests = [each for each in enumerate(data.frame.tests) if id(each[1]) in drawn]
    return render_macro("section", "test_legend", tests, not _under_one_mark(data.frame))
