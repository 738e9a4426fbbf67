"""The driver of a Linux server, over real SSH, with the real probe."""

import contextlib
import json
import os
import platform
import shlex
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paramiko
import pytest
from real_time import over_soon, until
from ssh_host import LOGIN, SshHost
from unused_ports import unused_ports

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.capabilities import PortWatch
from lightrig.instruments.core.errors import (
    DisconnectedError,
    GarbledError,
    InstrumentError,
    NoReplyError,
    UnreachableError,
)
from lightrig.instruments.servers.host import program
from lightrig.instruments.servers.host.commands import Commands
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.supervisor import plain_line
from lightrig.instruments.wire.ssh import SshLogin, SshShell
from lightrig.testbeds.parts import SshTimeouts

LO = [PortWatch("lo")]
LONG = 20_000_000_000
SHORT = 50_000_000
SWALLOW = "IFS= read -r source; IFS= read -r hello;"
"""Shell: take the probe's source and the first request."""


@pytest.fixture
def host() -> Iterator[SshHost]:
    host = SshHost()
    yield host
    host.close()


@pytest.fixture
def known_hosts(tmp_path: Path, host: SshHost) -> Path:
    path = tmp_path / "known_hosts"
    path.write_text(host.known_hosts_line())
    return path


@pytest.fixture
def open_shell(host: SshHost, known_hosts: Path) -> Iterator[Callable[..., SshShell]]:
    with contextlib.ExitStack() as stack:

        def start(password: str = LOGIN[1], port: int | None = None, **options: Any) -> SshShell:
            login = SshLogin(LOGIN[0], password, known_hosts)
            shell = SshShell(
                "server0",
                "127.0.0.1",
                SystemClock(),
                port=port or host.port,
                login=login,
                **options,
            )
            stack.callback(shell.close)
            return shell

        yield start


@pytest.fixture
def server(open_shell: Callable[..., SshShell]) -> Iterator[LinuxServer]:
    server = LinuxServer("server0", open_shell(), SystemClock(), {})
    yield server
    server.close()


# ------------------------------------------------------------------ what it can do


def test_identity_of_the_host(server: LinuxServer, host: SshHost) -> None:
    identity = server.identity()
    assert identity.manufacturer == "Linux"
    assert identity.model == f"kernel {platform.release()}"
    assert identity.serial == platform.node()
    assert identity.firmware.startswith("python 3.")
    assert not identity.simulated
    (command,) = host.commands
    words = shlex.split(plain_line(command.encode()).decode())
    assert words[:3] == ["python3", "-u", "-c"]
    assert words[4:] == ["lightrig-probe", "1"]
    assert server.identity() == identity
    assert len(host.commands) == 1


def test_a_link_that_does_not_come_up_is_missing(server: LinuxServer) -> None:
    server.identity()
    before = SystemClock().now()
    server.watch(LO, period=1_000_000, datagram_period=None)
    settled = server.settle({"lo": ["carrier"]}, timeout=SHORT).result()
    assert settled.missing == (("lo", "carrier"),)
    assert settled.events == ()
    assert settled.datagrams == {}
    assert SystemClock().now() - before >= SHORT
    assert server.settle({}, timeout=LONG).result().missing == ()


def test_datagrams_are_counted(server: LinuxServer) -> None:
    server.watch(LO, period=1_000_000, datagram_period=1_000_000)
    until(lambda: counted(server)[0] > 0, SystemClock())
    server.settle({"lo": ["datagram"]}, timeout=10 * SHORT).result()
    assert counted(server)[1] == 0  # a port does not hear itself


def counted(server: LinuxServer) -> tuple[int, int]:
    """Return how many datagrams the loopback device has sent and received."""
    return server.settle({}, timeout=0).result().datagrams["lo"]


def test_waiting_request_does_not_delay_later_ones(server: LinuxServer) -> None:
    server.watch(LO, period=1_000_000, datagram_period=None)
    waiting = server.settle({"lo": ["carrier"]}, timeout=3 * SHORT)
    assert server.settle({}, timeout=LONG).result().missing == ()
    assert waiting.result().missing == (("lo", "carrier"),)


@pytest.mark.parametrize(
    ("ask", "kind"),
    [
        (lambda s: s.watch([PortWatch("nope0")], period=1, datagram_period=None), "unknown_port"),
        (lambda s: s.watch(LO, period=0, datagram_period=None), "bad_request"),
        (lambda s: s.settle({}, timeout=0).result(), "not_watching"),
    ],
)
def test_refusal_names_the_request_and_the_next_one_works(
    server: LinuxServer, ask: Callable[[LinuxServer], object], kind: str
) -> None:
    with pytest.raises(InstrumentError) as refused:
        ask(server)
    assert kind in str(refused.value)
    assert str(refused.value).startswith("server0 ")
    assert '"do":"' in refused.value.command
    server.watch(LO, period=1_000_000, datagram_period=None)


