"""Causes that the doctor names for ports of servers behind SSH.

The stand-ins print what ethtool 6.1, iproute2 and sudo of Debian 12 print (a guest with virtio-net
and Soft-RoCE, an account that is not root) and what ethtool prints of an empty cage of mlx5_core.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from ssh_host import LOGIN, SshHost

from lightrig.harness.components import Components
from lightrig.harness.doctor import Findings
from lightrig.harness.doctor.findings import Check
from lightrig.harness.doctor.servers import examine_ports, examine_tools
from lightrig.instruments.clock import Span, SystemClock
from lightrig.instruments.servers.host.commands import CommandResult, ToolFailedError
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.wire.ssh import SshLogin, SshShell
from lightrig.instruments.wire.ssh_config import NO_FILE
from lightrig.testbeds import ServerSpec, load

TESTBED = """
name: rack
switches: {ocs: {model: polatis, address: "tl1://ocs.invalid", size: 4x4}}
servers:
  server0:
    address: ssh://server0.invalid
    nics: {nic0: {netdev: fabric0, rate: 100G, rdma: rxe0}}
"""
IP = [
    {
        "ifindex": 3, "ifname": "fabric0", "mtu": 1500, "operstate": "UP",
        "flags": ["BROADCAST", "MULTICAST", "UP", "LOWER_UP"], "link_type": "ether",
    }
]  # fmt: skip
DRIVER = """cat <<END
driver: {driver}
version: {version}
firmware-version: {firmware}
expansion-rom-version: 
bus-info: 0000:00:03.0
END"""  # noqa: W291 - as ethtool prints it
VIRTIO = DRIVER.format(driver="virtio_net", version="1.0.0", firmware="")
MELLANOX = DRIVER.format(
    driver="mlx5_core", version="6.1.0-50-amd64", firmware="28.41.1000 (MT_0000000838)"
)
NOT_SUPPORTED = "netlink error: Operation not supported"
NOT_PERMITTED = "netlink error: Operation not permitted"
EMPTY_CAGE = "netlink error: Input/output error"


class Host:
    """A server behind SSH whose programs are stand-ins."""

    def __init__(self, host: SshHost, folder: Path, shell: SshShell) -> None:
        self.ssh = host
        self._programs = folder / "bin"
        self._programs.mkdir()
        self.ssh.environment["PATH"] = f"{self._programs}:{os.environ['PATH']}"
        self.server = LinuxServer("server0", shell, SystemClock(), {})
        file = folder / "rack.yaml"
        file.write_text(TESTBED)
        self.spec: ServerSpec = load(file).servers["server0"]
        self.install("ip", f"echo '{json.dumps(IP)}'")
        self.install("rdma", "echo 'rdma utility, iproute2-6.1.0'")

    def install(self, name: str, script: str) -> None:
        (self._programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (self._programs / name).chmod(0o755)

    def install_ethtool(self, module: str, driver: str = VIRTIO) -> None:
        """Install an ethtool that fails to read modules with the line `module`."""
        refused = f"echo '{module}' >&2; exit 1"
        self.install(
            "ethtool",
            f'case "$*" in\n*-m*) {refused};;\n*-i*) {driver}\n;;\n*) echo ethtool;;\nesac',
        )

    def ports(self) -> Check:
        """Return the check of the server's one port."""
        findings = Findings(Components(None))
        examine_ports(self.server, self.spec, findings)
        (check,) = (each for each in findings.found if each.check == "NIC")
        assert check.subject == "server0.nic0"
        return check

    def tools(self) -> list[tuple[str, str]]:
        """Return grades and texts of the checks of its tools."""
        findings = Findings(Components(None))
        examine_tools(self.server, self.spec, findings)
        return [(each.grade, each.text) for each in findings.found]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with contextlib.ExitStack() as stack:
        ssh = SshHost()
        stack.callback(ssh.close)
        known_hosts = tmp_path / "known_hosts"
        known_hosts.write_text(ssh.known_hosts_line())
        login = SshLogin(*LOGIN, known_hosts, NO_FILE)
        shell = SshShell("server0", "127.0.0.1", SystemClock(), port=ssh.port, login=login)
        stack.callback(shell.close)
        yield Host(ssh, tmp_path, shell)


