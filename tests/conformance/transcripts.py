"""Recorded sessions of every driver: queries, replies, and the results of the driver's calls.

Run as a program it records simulated instruments: those of the models that it is given, else all.
A recording that would differ in nothing but its date is left as it is.
"""

import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from driver_cases import NAME, Case, Rig, cases

from lightrig.harness.bench.simulation import endpoint_of
from lightrig.instruments.clock import Clock
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.registry import driver
from lightrig.instruments.core.transcript import read
from lightrig.instruments.simulated.faults.replay_device import REPLAYED, ReplayDevice
from lightrig.instruments.simulated.protocols.device_server import DeviceServer
from lightrig.instruments.simulated.protocols.listeners import serve
from lightrig.instruments.wire.trace import record
from lightrig.testbeds import Circuit, load

FOLDER = Path(__file__).parents[1] / "transcripts"
SETTLED = 1_000_000_000
"""After so long a switch that was just powered up has come to rest."""
LOGIN = ("bench", "a password that is in no recording")


def script(case: Case, instrument: Any, clock: Clock) -> Iterator[str]:
    """Call the driver as every recording does; yield the results."""
    yield str(instrument.identity())
    if case.kind != "switches":
        yield repr(case.question(instrument)())
        return
    before = instrument.circuits()
    yield repr(sorted(before))
    inputs, outputs = map(int, case.size.split("x"))
    connected = {circuit for circuit in before if circuit.ingress == 1}
    free = set(range(inputs + 1, inputs + outputs + 1)) - {each.egress for each in before}
    wanted = Circuit(1, min(free))
    clock.sleep(SETTLED)
    instrument.change(connected, {wanted}).done()
    after = instrument.circuits()
    assert wanted in after
    yield repr(sorted(after))


def write(case: Case, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Record a session with the simulated instrument, unless the recording there is the same."""
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
    lines = (folder / "traces" / f"{NAME}.jsonl").read_text().splitlines()
    recorded = [_with_stated_address(line, case) for line in lines]
    if target.exists() and target.read_text().splitlines()[1:] == recorded[1:]:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("".join(f"{line}\n" for line in recorded))


def _with_stated_address(line: str, case: Case) -> str:
    """Return a line of a recording with the testbed's address instead of a port of the day."""
    fields = json.loads(line)
    if fields.get("kind") == "open" and fields["text"]:
        fields["text"] = case.address
    return json.dumps(fields)


@contextlib.contextmanager
def replayed(
    path: Path, case: Case, folder: Path, unknown: Callable[[bytes], None]
) -> Iterator[tuple[Any, Clock]]:
    """Open the case's driver on the instrument that was recorded in `path`, with its clock."""
    file = folder / "one.yaml"
    file.write_text(case.file)
    testbed = load(file)
    clock = VirtualClock(stall_timeout=20)
    server = DeviceServer(clock)
    peer = ReplayDevice(read(path), clock, unknown)
    service = serve(peer.name, peer, peer.scheme, server, LOGIN, resource=peer.resource)
    endpoint = endpoint_of(service, folder)
    spec = testbed.switches.get(NAME) or testbed.instruments[NAME]
    instrument = driver(case.model).open(spec, endpoint, clock)
    try:
        yield instrument, clock
    finally:
        instrument.close()
        server.close()
        clock.close()


if __name__ == "__main__":
    recordable = [case for case in cases() if case.scheme in REPLAYED]
    models = sys.argv[1:] or [case.model for case in recordable]
    if unknown := sorted(set(models) - {case.model for case in recordable}):
        sys.exit(f"no driver for {', '.join(unknown)}, or none on a wire that can be replayed")
    for each in recordable:
        if each.model in models:
            with pytest.MonkeyPatch.context() as monkeypatch, tempfile.TemporaryDirectory() as made:
                write(each, Path(made), monkeypatch)
