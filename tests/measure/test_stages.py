"""Stages of ports and circuits: the last recovery, outages as intervals, ports that rise."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.measure.moved_ports import rising_ports
from lightrig.harness.measure.reconfiguration import (
    link_stages,
    unnoticed_carriers,
    unseen_firmware,
    unseen_ports,
)
from lightrig.harness.measure.stages import (
    Flap,
    Reconfiguration,
    Seen,
    closure_rows,
    cost_rows,
    cross_check_rows,
    rows,
)
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import LinkEvent
from lightrig.instruments.simulated.world.ground_truth import GroundTruth
from lightrig.instruments.switches.polatis.session import PatchOperation
from lightrig.testbeds import Circuit, Link, Plan, Port
from lightrig.testbeds.model import OutOfService

MS = 1_000_000
PORT = Port("server0", "nic0.p0")


def ms(earliest: float, latest: float | None = None) -> Span:
    return Span(round(earliest * MS), round((earliest if latest is None else latest) * MS))


def event(stage: Any, up: bool, at: Span) -> tuple[Port, LinkEvent]:
    return PORT, LinkEvent("eth0", stage, up, at, "sysfs")


def test_a_flapping_link_has_recovered_when_it_is_up_for_good() -> None:
    changes = [
        event("carrier", False, ms(10)),
        event("carrier", True, ms(20)),
        event("carrier", False, ms(30)),
        event("carrier", True, ms(40)),
    ]
    seen = {one.stage: one.at for one in link_stages(changes)}
    assert seen == {"carrier_down": ms(10), "carrier_up": ms(40)}


def test_an_outage_is_an_interval_between_the_bounds_of_both_ends() -> None:
    seen = (
        Seen(str(PORT), "carrier_down", ms(10, 12)),
        Seen(str(PORT), "carrier_up", ms(50, 55)),
    )
    found = Reconfiguration("crossed", 1, ms(0), seen, ())
    (outage,) = found.outages()
    assert (outage.subject, outage.kind.signal, outage.length) == (str(PORT), "carrier", ms(38, 45))


def test_an_event_lasts_from_the_first_loss_to_the_last_recovery() -> None:
    seen = (
        Seen("a", "carrier_down", ms(5, 12)),  # the earliest bound lies before the command's end
        Seen("b", "carrier_down", ms(11, 14)),
        Seen("a", "carrier_up", ms(60, 61)),
        Seen("b", "carrier_up", ms(50, 55)),
    )
    found = Reconfiguration("crossed", 1, ms(5, 6), seen, ())
    assert found.stages() == {"carrier_down": ms(0, 7), "carrier_up": ms(54, 56)}


def test_every_stage_of_an_event_is_that_of_its_first_loss_or_last_recovery() -> None:
    """Of each stage b comes later at both ends; what goes counts from a, what comes from b."""
    lost, back = ("los", "datagrams_lost", "firmware_down", "carrier_down"), (
        "signal_recovered", "firmware_up", "carrier_up", "first_datagram", "acknowledged",
    )  # fmt: skip
    stages: tuple[Any, ...] = lost + back
    seen = [
        Seen(subject, stage, ms(7 * place + offset, 7 * place + 2 * offset))
        for place, stage in enumerate(stages)
        for subject, offset in (("b", 3), ("a", 1))
    ]
    found = Reconfiguration("crossed", 1, ms(0), tuple(seen), ())
    offsets = {stage: 1 if stage in lost else 3 for stage in stages}
    assert found.stages() == {
        stage: ms(7 * place + offsets[stage], 7 * place + 2 * offsets[stage])
        for place, stage in enumerate(stages)
    }
    middles = {stage: 7 * place + 1.5 * offsets[stage] for place, stage in enumerate(stages)}
    assert found.points() == {stage: round(at * MS) for stage, at in middles.items()}


class _Step:
    def __init__(self, sent: Span, received: float) -> None:
        self.sent = sent
        self._received = received

    def result(self) -> Any:
        at = round(self._received * MS)
        return SimpleNamespace(received=at, not_before=at)


def test_a_change_of_two_commands_lasts_from_the_first_to_the_last_acknowledgement() -> None:
    clock: Any = SimpleNamespace(now=lambda: 0)
    steps: Any = [_Step(ms(1, 2), 40), _Step(ms(41, 42), 80)]
    operation = PatchOperation(steps, clock)
    assert operation.sent == ms(1, 42)
    assert operation.done() == ms(80)
    assert operation.sent == ms(1, 42)


def test_only_ports_of_new_links_rise() -> None:
    kept, old, new = Circuit(1, 9), Circuit(2, 10), Circuit(2, 11)
    a, b, c, d = (Port(f"server{n}", "nic0") for n in range(4))
    links = {kept: Link(a, b), old: Link(c, b), new: Link(c, d)}
    fabric: Any = SimpleNamespace(
        links=lambda plan: frozenset(links[each] for each in plan.circuits["ocs"])
    )
    change = SimpleNamespace(keep={kept}, remove={old}, add={new})
    transition: Any = SimpleNamespace(
        changes={"ocs": change}, plan=Plan("new", {"ocs": frozenset({kept, new})})
    )
    assert rising_ports(fabric, transition) == {c, d}
    # A link that is made by the same circuits as before does not rise.
    change.add, transition.plan = {old}, Plan("same", {"ocs": frozenset({kept, old})})
    assert rising_ports(fabric, transition) == set()


@pytest.mark.parametrize("stage", ["firmware", "carrier"])
def test_the_first_loss_counts(stage: Any) -> None:
    changes = [event(stage, False, ms(10)), event(stage, False, ms(30))]
    ((_, _, at, _),) = link_stages(changes)
    assert at == ms(10)


def test_light_is_back_when_it_came_for_good_while_it_was_watched() -> None:
    """A fault takes the new light again for a while; the next event brings light to the egress."""
    truth = GroundTruth()
    for up, at in ((False, 5), (True, 26), (False, 37), (True, 137), (False, 900), (True, 930)):
        truth.note("ocs.35", "light", up=up, at=Span(at, at))
    fabric: Any = SimpleNamespace(
        bench=SimpleNamespace(truth=truth, clock=SimpleNamespace(virtual=True)),
        testbed=SimpleNamespace(name="lab", working_ports=(), out=OutOfService()),
    )

    def closed(earliest: int, latest: int) -> bool:
        seen = (Seen("ocs.35", "signal_recovered", Span(earliest, latest)),)
        event = Reconfiguration("crossed", 1, Span(0, 0), seen, (), watched={"ocs": Span(160, 160)})
        (row,) = closure_rows(event, fabric, 0)
        return row.value == 1

    assert closed(135, 156)
    assert not closed(20, 30)
    assert not closed(920, 940)


LAB: Any = SimpleNamespace(bench=SimpleNamespace(truth=None), testbed=SimpleNamespace(name="lab"))
UNEVEN = Reconfiguration(
    "crossed",
    2,
    ms(5, 6),
    (
        Seen("a.p0", "carrier_down", ms(9, 12), 10 * MS),
        Seen("b.p0", "carrier_down", ms(11, 14)),
        Seen("a.p0", "carrier_up", ms(60, 61), 90 * MS),  # clipped to its bounds
        Seen("b.p0", "carrier_up", ms(50, 55), 52 * MS),
    ),
    (),
    watched={"a": ms(200, 210), "b": ms(150, 151), "c": ms(200, 210)},
    flaps=(
        Flap("a.p0", ms(70, 71), ms(80, 84)),  # after its outage
        Flap("b.p0", ms(20, 21), ms(24, 30)),
        Flap("b.p0", ms(100, 103), None),
    ),
    before="straight",
)


def test_rows_of_an_event_by_hand() -> None:
    """The command left at 5 to 6 ms; the earliest loss and the latest recovery are the event's."""
    found = [
        (row.subject, row.quantity, row.lower, row.value, row.upper) for row in rows(UNEVEN, LAB, 3)
    ]
    in_ms = [
        (subject, quantity, *(each if each is None else each / MS for each in values))
        for subject, quantity, *values in found
    ]
    assert in_ms == [
        ("lab", "reconfiguration.carrier_down", 3, 4.5, 7),
        ("lab", "reconfiguration.carrier_up", 54, 56, 56),
        ("a.p0", "carrier_down", 3, 4.5, 7),
        ("b.p0", "carrier_down", 5, 7, 9),
        ("a.p0", "carrier_up", 54, 56, 56),
        ("b.p0", "carrier_up", 44, 46.5, 50),
        ("a.p0", "outage.carrier", 48, 50, 52),
        ("b.p0", "outage.carrier", 36, 40, 44),
        ("a.p0", "outage.flap", 9, 11.5, 14),
        ("b.p0", "outage.flap", 3, 6.5, 10),
        # Not seen to be over when watching ended, at 150 ms at the earliest.
        ("b.p0", "outage.flap", 47, 47, None),
        ("a", "watched", 194, 199.5, 205),
        ("b", "watched", 144, 145, 146),
        ("c", "watched", 194, 199.5, 205),
    ]
    every = list(rows(UNEVEN, LAB, 3))
    assert {(row.unit, row.time_ns) for row in every} == {("ns", 5 * MS)}
    known = {"event": 3, "before": "straight", "after": "crossed"}
    flaps = [row.conditions["flaps"] for row in every if row.quantity == "outage.carrier"]
    assert flaps == [0, 1]
    assert all(known.items() <= row.conditions.items() for row in every)
    assert UNEVEN.points() == {"carrier_down": 4_500_000, "carrier_up": 56 * MS}


