"""Settlements on the bench's clock: stamps of two servers, mapped by hand."""

from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import LateDatagram
from lightrig.instruments.core.errors import ClockError, GarbledError
from lightrig.instruments.servers.host import linux
from lightrig.instruments.servers.host.linux import LinuxServer, PendingSettlement
from lightrig.instruments.servers.host.offset import ClockMap
from lightrig.instruments.servers.host.program import Program
from lightrig.instruments.wire.trace import Trace

THERE = "boot of there"


class Mapped:
    """A clock that is mapped to 100 ns less, 2 ns wide, or 50 ns less, 6 ns wide."""

    name = "server0"

    def __init__(self, less: int, half: int) -> None:
        self.less, self.half = less, half

    def span(self, earliest: int, latest: int) -> Span:
        return Span(earliest - self.less - self.half, latest - self.less + self.half)

    def here(self, stamp: int) -> Span:
        return self.span(stamp, stamp)


def settled(answer: dict[str, Any], *, gaps: bool = False, numbers: Any = None) -> Any:
    def garbled(what: str, request: Any, found: Any) -> Exception:
        assert found is answer
        return GarbledError("server0", what)

    request: Any = SimpleNamespace(
        result=lambda: answer, answered_there=900, run=SimpleNamespace(garbled=garbled)
    )
    ours: Any = Mapped(100, 1)
    neighbours: Any = {THERE: Mapped(50, 3)}
    return PendingSettlement(request, ours, neighbours, numbers or {}, gaps=gaps).result()


ANSWER = {
    "events": [
        ["p0", "carrier", False, 500, 510, "sysfs"],
        ["p0", "carrier", True, None, 530, "netlink"],
        ["p0", "datagram", True, 540, 560, "udp", [THERE, 505]],
        ["p1", "datagram", True, 540, 560, "udp", [THERE, 400]],
        ["p1", "datagram", True, 540, 560, "udp", ["elsewhere", 505]],
        ["p1", "datagram", False, 600, 610, "udp", [7, THERE, 33, 580]],
        ["p1", "datagram", False, 600, 610, "udp", [7, "elsewhere", 33, 580]],
    ],
    "missing": [["p0", "firmware"]],
    "gaps": [["p0", [7, THERE, 3, 300], [7, THERE, 6, 340], 650, True],
             ["p0", [7, "elsewhere", 3, 300], [7, THERE, 6, 340], 650, True],
             ["p0", [7, THERE, 3, 300], [7, "elsewhere", 6, 340], 650, True]],
    "datagrams": {"p0": {"sent": 12, "received": 9, "idle": 1}},
    "departures": {"p0": [700, None]},
    "clock": {"synchronised": True, "frequency_ppm": "-2.5", "estimated_error_ns": 12,
              "maximum_error_ns": 3400},
}  # fmt: skip


def test_events_are_mapped_and_tightened_by_lost_datagrams() -> None:
    found = settled(ANSWER)
    assert [(each.at, each.up, each.source) for each in found.events] == [
        (Span(399, 411), False, "sysfs"),
        # Lost when it was sent at 505 there, 452 at the earliest.
        (Span(452, 461), True, "udp"),
        (Span(439, 461), True, "udp"),
        (Span(439, 461), True, "udp"),
        (Span(499, 511), False, "udp"),
        (Span(499, 511), False, "udp"),
    ]
    assert [each.at for each in found.cross_checks] == [Span(429, 431)]
    last, unknown = found.events[4].last, found.events[5].last
    assert (last.stream, last.number, last.sent) == (7, 33, Span(527, 533))
    assert unknown is None
    assert found.missing == (("p0", "firmware"),)
    assert found.datagrams == {"p0": (12, 9)}
    assert found.answered() == Span(799, 801)
    assert (found.gaps, found.departures) == ((), {})
    assert (found.clock.synchronised, found.clock.frequency_ppm) == (True, -2.5)
    assert settled({"events": [], "missing": []}).clock is None


def test_gaps_and_departures_are_those_asked_for() -> None:
    found = settled(ANSWER, gaps=True, numbers={"p0": [4, 5]})
    (gap,) = found.gaps
    assert tuple(gap) == (
        "p0", 7, 3, Span(247, 253), 7, 6, Span(287, 293), Span(549, 551), True, 0,
    )  # fmt: skip
    assert (found.late, found.heard) == ((), {"p0": {}})
    assert found.departures == {"p0": [Span(599, 601), None]}
    with pytest.raises(GarbledError, match="no settlement of links"):
        settled(ANSWER, numbers={"p0": [4]})
    with pytest.raises(GarbledError):
        settled({**ANSWER, "clock": {**ANSWER["clock"], "synchronised": 1}})  # type: ignore[dict-item]


def test_what_is_long_on_its_way_and_what_came_late_is_told() -> None:
    """The slowest left at 300 there, 250 here, and came at 20 ms here; 1 ms is no long way."""
    (gap, *_) = ANSWER["gaps"]
    ways = [[*gap, [300, 20_000_000]], [*gap, [300, 1_000_300]], [*gap, [300, 1_000_400]]]
    answer = {**ANSWER, "gaps": ways, "late": [["p0", 7, 5, 2]]}
    answer["datagrams"] = {"p0": {"sent": 12, "received": 9, "idle": 1, "heard": {"7": 8}}}
    found = settled(answer, gaps=True)
    # From 247 ... 253 to 19,999,899 ... 19,999,901 here.
    assert [gap.transit for gap in found.gaps] == [19_999_654, 0, 1_000_054]
    assert found.late == (LateDatagram("p0", 7, 5, 2),)
    assert found.heard == {"p0": {7: 8}}


