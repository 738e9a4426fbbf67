"""MixNet's controller and lanes at run time, with servers that note what they are asked."""

import concurrent.futures
import contextlib
import itertools
import queue
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.systems.mixnet.planning.delegation import (
    link_bytes,
    rank_stages,
    rank_transfers,
)
from lightrig.harness.systems.mixnet.planning.demand import Placement
from lightrig.harness.systems.mixnet.planning.region import Failures, Region
from lightrig.harness.systems.mixnet.planning.routing import Routing
from lightrig.harness.systems.mixnet.runtime import lane_exchange
from lightrig.harness.systems.mixnet.runtime.exchanges import Exchanges
from lightrig.harness.systems.mixnet.runtime.trained import TrainedExperts
from lightrig.harness.systems.mixnet.runtime.training import ExpertTraining
from lightrig.instruments.clock import Span
from lightrig.instruments.servers.host.commands import ToolFailedError
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.testbeds import LightrigError, Link, Plan, Port, Testbed, load


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


# -------------------------------------------------------------------------------- training

REGION = """
name: region
switches:
  ocs: {model: polatis, address: tl1://ocs.invalid, size: 16x16, options: {rerouting: true}}
  eps: {kind: packet, model: bridge, ports: 4, rate: 1G, transceiver: lr4}
servers:
SERVERStransceivers:
  lr4:
    wavelength: 1310 nm
    launch: {min: -4.3 dBm, max: 4.5 dBm}
    receive: {min: -10.6 dBm, max: 4.5 dBm}
fibers:
  - server[0-2].nic0 <-> ocs
  - server[0-2].nic1 <-> ocs
  - server[0-2].nic2 <-> eps.[1-3]
  - server1.nic3 <-> ocs
plans:
  double:
    - server0.nic[0-1] <-> server1.nic[0-1]
"""
SERVER = """\
  server{n}:
    address: "ADDRESS"{gpus}
    nics:
      nic[0-{last}]: {{netdev: "fabric{{n}}", ip: "192.0.2.{{k}}/24", rate: 1G, transceiver: lr4}}
"""


def region(path: Path, address: str) -> Testbed:
    """Return three servers with one, two and one ranks; the second has a port more."""
    gpus = ("", "\n    gpus: {count: 2}", "\n    gpus: {count: 1}")
    servers = "".join(
        SERVER.format(n=n, gpus=each, last=3 if n == 1 else 2) for n, each in enumerate(gpus)
    )
    path.write_text(REGION.replace("SERVERS", servers).replace("ADDRESS", address))
    return load(path)


ROWS = (  # of two layers, from each of four ranks to each
    np.array([[3, 90, 41, 7], [5, 2, 8, 60], [11, 13, 1, 17], [70, 19, 4, 6]]),
    np.array([[9, 0, 0, 980], [0, 4, 50, 0], [0, 31, 7, 0], [710, 0, 0, 8]]),
)
"""The second gate sends between server0 and server2 alone, whose ports it joins twice."""

ON = (0, 1, 1, 2)
"""Server of each rank: server0 states no GPU and has one rank."""

ORDER = (
    (0, "dispatch"), (0, "combine"), (1, "dispatch"), (1, "combine"),
    (1, "combine gradient"), (1, "dispatch gradient"),
    (0, "combine gradient"), (0, "dispatch gradient"),
)  # fmt: skip
"""All-to-alls of a step of two layers (MixNet, App. B.2)."""

ROW_BYTES = 16


def traffic(number: int) -> Any:
    """Return the rows of an all-to-all: forth as the gate sent them, back the other way."""
    layer, phase = ORDER[number % len(ORDER)]
    return ROWS[layer] if phase in ("dispatch", "combine gradient") else ROWS[layer].T


