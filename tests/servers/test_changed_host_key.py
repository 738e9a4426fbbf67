"""A host that shows another key in mid-run is refused, and learns no password."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import paramiko
import pytest
from real_time import until
from ssh_host import LOGIN, SshHost

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.errors import UnreachableError
from lightrig.instruments.wire import ssh
from lightrig.instruments.wire.ssh import SshLogin, SshShell


class Ignored:
    """A listener to a program that is never started."""

    def line(self, text: str) -> None:
        raise AssertionError(text)

    def ended(self, reason: str) -> None:
        raise AssertionError(reason)


class CountingHost(SshHost):
    """A host that counts the logins which were tried.

    Attributes:
        logins: passwords that came, in their order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.logins: list[str] = []


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[CountingHost]:
    made = CountingHost()
    start_server = paramiko.Transport.start_server

    def counted(self: paramiko.Transport, *, server: paramiko.ServerInterface) -> None:
        asked = server.check_auth_password

        def check(username: str, password: str) -> int:
            made.logins.append(password)
            return asked(username, password)

        monkeypatch.setattr(server, "check_auth_password", check)
        start_server(self, server=server)

    monkeypatch.setattr(paramiko.Transport, "start_server", counted)
    yield made
    made.close()


@pytest.fixture
def known_hosts(tmp_path: Path, host: CountingHost) -> Path:
    path = tmp_path / "known_hosts"
    path.write_text(host.known_hosts_line())
    return path


@pytest.fixture
def shell(host: CountingHost, known_hosts: Path) -> Iterator[SshShell]:
    login = SshLogin(*LOGIN, known_hosts)
    made = SshShell("server0", "127.0.0.1", SystemClock(), port=host.port, login=login)
    with contextlib.closing(made):
        yield made


def hang_up(host: CountingHost, shell: SshShell) -> None:
    host.hang_up()
    until(lambda: shell.lost, SystemClock())


def other_key(host: CountingHost, _known: Path) -> None:
    host.key = paramiko.ECDSAKey.generate()


def longer_key(host: CountingHost, _known: Path) -> None:
    host.key = paramiko.ECDSAKey.generate(bits=521)


def key_of_another_kind(host: CountingHost, _known: Path) -> None:
    host.key = paramiko.RSAKey.generate(2048)


def another_host_beside(host: CountingHost, known: Path) -> None:
    """The key that comes is known, but of another port."""
    host.key = paramiko.ECDSAKey.generate()
    line = f"[127.0.0.1]:{host.port + 1} {host.key.get_name()} {host.key.get_base64()}\n"
    known.write_text(known.read_text() + line)


def forgotten(_host: CountingHost, known: Path) -> None:
    known.write_text("")


def revoked(host: CountingHost, known: Path) -> None:
    line = host.known_hosts_line()
    known.write_text(f"{line}@revoked {line}")


CHANGES: dict[Callable[[CountingHost, Path], None], str] = {
    other_key: "another host key",
    longer_key: "another host key",
    key_of_another_kind: "host key",
    another_host_beside: "another host key",
    forgotten: "unknown host key",
    revoked: "revoked host key",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_host_with_another_key_is_not_connected_again(shell, host, known_hosts, change):
    before = list(host.logins)
    assert before
    assert set(before) == {LOGIN[1]}
    change(host, known_hosts)
    hang_up(host, shell)
    with pytest.raises(UnreachableError, match=CHANGES[change]) as refused:
        shell.reconnect()
    assert host.logins == before
    assert LOGIN[1] not in f"{refused.value} {refused.value.trace}"


def test_a_connection_that_lasts_goes_on_and_a_further_one_is_refused(
    shell, host, known_hosts, monkeypatch
):
    """Where sshd takes no more sessions on a connection, the next one compares the key anew."""
    before = list(host.logins)
    other_key(host, known_hosts)

    def no_more(self: paramiko.Transport, *_: object, **__: object) -> paramiko.Channel:
        raise paramiko.ChannelException(1, "no more")

    monkeypatch.setattr(paramiko.Transport, "open_session", no_more)
    monkeypatch.setattr(ssh, "_TRY_AGAIN", 1_000_000)
    with pytest.raises(UnreachableError, match="another host key"):
        shell.start(["true"], Ignored())
    assert host.logins == before


def test_a_host_that_has_its_key_again_is_connected(shell, host, known_hosts):
    key = host.key
    other_key(host, known_hosts)
    hang_up(host, shell)
    with pytest.raises(UnreachableError, match="another host key"):
        shell.reconnect()
    host.key = key
    shell.reconnect()
    assert not shell.lost
