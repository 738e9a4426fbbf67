"""Settings of ARP under RDMA, where two ports of a server lie in one subnet.

Who replies to a request is asked of the kernel, on the wire: RFC 826, and ip-sysctl.rst's
arp_ignore. The server's ports are in namespaces behind SSH.
"""

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import preloaded
import pytest
from servers.ssh_host import LOGIN, SshHost
from typer.testing import CliRunner

from lightrig.harness.bench import Bench
from lightrig.harness.bench.binding import bind_only
from lightrig.harness.cli.app import application
from lightrig.harness.jobs.bench.arp_settings import ArpRefusedError, ports_reply_for_themselves
from lightrig.harness.jobs.bench.overlay import Overlay
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.instruments.simulated.namespaces.kernel_links import KernelLinks
from lightrig.instruments.supervisor import plain_line
from lightrig.testbeds import load

TESTBED = """
name: rails
known_hosts: known_hosts
ssh_config: /dev/null
switches: {ocs: {model: polatis, address: "tl1://ocs.invalid", size: 4x4}}
servers:
  a: {address: "ssh://127.0.0.1:A", login: env:LAB_SERVER, nics: &nics {
    nic0: {ports: 2, netdev: "fabric{p}", rdma: "rxe{p}", rate: 100G, transceiver: lr4}}}
  b: {address: "ssh://127.0.0.1:B", login: env:LAB_SERVER, nics: *nics}
transceivers:
  lr4: {wavelength: 1310 nm, launch: {min: -4 dBm, max: 4 dBm},
        receive: {min: -10 dBm, max: 4 dBm}, damage: 5 dBm}
fibers: ["a.nic0.p[0-1] <-> ocs", "b.nic0.p[0-1] <-> ocs"]
"""
KILLED = """
import os, sys
from lightrig.harness.bench.binding import bind_only
from lightrig.harness.jobs.bench.arp_settings import ports_reply_for_themselves
from lightrig.testbeds import load
with ports_reply_for_themselves(bind_only(load(sys.argv[1]), {"a", "b"}, "a job")):
    os.kill(os.getpid(), 9)
"""
# On b's fabric0: who has the address of a's fabric1, then who has that of a's fabric0, which is at
# the other end. The kernel replies in the order of requests, so the second reply ends the wait.
ASK = """
import socket, struct
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0806))
wire.bind(("fabric0", 0x0806))
wire.settimeout(60)
mac, ours = wire.getsockname()[4], socket.inet_aton("198.51.100.2")
kind = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1)
for address in ("198.51.100.11", "198.51.100.1"):
    target = bytes(6) + socket.inet_aton(address)
    wire.send(b"\\xff" * 6 + mac + b"\\x08\\x06" + kind + mac + ours + target)
replies = []
while "198.51.100.1" not in replies:
    frame = wire.recv(2048)
    if frame[20:22] == b"\\0\\2" and frame[38:42] == ours:
        replies.append(socket.inet_ntoa(frame[28:32]))
print(*replies)
"""
ADDRESSES = {"a": ("198.51.100.1", "198.51.100.11"), "b": ("198.51.100.2",)}
STATE = "cd /proc/sys/net/ipv4; grep . ip_forward conf/*/rp_filter conf/*/arp_*"
ANY, OWN = "198.51.100.11 198.51.100.1", "198.51.100.1"


class Rails:
    """Two ports of server a in one subnet, of which one is linked to b."""

    def __init__(self, file: Path, run: Callable[..., str], pids: dict[str, int]) -> None:
        self.file, self._run, self._pids = file, run, pids
        self.refuses = False

    def replies(self) -> str:
        """Return the addresses for which the port at the other end of b's replied."""
        return self._run(self._pids["b"], sys.executable, "-I", "-S", "-c", ASK).strip()

    def state(self) -> list[str]:
        return [self._run(pid, "sh", "-c", STATE) for pid in self._pids.values()]

    def bench(self) -> Bench:
        return bind_only(load(self.file), {"a", "b"}, "a job")

    def command(self, enter: str, text: str) -> str:
        """Return what runs `text` on a server; one that refuses lets nobody write a setting."""
        if self.refuses and b">/proc/sys" in plain_line(text.encode()):
            return "echo 'sh: 1: cannot create arp_ignore: Permission denied' >&2; exit 2"
        return f"{enter} {shlex.quote(text)}"


