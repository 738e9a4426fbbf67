"""Known host keys line by line, as sshd(8), SSH_KNOWN_HOSTS FILE FORMAT, has them.

Each file is shown to Lightrig over SSH and over NETCONF, and to OpenSSH's own client.
"""

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import paramiko
import pytest
from scripted_netconf import LOGIN, ScriptedServer
from servers.ssh_host import LOGIN as HOST_LOGIN
from servers.ssh_host import SshHost

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.errors import KnownHostsError, UnreachableError
from lightrig.instruments.simulated.protocols.netconf_server import NetconfServer
from lightrig.instruments.wire.known_hosts import KnownHosts
from lightrig.instruments.wire.netconf import NetconfSession
from lightrig.instruments.wire.ssh import SshLogin, SshShell


def written(key: paramiko.PKey) -> str:
    return f"{key.get_name()} {key.get_base64()}"


CA, OTHER = (written(paramiko.ECDSAKey.generate()) for _ in range(2))
RSA = written(paramiko.RSAKey.generate(2048))
DSS = "ssh-dss AAAAB3NzaC1kc3MAAAABAQAAAAEBAAAAAQEAAAABAQ=="
SK = "sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAAA=="

# Lines of a file, where NAME is [127.0.0.1]:PORT, HASHED its hashed form, KEY the host's key; what
# happens: "" where the key is taken, else the reason; and what of the file is left out.
FILES = {
    "the host's line": ("NAME KEY", "", ""),
    "no line": ("", "an unknown host key", ""),
    "another key": (f"NAME {OTHER}", "another host key", ""),
    "one of two keys of a kind": (f"NAME {OTHER}\nNAME KEY", "", ""),
    "a key of another kind": (f"NAME {RSA}", "another host key", ""),
    "both kinds": (f"NAME {RSA}\nNAME KEY", "", ""),
    "a comment with blanks": ("NAME KEY  John's box, rack 4\n\n# comment\n", "", ""),
    "blanks and tabs": ("  \tNAME \t KEY", "", ""),
    "hashed": ("HASHED KEY", "", ""),
    "hashed, of another": (f"HASHED {OTHER}", "another host key", ""),
    "in a list": ("other,NAME,third KEY", "", ""),
    "by a pattern": ("[127.0.?.*]:* KEY", "", ""),
    "by a pattern that excludes it": ("*,!NAME,!127.0.0.1 KEY", "an unknown host key", ""),
    "by a pattern that excludes it with its port alone": ("*,!NAME KEY", "", ""),
    "in brackets, no set": ("[127] KEY", "an unknown host key", ""),
    "without a port": ("127.0.0.1 KEY", "", ""),
    "another port": ("[127.0.0.1]:1 KEY", "an unknown host key", ""),
    "an authority of others": (f"@cert-authority *.lab.example {CA} ca\nNAME KEY", "", ""),
    "an authority of it": (f"@cert-authority * {CA}\nNAME KEY", "", ""),
    "an authority alone": (f"@cert-authority * {CA}", "only an authority could vouch", ""),
    "its key as an authority": ("@cert-authority * KEY", "only an authority could vouch", ""),
    "another's key is revoked": (f"@revoked * {OTHER}\nNAME KEY", "", ""),
    "its key is revoked": ("@revoked * KEY\nNAME KEY", "a revoked host key", ""),
    "its key is revoked below": ("NAME KEY\n@revoked NAME KEY", "a revoked host key", ""),
    "its key is revoked, hashed": ("NAME KEY\n@revoked HASHED KEY", "a revoked host key", ""),
    "its key is revoked elsewhere": ("@revoked *.lab.example KEY\nNAME KEY", "", ""),
    "its key is revoked, and no other": ("@revoked * KEY", "a revoked host key", ""),
    "an unknown marker": ("@owner * KEY\nNAME KEY", "", "line 1 (unknown marker @owner)"),
    "two markers": ("@revoked @revoked * KEY\nNAME KEY", "", "line 1 (broken"),
    "kinds of no host": (
        f"\nother {SK}\nother {DSS}\nNAME KEY",
        "",
        "line 2 (unknown kind sk-ssh-ed25519@openssh.com), line 3 (unknown kind ssh-dss)",
    ),
    "a line of SSH 1": ("old 1024 35 1234567890123\nNAME KEY", "", "line 1 (unknown kind 1024)"),
    "no base64": ("other ssh-ed25519 AAA*\nNAME KEY", "", "line 1 (broken: the key is no base64)"),
    "half a key": (
        "NAME ecdsa-sha2-nistp256 AAAAE2VjZHNh",
        "an unknown host key",
        "line 1 (broken: no whole key of kind ecdsa-sha2-nistp256)",
    ),
    "a key of the wrong kind": (
        f"other ssh-ed25519 {OTHER.split()[1]}\nNAME KEY",
        "",
        "line 1 (broken: no whole key of kind ssh-ed25519)",
    ),
    "two fields": (
        "other\nother ssh-rsa\nNAME KEY",
        "",
        "line 1 (broken: not hosts, kind and key)",
    ),
    "no hash": (f"|1|x|y {OTHER}\nNAME KEY", "", "line 1 (broken: no hashed name)"),
    "bytes that are no text": ("\udcff\udcfe\x00\nNAME KEY", "", "line 1 (broken"),
    "many of them": ("a\n" * 9 + "NAME KEY", "", "line 1 (broken"),
}
HOW = [pytest.param(text, reason, note, id=name) for name, (text, reason, note) in FILES.items()]


