"""Connections to hosts behind SSH: the way there, the host's key, the login."""

import contextlib
import logging
import os
import shlex
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

import paramiko

from lightrig.instruments.clock import Clock
from lightrig.instruments.core.errors import SshConfigError, UnreachableError
from lightrig.instruments.ssh_socket import SshSocket
from lightrig.instruments.wire.known_hosts import HostKeys, RefusedHostKeyError, host_keys
from lightrig.instruments.wire.ssh_config import (
    USERS_KNOWN_HOSTS,
    SshSettings,
    parse_jump,
    read_settings,
)
from lightrig.instruments.wire.ssh_keys import offered_keys
from lightrig.instruments.wire.tcp import connect, handshake_timeout
from lightrig.testbeds.parts import SshTimeouts

# Failures are raised as errors; without a log of the user's they would be printed a second time.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

_MOST_JUMPS = 10
"""A configuration by which a jump host is reached through itself has no end."""

# How paramiko words it, with the exception of a refusal (auth_handler.py, wait_for_response).
_TIMEOUT, _SHUT_DOWN = "Authentication timeout", "transport shut down"

ENDED = (paramiko.SSHException, EOFError, OSError, ValueError, LookupError, TypeError, struct.error)
"""What paramiko raises of a connection that ends: also whatever ended its thread, as it is.

A server that sends what is no text, no key or no packet ends it by an error of Python's.
"""

_END_SECONDS = 5.0
_LAST_STDERR_SECONDS = 1.0
_LONGEST_STDERR = 1 << 12


@dataclass(frozen=True, slots=True)
class SshLogin:
    """Credentials: the keys of an agent or the user, unless a password is given.

    Attributes:
        user: login name; None for the one that `config` names, or this account's.
        password: only where the server takes no keys.
        known_hosts: file of host keys; None for those that `config` names, or the user's.
        config: configuration of OpenSSH's client; None for that of the user and the machine.
    """

    user: str | None = None
    password: str | None = None
    known_hosts: Path | None = None
    config: Path | None = None


