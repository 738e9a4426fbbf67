"""Recorded sessions of every driver: what was asked, what was answered, what was learnt of it.

Run as a program it records the simulated instruments anew.
"""

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from driver_cases import NAME, Case, Rig, cases

from instruments.clock import Clock
from instruments.registry import driver
from instruments.simulated.peer_server import PeerServer
from instruments.simulated.replay_peer import REPLAYED, ReplayPeer
from instruments.simulated.services import serve
from instruments.transcript import read
from instruments.virtual_clock import VirtualClock
from instruments.way import Way
from instruments.wire.recording import record
from testbeds import Circuit, load

FOLDER = Path(__file__).parents[1] / "transcripts"
SETTLED = 1_000_000_000
"""After so long a switch that was just powered up has come to rest."""
LOGIN = ("bench", "a password that is in no recording")


def script(case: Case, instrument: Any, clock: Clock) -> Iterator[str]:
    """What a driver is asked in a recording, and what it says."""
    yield str(instrument.identity())
    if case.kind != "switches":
        yield repr(case.question(instrument)())
        return
    before = instrument.circuits()
    yield repr(sorted(before))
    inputs, outputs = map(int, case.size.split("x"))
    standing = {circuit for circuit in before if circuit.ingress == 1}
    free = set(range(inputs + 1, inputs + outputs + 1)) - {each.egress for each in before}
    wanted = Circuit(1, min(free))
    clock.sleep(SETTLED)
    instrument.change(standing, {wanted}).done()
    after = instrument.circuits()
    assert wanted in after
    yield repr(sorted(after))


def write(case: Case, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Record a session with the simulated instrument."""
    target = FOLDER / case.model / f"{case.scheme}.jsonl"
    recorders = []

    def begin(clock: VirtualClock) -> None:
        recorders.append(record(clock, folder / "traces"))

    rig = Rig(case, folder, patch, begin)
    learnt = list(script(case, rig.driver, rig.bench.clock))
    recorders[0].describe(
        NAME,
        model=case.model,
        wire=case.address,
        identity=learnt[0],
        learnt=json.dumps(learnt),
    )
    recorders[0].close()
    rig.bench.close()
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes((folder / "traces" / f"{NAME}.jsonl").read_bytes())


@contextlib.contextmanager
def replayed(
    path: Path, case: Case, folder: Path, unknown: Callable[[bytes], None]
) -> Iterator[tuple[Any, Clock]]:
    """The case's driver on the instrument that was recorded in `path`, and its clock."""
    file = folder / "one.yaml"
    file.write_text(case.file)
    testbed = load(file)
    clock = VirtualClock(patience=20)
    server = PeerServer(clock)
    peer = ReplayPeer(read(path), clock, unknown)
    service = serve(peer.name, peer, peer.scheme, server, LOGIN, resource=peer.resource)
    known_hosts = folder / "known_hosts"
    known_hosts.write_text(service.known_hosts + "\n")
    way = Way(
        service.scheme,
        service.host,
        service.port or None,
        LOGIN,
        known_hosts=known_hosts,
        resource=service.resource,
    )
    spec = testbed.switches.get(NAME) or testbed.instruments[NAME]
    instrument = driver(case.model).open(spec, way, clock)
    try:
        yield instrument, clock
    finally:
        instrument.close()
        server.close()
        clock.close()


if __name__ == "__main__":
    for each in cases():
        if each.scheme in REPLAYED:
            with pytest.MonkeyPatch.context() as monkeypatch, tempfile.TemporaryDirectory() as made:
                write(each, Path(made), monkeypatch)
