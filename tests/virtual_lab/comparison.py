"""Rows of a run on the virtual lab against what moved its links, and captures on its taps."""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lightrig.harness.record.row import Row

from .captures import Datagram

REACTION_NS = 200_000_000
"""Time in which an emulated machine notices that its link has moved.

A row may not lie before the move, and not later than this behind it. Seen on a machine that six
others used: up to 60 ms.
"""
_EVENT_NS = 10_000_000_000

CARRIER_UP, CARRIER_DOWN, PACKETS = "carrier_up", "carrier_down", "outage.packets"
FIRST_DATAGRAM = "first_datagram"
ALL_CARRIERS, ALL_DATAGRAMS = "reconfiguration.carrier_up", "reconfiguration.first_datagram"
COMMAND = "reconfiguration.acknowledged"


class Interval(NamedTuple):
    """Earliest and latest time, in ns."""

    earliest: int
    latest: int


@dataclass(frozen=True, slots=True)
class Move:
    """A move of a port's link: CLOCK_MONOTONIC in ns just before and just after it."""

    port: str
    up: bool
    at: Interval


@dataclass(frozen=True, slots=True)
class PortTruth:
    """When the link of a port went down and came up, in ns after the command."""

    down: Interval
    up: Interval


@dataclass(frozen=True, slots=True)
class Verdict:
    """A row, what it should have been, and whether it was."""

    event: int
    row: Row
    truth: Interval
    held: bool

    @property
    def width_ns(self) -> int:
        """Width of the row's interval."""
        return int((self.row.upper or 0) - (self.row.lower or 0))

    def __str__(self) -> str:
        row, truth = self.row, self.truth
        return (
            f"{'ok   ' if self.held else 'WRONG'} event {self.event} {row.quantity} of "
            f"{row.subject}: {_ms(row.lower)} … {_ms(row.upper)} ms, "
            f"truth {_ms(truth.earliest)} … {_ms(truth.latest)} ms"
        )


def parse_moves(text: str) -> list[Move]:
    """Return the moves of a file of notes, in their order (`tests.virtual_lab.carrier`)."""
    moves = []
    for line in text.splitlines():
        port, state, before, after = line.split()
        moves.append(Move(port, state == "up", Interval(int(before), int(after))))
    return moves


def truth_of_ports(moves: Iterable[Move], sent_ns: int) -> dict[str, PortTruth]:
    """Return when each port went down for the first time after `sent_ns`, and then came up."""
    downs: dict[str, Interval] = {}
    found: dict[str, PortTruth] = {}
    for move in moves:
        if not sent_ns <= move.at.earliest <= sent_ns + _EVENT_NS or move.port in found:
            continue
        at = Interval(move.at.earliest - sent_ns, move.at.latest - sent_ns)
        if not move.up:
            downs.setdefault(move.port, at)
        elif move.port in downs:
            found[move.port] = PortTruth(downs[move.port], at)
    return found


def compare(
    rows: Iterable[Row], moves: Sequence[Move], received: Mapping[str, Sequence[Datagram]]
) -> Iterator[Verdict]:
    """Yield a verdict of each row of a test that is about carriers, datagrams or whole events.

    received: the datagrams at each port's tap.
    """
    events: dict[object, list[Row]] = {}
    for row in rows:
        if "event" in row.conditions:
            events.setdefault(row.conditions["event"], []).append(row)
    for number, of_event in events.items():
        sent = next((row.time_ns for row in of_event if row.quantity == COMMAND), None)
        truth = {} if sent is None else truth_of_ports(moves, sent)
        if sent is None or not truth:
            continue
        for row in of_event:
            expected = _expected(row, sent, truth, received)
            if expected is not None:
                assert row.lower is not None
                assert row.upper is not None
                held = row.upper >= expected.earliest and row.lower <= expected.latest
                yield Verdict(int(str(number)), row, expected, held)


