"""Suspected causes of the last night of each lab, from its tests and its series."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from lightrig.harness.components import Components, LabComponent
from lightrig.harness.findings import (
    CHANGED,
    FACTOR,
    LATE,
    LATE_AT_TIMES,
    SETTINGS,
    SLOW_PORT,
    VERSIONS,
    Finding,
)
from lightrig.harness.quantities.declarations import PORT_EXCESS
from lightrig.harness.quantities.registry import quantity_of
from lightrig.harness.report.causes import Cause, Evidence, as_ever, find_causes
from lightrig.harness.report.nights.last_night import LastNight
from lightrig.harness.report.nights.overview import Board
from lightrig.harness.report.nights.series import NightSeries
from lightrig.harness.report.nights.trend_figures import are_far_apart
from lightrig.harness.statistics.confirmation import CONFIRMING
from lightrig.testbeds import Testbed
from lightrig.testbeds.plans import names_in

_FAULT = "loss.fault"
_TWICE = 2
"""Tests of a night and the night before that must name a port: one names a port by chance at times.
"""
_OF_BOTH_ENDS = frozenset(("datagram", "first_datagram"))
"""Last parts of quantities of one end of a link that come no earlier than the other end."""
_NO_EVIDENCE = ("closure", "harness", "loss", "watched")
"""Families of quantities that describe the measurement, not the lab."""


def night_causes(board: Board, last: LastNight | None, testbed: Testbed | None) -> list[Cause]:
    """Return the suspected causes of a lab on its last night.

    last: how the tests of that night ended, if its runs are here. testbed: its description.
    """
    by_monitors = any(one.conditions.get("method") == "monitors" for one in board.lab.series)
    components = Components(testbed, by_monitors=by_monitors)
    night = max(night for night, runs in enumerate(board.lab.runs) if runs)
    measured = [one for one in board.lab.series if one.n[night] > 0]
    found = list(_series_evidence(board, components, night, measured))
    commands = last.commands if last else {}
    evidence = [replace(one, command=commands.get(series.test, "")) for series, one in found]
    healthy: dict[Hashable, list[frozenset[LabComponent]]] = {}
    for family in {one.family for one in evidence}:
        apart = {id(series): one.nights for series, one in found if one.family == family}
        alike = [one for one in measured if one.family == family]
        shifts = (_shift(one, apart[id(one)]) for one in alike if id(one) in apart)
        least = min(map(abs, shifts)) / 2
        nights = max(apart.values())
        healthy[family] = [
            components.cleared_by(one.subject, one.quantity)
            for one in alike
            if id(one) not in apart and abs(_shift(one, nights)) <= least
        ]
    for ended in last.problems if last and board.lab.simulated >= last.simulated else ():
        if last is None or not ended.failed:
            continue
        family = "failed", ended.nodeid
        subjects = [one.subject for one in measured if one.test == ended.nodeid]
        healthy[family] = as_ever(ended.findings, subjects, components)
        since, nights = last.since[ended.nodeid]
        link = f"runs/{ended.run}/report.html" if ended.run in last.reported else ""
        about = (family, ended.nodeid, since, nights, nights >= CONFIRMING)
        command = commands.get(ended.nodeid, "")
        evidence += [Evidence(one, *about, command, link) for one in ended.findings]
    for seen in last.noticed if last else ():
        link = f"runs/{seen.run}/report.html" if last and seen.run in last.reported else ""
        family, confirmed = ("noticed", seen.finding.kind), seen.nights >= CONFIRMING
        finding = _narrowed(board, seen.finding, seen.since)
        evidence.append(
            Evidence(
                *(finding, family, "", seen.since, seen.nights, confirmed),
                link=link,
                looked=seen.looked,
            )
        )
    return [
        replace(
            one,
            news=tuple(_news(board, one)),
            parts=last.parts if last else (),
            remarks=tuple(_remarks(one, components if testbed else None)),
        )
        for one in find_causes(evidence, healthy, components)
    ]


def _remarks(cause: Cause, components: Components | None) -> Iterator[str]:
    looked = max((one.looked for one in cause.evidence), default="")
    if looked and all(one.looked for one in cause.evidence):
        yield (
            f"Last looked for in the night of {looked}: no run since began with `--profile night`"
        )
    strange = [
        str(one)
        for one in cause.components
        if components is not None
        and one.kind not in ("circuit", "link", "harness")
        and one not in components
    ]
    if strange:
        yield f"No longer in the testbed file: {', '.join(strange)}"


def with_shared_switches(
    found: Sequence[tuple[Board, Sequence[Cause]]], described: Sequence[Testbed | None]
) -> list[tuple[Board, Sequence[Cause]]]:
    """Return the causes of labs, each with the other testbeds that suspect the same switch.

    described: the testbed of each lab, which tells by their addresses which switches are one.
    """
    suspected: dict[str, set[str]] = {}
    addresses: list[dict[str, str]] = []
    for (board, causes), testbed in zip(found, described, strict=True):
        known = {
            name: spec.address
            for name, spec in (testbed.switches.items() if testbed else ())
            if spec.address
        }
        addresses.append(known)
        for name in {name for cause in causes for name in _switches(cause, known)}:
            suspected.setdefault(known[name], set()).add(board.lab.testbed)
    return [
        (
            board,
            [
                replace(one, remarks=(*one.remarks, *_shared(one, known, suspected, board)))
                for one in causes
            ],
        )
        for (board, causes), known in zip(found, addresses, strict=True)
    ]


def _switches(cause: Cause, known: Mapping[str, str]) -> set[str]:
    """Return the switches that a cause, or a connector of it, is of."""
    kinds = ("switch", "connector")
    names = {one.name.partition(".")[0] for one in cause.components if one.kind in kinds}
    return names & known.keys()


def _shared(
    cause: Cause, known: Mapping[str, str], suspected: Mapping[str, set[str]], board: Board
) -> Iterator[str]:
    for name in sorted(_switches(cause, known)):
        if elsewhere := sorted(suspected[known[name]] - {board.lab.testbed}):
            yield f"Testbed {', '.join(elsewhere)} has {name} too, and suspects it or ports of it"


def _narrowed(board: Board, finding: Finding, since: str) -> Finding:
    """Return what differs between parts with those of them alone that were new in its first night.

    Where all ports of a server that are named, or more than one, were new, it may be the server.
    """
    if finding.kind not in (SETTINGS, VERSIONS):
        return finding
    new = {
        name
        for event in board.events
        if event.kind in ("identity", "settings") and str(board.history.date(event.night)) == since
        for name in event.names
    }
    changed = [
        one for one in finding.components if one.name in new or one.name.rpartition(".")[0] in new
    ]
    if not changed or len(changed) == len(finding.components):
        return finding
    ports = Counter(name.partition(".")[0] for name in new if "." in name)
    owners = {one.name.partition(".")[0] for one in changed if one.kind == "port"}
    whole = [LabComponent("server", name) for name in owners if ports[name] > 1 or name in new]
    return replace(finding, components=(*changed, *sorted(whole)))


def _news(board: Board, cause: Cause) -> Iterator[str]:
    """Yield what was new at a cause's components, or at the whole lab, in its first night."""
    names = {one.name for one in cause.components}
    owners = {end.partition(".")[0] for name in names for end in names_in(name)}
    for event in board.events:
        if str(board.history.date(event.night)) != cause.since:
            continue
        about = {name.partition(".")[0] for name in event.names}
        whole = not event.names or not names
        if whole or names & {*event.names} or owners & {*event.names} or names & about:
            yield event.text


