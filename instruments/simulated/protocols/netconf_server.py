"""NETCONF over SSH: a listener whose only subsystem is netconf."""

import contextlib
import socket
import threading

import paramiko

from lightrig.instruments.clock import Clock, Flight
from lightrig.instruments.simulated.protocols.device_server import SessionFactory
from lightrig.instruments.simulated.protocols.ssh_listener import (
    CLIENT_LEFT,
    SshListener,
    SshService,
)


class NetconfServer(SshListener):
    """Serves a device's NETCONF sessions over SSH on loopback.

    Args:
        factory: makes the session of each client.
        login: user and password that it accepts.
        port: TCP port, 0 for any free one.
        host_key: as of `SshListener`.
    """

    def __init__(
        self,
        factory: SessionFactory,
        clock: Clock,
        login: tuple[str, str],
        port: int = 0,
        host_key: paramiko.PKey | None = None,
    ) -> None:
        self._clock = clock
        self._factory = factory
        self._count = 0
        super().__init__(lambda connection: NetconfService(self, login, connection), port, host_key)

    def run_session(self, channel: paramiko.Channel, ends: frozenset[object]) -> None:
        """Run one client's session until it hangs up; on its own thread."""
        # Both sides number a connection's channels alike: from zero, as they are opened.
        flight = self._clock.flight((ends, channel.get_id()))
        number, self._count = self._count, self._count + 1
        connection = _Channel(channel, flight)
        session = self._factory(connection, number)
        with contextlib.suppress(*CLIENT_LEFT):
            while data := channel.recv(1 << 16):
                session.received(data)
                flight.landed(len(data))
        session.closed()
        if not connection.hung_up:  # else the client has yet to see the end, and counts it then
            flight.close()


class _Channel:
    """One client's channel, as a session uses it."""

    def __init__(self, channel: paramiko.Channel, flight: Flight) -> None:
        self._channel = channel
        self._flight = flight
        self.hung_up = False

    def send(self, data: bytes) -> None:
        """Write to the client; one that has left is no error, as for any instrument."""
        self._flight.sent(len(data))
        try:
            self._channel.sendall(data)
        except CLIENT_LEFT:
            self._flight.landed(len(data))

    def close(self, *, abruptly: bool = False) -> None:
        """Hang up; the end itself counts as one byte in flight until the client has seen it."""
        self._flight.sent(1)
        self.hung_up = True
        with contextlib.suppress(*CLIENT_LEFT):
            if abruptly:
                self._channel.get_transport().close()
            else:
                self._channel.close()


class NetconfService(SshService):
    """What the SSH server of a NETCONF server offers: its subsystem."""

    def __init__(
        self, server: NetconfServer, login: tuple[str, str], connection: socket.socket
    ) -> None:
        super().__init__(login, connection)
        self._server = server

    def check_channel_subsystem_request(self, channel: paramiko.Channel, name: str) -> bool:
        """Begin a session, if the subsystem is netconf."""
        if name != "netconf":
            return False
        run = self._server.run_session
        threading.Thread(target=run, args=(channel, self.ends), name="netconf", daemon=True).start()
        return True