class LanesInPlace:
    """Lanes of a bench without a kernel: notes routes, and reports light after the second look."""

    def __init__(self, bench: Any, count: int) -> None:
        self.clock, self.count = bench.clock, count
        self.devices = [f"lane{number}" for number in range(count)]
        names = list(bench.testbed.servers)
        self.servers = {name: SimpleNamespace(name=name) for name in names}
        self.addresses = {n: [f"{n}.{lane}" for lane in range(count)] for n in names}
        self.routed: list[tuple[int, set[Port]]] = []
        self.looked: list[tuple[int, set[Port]]] = []
        self.closed = False

    def route(self, ways: Any) -> None:
        ports = {hop.port for hops in ways for hop in hops.values()}
        self.routed.append((self.clock.now(), ports))

    def dark(self, ports: Any) -> Any:
        self.looked.append((self.clock.now(), set(ports)))
        return frozenset(ports) if len(self.looked) % 2 else frozenset()

    def close(self) -> None:
        self.closed = True


class Rank:
    def __init__(self, session: "Session", number: int) -> None:
        self.session, self.number, self.done = session, number, 0

    def wants(self) -> None:
        """Announce the next all-to-all, or the end of the script."""
        session, now = self.session, self.session.clock.now()
        if self.done == session.steps * len(ORDER):
            session.ended(self.number)
            return
        at = Span(now - 900, now - 100 * self.number)
        rows = traffic(self.done)[self.number].tolist()
        session.wanted[self.number, self.done] = at.latest
        session.module.on_message(self.number, {"wants": rows, "size": ROW_BYTES}, at)

    def tell(self, message: Any) -> None:
        """Run the all-to-all that is permitted: some begin and end later than others."""
        session, now = self.session, self.session.clock.now()
        began = now + (30, 70, 20, 50)[self.number]
        over = began + (900, 400, 800, 300)[self.number]
        session.permitted[self.number, self.done] = (now, began, over, message["stages"])
        session.module.on_message(self.number, {"began": began, "over": over}, Span(over, over))
        session.clock.sleep(1000 * (self.number + 1))
        self.done += 1
        self.wants()


class Session:
    """Programs of the ranks that run a script of `steps` steps in this process."""

    pytorch = "2"

    def __init__(self, clock: Any, servers: Any, devices: Any, address: str) -> None:
        self.clock, self.opened = clock, ([each.name for each in servers], devices, address)
        self.ranks = [Rank(self, number) for number in range(len(servers))]
        self.wanted: dict[tuple[int, int], int] = {}
        self.permitted: dict[tuple[int, int], Any] = {}
        self.steps = 2
        self.closed = False

    def run(
        self, *given: Any, control: Any, groups: Any, module: Any, beside: Any, ended: Any
    ) -> Any:
        self.given, self.module, self.ended = (*given, control, groups), module, ended
        for rank in (3, 0, 2, 1):
            self.ranks[rank].wants()
        (loop,) = beside
        loop()
        return SimpleNamespace(printed={0: [(Span(1, 3), "step 0 loss 3.5")]}, operations={})

    def close(self) -> None:
        self.closed = True


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    path = tmp_path_factory.mktemp("region") / "region.yaml"
    bound = bind(region(path, "ssh://bench@{name}.invalid"), "simulated", seed=3)
    yield bound
    bound.close()


@pytest.fixture
def fabric(bench: Bench) -> Fabric:
    return Fabric(bench)


@pytest.fixture
def lanes(bench: Bench) -> LanesInPlace:
    return LanesInPlace(bench, 5)


@pytest.fixture
def training(fabric: Fabric, lanes: LanesInPlace) -> Any:
    def open_lanes(_: Bench, count: int) -> Any:
        assert count == lanes.count
        return lanes

    session: Any = Session
    return ExpertTraining(fabric, open_lanes, session)


def of_servers(rows: Any) -> Any:
    """Return the rows between servers, by hand: ranks 1 and 2 are on server 1."""
    found = np.zeros((3, 3), int)
    for a, b in itertools.product(range(4), repeat=2):
        if ON[a] != ON[b]:
            found[ON[a], ON[b]] += rows[a, b]
    return found


