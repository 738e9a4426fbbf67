"""A server behind SSH whose connection ends, or stands still, at each stage of its making."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from openssh_host import OpenSshHost

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.errors import DisconnectedError, UnreachableError
from lightrig.instruments.servers.host.commands import Commands
from lightrig.instruments.wire.ssh import SshLogin, SshShell
from lightrig.instruments.wire.ssh_config import NO_FILE
from lightrig.testbeds.parts import SshTimeouts

IN_BANNER = 10
IN_KEY_EXCHANGE = 300
"""RFC 4253: a banner has at most 255 bytes; the server's KEXINIT follows, of some 1,000 bytes."""
LAST_REQUEST = 100
"""The last request of a login by ECDSA is longer: a key of 104 bytes, and a signature of it."""

LIMITS = SshTimeouts(banner_ns=400_000_000, login_ns=700_000_000)


class Cable:
    """Carries connections to a port; of what a server sends only the begin arrives.

    Attributes:
        most: number of bytes of the server that arrive; None for all.
        until: number of bytes of the client after which none arrive; None for no limit.
        closes: whether the connection is closed then, or stands still.
        asked: bytes that the client has sent on the last connection.
    """

    def __init__(self, port: int) -> None:
        self.most: int | None = None
        self.until: int | None = None
        self.closes = True
        self.asked = 0
        self._target = port
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    def cut(self) -> None:
        """Close every connection at both ends."""
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join()
        for end in self._ends:
            end.close()

    def _start(self, work: Callable[..., None], *arguments: socket.socket) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._ends += client, server
                self.asked = 0
                self._start(self._carry_all, client, server)
                self._start(self._carry_some, server, client)

    def _carry_all(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.asked += len(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_RDWR)

    def _carry_some(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            carried = 0
            while data := source.recv(1 << 16):
                left = len(data) if self.most is None else max(self.most - carried, 0)
                if self.until is not None and self.asked > self.until:
                    left = 0
                carried += len(data)
                sink.sendall(data[:left])
                if len(data) > left and self.closes:
                    break
            sink.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def cable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cable]:
    monkeypatch.setenv("HOME", str(tmp_path))  # with the account's key
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    host = OpenSshHost(tmp_path, tmp_path)
    cable = Cable(host.port)
    known = tmp_path / "known_hosts"
    known.write_text(known.read_text().replace(f":{host.port} ", f":{cable.port} "))
    yield cable
    cable.close()
    host.close()


@pytest.fixture
def log_in(cable: Cable, tmp_path: Path) -> Iterator[Callable[..., SshShell]]:
    with contextlib.ExitStack() as stack:

        def start(timeouts: SshTimeouts = SshTimeouts()) -> SshShell:  # noqa: B008 - frozen
            login = SshLogin(None, None, tmp_path / "known_hosts", NO_FILE)
            clock = SystemClock()
            shell = SshShell(
                "server0", "127.0.0.1", clock, port=cable.port, login=login, timeouts=timeouts
            )
            stack.callback(shell.close)
            return shell

        yield start


@pytest.mark.parametrize(
    ("most", "closes", "sentence"),
    [
        (IN_BANNER, True, r"closed the connection at \S+ before its SSH banner"),
        (IN_BANNER, False, r"sent no SSH banner at \S+ within 0\.4 s"),
        (IN_KEY_EXCHANGE, True, r"did not finish the key exchange at \S+: "),
        (IN_KEY_EXCHANGE, False, r"did not finish the key exchange at \S+ within 0\.7 s"),
        (None, True, r"ended the login at \S+ after 1 key"),
        (None, False, r"did not answer the login at \S+ within 0\.7 s"),
    ],
)
def test_a_connection_that_ends_or_stands_still_is_told_from_a_refusal(
    cable: Cable, log_in: Callable[..., SshShell], most: int | None, closes: bool, sentence: str
) -> None:
    if most is None:
        log_in().close()
        cable.until = cable.asked - LAST_REQUEST
    cable.most, cable.closes = most, closes
    with pytest.raises(UnreachableError, match=f"^server0 {sentence}") as ended:
        log_in(LIMITS)
    assert "refused" not in str(ended.value)
    cable.most = cable.until = None
    log_in()


def test_a_connection_that_ends_after_the_login(
    cable: Cable, log_in: Callable[..., SshShell]
) -> None:
    commands = Commands("server0", log_in(), SystemClock())
    cable.cut()
    with pytest.raises(UnreachableError, match=r"^server0 started no program: ") as ended:
        commands.run(["true"])
    assert "by hand" in str(ended.value)


def test_a_connection_that_ends_in_the_middle_of_a_reply(
    cable: Cable, log_in: Callable[..., SshShell]
) -> None:
    commands = Commands("server0", log_in(), SystemClock())
    program = commands.start(["sh", "-c", "read line; echo first; echo -n sec; read line"])
    assert program.query([""]) == "first"
    cable.cut()
    with pytest.raises(DisconnectedError, match="ended the connection before a program had ended"):
        program.result()
