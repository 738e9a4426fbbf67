"""Outputs that nothing reads: refused by the name of the tool, or by the tool's own error.

Lines of rxe0 and fabric0 are those of Debian 12 (infiniband-diags 44, rdma-core 44, iproute2 6.1,
perftest 4.5, ethtool 6.1) over rdma_rxe; those of mlx5 are written in the form of the same tools.
"""

import pytest

from lightrig.instruments.servers.tools.output import ToolReportedError
from lightrig.instruments.servers.tools.recognition import NoReaderError, read

UNREAD = {
    "ibstat": (
        "CA 'rxe0'\n\tCA type: \n\tNumber of ports: 1\n\tPort 1:\n\t\tState: Active\n",
        "CA 'mlx5_0'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tFirmware version: 28.41.1000\n",
    ),
    "ibv_devinfo": (
        "hca_id:\trxe0\n\ttransport:\t\t\tInfiniBand (0)\n\tfw_ver:\t\t\t\t0.0.0\n",
        "hca_id:\tmlx5_0\n\ttransport:\t\t\tInfiniBand (0)\n\tfw_ver:\t\t\t\t28.41.1000\n",
    ),
    "ibv_devices": (
        "    device          \t   node GUID\n    ------          \t----------------\n"
        "    rxe0            \t505400fffe770000\n",
    ),
    "ibdev2netdev": ("mlx5_0 port 1 ==> ens1f0np0 (Up)\nmlx5_1 port 1 ==> ens1f1np1 (Down)\n",),
    "rdma statistic": (
        "link rxe0/1 sent_pkts 8921 rcvd_pkts 4320 duplicate_request 183 link_downed 22 \n",
        "link mlx5_0/1 rx_write_requests 0 rx_read_requests 0 out_of_buffer 0 \n",
        '[{"ifname":"mlx5_0","port":1,"rx_write_requests":0,"rx_read_requests":0}]\n',
    ),
    "rdma dev": (
        '[{"ifindex":0,"ifname":"rxe0","node_type":"ca","node_guid":"5054:00ff:fe77:0000"}]\n',
        "0: mlx5_0: node_type ca fw 28.41.1000 node_guid 946d:ae03:00aa:1234\n",
    ),
    "ethtool -T": ("Time stamping parameters for fabric0:\nCapabilities:\n\tsoftware-transmit\n",),
    "ethtool --show-module": ("Module parameters for fabric0:\n",),
    "ethtool -k": (
        '[ {\n        "ifname": "fabric0",\n        "rx-checksumming": {\n'
        '            "active": true\n        }\n} ]\n',
        "Features for fabric0:\nrx-checksumming: on [fixed]\n",
    ),
    "ip -brief": ("lo               UNKNOWN        00:00:00:00:00:00 <LOOPBACK,UP,LOWER_UP> \n",),
}
ERRORS = (
    "netlink error: Operation not supported",
    "netlink error: Operation not permitted",
    "Cannot get module EEPROM information: Operation not supported",
    "bash: line 1: ethtool: command not found",
    "sh: 1: mlxlink: not found",
)
READ = {
    "ethtool -i": "driver: virtio_net\nversion: 1.0.0\nbus-info: 0000:00:03.0\n",
    "ethtool -a": "Pause parameters for eth0:\nAutonegotiate:\toff\nRX:\t\toff\nTX:\t\toff\n",
    "dcb pfc show": "prio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off \n",
    "rdma link": "link rxe0/1 state ACTIVE physical_state LINK_UP netdev fabric0 \n",
}


@pytest.mark.parametrize(
    ("tool", "text"), [(tool, text) for tool, texts in UNREAD.items() for text in texts]
)
def test_a_tool_that_nothing_reads_is_named(tool: str, text: str) -> None:
    with pytest.raises(NoReaderError) as refused:
        read(text)
    assert refused.value.tool == tool
    assert f"this is what {tool} prints" in str(refused.value)


@pytest.mark.parametrize("text", ERRORS)
def test_the_error_of_a_tool_is_quoted(text: str) -> None:
    with pytest.raises(ToolReportedError, match="did not succeed") as refused:
        read(f"{text}\n")
    assert refused.value.found == text


@pytest.mark.parametrize("tool", READ)
def test_tools_that_are_used_are_still_read(tool: str) -> None:
    assert read(READ[tool]).tool == tool