def _series_evidence(
    board: Board, components: Components, night: int, measured: Sequence[NightSeries]
) -> Iterator[tuple[NightSeries, Evidence]]:
    """Yield faults of loss matrices, and series that are worse than before."""
    for one in measured:
        if one.quantity == _FAULT:
            kind = str(one.conditions.get("fault", ""))
            finding = Finding(kind, f"{one.subject}: {kind}", (one.subject,))
            if one.median[night]:
                value, low, high = (float(of[night]) for of in (one.median, one.lower, one.upper))
                finding = replace(finding, value=value, lower=low, upper=high, unit=one.unit)
            nights = _in_a_row(board, one, night)
            yield one, _evidence(board, one, finding.located(components), nights, night)
    yield from _slow_ports(board, components, night)
    departed = {
        id(each.series): each.departure for each in board.departures if each.departure.p < 1
    }
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
        median, family = one.statistic == "median", one.quantity.rpartition(".")[2]
        find = components.of if median and family not in _OF_BOTH_ENDS else components.explaining
        found = tuple(find(one.subject, one.quantity))
        sentence = f"{one.quantity} of {one.subject}, {one.case}"
        unit, size = "dB" if one.unit == "dBm" else one.unit, (level - before, low, high)
        if are_far_apart(before, level, one.unit):
            unit, size = FACTOR, (level / before, 1 + low / before, 1 + high / before)
        kind = CHANGED if one.unit != "ns" else LATE if median else LATE_AT_TIMES
        finding = Finding(kind, sentence, (one.subject,), found, *size, unit)
        yield one, replace(_evidence(board, one, finding, nights, night), confirmed=confirmed)


