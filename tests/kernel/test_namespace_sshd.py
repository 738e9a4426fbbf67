"""A namespace behind a real sshd: a machine of its own to SSH clients, and no trace of it after."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from ssh_client import SshClient, write_ending_sshd
from unused_ports import unused_ports

import lightrig
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.instruments.namespaces.sshd import NamespaceSshd, SshdError, sshd_program

pytestmark = pytest.mark.usefixtures("possible")

LOGIN = ("bench", "a password")
HOSTS = ("server0", "server1")

MAKER = """
import json, sys
from lightrig.instruments.namespaces.namespaces import Namespaces
from lightrig.instruments.namespaces.sshd import NamespaceSshd
spaces = Namespaces(["server0"])
login, port = ("bench", "a password"), int(sys.argv[1])
sshd = NamespaceSshd(spaces.pid("server0"), "server0", login, port)
print(json.dumps([spaces.pid("server0"), *sshd.address, sshd.known_hosts_line()]), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module", autouse=True)
def _sshd(possible: None) -> None:
    try:
        sshd_program()
    except SshdError as error:
        pytest.skip(str(error))


@dataclass
class Machines:
    """Two namespaces behind SSH, and a user's client."""

    servers: dict[str, NamespaceSshd]
    client: SshClient

    def run(self, host: str, command: str) -> str:
        done = self.client.run(self.servers[host].address, LOGIN, command)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    folder = tmp_path_factory.mktemp("ssh")
    with contextlib.ExitStack() as stack:
        spaces = stack.enter_context(kernel.Namespaces(HOSTS))
        servers = {host: NamespaceSshd(spaces.pid(host), host, LOGIN) for host in HOSTS}
        for sshd in servers.values():
            stack.callback(sshd.close)
        known_hosts = folder / "known_hosts"
        known_hosts.write_text("".join(s.known_hosts_line() + "\n" for s in servers.values()))
        yield Machines(servers, SshClient(folder, known_hosts))


def mounts_and_devices() -> tuple[str, list[str]]:
    return Path("/proc/self/mounts").read_text(), sorted(n for _, n in socket.if_nameindex())


def wait_for(condition: Callable[[], bool]) -> bool:
    """Whether `condition` holds within 20 s."""
    clock = SystemClock()
    deadline = clock.now() + 20_000_000_000
    while not condition() and clock.now() < deadline:
        clock.sleep(50_000_000)
    return condition()


def test_a_login_shell_is_on_the_named_host(machines: Machines) -> None:
    script = 'hostname; whoami; id -u; echo "$HOME"; getent hosts "$(hostname)" | cut -d" " -f1'
    for host in HOSTS:
        printed = machines.run(host, script).split()
        assert printed == [host, "bench", "0", "/run/lightrig/home", "127.0.1.1"]


def test_python3_is_the_interpreter_that_serves(machines: Machines) -> None:
    program = 'python3 -c "import sys; print(sys.prefix)"'
    assert machines.run("server0", program).strip() == sys.prefix


@pytest.mark.skipif(not Path("/etc/sudoers").exists(), reason="no sudo on this machine")
def test_sudo_asks_for_no_password(machines: Machines) -> None:
    assert machines.run("server0", "sudo -n id -u") == "0\n"


@pytest.mark.long
def test_servers_share_no_network_device_and_no_file(machines: Machines) -> None:
    # A folder with the interpreter or this project in it stays visible: commands need both.
    needed = [str(Path(path).resolve()) for path in (__file__, sys.executable, sys.prefix)]
    for folder in ("$HOME", "/tmp", "/var/tmp", "/dev/shm"):
        if any(path.startswith(f"{folder}/") for path in needed):
            continue
        machines.run("server0", f"echo secret > {folder}/note")
        assert "note" not in machines.run("server1", f"ls {folder}")
    machines.run("server0", "ip link add only0 type bridge")
    assert "only0" not in machines.run("server1", "ip -br link")
    assert "only0" not in mounts_and_devices()[1]


def test_tmp_is_private_also_where_lightrig_lies_below_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed, beside = tmp_path / "installed", tmp_path / "beside"
    installed.mkdir()
    (installed / "module.py").write_text("print(42)")
    beside.write_text("of this machine")
    monkeypatch.setattr(lightrig, "__path__", [*lightrig.__path__, str(installed)])
    with kernel.Namespaces(["server0"]) as spaces:
        sshd = NamespaceSshd(spaces.pid("server0"), "server0", LOGIN)
        known_hosts = tmp_path / "known_hosts"
        known_hosts.write_text(sshd.known_hosts_line() + "\n")
        line = f"cat {installed}/module.py; echo a > /tmp/written-inside && ls {tmp_path} /tmp"
        done = SshClient(tmp_path, known_hosts).run(sshd.address, LOGIN, line)
        sshd.close()
    assert done.stdout.startswith("print(42)"), done.stderr
    assert "written-inside" in done.stdout
    assert "beside" not in done.stdout
    assert not Path("/tmp/written-inside").exists()


def test_files_are_copied_by_sftp(machines: Machines, tmp_path: Path) -> None:
    (tmp_path / "sent").write_text("over sftp")
    commands = f"put {tmp_path}/sent stored\nget stored {tmp_path}/fetched\n"
    done = machines.client.transfer(machines.servers["server0"].address, LOGIN, commands)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "fetched").read_text() == "over sftp"
    assert machines.run("server0", "cat stored") == "over sftp"


