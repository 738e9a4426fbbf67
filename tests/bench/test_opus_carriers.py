"""Links that must go down and come back, as servers tell of them."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import pytest

from harness.bench.opus import carriers as module
from harness.bench.opus.carriers import Carriers, CarriersDownError
from instruments.capabilities import LinkEvent, Settled
from instruments.clock import Span
from instruments.virtual_clock import VirtualClock
from testbeds import Port

MS = 1_000_000
A, B = Port("server0", "nic0.p0"), Port("server1", "nic0.p0")


class Told:
    """A server that tells of changes at moments that are known beforehand."""

    def __init__(self, clock: VirtualClock, *changes: tuple[int, bool]) -> None:
        self._clock, self._changes = clock, list(changes)
        self.watching = False

    def watch(self, ports, *, period: int, datagram_period: int | None):
        self.watching = True
        return frozenset({("fabric0", "carrier")})

    def unwatch(self) -> None:
        self.watching = False

    def settle(self, stages: Mapping[str, Sequence[str]], *, timeout: int) -> "Told":
        self._until = self._clock.now() + timeout
        return self

    def result(self) -> Settled:
        rises = [at for at, up in self._changes if up and at <= self._until]
        self._clock.sleep(max(0, (min(rises) if rises else self._until) - self._clock.now()))
        now = self._clock.now()
        told = [change for change in self._changes if change[0] <= now]
        self._changes = [change for change in self._changes if change[0] > now]
        events = (LinkEvent("fabric0", "carrier", up, Span(at, at), "sysfs") for at, up in told)
        return Settled(tuple(events), (), (), {})


@pytest.fixture
def clock():
    clock = VirtualClock()
    yield clock
    clock.close()


def watched(clock: VirtualClock, **servers: Told) -> Carriers:
    nic_ports = [SimpleNamespace(port=Port(name, "nic0.p0"), netdev="fabric0") for name in servers]
    testbed = SimpleNamespace(nic_ports=nic_ports)
    return Carriers(SimpleNamespace(clock=clock, servers=servers, testbed=testbed))


def test_every_port_has_come_up_again(clock: VirtualClock) -> None:
    a = Told(clock, (5 * MS, False), (20 * MS, True))
    b = Told(clock, (5 * MS, False), (30 * MS, True))
    links = watched(clock, server0=a, server1=b)
    links.await_back({A, B}, 0)
    assert clock.now() == 30 * MS
    assert [(port, event.up) for port, event in links.seen].count((A, True)) == 1
    assert (A, Span(5 * MS, 20 * MS)) in links.outages()
    links.close()
    assert not a.watching


def test_what_came_up_before_does_not_count(clock: VirtualClock) -> None:
    links = watched(clock, server0=Told(clock, (5 * MS, True), (50 * MS, False), (80 * MS, True)))
    clock.sleep(40 * MS)
    links.await_back({A}, 40 * MS)
    assert clock.now() == 80 * MS


def test_a_port_that_nobody_saw_go_down_is_not_waited_for_long(clock: VirtualClock) -> None:
    watched(clock, server0=Told(clock)).await_back({A}, 0)
    assert clock.now() == module.UNNOTICED


def test_a_wait_that_begins_late_ends_with_what_was_told_meanwhile(clock: VirtualClock) -> None:
    links = watched(clock, server0=Told(clock, (5 * MS, False), (20 * MS, True)))
    clock.sleep(1000 * MS)
    links.await_back({A}, 0)
    assert clock.now() == 1000 * MS


def test_a_port_that_stays_down_is_named(clock: VirtualClock) -> None:
    links = watched(clock, server0=Told(clock, (5 * MS, False)), server1=Told(clock))
    with pytest.raises(CarriersDownError, match=r"within 30 s: server0\.nic0\.p0$"):
        links.await_back({A, B}, 0)
