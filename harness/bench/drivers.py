"""From a server's description to an open driver."""

from typing import TypeAlias

from instruments.capabilities import Server
from instruments.clock import Clock
from instruments.registry import NoDriverError
from instruments.servers.linux import LinuxServer
from instruments.servers.offset import ClockMap
from instruments.way import Way
from instruments.wire.namespace import NamespaceShell
from instruments.wire.ssh import SshLogin, SshShell
from testbeds import ServerSpec

Clocks: TypeAlias = dict[str, ClockMap]
"""The clocks of a bench's servers by boot id; shared by their drivers."""


def open_server(spec: ServerSpec, way: Way, clock: Clock, clocks: Clocks) -> Server:
    """The driver of a server behind SSH; raises `UnreachableError`."""
    if way.scheme != "ssh":
        raise NoDriverError(f"{spec.name}: a server is reached over ssh://, not {way.scheme}://")
    user, password = way.login or (way.user, None)
    shell = SshShell(
        spec.name,
        way.host,
        clock,
        port=way.port or 22,
        login=SshLogin(user, password, way.known_hosts),
    )
    return LinuxServer(spec.name, shell, clock, clocks)


def open_namespace(spec: ServerSpec, pid: int, clock: Clock, clocks: Clocks) -> Server:
    """The driver of a server that is the network namespace of process `pid`."""
    return LinuxServer(spec.name, NamespaceShell(pid), clock, clocks)
