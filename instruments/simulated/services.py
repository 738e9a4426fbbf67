"""Where a simulated instrument listens: one transport a wire."""

from dataclasses import dataclass

from instruments.simulated.peer_server import PeerServer
from instruments.simulated.peers import NoPeerError, Peer


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


def serve(
    name: str,
    peer: Peer,
    scheme: str,
    server: PeerServer,
    login: tuple[str, str],
    port: int = 0,
) -> Service:
    """Let `peer` listen on the wire that its address names, on any free port unless one is given.

    Raises `NoPeerError`.
    """
    wires = peer.wires()
    if scheme not in wires:
        raise NoPeerError(
            f"{name}: its peer speaks {', '.join(sorted(wires))}, and not {scheme}://"
        )
    if scheme == "serial":
        return Service(scheme, "", 0, login, resource=server.serial_line(wires[scheme]))
    return Service(scheme, *server.listen(wires[scheme], port), login)
