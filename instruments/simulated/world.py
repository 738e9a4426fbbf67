"""A simulated world: the light, links and peers of one testbed, built from its truth."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from instruments.clock import Clock
from instruments.simulated.kernel_links import KernelLinks
from instruments.simulated.kernel_plant import KernelPlant
from instruments.simulated.links import NicLinks
from instruments.simulated.optics import Matrix
from instruments.simulated.polatis_peer import PolatisPeer
from instruments.simulated.probe_peer import ProbePeer
from instruments.simulated.randomness import Chance
from instruments.simulated.ssh_peer import SshPeer
from instruments.simulated.tcp_server import TcpServer
from instruments.simulated.truth import Truth
from testbeds import LightrigError, Port, ServerSpec, SwitchSpec, Testbed


class NoPeerError(LightrigError):
    """The testbed has an instrument that nothing here can simulate."""


@dataclass(frozen=True, slots=True)
class Service:
    """Where a simulated instrument listens, and how it lets one in.

    Attributes:
        host: loopback address.
        port: TCP port.
        login: user and password it accepts, drawn anew for each world.
        known_hosts: the line that a client's known_hosts needs; empty without SSH.
    """

    host: str
    port: int
    login: tuple[str, str]
    known_hosts: str = ""


class World:
    """Everything behind the wires of a simulated testbed.

    Servers that are namespaces are not simulated: their links are moved in the kernel
    by `plant`. One seed gives one world; only passwords and ports differ.

    Raises:
        NoPeerError: a switch model that nothing here can simulate.
    """

    def __init__(
        self, testbed: Testbed, clock: Clock, seed: int, kernel: KernelLinks | None = None
    ) -> None:
        self.truth = Truth()
        self._testbed = testbed
        self._clock = clock
        self._chance = Chance(seed)
        self._login = ("bench", secrets.token_urlsafe(12))
        self._server = TcpServer(clock)
        self._plant = KernelPlant(kernel, testbed, self.truth) if kernel else None
        self.links = NicLinks(testbed.simulation.nic, clock, self._chance, self.truth)
        self._launched = self._launch_powers()
        self.services: dict[str, Service] = {}
        self._hosts: list[SshPeer] = []
        self._probes: dict[str, ProbePeer] = {}
        for switch in testbed.optical_switches.values():
            self.services[switch.name] = self._switch(switch)
        for server in testbed.servers.values():
            if server.address.startswith("ssh://"):
                self.services[server.name] = self._host(server)

    @property
    def failure(self) -> LightrigError | None:
        """Why the world no longer behaves: the kernel refused to move a link."""
        return self._plant.failure if self._plant is not None else None

    def close(self) -> None:
        """End every peer."""
        self._server.close()
        for host in self._hosts:
            host.close()
        if self._plant is not None:
            self._plant.close()

    def _switch(self, spec: SwitchSpec) -> Service:
        if spec.model != "polatis":
            raise NoPeerError(f"no simulated peer for switch {spec.name} of model {spec.model!r}")
        matrix = self._matrix(spec)
        peer = PolatisPeer(spec, matrix, self._clock, self.truth, self._login, f"SIM-{spec.name}")
        return Service(*self._server.listen(peer.session), self._login)

    def _matrix(self, spec: SwitchSpec) -> Matrix:
        """The mirrors of a switch, with this world's light at its ingress ports."""
        cabling = self._testbed.cabling
        sources = {port: cabling.transmitter(spec.name, port) for port in spec.ingress_ports}
        sinks = {port: cabling.receiver(spec.name, port) for port in spec.egress_ports}

        def launch(ingress: int) -> float | None:
            source = sources[ingress]
            return None if source is None else self._launched.get(source)

        def on_light(egress: int, ingress: int | None, at: int) -> None:
            sink = sinks[egress]
            if sink is None:
                return
            source = None if ingress is None else sources[ingress]
            if self._plant is not None:
                self._plant.hears(sink, source)
            else:
                self.links.hears(sink, source, at)

        truth_of = self._testbed.simulation.switches[spec.name]
        return Matrix(spec.name, truth_of, self._clock, self._chance, self.truth, launch, on_light)

    def _host(self, spec: ServerSpec) -> Service:
        ports = {port.netdev: port for nic in spec.nics.values() for port in nic.ports}
        simulation = self._testbed.simulation
        offset = simulation.clocks.offset
        draw = self._chance.stream(f"{spec.name}/clock").normal()
        draws = self._chance.stream(f"{spec.name}/network")

        def start_probe(write: Callable[[str], None]) -> ProbePeer:
            return ProbePeer(
                spec.name,
                ports,
                self.links,
                self._clock,
                draws,
                write,
                round(offset.mean + offset.sd * draw),
                simulation.network.delay,
                self._probes,
            )

        host = SshPeer(spec.name, self._clock, self._login, start_probe)
        self._hosts.append(host)
        return Service(*host.address, self._login, host.known_hosts_line())

    def _launch_powers(self) -> dict[Port, float]:
        """What each transmitter brings to its ingress, in dBm: its launch less its fiber."""
        powers = {}
        for fiber in self._testbed.fibers:
            if fiber.source.owner not in self._testbed.servers:
                continue
            kind = self._testbed.transceiver_of(fiber.source)
            if kind is None:
                continue
            middle = (kind.launch_min_dbm + kind.launch_max_dbm) / 2
            quarter = (kind.launch_max_dbm - kind.launch_min_dbm) / 4
            draw = self._chance.stream(f"{fiber.source}/launch").normal()
            launched = middle + quarter / 2 * max(-2.0, min(draw, 2.0))
            powers[fiber.source] = launched - fiber.loss_db
        return powers
