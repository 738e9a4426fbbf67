"""The shell of a served simulated server: programs of other people run on it as on a server."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest
from paramiko.common import cMSG_CHANNEL_SUCCESS
from paramiko.packet import Packetizer

from lightrig.harness.cli.served_lab import ServedLab
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.namespaces.namespaces import is_root
from lightrig.instruments.simulated.hosts.host_shell import shell_obstacle
from lightrig.instruments.simulated.protocols.listeners import Service
from lightrig.testbeds import load

RACK = """
name: rack
switches: {ocs: {model: polatis, address: "tl1://ocs.invalid", size: 4x4}}
servers:
  server0:
    address: ssh://bench@{name}.invalid
    nics: {nic0: {ports: 2, netdev: "ens1f{p}", rdma: "mlx5_{p}", ip: "192.0.2.{k}/24",
                  rate: 100G}}
"""
DRIVER = """\
driver: mlx5_core
version: 6.8.0
firmware-version: 28.41.1000 (SIM_0000000001)
expansion-rom-version: \n\
bus-info: 0000:1b:00.0
supports-statistics: yes
supports-test: yes
supports-eeprom-access: no
supports-register-dump: no
supports-priv-flags: yes
"""
"""The lines of ethtool.c, dump_drvinfo."""
ADDRESS = """\
3: ens1f1: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 1500 qdisc mq state DOWN group default qlen 1000
    link/ether 02:00:00:00:00:03 brd ff:ff:ff:ff:ff:ff
    inet 192.0.2.2/24 scope global ens1f1
       valid_lft forever preferred_lft forever
"""
"""As iproute2's ipaddress.c prints a device."""
PLAYBOOK = """
- hosts: all
  gather_facts: true
  tasks:
    - name: Ports, by a pipeline
      ansible.builtin.shell: ip -br link | awk '$1 != "lo" {print $1}' | sort
      register: ports
    - name: Driver, as root
      ansible.builtin.command: ethtool -i {{ ports.stdout_lines[0] }}
      become: true
      register: driver
    - name: A file is copied there
      ansible.builtin.copy:
        content: "host={{ ansible_facts.hostname }}"
        dest: "{{ ansible_facts.env.HOME }}/note"
    - name: The file is read
      ansible.builtin.command: cat note
      register: note
    - name: Results
      ansible.builtin.debug:
        msg: "{{ note.stdout }} {{ ports.stdout_lines | join('+') }} {{ driver.stdout_lines[0] }}"
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The SSH service of a simulated server in real time."""
    if reason := shell_obstacle():
        pytest.skip(reason)
    path = tmp_path_factory.mktemp("rack") / "rack.yaml"
    path.write_text(RACK)
    lab = ServedLab(load(path), seed=0, first_port=0)
    yield lab.services["server0"]
    lab.close()


@pytest.fixture(scope="module")
def client(served: Service) -> Iterator[paramiko.SSHClient]:
    """A script's client, which knows nothing of Lightrig."""
    connected = paramiko.SSHClient()
    connected.set_missing_host_key_policy(paramiko.AutoAddPolicy())
    connected.connect(
        *(served.host, served.port, *served.login), look_for_keys=False, allow_agent=False
    )
    yield connected
    connected.close()


def run(client: paramiko.SSHClient, command: str, text: str = "") -> tuple[str, str, int]:
    """Output, errors and exit status of a command line."""
    stdin, stdout, stderr = client.exec_command(command, timeout=60)
    stdin.write(text)
    stdin.channel.shutdown_write()
    printed, errors = stdout.read().decode(), stderr.read().decode()
    return printed, errors, stdout.channel.recv_exit_status()


def test_root_without_a_capability_sees_which_is_missing() -> None:
    imported = "from lightrig.instruments.simulated.hosts.host_shell import shell_obstacle"
    command = [sys.executable, "-c", f"{imported}; print(shell_obstacle())"]
    if is_root():
        command = ["setpriv", "--bounding-set=-sys_admin", *command]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "the shell of a simulated server needs root with CAP_SYS_ADMIN\n"


