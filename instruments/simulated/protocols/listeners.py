"""Addresses at which simulated devices listen: one transport per wire."""

from dataclasses import dataclass

from lightrig.instruments.simulated.faults.wire_faults import FaultInjector
from lightrig.instruments.simulated.protocols.device_server import DeviceServer
from lightrig.instruments.simulated.protocols.hislip_server import HislipServer, hislip_resource
from lightrig.instruments.simulated.protocols.netconf_server import NetconfServer
from lightrig.instruments.simulated.protocols.ssh_server import LoginShell, SshServer
from lightrig.instruments.simulated.registry import (
    CommandDevice,
    NoSimulatedDeviceError,
    SimulatedDevice,
)


@dataclass(frozen=True, slots=True)
class Service:
    """Address of a simulated device, and its credentials.

    Attributes:
        scheme: the wire.
        host: loopback address; empty for a serial line.
        port: TCP port, 0 for a serial line.
        login: user and password it accepts, drawn anew for each world.
        known_hosts: line for a client's known_hosts; empty without SSH.
        resource: of a serial line its device, of a VISA instrument its resource name.
    """

    scheme: str
    host: str
    port: int
    login: tuple[str, str]
    known_hosts: str = ""
    resource: str = ""

    @property
    def address(self) -> str:
        """The address as a testbed's file writes it."""
        if self.resource:
            return f"{self.scheme}://{self.resource}"
        return f"{self.scheme}://{self.host}:{self.port}"


def serve(
    name: str,
    device: SimulatedDevice,
    scheme: str,
    server: DeviceServer,
    login: tuple[str, str],
    port: int = 0,
    *,
    resource: str = "",
    faults: FaultInjector | None = None,
    shell: LoginShell | None = None,
) -> Service:
    """Let `device` listen on the wire of its address, on any free port unless one is given.

    A SCPI device can be reached through VISA too: over HiSLIP, or over a serial line where the
    address names an ASRL `resource`. `faults` are applied to its replies. `shell` runs command
    lines over SSH that are not of the device. Raises `NoSimulatedDeviceError`.
    """
    wires = device.wires()
    if faults is not None:
        wires = {name: faults.wrap(factory) for name, factory in wires.items()}
    schemes = {*wires, *(["visa"] if "scpi" in wires else [])}
    if isinstance(device, CommandDevice):
        schemes.add("ssh")
    if scheme not in schemes:
        raise NoSimulatedDeviceError(
            f"{name}: the simulated device has {', '.join(sorted(schemes))}, not {scheme}://"
        )
    if scheme == "serial":
        return Service(scheme, "", 0, login, resource=server.serial_line(wires[scheme]))
    if scheme == "ssh":
        assert isinstance(device, CommandDevice)
        run = device.run_command if faults is None else faults.wrap_commands(device.run_command)
        host = SshServer(name, server.clock, login, None, run, port=port, shell=shell)
        server.on_close(host.close)
        return Service(scheme, *host.address, login, host.known_hosts_line())
    if scheme == "netconf":
        netconf = NetconfServer(wires[scheme], server.clock, login, port)
        server.on_close(netconf.close)
        return Service(scheme, *netconf.address, login, netconf.known_hosts_line())
    if scheme != "visa":
        return Service(scheme, *server.listen(wires[scheme], port), login)
    session = wires.get("visa", wires["scpi"])
    if resource.upper().startswith("ASRL"):
        return Service(scheme, "", 0, login, resource=f"ASRL{server.serial_line(session)}::INSTR")
    where, bound = server.listen(HislipServer(session), port)
    return Service(scheme, where, bound, login, resource=hislip_resource(where, bound))
