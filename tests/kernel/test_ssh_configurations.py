"""Configurations of OpenSSH's client, read and used as that client does.

The bench reaches `gate0`, that `gate1`, and that `target`: three namespaces with OpenSSH's server.
The target has a way from the bench of its own as well.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from ssh_client import SshClient

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.errors import SshConfigError, UnreachableError
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.instruments.namespaces.sshd import NamespaceSshd, SshdError, sshd_program
from lightrig.instruments.wire.ssh import SshLogin, SshShell
from lightrig.instruments.wire.ssh_config import read_settings

pytestmark = pytest.mark.usefixtures("possible")

LOGIN = ("bench", "a password")
HOSTS = ("gate0", "gate1", "target")
GATE1, TARGET = "10.213.1.2", "10.213.2.2"
OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"


@dataclass
class Site:
    """The hosts, and the files of an account that reaches them."""

    folder: Path
    ports: dict[str, int] = field(default_factory=dict)
    agent: dict[str, str] = field(default_factory=dict)

    def configure(self, text: str) -> Path:
        file = self.folder / "config"
        (self.folder / "included").write_text(self.fill(INCLUDED))
        file.write_text(self.fill(text))
        return file

    def fill(self, text: str) -> str:
        values = {"FOLDER": str(self.folder), "GATE1": GATE1, "TARGET": TARGET}
        values |= {f"PORT_{name}": str(port) for name, port in self.ports.items()}
        for name in sorted(values, key=len, reverse=True):
            text = text.replace(f"<{name}>", values[name])
        return text


def key(file: Path) -> str:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file], check=True)
    return " ".join(file.with_name(f"{file.name}.pub").read_text().split()[:2])


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def join(first: int, second: int, network: str) -> None:
    """Join two namespaces by a cable; their addresses are NETWORK.1 and NETWORK.2."""
    ends = (f"lr{os.getpid() % 10**6}a", f"lr{os.getpid() % 10**6}b")
    ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
    for end, pid, number in zip(ends, (first, second), (1, 2), strict=True):
        ip("link", "set", end, "netns", str(pid))
        inside = ("nsenter", "-t", str(pid), "-n", "ip")
        for words in (
            ("addr", "add", f"{network}.{number}/24", "dev", end),
            ("link", "set", end, "up"),
        ):
            subprocess.run([*inside, *words], check=True)


@pytest.fixture(scope="module")
def site(possible: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    try:
        program = sshd_program()
    except SshdError as error:
        pytest.skip(str(error))
    if shutil.which("ssh") is None:
        pytest.skip("no ssh on this machine")
    site = Site(tmp_path_factory.mktemp("site"))
    known = site.folder / "known_hosts"
    allowed = "\\n".join(key(site.folder / name) for name in ("id_bench", "id_named"))
    with contextlib.ExitStack() as stack:
        spaces = stack.enter_context(kernel.Namespaces(HOSTS))
        pids = {host: spaces.pid(host) for host in HOSTS}
        join(pids["gate0"], pids["gate1"], "10.213.1")
        join(pids["gate1"], pids["target"], "10.213.2")
        lines = {}
        for host in HOSTS:
            sshd = NamespaceSshd(pids[host], host, LOGIN)
            stack.callback(sshd.close)
            site.ports[host] = sshd.address[1]
            lines[host] = sshd.known_hosts_line()
            known.write_text(lines[host])
            start = (
                f"mkdir -p ~/.ssh; echo '{allowed}' > ~/.ssh/authorized_keys;"
                f"{program} -f /run/lightrig/sshd_config -p 22"
            )
            done = SshClient(site.folder, known).run(sshd.address, LOGIN, start)
            assert done.returncode == 0, done.stderr
        keys = {host: line.split(" ", 1)[1] for host, line in lines.items()}
        every = [*lines.values(), f"{GATE1} {keys['gate1']}", f"{TARGET} {keys['target']}"]
        known.write_text("\n".join([*every, ""]))
        written = {
            "nothing": "",
            "alias": f"rack7 {keys['target']}\n",
            "revoked": f"@revoked * {keys['target']}\n",
            "other": f"[127.0.0.1]:{site.ports['target']} {OTHER}\n",
            "without_gate1": "\n".join([lines["gate0"], every[-1], ""]),
        }
        for name, text in written.items():
            (site.folder / name).write_text(text)
        shutil.copy(site.folder / "id_bench", site.folder / "id_bench_target")
        stack.callback(_agent(site))
        yield site


def _agent(site: Site) -> Callable[[], None]:
    """Start an agent with seven keys, and of `id_named` alone; return what ends it."""
    socket = site.folder / "agent"
    process = subprocess.Popen(
        ["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    site.agent = {"SSH_AUTH_SOCK": str(socket)}
    names = [f"agent{number}" for number in range(6)]
    for name in names:
        key(site.folder / name)
    while not socket.exists():
        assert process.poll() is None
    paths = [str(site.folder / name) for name in (*names, "id_named")]
    subprocess.run(
        ["ssh-add", "-q", *paths], env={**os.environ, **site.agent}, check=True, timeout=60
    )
    (site.folder / "id_named").unlink()

    def end() -> None:
        process.terminate()
        process.wait()

    return end


INCLUDED = """
Host rack7
  Port <PORT_target>