def test_a_command_ends_after_its_client_reads_that_it_was_started(
    client: paramiko.SSHClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Packetizer.send_message

    def send_late(line: Packetizer, message: paramiko.Message) -> None:
        if message.asbytes().startswith(cMSG_CHANNEL_SUCCESS):
            SystemClock().sleep(100_000_000)
        send(line, message)

    monkeypatch.setattr(Packetizer, "send_message", send_late)
    for command in ("true", "echo a | cat", "ethtool -i ens1f1"):
        assert run(client, command)[2] == 0


@pytest.mark.parametrize(
    ("command", "printed"),
    [
        ("ethtool -i ens1f1", DRIVER),
        ("ethtool -i ens1f1 | grep -c mlx5", "1\n"),
        ("ip addr show dev ens1f1", ADDRESS),
        ("ip a s ens1f1 | tail -4", ADDRESS),
        ("ip -br link | wc -l", "3\n"),
        ("ip -br addr show ens1f0", "ens1f0           DOWN           192.0.2.1/24 \n"),
        ("ibstat -l; ibstat mlx5_1 | grep -c Rate", "mlx5_0\nmlx5_1\n1\n"),
        ("ibdev2netdev", "mlx5_0 port 1 ==> ens1f0 (Down)\nmlx5_1 port 1 ==> ens1f1 (Down)\n"),
        ('for p in /sys/class/net/*; do echo "${p##*/} $(cat $p/carrier)"; done',
         "ens1f0 0\nens1f1 0\n"),
        ("cat /sys/class/net/ens1f0/mtu /sys/class/net/ens1f1/mtu", "1500\n1500\n"),
        ("hostname; id -u; whoami; pwd", "server0\n0\nbench\n/run/lightrig/home\n"),
        ("sudo -n -u root sh -c 'id -u; echo $0' named", "0\nnamed\n"),
        ("A=one; export A; env | grep ^A=", "A=one\n"),
        ("tr a-z A-Z | rev", "CBA\n"),
        ("python3 -c 'import os; print(sorted(os.listdir(\"/sys/class/infiniband\")))'",
         "['mlx5_0', 'mlx5_1']\n"),
    ],
)  # fmt: skip
def test_a_command_line_prints(client: paramiko.SSHClient, command: str, printed: str) -> None:
    text = "abc\n" if command.startswith("tr") else ""
    assert run(client, command, text) == (printed, "", 0)


def test_the_text_of_the_loopback_is_that_of_iproute2(client: paramiko.SSHClient) -> None:
    """The independent source is the `ip` of this machine."""
    for command in ("ip -br link show dev lo", "ip link show dev lo"):
        real = subprocess.run(command.split(), capture_output=True, check=True, text=True)
        assert run(client, f"{command} | cat")[0] == real.stdout


def test_status_and_errors_are_those_of_the_shell(client: paramiko.SSHClient) -> None:
    assert run(client, "exit 3") == ("", "", 3)
    printed, errors, status = run(client, "nonesuch --help; false")
    assert (printed, status) == ("", 1)
    assert "nonesuch: not found" in errors
    assert run(client, "ethtool -i none0 || echo missing")[0] == "missing\n"


def test_the_language_of_the_client_is_passed_on(client: paramiko.SSHClient) -> None:
    transport = client.get_transport()
    assert transport is not None
    channel = transport.open_session()
    channel.set_environment_variable("LC_TEST", "as sshd accepts")
    channel.exec_command('echo "$LC_TEST"')
    assert channel.makefile().read() == b"as sshd accepts\n"


def test_an_interactive_shell_has_a_terminal(client: paramiko.SSHClient) -> None:
    channel = client.invoke_shell()
    channel.settimeout(60)
    channel.send(b'[ -t 0 ] && echo "a terminal, $((6 * 7))"; exit 4\n')
    printed = b""
    while data := channel.recv(4096):
        printed += data
    assert b"a terminal, 42" in printed
    assert channel.recv_exit_status() == 4


def test_a_terminal_has_a_name_and_job_control(client: paramiko.SSHClient) -> None:
    """As `ssh -tt HOST` has them, where a session owns its terminal."""
    transport = client.get_transport()
    assert transport is not None
    for command, expected in (
        ("tty; echo to the terminal > /dev/tty", ["/dev/pts/0", "to the terminal"]),
        ("sh -ic 'echo $((6 * 7))'", ["42"]),  # else dash prints: job control turned off
    ):
        channel = transport.open_session()
        channel.settimeout(60)
        channel.get_pty()
        channel.exec_command(command)
        printed = channel.makefile().read().decode()
        assert printed.splitlines() == expected


@pytest.fixture(scope="module")
def sftp(client: paramiko.SSHClient) -> Iterator[paramiko.SFTPClient]:
    with client.open_sftp() as opened:
        yield opened


def test_files_are_copied_by_sftp(
    client: paramiko.SSHClient, sftp: paramiko.SFTPClient, tmp_path: Path
) -> None:
    (tmp_path / "sent").write_bytes(bytes(range(256)) * 400)
    sftp.put(str(tmp_path / "sent"), "stored")
    sftp.get("stored", str(tmp_path / "fetched"))
    assert (tmp_path / "fetched").read_bytes() == (tmp_path / "sent").read_bytes()
    assert run(client, "wc -c < stored")[0] == "102400\n"


def test_folders_and_attributes_are_changed_by_sftp(
    client: paramiko.SSHClient, sftp: paramiko.SFTPClient
) -> None:
    sftp.mkdir("/tmp/made", 0o750)
    sftp.chdir("/tmp/made")
    with sftp.open("one", "w") as file:
        file.write("first\n")
        file.chmod(0o640)
    with sftp.open("one", "a") as file:
        file.write("second\n")
    sftp.truncate("one", 9)
    sftp.utime("one", (1_000_000_000, 1_100_000_000))
    sftp.symlink("one", "link")
    sftp.rename("one", "two")
    with sftp.open("three", "wx") as file:
        file.write("third")
    with pytest.raises(OSError, match="Failure"):
        sftp.rename("three", "two")
    assert run(client, "cd /tmp/made; cat two; stat -c '%a %Y' two; readlink link; stat -c %a .")[
        0
    ] == ("first\nsec640 1100000000\none\n750\n")
    assert sorted(sftp.listdir()) == ["link", "three", "two"]
    assert sftp.readlink("link") == "one"
    with pytest.raises(FileNotFoundError):
        sftp.stat("link")
    sftp.posix_rename("three", "two")
    assert sftp.stat("two").st_size == len("third")
    sftp.remove("two")
    sftp.remove("link")
    sftp.chdir(None)
    sftp.rmdir("/tmp/made")
    assert sftp.normalize("../home") == "/run/lightrig/home"


def test_the_ports_are_read_by_sftp(sftp: paramiko.SFTPClient) -> None:
    with sftp.open("/sys/class/net/ens1f1/mtu") as file:
        assert file.read() == b"1500\n"


@pytest.mark.parametrize(
    "path",
    ["../../etc/shadow", "../../../etc/passwd", "/etc/passwd", f"{'../' * 9}{__file__}",
     "absolute", "relative", "folder/passwd", "/proc/1/root/etc/passwd", "/run/lightrig/world"],
)  # fmt: skip
def test_sftp_leaves_its_folders_by_no_path(
    client: paramiko.SSHClient, sftp: paramiko.SFTPClient, path: str
) -> None:
    made = "ln -sfn /etc/passwd absolute; ln -sfn ../../../etc/passwd relative; ln -sfn /etc folder"
    assert run(client, f"{made}; head -c 4 absolute relative folder/passwd") == (
        "".join(f"==> {name} <==\nbenc\n" for name in ("absolute", "relative"))
        + "==> folder/passwd <==\nbenc",
        "",
        0,
    )
    with pytest.raises(FileNotFoundError):
        sftp.stat(path)
    with pytest.raises(FileNotFoundError):
        sftp.open(path)
    with pytest.raises(OSError, match=r"No such file|Failure"):
        sftp.open(path, "w").close()


def test_sftp_adds_nothing_beside_its_folders(sftp: paramiko.SFTPClient) -> None:
    assert set(sftp.listdir("/")) <= {"dev", "run", "sys", "tmp", "var"}
    for path in ("/etc", "/run/other"):
        with pytest.raises(OSError, match="Failure"):
            sftp.mkdir(path)


@pytest.mark.parametrize(
    "command",
    ["touch /etc/written", "touch /usr/written", f"touch {Path(__file__).parent}/written",
     "echo 10 > /proc/sys/vm/swappiness", "echo x > /sys/power/state",
     f"kill {os.getpid()}", "mount -o remount,rw /"],
    ids=["touch /etc", "touch /usr", "touch a checkout", "proc", "sys", "kill", "remount"],
)  # fmt: skip
def test_this_machine_cannot_be_changed(client: paramiko.SSHClient, command: str) -> None:
    _, errors, status = run(client, command)
    assert status != 0
    assert errors


def test_files_of_this_machine_are_not_read(client: paramiko.SSHClient) -> None:
    paths = [
        *("/etc/shadow", "/etc/ssl", "/etc/ssh", "/etc/machine-id", "/etc/sudoers.d", "/home"),
        *("/var/lib", "/var/log", "/opt", "/boot", "/srv", str(Path.home() / ".bashrc"), __file__),
    ]
    assert sum(Path(path).exists() for path in paths) > len(paths) / 2
    assert run(client, f"ls -d {' '.join(paths)} 2>/dev/null") == ("", "", 2)
    # What a server of that kind has itself is there.
    assert run(client, "cat /etc/sudoers") == ("bench ALL=(ALL:ALL) NOPASSWD: ALL\n", "", 0)
    assert run(client, "tail -n 1 /etc/hosts") == ("127.0.1.1 server0\n", "", 0)


def test_devices_are_the_harmless_ones(client: paramiko.SSHClient) -> None:
    devices = "for f in /dev/*; do [ -c $f ] || [ -b $f ] && echo $f; done"
    found = {Path(line).name for line in run(client, devices)[0].split()}
    assert found == {"full", "null", "ptmx", "random", "tty", "urandom", "zero"}


def test_it_reaches_no_network_of_this_machine(client: paramiko.SSHClient, served: Service) -> None:
    connect = f"import socket; socket.create_connection(({served.host!r}, {served.port}), 5)"
    errors, status = run(client, f'python3 -c "{connect}"')[1:]
    assert status == 1
    assert "unreachable" in errors or "refused" in errors


@pytest.mark.long
def test_an_ansible_playbook_runs(served: Service, tmp_path: Path) -> None:
    """Facts, a pipeline, `become`, a copied file: long, since Ansible sends each task as Python."""
    user, password = served.login
    (tmp_path / "known_hosts").write_text(f"{served.known_hosts}\n")
    (tmp_path / "inventory").write_text(
        f"server0 ansible_host={served.host} ansible_port={served.port} ansible_user={user} "
        f"ansible_password={password} ansible_python_interpreter={sys.executable}\n"
    )
    (tmp_path / "play.yaml").write_text(PLAYBOOK)
    program = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [program, "-i", tmp_path / "inventory", tmp_path / "play.yaml"],
        env={
            **os.environ,
            "ANSIBLE_HOME": str(tmp_path / "ansible"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_SSH_ARGS": f"-F none -o UserKnownHostsFile={tmp_path}/known_hosts",
            "ANSIBLE_SSH_PASSWORD_MECHANISM": "ssh_askpass",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"msg": "host=server0 ens1f0+ens1f1 driver: mlx5_core"' in done.stdout
