"""ACOS's servers at run time: when they drain, change and begin, on a clock that sleeps move."""

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from slept_clock import SleptClock

from lightrig.harness.systems.acos.planning import datacentre_plans
from lightrig.harness.systems.acos.runtime import training
from lightrig.harness.systems.acos.runtime.gates import Gatekeeper, Gates, RankGroup, TopologyChange
from lightrig.harness.systems.acos.runtime.training import RingTraining
from lightrig.instruments.clock import Span
from lightrig.testbeds import LightrigError, Link, Port

SECOND = 1_000_000_000
GROUPS = {"first": RankGroup((0, 1), "rows"), "other": RankGroup((0, 2), "columns")}


class Server:
    """A gatekeeper's server: bytes that wait by look, and whether all ports are lit."""

    def __init__(self) -> None:
        self.clock, self.waiting, self.is_lit = SleptClock(5 * SECOND), list[int](), True
        self.asked: list[Any] = []
        self.went: list[Any] = []
        self.met: list[int] = []
        selector: Any = SimpleNamespace(server="s0", select=self._select)
        rank: Any = SimpleNamespace(go=self._go)
        met: Any = SimpleNamespace(wait=lambda: self.met.append(self.clock.at))
        clock: Any = self.clock
        self.keeper = Gatekeeper(
            selector, rank, GROUPS, clock, met, self._unacknowledged, lambda: self.is_lit
        )

    def _unacknowledged(self) -> int:
        return self.waiting.pop(0) if self.waiting else 0

    def _go(self, number: int, refused: str | None) -> None:
        self.went.append((number, refused))
        self.keeper.ended(number)

    def _select(self, topology: str, number: int) -> tuple[Span, Span]:
        self.asked.append((topology, number))
        if topology == "columns" and number == 9:
            raise LightrigError("no link")
        self.clock.at += 100
        return Span(1, 2), Span(3, 4)

    def run(self, *groups: str, first: int = 0) -> None:
        """Let a rank run operations of these groups, to its end."""
        for number, group in enumerate(groups, first):
            operation: Any = SimpleNamespace(group=group)
            self.keeper.announce(number, operation)
        self.keeper.finish()
        self.keeper.work()


@pytest.fixture
def server() -> Server:
    return Server()


def test_light_stays_until_bytes_are_acknowledged(server: Server) -> None:
    """45 ms, and two looks 2 ms apart; the first topology is taken at once."""
    begin = server.clock.at
    server.waiting = [70, 30]
    server.run("first", "first", "other")
    idle = begin + 100
    drained = idle + 45_000_000 + 2 * 2_000_000
    assert server.keeper.changes == [
        TopologyChange("s0", 0, "rows", begin, begin, Span(1, 2), Span(3, 4), begin + 100),
        TopologyChange("s0", 2, "columns", idle, drained, Span(1, 2), Span(3, 4), drained + 100),
    ]
    assert server.asked == [("rows", 0), ("columns", 2)]
    assert server.went == [(0, None), (1, None), (2, None)]


def test_a_neighbour_that_has_left_is_not_waited_for(server: Server) -> None:
    server.waiting, server.is_lit = [70] * 5, False
    server.run("first", "other")
    assert server.clock.sleeps == [45_000_000]
    assert len(server.waiting) == 4


def test_bytes_that_are_never_acknowledged_are_an_error_after_20_seconds(server: Server) -> None:
    """Counted from the last operation's end; looked at anew every 2 ms."""
    server.waiting = [70] * 20_000
    begin = server.clock.at
    server.run("first", "other")
    says = (
        "s0 has 70 bytes that were not acknowledged 20 s after its last operation on rows, and "
        "would select columns: does the neighbour's rank run?"
    )
    assert server.went == [(0, None), (1, says)]
    idle = begin + 100
    assert idle + 20 * SECOND < server.clock.at <= idle + 20 * SECOND + 2_000_000
    assert [each.topology for each in server.keeper.changes] == ["rows"]


def test_operations_are_permitted_in_order_each_on_its_topology(server: Server) -> None:
    server.run("first", "first", "other", first=7)
    assert server.went == [(7, None), (8, None), (9, "no link")]
    held = 45_000_000
    assert server.met == [5 * SECOND, 5 * SECOND + 100, 5 * SECOND + 100]
    assert server.clock.at == 5 * SECOND + 100 + held
    assert [each.number for each in server.keeper.changes] == [7]