@pytest.mark.parametrize(
    ("began", "ended", "within"),
    [
        (ms(20, 21), ms(50, 52), True),
        (ms(26, 31), ms(50, 52), True),
        (ms(26, 32), ms(50, 52), True),
        (ms(32, 40), ms(50, 52), False),
        (ms(0), ms(38, 40), True),
        (ms(0), ms(38, 39), False),
    ],
)
def test_a_flap_is_within_a_possible_interruption(began: Span, ended: Span, within: bool) -> None:
    assert Flap("p", ms(30, 31), ms(40, 44)).within(began, ended) is within
    assert not Flap("p", ms(30, 31), None).within(began, ended)


def test_a_stage_of_which_one_port_was_not_seen_is_none_of_the_event() -> None:
    """Its last port may be the one that was not seen."""
    missed = dataclasses.replace(UNEVEN, unseen=(("c.p0", "carrier_up"),))
    assert missed.stages() == {"carrier_down": ms(3, 7)}
    assert missed.points() == {"carrier_down": 4_500_000}
    found = {(row.subject, row.quantity) for row in rows(missed, LAB, 3)}
    assert ("lab", "reconfiguration.carrier_down") in found
    assert ("lab", "reconfiguration.carrier_up") not in found
    assert {("a.p0", "carrier_up"), ("b.p0", "carrier_up")} <= found