def _expected(
    row: Row,
    sent: int,
    truth: Mapping[str, PortTruth],
    received: Mapping[str, Sequence[Datagram]],
) -> Interval | None:
    if row.quantity in (CARRIER_UP, CARRIER_DOWN) and row.subject in truth:
        port = truth[row.subject]
        return _noticed(port.up if row.quantity == CARRIER_UP else port.down)
    if row.quantity == ALL_CARRIERS:
        return _noticed(max((port.up for port in truth.values()), key=lambda up: up.earliest))
    if row.quantity == ALL_DATAGRAMS:
        firsts = [_first_taken(received[port], sent) for port in truth]
        known = [first for first in firsts if first is not None]
        if len(known) < len(firsts):
            return None
        return Interval(max(one.earliest for one in known), max(one.latest for one in known))
    if row.quantity == FIRST_DATAGRAM and row.subject in truth:
        return _first_taken(received[row.subject], sent)
    if row.quantity == PACKETS:
        receiver = row.subject.partition(" > ")[2].partition(" < ")[0]
        return _outage(received[receiver], sent, truth[receiver]) if receiver in truth else None
    return None


def _noticed(at: Interval) -> Interval:
    return Interval(at.earliest, at.latest + REACTION_NS)


def _first_taken(datagrams: Sequence[Datagram], sent: int) -> Interval | None:
    """Return when the port received the first datagram over its new circuit.

    It is the first of another sender than at the command that QEMU gave to the port's NIC: over the
    old circuit no other sender reaches the tap. That can be before the link goes down: circuits
    move before the program that moves the links, which a busy machine delays.
    """
    before = next((d.token for d in reversed(datagrams) if d.at_ns < sent), None)
    for one in datagrams:
        if one.at_ns >= sent and one.token != before and one.taken_ns is not None:
            return Interval(one.at_ns - sent, one.taken_ns - sent + REACTION_NS)
    return None


def _outage(datagrams: Sequence[Datagram], sent: int, port: PortTruth) -> Interval | None:
    """Return the bounds of the time without datagrams around the change of a port.

    At least as long as its link was down, and at most from the last datagram at its tap before to
    the first one after.
    """
    before = [d.at_ns - sent for d in datagrams if d.at_ns - sent < port.down.earliest]
    after = [d.at_ns - sent for d in datagrams if d.at_ns - sent > port.up.latest]
    if not before or not after:
        return None
    least = max(0, port.up.earliest - port.down.latest)
    return Interval(least, after[0] - before[-1] + REACTION_NS)


def without_row(rows: Iterable[Row], moves: Sequence[Move]) -> list[tuple[int, str]]:
    """Return event and port of each link that came up after a command and has no row of that.

    An event without a row of the whole is left out: it says that it is incomplete.
    """
    of_all = list(rows)
    sent = {row.conditions["event"]: row.time_ns for row in of_all if row.quantity == COMMAND}
    seen = {
        (row.conditions.get("event"), row.subject) for row in of_all if row.quantity == CARRIER_UP
    }
    whole = {row.conditions["event"] for row in of_all if row.quantity == ALL_CARRIERS}
    return [
        (int(str(event)), port)
        for event, at in sent.items()
        if event in whole
        for port in sorted(truth_of_ports(moves, at))
        if (event, port) not in seen
    ]


def summary(verdicts: Sequence[Verdict]) -> list[str]:
    """Return, for each quantity, how many rows held the truth, and their median width."""
    lines = []
    for quantity in sorted({verdict.row.quantity for verdict in verdicts}):
        of_it = [verdict for verdict in verdicts if verdict.row.quantity == quantity]
        held = sum(verdict.held for verdict in of_it)
        width = statistics.median(verdict.width_ns for verdict in of_it)
        lines.append(f"{quantity}: {held} of {len(of_it)} hold, median width {_ms(width)} ms")
    events = {(verdict.event, verdict.row.time_ns) for verdict in verdicts}
    return [*lines, f"{len({event for event, _ in events})} events"]


def _ms(nanoseconds: float | None) -> str:
    return "?" if nanoseconds is None else f"{nanoseconds / 1e6:.1f}"