# -------------------------------------------------------------------- what goes wrong


def test_end_of_the_probe_shows_its_stderr(server: LinuxServer, host: SshHost) -> None:
    host.rewrite = lambda _: f"{SWALLOW} echo 'MemoryError: no room' >&2; exit 1"
    with pytest.raises(DisconnectedError) as lost:
        server.identity()
    assert "MemoryError: no room" in str(lost.value)
    assert '"do":"hello"' in lost.value.command
    host.rewrite = str
    assert server.identity().manufacturer == "Linux"


def test_end_of_a_long_stderr_is_shown(server: LinuxServer, host: SshHost) -> None:
    host.rewrite = lambda _: (
        f"{SWALLOW} i=0; while [ $i -lt 400 ]; do echo '  File \"probe.py\", line 1' >&2;"
        " i=$((i+1)); done; echo 'RecursionError: too deep' >&2; exit 1"
    )
    with pytest.raises(DisconnectedError, match="RecursionError: too deep") as lost:
        server.identity()
    assert len(str(lost.value)) < 10_000


def test_ten_megabytes_of_stderr_before_any_output_block_nothing(
    open_shell: Callable[..., SshShell], host: SshHost
) -> None:
    """The window of a channel is smaller (2 MiB in paramiko): unread, it stops the program."""
    text = "head -c 10000000 /dev/zero | tr '\\000' x >&2; echo the end >&2; echo done"
    commands = Commands("server0", open_shell(), SystemClock())
    result = commands.run(["sh", "-c", text], LONG)
    assert (result.stdout, result.status) == ("done\n", 0)
    assert result.stderr.endswith("xthe end\n")


def test_a_killed_probe_ends_every_wait(server: LinuxServer, host: SshHost) -> None:
    server.watch(LO, period=1_000_000, datagram_period=None)
    first, second = (server.settle({"lo": ["carrier"]}, timeout=LONG) for _ in range(2))
    os.killpg(host.programs[0].pid, signal.SIGKILL)
    for waiting in (first, second):
        with pytest.raises(DisconnectedError, match="settle"):
            waiting.result()


def test_a_host_that_vanishes_ends_every_wait(server: LinuxServer, host: SshHost) -> None:
    server.watch(LO, period=1_000_000, datagram_period=None)
    waiting = server.settle({"lo": ["carrier"]}, timeout=LONG)
    host.hang_up()
    with pytest.raises(DisconnectedError):
        waiting.result()
    with pytest.raises(InstrumentError, match="server0"):
        server.settle({}, timeout=0).result()


def test_without_python_the_shell_is_quoted(server: LinuxServer, host: SshHost) -> None:
    host.environment = {"PATH": "/nonexistent"}
    for _ in range(5):  # where the answer comes before the program is sent, and where after
        with pytest.raises(DisconnectedError) as missing:
            server.identity()
        assert "python3" in str(missing.value)
        assert "not found" in str(missing.value)


def test_program_that_ends_at_once_is_reported(server: LinuxServer, host: SshHost) -> None:
    host.rewrite = lambda _: "exit 0"
    for _ in range(5):
        with pytest.raises(DisconnectedError, match="hello"):
            server.identity()


def test_garbage_before_the_answers_is_set_aside(server: LinuxServer, host: SshHost) -> None:
    noise = [
        "Welcome to server0!",
        "",
        "{",
        "[]",
        "null",
        "7",
        '{"id":1}',
        '{"id":99,"at":[1,2],"ok":{}}',
    ]
    noise += [
        '{"id":1,"at":[1],"ok":{}}',
        '{"id":1,"at":{},"ok":{}}',
        '{"id":[],"at":[1,2],"ok":{}}',
    ]
    lines = "".join(f"printf '%s\\n' '{line}';" for line in noise)
    host.rewrite = lambda command: f"{lines} printf '\\377\\376\\n'; exec {command}"
    assert server.identity().manufacturer == "Linux"
    set_aside = [line for line in server.wire() if line.endswith("! not an answer of the probe")]
    assert len(set_aside) >= 8


def test_a_line_without_end_does_not_flood_the_error(server: LinuxServer, host: SshHost) -> None:
    host.rewrite = lambda command: f"head -c 2000000 /dev/zero | tr '\\000' x; echo; exec {command}"
    assert server.identity().manufacturer == "Linux"
    with pytest.raises(InstrumentError) as refused:
        server.settle({}, timeout=0).result()
    assert len(str(refused.value)) < 10_000


@pytest.mark.parametrize(
    "ok", [{}, [], None, "yes", {"boot": 1}, {"kernel": "6", "host": "h", "python": "3"}]
)
def test_a_hello_of_another_kind_is_garbled(server: LinuxServer, host: SshHost, ok: Any) -> None:
    answer = json.dumps({"id": 1, "at": [1, 2], "ok": ok})
    host.rewrite = lambda _: f"{SWALLOW} printf '%s\\n' '{answer}'; cat >/dev/null"
    with pytest.raises(GarbledError):
        server.identity()


