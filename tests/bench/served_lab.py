"""A small lab: a Polatis and two servers with two ports each; served on loopback if wanted."""

import os
from collections.abc import Iterable
from pathlib import Path

from lightrig.instruments.clock import Clock, SystemClock
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.simulated.lab import SimulatedLab
from lightrig.instruments.switches.polatis import Polatis
from lightrig.testbeds import Circuit, Testbed, load

LAB = """
name: lab
switches:
  ocs: {{model: polatis, address: "tl1://{ocs}", login: env:LAB_OCS, size: 8x8,
        options: {{rerouting: {rerouting}}}, identity: {{serial: {serial}}}}}
servers:
  server0: {{address: "ssh://{server0}", login: env:LAB_SERVER, nics: &nics {{nic0: {{
    ports: 2, netdev: "ens1f{{p}}", rate: 100G, transceiver: lr4}}}}}}
  server1: {{address: "ssh://{server1}", login: env:LAB_SERVER, nics: *nics}}
transceivers:
  lr4:
    wavelength: 1310 nm
    launch: {{min: -4 dBm, max: 4 dBm}}
    receive: {{min: -10 dBm, max: 4 dBm}}
fibers:
  - server[0-1].nic0.p[0-1] <-> ocs
plans:
  straight: [server0.nic0.p0 <-> server1.nic0.p0, server0.nic0.p1 <-> server1.nic0.p1]
  crossed: [server0.nic0.p0 <-> server1.nic0.p1, server0.nic0.p1 <-> server1.nic0.p0]
limits:
  reconfiguration.carrier_up: {limit}
simulation:
  switches:
    ocs:
      acknowledge: {{mean: 30 ms}}
      dark: {{mean: 2 ms}}
      settle: {{mean: {settle}}}
      monitor: {{averaging: 10 ms, noise: 0.03 dB}}
  nic:
    bring_up: {{mean: 10 ms, sd: 1 ms}}
    resume: {{mean: 5 ms, sd: 1 ms}}
"""
"""Ports 1 to 4 and 9 to 12 of the switch are the lab's; the others are somebody else's."""

CABLED_INGRESS, CABLED_EGRESS = range(1, 5), range(9, 13)
STRAIGHT = frozenset({Circuit(1, 11), Circuit(3, 9), Circuit(2, 12), Circuit(4, 10)})
CROSSED = frozenset({Circuit(1, 12), Circuit(4, 9), Circuit(2, 11), Circuit(3, 10)})
FOREIGN = frozenset({Circuit(5, 14), Circuit(8, 13)})
"""Cross-connects of somebody else."""

LEFT = frozenset({Circuit(1, 9), Circuit(2, 12), Circuit(3, 11)})
"""Circuits that were on the lab's own ports before."""

PLACES = {name: f"{name}.invalid" for name in ("ocs", "server0", "server1")}


def circuits(*texts: str) -> frozenset[Circuit]:
    return frozenset(map(Circuit.parse, texts))


def describe(
    folder: Path,
    places: dict[str, str] | None = None,
    *,
    rerouting: bool = True,
    serial: str = "SIM-ocs",
    limit: str = "{p99: 10 s}",
    settle: str = "25 ms",
) -> Path:
    """Write the lab's testbed file; without `places` its addresses are placeholders."""
    path = folder / "lab.yaml"
    filled = LAB.format(
        **(places or PLACES),
        rerouting=str(rerouting).lower(),
        serial=serial,
        limit=limit,
        settle=settle,
    )
    path.write_text(filled)
    return path


def set_circuits(switch: Polatis, wanted: Iterable[Circuit]) -> None:
    """Bring a switch to exactly `wanted`, foreign ports included."""
    target = frozenset(wanted)
    present = switch.circuits()
    if present - target:
        switch.change(present - target, ()).done()
    if target - present:
        switch.change((), target - present).done()


class ServedLab:
    """The lab on loopback ports, in real time, for any process of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock: Clock = SystemClock()
        # Links are down for so long that a process that a busy machine stops now and then
        # sees every one of them go down.
        self.world = SimulatedLab(load(describe(folder, settle="150 ms")), self.clock, 1)
        services = self.world.services
        self.places = {name: f"{s.host}:{s.port}" for name, s in services.items()}
        self.file = describe(folder, self.places)
        self.login = services["ocs"].login
        (folder / ".ssh").mkdir()
        known_hosts = "".join(f"{service.known_hosts}\n" for service in services.values())
        (folder / ".ssh" / "known_hosts").write_text(known_hosts)
        endpoint = Endpoint("tl1", services["ocs"].host, services["ocs"].port, self.login)
        self.switch = Polatis("ocs", endpoint, self.clock)

    def describe(self, **changes: object) -> Path:
        """Write the testbed file anew, with some things otherwise."""
        return describe(self.folder, self.places, **changes)  # type: ignore[arg-type]

    @property
    def testbed(self) -> Testbed:
        return load(self.file)

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment with which a process uses the lab."""
        return {
            **os.environ,
            "HOME": str(self.folder),
            "LIGHTRIG_STATE": str(self.folder / "state"),
            "LAB_OCS": ":".join(self.login),
            "LAB_SERVER": ":".join(self.login),
        }

    def close(self) -> None:
        self.switch.close()
        self.world.close()
        self.clock.close()


def killed_suite(changed_by_hand: bool) -> str:
    """Return a suite whose test records a row and ends its process without restoring the lab."""
    by_hand = 'switch = fabric.bench.switches["ocs"]; switch.change(switch.circuits(), []).done()'
    return f"""
import os, signal
from lightrig.harness.record import Row

def test_once(fabric, measure):
    fabric.apply(fabric.plans["straight"])
    measure.record([Row("ocs", "reconfiguration.los", 7, 7, 7, "ns", 0)])
    {by_hand if changed_by_hand else ""}
    os.kill(os.getpid(), signal.SIGKILL)
"""