def test_a_port_that_lost_its_carrier_and_not_its_firmware_s_link_was_not_seen() -> None:
    other, third = Port("server1", "nic0.p0"), Port("server2", "nic0.p0")
    changes = [
        *(event("carrier", up, ms(10, 500)) for up in (False, True)),
        *((other, event("carrier", up, ms(10, 12))[1]) for up in (False, True)),
        (other, event("firmware", False, ms(9, 11))[1]),
        *((third, event("carrier", up, ms(10, 12))[1]) for up in (False, True)),
        (Port("server3", "nic0.p0"), event("datagram", False, ms(10, 12))[1]),
    ]
    with_rdma: Any = ("firmware", "carrier", "datagram")
    stages: Any = {PORT: with_rdma, other: with_rdma, third: ("carrier", "datagram")}
    assert unseen_firmware(changes, stages.__getitem__) == [
        ("server0.nic0.p0", "firmware_down"),
        ("server0.nic0.p0", "firmware_up"),
    ]


def test_stages_of_new_links_and_of_ports_that_were_not_read_are_unknown_unless_seen() -> None:
    other, third = Port("server1", "nic0.p0"), Port("server2", "nic0.p0")
    stages: Any = {other: ("firmware", "carrier"), third: ("carrier", "datagram")}
    seen = [
        *(Seen(str(PORT), "first_datagram", ms(90)), Seen(str(other), "carrier_down", ms(5))),
        Seen(str(other), "firmware_down", ms(4)),
    ]
    missing: Any = [(str(third), "first_datagram")]
    found = unseen_ports([third, other, PORT], [other], seen, missing, stages.__getitem__)
    assert found == [
        *(("server1.nic0.p0", "first_datagram"), ("server1.nic0.p0", "firmware_up")),
        ("server1.nic0.p0", "carrier_up"),
    ]


def test_a_port_whose_carrier_never_changed_is_unknown_only_where_others_changed() -> None:
    """Where none changed, the darkness was too short for all of them."""
    other, third = Port("server1", "nic0.p0"), Port("server2", "nic0.p0")
    light = Seen("ocs.9", "los", ms(3))
    assert unnoticed_carriers([third, other], [light], []) == []
    went = [light, Seen(str(PORT), "carrier_down", ms(5))]
    known: Any = [(str(other), "carrier_up"), (str(third), "first_datagram")]
    assert unnoticed_carriers([third, other, PORT], went, known) == [
        ("server2.nic0.p0", "carrier_down"),
        ("server2.nic0.p0", "carrier_up"),
    ]


