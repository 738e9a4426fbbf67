"""Opus at run time: what ranks announce, circuits of several rails, and ways of packets."""

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.systems.opus.planning.messages import Rewire
from lightrig.harness.systems.opus.planning.operations import OpusError
from lightrig.harness.systems.opus.planning.switch_commands import SwitchCommands
from lightrig.harness.systems.opus.planning.topology import GIANT_RING, TopologyId
from lightrig.harness.systems.opus.planning.wiring import Attachment
from lightrig.harness.systems.opus.runtime import on_fabric
from lightrig.harness.systems.opus.runtime.carriers import Carriers, CarriersDownError
from lightrig.harness.systems.opus.runtime.controlled_ranks import ControlledRanks, local_phases
from lightrig.harness.systems.opus.runtime.job_circuits import JobCircuits
from lightrig.harness.systems.opus.runtime.on_fabric import FabricRails, fitting_job
from lightrig.harness.systems.opus.runtime.rails import RailsLostError
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import LinkEvent
from lightrig.instruments.jobs.traffic.training import LocalBegin, LocalEnd
from lightrig.testbeds import Circuit, LightrigError, Plan, Port, load

MS = 1_000_000


def circuits(*pairs: tuple[int, int]) -> frozenset[Circuit]:
    return frozenset(Circuit(*pair) for pair in pairs)


# ------------------------------------------------------------------------------ carriers


def test_outages_last_from_the_loss_to_the_light() -> None:
    """Of a port that was lit before, and one that is dark at the end."""
    a, b = Port("s0", "a"), Port("s1", "a")
    ports = [SimpleNamespace(port=port, netdev=port.name) for port in (a, b)]
    bench: Any = SimpleNamespace(testbed=SimpleNamespace(nic_ports=ports), servers={})
    made = Carriers(bench)
    made.seen = [
        (port, LinkEvent(port.name, "carrier", up, Span(*at), "sysfs"))
        for port, up, at in (
            (a, True, (1, 2)), (a, False, (10, 13)), (b, False, (11, 12)), (a, True, (20, 24)),
            (a, False, (30, 31)), (b, True, (40, 45)), (b, True, (50, 55)),
        )
    ]  # fmt: skip
    assert made.outages() == [(a, Span(13, 24)), (b, Span(12, 45))]


# ----------------------------------------------------------------------------- on fabrics


def bed(*nics: int) -> Any:
    servers = {
        f"s{number}": SimpleNamespace(nics=dict.fromkeys(range(count)))
        for number, count in enumerate(nics)
    }
    return SimpleNamespace(name="bed", servers=servers)


def test_a_job_has_a_rank_on_each_nic() -> None:
    job = fitting_job(bed(3, 3, 3, 3, 3, 3), "job")
    assert (job.rails, job.stages, len(job.stage_of)) == (3, 2, 18)
    fewer = fitting_job(bed(3, 3, 3, 3, 3, 3), "job", ranks=12)
    assert (fewer.rails, len(fewer.stage_of)) == (3, 12)
    assert len(fitting_job(bed(3, 3, 3, 3, 3, 3), "job", ranks=18).stage_of) == 18
    assert len(fitting_job(bed(1, 1, 1, 1, 1, 1), "job", 1, [2, 3]).stage_of) == 6
    for testbed, more, says in (
        (bed(3, 3, 3), {}, "has 3 servers, expected a multiple of 2"),
        (bed(), {}, "has 0 servers"),
        (bed(1, 2), {}, "has 2 servers, expected a multiple of 2 with as many NICs each"),
        (bed(0, 0), {}, "has 2 servers, expected"),
        (bed(3, 3), {"ranks": 9}, "a rank on each of 3 NICs; 9 ranks do not fit"),
        (bed(3, 3), {"ranks": 4}, "4 ranks do not fit"),
        (bed(3, 3), {"ranks": 0}, "0 ranks do not fit"),
        (bed(3, 2), {"ranks": 2}, "differently many NICs; 2 ranks do not fit"),
        (bed(1, 1, 1, 1), {"stages": 2, "widths": [3]}, "2 pipeline stages of 3 need 6"),
    ):
        with pytest.raises(OpusError, match=says):
            fitting_job(testbed, "job", **more)  # type: ignore[arg-type]