def test_a_wrong_password_is_refused(machines: Machines) -> None:
    address = machines.servers["server0"].address
    done = machines.client.run(address, ("bench", "another password"), "true")
    assert done.returncode == 255
    assert "Permission denied" in done.stderr


def test_each_server_has_its_own_host_key(machines: Machines, tmp_path: Path) -> None:
    """A client that knows the other server's key refuses to connect."""
    first, second = (machines.servers[host] for host in HOSTS)
    assert first.host_key != second.host_key
    known_hosts = tmp_path / "known_hosts"
    host, port = first.address
    known_hosts.write_text(f"[{host}]:{port} {second.host_key}\n")
    done = SshClient(tmp_path, known_hosts).run(first.address, LOGIN, "true")
    assert done.returncode == 255
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in done.stderr


def test_the_accounts_of_this_machine_are_unchanged(machines: Machines) -> None:
    assert "lightrig" not in Path("/etc/passwd").read_text()
    assert "/run/lightrig/home" in machines.run("server0", "cat /etc/passwd")


@pytest.mark.parametrize("folder", ["/tmp", "/var/tmp"])
def test_clients_are_served_from_a_folder_that_the_namespace_hides(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        tempfile.TemporaryDirectory(dir=folder) as started_in,
        monkeypatch.context() as patch,
        kernel.Namespaces(["server0"]) as spaces,
    ):
        patch.chdir(started_in)
        sshd = NamespaceSshd(spaces.pid("server0"), "server0", LOGIN)
        known_hosts = tmp_path / "known_hosts"
        known_hosts.write_text(sshd.known_hosts_line() + "\n")
        done = SshClient(tmp_path, known_hosts).run(sshd.address, LOGIN, "pwd")
        sshd.close()
    assert done.stdout == "/run/lightrig/home\n", done.stderr


@pytest.mark.parametrize(
    ("last_words", "told"),
    [
        ("echo 'no entropy' >&2; exit 255", "no entropy"),  # to stderr, before its log is open
        ('printf "first\\nfatal: no host key" > "$5"; exit 255', "fatal: no host key"),
        ("exit 3", "exit status 3"),
    ],
)
def test_a_server_that_ends_at_once_is_an_error_with_its_last_line(
    last_words: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """$5 is the file of the option -E, sshd(8)."""
    write_ending_sshd(tmp_path, last_words)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(lightrig, "__path__", [*lightrig.__path__, str(tmp_path)])  # stays visible
    with kernel.Namespaces(["server0"]) as spaces, pytest.raises(SshdError) as refused:
        NamespaceSshd(spaces.pid("server0"), "server0", LOGIN)
    assert "server0" in str(refused.value)
    assert str(refused.value).splitlines()[0].endswith(told)


def test_a_closed_server_refuses_connections() -> None:
    before = mounts_and_devices()
    with kernel.Namespaces(["server0"]) as spaces:
        sshd = NamespaceSshd(spaces.pid("server0"), "server0", LOGIN, *unused_ports())
        sshd.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(sshd.address)
    assert mounts_and_devices() == before


def test_nothing_is_left_after_a_kill(tmp_path: Path) -> None:
    """The kernel ends namespace, sessions and files of a maker that is killed."""
    before = mounts_and_devices()
    with subprocess.Popen(
        [sys.executable, "-c", MAKER, str(*unused_ports())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as maker:
        assert maker.stdout is not None
        holder, host, port, line = json.loads(maker.stdout.readline())
        known_hosts = tmp_path / "known_hosts"
        known_hosts.write_text(f"{line}\n")
        client = SshClient(tmp_path, known_hosts)
        started = client.run((host, port), LOGIN, "sleep 300 >/dev/null 2>&1 & echo $!")
        session = int(started.stdout)
        os.kill(session, 0)
        maker.send_signal(signal.SIGKILL)
        maker.wait()
    assert wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in (holder, session)))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, port))
    assert mounts_and_devices() == before
    assert not Path("/run/lightrig").exists()


def test_a_failed_setup_names_the_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # The interpreter's folder is set in sshd's configuration, in which it cannot be quoted.
    python = tmp_path / 'a"b/python'
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(python))
    with kernel.Namespaces(["server0"]) as spaces, pytest.raises(SshdError) as refused:
        NamespaceSshd(spaces.pid("server0"), "server0", LOGIN)
    assert "server0 cannot have an SSH server: " in str(refused.value)
    assert "sshd_config" in str(refused.value)


def test_missing_sshd_is_an_error_that_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)
    with pytest.raises(SshdError, match="apt install openssh-server"):
        sshd_program()


def test_missing_root_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(SshdError, match="needs root"):
        sshd_program()
