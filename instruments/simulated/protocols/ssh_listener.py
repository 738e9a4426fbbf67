"""An SSH service on loopback: one user with a password, and a host key made for it.

Simulated hosts and NETCONF servers differ in what a session may ask for; the rest is here.
"""

import logging
import socket
import threading
from collections import deque
from collections.abc import Callable

import paramiko
from paramiko.common import cMSG_CHANNEL_SUCCESS

from lightrig.instruments.loopback import LoopbackListener
from lightrig.instruments.machine_limits import keep_in_mind
from lightrig.instruments.ssh_socket import SshSocket

_DISABLED_LOG = "lightrig.simulated.ssh"
logging.getLogger(_DISABLED_LOG).disabled = True  # clients that hang up are nothing to report

CLIENT_LEFT = (paramiko.SSHException, EOFError, OSError)
"""Errors of a connection whose client is no longer there."""


class SshTransport(paramiko.Transport):
    """The server's end of a connection; starts programs after their requests were accepted.

    A program that ended first would close its channel before the client reads that it was started
    (RFC 4254 section 6.5), which clients take for a refusal.
    """

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(SshSocket(connection))
        self._starting: deque[threading.Thread] = deque()

    def start_when_accepted(self, program: threading.Thread) -> None:
        """Start `program` when the client was sent that the request in hand is accepted."""
        self.sock.settimeout(None)  # the login had a limit
        self._starting.append(program)

    def run(self) -> None:
        """Serve the connection; paramiko keeps the error by which it ends to itself."""
        super().run()
        if self.saved_exception is not None:
            keep_in_mind(self.saved_exception)

    def _send_user_message(self, data: paramiko.Message) -> None:
        super()._send_user_message(data)
        if self._starting and data.asbytes().startswith(cMSG_CHANNEL_SUCCESS):
            while self._starting:
                self._starting.popleft().start()


class SshListener:
    """Accepts SSH connections until closed.

    Args:
        serve: makes the service of an accepted connection.
        port: TCP port, 0 for any free one.
        host_key: its only host key; None for a new ECDSA key.
    """

    def __init__(
        self,
        serve: Callable[[socket.socket], paramiko.ServerInterface],
        port: int = 0,
        host_key: paramiko.PKey | None = None,
    ) -> None:
        self._serve = serve
        self._host_key = host_key or paramiko.ECDSAKey.generate()
        self._transports: list[SshTransport] = []
        self._listener = LoopbackListener(self._accepted, port)
        self.address = self._listener.address

    def known_hosts_line(self) -> str:
        """Return the line of a client's known_hosts file that trusts this server."""
        host, port = self.address
        return f"[{host}]:{port} {self._host_key.get_name()} {self._host_key.get_base64()}"

    def close(self) -> None:
        """Close every connection and stop listening."""
        self._listener.close()
        for transport in self._transports:
            transport.close()

    def _accepted(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport = SshTransport(connection)
        transport.set_log_channel(_DISABLED_LOG)
        transport.add_server_key(self._host_key)
        self._transports.append(transport)
        try:
            # With an event this does not wait for the client's key exchange, so that one
            # client that connects and says nothing does not keep the others out.
            transport.start_server(threading.Event(), self._serve(connection))
        except CLIENT_LEFT:
            transport.close()
        except BaseException:
            transport.close()  # or its client would wait for a banner
            raise


class SshService(paramiko.ServerInterface):
    """One connection: accepts one user by password, and sessions.

    Args:
        login: user and password that are accepted.
        connection: its addresses identify its bytes in flight to the clock.
    """

    def __init__(self, login: tuple[str, str], connection: socket.socket) -> None:
        self._login = login
        self.ends = frozenset((connection.getsockname(), connection.getpeername()))

    @staticmethod
    def start_when_accepted(
        channel: paramiko.Channel, target: Callable[..., None], *args: object
    ) -> None:
        """Call `target` in a thread when the client was sent that its request is accepted."""
        transport = channel.get_transport()
        assert isinstance(transport, SshTransport)
        transport.start_when_accepted(threading.Thread(target=target, args=args, daemon=True))

    def get_allowed_auths(self, username: str) -> str:
        """Allow passwords only."""
        return "password"

    def check_auth_password(self, username: str, password: str) -> int:
        """Accept the one user."""
        accepted = (username, password) == self._login
        return int(paramiko.AUTH_SUCCESSFUL if accepted else paramiko.AUTH_FAILED)

    def check_channel_request(self, kind: str, chanid: int) -> int:
        """Accept sessions."""
        accepted = kind == "session"
        refusal = paramiko.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED
        return int(paramiko.OPEN_SUCCEEDED if accepted else refusal)