@pytest.mark.parametrize(
    ("earliest", "latest", "steps"),
    [(100, 539, False), (100, 540, True), (650, 700, True), (651, 700, False)],
)
def test_a_step_matters_between_the_first_and_the_last_datagram(
    earliest: int, latest: int, steps: bool
) -> None:
    """Datagrams were stamped from 540 to 650; the carrier at 500 has no such stamp."""
    answer = {**ANSWER, "steps": [["p0", "CLOCK_REALTIME", earliest, latest, 2_000_000, 5_000_000]]}
    assert settled(answer).events
    if not steps:
        assert settled(answer, gaps=True).events
        return
    with pytest.raises(ClockError) as says:
        settled(answer, gaps=True)
    assert "stamps datagrams to p0 by CLOCK_REALTIME, which jumped ahead by 2 to 5 ms" in str(
        says.value
    )


class Probed(LinuxServer):
    """A server whose probe gives `answers`, and notes what it is asked."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers, self.submitted = list(answers), list[Any]()
        self.closed: list[str] = []
        self.stamps = (1000, 5300, 5400, 1500)
        shell: Any = SimpleNamespace(close=lambda: self.closed.append("shell"))
        clock: Any = SimpleNamespace(now=lambda: 5)
        neighbours: Any = {THERE: Mapped(50, 3)}
        super().__init__("server0", shell, clock, neighbours)

    def start(self, program: Program, trace: Trace, clocks: ClockMap, on_event: Any = None) -> Any:
        assert program is linux.PROBE

        def submit(verb: str, body: Any, duration: int = 0) -> Any:
            self.submitted.append((verb, body, duration))
            clocks.exchanged(*self.stamps)
            return SimpleNamespace(
                result=lambda: self.answers.pop(0), text=verb, run=None, answered_there=5400
            )

        return SimpleNamespace(submit=submit, over=False, close=lambda: self.closed.append("probe"))


def test_a_watch_is_of_ports_and_their_rdma_devices() -> None:
    state = {"p0": {"carrier": True, "firmware": False}, "p1": {"carrier": None, "firmware": True}}
    answer = {"state": state, "tokens": {"p0": 41, "p1": 42}}
    ports = {"p0": {"carrier": True}, "p1": {"carrier": None}, "p2": {"carrier": True}}
    made = Probed(answer, answer, {}, ports)
    watched = [linux.PortWatch("p0", "mlx5_0"), linux.PortWatch("p1")]
    up = made.watch(watched, period=50, datagram_period=700)
    assert up == {("p0", "carrier"), ("p1", "firmware")}
    assert made.streams() == {41: "p0", 42: "p1"}
    body = {"ports": {"p0": {"rdma": "mlx5_0"}, "p1": {"rdma": None}}, "period_ns": 50}
    datagrams = {"udp_port": 47_000, "period_ns": 700}
    assert made.submitted[0] == ("watch", {**body, "datagrams": datagrams}, 0)
    made.watch(watched, period=50, datagram_period=None)
    assert made.submitted[1][1]["datagrams"] is None
    made.unwatch()
    assert made.streams() == {}
    assert made.lit(["p0", "p1", "p3"]) == {"p0"}
    assert made.submitted[2:] == [("unwatch", {}, 0), ("ports", {}, 0)]


def test_settling_sends_numbers_where_there_are_any() -> None:
    """And gaps are told where they were asked for."""
    gap = ["p0", [7, THERE, 3, 300], [7, THERE, 6, 340], 5320, True]
    answer = {"events": [], "missing": [], "gaps": [gap], "departures": {"p0": [5310, None]}}
    made = Probed(answer, answer)
    plain = made.settle({"p0": ("carrier",)}, timeout=90).result()
    assert (plain.departures, plain.gaps) == ({}, ())
    pending = made.settle(
        {"p0": ("carrier", "firmware")}, timeout=90, gaps=True, departures={"p0": (4, 5)}
    )
    assert made.submitted == [
        ("settle", {"ports": {"p0": ["carrier"]}, "timeout_ns": 90}, 90),
        ("settle", {"ports": {"p0": ["carrier", "firmware"]}, "timeout_ns": 90,
                    "numbers": {"p0": [4, 5]}}, 90),
    ]  # fmt: skip
    found = pending.result()
    assert [each[1:7] for each in found.gaps] == [(7, 3, Span(247, 253), 7, 6, Span(287, 293))]
    ((left, missing),) = found.departures.values()
    # Ahead by 3900 to 4300 ns, and a nanosecond for rounding on either side.
    assert left.earliest <= 5310 - 4300 <= 5310 - 3900 <= left.latest
    assert missing is None


def test_an_offset_is_bounded_by_request_and_reply() -> None:
    # Ahead by 5400 - 1500 at least and by 5300 - 1000 at most.
    assert Probed({}).clock_offset() == (Span(3900, 4300), 1500)


def test_closing_ends_the_probe_and_the_connection() -> None:
    made = Probed({})
    made.close()
    assert made.closed == ["shell"]
    made.clock_offset()
    made.close()
    made.close()
    assert made.closed == ["shell", "probe", "shell", "shell"]
