"""Outages over links that reorder, duplicate, delay and lose datagrams, as tc-netem(8) does.

A model of a link with one sender and one receiver: each datagram passes the place of the cut after
a part of its way, and is lost where the link is cut then. Its arrivals go to the code of the probe,
and what that hands over to the code that finds interruptions.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import pytest
from servers.probe_parts import Air

from lightrig.harness.measure.loss_windows import LossWindow, loss_windows, steady_losses
from lightrig.harness.measure.stages import Reconfiguration, rows
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import Gap, LateDatagram
from lightrig.instruments.servers.host.linux import transit_at_most
from lightrig.instruments.servers.programs import probe_datagrams
from lightrig.instruments.servers.programs.probe_datagrams import DATAGRAM, DatagramStream
from lightrig.instruments.servers.programs.probe_events import EventLog
from lightrig.testbeds import Port

MS = 1_000_000
SENDER, RECEIVER = Port("server0", "nic0"), Port("server1", "nic0")
STREAM, BOOT = 5, bytes(16)
COUNT = 900
SENDING = 4_000
"""Time that a call of `send` takes, and the way to the cut at least, in ns."""


class Disturbance(NamedTuple):
    """What a link does to each datagram: shares, and times in ms."""

    loss: float = 0
    duplicate: float = 0
    delay: float = 0
    jitter: float = 0
    at_once: float = 0
    before_the_cut: bool = True


class Observed:
    """What servers have observed of one link, on one clock."""

    def __init__(self, stream: DatagramStream, log: EventLog, left: Mapping[int, int]) -> None:
        taken, self._left = log.settle(set(), 0), left
        self.gaps = [(RECEIVER, self._gap(gap)) for gap in taken.gaps]
        self.late = [(RECEIVER, LateDatagram(*late)) for late in taken.late]
        heard = stream.heard().items()
        self.received = {(RECEIVER, int(token)): count for token, count in heard}

    @staticmethod
    def _gap(gap: Any) -> Gap:
        (last_stream, _, last, last_sent), (first_stream, _, first, lost_sent) = gap.last, gap.first
        slowest = (Span(at, at) for at in gap.slowest)
        stamps = (Span(at, at) for at in (last_sent, lost_sent, gap.received))
        sent, lost, received = stamps
        transit = transit_at_most(*slowest)
        return Gap(
            "p0", last_stream, last, sent, first_stream, first, lost, received, False, transit
        )

    def await_late(self) -> None:
        """All has come."""

    def senders(self) -> dict[int, Port]:
        return {STREAM: SENDER}

    def departures(self, wanted: Mapping[Port, Sequence[int]]) -> dict[tuple[Port, int], Span]:
        return {
            (port, number): Span(self._left[number], self._left[number])
            for port, numbers in wanted.items()
            for number in numbers
            if number in self._left
        }


def observe(
    what: Disturbance, cut: Span | None, draws: random.Random, monkeypatch: pytest.MonkeyPatch
) -> tuple[Observed, int, int]:
    """Send a datagram a ms over a link that is cut; return also how many were lost by chance.

    The last number is of those that were overtaken.
    """
    arrivals: list[tuple[int, bytes, int]] = []
    by_chance, left, sent, before = 0, {}, 0, 0
    for number in range(1, COUNT + 1):
        before, sent = sent, number * MS + draws.randrange(200_000)
        left[number] = sent + SENDING
        data = DATAGRAM.pack(b"LRP1", STREAM, BOOT, number, sent, before or sent) + b"host\0p1"
        for _ in range(1 + (draws.random() < what.duplicate)):
            way = max(draws.gauss(what.delay, what.jitter), 0) * MS
            if draws.random() < what.at_once:
                way = 0
            way += SENDING
            passes = sent + round(way if what.before_the_cut else SENDING)
            if cut is not None and cut.earliest <= passes < cut.latest:
                continue
            if draws.random() < what.loss:
                by_chance += 1
                continue
            arrivals.append((sent + round(way), data, number))
    arrivals.sort(key=lambda each: each[0])
    now = [0]
    monkeypatch.setattr(probe_datagrams, "now", lambda: now[0])
    stream = DatagramStream(cast("Any", Air()), None, "p0", BOOT, 4000, MS)
    log, highest, overtaken, came = EventLog(), 0, 0, set[int]()
    for at, data, number in arrivals:
        now[0] = at
        stream.socket.waiting = [data]  # type: ignore[attr-defined]
        stream.receive(log)
        stream.listen_for_silence(log, at)
        overtaken += number < highest and number not in came
        highest = max(highest, number)
        came.add(number)
    return Observed(stream, log, left), by_chance, overtaken


NETEM = {
    "nothing": Disturbance(),
    "reorder": Disturbance(delay=10, at_once=0.25),
    "duplicate": Disturbance(duplicate=0.05),
    "loss 0.1 %": Disturbance(loss=0.001),
    "loss 1 %": Disturbance(loss=0.01),
    "loss 5 %": Disturbance(loss=0.05),
    "delay": Disturbance(delay=20),
    "delay behind the cut": Disturbance(delay=20, before_the_cut=False),
    "jitter": Disturbance(delay=20, jitter=3),
    "all": Disturbance(0.02, 0.02, 20, 3, 0.1),
}


@pytest.mark.parametrize("name", NETEM)
def test_an_outage_over_a_disturbed_link_holds_the_truth(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty outages of 30 to 300 ms: none is missed, and each is about as wide as its causes."""
    what, draws, missed, widths = NETEM[name], random.Random(7), list[str](), list[float]()
    for _ in range(60):
        begin = draws.randrange(300 * MS, 400 * MS)
        cut = Span(begin, begin + draws.randrange(30 * MS, 300 * MS))
        seen, _, _ = observe(what, cut, draws, monkeypatch)
        (window,) = loss_windows(cast("Any", seen), 0)
        length = cut.latest - cut.earliest
        holds = (
            window.began.earliest <= cut.earliest <= window.began.latest
            and window.ended.earliest <= cut.latest <= window.ended.latest
            and window.length.earliest <= length <= window.length.latest
        )
        if not holds:
            missed.append(f"{cut} {window}")
        widths.append((window.length.latest - window.length.earliest) / MS)
    # With 0.1 % a first loss, beside an outage, cannot be told from it: twice in 1,000 outages.
    assert len(missed) <= (name == "loss 0.1 %"), missed
    # A period at either end, five more that may be lost by chance, and the way with its variation.
    chance = 5 if what.loss else 0
    assert sorted(widths)[30] <= 2.5 + 2 * chance + 3 * (what.delay + 4 * what.jitter)