def _slow_ports(
    board: Board, components: Components, night: int
) -> Iterator[tuple[NightSeries, Evidence]]:
    """Yield the ports that take longer than the others of their events, by stage.

    A test names one by chance where all are alike (`harness.measure.stages.PORT_ERROR`), so that
    another test, or another night, must name it too.
    """
    before = [at for at, runs in enumerate(board.lab.runs[:night]) if runs][-1:]
    slow: dict[tuple[str, str], list[NightSeries]] = {}
    for one in board.lab.series:
        if one.quantity == PORT_EXCESS and one.statistic == "median":
            slow.setdefault((one.subject, str(one.conditions.get("stage", ""))), []).append(one)
    for (port, stage), found in slow.items():
        by = {(one.test, at) for one in found for at in (*before, night) if one.median[at] > 0}
        now = [one for one in found if one.median[night] > 0]
        if not now or len(by) < _TWICE:
            continue
        worst = max(now, key=lambda one: float(one.median[night]))
        nights = max(_in_a_row(board, one, night) for one in now)
        value, low, high = (float(of[night]) for of in (worst.median, worst.lower, worst.upper))
        title = quantity_of(stage, worst.unit).title
        sentence = f"{port} takes longer than the other ports of the same events: {title}"
        explaining = tuple(components.of(port, stage))
        size = (value, low, high, worst.unit)
        finding = Finding(SLOW_PORT, sentence, (port,), explaining, *size)
        yield worst, _evidence(board, worst, finding.located(components), nights, night)


def _evidence(
    board: Board, series: NightSeries, finding: Finding, nights: int, night: int
) -> Evidence:
    first = int(np.flatnonzero(series.n[: night + 1])[-nights])
    number = board.number(series)
    link = f"#{board.fold(series.quantity)}" if number is None else f"#{board.anchor(number)}"
    since = str(board.history.date(first))
    confirmed = nights >= CONFIRMING
    return Evidence(finding, series.family, "", since, nights, confirmed, link=link)


def _shift(series: NightSeries, nights: int) -> float:
    """Return by how much the last nights lie above those before; 0 where there are none."""
    levels = series.level[np.isfinite(series.level)]
    if levels.size <= nights:
        return 0.0
    return float(np.median(levels[-nights:]) - np.median(levels[:-nights]))


def _in_a_row(board: Board, series: NightSeries, night: int) -> int:
    """Return the number of measured nights in a row, until the last, that have the series."""
    count = 0
    for at in range(night, -1, -1):
        if series.n[at] > 0:
            count += 1
        elif board.lab.runs[at]:
            break
    return count


def _worse(series: NightSeries, before: float, level: float) -> bool:
    """Whether a change is not for the better."""
    if series.statistic != "median":
        return level > before
    better = quantity_of(series.quantity, series.unit).better
    return better is None or (level > before) == (better == "lower")