"""
REST = """
Host *
  HostName 127.0.0.1
  User bench
  IdentityFile <FOLDER>/id_bench
  UserKnownHostsFile <FOLDER>/known_hosts
  GlobalKnownHostsFile /dev/null
"""
DIRECT = "Host rack7\n  Port <PORT_target>\n"
GATES = """
Host gate0
  Port <PORT_gate0>
Host gate1
  HostName <GATE1>
"""
BEHIND = "Host rack7\n  HostName <TARGET>\n"

CONFIGURATIONS = {
    "alias with user, port and key": (DIRECT, True),
    "settings in an included file": ("Include <FOLDER>/included\n", True),
    "settings by match": ('Match originalhost rack7 exec "true"\n  Port <PORT_target>\n', True),
    "tokens in the name of a key": (DIRECT + "  IdentityFile <FOLDER>/id_%r_target\n", True),
    "variable in the name of a key": (DIRECT + "  IdentityFile ${SITE}/id_bench\n", True),
    "second file of host keys": (
        DIRECT + "  UserKnownHostsFile <FOLDER>/nothing <FOLDER>/known_hosts\n",
        True,
    ),
    "host keys of the machine": (
        DIRECT
        + "  UserKnownHostsFile none\n  GlobalKnownHostsFile <FOLDER>/none <FOLDER>/known_hosts\n",
        True,
    ),
    "alias of the host key": (
        DIRECT + "  HostKeyAlias rack7\n  UserKnownHostsFile <FOLDER>/alias\n",
        True,
    ),
    "unknown alias of the host key": (DIRECT + "  HostKeyAlias rack8\n", False),
    "unknown host key": (DIRECT + "  UserKnownHostsFile <FOLDER>/nothing\n", False),
    "another host key": (DIRECT + "  UserKnownHostsFile <FOLDER>/other\n", False),
    "revoked host key": (DIRECT + "  GlobalKnownHostsFile <FOLDER>/revoked\n", False),
    "agent with seven keys": (DIRECT, False),
    "agent, but the keys of files alone": (DIRECT + "  IdentitiesOnly yes\n", True),
    "agent, a key named by its public part": (
        DIRECT + "  IdentityFile <FOLDER>/id_named\n",
        True,
    ),
    "agent left out": (DIRECT + "  IdentityAgent none\n", True),
    "keys of an agent at a socket": (DIRECT + "  IdentityAgent <FOLDER>/agent\n", False),
    "another user": (DIRECT + "  User mallory\n", False),
    "proxy command": (
        BEHIND + "  ProxyCommand ssh -o BatchMode=yes -F <FOLDER>/gates -W %h:%p gate1\n",
        True,
    ),
    "two jumps": (BEHIND + "  ProxyJump gate0,gate1\n" + GATES, True),
    "two jumps, each configured": (
        BEHIND + "  ProxyJump gate1\n" + GATES + "  ProxyJump gate0\n",
        True,
    ),
    "two jumps with user and port": (
        BEHIND
        + "  ConnectTimeout 1m\n  ProxyJump bench@gate0:<PORT_gate0>,bench@gate1:22\n"
        + GATES,
        True,
    ),
    "two jumps, the second unknown": (
        BEHIND
        + "  ProxyJump gate0,gate1\n"
        + GATES
        + "  UserKnownHostsFile <FOLDER>/without_gate1\n",
        False,
    ),
    "two jumps but none for one host": (
        DIRECT + "  ProxyJump none\nHost rack* !gate*\n  ProxyJump gate0,gate1\n" + GATES,
        True,
    ),
    "two jumps, then an unknown alias": (
        BEHIND + "  ProxyJump gate0,gate1\n  HostKeyAlias rack8\n" + GATES,
        False,
    ),
}


@pytest.fixture(params=list(CONFIGURATIONS))
def row(
    request: pytest.FixtureRequest, site: Site, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, bool]:
    text, connects = CONFIGURATIONS[request.param]
    monkeypatch.setenv("SITE", str(site.folder))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    if request.param.startswith("agent"):
        monkeypatch.setenv("SSH_AUTH_SOCK", site.agent["SSH_AUTH_SOCK"])
    (site.folder / "gates").write_text(site.fill(GATES + "  ProxyJump gate0\n" + REST))
    return site.configure(text + REST), connects


def printed(file: Path) -> dict[str, list[str]]:
    """Return what `ssh -G` prints, by keyword."""
    done = subprocess.run(
        ["ssh", "-G", "-F", str(file), "rack7"], capture_output=True, text=True, check=True
    )
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        name, _, value = line.partition(" ")
        found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize("client", ["openssh", "paramiko"])
def test_values_are_those_of_ssh(
    row: tuple[Path, bool], site: Site, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, _ = row
    want = printed(file)
    if client == "paramiko":
        monkeypatch.setenv("PATH", str(site.folder))
        if any(word in file.read_text() for word in ("Include", "Match")):
            with pytest.raises(SshConfigError, match=r"has (Include|Match), which only OpenSSH"):
                read_settings("server0", "rack7", file=file)
            return
    got = read_settings("server0", "rack7", file=file)
    texts = [want[name][0] for name in ("hostname", "port", "user", "identitiesonly")]
    only = "yes" if got.identities_only else "no"
    assert [got.host, str(got.port), got.user, only] == texts
    tokens = {"%r": "bench", "${SITE}": str(site.folder)}
    for name, value in tokens.items():
        want["identityfile"] = [text.replace(name, value) for text in want["identityfile"]]
    assert list(map(str, got.identity_files)) == want["identityfile"]
    assert got.user_known_hosts is not None
    assert " ".join(map(str, got.user_known_hosts)) == want["userknownhostsfile"][0].replace(
        "none", ""
    )
    assert " ".join(map(str, got.global_known_hosts)) == want["globalknownhostsfile"][0]
    assert [got.host_key_alias] == want.get("hostkeyalias", [None])
    jumps = want.get("proxyjump", [""])[0]
    assert ",".join(got.jumps) == jumps.replace("[", "").replace("]", "")
    command = want.get("proxycommand", [None])[0]
    assert got.proxy_command == (command and command.replace("%h", TARGET).replace("%p", "22"))
    timeout = want["connecttimeout"][0]
    assert got.connect_timeout == (None if timeout == "none" else float(timeout))


def test_we_connect_if_and_only_if_ssh_does(row: tuple[Path, bool]) -> None:
    file, connects = row
    theirs = subprocess.run(
        ["ssh", "-o", "BatchMode=yes", "-F", str(file), "rack7", "true"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (theirs.returncode == 0) == connects, theirs.stderr
    refused = contextlib.nullcontext() if connects else pytest.raises(UnreachableError)
    with refused:
        shell = SshShell("server0", "rack7", SystemClock(), login=SshLogin(config=file))
        shell.close()


def test_an_agent_with_many_keys_is_named(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's MaxAuthTries is 6 (sshd_config(5))."""
    monkeypatch.setenv("SSH_AUTH_SOCK", site.agent["SSH_AUTH_SOCK"])
    file = site.configure(DIRECT + REST)
    with pytest.raises(UnreachableError, match=r"ended the login at .* after 6 keys") as refused:
        SshShell("server0", "rack7", SystemClock(), login=SshLogin(config=file))
    assert "the key agent holds 7 keys" in str(refused.value)
    assert "IdentitiesOnly yes" in str(refused.value)


