"""A simulated lab: a world of light, and the devices and servers of one testbed around it.

The assembly: it makes each device with its part of the world, and serves it on its wire.
"""

import itertools
import secrets
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TypeGuard

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.simulated.faults.lab_faults import LabFaults
from lightrig.instruments.simulated.faults.running_faults import RunningFaults
from lightrig.instruments.simulated.faults.wire_faults import FaultInjector
from lightrig.instruments.simulated.hosts import cmis_memory
from lightrig.instruments.simulated.hosts.host_ports import HostPort, PortLight, SimulatedPort
from lightrig.instruments.simulated.hosts.host_shell import HostShell, ShellTools
from lightrig.instruments.simulated.hosts.host_tools import TOOLS, HostSoftware, HostTools
from lightrig.instruments.simulated.hosts.simulated_clock import Discipline, SimulatedServerClock
from lightrig.instruments.simulated.hosts.simulated_probe import SimulatedProbe
from lightrig.instruments.simulated.namespaces.fiber_plant import (
    CarrierListener,
    Delay,
    FiberPlant,
)
from lightrig.instruments.simulated.namespaces.kernel_links import KernelLinks
from lightrig.instruments.simulated.protocols.device_server import DeviceServer
from lightrig.instruments.simulated.protocols.listeners import Service, offered, serve
from lightrig.instruments.simulated.protocols.ssh_server import SshServer, unknown_host_key
from lightrig.instruments.simulated.registry import (
    DeviceContext,
    SimulatedDevice,
    Spec,
    simulated_device,
)
from lightrig.instruments.simulated.world.ground_truth import GroundTruth
from lightrig.instruments.simulated.world.light import Channels
from lightrig.instruments.simulated.world.randomness import Chance
from lightrig.instruments.simulated.world.world import World
from lightrig.packs import load_all
from lightrig.testbeds import (
    Identity,
    LightrigError,
    Port,
    ServerSpec,
    Testbed,
)
from lightrig.testbeds.fault_plan import RunningFault

_HISTOGRAM_KERNEL = "6.18.0"
_KERNEL_FOLLOWS = 5.0
"""Time in which the kernel has switched its links, however busy, in s."""


def _clients(spec: Spec) -> Path | None:
    """Return the file of certificates by which clients of `spec` are verified."""
    stated = spec.options.get("clients")
    return Path(str(stated)).expanduser() if stated else None


_LAST_PORT = 65535
_SIDE_BY_SIDE = ("tl1", "scpi", "netconf", "restconf", "ssh", "gnmi")
"""Wires that one switch offers at once."""


