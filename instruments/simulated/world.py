"""A simulated world: the light, links and peers of one testbed, built from its truth."""

import itertools
import math
import secrets
from collections.abc import Callable, Iterable
from functools import partial

from instruments.clock import Clock
from instruments.simulated.ambient import Ambient
from instruments.simulated.host_ports import HostPort, PortLight, SimulatedPort
from instruments.simulated.host_tools import TOOLS, HostSoftware, HostTools
from instruments.simulated.kernel_links import KernelLinks
from instruments.simulated.kernel_plant import KernelPlant
from instruments.simulated.light import Channels, LightField
from instruments.simulated.links import NicLinks
from instruments.simulated.lying import Liar
from instruments.simulated.optics import Matrix
from instruments.simulated.peer_server import PeerServer
from instruments.simulated.peers import Spec, Surroundings, peer
from instruments.simulated.planted import Planted
from instruments.simulated.probe_peer import ProbePeer
from instruments.simulated.randomness import Chance
from instruments.simulated.reference_book import ReferenceBook
from instruments.simulated.services import Service, serve
from instruments.simulated.ssh_peer import SshPeer, another_key
from instruments.simulated.traffic import FabricTraffic
from instruments.simulated.traffic_tools import TrafficTools
from instruments.simulated.truth import Truth
from testbeds import Circuit, LightrigError, Port, ServerSpec, SwitchSpec, Testbed

_DARK = 100_000_000
_FADING_NS = 20_000_000
"""How often the light of a drifting laser is set anew."""


