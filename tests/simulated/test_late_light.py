"""A busy machine: light that the world's thread comes to after probes have read the ports."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lightrig.harness.bench import bind_only
from lightrig.instruments.clock import Action, Scheduled, SystemClock
from lightrig.instruments.core.capabilities import PendingSettlement, PortWatch, Server
from lightrig.instruments.simulated.lab import SimulatedLab
from lightrig.testbeds import Circuit, Port, load
from lightrig.testbeds.readdressing import readdressed

LAB = """
name: late
switches:
  ocs: {model: polatis, address: tl1://ocs.invalid, size: 2x2}
servers:
  gpu[0-1]:
    address: ssh://bench@{name}.invalid
    nics:
      nic0: {netdev: ens0, rate: 100G, transceiver: qsfp28-lr4}
transceivers:
  qsfp28-lr4:
    wavelength: 1310 nm
    launch: {min: 0 dBm, max: 4 dBm}
    receive: {min: -10 dBm, max: 4 dBm}
fibers:
  - gpu[0-1].nic0 <-> ocs
simulation:
  switches:
    ocs: {acknowledge: {mean: 1 ms}, settle: {mean: 8 ms}, dark: {mean: 8 ms}, loss: {mean: 1 dB}}
  nic: {bring_up: {mean: BRING_UP}, carrier: {mean: 0.1 ms}, loss_detection: {mean: 0.1 ms}}
"""
LOGIN, MS = "LIGHTRIG_SERVED", 1_000_000
JOINED = Circuit(1, 4), Circuit(2, 3)
"""gpu0's light to gpu1 and back."""


class BusyClock(SystemClock):
    """A clock whose thread can be stopped; it tells when a server's actions are scheduled."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Semaphore(0)

    def schedule(self, at: int, owner: str, action: Action) -> Scheduled:
        due = super().schedule(at, owner, action)
        if owner == "gpu0":
            self.asked.release()
        return due

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Let nothing happen meanwhile, as on a machine that has other work."""
        reached, over = threading.Event(), threading.Event()

        def stop() -> None:
            reached.set()
            over.wait()

        super().schedule(self.now(), "", stop)
        reached.wait()
        try:
            yield
        finally:
            over.set()

    def pass_by(self, ns: int) -> None:
        """Let time pass."""
        until = self.now() + ns
        while self.now() < until:
            pass


class Late:
    """A served lab, its clock, and a session with its first server, which watches its port."""

    def __init__(self, world: SimulatedLab, clock: BusyClock, server: Server) -> None:
        self.world, self.clock, self.server = world, clock, server
        self.up = bool(server.watch([PortWatch("ens0")], period=MS, datagram_period=None))

    def ask(self) -> PendingSettlement:
        """Ask for what was seen; the question has arrived when this returns."""
        while self.clock.asked.acquire(blocking=False):
            pass
        pending = self.server.settle({}, timeout=0)
        self.clock.asked.acquire()
        return pending

    def take(self, pending: PendingSettlement) -> None:
        """Note the state after the events of an answer."""
        for event in pending.result().events:
            self.up = event.up


@pytest.fixture
def late(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Late]:
    monkeypatch.setenv("LIGHTRIG_STATE", str(tmp_path / "state"))
    file, served, known = (tmp_path / n for n in ("late.yaml", "served.yaml", "known_hosts"))
    file.write_text(LAB.replace("BRING_UP", request.param))
    with contextlib.ExitStack() as stack:
        clock = BusyClock()
        stack.callback(clock.close)
        drawn = load(file)
        world = stack.enter_context(contextlib.closing(SimulatedLab(drawn, clock, 1)))
        monkeypatch.setenv(LOGIN, ":".join(world.login))
        known.write_text("".join(f"{each.known_hosts}\n" for each in world.services.values()))
        addresses = {name: each.address for name, each in world.services.items()}
        served.write_text(
            readdressed(file, addresses, login=f"env:{LOGIN}", known_hosts=known, target=served)
        )
        bench = stack.enter_context(
            contextlib.closing(bind_only(load(served), {"gpu0"}, "a test of late light"))
        )
        yield Late(world, clock, bench.servers["gpu0"])


@pytest.mark.parametrize("late", ["2 ms"], indirect=True)
def test_a_link_that_comes_while_the_world_is_late_is_reported(late: Late) -> None:
    with late.clock.stopped():
        asked = late.ask()
        late.world.matrices["ocs"].connect(JOINED)
        late.clock.pass_by(20 * MS)  # by when the link would have come
    late.take(asked)
    came = late.server.settle({"ens0": ["carrier"]}, timeout=5_000 * MS).result()
    assert (came.missing, [event.up for event in came.events]) == ((), [True])


@pytest.mark.parametrize("late", ["300 ms"], indirect=True)
def test_a_link_that_is_lost_while_the_world_is_late_does_not_stay_up(late: Late) -> None:
    with late.clock.stopped():
        late.world.matrices["ocs"].connect(JOINED)
        late.clock.pass_by(9 * MS)  # the light has come
        asked = late.ask()
        late.clock.pass_by(9 * MS)
        late.world.cut(Port("gpu0", "nic0"), 60_000 * MS)
        late.clock.pass_by(400 * MS)  # by when the link would have come
    late.take(asked)
    late.take(late.ask())
    assert not late.up