class SshConnection:
    """A transport that is logged in, and what it is carried by.

    Attributes:
        transport: paramiko's.
        ends: what tells the connection from all others.

    Raises:
        UnreachableError: no connection, a host key that is not to be trusted, or no login.
        KnownHostsError: the known host keys cannot be read.
        SshConfigError: the configuration cannot be read.
    """

    def __init__(
        self,
        instrument: str,
        host: str,
        clock: Clock,
        *,
        port: int | None,
        login: SshLogin,
        timeouts: SshTimeouts,
    ) -> None:
        self._instrument = instrument
        self._clock = clock
        self._login = login
        self._timeouts = timeouts
        self._carriers = contextlib.ExitStack()
        self.ends: Hashable = None
        settings = read_settings(instrument, host, port=port, user=login.user, file=login.config)
        self.by_hand = _by_hand(settings, login, port)
        try:
            self.transport = self._open(settings, self.by_hand, login.password, 0)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the transport and what carries it."""
        self._carriers.close()

    def _open(
        self, settings: SshSettings, by_hand: str, password: str | None, jumped: int
    ) -> paramiko.Transport:
        """Connect to a host by way of its jump hosts, and log in; `jumped`: how often before."""
        where = f"{settings.host}:{settings.port}" + (" (jump host)" if jumped else "")
        stated = settings.connect_timeout
        chosen = self._timeouts
        banner_ns = chosen.connect_ns if chosen.banner_ns is None else chosen.banner_ns
        connecting, banner = (
            given / 1e9 if given is not None else stated or DEFAULT_SECONDS
            for given in (chosen.connect_ns, banner_ns)
        )
        further: Sequence[Path] | None = settings.global_known_hosts
        if self._login.known_hosts is None or jumped:
            users = settings.user_known_hosts
            listed = USERS_KNOWN_HOSTS if users is None else users
            further = (*listed, *settings.global_known_hosts)
        keys = host_keys(
            self._instrument,
            settings.host,
            settings.port,
            self._login.known_hosts,
            further,
            alias=settings.host_key_alias,
            by_hand=by_hand,
        )
        carrier, proxy = self._carrier(settings, where, connecting, jumped)
        attempt = _Attempt(self._instrument, where, by_hand, self._clock, proxy)
        transport = _transport(keys, carrier)
        self._carriers.callback(transport.close)
        banner, login = (
            handshake_timeout(each, self._clock) for each in (banner, chosen.login_ns / 1e9)
        )
        attempt.shake_hands(transport, keys, banner, login)
        attempt.log_in(transport, settings, password, login)
        carrier.settimeout(None)  # the handshake had a limit
        return transport

    def _carrier(
        self, settings: SshSettings, where: str, timeout: float, jumped: int
    ) -> "tuple[SshSocket, _ProxyCommand | None]":
        if settings.jumps:
            return self._jump(settings, where, timeout, jumped), None
        if settings.proxy_command is not None:
            proxy = _ProxyCommand(settings.proxy_command)
            self._carriers.callback(proxy.close)
            self.ends = frozenset((f"proxy {id(proxy)}",))
            return SshSocket(proxy.connection), proxy
        connection = connect(self._instrument, settings.host, settings.port, timeout, self._clock)
        self._carriers.callback(connection.close)
        ends = [connection.getsockname()]
        with contextlib.suppress(OSError):  # a peer that has hung up already has no name
            ends.append(connection.getpeername())
        self.ends = frozenset(ends)
        return SshSocket(connection), None

    def _jump(self, settings: SshSettings, where: str, timeout: float, jumped: int) -> SshSocket:
        # As ssh -J: the last jump is reached through those before it, or as itself is configured.
        *before, last = settings.jumps
        try:
            if jumped == _MOST_JUMPS:
                raise ValueError(f"more than {_MOST_JUMPS} jump hosts, is {last} its own?")
            user, host, port = parse_jump(last)
        except ValueError as error:
            raise SshConfigError(
                self._instrument,
                f"was not contacted, since ProxyJump of {settings.name} leads nowhere: {error}",
            ) from error
        via = read_settings(
            self._instrument, host, port=port, user=user, file=self._login.config, jumps=before
        )
        login = SshLogin(user, config=self._login.config)
        transport = self._open(via, _by_hand(via, login, port), None, jumped + 1)
        try:
            channel = transport.open_channel(
                "direct-tcpip", (settings.host, settings.port), ("127.0.0.1", 0), timeout=timeout
            )
        except ENDED as error:
            raise UnreachableError(
                self._instrument,
                f"did not answer at {where} through {via.host}:{via.port}: {error or 'it hung up'}",
                details=[("try", f"`{_by_hand(via, login, port)}` by hand, and from there")],
            ) from error
        self.ends = frozenset((f"jump {id(channel)}",))
        return _ChannelSocket(channel)


class _ChannelSocket(SshSocket):
    """A channel of a jump host; the connection to that may have ended before."""

    def close(self) -> None:
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            super().close()


DEFAULT_SECONDS = 5.0
"""Time for the connection and for the banner where neither testbed nor configuration states one."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What is written about an attempt that fails.

    Attributes:
        proxy: the command that carries it; None without one.
    """

    instrument: str
    where: str
    by_hand: str
    clock: Clock
    proxy: "_ProxyCommand | None"

    def shake_hands(
        self, transport: paramiko.Transport, keys: HostKeys, banner: float, login: float
    ) -> None:
        """Exchange banners and keys, and check the host's."""
        transport.banner_timeout = banner
        transport.auth_timeout = login
        transport.handshake_timeout = login
        start = self.clock.now()
        error: Exception | None = None
        try:
            transport.start_client(timeout=banner + login)
        except ENDED as raised:
            error = raised
        took = (self.clock.now() - start) / 1e9
        if not transport.remote_version:
            if took >= banner:
                problem = f"sent no SSH banner at {self.where} within {banner:g} s"
            elif error is not None and "Indecipherable" in str(error):
                problem = f"is no SSH server at {self.where}: {error}"
            else:
                problem = f"closed the connection at {self.where} before its SSH banner"
            advice = f"`{self.by_hand}` by hand; is it an SSH server, may so many connect at once?"
            raise self.unreachable(problem, advice) from error
        if error is not None or not transport.initial_kex_done:
            within = f"within {login:g} s" if took >= login else ""
            why = within or f": {error or 'it hung up'}"
            problem = f"did not finish the key exchange at {self.where} {why}".replace(" :", ":")
            raise self.unreachable(problem, f"`{self.by_hand}` by hand") from error
        try:
            keys.check(transport.get_remote_server_key().asbytes())
        except RefusedHostKeyError as refused:
            raise UnreachableError(
                self.instrument, refused.problem, details=refused.details
            ) from refused

    def log_in(
        self,
        transport: paramiko.Transport,
        settings: SshSettings,
        password: str | None,
        limit: float,
    ) -> None:
        """Log in by password or by keys."""
        start = self.clock.now()
        try:
            if password is not None:
                transport.auth_password(settings.user, password)
            else:
                self._offer_keys(transport, settings)
        except paramiko.AuthenticationException as error:
            if (self.clock.now() - start) / 1e9 >= limit:
                raise self.unreachable(
                    f"did not answer the login at {self.where} within {limit:g} s",
                    f"`{self.by_hand}` by hand",
                ) from error
            refused = "ended the connection in" if _SHUT_DOWN in str(error) else "refused"
            raise self.unreachable(
                f"{refused} the login at {self.where}: {error}", f"`{self.by_hand}` by hand"
            ) from error
        except ENDED as error:
            raise self.unreachable(
                f"could not be logged into at {self.where}: {error or 'it hung up'}",
                f"`{self.by_hand}` by hand",
            ) from error

    def _offer_keys(self, transport: paramiko.Transport, settings: SshSettings) -> None:
        with contextlib.suppress(paramiko.BadAuthenticationType):
            if not transport.auth_none(settings.user):
                return
        offered = 0
        with offered_keys(settings) as (keys, left_out, in_agent):
            for key in keys:
                error: Exception | None = None
                try:
                    if not transport.auth_publickey(settings.user, key):
                        return
                    error = paramiko.AuthenticationException("it asks for more than a key")
                except ENDED as refused:
                    error = refused
                offered += 1
                if not transport.is_active():
                    raise self._hung_up(offered, in_agent) from error
                if isinstance(error, paramiko.BadAuthenticationType) or _TIMEOUT in str(error):
                    raise error
        notes = "".join(f"; {note}" for note in left_out)
        what = f"none of {offered} keys" if offered else "there is no key to offer"
        raise paramiko.AuthenticationException(f"{what}{notes}")

    def _hung_up(self, offered: int, in_agent: int) -> UnreachableError:
        keys = "keys" if offered > 1 else "key"
        advice = f"`{self.by_hand}` by hand"
        if in_agent > 1:
            advice = (
                f"the key agent holds {in_agent} keys, and servers end a login after a few "
                "(OpenSSH: 6); name the right one by IdentityFile and IdentitiesOnly yes of "
                "~/.ssh/config, or of the testbed's `ssh_config:`"
            )
        return self.unreachable(f"ended the login at {self.where} after {offered} {keys}", advice)

    def unreachable(self, problem: str, advice: str) -> UnreachableError:
        """Return the error, with the last line of a proxy command."""
        lines = self.proxy.stderr().strip().splitlines() if self.proxy is not None else []
        printed = [("printed", line) for line in lines[-1:]]
        return UnreachableError(self.instrument, problem, details=[*printed, ("try", advice)])