def test_no_light_moves_while_an_operation_runs() -> None:
    """The second one waits for the end of the first, which another thread reports."""
    server = Server()
    permitted = threading.Event()
    server.keeper = Gatekeeper(
        server.keeper.selector, SimpleNamespace(go=lambda *_: permitted.set()), GROUPS,  # type: ignore[arg-type]
        server.clock, SimpleNamespace(wait=lambda: None), lambda: 0, lambda: True,  # type: ignore[arg-type]
    )  # fmt: skip
    for number, group in enumerate(("first", "other")):
        operation: Any = SimpleNamespace(group=group)
        server.keeper.announce(number, operation)
    working = threading.Thread(target=server.keeper.work)
    working.start()
    assert permitted.wait(30)
    asked = list(server.asked)
    permitted.clear()
    server.keeper.ended(0)
    assert permitted.wait(30)
    server.keeper.finish()
    working.join(30)
    assert asked == [("rows", 0)]
    assert server.asked == [("rows", 0), ("columns", 1)]


def test_the_first_operations_wait_for_all_ranks() -> None:
    told: list[Any] = []
    keepers: Any = [
        SimpleNamespace(
            announce=lambda *given, rank=rank: told.append((rank, "wants", *given)),
            ended=lambda number, rank=rank: told.append((rank, "ended", number)),
        )
        for rank in range(3)
    ]
    waiting: Any = SimpleNamespace(set=lambda: told.append("all wait"))
    gates = Gates(keepers, waiting, SimpleNamespace())  # type: ignore[arg-type]
    operations: Any = ["a", "b", "c", "d"]
    for rank, number in ((1, 5), (1, 6), (0, 2), (2, 4)):
        gates.wants(rank, number, operations[rank])
    gates.ended(1, 5)
    assert told == [
        (1, "wants", 5, "b"), (1, "wants", 6, "b"), (0, "wants", 2, "a"), (2, "wants", 4, "c"),
        "all wait", (1, "ended", 5),
    ]  # fmt: skip


# ------------------------------------------------------------------------ on a fabric

SQUARE = {"rows": ((0, 1), (2, 3)), "columns": ((0, 2), (1, 3)), "both": ((0, 1), (1, 3), (3, 2))}
"""Servers that each plan joins, of four in two rows."""


class Overlay:
    """Addresses of four servers, and the ways of packets."""

    def __init__(self, bench: Any) -> None:
        names = [f"s{number}" for number in range(4)]
        self.servers = {
            name: SimpleNamespace(name=name, commands=name, lit=lambda netdevs: set(netdevs[1:]))
            for name in names
        }
        self.addresses = {name: f"10.0.0.{number}" for number, name in enumerate(names)}
        self.followed: list[Any] = []
        self.closed = False

    def route(self, links: Any) -> None:
        self.followed.append(("route", {str(link) for link in links}))

    def follow(self, hops: Any) -> None:
        found = {source: {sink: str(hop.port) for sink, hop in each.items()}
                 for source, each in hops.items()}  # fmt: skip
        self.followed.append(("follow", found))

    def close(self) -> None:
        self.closed = True