def test_a_driver_without_transceiver_is_no_problem(host: Host) -> None:
    host.install_ethtool(NOT_SUPPORTED)
    check = host.ports()
    assert check.grade == "note"
    assert check.text == (
        f"fabric0: no transceiver that its driver virtio_net reads ({NOT_SUPPORTED}), carrier"
    )
    assert check.fix == ""


def test_an_account_that_may_not_read_modules_is_told_the_right_that_it_lacks(host: Host) -> None:
    host.install_ethtool(NOT_PERMITTED)
    check = host.ports()
    assert check.grade == "wrong"
    assert check.text.endswith(f"may not do what ethtool needs: {NOT_PERMITTED}")
    assert "`become: true` of the server" in check.fix
    assert "netdev" not in check.fix


def test_a_device_that_is_missing_is_the_only_doubt_of_its_name(host: Host) -> None:
    host.install("ip", "echo 'Device \"fabric0\" does not exist.' >&2; exit 1")
    host.install_ethtool("netlink error: No such device")
    check = host.ports()
    assert check.grade == "wrong"
    assert check.text.endswith('Device "fabric0" does not exist.')
    assert check.fix == "is `netdev: fabric0` right for server0.nic0?"


def test_a_module_that_cannot_be_read_is_no_wrong_name(host: Host) -> None:
    host.install_ethtool(EMPTY_CAGE, MELLANOX)
    check = host.ports()
    assert check.grade == "wrong"
    assert check.text.endswith(EMPTY_CAGE)
    assert "netdev:" not in check.fix
    assert "is a transceiver plugged in" in check.fix


def test_a_script_that_failed_is_told_by_its_last_line() -> None:
    result = CommandResult("", "note\nRTNETLINK answers: File exists\n", 2, Span(0, 1))
    error = ToolFailedError("server0", result, "PATH=$PATH:/sbin\nip route add x\n")
    first = str(error).splitlines()[0]
    assert first == "server0 ran sh, which failed with status 2: RTNETLINK answers: File exists"


def test_a_module_that_prints_something_else_is_quoted(host: Host) -> None:
    host.install(
        "ethtool", f'case "$*" in\n*-i*) {MELLANOX}\n;;\n*) echo "\tIdentifier : five";;\nesac'
    )
    check = host.ports()
    assert check.grade == "wrong"
    assert "ethtool -m fabric0 printed 'Identifier : five'" in check.text
    assert "netdev:" not in check.fix


@pytest.mark.parametrize(
    ("driver", "wanted"),
    [
        (VIRTIO, False),
        (DRIVER.format(driver="bnxt_en", version="6.1.0", firmware="230.0.157.0"), False),
        (MELLANOX, True),
    ],
    ids=["rxe over virtio-net", "bnxt_re", "mlx5"],
)
def test_mft_is_asked_of_nics_of_mellanox_alone(host: Host, driver: str, wanted: bool) -> None:
    host.install_ethtool(NOT_SUPPORTED, driver)
    missing = [text for grade, text in host.tools() if grade == "wrong"]
    assert missing == (["has no program mlxlink"] if wanted else [])


SFP_TEXT = """\tIdentifier                                : 0x03 (SFP)
\tVendor PN                                 : SFP-10G-SR
\tLaser bias current                        : 12.000 mA
\tLaser output power                        : 0.5000 mW / -3.01 dBm
\tReceiver signal average optical power     : 0.4898 mW / -3.10 dBm
\tModule temperature                        : -12.25 degrees C / 9.95 degrees F
"""
DIAGNOSTICS = SFP_TEXT.splitlines()[2:]


