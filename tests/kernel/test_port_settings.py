"""Settings of ports on kernels of their own: read as `ip` and sysctl have set them, compared.

Namespaces have real MTUs and settings of IP. What ethtool prints of them is printed by a stand-in,
in the words of ethtool 6.1 (Debian 12), for two boards of one model whose firmware differs.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lightrig.harness.components import Components
from lightrig.harness.doctor import Findings
from lightrig.harness.doctor.servers import examine_ports
from lightrig.harness.port_differences import port_differences
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.servers.ports.port_settings import PortSettings
from lightrig.instruments.simulated.namespaces.kernel_links import KernelLinks
from lightrig.instruments.wire.namespace import NamespaceShell
from lightrig.testbeds import Port, Testbed, load

TESTBED = """
name: rack
transceivers:
  lr4:
    wavelength: 1310 nm
    launch: {min: -4.3 dBm, max: 4.5 dBm}
    receive: {min: -10.6 dBm, max: 4.5 dBm}
    damage: 5.5 dBm
switches: {ocs: {model: polatis, address: "tl1://ocs.invalid", size: 4x4}}
servers:
  a:
    address: ssh://a.invalid
    kind: namespace
    nics: {nic0: {netdev: fabric0, rate: 100G, model: ConnectX-7, transceiver: lr4}}
  b:
    address: ssh://b.invalid
    kind: namespace
    nics: {nic0: {netdev: fabric0, rate: 100G, model: ConnectX-7, transceiver: lr4}}
  c:
    address: ssh://c.invalid
    kind: namespace
    nics: {nic0: {netdev: fabric0, rate: 100G, model: ConnectX-7, transceiver: lr4}}
fibers: [a.nic0 <-> ocs, b.nic0 <-> ocs, c.nic0 <-> ocs]
plans:
  first: [a.nic0 <-> b.nic0]
  second: [b.nic0 <-> c.nic0]
"""
ETHTOOL = """#!/bin/sh
case "$*" in
*-i*) echo "driver: mlx5_core"; echo "version: 6.1.0-50-amd64"
  echo "firmware-version: $(cat FOLDER/firmware.$HOSTED)"; echo "expansion-rom-version: "
  echo "bus-info: 0000:3b:00.0";;
*-a*) echo "Pause parameters for fabric0:"; cat FOLDER/pause.$HOSTED;;
*--show-fec*) echo "FEC parameters for fabric0:"
  echo "Supported/Configured FEC encodings: RS"; echo "Active FEC encoding: RS";;
*) echo "netlink error: Operation not supported" >&2; exit 1;;
esac
"""
DCB = """#!/bin/sh
[ -f FOLDER/pfc.$HOSTED ] && exec cat FOLDER/pfc.$HOSTED
echo "Attribute read: Operation not supported" >&2; exit 1
"""
"""What dcb of iproute2 6.1 prints, and how it ends for a port without PFC (a veth, here)."""
QUIET = "Autonegotiate:\toff\nRX:\t\toff\nTX:\t\toff\n\n"
LOUD = "Autonegotiate:\toff\nRX:\t\toff\nTX:\t\ton\n\n"


@pytest.fixture
def testbed(tmp_path: Path) -> Testbed:
    file = tmp_path / "rack.yaml"
    file.write_text(TESTBED)
    return load(file)


@pytest.fixture
def read(
    namespaces: kernel.Namespaces,
    links: KernelLinks,
    testbed: Testbed,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[], dict[Port, PortSettings]]]:
    """Read the settings of the port of each server."""
    del links
    (tmp_path / "ethtool").write_text(ETHTOOL.replace("FOLDER", str(tmp_path)))
    (tmp_path / "ethtool").chmod(0o755)
    (tmp_path / "dcb").write_text(DCB.replace("FOLDER", str(tmp_path)))
    (tmp_path / "dcb").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name in "abc":
        (tmp_path / f"firmware.{name}").write_text("28.41.1000 (MT_0000000838)")
        (tmp_path / f"pause.{name}").write_text(QUIET)
    with contextlib.ExitStack() as stack:
        clock = SystemClock()
        servers = [LinuxServer(n, NamespaceShell(namespaces.pid(n)), clock, {}) for n in "abc"]
        for server in servers:
            stack.callback(server.close)

        def settings() -> dict[Port, PortSettings]:
            found = {}
            for server in servers:
                monkeypatch.setenv("HOSTED", server.name)
                spec = testbed.servers[server.name]
                found |= examine_ports(server, spec, Findings(Components(testbed)))
            return found

        yield settings


KERNELS = dict.fromkeys("abc", "6.1.0-50-amd64")


def test_equal_ports_have_no_differences(
    read: Callable[[], dict[Port, PortSettings]], testbed: Testbed
) -> None:
    ports = read()
    assert port_differences(testbed, ports, KERNELS) == []
    first = ports[Port("a", "nic0")]
    assert (first.mtu, first.fec, first.receives_pause, first.driver) == (
        1500,
        "RS",
        False,
        "mlx5_core",
    )
    assert (first.pfc, first.unread) == (None, {})


def test_priorities_with_flow_control_are_compared(
    read: Callable[[], dict[Port, PortSettings]], testbed: Testbed, tmp_path: Path
) -> None:
    """a and b have it for RoCE's priority 3, c for none; of NICs without it nothing is said."""
    line = "prio-pfc 0:off 1:off 2:off 3:{} 4:off 5:off 6:off 7:off\n"
    for name, state in (("a", "on"), ("b", "on"), ("c", "off")):
        (tmp_path / f"pfc.{name}").write_text(line.format(state))
    ports = read()
    assert [ports[Port(name, "nic0")].pfc for name in "abc"] == [(3,), (3,), ()]
    (found,) = port_differences(testbed, ports, KERNELS)
    assert found.evidence == ("b.nic0 - c.nic0: PFC of priority is 3 at b.nic0 and none at c.nic0")
    (tmp_path / "pfc.c").unlink()
    assert port_differences(testbed, read(), KERNELS) == []