class Session:
    """Ranks that all announce an operation and end."""

    pytorch = "2"

    def __init__(self, clock: Any, servers: Any, devices: Any, address: str) -> None:
        self.opened = [server.name for server in servers], devices, address
        self.went: list[Any] = []
        self.ranks = [
            SimpleNamespace(go=lambda *given, rank=rank: self.went.append((rank, *given)))
            for rank in range(4)
        ]

    def run(
        self, script: Any, listener: Any, control: str, groups: Any, *, beside: Any = (),
        ended: Any = None, lost: Any = None,
    ) -> Any:  # fmt: skip
        self.ran = script, control, groups
        if beside:
            for rank in range(4):
                listener.wants(rank, 0, SimpleNamespace(group="row"))
                ended(rank)
            for task in beside:
                task()
        return SimpleNamespace(operations={}, printed={})

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def awaited(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many links each wait for packets was for."""
    counts: list[int] = []
    monkeypatch.setattr(training, "await_packets", lambda _, links: counts.append(len(links)))
    return counts


def square() -> tuple[Any, Any, list[Any]]:
    """Return a training of four servers in a square, its overlay, and what its fabric is asked."""
    asked: list[Any] = []
    clock: Any = SleptClock(7)
    clock.event = threading.Event

    def link(a: int, b: int, plan: str) -> Link:
        return Link(Port(f"s{a}", f"{plan}{b}"), Port(f"s{b}", f"{plan}{a}"))

    fabric: Any = SimpleNamespace(
        bench=SimpleNamespace(clock=clock), plans={name: name for name in SQUARE},
        testbed=SimpleNamespace(nic_ports=[]), apply=asked.append,
        links=lambda plan: [link(a, b, plan) for a, b in SQUARE[plan]],
    )  # fmt: skip
    overlay: Any = Overlay(None)
    session: Any = Session

    def selector(_: Any, server: str) -> Any:
        def select(topology: str, number: int) -> tuple[Span, Span]:
            asked.append((server, topology, number))
            return Span(1, 2), Span(3, 4)

        return SimpleNamespace(
            server=server, select=select, close=lambda: asked.append(("closed", server))
        )

    groups = {"row": RankGroup((0, 1), "rows"), "column": RankGroup((0, 2), "columns")}
    made = RingTraining(fabric, groups, lambda bench: overlay, session, selector)
    return made, overlay, asked


def test_packets_are_led_over_the_links_of_all_topologies_once_all_have_met(
    awaited: list[int],
) -> None:
    made, overlay, asked = square()
    script: Any = "script"
    trained = made.selecting(script)
    assert asked[0] == "both"
    # Ranks that connect over a link that is not up yet try again after seconds.
    assert awaited == [3]
    assert overlay.followed[0][0] == "route"
    assert len(overlay.followed[0][1]) == 3
    assert overlay.followed[1:] == [("follow", {
        "s0": {"s1": "s0.rows1", "s2": "s0.columns2"},
        "s1": {"s0": "s1.rows0", "s3": "s1.columns3"},
        "s2": {"s3": "s2.rows3", "s0": "s2.columns0"},
        "s3": {"s2": "s3.rows2", "s1": "s3.columns1"},
    })]  # fmt: skip
    assert asked[1:5] == [(f"s{rank}", "rows", 0) for rank in range(4)]
    assert asked[5:] == [("closed", f"s{rank}") for rank in range(4)]
    assert [change.server for change in trained.changes] == ["s0", "s1", "s2", "s3"]


def test_a_script_on_one_plan_moves_nothing() -> None:
    made, overlay, asked = square()
    script: Any = "script"
    assert made.on_one_plan(script).changes == ()
    assert asked == ["both"]
    assert len(overlay.followed) == 1
    made.close()
    assert overlay.closed


@pytest.mark.parametrize(
    ("after", "active", "size", "says"),
    [
        ([1, 2, 0, 4, 5, 3, 0], [1, 1, 1, 1, 1, 1, 0], 3, ""),
        ([1, 2, 0, 4, 5, 3, 0], [1, 1, 1, 1, 1, 1, 0], 2, "longer than 2"),
        ([1, 2, 0, 4, 5, 3, 0], [1, 1, 1, 1, 1, 1, 0], 6, "shorter than 6"),
        ([1, 2, 0, 4, 3, 3, 0], [1, 1, 1, 1, 1, 0, 0], 3, "shorter than 3"),
        ([1, 2, 6, 4, 5, 3, 0], [1, 1, 1, 1, 1, 1, 0], 3, "through a GPU without a task"),
        ([1, 2, -1, 4, 5, 3, 0], [1, 1, 1, 1, 1, 1, 0], 3, "or nowhere"),
    ],
)
def test_rings_have_their_size_and_gpus_with_tasks(
    after: list[int], active: list[int], size: int, says: str
) -> None:
    lanes = np.array([after, after]).T
    found = datacentre_plans.cycle_errors("TP", lanes, np.array(active, dtype=bool), size)
    assert [says in each for each in found] == ([True] if says else [])
    lanes[1, 1] = 5
    (found,) = datacentre_plans.cycle_errors("TP", lanes, np.array(active, dtype=bool), size)
    assert "lanes of one GPU end at several others" in found


def test_one_link_that_joins_unequal_ranks_is_an_error() -> None:
    rank, active = np.array([0, 1, 0, 1, 7]), np.array([1, 1, 1, 1, 0], dtype=bool)
    assert datacentre_plans.rank_errors("DP", np.array([2, 3, 0, 1, 4]), active, rank) == []
    for after in ([2, 3, 1, 1, 4], [2, -1, 0, 1, 4]):
        (found,) = datacentre_plans.rank_errors("DP", np.array(after), active, rank)
        assert found == "DP: shuffled, a link joins unequal ranks"


def test_diagonals_lead_around_the_places_left_out() -> None:
    """Of five places, 1 is left out here and 3 there: 2 and 3 lead a place back."""
    assert datacentre_plans.shift_links(5, 1, 3, -1) == [(0, 0, 0), (2, 1, 1), (3, 2, 1), (4, 4, 0)]
    assert datacentre_plans.shift_links(5, 1, 3, 1) == [(0, 1, 1), (2, 2, 0), (3, 4, 1), (4, 0, 1)]
    assert datacentre_plans.shift_links(3, 2, 2, 1) == [(0, 0, 0), (1, 1, 0)]
