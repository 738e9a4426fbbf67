"""A NETCONF server over real SSH that replies as a script wants, also wrongly."""

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightrig.instruments.clock import Clock
from lightrig.instruments.simulated.protocols.device_server import SessionFactory
from lightrig.instruments.simulated.protocols.netconf_server import NetconfServer
from lightrig.instruments.wire.netconf import NetconfSession

NC = "urn:ietf:params:xml:ns:netconf:base:1.0"
LOGIN = ("bench", "hunter2-and-more")
HELLO = (
    f'<hello xmlns="{NC}"><capabilities><capability>urn:ietf:params:netconf:base:1.0</capability>'
    "<capability>urn:ietf:params:netconf:base:1.1</capability></capabilities>"
    "<session-id>4</session-id></hello>]]>]]>"
)


@dataclass
class Call:
    """One rpc, and the channel for its reply."""

    text: str
    number: int
    id: str
    line: Any

    def raw(self, data: bytes) -> None:
        self.line.send(data)

    def message(self, text: str) -> None:
        data = text.encode()
        self.raw(b"\n#%d\n%s\n##\n" % (len(data), data))

    def reply(self, inner: str = "<ok/>", tag: str | None = None) -> None:
        tag = self.id if tag is None else tag
        self.message(f'<rpc-reply xmlns="{NC}" message-id="{tag}">{inner}</rpc-reply>')

    def data(self, value: str) -> None:
        self.reply(f"<data><box><leaf>{value}</leaf></box></data>")

    def error(self, tag: str, message: str, severity: str = "error") -> None:
        self.reply(
            f"<rpc-error><error-type>application</error-type><error-tag>{tag}</error-tag>"
            f"<error-severity>{severity}</error-severity><error-message>{message}</error-message>"
            "</rpc-error>"
        )


Script = Callable[[Call], None]


@dataclass
class ScriptedServer:
    """A server that calls `script` with each rpc; `calls` holds what it received."""

    script: Script
    hello: str | None = HELLO
    line: Any = None
    channel: Any = None
    calls: list[str] = field(default_factory=list)
    sessions: int = 0

    def __call__(self, line: Any, _: int) -> "_Session":
        self.sessions += 1
        self.line = line
        if self.hello is not None:
            line.send(self.hello.encode())
        return _Session(self, line)


class _Session:
    def __init__(self, server: ScriptedServer, line: Any) -> None:
        self._server = server
        self._line = line
        self._buffer = b""
        self._greeted = False

    def received(self, data: bytes) -> None:
        self._buffer += data
        if not self._greeted:
            hello, end, self._buffer = self._buffer.partition(b"]]>]]>")
            if not end:
                self._buffer = hello
                return
            self._greeted = True
        while (end := self._buffer.find(b"\n##\n")) >= 0:
            message, self._buffer = self._buffer[:end].decode(), self._buffer[end + 4 :]
            found = re.search(r'message-id="([^"]*)"', message)
            self._server.calls.append(message)
            assert found is not None
            self._server.script(Call(message, len(self._server.calls), found[1], self._line))

    def closed(self) -> None:
        pass


class _Channels(NetconfServer):
    """A NETCONF server that hands its device the SSH channel of the newest session."""

    def __init__(self, device: Any, clock: Clock) -> None:
        super().__init__(device, clock, LOGIN)
        self._device = device

    def run_session(self, channel: Any, ends: Any) -> None:
        self._device.channel = channel
        super().run_session(channel, ends)


@contextlib.contextmanager
def scripted_netconf(
    clock: Clock, folder: Path, script: Script, **options: Any
) -> Iterator[tuple[NetconfSession, ScriptedServer]]:
    """Open a session with a scripted server."""
    scripted = ScriptedServer(script)
    with served_netconf(scripted, clock, folder, **options) as session:
        yield session, scripted


@contextlib.contextmanager
def served_netconf(
    device: SessionFactory, clock: Clock, folder: Path, **options: Any
) -> Iterator[NetconfSession]:
    """Open a session with the sessions of `device`."""
    server = _Channels(device, clock)
    known_hosts = folder / "known_hosts"
    known_hosts.write_text(server.known_hosts_line())
    options = {"login": LOGIN, "known_hosts": known_hosts, **options}
    session = NetconfSession("ocs", *server.address, clock, **options)
    try:
        yield session
    finally:
        session.close()
        server.close()