def test_a_server_has_a_rank_for_each_of_its_gpus(training: Any) -> None:
    """Four ports need four lanes; other packets have the fifth, with its address of rank 0."""
    assert training.placement == Placement(ON, 3)
    assert training.session.opened == (
        ["server0", "server1", "server1", "server2"], ["lane4"] * 4, "server0.4"
    )  # fmt: skip
    assert training.lane_devices == ["lane0", "lane1", "lane2", "lane3"]
    assert training.pytorch == "2"


def test_lanes_are_closed_where_no_session_opens(bench: Bench) -> None:
    opened: list[LanesInPlace] = []

    def open_lanes(bench: Any, count: int) -> Any:
        opened.append(LanesInPlace(bench, count))
        return opened[-1]

    def refuse(*_: Any) -> Any:
        raise LightrigError("no PyTorch")

    with pytest.raises(LightrigError, match="no PyTorch"):
        ExpertTraining(Fabric(bench), open_lanes, refuse)
    assert opened[0].closed


def test_ranks_are_told_both_ends_of_what_is_gathered_exchanged_and_scattered(
    training: Any, fabric: Fabric
) -> None:
    """Two steps of two layers: every row of another rank reaches it, over ranks that have it.

    Only ranks of one server use the lane within it.
    """
    training.train("script", 2, fabric.plans["double"], "block")
    session = training.session
    assert session.given[0] == "script"
    assert session.given[2:] == ("watched", {"all": range(4), "between servers": ()})
    assert session.module.settings == {
        "lanes": ["lane0", "lane1", "lane2", "lane3"],
        "servers": [[0], [1, 2], [3]],
        "regions": [[0, 1, 2, 3]],
        "rings": [],
    }
    assert session.permitted.keys() == session.wanted.keys()
    assert len(session.permitted) == 4 * 2 * len(ORDER)
    for number in range(2 * len(ORDER)):
        told = [session.permitted[rank, number][3] for rank in range(4)]
        sent = {
            (stage, lane, rank, peer): pieces
            for rank in range(4)
            for stage, sends, _ in told[rank]
            for lane, peer, pieces in sends
        }
        received = {
            (stage, lane, peer, rank): pieces
            for rank in range(4)
            for stage, _, receives in told[rank]
            for lane, peer, pieces in receives
        }
        assert sent == received
        for _, lane, source, sink in sent:
            assert (ON[source] == ON[sink]) == (lane == -1)
        at = {
            (source, sink, row): source
            for source, sink in itertools.product(range(4), repeat=2)
            for row in range(traffic(number)[source][sink])
        }
        for (_, _, source, sink), pieces in sorted(sent.items()):
            for a, b, first, count in pieces:
                for row in range(first, first + count):
                    assert at[a, b, row] == source
                    at[a, b, row] = sink
        assert all(rank == sink for (_, sink, _), rank in at.items())


@pytest.mark.parametrize("first", ["block", None])
def test_exchanges_last_from_the_last_begin_to_the_last_end(
    training: Any, fabric: Fabric, first: Any
) -> None:
    """Circuits join what each gate sends between; `double` joins two servers for both."""
    found = training.train("script", 2, fabric.plans["double"], first).exchanges
    session = training.session
    places = [(step, *place) for step in range(2) for place in ORDER]
    assert [(each.step, each.layer, each.phase) for each in found] == places
    for number, each in enumerate(found):
        told = [session.permitted[rank, number] for rank in range(4)]
        assert each.traffic.tolist() == (traffic(number) * ROW_BYTES).tolist()
        assert each.wanted == max(session.wanted[rank, number] for rank in range(4))
        assert each.permitted == max(now for now, *_ in told)
        assert each.began == max(began for _, began, _, _ in told)
        assert each.ended == max(over for _, _, over, _ in told)
        assert each.waited == each.began - each.wanted
        rows = of_servers(traffic(number))
        joined = {
            tuple(sorted(int(port.owner[-1]) for port in (link.a, link.b)))
            for link in fabric.links(each.plan)
        }
        optical = sum(
            rows[a, b] for a in range(3) for b in range(3) if tuple(sorted((a, b))) in joined
        )
        assert each.optical == pytest.approx(optical / rows.sum())
        assert (each.optical < 1) == (first is None)


