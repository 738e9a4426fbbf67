"""`lightrig serve` of servers that exist: interfaces of the machine follow a client's circuits.

The machine is a namespace, and so are its two servers, each at the other end of a veth pair. What
is asserted is read in the servers' namespaces, as they see it.
"""

import contextlib
import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import preloaded
import pytest
from telnet_session import TelnetSession

from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.instruments.namespaces.agent import network_of
from lightrig.testbeds import load

LIGHTRIG = """
from lightrig.harness.cli import main
from lightrig.instruments.namespaces.enter import enter
enter({pid}, None)
main()
"""
"""`lightrig` in the namespaces of a process."""
LAB = """
name: interfaces
switches:
  ocs: {model: polatis, address: "tl1://ocs.invalid", size: 4x4, options: {rerouting: true}}
servers:
  server[0-1]:
    address: ssh://bench@{name}.invalid
    nics: {nic0: {netdev: fabric0, ip: "192.0.2.{k}/24", rate: 100M,
                  transceiver: lr4, interface: "port{k}"}}
transceivers:
  lr4:
    wavelength: 1310 nm
    launch: {min: -4 dBm, max: 4 dBm}
    receive: {min: -10 dBm, max: 4 dBm}
fibers:
  - server[0-1].nic0 <-> ocs
"""
"""Ingress 1 and 2 are lit by server 0 and 1; egress 5 and 6 lead to them."""

MACHINE, SERVERS = "machine", ("server0", "server1")
ENDED_WITHIN = 60
CONNECT = """
import socket, sys
try: socket.create_connection((sys.argv[1], 9), float(sys.argv[2]))
except OSError as error: print(type(error).__name__)
"""


@pytest.fixture(scope="module", autouse=True)
def possible() -> None:
    if reason := kernel.available():
        pytest.skip(reason)
    if not kernel.is_root():
        pytest.skip("only root moves interfaces of a machine")


@dataclass
class Machine:
    """A machine with the interfaces port1 and port2, and a server at the other end of each."""

    spaces: kernel.Namespaces
    folder: Path

    def run(self, name: str, *command: str, check: bool = True) -> str:
        argv = kernel.enter_command(self.spaces.pid(name), command)
        return subprocess.run(argv, check=check, capture_output=True, text=True).stdout

    def carrier(self, server: str) -> bool:
        return self.run(server, "cat", "/sys/class/net/fabric0/carrier") == "1\n"

    def interfaces(self) -> dict[str, bool]:
        """The machine's interfaces but loopback, and whether each is up."""
        links = json.loads(self.run(MACHINE, "ip", "-j", "link"))
        return {one["ifname"]: "UP" in one["flags"] for one in links if one["ifname"] != "lo"}

    def reaches(self, server: str, address: str) -> bool:
        """Whether a connection comes to `address`, where nothing listens."""
        said = self.run(server, sys.executable, "-c", CONNECT, address, "10")
        return said == "ConnectionRefusedError\n"

    def serve(self, *options: str) -> preloaded.Process:
        program = LIGHTRIG.format(pid=self.spaces.pid(MACHINE))
        arguments = ["serve", self.folder / "lab.yaml", "--port", "0", "--json", *options]
        return preloaded.Process(
            ["python", "-c", program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    @contextlib.contextmanager
    def served(self, *options: str) -> Iterator[tuple[preloaded.Process, TelnetSession]]:
        process = self.serve(*options)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.communicate()[1]
            (switch,) = json.loads(line)
            host, _, port = switch["address"].removeprefix("tl1://").rpartition(":")
            with network_of(self.spaces.pid(MACHINE)):
                session = TelnetSession((host, int(port)), (switch["user"], switch["password"]))
            with contextlib.closing(session):
                yield process, session
        finally:
            process.kill()
            process.communicate()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    (tmp_path / "lab.yaml").write_text(LAB)
    with kernel.Namespaces([MACHINE, *SERVERS]) as spaces:
        made = Machine(spaces, tmp_path)
        for number, server in enumerate(SERVERS, 1):
            pid = str(spaces.pid(server))
            peer = ["peer", "name", "fabric0", "netns", pid]
            made.run(MACHINE, "ip", "link", "add", f"port{number}", "type", "veth", *peer)
            made.run(server, "ip", "address", "add", f"192.0.2.{number}/24", "dev", "fabric0")
            made.run(server, "ip", "link", "set", "fabric0", "up")
        made.run(MACHINE, "ip", "link", "set", "port1", "up")
        yield made


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + ENDED_WITHIN
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.05)
    return False


def test_carrier_and_packets_follow_the_circuits(machine: Machine) -> None:
    before = machine.interfaces()
    assert before == {"port1": True, "port2": False}
    with machine.served() as (process, telnet):
        assert [machine.carrier(server) for server in SERVERS] == [False, False]
        telnet.command("ENT-PATCH::1&2,6&5:2:;")  # 1 to 6 and back
        assert eventually(lambda: all(machine.carrier(server) for server in SERVERS))
        assert machine.reaches("server0", "192.0.2.2")
        telnet.command("DLT-PATCH::2:3:;")  # server 0 hears nothing more
        assert eventually(lambda: not machine.carrier("server0"))
        assert machine.carrier("server1")
        telnet.command("DLT-PATCH::1:4:;")
        assert eventually(lambda: not machine.carrier("server1"))
        process.send_signal(signal.SIGINT)
        assert process.wait(ENDED_WITHIN) == 0
    assert machine.interfaces() == before


def test_unjoined_ports_exchange_nothing(machine: Machine) -> None:
    """Each hears itself: there is light, and no link."""
    with machine.served() as (_, telnet):
        telnet.command("ENT-PATCH::1&2,5&6:2:;")
        assert eventually(lambda: all(machine.carrier(server) for server in SERVERS))
        said = machine.run("server0", sys.executable, "-c", CONNECT, "192.0.2.2", "1")
        assert said != "ConnectionRefusedError\n"


def test_interfaces_are_back_after_a_kill(machine: Machine) -> None:
    before = machine.interfaces()
    with machine.served() as (process, _):
        assert machine.interfaces() == {}
        process.kill()
    assert eventually(lambda: machine.interfaces() == before)


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("ip address add 203.0.113.7/24 dev port2", "in use: it has the address 203.0.113.7/24"),
        ("ip link delete port2", "this machine has no interface port2"),
    ],
)
def test_an_interface_that_cannot_be_taken_is_named(
    machine: Machine, command: str, problem: str
) -> None:
    machine.run(MACHINE, *command.split())
    before = machine.interfaces()
    process = machine.serve()
    errors = process.communicate(timeout=ENDED_WITHIN)[1]
    assert process.returncode == 3
    assert problem in " ".join(errors.split())
    assert machine.interfaces() == before


