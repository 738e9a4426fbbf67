"""MixNet's controller and lanes at run time, with servers that note what they are asked."""

import concurrent.futures
import contextlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lightrig.harness.systems.mixnet.planning.control import DueChange, Permitted
from lightrig.harness.systems.mixnet.planning.demand import Placement
from lightrig.harness.systems.mixnet.planning.region import Failures, Region, RegionServer
from lightrig.harness.systems.mixnet.runtime import exchanges, lane_exchange, training
from lightrig.harness.systems.mixnet.runtime.exchanges import TCP, Exchanges
from lightrig.harness.systems.mixnet.runtime.training import (
    CircuitChange,
    ExpertTraining,
    NewCircuits,
    TrainedExperts,
)
from lightrig.instruments.clock import Span
from lightrig.instruments.servers.host.commands import ToolFailedError
from lightrig.testbeds import Circuit, Plan, Port

TRAFFIC = np.array([[5, 20, 3], [7, 6, 0], [1, 30, 8]])
OF_FOUR = np.array([[1, 9, 5, 2], [4, 0, 6, 3], [7, 1, 2, 8], [0, 5, 4, 6]])


def test_steps_end_with_the_last_rank_s_loss() -> None:
    """Steps 8 to 10: ended at 130, 260 and 330 by the middles of the later of two stamps."""
    printed = {
        1: [
            (Span(100, 120), "step 8 loss 3.0"), (Span(250, 270), "step 9 loss 2.5"),
            (Span(300, 310), "step 10 loss 2.0"), (Span(900, 900), "done"),
        ],
        0: [
            (Span(120, 140), "step 8 loss 3.1"), (Span(200, 204), "step 9 loss 2.6"),
            (Span(320, 340), "step 10 loss 2.1"),
        ],
    }  # fmt: skip
    trained = TrainedExperts(printed, (), (), ())
    assert trained.step_times() == [130, 70]
    assert trained.losses() == [
        (0, "step 8 loss 3.1"), (0, "step 9 loss 2.6"), (0, "step 10 loss 2.1"),
        (1, "step 8 loss 3.0"), (1, "step 9 loss 2.5"), (1, "step 10 loss 2.0"),
    ]  # fmt: skip


