"""Addresses at which simulated devices listen: one transport per wire."""

import re
from dataclasses import dataclass
from pathlib import Path

from lightrig.instruments.simulated.faults.wire_faults import FaultInjector
from lightrig.instruments.simulated.protocols.device_server import DeviceServer
from lightrig.instruments.simulated.protocols.hislip_server import HislipServer, hislip_resource
from lightrig.instruments.simulated.protocols.netconf_server import NetconfServer
from lightrig.instruments.simulated.protocols.ssh_server import LoginShell, SshServer
from lightrig.instruments.simulated.protocols.tls_server import ServerCertificate, TlsServer
from lightrig.instruments.simulated.protocols.vxi11_server import Vxi11Server, vxi11_resource
from lightrig.instruments.simulated.registry import (
    CommandDevice,
    NoSimulatedDeviceError,
    SimulatedDevice,
)

_VXI11 = re.compile(r"^TCPIP.*::inst\d+(?:::INSTR)?$", re.IGNORECASE)


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
        certificate: that it shows, for a client's file of trusted ones; empty without TLS.
    """

    scheme: str
    host: str
    port: int
    login: tuple[str, str]
    known_hosts: str = ""
    resource: str = ""
    certificate: str = ""

    @property
    def address(self) -> str:
        """The address as a testbed's file writes it."""
        if self.resource:
            return f"{self.scheme}://{self.resource}"
        return f"{self.scheme}://{self.host}:{self.port}"


def offered(device: SimulatedDevice) -> set[str]:
    """Return the wires that `device` has by itself."""
    return {*device.wires(), *(["ssh"] if isinstance(device, CommandDevice) else [])}


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
    clients: Path | None = None,
) -> Service:
    """Let `device` listen on the wire of its address, on any free port unless one is given.

    A SCPI device can be reached through VISA too: over HiSLIP, over a serial line where the address
    names an ASRL `resource`, or in real time over VXI-11 where it names `inst0`. `faults` are
    applied to its replies. `shell` runs command lines over SSH that are not of the device.
    `clients` is a file of certificates by which those of
    gNMI's clients are verified. Raises `NoSimulatedDeviceError`.
    """
    wires = device.wires()
    if faults is not None:
        wires = {name: faults.wrap(factory) for name, factory in wires.items()}
    schemes = {*offered(device), *(["visa"] if "scpi" in wires else [])}
    if scheme == "gnmi" and scheme not in schemes and isinstance(device, CommandDevice):
        raise NoSimulatedDeviceError(
            f"{name}: a gnmi:// address needs the extra lightrig[gnmi], which is not installed\n"
            "  try       python -m pip install 'lightrig[gnmi]'"
        )
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
    if scheme == "gnmi":
        from lightrig.instruments.simulated.protocols.grpc_server import (  # noqa: PLC0415
            GrpcServer,  # of the extra
        )

        certificate = ServerCertificate(name)
        tls = TlsServer(GrpcServer(wires[scheme], login), certificate.context(clients))
        where, bound = server.listen(tls, port)
        return Service(scheme, where, bound, login, certificate=certificate.text)
    if scheme != "visa":
        return Service(scheme, *server.listen(wires[scheme], port), login)
    session = wires.get("visa", wires["scpi"])
    if resource.upper().startswith("ASRL"):
        return Service(scheme, "", 0, login, resource=f"ASRL{server.serial_line(session)}::INSTR")
    if _VXI11.search(resource) and not server.clock.virtual:
        where, bound = server.listen(Vxi11Server(session, server.clock, name), port)
        return Service(scheme, where, bound, login, resource=vxi11_resource(where, bound))
    where, bound = server.listen(HislipServer(session), port)
    return Service(scheme, where, bound, login, resource=hislip_resource(where, bound))