def test_an_exchange_is_predicted_by_its_slowest_port(training: Any, fabric: Fabric) -> None:
    """On `double`, server0 and server1 have 2 Gbit/s between them, and packets 1 Gbit/s a server.

    TCP leaves 1,448 of 1,514 bytes. The last bit takes 700 ns through each NIC, 600 ns through a
    packet switch and 100 ns through each fiber: 1,500 ns over a circuit, 2,200 ns over packets.
    """
    found = training.train("script", 2, fabric.plans["double"]).exchanges
    for number, each in enumerate(found):
        assert each.plan.name == "double"
        rows = of_servers(traffic(number)) * ROW_BYTES * 8 * 1514 / 1448
        circuits = max(rows[0, 1], rows[1, 0]) / 2 + 1500
        packets = max(rows[:, 2].sum(), rows[2].sum(), *rows[:2, 2], *rows[2, :2]) + 2200
        assert each.predicted == pytest.approx(max(circuits, packets), rel=1e-3)


def test_circuits_change_between_exchanges_and_packets_leave_them_first(
    training: Any, fabric: Fabric, lanes: LanesInPlace
) -> None:
    """A change begins when all have ended what is before, and is over when the next begins."""
    made = training.train("script", 2, fabric.plans["double"], "block")
    session = training.session
    found = [(each.step, each.layer, each.before, each.knows) for each in made.changes]
    assert found == [
        (step, layer, before, "gate")
        for step in range(2)
        for layer, before in ((0, "dispatch"), (1, "dispatch"), (0, "combine gradient"))
    ]
    plans = {(each.step, each.layer, each.phase): each.plan for each in made.exchanges}
    numbers = {place: number for number, place in enumerate(ORDER)}
    present = fabric.plans["double"]
    some = 0
    routed = iter(lanes.routed[1:])
    for each in made.changes:
        number = each.step * len(ORDER) + numbers[each.layer, each.before]
        plan = plans[each.step, each.layer, each.before]
        new = plan.circuits["ocs"] - present.circuits["ocs"]
        assert each.began <= each.planned <= each.left <= each.switched <= each.lit <= each.done
        assert each.done <= min(session.permitted[rank, number][0] for rank in range(4))
        if number:
            ended = [session.permitted[rank, number - 1][0] for rank in range(4)]
            assert each.began >= max(ended)
        if new:
            some += 1
            assert each.moved == len(new)
            assert each.planned == each.began < each.switched
            assert each.lit > each.switched
            assert each.left == each.planned
            gone = present.circuits["ocs"] - plan.circuits["ocs"]
            still = {port for link in fabric.links(Plan("still", {
                "ocs": present.circuits["ocs"] - gone})) for port in (link.a, link.b)}  # fmt: skip
            at, before = next(routed)
            assert at <= each.left
            assert {port for port in before if port.name != "nic2"} <= still
            at, after = next(routed)
            assert each.lit <= at <= each.done
            used = {port for link in fabric.links(plan) for port in (link.a, link.b)}
            assert {port for port in after if port.name != "nic2"} == used
            packets = {Port(f"server{n}", "nic2") for n in range(3)}
            assert lanes.looked[-1][1] >= packets
        else:
            assert (each.moved, each.done) == (0, each.planned)
        present = plan
    assert some >= 2


def test_circuits_stay_without_a_strategy(training: Any, fabric: Fabric) -> None:
    made = training.train("script", 2, fabric.plans["double"])
    assert made.changes == []
    assert {each.plan.name for each in made.exchanges} == {"double"}
    assert made.losses() == [(0, "step 0 loss 3.5")]


def test_a_training_closes_what_it_opened(training: Any, lanes: LanesInPlace) -> None:
    training.close()
    assert training.session.closed
    assert lanes.closed


# ----------------------------------------------------------------------------- exchanges