RAILS = """
name: rails
switches:
  x: {model: polatis, address: tl1://x.invalid, size: 16x16, options: {rerouting: true}}
  y: {model: polatis, address: tl1://y.invalid, size: 8x8, options: {rerouting: true}}
servers:
  server[0-3]:
    address: ssh://bench@{name}.invalid
    nics:
      nic[0-2]: {ports: 2, netdev: "ens{n}f{p}", rate: 100G, transceiver: lr4}
transceivers:
  lr4:
    wavelength: 1310 nm
    launch: {min: -4.3 dBm, max: 4.5 dBm}
    receive: {min: -10.6 dBm, max: 4.5 dBm}
fibers:
  - server[0-3].nic0.p[0-1] <-> x
  - server[0-3].nic1.p[0-1] <-> y
  - server[0-3].nic2.p[0-1] <-> x
"""
"""Rails 0 and 2 are on one switch, rail 1 on another; eight ports each."""

PIPELINE, DATA = TopologyId.uniform(2, 0), TopologyId.uniform(2, 1)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    path = tmp_path_factory.mktemp("rails") / "rails.yaml"
    path.write_text(RAILS)
    bound = bind(load(path), "simulated", seed=5)
    yield bound
    bound.close()


class Noting:
    """A fabric that notes what it is brought to, and what the rails hold as settled meanwhile."""

    def __init__(self, bench: Any) -> None:
        self.bench, self.testbed = bench, bench.testbed
        self.applied: list[dict[str, frozenset[Circuit]]] = []
        self.settled: list[dict[str, frozenset[Circuit]]] = []
        self.rails: Any = None
        self.refuses = False

    def apply(self, plan: Plan) -> None:
        self.settled.append(self.rails.settled())
        if self.refuses:
            raise LightrigError("refused")
        self.applied.append(dict(plan.circuits))


def noted(bench: Any) -> tuple[Noting, FabricRails]:
    fabric: Any = Noting(bench)
    fabric.rails = FabricRails(fabric, fitting_job(bench.testbed, "job"))
    return fabric, fabric.rails


def rewire(rail: int, remove: frozenset[Circuit], add: frozenset[Circuit], attempt: int = 1) -> Any:
    return Rewire(rail, "job", 1, attempt, remove, add)


def test_rails_that_share_a_switch_are_set_together_and_rewired_apart(bench: Bench) -> None:
    fabric, made = noted(bench)
    first, other, third = made.wirings
    made.set(DATA)
    assert fabric.applied == [
        {"x": first.circuits(DATA) | third.circuits(DATA), "y": other.circuits(DATA)}
    ]
    made.apply([rewire(0, first.circuits(DATA), first.giant_ring)])
    assert fabric.applied[1] == {"x": first.giant_ring | third.circuits(DATA)}
    both = [rewire(0, first.giant_ring, first.circuits(PIPELINE)),
            rewire(2, third.circuits(DATA), third.giant_ring)]  # fmt: skip
    made.apply(both)
    assert made.circuits() == {
        "x": first.circuits(PIPELINE) | third.giant_ring, "y": other.circuits(DATA)
    }  # fmt: skip
    with pytest.raises(ValueError, match="too many values"):
        made.apply([rewire(0, frozenset(), frozenset()), rewire(1, frozenset(), frozenset())])
    fabric.refuses = True
    before = made.circuits()
    with pytest.raises(LightrigError, match="refused"):
        made.apply([rewire(2, third.giant_ring, third.circuits(DATA))])
    assert made.circuits() == made.settled() == before


def test_a_job_may_touch_the_ports_of_its_fibers(bench: Bench) -> None:
    """Sixteen fibers of eight NICs each way on x, eight on y."""
    _, made = noted(bench)
    assert made.switches == ["x", "y", "x"]
    assert made.cabled_ports() == {
        "x": (frozenset(range(1, 17)), frozenset(range(17, 33))),
        "y": (frozenset(range(1, 9)), frozenset(range(9, 17))),
    }


def test_circuits_are_settled_where_no_command_changes_their_ports(bench: Bench) -> None:
    """A change of rail 2 touches neither rail 0 nor the other switch; after it all are settled."""
    fabric, made = noted(bench)
    first, other, third = made.wirings
    made.set(DATA)
    made.apply([rewire(2, third.circuits(DATA), third.circuits(PIPELINE))])
    assert fabric.settled == [{}, {"x": first.circuits(DATA), "y": other.circuits(DATA)}]
    assert made.settled() == made.circuits()
    assert made.circuits()["x"] == first.circuits(DATA) | third.circuits(PIPELINE)


