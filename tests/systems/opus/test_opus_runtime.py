"""Opus at run time: what ranks announce, circuits of several rails, and ways of packets."""

from collections import deque
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.systems.opus.planning.operations import OpusError
from lightrig.harness.systems.opus.planning.wiring import Attachment
from lightrig.harness.systems.opus.runtime import on_fabric, rails, training
from lightrig.harness.systems.opus.runtime.carriers import Carriers
from lightrig.harness.systems.opus.runtime.controlled_ranks import ControlledRanks, local_phases
from lightrig.harness.systems.opus.runtime.on_fabric import FabricRails, fitting_job
from lightrig.harness.systems.opus.runtime.rails import RailsLostError
from lightrig.harness.systems.opus.runtime.training import TrainingJob
from lightrig.instruments.clock import Span
from lightrig.instruments.jobs.traffic.training import LocalBegin, LocalEnd
from lightrig.testbeds import Circuit, LightrigError, Plan, Port


def circuits(*pairs: tuple[int, int]) -> frozenset[Circuit]:
    return frozenset(Circuit(*pair) for pair in pairs)


# ------------------------------------------------------------------------------ carriers


def test_outages_last_from_the_loss_to_the_light() -> None:
    """Of a port that was lit before, and one that is dark at the end."""
    a, b = Port("s0", "a"), Port("s1", "a")
    made: Any = object.__new__(Carriers)
    made.seen = [
        (port, SimpleNamespace(up=up, at=Span(*at)))
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


class Wired:
    """The wiring of a rail: its circuits in each topology, and its ports."""

    def __init__(self, ports: tuple[set[int], set[int]], **of: frozenset[Circuit]) -> None:
        self.of, self._ports = of, ports
        self.giant_ring = of.get("ring", frozenset())

    def circuits(self, topology: str) -> frozenset[Circuit]:
        return self.of[topology]

    def ports(self) -> tuple[frozenset[int], frozenset[int]]:
        return frozenset(self._ports[0]), frozenset(self._ports[1])


FIRST = Wired(({1, 2}, {3}), t=circuits((1, 3)), ring=circuits((2, 3)))
SECOND = Wired(({5}, {6, 7}), t=circuits((5, 6)), ring=circuits((5, 7)))
OTHER = Wired(({1}, {2}), t=circuits((1, 2)), ring=circuits((1, 9)))


def rails_of(applied: list[Any], settled: list[Any] | None = None) -> Any:
    """Rails 0 and 2 are on one switch, rail 1 on another."""
    settled = [] if settled is None else settled
    made: Any = object.__new__(FabricRails)

    def apply(plan: Plan) -> None:
        settled.append(made.settled())
        applied.append({name: sorted(each) for name, each in plan.circuits.items()})

    made._fabric = SimpleNamespace(apply=apply)
    made.switches, made.wirings, made._circuits = ["x", "y", "x"], [FIRST, OTHER, SECOND], {}
    made._moving = {}
    return made


def rewire(rail: int, remove: frozenset[Circuit], add: frozenset[Circuit], version: int = 1) -> Any:
    return SimpleNamespace(rail=rail, remove=remove, add=add, version=version)


def test_rails_that_share_a_switch_are_set_together_and_rewired_apart() -> None:
    applied: list[Any] = []
    made = rails_of(applied)
    made.set("t")
    assert applied == [{"x": sorted(circuits((1, 3), (5, 6))), "y": sorted(circuits((1, 2)))}]
    made.apply([rewire(0, circuits((1, 3)), circuits((2, 3)))])
    assert applied[1] == {"x": sorted(circuits((2, 3), (5, 6)))}
    made.apply([rewire(0, circuits((2, 3)), circuits((1, 3))),
                rewire(2, circuits((5, 6)), circuits((5, 7)))])  # fmt: skip
    assert made.circuits() == {"x": circuits((1, 3), (5, 7)), "y": circuits((1, 2))}
    assert made.cabled_ports() == {"x": ({1, 2, 5}, {3, 6, 7}), "y": ({1}, {2})}
    with pytest.raises(ValueError, match="too many values"):
        made.apply([rewire(0, frozenset(), frozenset()), rewire(1, frozenset(), frozenset())])


def test_circuits_are_settled_where_no_command_changes_their_ports() -> None:
    """Rail 2's change touches ingress 5 alone; after it all circuits are settled."""
    settled: list[Any] = []
    made = rails_of([], settled)
    made.set("t")
    made.apply([rewire(2, circuits((5, 6)), circuits((5, 7)))])
    assert settled == [{}, {"x": circuits((1, 3)), "y": circuits((1, 2))}]
    assert (
        made.settled() == made.circuits() == {"x": circuits((1, 3), (5, 7)), "y": circuits((1, 2))}
    )


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
    made._begun = True
    made.wants(1, 0, wanted("data", 0))
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
    assert (control.heard, made.found) == (["all wait", "waited"], {})


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

    def change(name: str, remove: Any, add: Any, attempt: int = 1) -> Any:
        return SimpleNamespace(name=name, remove=remove, add=add, attempt=attempt)

    first = change("first", circuits((1, 11)), circuits((1, 12)))
    assert rails._ports(first) == {("ingress", 1), ("egress", 11), ("egress", 12)}
    # Ingress 11 is another port than egress 11.
    other = change("other", circuits((11, 1)), frozenset())
    same_egress = change("same egress", frozenset(), circuits((3, 12)))
    behind = change("behind", circuits((3, 20)), frozenset())
    again = change("again", circuits((5, 15)), frozenset(), attempt=2)
    apart = change("apart", circuits((6, 16)), frozenset())
    made: Any = object.__new__(rails.Rails)
    made._doing = {"x": []}
    made._todo = {"x": deque([first, other, same_egress, behind, again, apart])}

    def taken() -> list[str]:
        return [each.name for each in made._take("x")]

    assert taken() == ["first", "other", "apart"]
    assert [each.name for each in made._todo["x"]] == ["same egress", "behind", "again"]
    # What is tried again has a command of its own.
    assert taken() == ["again"]
    made._doing["x"].remove(first)
    assert taken() == ["same egress"]
    made._doing["x"].remove(same_egress)
    assert taken() == ["behind"]
    assert taken() == []


# -------------------------------------------------------------------------- ways of packets


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Any:
    made: Any = object.__new__(TrainingJob)
    made.asked = []
    made.on_fabric = rails_of(made.asked)
    made.job = SimpleNamespace(
        rails=3, stages=2, rail_of=[0, 1, 2, 0, 1, 2],
        groups={"a": SimpleNamespace(dimension="t"), "b": SimpleNamespace(dimension="ring")},
    )  # fmt: skip
    made.clock = SimpleNamespace(at=70)
    made.clock.now = lambda: made.clock.at
    ends = {
        Circuit(1, 3): ("a", "b"),
        Circuit(2, 3): ("c", "b"),
        Circuit(5, 6): ("d", "e"),
        Circuit(5, 7): ("d", "f"),
    }

    def links(plan: Plan) -> list[Any]:
        return [
            SimpleNamespace(a=Port("s", ends[each][0]), b=Port("s", ends[each][1]))
            for found in plan.circuits.values()
            for each in sorted(found)
        ]

    made.fabric = SimpleNamespace(bench=SimpleNamespace(clock=made.clock), links=links)
    made._overlay = SimpleNamespace(
        servers={"s0": 0, "s1": 0}, follow=lambda *routes: made.asked.append(("follow", *routes))
    )
    made._carriers = SimpleNamespace(
        abandoned=False,
        await_back=lambda ports, since: made.asked.append((sorted(p.name for p in ports), since)),
    )

    def shortest(servers: list[str], found: list[Any]) -> Any:
        assert servers == ["s0", "s1"]
        return {"s0": {each.a.name: each.b.name for each in found}}

    monkeypatch.setattr(training, "shortest_routes", shortest)
    monkeypatch.setattr(training, "GIANT_RING", "ring")
    monkeypatch.setattr(
        training, "TopologyId", SimpleNamespace(uniform=lambda stages, dimension: dimension)
    )
    return made


def test_plans_and_ways_are_of_all_rails(job: Any) -> None:
    assert job._plan("t").circuits == {"x": circuits((1, 3), (5, 6)), "y": circuits((1, 2))}
    assert job._rail_routes(2, "ring") == {"s0": {"d": "f"}}
    assert job._hops_by_server(0) == {"s0": {"a": "b", "c": "b"}, "s1": {}}


def test_links_are_awaited_from_the_begin_of_their_change(job: Any) -> None:
    transition = SimpleNamespace(
        changes={"x": SimpleNamespace(add=circuits((1, 3)), remove=circuits((5, 6)))},
        begin=lambda: setattr(job.clock, "at", 80), acknowledged=lambda: job.asked.append("done"),
        verify=lambda: job.asked.append("read"),
    )  # fmt: skip
    job.fabric.prepare = lambda plan: plan == "plan" and transition
    job._move("plan")
    assert job.asked == ["done", "read", (["a", "b"], 70)]


def test_a_rail_that_is_back_on_its_ring_is_followed(job: Any) -> None:
    """Rail 2 carries what ranks of rail 0 and 2 send; the others keep their ways."""
    job._rails = SimpleNamespace(controller=SimpleNamespace(carrier=[2, 1, 2, 2, 1, 2]))
    job._routes = ["r0", "r1", "r2"]
    job.on_fabric.set("t")
    job.asked.clear()
    job._apply([rewire(0, circuits((1, 3)), circuits((1, 3)))])
    assert job.asked[1:] == [(["a", "b"], 70)]
    job.asked.clear()
    job._apply([rewire(2, circuits((5, 6)), circuits((5, 7)))])
    ring = {"s0": {"d": "f"}}
    assert job.asked[1:] == [("follow", ring, "r1", ring), (["d", "f"], 70)]