class Servers(LanesInPlace):
    """Lanes of servers that run commands and note them."""

    def __init__(self, bench: Any, count: int) -> None:
        super().__init__(bench, count)
        self.ran: list[Any] = bench.ran
        self.status = 0
        self.is_dark: set[Port] = set()
        self.is_down: set[Port] = set()

        def server(name: str) -> Any:
            def run(command: list[str]) -> Any:
                self.ran.append((name, command[-1].partition("; ")[2]))
                return SimpleNamespace(
                    status=self.status, stdout="", stderr="no", output="", command=command
                )

            return SimpleNamespace(name=name, commands=SimpleNamespace(run=run))

        self.servers = {name: server(name) for name in bench.testbed.servers}

    def dark(self, ports: Any) -> Any:
        self.ran.append(("dark?", sorted(map(str, ports))))
        return self.is_dark & set(ports)

    def ask_each(self, how: Any, ports: Any) -> Any:
        assert how is LinuxServer.down
        self.ran.append(("down?", sorted(map(str, ports))))
        return frozenset(self.is_down & set(ports))

    def forget(self, server: str) -> None:
        self.ran.append(("forget", server))

    def close(self) -> None:
        self.ran.append("lanes closed")


class Gloo:
    def __init__(self, servers: Any, first: Any, clock: Any, *, interface: str, lanes: Any) -> None:
        self.opened = (first, interface, lanes)
        self.closed = False

    def load(self, servers: list[str]) -> None:
        self.loaded = servers

    def process(self, server: str) -> int:
        return {"server0": 12, "server1": 34, "server2": 56}[server]

    def ended(self) -> tuple[str, ...]:
        return ("server1",)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def made(tmp_path: Path) -> Any:
    """Exchanges of a region of namespaces, without a kernel."""
    testbed = region(tmp_path / "region.yaml", "netns://{name}")
    ran: list[Any] = []

    def darken(ports: Any) -> Any:
        ran.append(("darken", list(ports)))
        return lambda: ran.append("light")

    bench: Any = SimpleNamespace(
        testbed=testbed, ran=ran, world=SimpleNamespace(darken=darken),
        clock=SimpleNamespace(now=lambda: 5),
    )  # fmt: skip
    lanes: Any = Servers
    gloo: Any = Gloo
    found = Exchanges(bench, lanes, gloo)
    ran.clear()
    return found


def test_each_server_has_a_rank_with_as_many_lanes_as_it_has_ports(made: Any) -> None:
    runner = made.runner
    assert runner.opened == (
        {name: f"{name}.0" for name in ("server0", "server1", "server2")},
        "lane0",
        ["lane1", "lane2", "lane3"],
    )
    assert runner.loaded == ["server0", "server1", "server2"]


def test_ports_that_fail_are_dark_and_down_until_that_is_undone(made: Any) -> None:
    ran = made.lanes.ran
    ports = [Port("server1", "nic0"), Port("server0", "nic1")]
    undo = made.take_down(iter(ports))
    assert ran == [
        ("darken", ports[::-1]),
        ("server0", "ip link set fabric1 down"), ("server1", "ip link set fabric0 down"),
    ]  # fmt: skip
    ran.clear()
    undo()
    assert ran == [
        ("server0", "ip link set fabric1 up"), ("forget", "server0"),
        ("server1", "ip link set fabric0 up"), ("forget", "server1"), "light",
    ]  # fmt: skip
    ran.clear()
    made.cut(ports)()
    assert ran == [("darken", ports), "light"]


def test_failures_are_looked_for_on_all_ports_of_a_server(made: Any) -> None:
    """`double` joins server0 and server1 twice; only ports of NICs are asked for light."""
    plan, lanes = made.testbed.plans["double"], made.lanes
    nics = [f"server{server}.nic{number}" for server in (0, 1) for number in (0, 1)]
    used = sorted([*nics, *(f"server{server}.nic2" for server in range(3))])
    assert made.failed(plan) == Failures()
    assert lanes.ran == [("dark?", used)]
    lanes.ran.clear()
    cut = [Port("server0", "nic1"), Port("server1", "nic1")]
    lanes.is_dark = set(cut)
    found = made.failed(plan)
    assert {str(link) for link in found.links} == {"server0.nic1 <-> server1.nic1"}
    assert (found.nics, found.servers) == (frozenset(), frozenset())
    of_both = [f"server{server}.nic{number}" for server in (0, 1) for number in range(3 + server)]
    assert lanes.ran == [("dark?", used), ("down?", of_both)]
    # server1 has lost the port itself: it is down there, and its link is dark at both ends.
    lanes.is_down = {Port("server1", "nic1")}
    assert made.failed(plan).nics == {Port("server1", "nic1")}


