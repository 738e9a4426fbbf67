"""Links that are lost while ranks train, by carriers that are known beforehand."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

from lightrig.harness.systems.opus.runtime.link_watch import LinkLostError, LinkWatch
from lightrig.instruments.clock import Span
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.testbeds import Cabling, Circuit, Fiber, Port

MS = 1_000_000
A, B, C = (Port(f"server{number}", "nic0.p0") for number in range(3))
FIBERS = [
    fiber
    for number, port in enumerate((A, B, C), 1)
    for fiber in (Fiber(port, Port("ocs", str(number))), Fiber(Port("ocs", str(10 + number)), port))
]
CABLING = Cabling(tuple(FIBERS), frozenset({"ocs"}))
PAIR = frozenset({Circuit(1, 12), Circuit(2, 11)})
"""A with B; C is joined with no port."""


class DarkCarriers:
    """Carriers of ports that are dark from a moment to another, in ms."""

    def __init__(self, clock: VirtualClock, *dark: tuple[Port, int, int], longest: int) -> None:
        self._clock, self._dark, self.longest = clock, dark, longest * MS

    def dark(self, ports: Collection[Port]) -> Mapping[Port, Span]:
        now = self._clock.now()
        return {
            port: Span(begin * MS - MS, begin * MS)
            for port, begin, end in self._dark
            if port in ports and begin * MS <= now < end * MS
        }


def watch(
    clock: VirtualClock,
    *dark: tuple[Port, int, int],
    longest: int = 40,
    until: int = 60_000,
    changes: Sequence[tuple[int, frozenset[Circuit]]] = ((0, PAIR),),
    late: int = 0,
) -> None:
    """Watch until then; circuits are those of the last change, each from its moment on, in ms."""

    def circuits() -> Mapping[str, frozenset[Circuit]]:
        return {"ocs": [each for at, each in changes if at * MS <= clock.now()][-1]}

    carriers: Any = DarkCarriers(clock, *dark, longest=longest)
    over = clock.event()
    clock.schedule(until * MS, "end", over.set)
    LinkWatch(clock, carriers, CABLING, circuits, lambda: late * MS).run(over)


def test_a_link_without_carrier_is_named_with_its_circuits(clock: VirtualClock) -> None:
    with pytest.raises(LinkLostError) as caught:
        watch(clock, (B, 1030, 60_000), (A, 1033, 60_000))
    link = caught.value.link
    assert (link.port, link.partner) == (B, A)
    assert link.circuits == ("ocs 1>12", "ocs 2>11")
    # Looked at each 200 ms: seen at 1,200, lost 2 s later.
    assert clock.now() == 3200 * MS
    assert link.lasting == (3200 - 1030) * MS
    text = str(caught.value)
    assert "server1.nic0.p0 has no carrier: its link with server0.nic0.p0 is lost" in text
    assert "away for 2.170 s; changes of circuits took at most 0.040 s" in text


def test_dips_are_no_loss(clock: VirtualClock) -> None:
    """Each of 1.9 s, one right after the other, at every look."""
    watch(clock, (A, 1010, 2910), (A, 2950, 4850), (A, 4890, 6790))


def test_a_port_that_no_circuit_lights_is_not_in_use(clock: VirtualClock) -> None:
    watch(clock, (C, 100, 60_000))


def test_a_port_counts_from_when_a_circuit_leads_to_it(clock: VirtualClock) -> None:
    """C has been dark for 30 s when a circuit lights it, and then comes up in 1.5 s."""
    changes = [(0, PAIR), (30_000, frozenset({Circuit(1, 13), Circuit(3, 11)}))]
    watch(clock, (C, 100, 31_500), changes=changes)


def test_slow_firmware_has_twice_its_longest_time(clock: VirtualClock) -> None:
    """A change has taken 6 s: a dip of 11 s is none, one that lasts is a loss after 12 s."""
    watch(clock, (A, 0, 11_000), longest=6000, until=20_000)
    with pytest.raises(LinkLostError):
        watch(clock, (A, 21_000, 90_000), longest=6000, until=90_000)
    assert clock.now() == pytest.approx(33_200 * MS, abs=200 * MS)


def test_a_simulation_that_is_behind_its_light_is_waited_for(clock: VirtualClock) -> None:
    """By 7 s: a port that comes up within 9 s is not lost."""
    watch(clock, (A, 1010, 9900), late=7000, until=20_000)


def test_no_time_counts_while_a_command_changes_the_circuit(clock: VirtualClock) -> None:
    """For 3.5 s a silent switch leaves it dark, and for 1.6 s its link comes up."""
    changes = [(0, PAIR), (1000, frozenset[Circuit]()), (4500, PAIR)]
    watch(clock, (A, 1010, 6100), changes=changes)