@pytest.fixture
def host() -> Iterator[SshHost]:
    host = SshHost()
    yield host
    host.close()


def write(folder: Path, text: str, name: str, key: str) -> Path:
    file = folder / "known_hosts"
    hashed = paramiko.HostKeys.hash_host(name)
    text = text.replace("NAME", name).replace("HASHED", hashed).replace("KEY", key)
    file.write_bytes(text.encode(errors="surrogateescape"))
    return file


def open_ssh(host: SshHost, file: Path | None) -> None:
    login = SshLogin(*HOST_LOGIN, file)
    SshShell("server0", "127.0.0.1", SystemClock(), port=host.port, login=login).close()


@contextlib.contextmanager
def refused(reason: str, also: str = "") -> Iterator[None]:
    """Expect a refusal for `reason`, if there is one, and a text in its message."""
    if not reason:
        yield
        return
    with pytest.raises(UnreachableError, match=reason) as raised:
        yield
    assert also in str(raised.value)


@pytest.mark.parametrize(("text", "reason", "note"), HOW)
def test_ssh(tmp_path: Path, host: SshHost, text: str, reason: str, note: str) -> None:
    file = write(tmp_path, text, f"[127.0.0.1]:{host.port}", written(host.key))
    found = KnownHosts(file).note
    assert bool(note) == bool(found)
    assert found.startswith(f"left out of the known host keys in {file}: {note}" if note else "")
    with refused(reason, found):
        open_ssh(host, file)


@pytest.mark.parametrize(("text", "reason", "note"), HOW)
def test_netconf(tmp_path: Path, text: str, reason: str, note: str) -> None:
    scripted = ScriptedServer(lambda call: call.data("x"))
    clock = SystemClock()
    server = NetconfServer(scripted, clock, LOGIN)
    name, kind, key = server.known_hosts_line().split()
    file = write(tmp_path, text, name, f"{kind} {key}")
    session = NetconfSession("ocs", *server.address, clock, LOGIN, known_hosts=file)
    try:
        with refused(reason):
            session.get('<box xmlns="urn:box"/>')
    finally:
        session.close()
        server.close()
        clock.close()


@pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh on this machine")
@pytest.mark.parametrize(("text", "reason", "note"), HOW)
def test_openssh_decides_alike(
    tmp_path: Path, host: SshHost, text: str, reason: str, note: str
) -> None:
    file = write(tmp_path, text, f"[127.0.0.1]:{host.port}", written(host.key))
    options = {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": str(file),
        "GlobalKnownHostsFile": "/dev/null",
    }
    chosen = [each for name, value in options.items() for each in ("-o", f"{name}={value}")]
    done = subprocess.run(
        ["ssh", "-F", "none", *chosen, "-p", str(host.port), "bench@127.0.0.1", "true"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    # The host takes a password alone: a client that trusts it is refused the login.
    assert ("Permission denied" in done.stderr) == (not reason), done.stderr
    assert ("verification failed" in done.stderr) == bool(reason), done.stderr


def test_a_note_names_three_lines(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text("a\n" * 9)
    broken = "(broken: not hosts, kind and key)"
    assert KnownHosts(file).note.endswith(
        f": line 1 {broken}, line 2 {broken}, line 3 {broken} and 6 more"
    )


def test_a_line_without_a_port_counts_only_where_none_has_the_port(
    tmp_path: Path, host: SshHost
) -> None:
    """It is asked for "without port identifier" after the other: sshconnect.c, check_host_key."""
    file = write(
        tmp_path, f"NAME {OTHER}\n127.0.0.1 KEY", f"[127.0.0.1]:{host.port}", written(host.key)
    )
    with pytest.raises(UnreachableError, match="another host key"):
        open_ssh(host, file)


def missing(folder: Path) -> Path:
    return folder / "none"


def directory(folder: Path) -> Path:
    (folder / "known_hosts").mkdir()
    return folder / "known_hosts"


@pytest.mark.parametrize("make", [missing, directory])
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, host: SshHost, make: Callable[[Path], Path]
) -> None:
    file = make(tmp_path)
    with pytest.raises(KnownHostsError, match=f"known_hosts cannot be read: .*{file}"):
        open_ssh(host, file)


def test_the_users_own_file_may_be_missing_but_not_unreadable(
    tmp_path: Path, host: SshHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UnreachableError, match="an unknown host key"):
        open_ssh(host, None)
    (tmp_path / ".ssh" / "known_hosts").mkdir(parents=True)
    with pytest.raises(KnownHostsError, match="known_hosts cannot be read"):
        open_ssh(host, None)