@pytest.fixture
def rails(
    namespaces: kernel.Namespaces,
    links: KernelLinks,
    run: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Rails]:
    lit = frozenset(("a.fabric0", "b.fabric0"))
    links.apply(lit, frozenset([lit]))
    monkeypatch.setenv("LIGHTRIG_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("LAB_SERVER", ":".join(LOGIN))
    pids = {name: namespaces.pid(name) for name in "ab"}
    made = Rails(tmp_path / "rails.yaml", run, pids)
    text, known = TESTBED, ""
    with contextlib.ExitStack() as stack:
        for name, pid in pids.items():
            run(pid, "sh", "-c", "cd /proc/sys/net/ipv4/conf; echo 1 >fabric1/rp_filter")
            for index, address in enumerate(ADDRESSES[name]):
                device = f"{address}/24", "dev", f"fabric{index}"
                run(pid, "ip", "addr", "add", *device)
                stack.callback(run, pid, "ip", "addr", "del", *device)
            enter = shlex.join(kernel.enter_command(pid, ["sh", "-c"]))
            host = SshHost(lambda text, enter=enter: made.command(enter, text))
            stack.callback(host.close)
            text = text.replace(f"127.0.0.1:{name.upper()}", f"127.0.0.1:{host.port}")
            known += host.known_hosts_line()
        made.file.write_text(text)
        (tmp_path / "known_hosts").write_text(known)
        yield made


def test_each_port_replies_for_itself_under_rdma(rails: Rails, tmp_path: Path) -> None:
    before = rails.state()
    assert rails.replies() == ANY
    with contextlib.closing(rails.bench()) as bench:
        with ports_reply_for_themselves(bench):
            assert rails.replies() == OWN
            now = rails.state()
            # The ports of b lie in two subnets: it is left alone. What is strict becomes loose.
            assert now[1] == before[1]
            changed = {*now[0].splitlines()} - {*before[0].splitlines()}
            assert changed == {
                *(f"conf/fabric{port}/arp_ignore:1" for port in (0, 1)),
                *(f"conf/fabric{port}/arp_announce:2" for port in (0, 1)),
                "conf/fabric1/rp_filter:2",
            }
        assert rails.state() == before
        assert rails.replies() == ANY
    assert not [*(tmp_path / "state").glob("*settings*")]


@pytest.mark.usefixtures("all_is_carried_out")
def test_restore_undoes_it_after_a_kill(rails: Rails) -> None:
    before = rails.state()
    killed = preloaded.run(["python", "-c", KILLED, rails.file])
    assert killed.returncode == -9
    assert rails.replies() == OWN
    ended = CliRunner().invoke(application("restore"), ["restore", str(rails.file)])
    assert ended.exit_code == 0, ended.output
    assert rails.state() == before


def test_it_is_set_beside_the_routes_of_a_collective(rails: Rails, tmp_path: Path) -> None:
    """These let any port reply, and stay as long as a session: both are restored, each to its."""
    before = rails.state()
    with contextlib.closing(rails.bench()) as bench:
        overlay = Overlay(bench)
        beside = rails.state()
        with ports_reply_for_themselves(bench):
            assert rails.replies() == OWN
        assert rails.state() == beside
        assert [*(tmp_path / "state").glob("*settings*")]  # of the overlay
        overlay.close()
    assert rails.state() == before
    assert not [*(tmp_path / "state").glob("*settings*")]


def test_a_server_that_refuses_is_named_with_what_to_set(rails: Rails) -> None:
    before = rails.state()
    rails.refuses = True
    with contextlib.closing(rails.bench()) as bench:
        with pytest.raises(ArpRefusedError) as raised, ports_reply_for_themselves(bench):
            pass
        text = str(raised.value)
        assert "a has NIC ports in one subnet" in text
        assert "`become: true`" in text
        assert "/proc/sys/net/ipv4/conf/fabric0/arp_announce = 2" in text
    assert rails.state() == before
