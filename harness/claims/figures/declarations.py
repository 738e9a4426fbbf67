"""Declarations of a paper's figures: axes, series, printed values, and what is left out.

They are a file beside the published values, `figures/SYSTEM.yaml`. A value in it stands in the
paper's text, caption or tables; none is read off a picture.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isinf
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import Field

from lightrig.harness.claims.published import (
    Basis,
    Claim,
    HoldsPart,
    Pick,
    PrintedFigure,
    Published,
    Statistic,
)
from lightrig.testbeds.base import Part
from lightrig.testbeds.findings import Findings
from lightrig.testbeds.limits import LimitError, parse_value
from lightrig.testbeds.parsing import read_as

FOLDER = "figures"
"""Beside the files of published values."""
Scalar: TypeAlias = str | int | float | bool


class AxisPart(Part):
    """What an axis shows; unit: as in rows, "1" for a plain number."""

    title: str
    unit: str = "1"
    scale: Literal["even", "decades"] = "even"


class RowsPart(Part):
    """Rows of a run that make a series.

    by: the condition that is x; without one the series is the distribution of its events.
    quantities: several, each a category with its name; instead of `quantity`. since: a quantity
    that times are counted from. statistic: of each point; "stated" takes the last row itself with
    its interval. pick: what stands for an event with several subjects.
    """

    series: str
    testbed: str
    quantity: str | None = None
    quantities: dict[str, str] = Field(default_factory=dict)
    by: str | None = None
    statistic: Statistic | Literal["stated"] = "median"
    since: str | None = None
    conditions: dict[str, str | int | bool] = Field(default_factory=dict)
    pick: Pick = "turn"


class SourcePart(Part):
    """Where series come from: a function of the system, or rows of a run.

    arguments: of the function. basis: the ground of what it computes. stored: whether it takes too
    long for every comparison and its stored outcome is read. run: the command whose rows answer.
    """

    computed: str | None = None
    arguments: dict[str, Scalar | list[Scalar]] = Field(default_factory=dict, alias="with")
    basis: Basis | None = None
    stored: bool = False
    rows: RowsPart | None = None
    run: str | None = None


class PlacePart(Part):
    """Where a printed value stands in a panel.

    x: it is the y of a series there. y: it is the x at which a series reaches it. number: it is a
    value of a whole series, along an axis.
    """

    x: Scalar | None = None
    y: Scalar | None = None
    number: str | None = None
    along: Literal["x", "y"] = "y"


class PrintedPart(Part):
    """A value that caption, text or tables print.

    claim: one of the system's claims, which has the value and its source. series: whose value of
    ours is compared; without one it is the claim's own. mark: where it is drawn, for a printed
    bound with a wider range; by default in the middle of the range. not_compared: why ours is no
    answer.
    """

    claim: str | None = None
    printed: str | None = None
    holds: HoldsPart | None = None
    source: str | None = None
    series: str | None = None
    mark: Scalar | None = None
    place: PlacePart = Field(default_factory=PlacePart, alias="at")
    difference: str | None = None
    not_compared: str | None = None


class PanelPart(Part):
    """One plot of a figure. absent: series of the paper that ours lack, each with the reason."""

    title: str
    x: AxisPart
    y: AxisPart
    sources: list[SourcePart] = Field(alias="series")
    printed: list[PrintedPart] = Field(default_factory=list)
    absent: dict[str, str] = Field(default_factory=dict)


class FigurePart(Part):
    """One figure. states: what caption and text state of it. choices: ours, beside the usual."""

    title: str
    section: str
    states: str = ""
    panels: list[PanelPart] = Field(default_factory=list)
    choices: list[str] = Field(default_factory=list)
    left_out: list[str] = Field(default_factory=list)
    not_drawn: str | None = None


class FiguresDocument(Part):
    """The figures of one paper that plot numbers, by number."""

    system: str
    figures: dict[str, FigurePart]


@dataclass(frozen=True, slots=True)
class PrintedValue:
    """A printed value with its place: see `PrintedPart`.

    x, y: in the units of the axes, a category as its name. place: as the file states it. claim: the
    claim that it is of.
    """

    figure: PrintedFigure
    source: str
    series: str | None
    x: float | str | None
    y: float | None
    number: str | None
    along: Literal["x", "y"]
    place: str
    difference: str | None
    not_compared: str | None
    claim: Claim | None
    mark: float | None = None

    @property
    def middle(self) -> float:
        """Where it is drawn: the middle of the printed range, or the end of one with one end."""
        if self.mark is not None:
            return self.mark
        low, high = self.figure.low, self.figure.high
        if isinf(low) or isinf(high):
            return high if isinf(low) else low
        return (low + high) / 2


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot of a figure, checked."""

    part: PanelPart
    printed: tuple[PrintedValue, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a paper; without panels it is not drawn, for the reason of its part."""

    number: str
    part: FigurePart
    panels: tuple[Panel, ...]


def figures_file(published: Path) -> Path:
    """Return the file of figures of a file of published values."""
    return published.parent / FOLDER / published.name


def load_figures(published: Published) -> Mapping[str, Figure]:
    """Return the declared figures of a paper by number; none where no file declares them.

    Raises `testbeds.TestbedError` with every problem that was found, each with line and column.
    """
    path = figures_file(published.path)
    if not path.is_file():
        return {}
    document, _, findings = read_as(FiguresDocument, path)
    if document.system != published.system:
        found = f"found {document.system!r}, expected {published.system!r}"
        findings.add(("system",), found)
    claims = {claim.name: claim for claim in published.claims}
    figures = {}
    for number, part in document.figures.items():
        keys = ("figures", number)
        if bool(part.panels) == bool(part.not_drawn):
            findings.add(keys, "expected either `panels` or the reason why it is `not_drawn`")
        panels = tuple(
            Panel(panel, _printed(panel, claims, findings, (*keys, "panels", place)))
            for place, panel in enumerate(part.panels)
        )
        figures[number] = Figure(number, part, panels)
    findings.raise_if_any()
    return figures


def _printed(
    panel: PanelPart, claims: Mapping[str, Claim], findings: Findings, keys: tuple[Any, ...]
) -> tuple[PrintedValue, ...]:
    for place, source in enumerate(panel.sources):
        if (source.computed is None) == (source.rows is None):
            findings.add((*keys, "series", place), "expected either `computed` or `rows`")
        if (source.computed is None) != (source.basis is None):
            findings.add(
                (*keys, "series", place), "what is `computed` has a `basis`, rows have none"
            )
    found = []
    for place, part in enumerate(panel.printed):
        try:
            found.append(_value(panel, part, claims))
        except (LimitError, ValueError) as error:
            findings.add((*keys, "printed", place), str(error))
    return tuple(found)


def _value(panel: PanelPart, part: PrintedPart, claims: Mapping[str, Claim]) -> PrintedValue:
    """Return a printed value in the units of its axes; raises `ValueError` and `LimitError`."""
    place = part.place
    claim = None
    along = "x" if place.y is not None else place.along
    unit = (panel.x if along == "x" else panel.y).unit
    if part.claim is not None:
        claim = claims.get(part.claim)
        if claim is None:
            raise ValueError(f"found no claim {part.claim!r}")
        figure, source = claim.figure, part.source or claim.source
        if figure.unit != unit:
            raise ValueError(f"the claim is in {figure.unit!r}, and its axis in {unit!r}")
    elif part.printed is None or part.holds is None or part.source is None:
        raise ValueError("expected a `claim`, or `printed`, `holds` and `source`")
    else:
        ends = [
            default if text is None else parse_value("", "holds", text, unit)[0]
            for text, default in ((part.holds.start, -inf), (part.holds.to, inf))
        ]
        figure, source = PrintedFigure(part.printed, ends[0], ends[1], unit), part.source
    if part.series is None and claim is None and part.not_compared is None:
        raise ValueError("expected a `series` to compare with, or why it is `not_compared`")
    return PrintedValue(
        figure,
        source,
        part.series,
        x=None if place.x is None else _on(panel.x, "x", place.x),
        y=None if place.y is None else float(parse_value("", "y", place.y, panel.y.unit)[0]),
        number=place.number,
        along=along,
        place=str(place.x or place.y or place.number or ""),
        difference=part.difference or (claim.difference or claim.erratum if claim else None),
        not_compared=part.not_compared or (claim.undecided if claim else None),
        claim=claim,
        mark=None if part.mark is None else float(parse_value("", "mark", part.mark, unit)[0]),
    )


def _on(axis: AxisPart, key: str, value: Scalar) -> float | str:
    """Return a place on an axis: a number in its unit, or the name of a category."""
    try:
        return float(parse_value("", key, value, axis.unit)[0])
    except LimitError:
        if isinstance(value, str):
            return value
        raise