def test_text_behind_json_is_read_from_the_text(host: Host, tmp_path: Path) -> None:
    """ethtool 6.14 of Debian 13, of an SFP with diagnostics, with status 0."""
    (tmp_path / "text").write_text(SFP_TEXT)
    as_json = '[ {\n        "identifier": 3,\n        "vendor_pn": "SFP-10G-SR"\n    } ]\n'
    (tmp_path / "json").write_text("\n".join((as_json, *DIAGNOSTICS, "")))
    host.install(
        "ethtool",
        f'case "$*" in\n*-i*) {MELLANOX}\n;;\n*--json*) cat {tmp_path}/json;;\n'
        f"*) cat {tmp_path}/text;;\nesac",
    )
    check = host.ports()
    assert (check.grade, check.text) == (
        "ok",
        "fabric0: None SFP-10G-SR, sends -3.01 dBm, receives -3.10 dBm, carrier",
    )


SETTINGS = "Settings for fabric0:\n\tSupported ports: [ FIBRE ]\n\tLink detected: no{}\n"
NO_CARRIER = [
    {**IP[0], "flags": ["NO-CARRIER", "BROADCAST", "MULTICAST", "UP"], "operstate": "DOWN"}
]
UNPLUGGED = """
Operational Info
----------------
State                              : Polling
Physical state                     : N/A

Troubleshooting Info
--------------------
Status Opcode                      : 1024
Group Opcode                       : N/A
Recommendation                     : Cable is unplugged

Tool Information
----------------
Firmware Version                   : 28.41.1000
MFT Version                        : mft 4.29.0-131
"""
"""As mlxlink prints it of an empty cage: mstflint's table of opcodes has 1024 for that."""
DRIVER_SAYS = "its driver mlx5_core 6.1.0-50-amd64 says by ethtool: 'No cable'"
FIRMWARE_SAYS = (
    "its firmware (28.41.1000, mft 4.29.0-131) says by mlxlink: Status Opcode '1024', "
    "Recommendation 'Cable is unplugged'"
)


@pytest.mark.parametrize(
    ("driver", "link", "mlxlink", "expected"),
    [
        (MELLANOX, " (No cable)", UNPLUGGED, (DRIVER_SAYS, FIRMWARE_SAYS)),
        (MELLANOX, " (No cable)", None, (DRIVER_SAYS,)),
        (MELLANOX, "", UNPLUGGED, (FIRMWARE_SAYS,)),
        (MELLANOX, "", UNPLUGGED.replace("Cable is unplugged", "No issue was observed"), ()),
        (VIRTIO, "", UNPLUGGED, ()),
    ],
    ids=["both", "without mlxlink", "driver gives no reason", "no issue", "no Mellanox"],
)
def test_why_a_link_is_down_is_quoted_from_driver_and_firmware(
    host: Host,
    tmp_path: Path,
    driver: str,
    link: str,
    mlxlink: str | None,
    expected: tuple[str, ...],
) -> None:
    (tmp_path / "link").write_text(SETTINGS.format(link))
    host.install("ip", f"echo '{json.dumps(NO_CARRIER)}'")
    host.install(
        "ethtool",
        f'case "$*" in\n*-m*) echo "{NOT_SUPPORTED}" >&2; exit 1;;\n*-i*) {driver}\n;;\n'
        f"fabric0) cat {tmp_path}/link;;\n*) echo ethtool;;\nesac",
    )
    if mlxlink is not None:
        (tmp_path / "report").write_text(mlxlink)
        json_refused = "echo 'Unknown Argument \"--json\"' >&2; exit 1"
        host.install(
            "mlxlink", f'case "$*" in *--json*) {json_refused};; esac\ncat {tmp_path}/report'
        )
    assert host.server.nic.down_reasons("fabric0", "mlx5_0") == expected
    text = host.ports().text
    assert text.endswith(f"no carrier ({'; '.join(expected)})" if expected else "no carrier")
