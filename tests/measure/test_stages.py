"""Stages of ports and circuits: the last recovery, outages as intervals, ports that rise."""

from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.measure.reconfiguration import link_stages, rising_ports
from lightrig.harness.measure.stages import Reconfiguration, Seen, closure_rows
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import LinkEvent
from lightrig.instruments.simulated.world.ground_truth import GroundTruth
from lightrig.instruments.switches.polatis.session import PatchOperation
from lightrig.testbeds import Circuit, Link, Plan, Port

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
        testbed=SimpleNamespace(name="lab"),
    )

    def closed(earliest: int, latest: int) -> bool:
        seen = (Seen("ocs.35", "signal_recovered", Span(earliest, latest)),)
        event = Reconfiguration("crossed", 1, Span(0, 0), seen, (), watched={"ocs": Span(160, 160)})
        (row,) = closure_rows(event, fabric, 0)
        return row.value == 1

    assert closed(135, 156)
    assert not closed(20, 30)
    assert not closed(920, 940)