class World:
    """Everything behind the wires of a simulated testbed.

    Servers that are namespaces are not simulated: their links are moved in the kernel
    by `plant`. A `liar` tampers with what switches and instruments say. One seed gives one
    world; only passwords and ports differ, the latter unless
    `first_port` says where they begin.

    Raises:
        NoPeerError: a model, or a wire of it, that nothing here can simulate.
    """

    def __init__(
        self,
        testbed: Testbed,
        clock: Clock,
        seed: int,
        kernel: KernelLinks | None = None,
        *,
        first_port: int = 0,
        liar: Liar | None = None,
    ) -> None:
        self.truth = Truth()
        self._testbed = testbed
        self._clock = clock
        self._liar = liar
        self._chance = Chance(seed)
        self._packet_switches = testbed.switches.keys() - testbed.optical_switches.keys()
        self._login = ("bench", secrets.token_urlsafe(12))
        self._ports = itertools.count(first_port) if first_port else itertools.repeat(0)
        self._server = PeerServer(clock)
        self._plant = KernelPlant(kernel, testbed, self.truth) if kernel else None
        self.links = NicLinks(testbed.simulation.nic, clock, self._chance, self.truth)
        self.traffic = FabricTraffic(testbed, self.links, clock, self._chance)
        self._planted = Planted(testbed)
        self._launched: dict[Port, float] = {}
        self._lasers_off: set[Port] = set()
        self._roster: dict[Port, SimulatedPort] = {}
        self.light = LightField(self._planted.fibers())
        self._ambient = Ambient()
        self._matrices: dict[str, Matrix] = {}
        self._hosts: list[SshPeer] = []
        self._probes: dict[str, ProbePeer] = {}
        self.services: dict[str, Service] = {}
        for switch in testbed.optical_switches.values():
            self._matrices[switch.name] = self._matrix(switch)
        self._fade()
        self._light_up()
        self.references = ReferenceBook(
            self._matrices,
            self.light,
            self._chance,
            testbed.simulation.reference_db,
            self._planted.lost_in_fibers(),
        )
        specs: list[Spec] = [*testbed.optical_switches.values(), *testbed.instruments.values()]
        for spec in specs:
            self.services[spec.name] = self._instrument(spec)
        for server in testbed.servers.values():
            if server.address.startswith("ssh://"):
                self.services[server.name] = self._host(server)
        self._plan_resets()

    @property
    def failure(self) -> LightrigError | None:
        """Why the world no longer behaves: the kernel refused to move a link."""
        return self._plant.failure if self._plant is not None else None

    def loss(self, switch: str, circuit: Circuit) -> float:
        """The latent insertion loss of a circuit in dB; for closure only."""
        return self._matrices[switch].loss(circuit)

    def take(self, switch: str, duration: int) -> None:
        """Let a switch take `duration` ns for every change from now on."""
        self._matrices[switch].take(duration)

    def replug(self, source: Port, sink: Port, loss_db: float) -> Callable[[], None]:
        """Put the fiber at `source` into `sink`, as a person would; returns what undoes that."""
        return self.light.replug(source, sink, loss_db, self._clock)

    def power_off(self, server: str) -> Callable[[], None]:
        """Let a server's transmitters go dark, as without power; returns what undoes that.

        Modules that switch hold their paths meanwhile (a guess).
        """
        return self.darken(port for port in self._launched if port.owner == server)

    def darken(self, ports: Iterable[Port]) -> Callable[[], None]:
        """Let no light leave these transmitters any more; returns what undoes that."""
        dark = [port for port in ports if port not in self._lasers_off]

        def put(on: bool) -> None:
            for port in dark:
                self._set_laser(port, on)

        put(False)
        return partial(put, True)

    def close(self) -> None:
        """End every peer."""
        self._server.close()
        for host in self._hosts:
            host.close()
        if self._plant is not None:
            self._plant.close()

    def _instrument(self, spec: Spec) -> Service:
        around = Surroundings(
            spec,
            self._clock,
            self._chance,
            self.truth,
            self._login,
            f"SIM-{spec.name}",
            self._matrices.get(spec.name),
            Channels(spec.name, self.light),
            self._ambient,
        )
        scheme, _, resource = (spec.address or "").partition("://")
        made = peer(around)
        self._planted.fill_error_queue(spec.name, made.wires().get("scpi"))
        if around.matrix is not None and (stale := self._planted.stale(spec.name)):
            around.matrix.connect(stale)
        return serve(
            spec.name,
            made,
            scheme,
            self._server,
            self._login,
            next(self._ports),
            resource=resource,
            liar=self._liar_of(spec.name),
        )

    def _liar_of(self, name: str) -> Liar | None:
        """Who tampers with what a switch or an instrument says, if anybody does."""
        liar = self._liar
        for silence in self._planted.silences(name):
            liar = liar or Liar(self._clock)
            if silence.answers is not None:
                liar.fall_silent_after(silence.answers, silence.lasting_ns)
            else:
                at = self._clock.now() + silence.after_ns
                silent = partial(liar.fall_silent, silence.lasting_ns)
                self._clock.schedule(at, f"{name}!silent", silent)
        return liar

    def _matrix(self, spec: SwitchSpec) -> Matrix:
        """The mirrors of a switch, in this world's light."""
        light, name = self.light, spec.name
        ingress_ports = {port: Port(name, str(port)) for port in spec.ingress_ports}
        egress_ports = {port: Port(name, str(port)) for port in spec.egress_ports}

        def launch(ingress: int) -> float | None:
            milliwatt = light.level(ingress_ports[ingress])
            return 10 * math.log10(milliwatt) if milliwatt else None

        def on_light(egress: int, ingress: int | None, at: int) -> None:
            if ingress is None:
                light.emit(egress_ports[egress], 0.0, None, at)
            else:
                origin = light.origin(ingress_ports[ingress])
                light.emit(egress_ports[egress], matrix.level(egress), origin, at)

        truth_of = self._testbed.simulation.switches[name]
        matrix = Matrix(
            name,
            truth_of,
            self._clock,
            self._chance,
            self.truth,
            launch,
            on_light,
            lambda ingress, start, end: light.arriving(ingress_ports[ingress], start, end),
            self._planted.at_ports(name),
        )
        for ingress, port in ingress_ports.items():
            light.on_arrival(port, partial(_relight, matrix, ingress))
        return matrix

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
                self._planted.skew(spec.name),
                simulation.network.delay,
                self._probes,
            )

        tools = self._tools(spec)
        host = SshPeer(
            spec.name,
            self._clock,
            self._login,
            start_probe,
            tools.run,
            port=next(self._ports),
        )
        self._hosts.append(host)
        known = host.known_hosts_line()
        if self._planted.has_wrong_key(spec.name):
            known = known.rpartition(" ")[0] + " " + another_key()
        return Service("ssh", *host.address, self._login, known)

    def _tools(self, spec: ServerSpec) -> HostTools:
        """The programs of a server, in this world's light."""
        light, transceivers = self.light, self._testbed.transceivers
        ports = [
            HostPort(
                port.port,
                port.netdev,
                port.rdma,
                nic.rate_bps,
                transceivers.get(nic.transceiver) if nic.transceiver else None,
            )
            for nic in spec.nics.values()
            for port in nic.ports
        ]
        return HostTools(
            spec.name,
            ports,
            self.links,
            PortLight(light.level, self._launching, light.origin),
            self._clock,
            self._chance,
            self._roster,
            delay=self._testbed.simulation.network.delay,
            software=HostSoftware(tools=TOOLS - self._planted.missing_tools(spec.name)),
            laser=self._set_laser,
            traffic=TrafficTools(spec.name, self.traffic, self._planted.missing_tools(spec.name)),
        )

    def _launching(self, port: Port) -> float:
        return 0.0 if port in self._lasers_off else self._launched.get(port, 0.0)

    def _set_laser(self, port: Port, on: bool) -> None:
        if on and port not in self._planted.dark():
            self._lasers_off.discard(port)
        else:
            self._lasers_off.add(port)
        self.light.emit(port, self._launching(port), port, self._clock.now())

    def _light_up(self) -> None:
        """Let every transceiver send, and every port that has one hear what comes to it."""
        nodes = self._testbed.servers.keys() | self._packet_switches
        listeners = [spec.port for spec in self._testbed.nic_ports]
        listeners += [f.sink for f in self._testbed.fibers if f.sink.owner in self._packet_switches]
        for port in listeners:
            self.light.on_arrival(port, partial(self._nic_hears, port))
        for fiber in self._testbed.fibers:
            if fiber.source.owner not in nodes:
                continue
            kind = self._testbed.transceiver_of(fiber.source)
            if kind is None:
                continue
            middle = (kind.launch_min_dbm + kind.launch_max_dbm) / 2
            quarter = (kind.launch_max_dbm - kind.launch_min_dbm) / 4
            draw = self._chance.stream(f"{fiber.source}/launch").normal()
            launched = middle + quarter / 2 * max(-2.0, min(draw, 2.0))
            self._launched[fiber.source] = 10 ** (launched / 10)
        self._lasers_off |= self._planted.dark()
        for port in self._launched:
            self.light.emit(port, self._launching(port), port, 0)

    def _plan_resets(self) -> None:
        """Let counters begin anew that are to."""
        begun = self._clock.now()
        for port, after in self._planted.resets():
            self._clock.schedule(begun + after, f"{port}!reset", self._roster[port].clear)

    def _fade(self) -> None:
        """Let drifting lasers begin to lose their light, and fibers be dark for a moment later."""
        begun = self._clock.now()
        for source, after in self._planted.interruptions():
            self.light.fade(source, 1.0, begun)
            for at, share in ((begun + after, 0.0), (begun + after + _DARK, 1.0)):
                fade = partial(self.light.fade, source, share, at)
                self._clock.schedule(at, f"{source}!interrupted", fade)
        for source, db_per_minute in self._planted.fading().items():
            self._fade_on(source, db_per_minute)

    def _fade_on(self, source: Port, db_per_minute: float) -> None:
        now = self._clock.now()
        self.light.fade(source, 10 ** (-db_per_minute * now / 60e9 / 10), now)
        self._clock.schedule(
            now + _FADING_NS, f"{source}!fading", partial(self._fade_on, source, db_per_minute)
        )

    def _nic_hears(self, port: Port, at: int) -> None:
        nic = self._roster.get(port)
        if nic is not None and nic.prbs is not None:
            return  # it sends a test pattern and looks for no link until that ends
        origin = self.light.origin(port)
        nodes = self._testbed.servers.keys() | self._packet_switches
        source = origin if origin is not None and origin.owner in nodes else None
        far = source if source is None else self._answering(port, source)
        self._take_note(port, far, at)
        if far is not None and far != source:
            self._take_note(far, port, at)

    def _answering(self, port: Port, source: Port) -> Port:
        """The port at the other end: the detector beside `source` that hears what `port` says."""
        own = self._testbed.cabling.speaker(port)
        for detector in self._testbed.cabling.detectors(source):
            if detector != port and self.light.origin(detector) == own:
                return detector
        return source

    def _take_note(self, port: Port, far: Port | None, at: int) -> None:
        if self._plant is not None:
            self._plant.hears(port, far)
        else:
            self.links.hears(port, far, at)


def _relight(matrix: Matrix, ingress: int, _: int) -> None:
    matrix.relight(ingress)