def test_commands_of_a_change_are_those_of_its_switch(bench: Bench) -> None:
    """One that says how many it takes is asked with what differs; another takes one."""

    class InTurn:
        def commands(self, remove: frozenset[Circuit], add: frozenset[Circuit]) -> int:
            return 100 * len(remove) + len(add)

    plain: Any = SimpleNamespace(testbed=bench.testbed, switches={"x": InTurn(), "y": object()})
    _, made = noted(plain)
    made.set(DATA)
    removed = sorted(made.wirings[2].circuits(DATA))[:3]
    (added,) = sorted(made.wirings[2].giant_ring - made.wirings[2].circuits(DATA))[:1]
    change = rewire(2, frozenset(removed), frozenset({added}))
    assert made.commands([change]) == 301
    assert made.commands([rewire(1, made.wirings[1].circuits(DATA), frozenset())]) == 1


def test_a_rail_is_on_one_switch() -> None:
    """Rank r is on server r / rails, with its NIC r mod rails."""

    def nic(*ports: str) -> Any:
        return SimpleNamespace(ports=[SimpleNamespace(port=Port("s", each)) for each in ports])

    servers = {
        "s0": SimpleNamespace(nics={"a": nic("a0"), "b": nic("b0")}),
        "s1": SimpleNamespace(nics={"a": nic("a1"), "b": nic("b1", "b2")}),
    }
    into = {"a0": ("x", 1), "a1": ("x", 2), "b0": ("y", 3), "b1": ("y", 4), "b2": ("y", 5)}
    out = {name: (switch, 10 * port) for name, (switch, port) in into.items()}
    cabling = SimpleNamespace(
        ingress_of=lambda port: into.get(port.name), egress_of=lambda port: out.get(port.name)
    )
    testbed: Any = SimpleNamespace(name="bed", servers=servers, cabling=cabling)
    job: Any = SimpleNamespace(rails=2, name="job", ranks=lambda rail: (rail, rail + 2))
    switch, found = on_fabric.attachments_of(testbed, job, 1)
    assert switch == "y"
    assert found == {
        1: (Attachment(3, 30),), 3: (Attachment(4, 40), Attachment(5, 50)),
    }  # fmt: skip
    out["a1"] = ("z", 7)
    with pytest.raises(OpusError, match=r"rail 0 is on \['x', 'z'\]"):
        on_fabric.attachments_of(testbed, job, 0)
    del out["a1"]
    with pytest.raises(OpusError, match="a1 is on no optical switch"):
        on_fabric.attachments_of(testbed, job, 0)
    job.ranks = lambda rail: (rail, rail + 4)
    with pytest.raises(OpusError, match="no NIC for rank 5 of job job"):
        on_fabric.attachments_of(testbed, job, 1)


# ------------------------------------------------------------------------ announcements


