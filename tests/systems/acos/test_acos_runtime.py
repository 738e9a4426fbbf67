"""ACOS's servers at run time: when they drain, change and begin, on a clock that sleeps move."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from slept_clock import SleptClock

from lightrig.harness.systems.acos.planning import datacentre_plans
from lightrig.harness.systems.acos.runtime import training
from lightrig.harness.systems.acos.runtime.training import Change, DrainError, Group
from lightrig.instruments.clock import Span
from lightrig.testbeds import LightrigError

SECOND = 1_000_000_000
GROUPS = {"first": Group((0, 1), "rows"), "other": Group((0, 2), "columns")}


class Server:
    """A gatekeeper's server: bytes that wait by look, and the ports that are lit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock, self.waiting, self.lit = SleptClock(5 * SECOND), list[int](), ["a", "b"]
        self.asked: list[Any] = []
        self.went: list[Any] = []
        made: Any = object.__new__(training._Gatekeeper)
        fabric = SimpleNamespace(
            bench=SimpleNamespace(clock=self.clock),
            testbed=SimpleNamespace(nic_ports=[
                SimpleNamespace(netdev=netdev, port=SimpleNamespace(owner=owner))
                for owner, netdev in (("s0", "a"), ("s1", "c"), ("s0", "b"))
            ]),
        )  # fmt: skip
        self.met: list[int] = []
        server = SimpleNamespace(name="s0", commands="commands", lit=self._lit)
        selector = SimpleNamespace(select=self._select)
        monkeypatch.setattr(training, "TopologySelector", lambda *given: given and selector)
        monkeypatch.setattr(training, "unacknowledged", self._unacknowledged)
        rank = SimpleNamespace(go=lambda *given: self.went.append(given))
        met = SimpleNamespace(wait=lambda: self.met.append(self.clock.at))
        made.__init__(SimpleNamespace(fabric=fabric, groups=GROUPS), rank, server, "10.0.0.1", met)
        self.keeper = made

    def _lit(self, netdevs: list[str]) -> list[str]:
        assert netdevs == ["a", "b"]
        return self.lit

    def _unacknowledged(self, commands: str, addresses: list[str]) -> int:
        assert (commands, addresses) == ("commands", ["10.0.0.1"])
        return self.waiting.pop(0) if self.waiting else 0

    def _select(self, topology: str, number: int) -> tuple[Span, Span]:
        self.asked.append((topology, number))
        if topology == "columns" and number == 9:
            raise LightrigError("no link")
        self.clock.at += 100
        return Span(1, 2), Span(3, 4)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return Server(monkeypatch)


def test_light_stays_until_bytes_are_acknowledged(server: Server) -> None:
    """45 ms, and two looks 2 ms apart; the first topology is taken at once."""
    begin = server.clock.at
    server.keeper._change("rows", 0)
    server.keeper._change("rows", 1)
    server.waiting = [70, 30]
    server.keeper._change("columns", 2)
    idle = begin + 100
    drained = idle + 45_000_000 + 2 * 2_000_000
    assert server.keeper.changes == [
        Change("s0", 0, "rows", begin, begin, Span(1, 2), Span(3, 4), begin + 100),
        Change("s0", 2, "columns", idle, drained, Span(1, 2), Span(3, 4), drained + 100),
    ]
    assert server.asked == [("rows", 0), ("columns", 2)]


def test_a_neighbour_that_has_left_is_not_waited_for(server: Server) -> None:
    server.keeper._present = "rows"
    server.waiting, server.lit = [70] * 5, ["a"]
    begin = server.clock.at
    server.keeper._drain(begin, "columns")
    assert server.clock.at == begin
    assert len(server.waiting) == 4


def test_bytes_that_are_never_acknowledged_are_an_error_after_20_seconds(server: Server) -> None:
    server.keeper._present = "rows"
    server.waiting = [70] * 20_000
    begin = server.clock.at
    says = "s0 has 70 bytes that were not acknowledged 20 s after its last operation on rows"
    with pytest.raises(DrainError, match=says):
        server.keeper._drain(begin, "columns")
    assert server.clock.at == begin + 20 * SECOND + 2_000_000