def test_the_advised_command_can_be_typed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leads to the host that was meant: there it asks for the unknown key."""
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    file = site.configure(DIRECT + "  UserKnownHostsFile <FOLDER>/nothing\n" + REST)
    with pytest.raises(UnreachableError, match="unknown host key") as refused:
        SshShell("server0", "rack7", SystemClock(), login=SshLogin(config=file))
    command = str(refused.value).split("`")[1]
    typed = f"{command} -o StrictHostKeyChecking=accept-new whoami"
    done = subprocess.run(
        ["sh", "-c", typed], capture_output=True, text=True, timeout=60, check=False
    )
    (site.folder / "nothing").write_text("")
    assert done.stdout == "bench\n", done.stderr


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Frobnicate yes\n", "line 1: Bad configuration option: frobnicate"),
        ("Include <FOLDER>/broken\n", "line 1: Bad configuration option: frobnicate"),
        ("ProxyUseFdpass yes\n", "ProxyUseFdpass"),
        ("IdentityFile ${NOT_THERE}/id\n", "NOT_THERE"),
        (None, "No such file"),
    ],
)
def test_a_configuration_that_cannot_be_read_is_named(
    site: Site, text: str | None, reason: str
) -> None:
    (site.folder / "broken").write_text("Frobnicate yes\n")
    file = site.folder / "missing" if text is None else site.configure(text)
    with pytest.raises(SshConfigError, match=f"{file} cannot be read for the host rack7: .*") as no:
        SshShell("server0", "rack7", SystemClock(), login=SshLogin(config=file))
    assert reason in str(no.value)


def test_a_jump_host_that_is_its_own_is_named(site: Site) -> None:
    file = site.configure(BEHIND + "  ProxyJump gate1\n" + GATES + "  ProxyJump gate1\n" + REST)
    with pytest.raises(UnreachableError, match="gate1"):
        SshShell("server0", "rack7", SystemClock(), login=SshLogin(config=file))


def test_what_a_proxy_command_says_is_shown(site: Site) -> None:
    command = "echo first >&2; echo 'no route to rack7' >&2; exit 1"
    file = site.configure(BEHIND + f'  ProxyCommand sh -c "{command}"\n' + REST)
    with pytest.raises(UnreachableError, match=r"closed the connection .* before its SSH") as ended:
        SshShell("server0", "rack7", SystemClock(), login=SshLogin(config=file))
    assert "printed   no route to rack7" in str(ended.value)