class Control:
    """A control plane that notes what it hears; it grants at once, or at its word."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.at = 500
        self.clock = SimpleNamespace(event=lambda: self, now=lambda: self.at)
        groups = {"data": SimpleNamespace(dimension="d0"), "stage": SimpleNamespace(dimension="pp")}
        self.job = SimpleNamespace(groups=groups)
        self.settled: Any = None
        self.refuses: list[Exception] = []

    def set(self) -> None:
        self.heard.append("all wait")

    def wait(self) -> None:
        self.heard.append("waited")

    def announce(self, rank: int, operation: Any, settled: Any) -> None:
        if self.refuses:
            raise self.refuses.pop()
        self.heard.append(("announce", rank, operation.group, operation.index, operation.dimension))
        self.settled = settled

    def begin(self, rank: int, operation: Any) -> None:
        self.heard.append(("begin", rank, operation.group))
        if self.refuses:
            raise self.refuses.pop()

    def began(self, rank: int, operation: Any, asked: int, began: int) -> None:
        self.heard.append(("began", rank, operation.group, asked, began))

    def after(self, rank: int, operation: Any, ended: int | None = None) -> None:
        self.heard.append(("after", rank, operation.group, ended))


def wanted(group: str, index: int) -> Any:
    return SimpleNamespace(group=group, index=index)


def ranks_of(control: Control, went: list[Any]) -> Any:
    ranks: Sequence[Any] = [
        SimpleNamespace(go=lambda number, refused, rank=rank: went.append((rank, number, refused)))
        for rank in range(2)
    ]
    rails: Any = control
    return ControlledRanks(lambda *_: None, rails, ranks, lambda: {"x": circuits((1, 2))})


def test_first_operations_wait_for_all_ranks_and_then_go_by_the_rails() -> None:
    control, went = Control(), list[Any]()
    made = ranks_of(control, went)
    made.wants(1, 7, wanted("data", 3))
    assert control.heard == []
    made.wants(0, 5, wanted("stage", 2))
    assert control.heard == ["all wait"]
    made.begin()
    assert made.found == {"x": circuits((1, 2))}
    assert control.heard[1:] == [
        "waited", ("announce", 1, "data", 3, "d0"), ("announce", 0, "stage", 2, "pp"),
    ]  # fmt: skip
    control.at = 600
    control.settled()
    assert went == [(0, 5, None)]
    made.ended(0, 5)
    assert control.heard[-2:] == [("begin", 0, "stage"), ("after", 0, "stage", None)]
    control.heard.clear()
    made.wants(0, 6, wanted("data", 4))
    assert control.heard == [("announce", 0, "data", 4, "d0")]
    control.refuses = [RailsLostError("no rail is left")]
    control.settled()
    control.refuses = [LightrigError("not profiled")]
    made.wants(1, 9, wanted("data", 9))
    assert went[1:] == [(0, 6, "no rail is left"), (1, 9, "not profiled")]


def test_what_a_rank_did_itself_is_no_earlier_than_its_grant_and_not_after_now() -> None:
    control, went = Control(), list[Any]()
    made = ranks_of(control, went)
    made.wants(0, 3, wanted("stage", 0))
    made.wants(1, 0, wanted("data", 0))
    made.begin()
    control.settled()
    control.heard.clear()
    control.at = 900

    def begin(number: int, asked: Span, began: Span) -> LocalBegin:
        return LocalBegin(number, wanted("stage", number), asked, began)

    made.ran(1, [
        begin(1, Span(480, 490), Span(495, 510)), LocalEnd(1, Span(600, 640)),
        begin(2, Span(700, 710), Span(720, 730)), LocalEnd(2, Span(890, 910)),
    ])  # fmt: skip
    assert control.heard == [
        ("began", 1, "stage", 500, 500), ("after", 1, "stage", 640),
        ("began", 1, "stage", 700, 720), ("after", 1, "stage", 900),
    ]  # fmt: skip


def test_lost_ranks_begin_nothing() -> None:
    control = Control()
    made = ranks_of(control, [])
    made.lose()
    made.begin()
    assert control.heard[-1] == "waited"
    assert set(control.heard) == {"all wait", "waited"}
    assert made.found == {}
    assert not made.await_first_step()


def test_the_first_step_has_ended_once_all_ranks_have_ended_it() -> None:
    """A second one of the first rank says nothing of the other."""
    control = Control()
    made = ranks_of(control, [])
    made.stepped(0, Span(5, 6))
    made.stepped(0, Span(7, 8))
    assert control.heard == []
    made.stepped(1, Span(9, 10))
    assert control.heard == ["all wait"]
    assert made.await_first_step()
    assert made.steps == {0: [Span(5, 6), Span(7, 8)], 1: [Span(9, 10)]}


class Table:
    """A phase table of two operations before the steps, and three in each."""

    def __init__(self, whole: int = 0) -> None:
        self.whole, self.before, self.operations = range(whole), range(2), range(3)

    def at(self, position: int) -> Any:
        return SimpleNamespace(group=f"g{position}")

    def asks(self, position: int) -> bool:
        return position % 2 == 0

    def joined_at(self, position: int) -> int:
        return position + 1


def test_a_rank_decides_by_its_table() -> None:
    table: Any = Table()
    found = local_phases(table, print)
    assert found.first == [("g0", True, 1), ("g1", False, 2), ("g2", True, 3), ("g3", False, 4),
                           ("g4", True, 5)]  # fmt: skip
    assert found.then == [("g5", False, 6), ("g6", True, 7), ("g7", False, 8)]
    table = Table(whole=2)
    found = local_phases(table, print)
    assert (found.first, found.then) == ([("g0", True, 1), ("g1", False, 2)], [])


# ------------------------------------------------------------------------------ commands


def test_one_command_has_no_port_twice() -> None:
    """A change of ports that are under way waits, and so does what comes after it there."""
    first = rewire(1, circuits((1, 11)), circuits((1, 12)))
    # Ingress 11 is another port than egress 11.
    other = rewire(2, circuits((11, 1)), frozenset())
    same_egress = rewire(3, frozenset(), circuits((3, 12)))
    behind = rewire(4, circuits((3, 20)), frozenset())
    again = rewire(5, circuits((5, 15)), frozenset(), attempt=2)
    apart = rewire(6, circuits((6, 16)), frozenset())
    made = SwitchCommands()
    for each in (first, other, same_egress, behind, again, apart):
        made.add(each)
    assert made.take() == [first, other, apart]
    assert made.waiting == [same_egress, behind, again]
    # What is tried again has a command of its own.
    assert made.take() == [again]
    made.done(first)
    assert made.take() == [same_egress]
    made.done(same_egress)
    assert made.take() == [behind]
    assert made.take() == []


def test_what_is_tried_again_first_goes_alone() -> None:
    again = rewire(5, circuits((5, 15)), frozenset(), attempt=2)
    apart = rewire(6, circuits((6, 16)), frozenset())
    made = SwitchCommands()
    for each in (again, apart):
        made.add(each)
    assert (made.take(), made.take()) == ([again], [apart])


# -------------------------------------------------------------------------- ways of packets


class Ways:
    """An overlay that notes the ways of packets."""

    def __init__(self, bench: Bench) -> None:
        self.servers = dict(bench.servers)
        self.followed: list[tuple[Any, ...]] = []

    def follow(self, *routes: Any) -> None:
        self.followed.append(routes)


class Links:
    """Carriers that are back at once, and a port that is dark for the first looks."""

    def __init__(self) -> None:
        self.abandoned = False
        self.awaited: list[tuple[set[Port], int]] = []
        self.looked: list[set[Port]] = []
        self.rise: int | None = None

    def await_back(self, ports: Any, since: int) -> int | None:
        self.awaited.append((set(ports), since))
        return self.rise

    def dark(self, ports: Any) -> Any:
        self.looked.append(set(ports))
        return {} if len(self.looked) > 2 else dict.fromkeys(ports, Span(0, 0))


class Made:
    """Circuits of a job on three rails, on a simulated fabric, with stand-ins of the kernel's."""

    def __init__(self, bench: Bench) -> None:
        self.fabric, self.clock = Fabric(bench), bench.clock
        self.job = fitting_job(bench.testbed, "job")
        self.rails = FabricRails(self.fabric, self.job)
        self.ways, self.links = Ways(bench), Links()
        ways: Any = self.ways
        links: Any = self.links
        self.circuits = JobCircuits(self.rails, self.fabric, self.job, ways, links)

    def of(self, topology: Any, *rails: int) -> frozenset[Circuit]:
        return frozenset().union(*(self.rails.wirings[rail].circuits(topology) for rail in rails))

    def present(self, switch: str) -> frozenset[Circuit]:
        return frozenset(self.fabric.bench.switches[switch].circuits())

    def ends(self, switch: str, made: frozenset[Circuit]) -> set[Port]:
        links = self.fabric.links(Plan("made", {switch: made}))
        return {port for link in links for port in (link.a, link.b)}


