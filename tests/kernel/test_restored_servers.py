"""Settings of servers that a job changed are restored after its process was killed."""

import contextlib
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import preloaded
import pytest
from servers.ssh_host import LOGIN, SshHost
from typer.testing import CliRunner

from lightrig.harness.cli.app import application
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.instruments.simulated.namespaces.kernel_links import KernelLinks

TESTBED = """
name: pair
known_hosts: known_hosts
ssh_config: /dev/null
switches: {ocs: {model: polatis, address: "tl1://ocs.invalid", size: 4x4}}
servers:
  a: {address: "ssh://127.0.0.1:A", login: env:LAB_SERVER, kind: namespace, nics: &nics {
    nic0: {netdev: fabric0, rate: 100G, transceiver: lr4}}}
  b: {address: "ssh://127.0.0.1:B", login: env:LAB_SERVER, kind: namespace, nics: *nics}
transceivers:
  lr4:
    wavelength: 1310 nm
    launch: {min: -4.3 dBm, max: 4.5 dBm}
    receive: {min: -10.6 dBm, max: 4.5 dBm}
    damage: 5.5 dBm
fibers: [a.nic0 <-> ocs, b.nic0 <-> ocs]
plans: {pair: [a.nic0 <-> b.nic0]}
"""
KILLED = """
import os, sys
from lightrig.harness.bench.binding import bind_only
from lightrig.harness.jobs.bench.overlay import Overlay
from lightrig.testbeds import load
testbed = load(sys.argv[1])
overlay = Overlay(bind_only(testbed, {"a", "b"}, "a job"))
overlay.route(testbed.links("pair"))
os.kill(os.getpid(), 9)
"""
STATE = (
    "ls /sys/class/net; cat /proc/net/route; cd /proc/sys/net/ipv4; grep . ip_forward "
    "conf/*/rp_filter conf/*/arp_ignore conf/*/arp_filter conf/*/accept_redirects "
    "neigh/*/retrans_time_ms"
)
MULTI_RAIL = (
    "cd /proc/sys/net/ipv4/conf/all; "
    "echo 1 >arp_ignore; echo 1 >rp_filter; echo 0 >accept_redirects"
)


class Lab:
    """Two namespaces behind SSH, and their state."""

    def __init__(
        self, folder: Path, hosts: dict[str, SshHost], state: Callable[[], list[str]]
    ) -> None:
        self.state = state
        self.file = folder / "pair.yaml"
        places = {name.upper(): str(host.port) for name, host in hosts.items()}
        text = TESTBED
        for name, port in places.items():
            text = text.replace(f"127.0.0.1:{name}", f"127.0.0.1:{port}")
        self.file.write_text(text)
        lines = (host.known_hosts_line() for host in hosts.values())
        (folder / "known_hosts").write_text("".join(lines))

    def kill_a_job(self) -> None:
        """Start a job that is killed once its routes are set."""
        killed = preloaded.run(["python", "-c", KILLED, self.file])
        assert killed.returncode == -9, killed.stderr

    def restore(self, *options: str) -> tuple[int, str]:
        ended = CliRunner().invoke(application("restore"), ["restore", str(self.file), *options])
        return ended.exit_code, ended.output


@pytest.fixture
def lab(
    namespaces: kernel.Namespaces,
    links: KernelLinks,
    run: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    all_is_carried_out: None,
) -> Iterator[Lab]:
    lit = frozenset(("a.fabric0", "b.fabric0"))
    links.apply(lit, frozenset([lit]))
    monkeypatch.setenv("LIGHTRIG_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("LAB_SERVER", ":".join(LOGIN))
    with contextlib.ExitStack() as stack:
        hosts = {}
        for name in "ab":
            enter = shlex.join(kernel.enter_command(namespaces.pid(name), ["sh", "-c"]))
            hosts[name] = SshHost(lambda text, enter=enter: f"{enter} {shlex.quote(text)}")
            stack.callback(hosts[name].close)
            run(namespaces.pid(name), "sh", "-c", MULTI_RAIL)
        yield Lab(
            tmp_path,
            hosts,
            lambda: [run(namespaces.pid(name), "sh", "-c", STATE) for name in "ab"],
        )


def test_restore_undoes_what_a_killed_job_has_set(lab: Lab) -> None:
    before = lab.state()
    lab.kill_a_job()
    changed = lab.state()
    assert all("lightrig0" in each for each in changed)
    assert all("conf/all/arp_ignore:0" in each for each in changed)
    code, output = lab.restore()
    assert code == 0, output
    assert "a: " in output
    assert "settings restored" in output
    assert lab.state() == before
    assert lab.restore() == (0, "pair: nothing to restore\n")


@pytest.mark.long
def test_what_a_person_has_set_since_is_left_to_a_person(
    lab: Lab, namespaces: kernel.Namespaces, run: Callable[..., str]
) -> None:
    before = lab.state()
    lab.kill_a_job()
    path = "/proc/sys/net/ipv4/conf/all/arp_ignore"
    run(namespaces.pid("a"), "sh", "-c", f"echo 8 >{path}")
    code, output = lab.restore()
    assert code == 3, output
    assert f"somebody else has set it since: {path} is 8, and was 0" in " ".join(output.split())
    assert run(namespaces.pid("a"), "cat", path).strip() == "8"
    assert lab.state()[1] == before[1]  # a conflict of one keeps no other from being restored
    assert lab.restore("--force")[0] == 0
    assert lab.state() == before


@pytest.mark.long
def test_a_job_after_a_kill_restores_what_was_found_before(lab: Lab) -> None:
    before = lab.state()
    lab.kill_a_job()
    lab.kill_a_job()
    assert lab.restore()[0] == 0
    assert lab.state() == before
