"""One server's selection step by step: what is on disk, when switches are done, which light counts.

The switches and the server are stand-ins that answer at moments known beforehand, in virtual time.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.bench.saved_state import SavedStates
from lightrig.harness.systems.acos.runtime.selection import (
    CollectiveTimeoutError,
    NoLinkError,
    NumberedCollectives,
    TopologySelector,
)
from lightrig.instruments.clock import Span
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.capabilities import LinkEvent, Settled
from lightrig.testbeds import Circuit, Testbed, load

MS, SECOND = 1_000_000, 1_000_000_000
TP, DP = "tp8-dp2-on-tp", "tp8-dp2-on-dp"
SENT = {0: Span(40, 70), 1: Span(10, 90), 2: Span(50, 60), 3: Span(30, 80)}
"""When commands to four switches were written, from their change on: the second ends last."""

DONE = {0: Span(5, 500), 1: Span(9, 900), 2: Span(2, 700), 3: Span(3, 300)}


@pytest.fixture(scope="module")
def testbed() -> Testbed:
    return load(Path("testbeds/acos.yaml"))


class Switch:
    def __init__(self, name: str, clock: Any, number: int, log: list[Any]) -> None:
        self.name, self.clock, self.number, self.log = name, clock, number, log
        self.present: frozenset[Circuit] = frozenset()

    def change(self, remove: Collection[Circuit], add: Collection[Circuit]) -> Any:
        assert not remove
        self.log.append(("change", self.name))
        self.present = frozenset(add)
        now, sent, done = self.clock.now(), SENT[self.number], DONE[self.number]
        return SimpleNamespace(
            sent=Span(now + sent.earliest, now + sent.latest),
            done=lambda: Span(now + done.earliest, now + done.latest),
        )

    def circuits(self) -> frozenset[Circuit]:
        return self.present


class Nics:
    """A server whose ports change carrier at moments known beforehand."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.changes: list[tuple[int, str, bool]] = []
        self.lit: set[str] = set()

    def watch(self, ports: Any, **_: Any) -> frozenset[tuple[str, str]]:
        return frozenset((name, "carrier") for name in self.lit)

    def settle(self, wanted: Mapping[str, Sequence[str]], *, timeout: int) -> Any:
        until = self.clock.now() + timeout
        rises = [at for at, name, up in self.changes if up and name in wanted and at <= until]
        self.clock.sleep(max(0, (min(rises) if rises else until) - self.clock.now()))
        now = self.clock.now()
        heard = [each for each in self.changes if each[0] <= now]
        self.changes = [each for each in self.changes if each[0] > now]
        events = tuple(LinkEvent(n, "carrier", up, Span(at, at), "sysfs") for at, n, up in heard)
        return SimpleNamespace(result=lambda: Settled(events, (), (), {}, lambda: Span(0, 0)))


class Step:
    """The selector of gpu3, with its four switches and its ports."""

    def __init__(self, testbed: Testbed, clock: VirtualClock, lit: Collection[str] = ()) -> None:
        self.log: list[Any] = []
        self.clock, self.nics = clock, Nics(clock)
        self.netdevs = [spec.netdev for spec in testbed.nic_ports if spec.port.owner == "gpu3"]
        self.nics.lit = set(lit)
        names = [f"{side}-gpu3-lane{lane}" for lane in (0, 1) for side in ("tx", "rx")]
        switches = {
            name: Switch(name, clock, number, self.log) for number, name in enumerate(names)
        }
        fabric: Any = SimpleNamespace(
            testbed=testbed,
            bench=SimpleNamespace(clock=clock, servers={"gpu3": self.nics}, switches=switches),
            plans=testbed.plans,
            links=lambda plan: frozenset(testbed.links(plan)),
            note_selection=lambda name, circuits: self.log.append(("note", name)),
        )
        self.names = names
        self.selector = TopologySelector(fabric, "gpu3", link_timeout_ns=2 * SECOND)

    def joined(self, testbed: Testbed, plan: str) -> list[str]:
        ends = {port for link in testbed.links(plan) for port in (link.a, link.b)}
        return [spec.netdev for spec in testbed.nic_ports
                if spec.port.owner == "gpu3" and spec.port in ends]  # fmt: skip


def test_a_selection_is_noted_before_any_switch_moves(
    testbed: Testbed, clock: VirtualClock
) -> None:
    step = Step(testbed, clock)
    step.nics.changes = [(20 * MS, netdev, True) for netdev in step.netdevs]
    step.selector.select(TP, 0)
    assert step.log == [
        *(("note", name) for name in step.names),
        *(("change", name) for name in step.names),
    ]
    step.selector.select(TP, 1)
    assert len(step.log) == 8