class Controlled:
    """A training of three ranks: notes what ranks are told, and how circuits are changed."""

    def __init__(self) -> None:
        self.at, self.told, self.brought = 1000, list[tuple[int, Any]](), list[Any]()
        self.clock = SimpleNamespace(now=lambda: self.at)
        self.placement = Placement((0, 0, 1), 2)
        self.lane_devices = ["x", "y"]
        ranks = [
            SimpleNamespace(tell=lambda what, rank=rank: self.told.append((rank, what)))
            for rank in range(3)
        ]
        self.session = SimpleNamespace(ranks=ranks)
        self.planned = Plan("planned", {})

    def shares(self, routing: Any, rows: Any) -> Any:
        assert routing == "first routing"
        return np.array([rows // 2, rows * 0, rows - rows // 2]), 0.25

    def predicted(self, plan: Plan, routing: Any, lanes: Any, size: int) -> float:
        assert (plan.name, routing) == ("before", "first routing")
        return float(lanes.sum() * size)

    def plan_for(self, due: DueChange, present: Plan) -> Plan:
        assert present.name in ("before", "planned")
        self.at += 2
        return self.planned

    def bring_in(self, plan: Plan, present: Plan | None) -> NewCircuits:
        self.brought.append((plan.name, present and present.name))
        self.at += 40
        routing: Any = "next routing"
        return NewCircuits(routing, 4, 1003, 1010, 1021, 1040)


class Control:
    """Permits and changes what it is told to, and notes what it hears."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.next: DueChange | None = None
        self.ready: list[Permitted] = []
        self.predictions = ()

    def wants(self, rank: int, given: list[int]) -> None:
        self.heard.append(("wants", rank, given))

    def ended(self, rank: int) -> None:
        self.heard.append(("ended", rank))

    def due(self) -> DueChange | None:
        return self.next

    def changed(self) -> None:
        self.heard.append("changed")
        self.next = None

    def permitted(self) -> list[Permitted]:
        ready, self.ready = self.ready, []
        return ready


@pytest.fixture
def run() -> Any:
    made: Any = object.__new__(training._Run)
    before = Plan("before", {"ocs": frozenset({Circuit(1, 2)})})
    controlled: Any = Controlled()
    training._Run.__init__(made, controlled, None, 2, before, None)  # type: ignore[arg-type]
    made._control, made._routing = Control(), "first routing"
    return made


def test_wants_are_noted_with_their_moment_and_the_size_of_a_row(run: Any) -> None:
    run._take(2, {"wants": [7, 8, 9], "size": 16}, 60)
    assert run._control.heard == [("wants", 2, [7, 8, 9])]
    assert (run._asked, run._sizes) == ({2: 60}, {2: 16})


def test_a_rank_receives_its_rows_and_columns_of_each_lane_in_use(run: Any) -> None:
    run._asked[1] = 970
    run._permit(Permitted(1, 4, 3, "dispatch", TRAFFIC))
    assert run._training.told == [(1, {"lanes": [
        [0, [3, 3, 0], [10, 3, 15]],
        [2, [4, 3, 0], [10, 3, 15]],
    ]})]  # fmt: skip
    begun = run._running[1]
    assert (begun.one.step, begun.wanted, begun.permitted, begun.ended) == (4, 970, 1000, 0)


def test_an_exchange_lasts_from_the_last_begin_to_the_last_end(run: Any) -> None:
    for rank, asked in ((0, 900), (1, 990), (2, 930)):
        run._asked[rank], run._sizes[rank] = asked, 16
        run._training.at += 3
        run._permit(Permitted(rank, 4, 3, "dispatch", TRAFFIC))
    # An exchange of another phase, which has ended, does not count.
    combine = Permitted(0, 4, 3, "combine", TRAFFIC)
    run._running[7] = training._Begun(combine, 9990, 9991, 9992, 9993)
    for rank, began, over in ((2, 1510, 1590), (0, 1500, 1620)):
        run._take(rank, {"began": began, "over": over}, 0)
        assert run._finished == []
    run._take(1, {"began": 1530, "over": 1600}, 0)
    (found,) = map(run._described, run._finished)
    assert (found.step, found.layer, found.phase) == (4, 3, "dispatch")
    assert (found.wanted, found.permitted, found.began, found.ended) == (990, 1009, 1530, 1620)
    assert (found.waited, found.optical) == (540, 0.25)
    assert found.traffic.tolist() == [[80, 320, 48], [112, 96, 0], [16, 480, 128]]
    assert (found.predicted, found.plan.name) == (80 * 16, "before")
    assert run._control.heard == [("ended", 2), ("ended", 0), ("ended", 1)]


def test_circuits_change_where_the_plan_differs(run: Any) -> None:
    place: Any = (5, 1, "dispatch", "gate")
    due = DueChange(*place, TRAFFIC)
    run._training.planned = Plan("same", dict(run._plan.circuits))
    run._change(due)
    assert run._training.brought == []
    run._training.planned = Plan("planned", {"ocs": frozenset({Circuit(1, 3)})})
    run._change(due)
    assert run._training.brought == [("planned", "before")]
    assert (run._plan.name, run._routing) == ("planned", "next routing")
    assert run._changes == [
        CircuitChange(*place, 0, 1000, *[1002] * 5),
        CircuitChange(*place, 4, 1002, 1004, 1003, 1010, 1021, 1040),
    ]
    assert run._control.heard == ["changed", "changed"]


def test_the_controller_goes_on_once_it_has_heard_all(run: Any) -> None:
    """Two messages are taken, circuits change, ranks are permitted, then Copilot learns."""
    order: list[str] = []
    run._control.learn = lambda: order.append("learn")
    run._take = lambda rank, message, at: order.append(f"{message} of {rank} at {at}")
    run._change = lambda due: order.append("change") or run._control.changed()

    def permit(one: Any) -> None:
        order.append(f"permit {one}")
        if one == 6:
            run._messages.put((1, None, 0))

    run._permit = permit
    run._control.next, run._control.ready = "due", [4, 6]
    for message in ((1, "a", 7), (0, None, 0), (2, "b", 8)):
        run._messages.put(message)
    run._loop(2)
    assert order == ["a of 1 at 7", "b of 2 at 8", "change", "permit 4", "permit 6", "learn"]


# --------------------------------------------------------------------------------- lanes


class Hops:
    """Ways between three servers: 0 to 1 over circuits, all else over packets."""

    def route(self, a: int, b: int) -> Any:
        media = {(0, 1): ["optical", "optical"], (2, 1): ["optical", "packet"]}
        return [SimpleNamespace(medium=each) for each in media.get((a, b), ["packet"])]


def test_the_optical_share_is_of_what_goes_between_servers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: Any = object.__new__(ExpertTraining)
    made._testbed = SimpleNamespace(servers={"s0": 0, "s1": 0, "s2": 0})
    made.placement, made._width = Placement((0, 0, 1, 2), 3), 2
    asked: list[Any] = []
    monkeypatch.setattr(
        training, "lane_shares", lambda *given: asked.append(given) or ((1, 2), (3, 4))
    )
    routing: Any = Hops()
    lanes, optical = made.shares(routing, OF_FOUR)
    assert lanes.tolist() == [[1, 2], [3, 4]]
    assert asked[0][0] is routing
    assert (asked[0][1], asked[0][3]) == (["s0", "s0", "s1", "s2"], 2)
    # Between servers 5 + 6, which take circuits, 2 + 3, 7 + 1, 8, 0 + 5 and 4.
    assert optical == pytest.approx(11 / 41)
    assert made.shares(routing, np.eye(4))[1] == 0.0
    seen: list[Any] = []
    monkeypatch.setattr(training, "exchange_time", lambda *given: seen.append(given) or 5.5)
    assert made.predicted("plan", routing, np.array([OF_FOUR]), 10) == 5.5
    between = (((0, 110, 50), (80, 0, 80), (50, 40, 0)),)
    assert seen == [(made._testbed, "plan", routing, ["s0", "s1", "s2"], between, TCP)]


def test_a_server_has_a_rank_for_each_of_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers with no, two and three GPUs, of which the first states none; three ports at most."""
    ports = tuple(Port("s1", name) for name in "abc")
    region = Region((
        RegionServer("s0", gpu_count=0),
        RegionServer("s1", gpu_count=2, ports=ports),
        RegionServer("s2", gpu_count=3),
    ))  # fmt: skip
    lanes = SimpleNamespace(
        servers={name: SimpleNamespace(name=name) for name in ("s0", "s1", "s2")},
        devices=["lane0", "lane1", "lane2", "packets"],
        addresses={"s0": ["a", "b", "c", "d"]},
    )
    monkeypatch.setattr(Region, "of", lambda testbed: region)
    monkeypatch.setattr(training, "Lanes", lambda bench, count: lanes)
    opened: list[Any] = []
    session = SimpleNamespace(pytorch="2")
    monkeypatch.setattr(training, "RankSession", lambda *given: opened.append(given) or session)
    fabric: Any = SimpleNamespace(bench=SimpleNamespace(clock="clock"), testbed="testbed")
    assert ExpertTraining(fabric).placement == Placement((0, 1, 1, 2, 2, 2), 3)
    ((clock, servers, devices, address),) = opened
    assert (clock, devices, address) == ("clock", ["packets"] * 6, "d")
    assert [server.name for server in servers] == ["s0", "s1", "s1", "s2", "s2", "s2"]


def test_packets_leave_circuits_before_they_move(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[Any] = []
    made: Any = object.__new__(ExpertTraining)
    a, b, c, d = (Port("s", name) for name in "abcd")
    link = SimpleNamespace(a=a, b=b)
    servers = [SimpleNamespace(packet=(c,)), SimpleNamespace(packet=(d,))]
    routing = SimpleNamespace(links=[link], region=SimpleNamespace(servers=servers))

    def routed(plan: Plan) -> Any:
        order.append(("routing", {name: sorted(each) for name, each in plan.circuits.items()}))
        return routing

    made._routing, made._route = routed, lambda _: order.append("route")
    made._lanes = SimpleNamespace(dark="dark")
    made.clock = SimpleNamespace(now=lambda: len(order))
    transition = SimpleNamespace(apply=lambda: order.append("apply"), moved=3)
    made._fabric = SimpleNamespace(prepare=lambda _: transition, bench="bench")
    monkeypatch.setattr(training, "await_carriers", lambda *given: order.append(given))
    kept, left, new = Circuit(1, 2), Circuit(3, 4), Circuit(3, 5)
    present = Plan("old", {"ocs": frozenset({kept, left})})
    plan = Plan("new", {"ocs": frozenset({kept, new})})
    assert made.bring_in(plan, present) == NewCircuits(routing, 3, 2, 3, 5, 6)
    assert order == [
        ("routing", {"ocs": [kept]}), "route", "apply", ("routing", {"ocs": [kept, new]}),
        ("bench", "dark", {a, b, c, d}), "route",
    ]  # fmt: skip
    order.clear()
    made.bring_in(plan, None)
    assert order[0] == "apply"


# ----------------------------------------------------------------------------- exchanges


class Servers:
    """Lanes of servers that run commands and note them."""

    def __init__(self, status: int = 0) -> None:
        self.ran: list[Any] = []
        self.count = 3

        def server(name: str) -> Any:
            def run(command: list[str]) -> Any:
                self.ran.append((name, command[-1].partition("; ")[2]))
                return SimpleNamespace(
                    status=status, stdout="", stderr="no", output="", command=command
                )

            return SimpleNamespace(commands=SimpleNamespace(run=run))

        self.servers = {name: server(name) for name in ("s0", "s1")}

    def forget(self, server: str) -> None:
        self.ran.append(("forget", server))

    def close(self) -> None:
        self.ran.append("lanes closed")


@pytest.fixture
def made() -> Any:
    found: Any = object.__new__(Exchanges)
    found.lanes = Servers()
    found._netdevs = {Port("s0", "a"): "ens1", Port("s0", "b"): "ens2", Port("s1", "a"): "ens3"}
    return found


def test_ports_that_fail_are_dark_and_down_until_that_is_undone(made: Any) -> None:
    ran = made.lanes.ran

    def darken(ports: Any) -> Any:
        ran.append(("dark", list(ports)))
        return lambda: ran.append("light")

    made._bench = SimpleNamespace(world=SimpleNamespace(darken=darken))
    ports = [Port("s1", "a"), Port("s0", "b")]
    undo = made.take_down(iter(ports))
    assert ran == [
        ("dark", ports[::-1]), ("s0", "ip link set ens2 down"), ("s1", "ip link set ens3 down"),
    ]  # fmt: skip
    ran.clear()
    undo()
    assert ran == [
        ("s0", "ip link set ens2 up"), ("forget", "s0"),
        ("s1", "ip link set ens3 up"), ("forget", "s1"), "light",
    ]  # fmt: skip
    ran.clear()
    made.cut(ports)()
    assert ran == [("dark", ports), "light"]


def test_failures_are_looked_for_on_all_ports_of_a_server(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan links a port of s0 to one of s1; only what is a NIC's is asked."""
    one, other, switch = Port("s0", "a"), Port("s1", "a"), Port("tor", "1")
    links = [SimpleNamespace(a=one, b=other), SimpleNamespace(a=switch, b=switch)]
    asked: list[Any] = []
    dark: set[Port] = set()
    made.testbed, made.region = "testbed", "region"
    made.lanes.dark = lambda ports: asked.append(ports) or dark
    made.lanes.ask_each = lambda how, ports: asked.append(ports) or {"down"}
    monkeypatch.setattr(
        exchanges, "fabric_links", lambda *given: given == ("testbed", "p") and links
    )
    monkeypatch.setattr(exchanges, "diagnose", lambda *given: given)
    assert made.failed("p") == Failures()
    assert asked[0] == {one, other}
    asked.clear()
    dark.add(one)
    assert made.failed("p") == ("region", links, {one}, {"down"})
    assert asked == [{one, other}, [one, Port("s0", "b")]]


def test_programs_are_ended_and_what_is_refused_is_an_error(made: Any) -> None:
    ran = made.lanes.ran
    made._gloo = SimpleNamespace(
        process=lambda server: {"s0": 12, "s1": 34}[server],
        close=lambda: ran.append("gloo closed"),
        ended=lambda: ("s1",),
    )
    made.kill("s1")
    assert ran == [("s1", "kill -9 34")]
    assert made.ended() == ("s1",)
    made.close()
    assert ran[1:] == ["gloo closed", "lanes closed"]
    made.lanes = Servers(status=2)
    with pytest.raises(ToolFailedError):
        made.kill("s0")


def test_an_exchange_is_among_all_servers_unless_ranks_are_given(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.testbed = SimpleNamespace(servers={"s0": 0, "s1": 0})
    asked: list[Any] = []
    shares = (((0, 4), (8, 0)),)
    monkeypatch.setattr(exchanges, "lane_shares", lambda *given: asked.append(given) or shares)
    monkeypatch.setattr(exchanges, "exchange_time", lambda *given: asked.append(given) or 9.0)
    what = made.exchange("routing", TRAFFIC)
    assert (what.ranks, what.lanes) == (("s0", "s1"), shares)
    assert asked[0] == ("routing", ("s0", "s1"), TRAFFIC, 3)
    assert made.exchange("routing", TRAFFIC, ["s1", "s0"]).ranks == ("s1", "s0")
    assert made.predicted("plan", "routing", what) == 9.0
    assert asked[-1] == (made.testbed, "plan", "routing", ("s0", "s1"), shares, TCP)


# --------------------------------------------------------------------- the rank's exchange


class Rows(np.ndarray):
    """An array with the methods of a tensor of rows."""

    def split(self, counts: list[int]) -> Any:
        return np.split(self, list(np.cumsum(counts))[:-1])

    def new_empty(self, *shape: int) -> Any:
        return np.ndarray.view(np.full(shape, -1.0, np.float32), Rows)

    def element_size(self) -> int:
        return self.itemsize

    def copy_(self, other: Any) -> None:
        self[...] = other


class Lane:
    """The process group of a lane: notes what is sent, and delivers rows that name the lane."""

    def __init__(self, device: str, sent: list[Any]) -> None:
        self.device, self.sent = device, sent

    def alltoall_base(self, landing: Any, given: Any, come: Any, counts: Any) -> Any:
        self.sent.append((given.tolist(), come, counts, self.device))
        number = 100 * len(self.sent)

        def wait() -> None:
            landing[...] = number + np.arange(landing.size).reshape(landing.shape)

        return SimpleNamespace(wait=wait)


def exchange(emitted: list[Any]) -> lane_exchange.LaneExchange:
    torch = SimpleNamespace(
        cat=np.concatenate, no_grad=contextlib.nullcontext, futures=concurrent.futures
    )
    return lane_exchange.connect(torch, emitted.append, {"lanes": ("x", "y")})


def test_rows_go_over_their_lanes_and_what_stays_is_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rank 1 of 3 sends 2, 1 and 3 rows; of those to rank 2, one goes over the second lane."""
    rows = np.ndarray.view(np.arange(12, dtype=np.float32).reshape(6, 2), Rows)
    emitted: list[Any] = []
    sent: list[Any] = []
    opened: list[tuple[str, str]] = []
    stamps = iter([1000, 1500, 2000, 2500])
    monkeypatch.setattr(lane_exchange, "time", SimpleNamespace(monotonic_ns=lambda: next(stamps)))
    made = exchange(emitted)

    def group_on(device: str, name: str) -> Lane:
        opened.append((device, name))
        return Lane(device, sent)

    def begin(taken: tuple[int, ...], given: tuple[int, ...]) -> Any:
        out = rows.new_empty(sum(taken), 2)
        return made.begin(group_on, 1, out, rows, taken, given).result(60)

    made.receive({"lanes": [[0, [2, 0, 2], [1, 0, 0]], [1, [0, 0, 1], [1, 0, 1]]]})
    out = begin((2, 1, 1), (2, 1, 3))
    assert emitted == [{"wants": [2, 1, 3], "size": 8}, {"began": 1000, "over": 1500}]
    assert sent == [
        ([[0, 1], [2, 3], [6, 7], [8, 9]], [1, 0, 0], [2, 0, 2], "x"),
        ([[10, 11]], [1, 0, 1], [0, 0, 1], "y"),
    ]
    # From rank 0 a row over each lane, our own, and one of rank 2 over the second lane.
    assert out.tolist() == [[100, 101], [200, 201], [4, 5], [202, 203]]
    made.receive({"lanes": [[1, [6, 0, 0], [0, 0, 1]]]})
    assert begin((0, 0, 1), (6, 0, 0)).tolist() == [[300, 301]]
    assert opened == [("x", "lane 0"), ("y", "lane 1")]


def test_an_all_to_all_that_fails_raises_in_the_script() -> None:
    made = exchange([])
    rows = np.ndarray.view(np.zeros((2, 3), np.float32), Rows)

    def refused(device: str, name: str) -> Any:
        raise RuntimeError(f"no device {device}, {name}")

    with pytest.raises(RuntimeError, match="no device x"):
        made.begin(refused, 0, rows, rows, (1, 1), (1, 1)).result(60)


@pytest.mark.parametrize(
    ("floating", "dimensions", "taken"), [(True, 2, True), (True, 1, False), (False, 2, False)]
)
def test_only_rows_of_floating_point_numbers_take_circuits(
    floating: bool, dimensions: int, taken: bool
) -> None:
    tensor = SimpleNamespace(is_floating_point=lambda: floating, dim=lambda: dimensions)
    assert exchange([]).takes(tensor) is taken