class _ProxyCommand:
    """A command whose input and output are a connection (ssh_config(5), ProxyCommand)."""

    def __init__(self, command: str) -> None:
        self.connection, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [os.environ.get("SHELL") or "/bin/sh", "-c", f"exec {command}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C reaches the whole process group
            )
        self._stderr = b""
        self._reader = threading.Thread(target=self._read, name="ssh proxy", daemon=True)
        self._reader.start()

    def stderr(self) -> str:
        """Return the end of its standard error; whole if it ends within a moment."""
        self._reader.join(_LAST_STDERR_SECONDS)
        return self._stderr.decode("utf-8", "backslashreplace")

    def close(self) -> None:
        """End the command."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_SECONDS)
                break
        self._reader.join(_END_SECONDS)

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stderr:
            while data := os.read(stderr.fileno(), _LONGEST_STDERR):
                self._stderr = (self._stderr + data)[-_LONGEST_STDERR:]


def _transport(keys: HostKeys, connection: SshSocket) -> paramiko.Transport:
    """Return a transport that prefers AES-GCM and the kinds of the host's known keys.

    AES-GCM: without a separate MAC a message takes 20 % less.
    """
    transport = paramiko.Transport(connection)
    chosen = transport.get_security_options()
    chosen.ciphers = sorted(chosen.ciphers, key=lambda name: "gcm" not in name)
    chosen.key_types = keys.preferred(chosen.key_types)
    return transport


def _by_hand(settings: SshSettings, login: SshLogin, port: int | None) -> str:
    """Return the command that logs in at the same place, as it can be typed."""
    arguments = ["ssh"]
    if login.config is not None:
        arguments += ["-F", str(login.config)]
    if login.known_hosts is not None:
        arguments += ["-o", f"UserKnownHostsFile={login.known_hosts}"]
    if port is not None:
        arguments += ["-p", str(port)]
    return shlex.join([*arguments, f"{settings.user}@{settings.name}"])
