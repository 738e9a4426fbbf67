"""A simulated world: light, links and devices of one testbed, built from its ground truth."""

import itertools
import math
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.simulated.faults.lab_faults import LabFaults
from lightrig.instruments.simulated.faults.running_faults import RunningFaults
from lightrig.instruments.simulated.faults.wire_faults import FaultInjector
from lightrig.instruments.simulated.hosts.host_ports import HostPort, PortLight, SimulatedPort
from lightrig.instruments.simulated.hosts.host_shell import HostShell
from lightrig.instruments.simulated.hosts.host_tools import TOOLS, HostSoftware, HostTools
from lightrig.instruments.simulated.hosts.simulated_clock import SimulatedServerClock
from lightrig.instruments.simulated.hosts.simulated_probe import SimulatedProbe
from lightrig.instruments.simulated.hosts.traffic_tools import TrafficTools
from lightrig.instruments.simulated.namespaces.fiber_plant import Delay, FiberPlant
from lightrig.instruments.simulated.namespaces.kernel_links import KernelLinks
from lightrig.instruments.simulated.protocols.device_server import DeviceServer
from lightrig.instruments.simulated.protocols.listeners import Service, serve
from lightrig.instruments.simulated.protocols.ssh_server import SshServer, unknown_host_key
from lightrig.instruments.simulated.registry import DeviceContext, Spec, simulated_device
from lightrig.instruments.simulated.world.ambient import Ambient
from lightrig.instruments.simulated.world.ground_truth import GroundTruth
from lightrig.instruments.simulated.world.light import Channels, LightField
from lightrig.instruments.simulated.world.links import NicLinks
from lightrig.instruments.simulated.world.optics import Matrix
from lightrig.instruments.simulated.world.randomness import Chance
from lightrig.instruments.simulated.world.reference_book import ReferenceBook
from lightrig.instruments.simulated.world.traffic import FabricTraffic
from lightrig.testbeds import (
    Circuit,
    Fiber,
    Identity,
    LightrigError,
    Port,
    ServerSpec,
    SwitchSpec,
    Testbed,
)
from lightrig.testbeds.fault_plan import RunningFault

_HISTOGRAM_KERNEL = "6.18.0"
_DARK = 100_000_000
_FADING_NS = 20_000_000
_KERNEL_FOLLOWS = 5.0  # s in which the kernel has switched its links, however busy
"""Interval at which the power of a drifting laser is updated."""