def test_the_carrier_command_reads_each_change(machine: Machine) -> None:
    log = machine.folder / "carriers"
    program = f"import sys\nfor line in sys.stdin: open({str(log)!r}, 'a').write(line)"
    command = shlex.join([sys.executable, "-c", program])

    def changes() -> list[tuple[str, str]]:
        lines = log.read_text().splitlines() if log.exists() else []
        return [(line.split()[0], line.split()[1]) for line in lines]

    began = time.monotonic_ns()
    dark = [("server0.nic0", "down"), ("server1.nic0", "down")]
    with machine.served("--on-carrier", command) as (process, telnet):
        assert eventually(lambda: changes() == dark)
        telnet.command("ENT-PATCH::1,6:2:;")
        assert eventually(lambda: changes() == [*dark, ("server1.nic0", "up")])
        assert machine.carrier("server1")
        telnet.command("DLT-PATCH::1:3:;")
        assert eventually(lambda: changes()[3:] == [("server1.nic0", "down")])
        process.send_signal(signal.SIGINT)
        assert process.wait(ENDED_WITHIN) == 0
    times = [int(line.split()[2]) for line in log.read_text().splitlines()]
    assert began < times[0] <= times[1] < times[2] < times[3] < time.monotonic_ns()


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("false", "has ended with status 1"),
        ("/nowhere/at/all", "No such file or directory"),
        ("'", "No closing quotation"),
    ],
)
def test_a_carrier_command_that_does_not_run_ends_the_lab(
    machine: Machine, command: str, problem: str
) -> None:
    process = machine.serve("--on-carrier", command)
    errors = process.communicate(timeout=ENDED_WITHIN)[1]
    assert process.returncode == 3
    assert problem in " ".join(errors.split())


def test_servers_elsewhere_are_reached_as_the_testbed_says(machine: Machine) -> None:
    key = "server0.invalid ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKb2LUhYQ1Wb5cq9yY9VzJ3vC0mTt0X0"
    (machine.folder / "lab_hosts").write_text(f"{key}\n")
    lab = machine.folder / "lab.yaml"
    lab.write_text(f"{LAB}known_hosts: lab_hosts\nssh_config: aliases\n")
    (machine.folder / "aliases").write_text("Host server0.invalid\n  Port 2222\n")
    written = machine.folder / "away" / "served.yaml"
    written.parent.mkdir()
    with machine.served("--write", str(written)):
        assert key in written.with_name("served.known_hosts").read_text().splitlines()
    served = load(written)
    addresses = [server.address for server in served.servers.values()]
    assert served.ssh_config is not None
    assert served.ssh_config.samefile(machine.folder / "aliases")
    assert addresses == ["ssh://bench@server0.invalid", "ssh://bench@server1.invalid"]
