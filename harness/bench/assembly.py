"""Opening a testbed's instruments and servers, and collecting what is open."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from lightrig.instruments.clock import Clock
from lightrig.instruments.core.capabilities import Identified, Identity, OpticalSwitch, Server
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.registry import NoDriverError, Spec
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.servers.host.offset import ClockMap
from lightrig.instruments.wire.namespace import NamespaceShell
from lightrig.testbeds import LightrigError, ServerSpec, Testbed

Clocks: TypeAlias = dict[str, ClockMap]
"""Clock maps of a bench's servers by boot id; namespaces of one machine share one."""


class UnsupportedHostError(LightrigError):
    """The testbed cannot run on this machine, for example without network namespaces."""


def spec_of(testbed: Testbed, name: str) -> Spec | ServerSpec:
    """Return the description of the switch, server or instrument of that name."""
    return testbed.switches.get(name) or testbed.servers.get(name) or testbed.instruments[name]


def open_server(spec: ServerSpec, endpoint: Endpoint, clock: Clock, clocks: Clocks) -> Server:
    """Open the driver of a server behind SSH; raises `UnreachableError`."""
    if endpoint.scheme != "ssh":
        raise NoDriverError(
            f"{spec.name}: a server is reached over ssh://, not {endpoint.scheme}://"
        )
    from lightrig.instruments.wire.ssh import SshLogin, SshShell  # noqa: PLC0415 - loads paramiko

    user, password = endpoint.login or (endpoint.user, None)
    shell = SshShell(
        spec.name,
        endpoint.host,
        clock,
        port=endpoint.port,
        login=SshLogin(user, password, endpoint.known_hosts, endpoint.ssh_config),
        timeouts=spec.timeouts,
        python=spec.python,
    )
    return LinuxServer(
        spec.name,
        shell,
        clock,
        clocks,
        become=spec.become,
        first_answer_ns=spec.timeouts.first_answer_ns,
        answer_ns=spec.timeouts.answer_ns,
        program_ns=spec.timeouts.program_ns,
    )


def open_namespace(spec: ServerSpec, pid: int, clock: Clock, clocks: Clocks) -> Server:
    """Open the driver of a server that is the network namespace of process `pid`."""
    return LinuxServer(spec.name, NamespaceShell(pid), clock, clocks)


class Assembly:
    """Open instruments of a testbed by kind, their identities, and their closers."""

    def __init__(
        self,
        testbed: Testbed,
        clock: Clock,
        opened: Mapping[str, Identified],
        identities: Mapping[str, Identity],
        closers: list[Callable[[], None]],
    ) -> None:
        self.testbed = testbed
        self.clock = clock
        self.identities = dict(identities)
        self.switches: dict[str, OpticalSwitch] = {}
        self.servers: dict[str, Server] = {}
        self.instruments: dict[str, Identified] = {}
        self.closers = [*closers, clock.close]
        for name, instrument in opened.items():
            self._sort(name, instrument)

    def add(self, name: str, instrument: Identified) -> None:
        """Add an open instrument, and query its identity."""
        self._sort(name, instrument)
        self.identities[name] = instrument.identity()

    def _sort(self, name: str, instrument: Identified) -> None:
        self.closers.append(instrument.close)
        if name in self.testbed.switches:
            self.switches[name] = instrument  # type: ignore[assignment]
        elif name in self.testbed.servers:
            self.servers[name] = instrument  # type: ignore[assignment]
        else:
            self.instruments[name] = instrument