class World:
    """Simulated world behind the wires of a testbed.

    Servers that are namespaces are not simulated: their links are switched in the `kernel`.
    `with_shells` gives simulated servers a shell for other people's command lines, in real time.
    `wire_faults` change the replies of switches and instruments. `logins` are the credentials
    that are accepted, by name, instead of one drawn for all. With `stated_identities` devices
    report the model, firmware and serial number that the testbed expects, the number behind SIM.
    One seed gives one world; only passwords and ports differ from run to run, ports unless
    `first_port` is given.

    Raises:
        NoSimulatedDeviceError: a model, or a wire of it, without a simulated device.
    """

    def __init__(
        self,
        testbed: Testbed,
        clock: Clock,
        seed: int,
        kernel: KernelLinks | None = None,
        *,
        first_port: int = 0,
        with_shells: bool = False,
        wire_faults: FaultInjector | None = None,
        logins: Mapping[str, tuple[str, str]] | None = None,
        stated_identities: bool = False,
    ) -> None:
        self._logins = logins or {}
        self._stated_identities = stated_identities
        self.truth = GroundTruth()
        self._testbed = testbed
        self._clock = clock
        self._wire_faults = wire_faults
        self._injectors: dict[str, FaultInjector] = {}
        self._chance = Chance(seed)
        self._packet_switches = testbed.switches.keys() - testbed.optical_switches.keys()
        self.login = ("bench", secrets.token_urlsafe(12))
        self._ports = itertools.count(first_port) if first_port else itertools.repeat(0)
        self._server = DeviceServer(clock)
        self._plant = FiberPlant(kernel, testbed, self.truth) if kernel else None
        self.links = NicLinks(testbed.simulation.nic, clock, self._chance, self.truth)
        self.traffic = FabricTraffic(testbed, self.links, clock, self._chance)
        self._faults = LabFaults(testbed)
        self._launched: dict[Port, float] = {}
        self._lasers_off: set[Port] = set()
        self._roster: dict[Port, SimulatedPort] = {}
        self.light = LightField(map(self._connected, self._faults.fibers()))
        self._ambient = Ambient()
        self._matrices: dict[str, Matrix] = {}
        self._hosts: list[SshServer] = []
        self._with_shells = with_shells
        self._shells: list[HostShell] = []
        self._probes: dict[str, SimulatedProbe] = {}
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
            self._faults.lost_in_fibers(),
        )
        specs: list[Spec] = [*testbed.optical_switches.values(), *testbed.instruments.values()]
        for spec in specs:
            self.services[spec.name] = self._instrument(spec)
        for server in testbed.servers.values():
            if server.address.startswith("ssh://"):
                self.services[server.name] = self._host(server)
        self._plan_resets()
        self._delay_writes()

    @property
    def failure(self) -> LightrigError | None:
        """Error that ended the simulation: the kernel refused to switch a link; None so far."""
        return self._plant.failure if self._plant is not None else None

    def known_truth(self) -> GroundTruth:
        """Return the ground truth of all light so far, once the kernel has followed it."""
        if self._plant is not None:
            self._plant.await_truth(_KERNEL_FOLLOWS)
        return self.truth

    def longest_delay(self, since: int) -> Delay | None:
        """Return the longest delay of the kernel's links behind the light since then.

        `since` is on the world's clock, in ns. None where no link in the kernel had to follow.
        """
        if self._plant is None:
            return None
        self._plant.await_truth(_KERNEL_FOLLOWS)
        return self._plant.longest_delay(since, self._clock.now())

    def loss(self, switch: str, circuit: Circuit) -> float:
        """Return the true insertion loss of a circuit in dB; for closure only."""
        return self._matrices[switch].loss(circuit)

    def losses(self, switch: str, circuits: Sequence[Circuit]) -> list[float]:
        """Return the true insertion loss of each of many circuits in dB; for closure only."""
        return self._matrices[switch].losses(circuits)

    def polarization_dependence(self, switch: str) -> float:
        """Return the true polarization dependent loss of a switch's circuits; for closure only."""
        return self._testbed.simulation.switches[switch].ports.polarization_db

    def crosstalk(self, switch: str, circuit: Circuit, egress: int) -> float:
        """Return the true crosstalk of a circuit at a dark egress, in dB; for closure only."""
        return self._matrices[switch].crosstalk(circuit, egress)

    def set_switching_time(self, switch: str, duration: int) -> None:
        """Let every change of a switch take `duration` ns from now on."""
        self._matrices[switch].set_switching_time(duration)

    def replug(self, source: Port, sink: Port, loss_db: float) -> Callable[[], None]:
        """Plug the fiber at `source` into `sink`, as a person would; return the undoing."""
        return self.light.replug(source, sink, loss_db, self._clock)

    def power_off(self, server: str) -> Callable[[], None]:
        """Switch a server's transmitters off, as without power; return the undoing.

        Transceivers that switch keep their paths meanwhile (a guess).
        """
        return self.darken(port for port in self._launched if port.owner == server)

    def darken(self, ports: Iterable[Port]) -> Callable[[], None]:
        """Switch these transmitters off; return the undoing."""
        dark = [port for port in ports if port not in self._lasers_off]

        def switch(on: bool) -> None:
            for port in dark:
                self._set_laser(port, on)

        switch(False)
        return partial(switch, True)

    def inject(self, fault: RunningFault) -> Callable[[], None]:
        """Begin a fault now; return what ends it. Raises `FaultPlanError`."""
        return RunningFaults(self, self._clock, self._injectors, self._forget_circuits).begin(fault)

    def _forget_circuits(self, switch: str) -> None:
        if switch in self._matrices:
            matrix = self._matrices[switch]
            matrix.disconnect(list(matrix.egress_of))

    def close(self) -> None:
        """End every simulated device and server."""
        self._server.close()
        for host in self._hosts:
            host.close()
        for shell in self._shells:
            shell.close()
        if self._plant is not None:
            self._plant.close()

    def _instrument(self, spec: Spec) -> Service:
        context = DeviceContext(
            spec,
            self._clock,
            self._chance,
            self.truth,
            self._login_of(spec.name),
            self._serial_of(spec),
            self._matrices.get(spec.name),
            Channels(spec.name, self.light),
            self._ambient,
            spec.identity if self._stated_identities else Identity(),
            self._testbed.simulation.receiver,
        )
        scheme, _, resource = (spec.address or "").partition("://")
        device = simulated_device(context)
        self._faults.fill_error_queue(spec.name, device.wires().get("scpi"))
        if context.matrix is not None and (stale := self._faults.stale(spec.name)):
            context.matrix.connect(stale)
        return serve(
            spec.name,
            device,
            scheme,
            self._server,
            self._login_of(spec.name),
            next(self._ports),
            resource=resource,
            faults=self._wire_faults_of(spec.name),
        )

    def _login_of(self, name: str) -> tuple[str, str]:
        return self._logins.get(name, self.login)

    def _serial_of(self, spec: Spec) -> str:
        """Return a serial number that marks the device as simulated."""
        stated = spec.identity.serial if self._stated_identities else None
        return f"SIM-{spec.name}" if stated is None else f"SIM{stated}"

    def _wire_faults_of(self, name: str) -> FaultInjector:
        """Return the injector of wire faults of a switch or an instrument."""
        injector = self._injectors[name] = self._wire_faults or FaultInjector(self._clock)
        for silence in self._faults.silences(name):
            if silence.answers is not None:
                injector.fall_silent_after(silence.answers, silence.lasting_ns)
            else:
                at = self._clock.now() + silence.after_ns
                silent = partial(injector.fall_silent, silence.lasting_ns)
                self._clock.schedule(at, f"{name}!silent", silent)
        return injector

    def _connected(self, fiber: Fiber) -> Fiber:
        """Return `fiber` with the true loss of itself and of its connectors, drawn once."""
        if fiber.uncertainty_db:
            draw = self._chance.stream(f"{fiber.source}/fiber").normal()
            true_db = max(fiber.loss_db + fiber.uncertainty_db * draw, 0.0)
            fiber = replace(fiber, loss_db=true_db)
        kind = self._testbed.simulation.connectors
        if not kind.mean and not kind.sd:
            return fiber
        draw = self._chance.stream(f"{fiber.source}/connectors").normal()
        return replace(fiber, loss_db=fiber.loss_db + max(kind.mean + kind.sd * draw, 0.0))

    def _delay_writes(self) -> None:
        """Let writes of the harness take the time that the simulation states."""
        clock, delay = self._clock, self._testbed.simulation.network.write
        if not delay.mean or not isinstance(clock, VirtualClock):
            return
        draws = self._chance.stream("harness/write")

        def write_delay(written: bool) -> int:
            if written:
                now = clock.now()
                self.truth.note("harness", "written", up=True, at=Span(now, now))
            return draws.duration(delay)

        clock.write_delay = write_delay

    def _matrix(self, spec: SwitchSpec) -> Matrix:
        """Make the mirrors of a switch, in this world's light."""
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
            self._faults.at_ports(name),
            self._ambient,
            lambda ingress: light.detuning(ingress_ports[ingress]),
            lambda ingress: light.polarization(ingress_ports[ingress]),
            # Without an origin: no receiver takes crosstalk for a link.
            lambda egress, milliwatt, at: light.emit(egress_ports[egress], milliwatt, None, at),
            spec.egress_ports,
        )
        for ingress, port in ingress_ports.items():
            light.on_arrival(port, partial(_relight, matrix, ingress))
        return matrix

    def _host(self, spec: ServerSpec) -> Service:
        ports = {port.netdev: port for nic in spec.nics.values() for port in nic.ports}
        simulation = self._testbed.simulation
        server_clock = self._server_clock(spec.name)
        draws = self._chance.stream(f"{spec.name}/network")

        def start_probe(write: Callable[[str], None]) -> SimulatedProbe:
            return SimulatedProbe(
                spec.name,
                ports,
                self.links,
                self._clock,
                draws,
                write,
                server_clock,
                simulation.network.delay,
                self._probes,
            )

        self._injectors[spec.name] = FaultInjector(self._clock)
        tools = self._tools(spec)
        shell = None
        if self._with_shells:
            shell = HostShell(spec.name, self.login[0], tools, self._clock)
            self._shells.append(shell)
        host = SshServer(
            spec.name,
            self._clock,
            self._login_of(spec.name),
            start_probe,
            self._injectors[spec.name].wrap_commands(tools.run),
            port=next(self._ports),
            shell=shell,
        )
        self._hosts.append(host)
        known = host.known_hosts_line()
        if self._faults.has_wrong_key(spec.name):
            known = known.rpartition(" ")[0] + " " + unknown_host_key()
        return Service("ssh", *host.address, self._login_of(spec.name), known)

    def _server_clock(self, server: str) -> SimulatedServerClock:
        clocks = self._testbed.simulation.clocks
        draws = self._chance.stream(f"{server}/clock")
        offset = round(clocks.offset.mean + clocks.offset.sd * draws.normal())
        rate_ppm = self._faults.skew(server) + clocks.drift_ppm * draws.normal()
        return SimulatedServerClock(
            offset,
            rate_ppm,
            clocks.wander_ppm,
            self._chance.stream(f"{server}/clock wander"),
            self._faults.clock_steps(server),
            self._faults.clock_slews(server),
        )

    def _tools(self, spec: ServerSpec) -> HostTools:
        """Make the programs of a server, in this world's light."""
        light, transceivers = self.light, self._testbed.transceivers
        ports = [
            HostPort(
                port.port,
                port.netdev,
                port.rdma,
                nic.rate_bps,
                transceivers.get(nic.transceiver) if nic.transceiver else None,
                ip=port.ip,
            )
            for nic in spec.nics.values()
            for port in nic.ports
        ]
        nic = self._testbed.simulation.nic
        tools = HostTools(
            spec.name,
            ports,
            self.links,
            PortLight(light.level, self._launching, light.origin),
            self._clock,
            self._chance,
            self._roster,
            delay=self._testbed.simulation.network.delay,
            software=HostSoftware(
                tools=TOOLS - self._faults.missing_tools(spec.name),
                driver=nic.driver,
                kernel=_HISTOGRAM_KERNEL if nic.fec_histogram else HostSoftware().kernel,
                fec_histogram=nic.fec_histogram,
            ),
            laser=self._set_laser,
            traffic=TrafficTools(spec.name, self.traffic, self._faults.missing_tools(spec.name)),
        )
        for port in tools.ports:
            self.truth.note_counter(f"{port.spec.port}.before_fec", partial(getattr, port, "ber"))
        return tools

    def _launching(self, port: Port) -> float:
        return 0.0 if port in self._lasers_off else self._launched.get(port, 0.0)

    def _set_laser(self, port: Port, on: bool) -> None:
        if on and port not in self._faults.dark():
            self._lasers_off.discard(port)
        else:
            self._lasers_off.add(port)
        self.light.emit(port, self._launching(port), port, self._clock.now())

    def _light_up(self) -> None:
        """Switch every transmitter on, and connect every receiver to the light at its port."""
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
        self._lasers_off |= self._faults.dark()
        for port in self._launched:
            self.light.emit(port, self._launching(port), port, 0)

    def _plan_resets(self) -> None:
        """Schedule the lab faults that reset counters."""
        begun = self._clock.now()
        for port, after in self._faults.resets():
            self._clock.schedule(begun + after, f"{port}!reset", self._roster[port].clear)

    def _fade(self) -> None:
        """Start the lab faults that dim lasers and interrupt fibers."""
        begun = self._clock.now()
        for source, after in self._faults.interruptions():
            self.light.fade(source, 1.0, begun)
            for at, share in ((begun + after, 0.0), (begun + after + _DARK, 1.0)):
                fade = partial(self.light.fade, source, share, at)
                self._clock.schedule(at, f"{source}!interrupted", fade)
        for source, db_per_minute in self._faults.fading().items():
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
            return  # a port that sends a test pattern brings no link up until that ends
        origin = self.light.origin(port)
        nodes = self._testbed.servers.keys() | self._packet_switches
        source = origin if origin is not None and origin.owner in nodes else None
        far = source if source is None else self._answering(port, source)
        self._set_link(port, far, at)
        if far is not None and far != source:
            self._set_link(far, port, at)

    def _answering(self, port: Port, source: Port) -> Port:
        """Return the port at the other end: the receiver beside `source` that `port` reaches."""
        transmitter = self._testbed.cabling.speaker(port)
        for detector in self._testbed.cabling.detectors(source):
            if detector != port and self.light.origin(detector) == transmitter:
                return detector
        return source

    def _set_link(self, port: Port, far: Port | None, at: int) -> None:
        if self._plant is not None:
            self._plant.hears(port, far, at)
        else:
            self.links.hears(port, far, at)


def _relight(matrix: Matrix, ingress: int, _: int) -> None:
    matrix.relight(ingress)
