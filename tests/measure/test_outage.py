"""Outage of a link direction, from numbers and stamps, against the ground truth."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.loss_windows import LossWindow, loss_windows
from lightrig.harness.measure.outage import measure_outage
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import Gap, LateDatagram
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.testbeds import Port, load

MS = 1_000_000
A, B, C = (Port(f"server{n}", "nic0") for n in range(3))


class Seen:
    """An observation of links that was made up."""

    def __init__(
        self,
        gaps: Sequence[tuple[Port, Gap]],
        left: Mapping[tuple[Port, int], Span],
        late: Sequence[tuple[Port, Gap]] = (),
        overtaken: Sequence[tuple[Port, LateDatagram]] = (),
    ):
        self._gaps, self._left, self._late = list(gaps), left, list(late)
        self._overtaken, self.late = overtaken, list(overtaken[:1])
        self.asked: list[Mapping[Port, Sequence[int]]] = []

    @property
    def gaps(self) -> list[tuple[Port, Gap]]:
        return [*self._gaps, *(self._late if self.asked else ())]

    def senders(self) -> dict[int, Port]:
        return {1: A, 2: B}

    received: Mapping[Any, int] = {}

    def await_late(self) -> None:
        """What overtook numbers had come before they did; those of later gaps come later."""
        if self.asked:
            self.late = list(self._overtaken)

    def departures(self, wanted: Mapping[Port, Sequence[int]]) -> dict[tuple[Port, int], Span]:
        self.asked.append(wanted)
        return {key: at for key, at in self._left.items() if key[1] in wanted.get(key[0], ())}


def at(ms: float) -> Span:
    return Span(round(ms * MS), round(ms * MS) + 1_000)


def gap(first: int, received: float, stream: int = 1, last: int = 10, sent: float = 9) -> Gap:
    return Gap("fabric0", 1, last, at(sent), stream, first, at(received - 1), at(received))


def windows(*gaps: Gap, since: float = 0, left: float | None = 10) -> list[LossWindow]:
    known = {} if left is None else {(A, 11): at(left)}
    links: Any = Seen([(C, each) for each in gaps], known)
    return loss_windows(links, round(since * MS))


def test_a_window_lies_between_the_stamps_on_either_side() -> None:
    (window,) = windows(gap(31, 30))
    assert (window.receiver, window.before, window.after) == (C, A, A)
    assert (window.last, window.first, window.lost) == (10, 31, 20)
    assert window.began == Span(9 * MS, 10 * MS + 1_000)
    assert window.ended == Span(29 * MS, 30 * MS + 1_000)
    assert window.length == Span(19 * MS - 1_000, 21 * MS + 1_000)
    assert window.direction == "server0.nic0 > server2.nic0"


def test_a_gap_that_the_closing_question_brings_has_its_send_time_too() -> None:
    left = {(A, 11): at(10), (A, 41): at(40)}
    early, late = gap(31, 30), gap(91, 90, last=40, sent=39)
    links: Any = Seen([(C, early)], left)
    assert loss_windows(links, 0) == windows(early)
    assert links.asked == [{A: [11]}]
    links = Seen([(C, early)], left, [(C, late)])
    (window,) = loss_windows(links, 0)
    assert window.began == Span(39 * MS, 40 * MS + 1_000)
    assert links.asked == [{A: [11]}, {A: [41]}]


def test_a_number_that_comes_late_after_the_closing_question_makes_no_interruption() -> None:
    """9 to 30 ms are the outage. 41 is overtaken by 42 while its receiver pauses for 500 ms."""
    early, paused = gap(31, 30), gap(42, 540, last=40, sent=39)
    late = [(C, LateDatagram("fabric0", 1, number, 1)) for number in (5, 41)]
    links: Any = Seen([(C, early)], {(A, 11): at(10), (A, 41): at(40)}, [(C, paused)], late)
    assert loss_windows(links, 0) == windows(early)


def test_losses_are_not_counted_across_a_change_of_sender() -> None:
    (window,) = windows(gap(3, 30, stream=2))
    assert window.lost is None
    assert window.direction == "server0.nic0 > server2.nic0 < server1.nic0"


def test_an_unknown_send_time_leaves_the_start_open() -> None:
    (window,) = windows(gap(31, 30), left=None)
    assert window.began == Span(9 * MS, 30 * MS + 1_000)
    assert window.length.earliest == 0


def test_the_longest_gap_of_a_port_is_its_outage() -> None:
    short = gap(13, 12.5)
    assert [w.first for w in windows(short, gap(31, 30), since=6)] == [31]
    assert [w.first for w in windows(gap(31, 30), short, since=6)] == [31]


def test_of_two_that_may_be_the_longest_the_bounds_hold_both() -> None:
    """21 ms lost from 9 ms on, or 20.5 ms from 39.5 ms on: each is uncertain by 2 ms."""
    left = {(A, 11): at(10), (A, 41): at(40.5)}
    brief, rivals = gap(4, 5, last=1, sent=2), (gap(31, 30), gap(91, 60, last=40, sent=39.5))
    links: Any = Seen([(C, each) for each in (brief, *rivals)], left)
    (window,) = loss_windows(links, 0)
    assert (window.began.earliest, window.began.latest) == (9 * MS, 40.5 * MS + 1_000)
    assert (window.ended.earliest, window.ended.latest) == (29 * MS, 60 * MS + 1_000)
    assert window.length == Span(19 * MS - 1_000, 21 * MS + 1_000)


def test_a_gap_that_began_before_the_command_is_none_of_it() -> None:
    """The port was dark, or lost something of its own."""
    assert windows(gap(31, 30), since=11) == []
    assert windows(gap(12, 5, sent=0), since=6) == []
    assert len(windows(gap(31, 30), since=9.5)) == 1


def test_a_full_buffer_leaves_open_when_the_link_was_lost() -> None:
    (window,) = windows(gap(31, 30)._replace(backlog=True))
    assert window.began == window.ended == Span(9 * MS, 30 * MS + 1_000)
    assert window.length.earliest <= 0


def of_b(first: int, received: float, last: int, sent: float) -> Gap:
    """Return a gap amid what B sends."""
    return gap(first, received, stream=2, last=last, sent=sent)._replace(last_stream=2)


@pytest.mark.parametrize("known", [False, True])
def test_a_buffer_that_is_full_later_hides_no_change_of_sender(known: bool) -> None:
    """B is heard 21 ms after A was, and 8 s later the receiver drops what it cannot take."""
    change = gap(3, 30, stream=2)._replace(backlog=known)
    full = of_b(80, 8300, last=40, sent=8000)._replace(backlog=True)
    for gaps in ((change, full), (full, change)):
        (window,) = windows(*gaps, left=10 if known else None)
        assert (window.before, window.after) == (A, B)
        assert window.ended.latest == 30 * MS + 1_000


def test_a_change_of_sender_with_a_full_buffer_may_be_the_longest() -> None:
    """At most 21 ms of it may be the link's; B's own loss takes 8.5 to 10 ms."""
    change = gap(3, 30, stream=2)._replace(backlog=True)
    links: Any = Seen([(C, change), (C, of_b(50, 70, last=40, sent=60))], {(B, 41): at(60.5)})
    (window,) = loss_windows(links, 0)
    assert (window.began.earliest, window.ended.latest) == (9 * MS, 70 * MS + 1_000)
    assert window.length == Span(8.5 * MS - 1_000, 21 * MS + 1_000)


def test_datagrams_from_elsewhere_are_no_outage() -> None:
    assert windows(gap(31, 30, stream=7)) == []


# --------------------------------------------------------------------- on whole benches


@pytest.fixture
def measured() -> Iterator[Any]:
    with contextlib.ExitStack() as stack:

        def start(testbed: str) -> tuple[Fabric, LinkObservation, list[Row]]:
            bench = bind(load(f"testbeds/{testbed}.yaml"), "simulated", 1)
            stack.callback(bench.close)
            links, rows = LinkObservation(bench), list[Row]()
            stack.callback(links.pause)
            return Fabric(bench), links, rows

        yield start


def of(rows: list[Row], quantity: str) -> list[Row]:
    return [row for row in rows if row.quantity == quantity]


def between(bench: Bench) -> tuple[Any, Any]:
    first, second = list(bench.testbed.plans.values())[:2]
    return first, second


@pytest.mark.parametrize("period", [MS, MS // 5])
def test_on_simulated_servers_every_window_holds_the_true_outage(
    measured: Any, period: int
) -> None:
    fabric, links, rows = measured("opus")
    bench, recording = fabric.bench, Recording(rows.extend)
    before, after = between(bench)
    bring_up(fabric, links, before)
    for plan in (after, before):
        found = measure_outage(fabric, links, recording, plan, datagram_period=period)
        assert len(found) == 2 * len(bench.testbed.links(plan))
    assert {row.value for row in of(rows, "closure.outage_packets")} == {1}
    # A period at either end, and what is not known of four clocks.
    widths = [row.upper - row.lower for row in of(rows, "outage.packets")]
    assert max(widths) < 2 * period + 2 * MS
    assert max(row.value for row in of(rows, "harness.outage_error")) < period + 2 * MS
    assert {row.conditions["datagram_period_ns"] for row in of(rows, "outage.packets")} == {period}


@pytest.mark.long
def test_in_namespaces_windows_surround_the_carriers_fall(measured: Any) -> None:
    if reason := kernel.available():
        pytest.skip(reason)
    fabric, links, rows = measured("namespaces")
    bench, recording = fabric.bench, Recording(rows.extend, fabric.testbed.limits)
    before, after = between(bench)
    bring_up(fabric, links, before)
    found = measure_outage(fabric, links, recording, after)
    lost = set(bench.testbed.links(after)) - set(bench.testbed.links(before))
    assert {window.receiver for window in found} == {p for link in lost for p in (link.a, link.b)}
    assert len(bench.testbed.links(after)) == 4
    truth = bench.truth
    assert truth is not None
    for window in found:
        assert window.length.latest > 10 * MS
        assert window.length.earliest < 5_000 * MS
        falls = [
            truth.first(str(port), "carrier", up=False, since=window.began.earliest - 50 * MS)
            for port in (window.receiver, window.before)
        ]
        first = min(fall for fall in falls if fall is not None)
        assert first.latest >= window.began.earliest
        assert first.earliest <= window.began.latest + 5 * MS
    assert of(rows, "outage.packets")
    recording.judge("outage")
