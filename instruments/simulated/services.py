"""Where a simulated instrument listens: one transport a wire."""

from dataclasses import dataclass

from instruments.simulated.hislip_peer import HislipPeer, hislip_resource
from instruments.simulated.lying import Liar
from instruments.simulated.netconf_server import NetconfServer
from instruments.simulated.peer_server import PeerServer
from instruments.simulated.peers import CommandPeer, NoPeerError, Peer
from instruments.simulated.ssh_peer import SshPeer


@dataclass(frozen=True, slots=True)
class Service:
    """Where a simulated instrument listens, and how it lets one in.

    Attributes:
        scheme: the wire.
        host: loopback address; empty for a serial line.
        port: TCP port, 0 for a serial line.
        login: user and password it accepts, drawn anew for each world.
        known_hosts: the line that a client's known_hosts needs; empty without SSH.
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
        """As a testbed's file names it."""
        if self.resource:
            return f"{self.scheme}://{self.resource}"
        return f"{self.scheme}://{self.host}:{self.port}"


def serve(
    name: str,
    peer: Peer,
    scheme: str,
    server: PeerServer,
    login: tuple[str, str],
    port: int = 0,
    *,
    resource: str = "",
    liar: Liar | None = None,
) -> Service:
    """Let `peer` listen on the wire that its address names, on any free port unless one is given.

    What speaks SCPI can be reached through VISA too: over HiSLIP, or over a serial line where
    the address names an ASRL `resource`. What a `liar` is given, it tampers with. Raises
    `NoPeerError`.
    """
    wires = peer.wires()
    if liar is not None:
        wires = {name: liar.wrap(factory) for name, factory in wires.items()}
    spoken = {*wires, *(["visa"] if "scpi" in wires else [])}
    if isinstance(peer, CommandPeer):
        spoken.add("ssh")
    if scheme not in spoken:
        raise NoPeerError(f"{name}: its peer speaks {', '.join(sorted(spoken))}, not {scheme}://")
    if scheme == "serial":
        return Service(scheme, "", 0, login, resource=server.serial_line(wires[scheme]))
    if scheme == "ssh":
        assert isinstance(peer, CommandPeer)
        run = peer.run_command if liar is None else liar.wrap_commands(peer.run_command)
        host = SshPeer(name, server.clock, login, None, run, port=port)
        server.close_too(host.close)
        return Service(scheme, *host.address, login, host.known_hosts_line())
    if scheme == "netconf":
        netconf = NetconfServer(wires[scheme], server.clock, login, port)
        server.close_too(netconf.close)
        return Service(scheme, *netconf.address, login, netconf.known_hosts_line())
    if scheme != "visa":
        return Service(scheme, *server.listen(wires[scheme], port), login)
    session = wires.get("visa", wires["scpi"])
    if resource.upper().startswith("ASRL"):
        return Service(scheme, "", 0, login, resource=f"ASRL{server.serial_line(session)}::INSTR")
    where, bound = server.listen(HislipPeer(session), port)
    return Service(scheme, where, bound, login, resource=hislip_resource(where, bound))