def test_priorities_are_read_from_the_firmware_s_tool_where_the_kernel_has_none(
    read: Callable[[], dict[Port, PortSettings]], tmp_path: Path
) -> None:
    table = "PFC configuration:\n\tpriority    0   1   2   3   4   5   6   7\n"
    table += "\tenabled     0   0   0   0   1   0   0   0   \n"
    (tmp_path / "mlnx_qos").write_text(f"#!/bin/sh\ncat <<'END'\n{table}END\n")
    (tmp_path / "mlnx_qos").chmod(0o755)
    assert read()[Port("a", "nic0")].pfc == (4,)


def test_settings_of_the_kernel_are_those_that_hold(
    read: Callable[[], dict[Port, PortSettings]],
    namespaces: kernel.Namespaces,
    run: Callable[..., str],
) -> None:
    """The greater value of `all` and of the port holds (ip-sysctl.rst)."""
    wanted = {
        "all/arp_ignore": 0, "fabric0/arp_ignore": 2, "all/arp_announce": 2,
        "fabric0/arp_announce": 1, "all/rp_filter": 1, "fabric0/rp_filter": 0,
    }  # fmt: skip
    folder = "/proc/sys/net/ipv4/conf"
    pid = namespaces.pid("a")
    found = {name: run(pid, "cat", f"{folder}/{name}").strip() for name in wanted}
    for name, value in wanted.items():
        run(pid, "sh", "-c", f"echo {value} >{folder}/{name}")
    try:
        port = read()[Port("a", "nic0")]
    finally:
        for name, text in found.items():
            run(pid, "sh", "-c", f"echo {text} >{folder}/{name}")
    assert (port.arp_ignore, port.arp_announce, port.rp_filter) == (2, 2, 1)


def test_what_differs_is_found_at_both_ends(
    read: Callable[[], dict[Port, PortSettings]],
    testbed: Testbed,
    namespaces: kernel.Namespaces,
    run: Callable[..., str],
    tmp_path: Path,
) -> None:
    """b has another MTU than both; c tells to pause, and b does not heed it."""
    run(namespaces.pid("b"), "ip", "link", "set", "dev", "fabric0", "mtu", "1400")
    (tmp_path / "pause.c").write_text(LOUD)
    (tmp_path / "firmware.c").write_text("28.39.2048 (MT_0000000838)")
    try:
        ports = read()
    finally:
        run(namespaces.pid("b"), "ip", "link", "set", "dev", "fabric0", "mtu", "1500")
    kernels = {**KERNELS, "a": "6.8.0-31-generic"}
    found = port_differences(testbed, ports, kernels)
    assert [(each.kind, each.evidence) for each in found] == [
        ("settings differ", "a.nic0 - b.nic0: MTU is 1500 at a.nic0 and 1400 at b.nic0"),
        ("settings differ", "b.nic0 - c.nic0: MTU is 1400 at b.nic0 and 1500 at c.nic0"),
        (
            "settings differ",
            "b.nic0 - c.nic0: flow control is rx off tx off at b.nic0 and rx off tx on at c.nic0",
        ),
        (
            "versions differ",
            "a: kernel of all servers is 6.8.0-31-generic, and 2 of 3 have 6.1.0-50-amd64",
        ),
        (
            "versions differ",
            "c.nic0: NIC firmware of ConnectX-7 is 28.39.2048 (MT_0000000838), and 2 of 3 have "
            "28.41.1000 (MT_0000000838)",
        ),
    ]
    assert [tuple(map(str, each.components)) for each in found[-3:]] == [
        ("b.nic0", "c.nic0"),
        ("a",),
        ("c.nic0",),
    ]
    assert all(each.next_step for each in found)


def test_without_a_majority_no_version_is_the_wrong_one(
    read: Callable[[], dict[Port, PortSettings]], testbed: Testbed
) -> None:
    ports = read()
    kernels = {"a": "6.1.0", "b": "6.8.0"}
    (found,) = port_differences(testbed, ports, kernels)
    assert "none has the majority: 6.1.0 at a; 6.8.0 at b" in found.evidence
    assert set(found.subjects) == {"a", "b"}


def test_ports_that_were_not_read_differ_from_none(
    read: Callable[[], dict[Port, PortSettings]], testbed: Testbed, tmp_path: Path
) -> None:
    (tmp_path / "ethtool").write_text("#!/bin/sh\necho 'Cannot get: No such device' >&2\nexit 71\n")
    ports = read()
    assert port_differences(testbed, ports, KERNELS) == []
    one = ports[Port("a", "nic0")]
    assert one.fec is None
    assert one.unread["ethtool -a"] == "Cannot get: No such device"
    assert one.mtu == 1500
