"""One NETCONF session over SSH (RFC 6242): ncclient's, over our TCP connection.

ncclient's loop looks for something to send ten times a second, and drops a message that it cannot
parse without an error. Here the querying thread writes, a reader thread only reads and cuts the
messages (`netconf_framing`), and each goes to a listener first. The bytes on the SSH channel are
counted as on any other wire.
"""

import contextlib
import logging
import shlex
import socket
import threading
from typing import Protocol

import paramiko
from ncclient.manager import make_device_handler
from ncclient.transport.errors import AuthenticationError, TransportError
from ncclient.transport.session import NetconfBase
from ncclient.transport.ssh import SSHSession

from lightrig.instruments.clock import Clock, Flight
from lightrig.instruments.core.errors import UnreachableError
from lightrig.instruments.wire.known_hosts import HostKeys, RefusedHostKeyError, host_keys
from lightrig.instruments.wire.netconf_framing import NetconfFraming
from lightrig.instruments.wire.ssh_connection import SshLogin
from lightrig.instruments.wire.tcp import BurstSocket, connect

# Failures are raised as errors; a log would print them a second time.
logging.getLogger("ncclient").addHandler(logging.NullHandler())

"""Time allowed for the connection, and for the hello, in s of real time."""

_BASE_11 = "urn:ietf:params:netconf:base:1.1"


class MessageListener(Protocol):
    """Receiver of a session's messages."""

    def wrote(self, message: str) -> None:
        """Take `message`, without its framing, before it is written."""

    def read(self, message: str, not_before: int) -> bool:
        """Take a received message, on the session's thread; whether ncclient shall process it.

        not_before: lower bound of its arrival, in ns of the bench's clock.
        """

    def ended(self, session: "NcSession", error: Exception) -> None:
        """Take the end of `session`, on its thread."""


def open_session(
    instrument: str,
    host: str,
    port: int,
    clock: Clock,
    login: SshLogin,
    listener: MessageListener,
    timeout: float,
) -> "NcSession":
    """Connect, log in and exchange hellos, each within `timeout` s of real time.

    Raises:
        UnreachableError: no connection, a host key that is not to be trusted, no login, no NETCONF.
        KnownHostsError: the file of known host keys cannot be read.
    """
    where = f"{host}:{port}"

    def unreachable(problem: str, advice: str) -> UnreachableError:
        return UnreachableError(instrument, problem, details=[("try", advice)])

    by_hand = shlex.join(
        ["ssh", "-p", str(port), f"{login.user}@{host}" if login.user else host, "-s", "netconf"]
    )
    keys = host_keys(instrument, host, port, login.known_hosts, by_hand=by_hand)
    connection = connect(instrument, host, port, timeout, clock)
    session = NcSession(connection, clock, keys, listener)
    try:
        session.connect(
            host,
            port,
            timeout=timeout,
            username=login.user,
            password=login.password,
            allow_agent=login.password is None,
            look_for_keys=login.password is None,
            sock=session.bursts,
        )
    except BaseException as error:
        session.close()
        match error:
            case RefusedHostKeyError():
                raise UnreachableError(instrument, error.problem, details=error.details) from error
            case AuthenticationError():
                raise unreachable(
                    f"refused the login at {where}", "the credentials that `login:` names"
                ) from error
            case Exception():
                raise unreachable(
                    f"opened no NETCONF session at {where}: {error or 'it hung up'}",
                    f"`{by_hand}` by hand; is NETCONF on?",
                ) from error
        raise
    return session


class _KnownKeys:
    """The known keys of one host, as ncclient asks for them: by each name of the host."""

    def __init__(self, session: "NcSession", keys: HostKeys) -> None:
        self._session = session
        self._keys = keys

    def lookup(self, _: str) -> dict[str, None]:
        """Return the algorithms that ncclient shall negotiate, best first."""
        options = self._session.transport.get_security_options()
        return dict.fromkeys(self._keys.preferred(options.key_types))

    def check(self, _: str, key: paramiko.PKey) -> bool:
        """Check the key that the host has shown; raises `RefusedHostKeyError`."""
        self._keys.check(key.asbytes())
        return True