def test_programs_are_ended_and_what_is_refused_is_an_error(made: Any) -> None:
    ran = made.lanes.ran
    made.kill("server1")
    assert ran == [("server1", "kill -9 34")]
    assert made.ended() == ("server1",)
    made.lanes.status = 2
    with pytest.raises(ToolFailedError):
        made.kill("server0")
    made.close()
    assert made.runner.closed
    assert ran[-1] == "lanes closed"


def test_an_exchange_is_among_all_servers_unless_ranks_are_given(made: Any) -> None:
    """Of an odd number of bytes over two circuits, one lane has one byte more."""
    routing = made.routing(made.testbed.plans["double"])
    sent = np.array([[0, 41, 20], [8, 0, 30], [7, 2, 0]])
    what = made.exchange(routing, sent)
    assert what.ranks == ("server0", "server1", "server2")
    assert np.sum(what.lanes, axis=0).tolist() == sent.tolist()
    assert sorted(lane[0][1] for lane in what.lanes) == [0, 0, 20, 21]
    fewer = made.exchange(routing, sent[:2, :2], ["server1", "server0"])
    assert fewer.ranks == ("server1", "server0")
    assert np.sum(fewer.lanes, axis=0).tolist() == [[0, 41], [8, 0]]
    # 50 bytes into server2's port of 1 Gbit/s, and 2,200 ns over two NICs and a packet switch.
    predicted = made.predicted(made.testbed.plans["double"], routing, what)
    assert predicted == pytest.approx(8 * 50 * 1514 / 1448 + 2200, rel=1e-3)


def test_without_what_failed_packets_go_another_way(made: Any) -> None:
    """Without the circuits between them, server0 reaches server1 by the packet switch."""
    plan = made.testbed.plans["double"]
    made.route(made.routing(plan))
    assert {port.name for port in made.lanes.routed[-1][1]} == {"nic0", "nic1", "nic2"}
    links = frozenset(made.testbed.links(plan))
    made.route(made.routing(plan, Failures(links=links)))
    assert {port.name for port in made.lanes.routed[-1][1]} == {"nic2"}


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


class Wire:
    """Process groups in this process, which deliver in order what one rank sends to another."""

    def __init__(self) -> None:
        self.queues: defaultdict[Any, queue.SimpleQueue[Any]] = defaultdict(queue.SimpleQueue)
        self.used: list[tuple[str, int, int]] = []

    def group_on(self, rank: int, device: str, name: str, ranks: Any = ()) -> Any:
        assert (device == "lo") == (name == "scale-up")
        numbers = list(ranks) or list(range(4))

        def send(tensors: Any, peer: int, tag: int) -> Any:
            self.used.append((name, rank, numbers[peer]))
            self.queues[name, rank, numbers[peer], tag].put(tensors[0].copy())
            return SimpleNamespace(wait=lambda: None)

        def recv(tensors: Any, peer: int, tag: int) -> Any:
            sent = self.queues[name, numbers[peer], rank, tag]
            return SimpleNamespace(wait=lambda: tensors[0].copy_(sent.get(timeout=60)))

        return SimpleNamespace(send=send, recv=recv)


def exchange(emitted: list[Any]) -> lane_exchange.LaneExchange:
    torch = SimpleNamespace(
        cat=lambda parts: np.ndarray.view(np.concatenate(parts), Rows),
        no_grad=contextlib.nullcontext,
        futures=concurrent.futures,
    )
    settings = {"lanes": ("x", "y"), "servers": [[0, 1], [2, 3]], "rings": []}
    settings["regions"] = [[0, 1, 2, 3]]
    return lane_exchange.connect(torch, emitted.append, settings)


