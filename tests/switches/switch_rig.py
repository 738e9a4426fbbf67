"""A simulated Polatis on any of its wires, its drivers, and a line for typing TL1 by hand."""

import contextlib
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lightrig.instruments.clock import Clock
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.simulated.devices.polatis_yang import PolatisYang
from lightrig.instruments.simulated.devices.simulated_calient_s import SimulatedCalientS
from lightrig.instruments.simulated.devices.simulated_polatis import SimulatedPolatis
from lightrig.instruments.simulated.devices.simulated_sonic_ocs import SimulatedSonicOcs
from lightrig.instruments.simulated.protocols.device_server import DeviceServer
from lightrig.instruments.simulated.protocols.listeners import Service, serve
from lightrig.instruments.simulated.protocols.tl1_device import Tl1ServerSession
from lightrig.instruments.simulated.registry import DeviceContext
from lightrig.instruments.simulated.world.ground_truth import GroundTruth
from lightrig.instruments.simulated.world.light import Channels, LightField
from lightrig.instruments.simulated.world.optics import Matrix
from lightrig.instruments.simulated.world.randomness import Chance
from lightrig.instruments.switches.calient_s import CalientS
from lightrig.instruments.switches.polatis import Polatis
from lightrig.instruments.switches.sonic_ocs import SonicOcs
from lightrig.instruments.switches.sonic_ocs.gnmi import SonicGnmi
from lightrig.testbeds import (
    Delay,
    Identity,
    SimulatedLoss,
    SimulatedMonitor,
    SimulatedSwitch,
    SwitchSpec,
)

MS = 1_000_000
MODELS: Mapping[str, tuple[Any, Any]] = {
    "polatis": (SimulatedPolatis, Polatis),
    "calient-s": (SimulatedCalientS, CalientS),
    "sonic-ocs": (SimulatedSonicOcs, SonicOcs),
}
LOGIN = ("bench", "hunter2-and-more")
EXACT = SimulatedSwitch(
    acknowledge=Delay(40 * MS, 0, MS),
    dark=Delay(3 * MS),
    settle=Delay(20 * MS),
    loss=SimulatedLoss(1.2, 0.2),
    monitor=SimulatedMonitor(10 * MS, 0.0),
)
QUICK = SimulatedSwitch(
    acknowledge=Delay(2 * MS),
    dark=Delay(MS // 2),
    settle=Delay(MS),
    loss=SimulatedLoss(1.2, 0.2),
    monitor=SimulatedMonitor(10 * MS, 0.0),
)


@dataclass
class Rig:
    """One simulated switch on a socket."""

    clock: Clock
    matrix: Matrix
    truth: GroundTruth
    peer: Any
    service: Service
    known_hosts: Path
    certificates: Path | None
    sessions: list[Tl1ServerSession]
    drivers: list[Any]
    model: str = "polatis"
    forms: Mapping[str, Any] = field(default_factory=dict)

    @property
    def host(self) -> str:
        return self.service.host

    @property
    def port(self) -> int:
        return self.service.port

    def driver(self, *, login: tuple[str, str] | None = LOGIN, **options: Any) -> Any:
        endpoint = Endpoint(
            self.service.scheme,
            self.host,
            self.port,
            login,
            known_hosts=self.known_hosts,
            certificates=self.certificates,
            resource=self.service.resource,
        )
        make = SonicGnmi if self.service.scheme == "gnmi" else MODELS[self.model][1]
        made = make("ocs", endpoint, self.clock, **options)
        self.drivers.append(made)
        return made


def spec(
    name: str, size: tuple[int, int], options: Mapping[str, Any], model: str = "polatis"
) -> SwitchSpec:
    return SwitchSpec(
        name=name,
        kind="optical",
        model=model,
        address=None,
        login=None,
        ingress_count=size[0],
        egress_count=size[1],
        loss_max_db=None,
        rate_bps=None,
        options=options,
        identity=Identity(),
        line=1,
        column=1,
    )


@contextlib.contextmanager
def simulated_switch(
    clock: Clock,
    truth_of: SimulatedSwitch = EXACT,
    *,
    name: str = "ocs",
    size: tuple[int, int] = (16, 16),
    seed: int = 1,
    scheme: str = "tl1",
    model: str = "polatis",
    **options: Any,
) -> Iterator[Rig]:
    """A switch with 0 dBm at every ingress but the last, listening on one of its wires."""
    truth, server, sessions = GroundTruth(), DeviceServer(clock), []
    matrix = Matrix(
        name,
        truth_of,
        clock,
        Chance(seed),
        truth,
        lambda ingress: None if ingress == size[0] else 0.0,
        lambda egress, ingress, at: None,
        lambda ingress, start, end: 0.0 if ingress == size[0] else 1.0,
    )
    context = DeviceContext(
        spec(name, size, options, model),
        clock,
        Chance(seed),
        truth,
        LOGIN,
        f"SIM-{name}",
        matrix,
        Channels(name, LightField(())),
    )
    peer = MODELS[model][0](context)
    if model == "polatis":
        make_session = peer.session

        def session(connection: Any, index: int) -> Any:
            sessions.append(make_session(connection, index))
            return sessions[-1]

        peer.session = session
    service = serve(name, peer, scheme, server, LOGIN)
    drivers: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        known_hosts, certificates = Path(folder) / "known_hosts", Path(folder) / "certificates"
        known_hosts.write_text(f"{service.known_hosts}\n")
        certificates.write_text(service.certificate)
        try:
            yield Rig(
                clock,
                matrix,
                truth,
                peer,
                service,
                known_hosts,
                certificates if service.certificate else None,
                sessions,
                drivers,
                model,
            )
        finally:
            for driver in drivers:
                driver.close()
            server.close()


class Line:
    """Return the reply as a person at a terminal would see it."""

    def __init__(self, rig: Rig) -> None:
        self.socket = socket.create_connection((rig.host, rig.port), timeout=30)
        self._buffer = ""

    def write(self, text: str | bytes) -> None:
        self.socket.sendall(text if isinstance(text, bytes) else text.encode())

    def read(self) -> str:
        """The next block, with its end."""
        while "\r\n;" not in self._buffer:
            data = self.socket.recv(4096).decode("ascii")
            assert data, "the switch hung up"
            self._buffer += data
        block, _, self._buffer = self._buffer.partition("\r\n;")
        return block + "\r\n;"

    def ask(self, text: str | bytes) -> list[str]:
        """The answer's lines without header and indents, from the status on."""
        self.write(text)
        return [line.strip() for line in self.read().split("\r\n")[2:-1]]


def let_entries_be(
    patch: pytest.MonkeyPatch,
    container: str,
    change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]],
) -> None:
    """Pass the entries of a list of simulated Polatis' YANG trees through `change`."""
    entries = PolatisYang.entries

    def changed(tree: PolatisYang, name: str, keys: Any = None) -> Any:
        found: Any = entries(tree, name, keys)
        return change(found) if name == container else found

    patch.setattr(PolatisYang, "entries", changed)


def let_ports_have(patch: pytest.MonkeyPatch, leaves: Mapping[str, str]) -> None:
    """Let ports of simulated Polatis have these leaves alone, besides their number."""

    def change(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{"port-id": each["port-id"], **leaves} for each in entries]

    let_entries_be(patch, "port-config", change)
