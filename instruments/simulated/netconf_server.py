"""The listening side of simulated NETCONF: real SSH, whose only subsystem is netconf."""

import contextlib
import logging
import socket
import threading

import paramiko

from instruments.clock import Clock, Flight
from instruments.simulated.peer_server import SessionFactory

_QUIET = "lightrig.simulated.netconf"
"""A log that nobody reads: clients hanging up on a simulated switch are no news."""

logging.getLogger(_QUIET).disabled = True

_GONE = (paramiko.SSHException, EOFError, OSError)
"""What it looks like when the client is not there any more."""


class NetconfServer:
    """Serves a peer's NETCONF sessions over SSH on loopback.

    Args:
        factory: makes the session of each client.
        login: the user and password it accepts.
        port: where it listens, 0 for any free port.
    """

    def __init__(
        self, factory: SessionFactory, clock: Clock, login: tuple[str, str], port: int = 0
    ) -> None:
        self.login = login
        self.clock = clock
        self._factory = factory
        self._count = 0
        self._host_key = paramiko.ECDSAKey.generate()
        self._transports: list[paramiko.Transport] = []
        self._listener = socket.create_server(("127.0.0.1", port))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._accepting = threading.Thread(target=self._accept, name="netconf", daemon=True)
        self._accepting.start()

    def known_hosts_line(self) -> str:
        """What a client's known_hosts file must say to trust this server."""
        host, port = self.address
        return f"[{host}]:{port} {self._host_key.get_name()} {self._host_key.get_base64()}"

    def close(self) -> None:
        """Hang up on everybody and stop listening."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        for transport in self._transports:
            transport.close()

    def serve(self, channel: paramiko.Channel, connection: socket.socket) -> None:
        """Be one client's session until it hangs up; on a thread of its own."""
        ends = frozenset((connection.getsockname(), connection.getpeername()))
        # Both sides number a connection's channels alike: from zero, as they are opened.
        flight = self.clock.flight((ends, channel.get_id()))
        number, self._count = self._count, self._count + 1
        ours = _Channel(channel, flight)
        session = self._factory(ours, number)
        with contextlib.suppress(*_GONE):
            while data := channel.recv(1 << 16):
                session.received(data)
                flight.landed(len(data))
        session.closed()
        if not ours.hung_up:  # else the client has yet to see the end, and counts it then
            flight.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport = paramiko.Transport(connection)
            transport.set_log_channel(_QUIET)
            transport.add_server_key(self._host_key)
            self._transports.append(transport)
            with contextlib.suppress(*_GONE):
                transport.start_server(threading.Event(), _Service(self, connection))


class _Channel:
    """One client's channel, as a peer sees it."""

    def __init__(self, channel: paramiko.Channel, flight: Flight) -> None:
        self._channel = channel
        self._flight = flight
        self.hung_up = False

    def send(self, data: bytes) -> None:
        """Write to the client; one that is gone is no error, as for any instrument."""
        self._flight.sent(len(data))
        try:
            self._channel.sendall(data)
        except _GONE:
            self._flight.landed(len(data))

    def close(self, *, abruptly: bool = False) -> None:
        """Hang up; the end itself counts as one byte in flight until the client has seen it."""
        self._flight.sent(1)
        self.hung_up = True
        with contextlib.suppress(*_GONE):
            if abruptly:
                self._channel.get_transport().close()
            else:
                self._channel.close()


class _Service(paramiko.ServerInterface):
    def __init__(self, server: NetconfServer, connection: socket.socket) -> None:
        self._server = server
        self._connection = connection

    def get_allowed_auths(self, username: str) -> str:
        """Say that only a password lets in."""
        return "password"

    def check_auth_password(self, username: str, password: str) -> int:
        """Let the one user in."""
        accepted = (username, password) == self._server.login
        return paramiko.AUTH_SUCCESSFUL if accepted else paramiko.AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        """Allow sessions."""
        if kind == "session":
            return paramiko.OPEN_SUCCEEDED
        return paramiko.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED

    def check_channel_subsystem_request(self, channel: paramiko.Channel, name: str) -> bool:
        """Begin a session, if the subsystem is netconf."""
        if name != "netconf":
            return False
        serve = (channel, self._connection)
        threading.Thread(target=self._server.serve, args=serve, name="netconf", daemon=True).start()
        return True
