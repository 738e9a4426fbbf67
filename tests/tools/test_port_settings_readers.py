"""Readers of what a port is set to, on prints of ethtool and files of the kernel."""

from collections.abc import Callable

import pytest
from tool_samples import sample

from lightrig.instruments.servers.tools import (
    ethtool_driver,
    ethtool_module,
    ethtool_pause,
    pfc,
    port_files,
)
from lightrig.instruments.servers.tools.output import ToolOutputError

VIRTIO = """driver: virtio_net
version: 1.0.0
firmware-version: 
expansion-rom-version: 
bus-info: 0000:00:03.0
supports-statistics: yes
supports-test: no
"""  # noqa: W291 - ethtool 6.1, Debian 12
BNXT = """driver: bnxt_en
version: 6.8.0-31-generic
firmware-version: 230.0.157.0/pkg 230.1.116.0
expansion-rom-version: 
bus-info: 0000:c1:00.0
"""  # noqa: W291
NEGOTIATED = (
    "Pause parameters for eth0:\nAutonegotiate:\ton\nRX:\t\ton\nTX:\t\ton\n"
    "RX negotiated: on\nTX negotiated: off\n\n"
)


def test_driver() -> None:
    read = ethtool_driver.parse(VIRTIO)
    assert (read.driver, read.version, read.firmware, read.bus) == (
        "virtio_net", "1.0.0", None, "0000:00:03.0",
    )  # fmt: skip
    assert not read.of_mellanox
    assert ethtool_driver.parse(BNXT).firmware == "230.0.157.0/pkg 230.1.116.0"
    assert ethtool_driver.parse(BNXT.replace("bnxt_en", "mlx5_core")).of_mellanox


def test_flow_control() -> None:
    """What is negotiated holds where it is negotiated (annex 28B.3 of IEEE 802.3)."""
    read = ethtool_pause.parse(NEGOTIATED)
    assert (read.receives, read.sends) == (True, True)
    assert read.active == (True, False)
    by_hand = ethtool_pause.parse(NEGOTIATED.replace("Autonegotiate:\ton", "Autonegotiate:\toff"))
    assert by_hand.active == (True, True)


def test_the_greater_setting_of_ip_holds() -> None:
    folder = "/proc/sys/net/ipv4/conf"
    read = port_files.parse(
        f"{folder}/all/arp_ignore:1\n{folder}/eth0.7/arp_ignore:0\n"
        f"{folder}/all/rp_filter:0\n{folder}/eth0.7/rp_filter:2\n"
        "/sys/class/net/eth0.7/device/vendor:0x15b3\n/sys/class/net/eth0.7/device/device:0x1021\n"
    )
    assert (read.arp_ignore, read.arp_announce, read.rp_filter) == (1, None, 2)
    assert read.pci_id == "0x15b3:0x1021"
    assert port_files.parse("") == port_files.PortFiles()


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (ethtool_driver.parse, "driver: a\ndriver: b\nversion: 1\nbus-info: 0\n"),
        (ethtool_driver.parse, "netlink error: No such device\n"),
        (ethtool_pause.parse, "Pause parameters for eth0:\nRX: perhaps\n"),
        (ethtool_pause.parse, "Settings for eth0:\n"),
        (port_files.parse, "/proc/sys/net/ipv4/conf/all/arp_ignore:many\n"),
        (port_files.parse, "/etc/passwd:root\n"),
    ],
)
def test_other_prints_are_refused(parse: object, text: str) -> None:
    with pytest.raises(ToolOutputError):
        parse(text)  # type: ignore[operator]


def test_firmware_of_a_module() -> None:
    """CMIS, lower memory, bytes 39 and 40; JSON of ethtool 6.14 has the two numbers apart."""
    as_text = "\tIdentifier : 0x18 (QSFP-DD)\n\tActive firmware version : 2.7\n"
    assert ethtool_module.parse(as_text).firmware == "2.7"
    as_json = (
        '[{"identifier": 24, "active_firmware_version": {"major": 2, "minor": 7},'
        ' "inactive_firmware_version": {"major": 2, "minor": 6}}]'
    )
    assert ethtool_module.parse(as_json).firmware == "2.7"
    assert ethtool_module.parse(sample("ethtool/jc_module_sfp.txt")).firmware is None


DCB = """pfc-cap 8 macsec-bypass off delay 4096
prio-pfc 0:off 1:off 2:off 3:off 4:off 5:off 6:on 7:on
"""
"""The example of dcb-pfc(8), iproute2 6.1."""

MLNX_QOS = """DCBX mode: OS controlled
Priority trust state: dscp
PFC configuration:
\tpriority    0   1   2   3   4   5   6   7
\tenabled     0   0   0   1   0   0   0   0   
\tbuffer      0   0   0   1   0   0   0   0   
tc: 0 ratelimit: unlimited, tsa: vendor
"""  # noqa: W291 - as it prints


def test_the_priorities_with_flow_control_are_read() -> None:
    assert pfc.parse_dcb(DCB) == (6, 7)
    assert pfc.parse_dcb(DCB.replace(":on", ":off")) == ()
    assert pfc.parse_mlnx_qos(MLNX_QOS) == (3,)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (pfc.parse_dcb, ""),
        (pfc.parse_dcb, DCB + DCB),
        (pfc.parse_dcb, DCB.replace("7:on", "6:on")),
        (pfc.parse_dcb, DCB.replace(" 7:on", "")),
        (pfc.parse_mlnx_qos, MLNX_QOS.replace("enabled     0", "enabled     2")),
        (pfc.parse_mlnx_qos, MLNX_QOS.replace("7\n", "6\n")),
        (pfc.parse_mlnx_qos, MLNX_QOS.replace("enabled", "buffer")),
    ],
)
def test_no_priority_is_guessed(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(ToolOutputError):
        parse(text)
