"""A server behind SSH whose connection ends, or stands still, at each stage of its making."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from openssh_host import OpenSshHost
from ssh_cable import IN_BANNER, IN_KEY_EXCHANGE, Cable

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.errors import DisconnectedError, UnreachableError
from lightrig.instruments.servers.host.commands import Commands
from lightrig.instruments.wire.ssh import SshLogin, SshShell
from lightrig.instruments.wire.ssh_config import NO_FILE
from lightrig.testbeds.parts import SshTimeouts

LAST_REQUEST = 100
"""The last request of a login by ECDSA is longer: a key of 104 bytes, and a signature of it."""

LIMITS = SshTimeouts(banner_ns=400_000_000, login_ns=700_000_000)


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


def test_the_time_for_the_connection_is_that_for_the_banner_too(
    cable: Cable, log_in: Callable[..., SshShell]
) -> None:
    cable.most, cable.closes = IN_BANNER, False
    with pytest.raises(UnreachableError, match=r"sent no SSH banner at \S+ within 0\.3 s"):
        log_in(SshTimeouts(connect_ns=300_000_000))


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
