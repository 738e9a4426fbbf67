"""What ports of servers are set to, in the folder of a run on hardware."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.served_lab import ServedLab, describe
from servers.ssh_host import LOGIN, SshHost

SUITE = "def test_nothing(bench): pass"
IP = {
    "ifindex": 3, "ifname": "ens1f0", "mtu": 9000, "operstate": "UP", "link_type": "ether",
    "flags": ["BROADCAST", "UP", "LOWER_UP"],
}  # fmt: skip
SERVERS = ("server0", "server1")


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[dict[str, SshHost]]:
    """Two servers that run programs of this machine, but for ip; ethtool, they do not have."""
    made: dict[str, SshHost] = {}
    for name, mtu in zip(SERVERS, (9000, 1500), strict=True):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "ip").write_text(f"#!/bin/sh\necho '{json.dumps([{**IP, 'mtu': mtu}])}'\n")
        (folder / "ethtool").write_text(
            "#!/bin/sh\necho 'netlink error: No such device' >&2\nexit 75\n"
        )
        for program in folder.iterdir():
            program.chmod(0o755)
        made[name] = SshHost(environment={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})
    yield made
    for host in made.values():
        host.close()


def test_settings_are_stored_with_a_run_and_differences_said(
    lab: ServedLab, start: Callable[..., Any], hosts: dict[str, SshHost], tmp_path: Path
) -> None:
    """server1 has an MTU of 1500 bytes, and server0, at the other end, one of 9000."""
    places = {"ocs": lab.places["ocs"]}
    places |= {name: f"127.0.0.1:{host.port}" for name, host in hosts.items()}
    file = describe(tmp_path, places)
    with (lab.folder / ".ssh" / "known_hosts").open("a") as known:
        known.writelines(host.known_hosts_line() for host in hosts.values())
    suite = tmp_path / "test_short.py"
    suite.write_text(SUITE)
    environment = {**lab.environment, "LAB_SERVER": ":".join(LOGIN)}
    run = start(suite, "--testbed", file, "--instruments", "hardware", environment=environment)
    ended = run.end()
    assert ended.code == 0, ended.output
    (stored,) = ended.results.glob("runs/*/testbeds/lab/ports.json")
    document = json.loads(stored.read_text())
    assert document["kernels"] == dict.fromkeys(SERVERS, os.uname().release)
    ports = document["ports"]
    assert {name: one["mtu"] for name, one in ports.items()} == {
        "server0.nic0.p0": 9000, "server0.nic0.p1": 9000,
        "server1.nic0.p0": 1500, "server1.nic0.p1": 1500,
    }  # fmt: skip
    assert ports["server0.nic0.p0"]["unread"]["ethtool -a"] == "netlink error: No such device"
    arp_ignore = Path("/proc/sys/net/ipv4/conf/all/arp_ignore").read_text().strip()
    assert ports["server0.nic0.p0"]["arp_ignore"] == int(arp_ignore)
    sentence = "MTU is 9000 at server0.nic0.p0 and 1500 at server1.nic0.p0"
    assert sentence in ended.output
