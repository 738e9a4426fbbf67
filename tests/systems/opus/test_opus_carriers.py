"""Links that must go down and come back, as servers tell of them."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import pytest

from lightrig.harness.systems.opus.runtime import carriers as module
from lightrig.harness.systems.opus.runtime.carriers import Carriers, CarriersDownError
from lightrig.instruments.clock import Span
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.capabilities import LinkEvent, Settled
from lightrig.testbeds import Port

MS = 1_000_000
A, B = Port("server0", "nic0.p0"), Port("server1", "nic0.p0")


class SettledCarriers:
    """A server that tells of changes at moments that are known beforehand."""

    def __init__(self, clock: VirtualClock, *changes: tuple[int, bool]) -> None:
        self._clock, self._changes = clock, list(changes)
        self.watching = False

    def watch(self, ports, *, period: int, datagram_period: int | None):
        self.watching = True
        return frozenset({("fabric0", "carrier")})

    def unwatch(self) -> None:
        self.watching = False

    def settle(self, stages: Mapping[str, Sequence[str]], *, timeout: int) -> "SettledCarriers":
        self._until = self._clock.now() + timeout
        return self

    def result(self) -> Settled:
        rises = [at for at, up in self._changes if up and at <= self._until]
        self._clock.sleep(max(0, (min(rises) if rises else self._until) - self._clock.now()))
        now = self._clock.now()
        events = [change for change in self._changes if change[0] <= now]
        self._changes = [change for change in self._changes if change[0] > now]
        events = (LinkEvent("fabric0", "carrier", up, Span(at, at), "sysfs") for at, up in events)
        return Settled(tuple(events), (), (), {}, lambda: Span(0, 0))


def watched(clock: VirtualClock, **servers: SettledCarriers) -> Carriers:
    nic_ports = [SimpleNamespace(port=Port(name, "nic0.p0"), netdev="fabric0") for name in servers]
    testbed = SimpleNamespace(nic_ports=nic_ports)
    return Carriers(SimpleNamespace(clock=clock, servers=servers, testbed=testbed))


def test_every_port_has_come_up_again(clock: VirtualClock) -> None:
    a = SettledCarriers(clock, (5 * MS, False), (20 * MS, True))
    b = SettledCarriers(clock, (5 * MS, False), (30 * MS, True))
    links = watched(clock, server0=a, server1=b)
    links.await_back({A, B}, 0)
    assert clock.now() == 30 * MS
    assert [(port, event.up) for port, event in links.seen].count((A, True)) == 1
    assert (A, Span(5 * MS, 20 * MS)) in links.outages()
    links.close()
    assert not a.watching


def test_earlier_carriers_do_not_count(clock: VirtualClock) -> None:
    links = watched(
        clock, server0=SettledCarriers(clock, (5 * MS, True), (50 * MS, False), (80 * MS, True))
    )
    clock.sleep(40 * MS)
    links.await_back({A}, 40 * MS)
    assert clock.now() == 80 * MS


def test_port_without_an_observed_loss_is_not_awaited_long(clock: VirtualClock) -> None:
    watched(clock, server0=SettledCarriers(clock)).await_back({A}, 0)
    assert clock.now() == module.UNNOTICED


def test_late_wait_uses_events_from_before(clock: VirtualClock) -> None:
    links = watched(clock, server0=SettledCarriers(clock, (5 * MS, False), (20 * MS, True)))
    clock.sleep(1000 * MS)
    links.await_back({A}, 0)
    assert clock.now() == 1000 * MS


def test_a_rise_that_another_look_has_taken_counts(clock: VirtualClock) -> None:
    links = watched(clock, server0=SettledCarriers(clock, (5 * MS, False), (20 * MS, True)))
    clock.sleep(30 * MS)
    assert links.dark([A]) == {}
    links.await_back({A}, 0)
    assert clock.now() == 30 * MS
    assert links.longest == 30 * MS


def test_dark_ports_are_those_without_carrier_and_since_when(clock: VirtualClock) -> None:
    a = SettledCarriers(clock, (5 * MS, False), (20 * MS, True), (50 * MS, False), (70 * MS, True))
    links = watched(clock, server0=a, server1=SettledCarriers(clock, (60 * MS, False)))
    clock.sleep(61 * MS)
    assert links.dark([A]) == {A: Span(50 * MS, 50 * MS)}
    assert links.dark([A, B]).keys() == {A, B}
    clock.sleep(10 * MS)
    assert links.dark([A, B]) == {B: Span(60 * MS, 60 * MS)}


def test_no_link_is_awaited_once_the_job_has_failed(clock: VirtualClock) -> None:
    links = watched(clock, server0=SettledCarriers(clock, (5 * MS, False)))
    clock.schedule(400 * MS, "failure", lambda: setattr(links, "abandoned", True))
    with pytest.raises(CarriersDownError, match=r"no longer awaited: server0\.nic0\.p0$"):
        links.await_back({A}, 0)
    assert clock.now() == pytest.approx(400 * MS, abs=module.LOOK_AGAIN)


def test_a_port_that_stays_down_is_named(clock: VirtualClock) -> None:
    links = watched(
        clock, server0=SettledCarriers(clock, (5 * MS, False)), server1=SettledCarriers(clock)
    )
    with pytest.raises(CarriersDownError, match=r"within 30 s: server0\.nic0\.p0$"):
        links.await_back({A, B}, 0)