def closed_with(*noted: tuple[str, str, bool, Span], virtual: bool = True) -> dict[str, float]:
    """Return the share of each comparison of `UNEVEN` with the ground truth that holds."""
    truth = GroundTruth()
    for subject, stage, up, at in noted:
        truth.note(subject, stage, up=up, at=at)  # type: ignore[arg-type]
    bench = SimpleNamespace(truth=truth, clock=SimpleNamespace(virtual=virtual))
    ports = [SimpleNamespace(port=port) for port in ("a.p0", "b.p0", "c.p0")]
    testbed = SimpleNamespace(name="lab", working_ports=ports, out=OutOfService())
    lab: Any = SimpleNamespace(bench=bench, testbed=testbed)
    found = list(closure_rows(UNEVEN, lab, 3))
    assert {(row.subject, row.time_ns) for row in found} <= {("lab", 5 * MS)}
    return {row.quantity.removeprefix("closure."): row.value for row in found}


def test_stages_and_outages_are_compared_with_the_truth() -> None:
    noted = [
        ("a.p0", "carrier", False, ms(11)),
        ("a.p0", "carrier", True, ms(60.5)),
        ("b.p0", "carrier", False, ms(13)),
        ("b.p0", "carrier", True, ms(56)),
    ]
    found = closed_with(*noted)
    assert found["carrier_down"] == 1
    assert found["carrier_up"] == 0.5
    assert found["outage_carrier"] == 1
    assert "latency" not in found
    assert closed_with(("a.p0", "carrier", False, ms(13)))["carrier_down"] == 0
    late = closed_with(*noted, ("harness", "written", True, ms(5.5)))
    # 5.5, 55, 7.5 and 50.5 ms after the command; the last one is later than it was seen.
    assert late["latency"] == 0.75
    # A command of another event.
    assert "latency" not in closed_with(*noted, ("harness", "written", True, ms(6.5)))


@pytest.mark.parametrize(
    ("down", "up", "shares"),
    [
        # The last carrier of the event is this port's too: 84 ... 90 ms after the command.
        ((11, 12), (90, 95), {"carrier_down": 2 / 3, "carrier_up": 2 / 4}),
        # Before the command, and too late for the watch to have seen it for certain.
        ((4, 5.5), (190, 201), {"carrier_down": 1, "carrier_up": 1}),
        ((5, 6), (160, 170), {"carrier_down": 2 / 4, "carrier_up": 2 / 4}),
    ],
)
def test_an_unseen_change_of_a_carrier_is_contained_in_nothing(
    down: tuple[float, float], up: tuple[float, float], shares: dict[str, float]
) -> None:
    """The servers of `a` and `b` have seen theirs, and that of `c` was watched until 200 ms."""
    right = [
        *(("a.p0", "carrier", False, ms(11)), ("a.p0", "carrier", True, ms(60.5))),
        *(("b.p0", "carrier", False, ms(13)), ("b.p0", "carrier", True, ms(50))),
    ]
    unseen = [("c.p0", "carrier", False, ms(*down)), ("c.p0", "carrier", True, ms(*up))]
    found = closed_with(*right, *unseen)
    assert {name: found[name] for name in shares} == pytest.approx(shares)


@pytest.mark.parametrize(("down", "up", "share"), [(70.5, 82, 1), (70.5, 85, 0), (72, 82, 0)])
def test_flaps_are_compared_with_the_truth(down: float, up: float, share: float) -> None:
    found = closed_with(
        *(("a.p0", "carrier", False, ms(11)), ("a.p0", "carrier", True, ms(60))),
        *(("a.p0", "carrier", False, ms(down)), ("a.p0", "carrier", True, ms(up))),
    )
    assert found["outage_flap"] == share


def test_delays_of_netlink_and_of_stamps_are_after_what_was_seen() -> None:
    port = Port("a", "p0")
    seen = (Seen("a.p0", "carrier_up", ms(60, 61)), Seen("a.p0", "los", ms(3)))
    event = Reconfiguration("crossed", 1, ms(5, 6), seen, ())
    announced = LinkEvent("eth0", "carrier", True, ms(62, 65), "netlink")
    before = LinkEvent("eth0", "carrier", True, ms(50, 59), "netlink")
    down = LinkEvent("eth0", "carrier", False, ms(62, 65), "netlink")
    (row,) = cross_check_rows([(port, announced), (port, before), (port, down)], event, 4)
    assert (row.lower, row.value, row.upper) == (4 * MS, 4.5 * MS, 5 * MS)
    assert (row.quantity, row.conditions) == ("harness.netlink_delay", {"event": 4})
    truth = GroundTruth()
    truth.note("a.p0", "carrier", up=True, at=ms(58, 60.5))
    for virtual, count in ((True, 0), (False, 1)):
        bench = SimpleNamespace(truth=truth, clock=SimpleNamespace(virtual=virtual))
        costs = list(cost_rows(event, SimpleNamespace(bench=bench), 4))  # type: ignore[arg-type]
        assert [(one.lower, one.value, one.upper) for one in costs] == [
            (0.5 * MS, 1.75 * MS, 3 * MS)
        ] * count
