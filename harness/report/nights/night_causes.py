"""Suspected causes of the last night of each lab, from its tests and its series."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from lightrig.harness.quantities.registry import quantity_of
from lightrig.harness.report.causes import Cause, Components, Evidence, find_causes
from lightrig.harness.report.nights.last_night import LastNight
from lightrig.harness.report.nights.overview import Board
from lightrig.harness.report.nights.series import Series
from lightrig.harness.report.nights.trend_figures import far
from lightrig.harness.report.units import shown, span
from lightrig.harness.statistics.confirmation import CONFIRMING
from lightrig.testbeds import Testbed

_FAULT = "loss.fault"
_NO_EVIDENCE = ("closure", "harness", "loss", "watched")
"""Families of quantities that describe the measurement, not the lab."""


def night_causes(board: Board, last: LastNight | None, testbed: Testbed | None) -> list[Cause]:
    """Return the suspected causes of a lab on its last night.

    last: how the tests of that night ended, if its runs are here. testbed: its description.
    """
    by_monitors = any("method monitors" in one.case for one in board.lab.series)
    components = Components(testbed, by_monitors=by_monitors)
    night = max(night for night, runs in enumerate(board.lab.runs) if runs)
    measured = [one for one in board.lab.series if one.n[night] > 0]
    found = list(_series_evidence(board, components, night, measured))
    commands = last.commands if last else {}
    evidence = [replace(one, command=commands.get(series.test, "")) for series, one in found]
    as_ever: dict[Hashable, list[frozenset[str]]] = {}
    for family in {one.family for one in evidence}:
        apart = {id(series): one.nights for series, one in found if one.family == family}
        alike = [one for one in measured if one.family == family]
        shifts = (_shift(one, apart[id(one)]) for one in alike if id(one) in apart)
        least = min(map(abs, shifts)) / 2
        nights = max(apart.values())
        as_ever[family] = [
            components.of(one.subject, one.quantity)
            for one in alike
            if id(one) not in apart and abs(_shift(one, nights)) <= least
        ]
    for ended in last.problems if last and board.lab.simulated >= last.simulated else ():
        if last is None or not ended.failed:
            continue
        failed = components.failed(ended.nodeid, ended.reason)
        subjects = [one.subject for one in measured if one.test == ended.nodeid]
        as_ever["failed", ended.nodeid] = components.as_ever(ended.reason, subjects)
        since, nights = last.since[ended.nodeid]
        link = f"runs/{ended.run}/report.html" if ended.run in last.reported else ""
        evidence += [
            replace(
                one,
                since=since,
                nights=nights,
                confirmed=nights >= CONFIRMING,
                command=commands.get(ended.nodeid, ""),
                link=link,
            )
            for one in failed
        ]
    return find_causes(evidence, as_ever)


def _series_evidence(
    board: Board, components: Components, night: int, measured: Sequence[Series]
) -> Iterator[tuple[Series, Evidence]]:
    """Yield faults of loss matrices, and series that are worse than before."""
    for one in measured:
        if one.quantity == _FAULT:
            nights = _in_a_row(board, one, night)
            value = shown(float(one.median[night]), one.unit)
            ends = span(float(one.lower[night]), float(one.upper[night]), one.unit, value)
            size = f"{value} ({ends})" if one.median[night] else ""
            text = f"{one.subject}: {one.case.partition(': fault ')[2] or one.case}"
            candidates = components.of(one.subject, text)
            yield one, _evidence(board, one, text, candidates, size, nights, night)
    departed = {id(each.series): each.departure for each in board.departures}
    for one in measured:
        if one.quantity.partition(".")[0] in _NO_EVIDENCE:
            continue
        moved = next((each for each in board.moved if each.series is one), None)
        departure = departed.get(id(one))
        if departure is not None:
            before, level = departure.before, departure.level
            low, high = float(one.lower[night]) - before, float(one.upper[night]) - before
            nights, confirmed = departure.run, departure.confirmed
        elif moved is not None and moved.changes:
            last = moved.changes[-1]
            before, level, confirmed = last.before, last.after, True
            low, high = last.after_lower - last.before_upper, last.after_upper - last.before_lower
            nights = int((one.n[last.index :] > 0).sum())
        else:
            continue
        if not _worse(one, before, level):
            continue
        by = far(before, level, one.unit)
        ends = span(low, high, "dB" if one.unit == "dBm" else one.unit, by)
        text = f"{one.quantity} of {one.subject}, {one.case}"
        find = components.of if one.statistic == "median" else components.explaining
        candidates = find(one.subject, one.quantity)
        size = f"{by} ({ends})" if low < high else by
        yield (
            one,
            replace(
                _evidence(board, one, text, candidates, size, nights, night), confirmed=confirmed
            ),
        )


def _evidence(
    board: Board,
    series: Series,
    text: str,
    candidates: frozenset[str],
    size: str,
    nights: int,
    night: int,
) -> Evidence:
    first = int(np.flatnonzero(series.n[: night + 1])[-nights])
    number = board.number(series)
    link = f"#{board.fold(series.quantity)}" if number is None else f"#{board.anchor(number)}"
    since = str(board.history.date(first))
    return Evidence(
        text, candidates, series.family, size, since, nights, nights >= CONFIRMING, "", link
    )


def _shift(series: Series, nights: int) -> float:
    """Return by how much the last nights lie above those before; 0 where there are none."""
    levels = series.level[np.isfinite(series.level)]
    if levels.size <= nights:
        return 0.0
    return float(np.median(levels[-nights:]) - np.median(levels[:-nights]))


def _in_a_row(board: Board, series: Series, night: int) -> int:
    """Return the number of measured nights in a row, until the last, that have the series."""
    count = 0
    for at in range(night, -1, -1):
        if series.n[at] > 0:
            count += 1
        elif board.lab.runs[at]:
            break
    return count


def _worse(series: Series, before: float, level: float) -> bool:
    """Whether a change is not for the better."""
    if series.statistic != "median":
        return level > before
    better = quantity_of(series.quantity, series.unit).better
    return better is None or (level > before) == (better == "lower")