class SimulatedLab(World):
    """World of light with simulated devices on the wires of a testbed.

    Servers that are namespaces are not simulated: their links are switched in the `kernel`.
    `with_shells` gives simulated servers a shell for other people's command lines, in real time.
    `wire_faults` change the replies of switches and instruments. `logins` are the credentials
    that are accepted, by name, instead of one drawn for all. With `stated_identities` devices
    report the model, firmware and serial number that the testbed expects, the number behind SIM.
    Servers in `elsewhere` exist and are not simulated. `carrier_changed` is called for each port
    in the `kernel`, and after each change of its carrier.
    One seed gives one world; only passwords and ports differ from run to run, ports unless
    `first_port` is given.

    Attributes:
        services: where each device listens, by its name.
        devices: each switch and instrument with the wire that its address names.
        injectors: wire faults of each device.
        roster: NIC ports of all servers, with what they count and are like.

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
        elsewhere: Collection[str] = (),
        carrier_changed: CarrierListener | None = None,
    ) -> None:
        self._logins = logins or {}
        self._stated_identities = stated_identities
        self._wire_faults = wire_faults
        self.injectors: dict[str, FaultInjector] = {}
        self.login = ("bench", secrets.token_urlsafe(12))
        self._ports = itertools.count(first_port) if first_port else itertools.repeat(0)
        self._server = DeviceServer(clock)
        self._lab_faults = LabFaults(testbed)
        self.roster: dict[Port, SimulatedPort] = {}
        truth = GroundTruth()
        self._plant = FiberPlant(kernel, testbed, truth, carrier_changed) if kernel else None
        follow = self._plant.hears if self._plant else None
        super().__init__(testbed, clock, Chance(seed), truth, self._lab_faults, follow)
        self._hosts: list[SshServer] = []
        self._with_shells = with_shells
        self._shells: list[HostShell] = []
        self._probes: dict[str, SimulatedProbe] = {}
        self.devices: dict[str, tuple[SimulatedDevice, str]] = {}
        self.services: dict[str, Service] = {}
        specs: list[Spec] = [*testbed.optical_switches.values(), *testbed.instruments.values()]
        for spec in specs:
            self.services[spec.name] = self._instrument(spec)
        for server in testbed.servers.values():
            if server.address.startswith("ssh://") and server.name not in elsewhere:
                self.services[server.name] = self._host(server)
        self._plan_resets()
        self._delay_writes()
        if isinstance(clock, VirtualClock):
            quartz_ppm = (
                testbed.simulation.clocks.quartz_ppm * self.chance.stream("quartz").normal()
            )
            clock.corrected = Discipline(quartz_ppm).corrected

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
        return self._plant.longest_delay(since, self.clock.now())

    def inject(self, fault: RunningFault) -> Callable[[], None]:
        """Begin a fault now; return what ends it. Raises `FaultPlanError`."""
        return RunningFaults(self, self.clock, self.injectors, self.forget_circuits).begin(fault)

    def close(self) -> None:
        """End every simulated device and server."""
        self._server.close()
        for host in self._hosts:
            host.close()
        for shell in self._shells:
            shell.close()
        if self._plant is not None:
            self._plant.close()

    def serve_further_wires(self, first_port: int) -> dict[str, list[Service]]:
        """Let switches with several wires listen on those that their addresses do not name.

        All wires of a switch have one state. They listen on consecutive ports from `first_port`
        on, 0 and those behind the last one for any free one; returns the services by switch.
        Raises `OSError`.
        """
        ports = (n if first_port and n <= _LAST_PORT else 0 for n in itertools.count(first_port))
        return {
            name: [
                self._serve(self.testbed.switches[name], device, scheme, next(ports))
                for scheme in _SIDE_BY_SIDE
                if scheme in offered(device) and scheme != served
            ]
            for name, (device, served) in self.devices.items()
            if served in _SIDE_BY_SIDE and name in self.testbed.switches
        }

    def _instrument(self, spec: Spec) -> Service:
        context = DeviceContext(
            spec,
            self.clock,
            self.chance,
            self.truth,
            self._login_of(spec.name),
            self._serial_of(spec),
            self.matrices.get(spec.name),
            Channels(spec.name, self.light),
            self._ambient,
            spec.identity if self._stated_identities else Identity(),
            self.testbed.simulation.receiver,
        )
        scheme, _, resource = (spec.address or "").partition("://")
        device = simulated_device(context)
        self.devices[spec.name] = (device, scheme)
        self._lab_faults.fill_error_queue(spec.name, device.wires().get("scpi"))
        if context.matrix is not None and (stale := self._lab_faults.stale(spec.name)):
            context.matrix.connect(stale)
        self._wire_faults_of(spec.name)
        return self._serve(spec, device, scheme, next(self._ports), resource)

    def _serve(
        self, spec: Spec, device: SimulatedDevice, scheme: str, port: int, resource: str = ""
    ) -> Service:
        return serve(
            spec.name,
            device,
            scheme,
            self._server,
            self._login_of(spec.name),
            port,
            resource=resource,
            faults=self.injectors[spec.name],
            shell=self._shell(spec.name, device) if self._has_shell(device) else None,
            clients=_clients(spec),
        )

    def _has_shell(self, device: SimulatedDevice) -> TypeGuard[ShellTools]:
        return self._with_shells and isinstance(device, ShellTools)

    def _shell(self, name: str, tools: ShellTools) -> HostShell:
        shell = HostShell(name, self._login_of(name)[0], tools, self.clock)
        self._shells.append(shell)
        return shell

    def _login_of(self, name: str) -> tuple[str, str]:
        return self._logins.get(name, self.login)

    def _serial_of(self, spec: Spec) -> str:
        """Return a serial number that marks the device as simulated."""
        stated = spec.identity.serial if self._stated_identities else None
        return f"SIM-{spec.name}" if stated is None else f"SIM{stated}"

    def _wire_faults_of(self, name: str) -> FaultInjector:
        """Return the injector of wire faults of a switch or an instrument."""
        injector = self.injectors[name] = self._wire_faults or FaultInjector(self.clock)
        for silence in self._lab_faults.silences(name):
            if silence.answers is not None:
                injector.fall_silent_after(silence.answers, silence.lasting_ns)
            else:
                at = self.clock.now() + silence.after_ns
                silent = partial(injector.fall_silent, silence.lasting_ns)
                self.clock.schedule(at, f"{name}!silent", silent)
        return injector

    def _delay_writes(self) -> None:
        """Let writes of the harness take the time that the simulation states."""
        clock, delay = self.clock, self.testbed.simulation.network.write
        if not delay.mean or not isinstance(clock, VirtualClock):
            return
        draws = self.chance.stream("harness/write")

        def write_delay(written: bool) -> int:
            if written:
                now = clock.now()
                self.truth.note("harness", "written", up=True, at=Span(now, now))
            return draws.duration(delay)

        clock.write_delay = write_delay

    def _host(self, spec: ServerSpec) -> Service:
        ports = {port.netdev: port for nic in spec.nics.values() for port in nic.ports}
        simulation = self.testbed.simulation
        server_clock = self.clock_of_server(spec.name)
        draws = self.chance.stream(f"{spec.name}/network")

        def start_probe(write: Callable[[str], None]) -> SimulatedProbe:
            return SimulatedProbe(
                spec.name,
                ports,
                self.links,
                self.clock,
                draws,
                write,
                server_clock,
                simulation.network.delay,
                self._probes,
                lambda port, address, *place: cmis_memory.read(self.roster[port], address, *place),
                lambda port: self.roster[port].model.answer,
            )

        self.injectors[spec.name] = FaultInjector(self.clock)
        tools = self._tools(spec)
        shell = None
        if self._with_shells:
            shell = self._shell(spec.name, tools)
        host = SshServer(
            spec.name,
            self.clock,
            self._login_of(spec.name),
            start_probe,
            self.injectors[spec.name].wrap_commands(tools.run),
            port=next(self._ports),
            shell=shell,
        )
        self._hosts.append(host)
        known = host.known_hosts_line()
        if self._lab_faults.has_wrong_key(spec.name):
            known = known.rpartition(" ")[0] + " " + unknown_host_key()
        return Service("ssh", *host.address, self._login_of(spec.name), known)

    def clock_of_server(self, server: str) -> SimulatedServerClock:
        """Return a new clock for a server, by the simulation's options and faults."""
        clocks = self.testbed.simulation.clocks
        draws = self.chance.stream(f"{server}/clock")
        offset = round(clocks.offset.mean + clocks.offset.sd * draws.normal())
        rate_ppm = self._lab_faults.skew(server) + clocks.drift_ppm * draws.normal()
        return SimulatedServerClock(
            offset,
            rate_ppm,
            clocks.wander_ppm,
            self.chance.stream(f"{server}/clock wander"),
            self._lab_faults.clock_steps(server),
            self._lab_faults.clock_slews(server),
            Discipline(
                clocks.quartz_ppm * self.chance.stream(f"{server}/quartz").normal(),
                clocks.slew_ppm,
                self.chance.stream(f"{server}/slews"),
            ),
        )

    def _tools(self, spec: ServerSpec) -> HostTools:
        """Make the programs of a server, in this world's light."""
        light, transceivers = self.light, self.testbed.transceivers
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
        nic = self.testbed.simulation.nic
        missing = self._lab_faults.missing_tools(spec.name)
        tools = HostTools(
            spec.name,
            ports,
            self.links,
            PortLight(light.level, self._launching, light.origin),
            self.clock,
            self.chance,
            self.roster,
            delay=self.testbed.simulation.network.delay,
            software=HostSoftware(
                tools=TOOLS - missing,
                driver=nic.driver,
                kernel=_HISTOGRAM_KERNEL if nic.fec_histogram else HostSoftware().kernel,
                fec_histogram=nic.fec_histogram,
            ),
            laser=self._set_laser,
            further=[make(spec.name, self, missing) for _, make in load_all("server_programs")],
        )
        for port in tools.ports:
            self.truth.note_counter(f"{port.spec.port}.before_fec", partial(getattr, port, "ber"))
        return tools

    def _plan_resets(self) -> None:
        """Schedule the lab faults that reset counters."""
        begun = self.clock.now()
        for port, after in self._lab_faults.resets():
            self.clock.schedule(begun + after, f"{port}!reset", self.roster[port].clear)

    def _sends_pattern(self, port: Port) -> bool:
        nic = self.roster.get(port)
        return nic is not None and nic.prbs is not None