def test_operations_are_permitted_in_order_each_on_its_topology(server: Server) -> None:
    keeper = server.keeper
    keeper.announce(7, SimpleNamespace(group="first"))
    keeper.announce(9, SimpleNamespace(group="other"))
    keeper._rank = SimpleNamespace(
        go=lambda number, refused: (server.went.append((number, refused)), keeper.ended(number))
    )
    keeper.finish()
    keeper.work()
    assert server.went == [(7, None), (9, "no link")]
    assert server.met == [5 * SECOND, 5 * SECOND + 100]
    assert [each.number for each in keeper.changes] == [7]


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
    gates = training._Gates(keepers, waiting, SimpleNamespace())  # type: ignore[arg-type]
    operations: Any = ["a", "b", "c", "d"]
    for rank, number in ((1, 5), (1, 6), (0, 2), (2, 4)):
        gates.wants(rank, number, operations[rank])
    gates.ended(1, 5)
    assert told == [
        (1, "wants", 5, "b"), (1, "wants", 6, "b"), (0, "wants", 2, "a"), (2, "wants", 4, "c"),
        "all wait", (1, "ended", 5),
    ]  # fmt: skip


def test_packets_are_led_over_the_links_of_all_topologies(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Any = object.__new__(training.RingTraining)
    followed: list[Any] = []
    made._overlay = SimpleNamespace(
        servers={"s0": 0, "s1": 0}, follow=followed.append, route=followed.append
    )
    applied: list[str] = []
    made.fabric = SimpleNamespace(
        plans={"rows": "plan of rows", "columns": "plan of columns", "both": "meeting"},
        links=lambda plan: f"links of {plan}",
        apply=applied.append,
    )
    made.groups = GROUPS
    routes = {
        "links of plan of rows": {"s0": {"s1": "by a"}, "s1": {"s0": "by b"}},
        "links of plan of columns": {"s0": {"s2": "by c"}},
    }

    def shortest(servers: list[str], links: str) -> Any:
        assert servers == ["s0", "s1"]
        return routes[links]

    monkeypatch.setattr(training, "shortest_routes", shortest)
    made._lead_apart()
    assert followed == [{"s0": {"s1": "by a", "s2": "by c"}, "s1": {"s0": "by b"}}]
    made._meet()
    assert (applied, followed[1:]) == (["meeting"], ["links of meeting"])


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
    found = datacentre_plans._cycle_errors("TP", lanes, np.array(active, dtype=bool), size)
    assert [says in each for each in found] == ([True] if says else [])
    lanes[1, 1] = 5
    (found,) = datacentre_plans._cycle_errors("TP", lanes, np.array(active, dtype=bool), size)
    assert "lanes of one GPU end at several others" in found


def test_one_link_that_joins_unequal_ranks_is_an_error() -> None:
    rank, active = np.array([0, 1, 0, 1, 7]), np.array([1, 1, 1, 1, 0], dtype=bool)
    assert datacentre_plans._rank_errors("DP", np.array([2, 3, 0, 1, 4]), active, rank) == []
    for after in ([2, 3, 1, 1, 4], [2, -1, 0, 1, 4]):
        (found,) = datacentre_plans._rank_errors("DP", np.array(after), active, rank)
        assert found == "DP: shuffled, a link joins unequal ranks"


def test_diagonals_lead_around_the_places_left_out() -> None:
    """Of five places, 1 is left out here and 3 there: 2 and 3 lead a place back."""
    assert datacentre_plans.shift_links(5, 1, 3, -1) == [(0, 0, 0), (2, 1, 1), (3, 2, 1), (4, 4, 0)]
    assert datacentre_plans.shift_links(5, 1, 3, 1) == [(0, 1, 1), (2, 2, 0), (3, 4, 1), (4, 0, 1)]
    assert datacentre_plans.shift_links(3, 2, 2, 1) == [(0, 0, 0), (1, 1, 0)]