@pytest.fixture
def made(bench: Bench) -> Made:
    return Made(bench)


def nics(routes: Any) -> set[str]:
    """Return the NICs through which packets leave."""
    return {hop.port.name.partition(".")[0] for hops in routes.values() for hop in hops.values()}


def reached(routes: Any) -> dict[str, set[str]]:
    return {server: set(hops) for server, hops in routes.items()}


ALL = {f"server{n}" for n in range(4)}


def test_a_plan_is_of_all_rails(made: Made) -> None:
    assert made.circuits.plan(DATA).circuits == {"x": made.of(DATA, 0, 2), "y": made.of(DATA, 1)}


def test_links_are_awaited_from_the_begin_of_their_change(made: Made) -> None:
    made.circuits.move(made.circuits.plan(DATA))
    began = made.clock.now()
    made.circuits.move(made.circuits.plan(PIPELINE))
    new = made.of(PIPELINE, 0, 2) - made.of(DATA, 0, 2)
    expected = made.ends("x", new) | made.ends("y", made.of(PIPELINE, 1) - made.of(DATA, 1))
    assert made.links.awaited[-1] == (expected, began)
    assert made.clock.now() > began
    assert made.present("x") == made.of(PIPELINE, 0, 2)
    made.circuits.move(made.circuits.plan(PIPELINE))
    assert made.links.awaited[-1][0] == set()