@pytest.mark.parametrize(
    "ok",
    [
        {},
        [],
        None,
        {"events": [["lo"]], "missing": []},
        {"events": [["lo", "carrier", True, "soon", "later", "sysfs"]], "missing": []},
        {"events": [], "missing": [["lo"]]},
        {"events": [], "missing": [], "datagrams": {"lo": {"sent": 1}}},
        {"events": [], "missing": [], "datagrams": [1]},
    ],
)
def test_a_settlement_of_another_kind_is_garbled(
    server: LinuxServer, host: SshHost, ok: Any
) -> None:
    answer = json.dumps({"id": 1, "at": [1, 2], "ok": ok})
    host.rewrite = lambda _: f"{SWALLOW} printf '%s\\n' '{answer}'; cat >/dev/null"
    with pytest.raises(GarbledError, match="settle") as garbled:
        server.settle({}, timeout=0).result()
    assert f"  answered  {ok}" in str(garbled.value)


def test_silence_is_no_reply_and_a_late_answer_is_nobodys(
    server: LinuxServer, host: SshHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "GRACE", 100_000_000)
    host.rewrite = lambda command: f"sleep 0.3; exec {command}"
    with pytest.raises(NoReplyError, match=r"within 0\.1 s") as silent:
        server.identity()
    assert '"do":"hello"' in silent.value.command
    monkeypatch.setattr(program, "GRACE", LONG)
    assert server.identity().manufacturer == "Linux"
    assert any("no request waits for it" in line for line in server.wire())


# -------------------------------------------------------------------- the way there


def test_an_unknown_host_key_is_refused_with_advice(
    open_shell: Callable[..., SshShell], known_hosts: Path
) -> None:
    known_hosts.write_text("")
    with pytest.raises(UnreachableError, match="server0") as unknown:
        open_shell()
    assert "must be accepted there once" in str(unknown.value)


def test_changed_host_key_is_refused(
    open_shell: Callable[..., SshShell], known_hosts: Path, host: SshHost
) -> None:
    known_hosts.write_text(host.known_hosts_line(paramiko.ECDSAKey.generate()))
    with pytest.raises(UnreachableError, match="another host key"):
        open_shell()


def test_a_file_of_host_keys_that_is_not_there(
    open_shell: Callable[..., SshShell], known_hosts: Path
) -> None:
    known_hosts.unlink()
    with pytest.raises(UnreachableError, match="known_hosts"):
        open_shell()


def test_a_wrong_password_never_shows(open_shell: Callable[..., SshShell]) -> None:
    with pytest.raises(UnreachableError, match="refused the login") as refused:
        open_shell("wr0ng-and-secret")
    shown = f"{refused.value!r} {refused.value} {refused.value.trace} {refused.value.__cause__!r}"
    assert "wr0ng-and-secret" not in shown


def test_the_password_is_in_no_trace(server: LinuxServer, host: SshHost) -> None:
    server.identity()
    host.hang_up()
    with pytest.raises(InstrumentError) as lost:
        server.settle({}, timeout=0).result()
    assert LOGIN[1] not in f"{lost.value} {server.wire()} {host.commands}"


def test_closed_port_error_names_the_address(open_shell: Callable[..., SshShell]) -> None:
    (port,) = unused_ports()
    with pytest.raises(UnreachableError, match=f"127.0.0.1:{port} after"):
        open_shell(port=port)


@contextlib.contextmanager
def server_that_sends(greeting: bytes | None) -> Iterator[int]:
    """A port where something listens that is no SSH server; None hangs, others hang up."""
    listener = socket.create_server(("127.0.0.1", 0))
    open_sockets: list[socket.socket] = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                open_sockets.append(connection)
                if greeting is not None:
                    connection.sendall(greeting)
                    connection.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    thread.join()
    for connection in open_sockets:
        connection.close()
    listener.close()


@pytest.mark.parametrize(
    "greeting",
    [None, b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff\xfe\x00\r\n", b"SSH-2.0-x\r\n"],
    ids=["silent", "closes", "http", "binary", "closes after its banner"],
)
def test_a_port_without_ssh_server_is_unreachable(
    open_shell: Callable[..., SshShell], greeting: bytes | None
) -> None:
    with (
        over_soon(),
        server_that_sends(greeting) as port,
        pytest.raises(UnreachableError, match=f":{port}"),
    ):
        open_shell(port=port, timeouts=SshTimeouts(banner_ns=300_000_000))


def test_python_of_this_test_is_not_what_ran(server: LinuxServer, host: SshHost) -> None:
    """The probe is sent as source: the host needs nothing of ours, not even our environment."""
    host.environment = {"PATH": os.environ["PATH"], "PYTHONPATH": "", "PYTHONSAFEPATH": "1"}
    assert server.identity().firmware
    assert sys.executable not in host.commands[0]
