"""Which driver speaks to what: from a testbed's description to an open instrument."""

import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from instruments.capabilities import OpticalSwitch, PowerMonitor, Server
from instruments.clock import Clock
from instruments.servers.linux import LinuxServer
from instruments.servers.offset import ClockMap
from instruments.switches.polatis import Polatis
from instruments.wire.namespace import NamespaceShell
from instruments.wire.ssh import SshLogin, SshShell
from testbeds import LightrigError, ServerSpec, SwitchSpec


class AddressError(LightrigError):
    """An address that cannot be read."""


class NoDriverError(LightrigError):
    """No driver for a model, or none for the wire that an address names."""


class MonitoredSwitch(OpticalSwitch, PowerMonitor, Protocol):
    """An optical switch with power monitors of its own."""


@dataclass(frozen=True, slots=True)
class Way:
    """How to reach an instrument: resolved, with credentials in hand.

    Attributes:
        scheme: the wire, as the testbed's address names it.
        host: name or address.
        port: None for the wire's usual one.
        login: user and password, or None.
        known_hosts: file of SSH host keys, None for the user's own.
    """

    scheme: str
    host: str
    port: int | None
    login: tuple[str, str] | None = None
    user: str | None = None
    known_hosts: Path | None = None

    @classmethod
    def parse(cls, address: str, login: tuple[str, str] | None) -> "Way":
        """Read `scheme://[user@]host[:port]`; raises `AddressError`."""
        try:
            parts = urllib.parse.urlsplit(address)
            return cls(parts.scheme, parts.hostname or "", parts.port, login, parts.username)
        except ValueError as error:
            raise AddressError(f"the address {address} cannot be read: {error}") from error


def _polatis(spec: SwitchSpec, way: Way, clock: Clock) -> Polatis:
    if way.scheme != "tl1":
        raise NoDriverError(f"{spec.name}: a Polatis is spoken to over tl1://, not {way.scheme}://")
    rerouting = bool(spec.options.get("rerouting", False))
    return Polatis(
        spec.name, way.host, clock, port=way.port or 3082, login=way.login, rerouting=rerouting
    )


_SWITCHES: dict[str, Callable[[SwitchSpec, Way, Clock], MonitoredSwitch]] = {"polatis": _polatis}


def open_switch(spec: SwitchSpec, way: Way, clock: Clock) -> MonitoredSwitch:
    """The driver of a switch; raises `NoDriverError` for a model or wire without one."""
    driver = _SWITCHES.get(spec.model)
    if driver is None:
        known = ", ".join(sorted(_SWITCHES))
        raise NoDriverError(f"{spec.name}: no driver for model {spec.model!r}; there are: {known}")
    return driver(spec, way, clock)


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
