"""Relocks: stages between light and carrier, where the time goes by hardware, and one change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from lightrig.harness.measure.relock_rows import LIGHT_LOST
from lightrig.harness.quantities import declarations
from lightrig.harness.quantities.registry import quantity_of
from lightrig.harness.report.drawing import Axis, Plot, decades, even
from lightrig.harness.report.estimates import CONFIDENCE, Estimate, estimates_of
from lightrig.harness.report.frames import EarlierRun, Series, TestbedFrame, TestFrame, natural
from lightrig.harness.report.markup import bounded_value, median_value
from lightrig.harness.report.sections import (
    Cell,
    Column,
    Estimates,
    Figure,
    Figures,
    Limits,
    RowGroup,
    Section,
    SectionData,
    Styled,
    Table,
    in_declared_order,
    test_column,
    verdict_column,
)
from lightrig.harness.report.units import Value
from lightrig.harness.statistics.quantiles import NotEnough, Quantile, quantile
from lightrig.testbeds.intervals import at_most, interval

_FAMILY = "relock"
_WHOLE, _BETWEEN, _PRICE = "relock.whole", "relock.between", "relock.price"
_MOMENT, _PORT = "relock.moment", "relock.port"
_BY_THEMSELVES = {_BETWEEN, _PRICE, _MOMENT, _PORT}
_NO_SOURCE = "none"
_WIDTH, _LANE, _LEFT, _RIGHT = 760.0, 22.0, 112.0, 16.0
_THICK, _THIN = 13.0, 6.0
_BEGINNING = 0.2
"""Share of a change: stages that end before it are drawn larger too."""
_OF_LIGHT = 5
"""Number of the colour of light; that of a stage is another one."""


class _Part(NamedTuple):
    """A part of the relock of one port in one change: bounds and point in ns."""

    port: str
    event: int
    name: str
    lower: float
    value: float
    upper: float


def _stated(subject: str) -> tuple[str, ...]:
    """Return the subject of a row and its conditions that are texts, by the order of their names.

    Those of all rows have the source, of `relock.between` what it is between and which stages are,
    of `relock.moment` its name, the stages that follow and the other end, of `relock.port` the
    firmware, the NIC and the transceiver.
    """
    return tuple(subject.split(", "))


def _parts(test: TestFrame) -> Iterator[_Part]:
    """Yield the parts of all relocks of a test in which something was read; wholes are among them.

    They come by the order of the stages.
    """
    for quantity in in_declared_order(test.series):
        if quantity.partition(".")[0] != _FAMILY or quantity in {_PRICE, _MOMENT, _PORT}:
            continue
        series = test.series[quantity]
        bounds = (each.tolist() for each in (series.lower, series.value, series.upper))
        for subject, event, *of_row in zip(
            series.subject, series.event.tolist(), *bounds, strict=True
        ):
            port, source, *_ = _stated(subject)
            name = quantity_of(quantity, "ns").title
            if quantity == _BETWEEN:
                port, ends, source, *stages = _stated(subject)
                name = f"{', '.join(stages)} (between {ends})"
            if source != _NO_SOURCE:
                yield _Part(port, event, name, *of_row)


def _estimates(frame: TestbedFrame, limits: Limits) -> Estimates:
    names = [name for name in frame.quantities(_FAMILY) if name not in _BY_THEMSELVES]
    return estimates_of(frame, in_declared_order(names), limits)


def _group(one: Estimate) -> RowGroup:
    declared = quantity_of(one.quantity, one.unit)
    return RowGroup(declared.title, declared.meaning, one.limit)


# ------------------------------------------------------------------------ by hardware


class _ByHardware(NamedTuple):
    """The parts of one name at the ports of one kind, and the wholes of the same changes."""

    kind: tuple[str, str, str]
    ports: int
    parts: Sequence[_Part]
    wholes: Mapping[tuple[str, int], float]
    simulated: bool

    @property
    def changes(self) -> int:
        return len({part.event for part in self.parts})


def _kinds(test: TestFrame) -> dict[str, tuple[str, str, str]]:
    """Return transceiver, NIC and firmware of each port."""
    series = test.series.get(_PORT)
    found = {}
    for subject in series.subject if series else ():
        port, firmware, nic, transceiver = _stated(subject)
        found[port] = transceiver, nic, firmware
    return found


def _by_hardware(data: SectionData) -> Iterator[_ByHardware]:
    """Yield each stage of each kind of ports, over all tests."""
    parts: defaultdict[tuple[str, str, str], defaultdict[str, list[_Part]]]
    parts = defaultdict(lambda: defaultdict(list))
    ports = defaultdict[tuple[str, str, str], set[str]](set)
    for place, test in enumerate(data.frame.tests):
        kinds = _kinds(test)
        for part in _parts(test):
            if kind := kinds.get(part.port):
                ports[kind].add(part.port)
                # Changes of different tests are different ones.
                of_run = part._replace(event=part.event * len(data.frame.tests) + place)
                parts[kind][part.name].append(of_run)
    whole = quantity_of(_WHOLE, "ns").title
    for kind in sorted(parts, key=lambda each: natural(", ".join(each))):
        named = parts[kind]
        wholes = {(one.port, one.event): one.value for one in named[whole]}
        for found in named.values():
            yield _ByHardware(kind, len(ports[kind]), found, wholes, data.frame.simulated)


def _kind_group(row: _ByHardware) -> RowGroup:
    transceiver, nic, firmware = row.kind
    ports = f"{row.ports} port{'s' if row.ports > 1 else ''}"
    return RowGroup(f"transceiver {transceiver}, NIC {nic}, firmware {firmware}", ports)


def _median(row: _ByHardware) -> Cell:
    found = _median_of(row.parts)
    if isinstance(found, NotEnough) or not _is_bound_only(found):
        return median_value(found, row.simulated)
    context = f"median of {found.n:,}", f"as {row.changes:,} independent ones"
    of_bound = f"{CONFIDENCE:.0%} interval from 0", "simulated" if row.simulated else ""
    return Value(f"at most {at_most(found.upper, 'ns')}", (*context, *of_bound))


def _is_bound_only(found: Quantile) -> bool:
    """Whether a median may be 0: what its middle says is then of its upper end alone."""
    return found.lower is not None and found.lower <= 0


def _share(row: _ByHardware) -> Cell:
    found = _median_of(row.parts)
    bound_only = isinstance(found, Quantile) and _is_bound_only(found)
    shares = [
        (part.upper if bound_only else part.value) / row.wholes[part.port, part.event]
        for part in row.parts
        if row.wholes.get((part.port, part.event))
    ]
    text = f"{float(np.median(shares)):.0%}" if shares else None
    return f"at most {text}" if text and bound_only else text


def _seen(row: _ByHardware) -> Cell:
    return f"{len(row.parts):,} of {len(row.wholes):,}, in {row.changes:,} changes"


# -------------------------------------------------------------------------------- price


class _Price(NamedTuple):
    test: TestFrame
    series: Series
    at: int


def _prices(data: SectionData) -> Iterator[_Price]:
    for test in data.frame.having(_PRICE):
        series = test.series[_PRICE]
        for at in range(len(series.subject)):
            yield _Price(test, series, at)


def _price(one: _Price) -> Cell:
    value, low, high = (
        float(each[one.at]) for each in (one.series.value, one.series.lower, one.series.upper)
    )
    written = interval(low, high, "ns", value)
    context = f"95 % interval {written.ends}", f"{one.series.count[one.at]:,} changes"
    return Value(written.value, (*context, "simulated" if one.test.simulated else ""))


# ---------------------------------------------------------------------------- one change


class _Moment(NamedTuple):
    """A moment at one end of a link, in ns after the command, and the stages that follow."""

    name: str
    lower: float
    upper: float
    next: str


class _Ends(NamedTuple):
    """The two ends of a link in one change, each with its moments in order; one may be missing."""

    test: TestFrame
    event: int
    ports: tuple[str, str]
    moments: Mapping[str, Sequence[_Moment]]


def _moments(test: TestFrame) -> dict[tuple[int, str, str], list[_Moment]]:
    """Return the moments of each change, port and other end of its link."""
    found: defaultdict[tuple[int, str, str], list[_Moment]] = defaultdict(list)
    series = test.series[_MOMENT]
    rows = zip(
        series.subject,
        series.event.tolist(),
        series.lower.tolist(),
        series.upper.tolist(),
        strict=True,
    )
    for subject, event, low, high in rows:
        port, name, then, peer, _ = _stated(subject)
        found[event, port, peer].append(_Moment(name, low, high, then))
    return found


def _one_change(data: SectionData) -> _Ends | None:
    """Return the link whose carrier came last, in the middle one of the changes with most stages.

    Where something was read at both ends it is a better picture than of one end.
    """
    tests = data.frame.having(_MOMENT)
    if not tests:
        return None
    test = tests[0]
    links: defaultdict[tuple[int, frozenset[str]], dict[str, Sequence[_Moment]]]
    links = defaultdict(dict)
    for (event, port, peer), moments in _moments(test).items():
        links[event, frozenset((port, peer))][port] = moments
    sizes = {key: sum(map(len, ends.values())) for key, ends in links.items()}
    full = [key for key, size in sizes.items() if size == max(sizes.values())]
    events = sorted({event for event, _ in full})
    event = events[len(events) // 2]
    _, chosen = max(
        (key for key in full if key[0] == event),
        key=lambda key: max(each[-1].upper for each in links[key].values()),
    )
    first, last = sorted(chosen, key=natural)
    return _Ends(test, event, (first, last), links[event, chosen])


def _pictures(data: SectionData) -> Iterator[Figure]:
    """Yield one change over its whole time, and its beginning where stages there are short."""
    found = _one_change(data)
    if found is None:
        return
    last = max(each[-1].upper for each in found.moments.values())
    stages = dict.fromkeys(
        moment.next for moments in found.moments.values() for moment in moments if moment.next
    )
    indices = {stage: place + (place >= _OF_LIGHT) for place, stage in enumerate(stages)}
    legend = [(index, stage.replace(" + ", ", ")) for stage, index in indices.items()]
    of_light = (_OF_LIGHT, "light at the receiver")
    yield Figure(
        "One change, both ends of a link",
        _draw(found, indices, last),
        found.test.simulated,
        f"Change {found.event} of {found.test.label}: each end's stages, over the light that it "
        "receives. Full where a stage was for certain, faint where its begin or end may have "
        "been. Stages of one colour could not be told apart.",
        legend=[*legend, of_light],
        width="full",
    )
    early = [
        moment.upper
        for moments in found.moments.values()
        for moment in moments
        if moment.upper < _BEGINNING * last
    ]
    if early:
        yield Figure(
            "Its beginning",
            _draw(found, indices, 1.2 * max(early)),
            found.test.simulated,
            "The same change, until the light is back and what ended soon after.",
            width="full",
        )


def _draw(found: _Ends, indices: Mapping[str, int], last: float) -> str:
    """Draw the ends of a link until `last`, in ns after the command.

    indices: numbers of colours, by the stages between two moments.
    """
    lanes = [lane for port in found.ports for lane in (port, "light")]
    ticks = tuple((float(-place), label) for place, label in enumerate(lanes))
    level = even(0, last, "ns", most=8, pad=0)
    upright = Axis(0.6 - len(lanes), 0.6, ticks)
    label = f"after the command ({level.label})"
    across = Axis(level.low, level.high, level.ticks, label)
    height = 40 + _LANE * len(lanes)
    plot = Plot(_WIDTH, height, across, upright, left=_LEFT, right=_RIGHT)
    for place, port in enumerate(found.ports):
        moments = found.moments.get(port, ())
        lane = -2.0 * place
        if not moments:
            plot.word(0, lane, " no carrier or light was seen", "start", "lr-said")
            continue
        _draw_light(plot, moments, lane - 1, last)
        relocking = [moment for moment in moments if moment.name != LIGHT_LOST]
        # Earlier stages last: their edges are seen where two may have been at the same time.
        for begin, end in reversed([*pairwise(relocking)]):
            _bar(plot, begin, end, lane, _THICK, indices[begin.next], last)
    return plot.svg(f"Stages and light of both ends in change {found.event}", least_width=640)


def _draw_light(plot: Plot, moments: Sequence[_Moment], lane: float, last: float) -> None:
    """Draw the light of one end: until the old one ended, if that was seen, and the new one."""
    lost = next((moment for moment in moments if moment.name == LIGHT_LOST), None)
    back = next(moment for moment in moments if moment.name != LIGHT_LOST)
    begin, end = (_Moment("", at, at, "") for at in (0.0, last))
    if lost is not None:
        _bar(plot, begin, lost, lane, _THIN, _OF_LIGHT, last)
    _bar(plot, back, end, lane, _THIN, _OF_LIGHT, last)


def _bar(
    plot: Plot,
    begin: _Moment,
    end: _Moment,
    lane: float,
    thick: float,
    index: int,
    last: float,
) -> None:
    """Draw a time between two moments: faint all that it may be, full what it is for certain."""
    if begin.lower > last:
        return
    if (begin.lower, end.upper) != (begin.upper, end.lower):
        plot.boxes([begin.lower], [end.upper], [lane], thick, index, "lr-area")
    if begin.upper < end.lower:
        plot.boxes([begin.upper], [end.lower], [lane], thick, index)


# -------------------------------------------------------------------------------- trends


def _trends(data: SectionData) -> Iterator[Figure]:
    """Yield the medians of the whole and of its stages over this run and the earlier ones."""
    if not data.frame.earlier or not data.frame.having(_WHOLE):
        return
    runs = [*data.frame.earlier, EarlierRun("this run", "", data.frame.tests)]
    medians: defaultdict[str, list[tuple[int, Quantile]]] = defaultdict(list)
    for place, run in enumerate(runs):
        named: defaultdict[str, list[_Part]] = defaultdict(list)
        for test in run.tests:
            for part in _parts(test):
                named[part.name].append(part)
        for name, parts in named.items():
            found = _median_of(parts)
            if isinstance(found, Quantile):
                medians[name].append((place, found))
    several = {name: points for name, points in medians.items() if len(points) > 1}
    if not several:
        return
    first = runs[0].started or runs[0].run
    yield Figure(
        "Runs with --relock",
        _trend([*several.values()], len(runs)),
        data.frame.simulated,
        f"Medians of changes in which something was read, with 95 % intervals: {len(runs)} runs "
        f"since {first}, this one last.",
        legend=[*enumerate(several)],
    )


def _trend(series: Sequence[Sequence[tuple[int, Quantile]]], runs: int) -> str:
    """Draw medians over runs; each is given with the place of its run."""
    points = [one for each in series for _, one in each]
    least = min(one.value for one in points if one.value > 0)
    upright = decades(least, max(one.upper for one in points), "ns")
    every = -(-runs // 10)
    ticks = tuple((float(place), f"{place + 1}") for place in range(0, runs, every))
    plot = Plot(420, 240, Axis(-0.2, runs - 0.8, ticks, "run"), upright, left=40, top=16)
    for index, each in enumerate(series):
        at = [float(place) for place, _ in each]
        low, high = zip(*((one.lower or 0.0, one.upper) for _, one in each), strict=True)
        plot.area([*at, *at[::-1]], [*low, *high[::-1]], index, "lr-band")
        middle = [one.value for _, one in each]
        plot.line(at, middle, index)
        plot.dots(at, middle, index)
    return plot.svg("Medians of stages over runs with --relock")


def _median_of(parts: Sequence[_Part]) -> Quantile | NotEnough:
    """Return the median of a stage; the ports of one change are no independent samples."""
    low, value, high = ([part[at] for part in parts] for at in (3, 4, 5))
    changes = len({part.event for part in parts})
    return quantile(low, high, 0.5, CONFIDENCE, points=value, effective=changes)


RELOCK = Section(
    declarations.RELOCK,
    estimates=_estimates,
    shows=lambda name: name.partition(".")[0] == _FAMILY,
    parts=(
        Figures(_pictures),
        Table(
            "Where the time goes",
            (
                Column[_ByHardware]("stage", lambda row: Styled(row.parts[0].name, "strong")),
                Column("median", _median),
                Column("share", _share),
                Column("ports and changes", _seen),
            ),
            rows=_by_hardware,
            about="By transceiver, NIC and the NIC's firmware, of changes in which something was "
            "read beside the links. A stage of which nothing was seen is between two moments "
            "that were. Shares are medians of single changes and need not add up to 100 %.",
            group=_kind_group,
        ),
        Table(
            "From light to carrier",
            (
                test_column(),
                Column[Estimate]("n", lambda one: f"{one.n:,}"),
                Column[Estimate](
                    "median", lambda one: median_value(one.median, one.test.simulated, one.unit)
                ),
                Column[Estimate](
                    "p99", lambda one: bounded_value(one.p99, one.test.simulated, one.unit)
                ),
                verdict_column(),
            ),
            rows=lambda data: (
                one for one in data.each() if one.quantity == _WHOLE or one.limit is not None
            ),
            about="Each port in each change is a sample, those without readings included.",
            group=_group,
        ),
        Table(
            "What reading costs",
            (
                Column[_Price]("read", lambda one: _stated(one.series.subject[one.at])[-1]),
                Column[_Price]("lengthens the relock by", _price),
                Column[_Price]("test", lambda one: one.test),
            ),
            rows=_prices,
            about="Difference of the medians of changes with and without readings, in turns.",
        ),
        Figures(_trends),
    ),
)