def test_all_ranks_reach_each_other_over_the_ring_of_their_rail(made: Made) -> None:
    made.circuits.ring()
    assert made.present("x") == made.of(GIANT_RING, 0, 2)
    assert made.rails.circuits()["y"] == made.of(GIANT_RING, 1)
    (routes,) = made.ways.followed
    assert [nics(each) for each in routes] == [{"nic0"}, {"nic1"}, {"nic2"}]
    assert all(reached(each) == {s: ALL - {s} for s in ALL} for each in routes)


def test_ranks_reach_their_neighbours_of_all_topologies(made: Made) -> None:
    """With two stages of two servers each: the one beside it, and the one before or behind it."""
    assert made.circuits.take(DATA) == {"x": made.of(DATA, 0, 2), "y": made.of(DATA, 1)}
    assert made.present("y") == made.of(DATA, 1)
    (routes,) = made.ways.followed
    beside = {"server0": "server1", "server2": "server3"}
    behind = {"server0": "server2", "server1": "server3"}
    pairs = {*beside.items(), *behind.items()}
    neighbours = {
        server: {b for a, b in pairs if a == server} | {a for a, b in pairs if b == server}
        for server in ALL
    }
    assert [reached(each) for each in routes] == [neighbours] * 3
    assert [nics(each) for each in routes] == [{"nic0"}, {"nic1"}, {"nic2"}]


def test_a_rail_that_is_back_on_its_ring_is_followed(made: Made) -> None:
    """Rail 2 carries what ranks of rail 0 and 2 send; those of rail 1 keep their ways."""
    made.circuits.take(DATA)
    (before,) = made.ways.followed
    made.circuits.carrier = lambda: [2, 1, 2] * 4
    stays = made.of(DATA, 0) & made.of(PIPELINE, 0)
    began = made.clock.now()
    made.circuits.apply([rewire(0, made.of(DATA, 0) - stays, made.of(PIPELINE, 0) - stays)])
    assert made.ways.followed == [before]
    assert made.links.awaited[-1] == (made.ends("x", made.of(PIPELINE, 0) - stays), began)
    ring = made.of(GIANT_RING, 2)
    made.circuits.apply([rewire(2, made.of(DATA, 2) - ring, ring)])
    first, second, third = made.ways.followed[-1]
    assert len(made.ways.followed) == 2
    assert (nics(first), second, nics(third)) == ({"nic2"}, before[1], {"nic2"})
    assert reached(first) == reached(third) == {server: ALL - {server} for server in ALL}
    assert made.present("x") == made.of(PIPELINE, 0) | ring


def test_nothing_moves_once_a_job_has_failed_until_it_is_formed_anew(made: Made) -> None:
    made.circuits.take(DATA)
    made.links.abandoned = True
    change = rewire(1, made.of(DATA, 1), made.of(GIANT_RING, 1))
    with pytest.raises(CarriersDownError, match="the job has failed"):
        made.circuits.apply([change])
    assert made.present("y") == made.of(DATA, 1)
    made.circuits.reform()
    assert not made.links.abandoned
    assert made.present("y") == made.of(GIANT_RING, 1)
    both = made.ends("x", made.of(GIANT_RING, 0, 2)) | made.ends("y", made.of(GIANT_RING, 1))
    assert made.links.looked == [both] * 3


def test_light_is_read_from_monitors_where_links_come_up_slowly(made: Made) -> None:
    """First it lies between acknowledgement and carrier; after slow links a reading bounds it."""
    made.circuits.take(DATA)
    made.links.rise = made.clock.now() + 10_000 * MS
    data, pipeline = (made.of(topology, 0) for topology in (DATA, PIPELINE))
    first = made.circuits.apply([rewire(0, data - pipeline, pipeline - data)])
    assert first.sent < first.acknowledged < first.carriers == made.links.rise
    assert first.lit == Span(first.acknowledged, first.carriers)
    second = made.circuits.apply([rewire(0, pipeline - data, data - pipeline)])
    earliest, latest = second.lit
    assert second.acknowledged <= earliest <= latest <= made.clock.now()
    made.links.rise = None  # none was seen without carrier
    third = made.circuits.apply([rewire(0, data - pipeline, pipeline - data)])
    assert third.lit == Span(third.acknowledged, third.acknowledged)
    assert third.carriers == third.acknowledged