def test_a_selection_is_sent_and_done_by_all_its_switches(
    testbed: Testbed, clock: VirtualClock
) -> None:
    """Written from 10 to 90; the last switch, the second, has acknowledged from 9 to 900."""
    step = Step(testbed, clock)
    step.nics.changes = [(20 * MS, netdev, True) for netdev in step.netdevs]
    assert step.selector.select(TP, 0) == (Span(10, 90), Span(9, 900))


def test_light_that_goes_again_is_awaited_again(testbed: Testbed, clock: VirtualClock) -> None:
    """One neighbour's light comes at 20 ms, goes at 25 ms and comes again at 300 ms."""
    step = Step(testbed, clock)
    first, *others = step.joined(testbed, TP)
    assert others
    step.nics.changes = [
        (20 * MS, first, True), (25 * MS, first, False),
        *((200 * MS, netdev, True) for netdev in others),
        (300 * MS, first, True),
    ]  # fmt: skip
    step.selector.select(TP, 0)
    assert clock.now() == 300 * MS


def test_light_of_before_the_change_counts_once_it_would_have_been_missed(
    testbed: Testbed, clock: VirtualClock
) -> None:
    """A port that has kept its carrier is waited for until 100 ms after the first command."""
    step = Step(testbed, clock)
    step = Step(testbed, clock, lit=step.joined(testbed, TP))
    step.selector.select(TP, 0)
    assert clock.now() == 100 * MS + 10


def test_a_neighbour_without_light_is_named_after_the_time_for_links(
    testbed: Testbed, clock: VirtualClock
) -> None:
    step = Step(testbed, clock)
    first, *others = step.joined(testbed, TP)
    step.nics.changes = [(20 * MS, netdev, True) for netdev in others]
    with pytest.raises(NoLinkError, match=r"no link after 2 s: gpu3\.\S+ from gpu\d+\.\S+; its"):
        step.selector.select(TP, 5)
    assert clock.now() == 2 * SECOND + 10
    step.nics.changes = [(clock.now() + 20 * MS, first, True)]
    step.nics.lit = set(others)
    step.selector.select(TP, 6)  # it was not selected


def test_a_selection_is_restored_by_another_process(testbed: Testbed, tmp_path: Path) -> None:
    """A process that is killed after its selection: what is on disk leads back."""
    bench = bind(testbed, "simulated", 1)
    try:
        fabric = Fabric(bench, SavedStates(tmp_path))
        selector = TopologySelector(fabric, "gpu3", link_timeout_ns=SECOND)
        found = {name: bench.switches[name].circuits() for name in selector.switches}
        fabric.apply(testbed.plans[TP])
        with pytest.raises(NoLinkError):  # no other server selects it
            selector.select(DP, 0)
        moved = {name: bench.switches[name].circuits() for name in selector.switches}
        other = Fabric(bench, SavedStates(tmp_path))
        other.save_initial_state()
        other.restore()
        after = {name: bench.switches[name].circuits() for name in selector.switches}
    finally:
        bench.close()
    assert moved == {name: testbed.plans[DP].circuits[name] for name in selector.switches}
    assert after == found != moved


def test_a_member_waits_for_the_others_as_long_as_is_stated(clock: VirtualClock) -> None:
    made = NumberedCollectives(
        clock, {TP: [frozenset({"gpu1", "gpu2", "gpu3"})]}, lambda *_: None, timeout_ns=3 * SECOND
    )
    with pytest.raises(CollectiveTimeoutError, match=r"gpu3 waited 3 s .* for gpu1, gpu2: is"):
        made.join("gpu3", 4, TP)
    assert clock.now() == 3 * SECOND


def test_a_collective_begins_when_its_last_member_joins(clock: VirtualClock) -> None:
    """Members join after 5, 9 and 2 ms, and the operation takes 4 ms."""
    ran: list[Any] = []

    def operation(group: frozenset[str], number: int, topology: str) -> None:
        ran.append((sorted(group), number, topology, clock.now()))
        clock.sleep(4 * MS)

    made = NumberedCollectives(clock, {TP: [frozenset({"a", "b", "c"})]}, operation)
    began: dict[str, tuple[int, int]] = {}

    def member(name: str, after: int) -> Any:
        def joins() -> None:
            clock.sleep(after * MS)
            began[name] = made.join(name, 7, TP), clock.now()

        return joins

    clock.parallel(member("a", 5), member("b", 9), member("c", 2))
    assert ran == [(["a", "b", "c"], 7, TP, 9 * MS)]
    assert began == dict.fromkeys("abc", (9 * MS, 13 * MS))
