"""A soak: rates with exact bounds, every flap, what was not watched, and one timeline of it all.

Rows of the soak that this one goes on with count like its own; the time between the two is a gap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lightrig.harness.quantities import declarations
from lightrig.harness.report.drawing import Axis, Plot, even
from lightrig.harness.report.frames import TestFrame, natural
from lightrig.harness.report.sections import (
    Cell,
    Column,
    Figure,
    Figures,
    Section,
    SectionData,
    Styled,
    Table,
    of_quantities,
)
from lightrig.harness.report.units import Value, shown
from lightrig.harness.statistics.rates import rate_sentence
from lightrig.testbeds.intervals import interval

_FAMILIES = ("soak.", "soak_before.")
_HOUR = 3600e9
_MOST_LANES, _MOST_ROWS = 24, 200
_WIDTH, _LANE, _LEFT, _RIGHT = 920.0, 18.0, 250.0, 60.0


class _Noted(NamedTuple):
    """A row of a soak: where, when after its begin in ns, bounds in its unit, what else it says."""

    test: TestFrame
    subject: str
    at: float
    value: float
    lower: float
    upper: float
    links: float
    texts: tuple[str, ...]


def _noted(data: SectionData, name: str) -> Iterator[_Noted]:
    """Yield the rows of a quantity, of the soak before and of this one, oldest first."""
    for test in data.frame.tests:
        found: list[_Noted] = []
        for family in _FAMILIES:
            series = test.series.get(f"{family}{name}")
            if series is None:
                continue
            size = len(series.subject)
            none = np.full(size, np.nan)
            at = series.conditions.get("elapsed_s", none)
            links = series.conditions.get("links", none)
            for place in range(size):
                subject, *texts = series.subject[place].split(", ")
                numbers = (series.value, series.lower, series.upper, links)
                value, lower, upper, of_links = (float(each[place]) for each in numbers)
                began = float(at[place]) * 1e9
                one = _Noted(test, subject, began, value, lower, upper, of_links, tuple(texts))
                found.append(one)
        yield from sorted(found, key=lambda one: one.at)


def _tests(data: SectionData) -> list[TestFrame]:
    return data.frame.having("soak.begun")


def _simulated(data: SectionData) -> str:
    return "simulated" if any(test.simulated for test in _tests(data)) else ""


def _link_hours(data: SectionData) -> float:
    return sum(one.value * (one.links or 1) for one in _noted(data, "watched")) / _HOUR


def _rates(data: SectionData) -> Iterator[tuple[str, str]]:
    """Yield what is counted, and its number with the bounds of its rate."""
    if not _tests(data):
        return
    hours = _link_hours(data)
    yield "carrier", rate_sentence(sum(1 for _ in _noted(data, "flap")), hours)
    if of_firmware := sum(1 for _ in _noted(data, "rdma_flap")):
        yield "link of the NIC's firmware (RDMA)", rate_sentence(of_firmware, hours)
    sent = sum(one.value for one in _noted(data, "datagrams"))
    lost = sum(one.value for one in _noted(data, "datagrams_lost"))
    if sent:
        yield "datagrams", f"{lost:,.0f} lost of {sent:,.0f} sent, within flaps and without"


def _by_link(data: SectionData) -> Iterator[tuple[str, Counter[str], float]]:
    """Yield each link that flapped, how often each end was first, and its longest flap in ns."""
    firsts: dict[str, Counter[str]] = {}
    longest: dict[str, float] = {}
    for one in _noted(data, "flap"):
        firsts.setdefault(one.subject, Counter())[_text_of(one, 0)] += 1
        longest[one.subject] = max(longest.get(one.subject, 0), one.value)
    for link in sorted(firsts, key=lambda link: (-firsts[link].total(), natural(link))):
        yield link, firsts[link], longest[link]


def _text_of(one: _Noted, place: int) -> str:
    return one.texts[place] if len(one.texts) > place else ""


def _flaps(data: SectionData) -> Iterator[_Noted]:
    yield from [*_noted(data, "flap")][-_MOST_ROWS:]


def _about_flaps(data: SectionData) -> str:
    total = sum(1 for _ in _noted(data, "flap"))
    latest = f" The latest {_MOST_ROWS} of {total:,}." if total > _MOST_ROWS else ""
    return (
        "Bounds from the readings of servers and of their clocks. The first end is the one whose "
        "carrier was lost first for certain; where the bounds of both overlap, or one was not "
        f"watched, it cannot be told. Light is what the switch's monitors showed.{latest}"
    )


def _duration(one: _Noted) -> Cell:
    endless = not np.isfinite(one.upper)
    if endless:
        return Value(f"{shown(one.lower, 'ns')} or more", ("its end was not seen",))
    written = interval(one.lower, one.upper, "ns", one.value)
    return Value(written.value, (written.ends, "simulated" if one.test.simulated else ""))


def _since_begin(one: _Noted) -> Cell:
    return Styled(shown(one.at, "ns"), "line")


def _gaps(data: SectionData) -> Iterator[_Noted]:
    yield from [*_noted(data, "gap")][-_MOST_ROWS:]


def _powers(data: SectionData) -> Iterator[tuple[str, float, float, float]]:
    """Yield each egress with the mean, least and greatest of its readings, in dBm."""
    found: dict[str, list[_Noted]] = {}
    for one in _noted(data, "power"):
        found.setdefault(one.subject, []).append(one)
    for port in sorted(found, key=natural):
        rows = found[port]
        mean = sum(one.value for one in rows) / len(rows)
        yield port, mean, min(one.lower for one in rows), max(one.upper for one in rows)


def _fec(data: SectionData) -> Iterator[tuple[str, float, float]]:
    """Yield each NIC port with the code words that it corrected and could not correct."""
    found: dict[str, list[float]] = {}
    for place, name in enumerate(("fec_corrected", "fec_uncorrectable")):
        for one in _noted(data, name):
            found.setdefault(one.subject, [0.0, 0.0])[place] += one.value
    for port in sorted(found, key=natural):
        corrected, lost = found[port]
        yield port, corrected, lost


def _power(row: tuple[str, float, float, float]) -> Cell:
    _, mean, least, greatest = row
    return Value(
        shown(mean, "dBm"), (f"readings {shown(least, 'dBm')} to {shown(greatest, 'dBm')}",)
    )


def _timeline(data: SectionData) -> Iterator[Figure]:
    """Yield one figure over the whole soak: plans, gaps, and the flaps of each link."""
    rows = [one for name in ("watched", "turn", "gap", "flap") for one in _noted(data, name)]
    if not _tests(data) or not rows:
        return
    turns, flaps = [*_noted(data, "turn")], [*_noted(data, "flap")]
    end = max(one.at for one in rows)
    links = [link for link, _, _ in _by_link(data)][:_MOST_LANES]
    lanes = ["plan", "not watched", *links]
    ticks = tuple((float(-place), label) for place, label in enumerate(lanes))
    height = 40 + _LANE * len(lanes)
    y = Axis(0.6 - len(lanes), 0.6, ticks)
    plot = Plot(_WIDTH, height, even(0, end, "ns", most=8, pad=0), y, left=_LEFT, right=_RIGHT)
    plans = list(dict.fromkeys(one.subject for one in turns))
    for index, plan in enumerate(plans):
        spans = [
            (one.at, after.at if after else end)
            for one, after in zip(turns, [*turns[1:], None], strict=True)
            if one.subject == plan
        ]
        low, high = zip(*spans, strict=True)
        plot.boxes(low, high, [0.0] * len(spans), 6, index)
    gaps = [*_noted(data, "gap")]
    if gaps:
        ends = [one.at + one.value for one in gaps]
        plot.boxes([one.at for one in gaps], ends, [-1.0] * len(gaps), 6, len(plans))
    for place, link in enumerate(links, 2):
        at = [one.at for one in flaps if one.subject == link]
        plot.dots(at, [-float(place)] * len(at), 0)
    more = "" if len(links) < _MOST_LANES else f" The {_MOST_LANES} links with most flaps."
    yield Figure(
        "The whole soak",
        plot.svg("Plans, gaps and flaps of a soak over its time"),
        bool(_simulated(data)),
        f"From its begin, over all its runs; a dot is a flap.{more} Links without a flap have no "
        "line.",
        legend=[*enumerate(plans)],
        width="full",
    )


SOAK = Section(
    declarations.SOAK,
    estimates=of_quantities(),
    shows=lambda name: name.startswith(_FAMILIES),
    parts=(
        Table(
            "Rates",
            (
                Column[tuple[str, str]]("of", lambda row: row[0]),
                Column("number and rate", lambda row: Styled(row[1], "strong")),
            ),
            rows=_rates,
            about="Bounds are exact and one-sided, 95 % each (Garwood 1936, Poisson). Link hours "
            "are those in which both ends were watched.",
        ),
        Figures(_timeline),
        Table(
            "Links that flapped",
            (
                Column[tuple[str, Counter[str], float]]("link", lambda row: row[0]),
                Column("flaps", lambda row: f"{row[1].total():,}"),
                Column(
                    "first",
                    lambda row: "; ".join(f"{end} {n}" for end, n in row[1].most_common()),
                ),
                Column("longest", lambda row: shown(row[2], "ns")),
            ),
            rows=_by_link,
        ),
        Table(
            "Flaps",
            (
                Column[_Noted]("after", _since_begin),
                Column[_Noted]("link", lambda one: one.subject),
                Column[_Noted]("lost for", _duration),
                Column[_Noted]("first", lambda one: _text_of(one, 0)),
                Column[_Noted]("light", lambda one: _text_of(one, 1)),
            ),
            rows=_flaps,
            about=_about_flaps,
        ),
        Table(
            "Not watched",
            (
                Column[_Noted]("after", _since_begin),
                Column[_Noted]("where", lambda one: one.subject),
                Column[_Noted]("for", lambda one: shown(one.value, "ns")),
                Column[_Noted]("why", lambda one: _text_of(one, 0)),
            ),
            rows=_gaps,
            about="These times are in no link hour, and what happened in them is not known.",
        ),
        Table(
            "Code words of NIC ports",
            (
                Column[tuple[str, float, float]]("port", lambda row: row[0]),
                Column("corrected", lambda row: f"{row[1]:,.0f}"),
                Column("not corrected", lambda row: f"{row[2]:,.0f}"),
            ),
            rows=_fec,
            about="By the FEC counters of the kernel (IEEE 802.3, 30.5.1.1.17 and 18); a counter "
            "that is full or was set back counts what is certain.",
        ),
        Table(
            "Power at the egress ports",
            (
                Column[tuple[str, float, float, float]]("egress", lambda row: row[0]),
                Column("mean", _power),
            ),
            rows=_powers,
            about="By the switch's monitors, in the light. An hour is a row.",
        ),
    ),
)