class NcSession(SSHSession):
    """ncclient's session over SSH, read by its thread and written by the querying thread.

    Attributes:
        over: whether the switch has ended it; a reply to a later write would never come.
    """

    def __init__(
        self,
        connection: socket.socket,
        clock: Clock,
        keys: HostKeys,
        listener: MessageListener,
    ) -> None:
        self.handler = make_device_handler(None)
        super().__init__(self.handler)
        self._host_keys = _KnownKeys(self, keys)
        self._socket = connection
        # Asked now: a connection that was reset has no names any more.
        self._ends = {connection.getsockname()}
        with contextlib.suppress(OSError):  # nor one whose peer has hung up already
            self._ends.add(connection.getpeername())
        self.bursts = BurstSocket(connection, clock)
        self._clock = clock
        self._listener = listener
        self._writing = threading.Lock()
        self._flight: Flight | None = None
        self._framing = NetconfFraming()
        self.over = False

    def load_known_hosts(self, filename: str | None = None) -> None:
        """Do nothing: the host's keys are given."""

    def send(self, message: str) -> None:
        """Write one message; raises OSError or ncclient's TransportError."""
        data = message.encode()
        if self._base == NetconfBase.BASE_11:
            framed = b"\n#%d\n%s\n##\n" % (len(data), data)
        else:
            framed = data + b"]]>]]>"
        channel = self._channel
        if channel is None or self.over:
            raise TransportError("the session is closed")
        flight = self._counted()
        self._listener.wrote(message)
        with self._writing:
            flight.sent(len(framed))
            try:
                channel.sendall(framed)
            except BaseException:  # an interrupt too: how much of it was written is unknown
                flight.landed(len(framed))
                _hang_up(channel)
                raise

    def run(self) -> None:
        """Read until the switch closes the session; on the session's thread."""
        channel, flight = self._channel, self._counted()
        error: Exception = EOFError("the switch closed the session")
        try:
            while data := self._receive(channel):
                for message in self._framing.received(data):
                    self._dispatch_message(message)
                    if self._both_state_chunks():
                        self._framing.begin_chunks()
                flight.landed(len(data))
        except Exception as failure:  # framing, encoding: reported to all waiting commands
            error = failure
        self.over = True
        self._listener.ended(self, error)
        self._dispatch_error(error)
        flight.close()
        _hang_up(channel)
        self._connected = False

    def _both_state_chunks(self) -> bool:
        """Whether the hellos, of which the server's came, agree on base:1.1."""
        stated = (self._server_capabilities or (), self._client_capabilities)
        return all(_BASE_11 in each for each in stated)

    def _receive(self, channel: paramiko.Channel) -> bytes:
        complete = self.bursts.handed_out()  # asked first: more may come meanwhile
        if not channel.recv_ready():
            self.bursts.forget(complete)
        return channel.recv(1 << 16)

    def close(self) -> None:
        """Close the session without informing the listener."""
        self.over = True
        self._listener = _NoListener()
        if self._channel is not None and self.ident is None:
            # The switch hung up before the reader thread was started, which would have seen it:
            # what it has sent until then would be in flight for ever, and virtual time stand still.
            self._counted().close()
        if self.transport is not None:
            super().close()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _counted(self) -> Flight:
        if self._flight is None:
            self._flight = self._clock.flight((frozenset(self._ends), self._channel.get_id()))
        return self._flight

    def _dispatch_message(self, raw: str) -> None:
        if self._listener.read(raw, self.bursts.oldest()):
            super()._dispatch_message(raw)


def _hang_up(channel: paramiko.Channel) -> None:
    with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
        channel.close()


class _NoListener:
    def wrote(self, message: str) -> None:
        pass

    def read(self, message: str, not_before: int) -> bool:
        return False

    def ended(self, session: NcSession, error: Exception) -> None:
        pass