def test_rows_are_gathered_exchanged_and_scattered() -> None:
    """Two servers of two ranks, with two circuits between them that share the rows evenly.

    The first circuit ends at ranks 0 and 2, the second at 1 and 3. Rank r has ten rows for each
    rank s, which count from 1000 r + 100 s, and rank 0 has thirteen for rank 2: of the 43 rows from
    the first server the first circuit takes 21, of which 13 are these, 8 of those to rank 3.
    """
    wire, emitted = Wire(), [list[Any]() for _ in range(4)]
    region = Region.uniform(2, optical=2, packet=0, gpus=2)
    ends = [(Port("server0", f"nic{n}"), Port("server1", f"nic{n}")) for n in range(2)]
    routing = Routing(region, tuple(Link(*each) for each in ends))
    placement = Placement((0, 0, 1, 1), 2)
    given = [[10, 10, 13, 10], *[[10] * 4] * 3]
    transfers = rank_transfers(np.array(given, float), placement, routing)
    # Rows of four bytes in one message, its frame, and a frame that the other way asks for.
    assert link_bytes(transfers, 4) == {
        ends[0]: 84 + 2 * 48, ends[1]: 88 + 2 * 48,
        ends[0][::-1]: 80 + 2 * 48, ends[1][::-1]: 80 + 2 * 48,
    }  # fmt: skip
    stages = rank_stages(transfers, placement, routing)
    futures, outs = [], []
    for rank in range(4):
        made = exchange(emitted[rank])
        values = [[1000 * rank + 100 * to + n] for to in range(4) for n in range(given[rank][to])]
        rows = np.ndarray.view(np.array(values, np.float32), Rows)
        taken = [of[rank] for of in given]
        outs.append(rows.new_empty(sum(taken), 1))
        made.receive({"stages": stages[rank]})
        begin = partial(made.begin, partial(wire.group_on, rank), rank, range(4))
        futures.append(begin(outs[rank], rows, taken, given[rank]))
    for rank, future in enumerate(futures):
        assert future.result(60) is outs[rank]
        assert outs[rank].flatten().tolist() == [
            1000 * source + 100 * rank + n
            for source in range(4)
            for n in range(given[source][rank])
        ]
        assert emitted[rank][0] == {"wants": given[rank], "size": 4}
        assert emitted[rank][1]["began"] <= emitted[rank][1]["over"]
    between = {(name, a, b) for name, a, b in wire.used if name != "scale-up"}
    assert between == {
        ("lane 0", 0, 2), ("lane 0", 2, 0), ("lane 1", 1, 3), ("lane 1", 3, 1),
    }  # fmt: skip
    assert {(a, b) for name, a, b in wire.used if name == "scale-up"} == {
        (0, 1), (1, 0), (2, 3), (3, 2),
    }  # fmt: skip


def test_an_all_to_all_that_fails_raises_in_the_script() -> None:
    made = exchange([])
    rows = np.ndarray.view(np.zeros((2, 3), np.float32), Rows)

    def refused(device: str, name: str, ranks: Any = ()) -> Any:
        raise RuntimeError(f"no device {device}, {name}")

    with pytest.raises(RuntimeError, match="no device x"):
        made.begin(refused, 0, (0, 2), rows, rows, (1, 1), (1, 1)).result(60)


@pytest.mark.parametrize(
    ("floating", "dimensions", "taken"), [(True, 2, True), (True, 1, False), (False, 2, False)]
)
def test_only_rows_of_floating_point_numbers_take_circuits(
    floating: bool, dimensions: int, taken: bool
) -> None:
    tensor = SimpleNamespace(is_floating_point=lambda: floating, dim=lambda: dimensions)
    assert exchange([]).takes(tensor, (0, 2), (3, 4)) is taken
    assert not exchange([]).takes(tensor, (2, 3), (3, 4))  # ranks of one server
