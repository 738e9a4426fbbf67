"""Outputs of tools on an emulated Debian 12 server with Soft-RoCE, against values read by eye.

Kernel 6.1.0-50, ethtool 6.1, iproute2 6.1.0, infiniband-diags 44, rdma-core 44, perftest 4.5. Long
ones are excerpts: their first lines, in their order. Each is read, or refused with the true reason.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lightrig.instruments.servers.tools.output import ToolOutputError, ToolReportedError
from lightrig.instruments.servers.tools.recognition import NoReaderError, read

FILE = Path(__file__).with_name("guest_outputs.txt")

UP = {"BROADCAST", "MULTICAST", "UP", "LOWER_UP"}
LINK_UP = {"state": "ACTIVE", "physical_state": "LINK_UP", "lid": None, "port": 1}

READ: dict[str, dict[str, Any]] = {
    "ethtool_lo": {"netdev": "lo", "speed_bps": None, "port": None, "detected": True},
    "ethtool_house": {
        "netdev": "house",
        "speed_bps": None,
        "duplex": None,
        "port": "Other",
        "auto_negotiation": False,
        "modes": (),
        "detected": True,
    },
    "ethtool_i_house": {
        "driver": "virtio_net",
        "version": "1.0.0",
        "firmware": None,
        "bus": "0000:00:03.0",
    },
    "ip_addr_json": {
        "0.netdev": "lo",
        "0.mtu": 65536,
        "0.operstate": "UNKNOWN",
        "1.index": 2,
        "1.netdev": "control",
        "1.flags": UP,
        "1.mac": "52:54:00:77:00:ff",
        "1.rx": {},
    },
    "ip_addr": {
        "0.netdev": "lo",
        "0.flags": {"LOOPBACK", "UP", "LOWER_UP"},
        "1.netdev": "control",
        "1.mtu": 1500,
        "1.operstate": "UP",
    },
    "ip_s_addr": {
        "0.index": 4,
        "0.netdev": "fabric0",
        "0.rx.bytes": 1316661,
        "0.rx.packets": 14960,
        "0.tx.bytes": 1345529,
        "0.tx.packets": 15245,
        "0.tx.dropped": 0,
    },
    "ip_s_s": {
        "0.netdev": "fabric0",
        "0.rx.bytes": 1862871,
        "0.rx.packets": 20162,
        "0.rx.crc_errors": 0,
        "0.tx.bytes": 1649549,
        "0.carrier_changes": 72,
    },
    "ip_s_s_j_d": {"0.netdev": "fabric1", "0.rx.bytes": 1471960, "0.rx.packets": 14020},
    "ip_d": {"0.index": 4, "0.netdev": "fabric0", "0.mtu": 1500, "0.carrier": True, "0.rx": {}},
    "rdma_link_one": {"0.device": "rxe0", "0.netdev": "fabric0"}
    | {f"0.{key}": value for key, value in LINK_UP.items()},
    "rdma_link_d": {"0.device": "rxe0", "1.device": "rxe1", "1.netdev": "fabric1"}
    | {f"1.{key}": value for key, value in LINK_UP.items()},
    "json_send_lat": {
        "0.test": "Send_Latency_Test",
        "0.settings.Device": "rxe0",
        "0.settings.TX_depth": "1",
        "0.latencies.0.size": 2,
        "0.latencies.0.iterations": 100,
        "0.latencies.0.least_ns": 2_754_470,
        "0.latencies.0.typical_ns": 14_821_820,
        "0.latencies.0.average_ns": 19_513_430,
        "0.latencies.0.p999_ns": 130_667_300,
    },
    "json_read_lat": {"0.latencies.0.typical_ns": 61_830, "0.latencies.0.average_ns": 676_590},
    "json_send_lat_d": {
        "0.latencies.0.iterations": 54,
        "0.latencies.0.typical_ns": None,
        "0.latencies.0.average_ns": 18_558_640,
        "0.latencies.0.per_s": 26.94,
    },
    "json_write_bw": {
        "0.settings.Link_type": "Ethernet",
        "0.bandwidths.0.size": 65536,
        "0.bandwidths.0.average_bps": 0.91 * 2**23,  # MiB/s
        "0.bandwidths.0.messages_per_s": 15.0,
    },
    "json_write_bw_gbit": {"0.bandwidths.0.average_bps": 8_793_000.0},  # Gb/s
    "json_write_bw_bi": {"0.bandwidths.0.average_bps": 3.04 * 2**23},
    "json_write_bw_d": {
        "0.bandwidths.0.iterations": 2300,
        "0.bandwidths.0.peak_bps": None,
        "0.bandwidths.0.average_bps": 4.45 * 2**23,
    },
    "rdma_link_pretty": {"0.device": "rxe0", "1.device": "rxe1", "1.netdev": "fabric1"}
    | {f"1.{key}": value for key, value in LINK_UP.items()},
}
"""Values by path, as a person reads them in the output."""

UNREAD: dict[str, str] = {
    "ethtool_P": "ethtool -P",
    "ethtool_c": "ethtool -c",
    "ethtool_g": "ethtool -g",
    "ethtool_k": "ethtool -k",
    "ethtool_l": "ethtool -l",
    "ethtool_x": "ethtool -x",
    "ibstat_s": "ibstat",
    "ip_br_addr": "ip -brief",
    "ip_neigh": "ip neigh",
    "ip_route": "ip route",
    "ip_route_json": "ip route",
    "ip_rule": "ip rule",
    "ibstat_1": "ibstat",
    "ibstatus": "ibstatus",
    "ibv_devinfo_l": "ibv_devinfo",
    "ibv_devinfo_1": "ibv_devinfo",
    "rdma_dev": "rdma dev",
    "rdma_stat_json": "rdma statistic",
    "rdma_stat_one": "rdma statistic",
    "rdma_stat_pretty": "rdma statistic",
    "rdma_res": "rdma resource",
    "rdma_res_json": "rdma resource",
    "rdma_res_qp": "rdma resource",
    "rdma_system": "rdma system",
    "tc_qdisc": "tc qdisc",
    "chronyc": "chronyc tracking",
}
"""Outputs that no measurement uses, and their tool."""

FAILED: dict[str, str] = {
    "ethtool_S_lo": "no stats available",
    "ethtool_a": "netlink error: Operation not supported",
    "ethtool_eee": "netlink error: Operation not supported",
    "ethtool_fec_json": "netlink error: Operation not supported",
    "ethtool_g_json": "ethtool: bad command line argument(s)",
    "ethtool_m_json": "ethtool: bad command line argument(s)",
    "ethtool_none": "netlink error: no device matches name (offset 24)",
    "ethtool_priv": "netlink error: Operation not supported",
    "ip_none": 'Device "fabric9" does not exist.',
    "ibstat_none": "ibpanic: [3949] main: 'mlx5_0' IB device can't be found: Success",
    "ibv_devinfo_none": "IB device 'mlx5_0' wasn't found",
    "rdma_none": "Wrong device name",
    "ib_send_bw_nodev": "IB device mlx5_0 not found",
    "ib_write_bw_a": "Couldn't allocate MR",
}
"""Errors of tools, and the line that is quoted."""

UNCERTAIN: dict[str, str] = {"json_atomic_bw": "a bandwidth that tells MiB/s from Gb/s"}
"""Outputs of tools that are used, which could mean two things, and what they lack."""

UNKNOWN = ("ibstat_l", "ibstat_p")
"""Outputs that nothing tells from any other: lists of names and numbers."""


def at(value: Any, path: str) -> Any:
    """Return the part of `value` at a path of keys, indices and attributes."""
    for part in path.split("."):
        if isinstance(value, Mapping):
            value = value[part]
        else:
            value = value[int(part)] if part.isdigit() else getattr(value, part)
    return value


def outputs() -> dict[str, str]:
    found = re.split(r"^%% (\w+) \|.*\n", FILE.read_text(), flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2], strict=True))


def test_of_forty_outputs_each_has_its_expectation() -> None:
    assert outputs().keys() == {*READ, *UNREAD, *FAILED, *UNCERTAIN, *UNKNOWN}
    assert len(outputs()) >= 40


@pytest.mark.parametrize("name", READ)
def test_what_is_used_is_read_as_by_eye(name: str) -> None:
    value = read(outputs()[name]).value
    assert {path: at(value, path) for path in READ[name]} == READ[name]


@pytest.mark.parametrize("name", UNREAD)
def test_what_is_not_used_is_named(name: str) -> None:
    with pytest.raises(NoReaderError) as refused:
        read(outputs()[name])
    assert refused.value.tool == UNREAD[name]


@pytest.mark.parametrize("name", FAILED)
def test_errors_are_quoted(name: str) -> None:
    with pytest.raises(ToolReportedError, match="did not succeed") as refused:
        read(outputs()[name])
    assert refused.value.found == FAILED[name]


@pytest.mark.parametrize("name", UNCERTAIN)
def test_what_could_mean_two_things_is_refused_by_name(name: str) -> None:
    with pytest.raises(ToolOutputError, match=UNCERTAIN[name]) as refused:
        read(outputs()[name])
    assert str(refused.value).startswith("perftest ")


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_could_be_anything_is_refused(name: str) -> None:
    with pytest.raises(ToolOutputError, match="the output of one of"):
        read(outputs()[name])