@pytest.mark.parametrize("name", NETEM)
def test_links_that_are_not_cut_have_no_outage_and_their_own_rows(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    what, draws = NETEM[name], random.Random(3)
    for _ in range(12):
        seen, by_chance, overtaken = observe(what, None, draws, monkeypatch)
        windows = loss_windows(cast("Any", seen), 0)
        steady = steady_losses(cast("Any", seen), windows)
        if by_chance < 4:  # one alone may be an interruption, and others at the ends in no gap
            assert len(windows) <= by_chance
            continue
        # The first and the last numbers are in no gap; of two that are sent, both must be lost.
        assert sum(one.lost for one in steady) <= by_chance
        if not what.duplicate:
            assert abs(sum(one.lost for one in steady) - by_chance) <= 2
        assert all(window.lost is not None and window.lost > 2 for window in windows)
        assert sum(one.late for one in steady) == overtaken


def test_loss_and_reordering_are_rows_beside_the_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """5 % of 900 are lost by netem, and its interval holds that; one in four comes 10 ms early."""
    draws = random.Random(11)
    cut = Span(400 * MS, 500 * MS)
    what = Disturbance(loss=0.05, delay=10, at_once=0.25)
    seen, _, overtaken = observe(what, cut, draws, monkeypatch)
    windows = loss_windows(cast("Any", seen), 0)
    steady = steady_losses(cast("Any", seen), windows)
    event = Reconfiguration("crossed", 1, Span(0, 0), (), (), steady=tuple(steady))
    loss, reordered = rows(event, cast("Any", None), 3)
    assert (loss.subject, loss.quantity) == ("server0.nic0 > server1.nic0", "datagrams.loss")
    assert loss.lower is not None
    assert loss.upper is not None
    assert 0 < loss.lower < 0.05 < loss.upper < 0.08
    assert (reordered.quantity, reordered.value) == ("datagrams.reordered", overtaken)
    # Nine or ten leave while one that waits is on its way.
    assert 9 <= int(reordered.conditions["depth"]) <= 11
    (window,) = windows
    assert window.length.earliest <= 100 * MS <= window.length.latest


def test_a_way_that_clocks_may_hide_bounds_as_a_long_one() -> None:
    """Clocks known to 20 ms each: it left at 0 to 20 ms, came at 15 to 35, so took 35 at most."""
    assert transit_at_most(Span(0, 20 * MS), Span(15 * MS, 35 * MS)) == 35 * MS
    assert transit_at_most(Span(0, 200_000), Span(300_000, 500_000)) == 0


def test_a_window_counts_what_was_lost_and_not_what_was_overtaken() -> None:
    window = LossWindow(RECEIVER, SENDER, 10, SENDER, 31, Span(0, 1), Span(2, 3), overtaken=4)
    assert window.lost == 16
