"""Counters of NIC ports by common names: what drivers have, and what readings differ by."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from bench.served_lab import describe

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.port_counters import PortCounters
from lightrig.harness.measure.reconfiguration import measure_reconfiguration
from lightrig.harness.measure.recording import LimitExceededError, Recording
from lightrig.harness.record import Row
from lightrig.instruments.clock import Span
from lightrig.instruments.servers.host.commands import Reading
from lightrig.instruments.servers.ports.traffic_counters import (
    NAMES,
    ROCE,
    TrafficCounts,
    read_counters,
    read_firmware_counters,
)
from lightrig.instruments.servers.tools.ethtool_counters import parse as parse_ethtool
from lightrig.instruments.servers.tools.infiniband_sysfs import parse as parse_sysfs
from lightrig.instruments.servers.tools.ip_link import parse as parse_ip
from lightrig.instruments.servers.tools.mlxlink import parse as parse_mlxlink
from lightrig.testbeds import LightrigError

# `ip -s -s link show` of iproute2 5.15.
IP = """2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP
    link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff
    RX: bytes  packets  errors  dropped missed  mcast
    5000       50       3       4       0       0
    RX errors: length   crc     frame   fifo    overrun
               0        3       0       0       0
    TX: bytes  packets  errors  dropped carrier collsns
    6000       60       1       2       0       0
    TX errors: aborted  fifo   window heartbt transns
               0        0       0       0       {changes}
"""

SYSFS = "/sys/class/infiniband/dev0/ports/1"

# Names as the drivers print them: mlx5 by `rdma statistic show`, the others by their sources.
DRIVERS = {
    "mlx5": (
        {"np_cnp_sent": 7, "rp_cnp_handled": 8, "np_ecn_marked_roce_packets": 9,
         "roce_adp_retrans": 10, "local_ack_timeout_err": 11, "out_of_sequence": 12,
         "packet_seq_err": 13},
        "NIC statistics:\n     rx_prio3_pause: 20\n     rx_prio4_pause: 1\n"
        "     tx_prio3_pause: 30\n     rx_prio3_pause_duration: 99\n",
    ),
    "bnxt_re": (
        {"tx_cnp_pkts": 7, "rx_cnp_pkts": 8, "rx_ecn_marked_pkts": 9, "to_retransmits": 10,
         "oos_drop_count": 12, "seq_err_naks_rcvd": 13},
        "NIC statistics:\n     rx_pfc_ena_frames_pri3: 20\n     rx_pfc_ena_frames_pri4: 1\n"
        "     tx_pfc_ena_frames_pri3: 30\n",
    ),
    "ionic": (
        {"tx_rdma_cnp_pkts": 7, "rx_rdma_cnp_pkts": 8, "rx_rdma_ecn_pkts": 9,
         "tx_rdma_retx_pkts": 10, "tx_rdma_ack_timeout": 11, "resp_rx_outouf_seq": 12,
         "req_rx_pkt_seq_err": 13},
        "NIC statistics:\n     frames_rx_pripause: 21\n     frames_tx_pripause: 30\n",
    ),
    "irdma": (
        {"cnpSent": 7, "cnpHandled": 8, "RxECNMrkd": 9, "RetransSegs": 10,
         "Rcvd Out of order packets": 12, "Nak Sequence Error": 13},
        "NIC statistics:\n     rx_priority_3_xoff.nic: 20\n     rx_priority_4_xoff.nic: 1\n"
        "     tx_priority_3_xoff.nic: 30\n     rx_priority_3_xon.nic: 5\n",
    ),
}  # fmt: skip


class Nic:
    """Prints what a driver prints; `counted` is added to each counter."""

    def __init__(self, driver: str, counted: int = 0, link_downed: int = 4) -> None:
        self._hardware, self._ethtool = DRIVERS[driver]
        self._counted = counted
        self._link_downed = link_downed

    def device(self, netdev: str) -> Any:
        (found,) = parse_ip(IP.replace("{changes}", str(6 + self._counted)))
        return Reading(found, Span(0, 0))

    def counters(self, netdev: str) -> Any:
        return Reading(parse_ethtool(self._ethtool), Span(0, 0))

    def infiniband(self, device: str, port: int = 1) -> Any:
        files = {f"hw_counters/{name}": n + self._counted for name, n in self._hardware.items()}
        files |= {"counters/link_downed": self._link_downed, "counters/link_error_recovery": 0}
        text = "".join(f"{SYSFS}/{name}:{value}\n" for name, value in files.items())
        (found,) = parse_sysfs(text)
        return Reading(found, Span(0, 0))


@pytest.mark.parametrize("driver", sorted(DRIVERS))
def test_counters_of_each_driver_have_common_names(driver: str) -> None:
    found = read_counters(Nic(driver), "eth0", "dev0")  # type: ignore[arg-type]
    expected = {
        "cnp_sent": 7, "cnp_received": 8, "ecn_marked": 9, "retransmissions": 10,
        "ack_timeouts": 11, "out_of_sequence": 12, "sequence_errors": 13, "pfc_received": 21,
        "pfc_sent": 30, "link_downed": 4, "link_recoveries": 0, "carrier_changes": 6,
        "receive_errors": 3, "receive_drops": 4, "send_errors": 1, "send_drops": 2,
    }  # fmt: skip
    if driver in ("bnxt_re", "irdma"):  # which have no such counter: absent, not zero
        del expected["ack_timeouts"]
    assert {name: count.value for name, count in found.counts.items()} == expected
    assert set(found.counts) <= set(NAMES)


def test_what_a_nic_does_not_have_is_absent() -> None:
    class Bare(Nic):
        def counters(self, netdev: str) -> Any:
            raise LightrigError("no ethtool")

        def infiniband(self, device: str, port: int = 1) -> Any:
            raise LightrigError("no such device")

    bare: Any = Bare("mlx5")
    kernel = {"carrier_changes", "receive_errors", "receive_drops", "send_errors", "send_drops"}
    assert set(read_counters(bare, "eth0", "dev0").counts) == kernel
    assert set(read_counters(bare, "eth0", None).counts) == kernel


def reading(**options: int) -> TrafficCounts:
    return read_counters(Nic("mlx5", **options), "eth0", "dev0")  # type: ignore[arg-type]


def test_differences_are_of_counters_that_both_readings_have() -> None:
    before, after = reading(), reading(counted=5)
    found = after.since(before)
    assert found["retransmissions"] == found["carrier_changes"] == (5, 5, None)
    assert found["receive_errors"] == found["link_downed"] == (0, 0, None)
    fewer = TrafficCounts({name: n for name, n in before.counts.items() if name != "cnp_sent"})
    assert "cnp_sent" not in after.since(fewer)


def test_a_counter_at_its_top_or_reset_has_a_least_number() -> None:
    """link_downed has 8 bits and stays at 255 (PortCounters of the InfiniBand specification)."""
    before = reading(link_downed=250)
    least, most, doubt = reading(link_downed=255).since(before)["link_downed"]
    assert (least, most) == (5, None)
    assert "at its maximum" in str(doubt)
    least, most, doubt = reading(link_downed=3).since(before)["link_downed"]
    assert (least, most) == (3, None)
    assert "were reset" in str(doubt)


def test_each_driver_has_its_column_in_the_table() -> None:
    for driver, (names, _) in DRIVERS.items():
        known = {name for row in ROCE.values() for name in row}
        assert set(names) <= known, driver


MLXLINK = """Physical Counters and BER Info
------------------------------
Time Since Last Clear [Min]        : 25074.8
Effective Physical Errors          : 0
Link Down Counter                  : {downs}
Link Error Recovery Counter        : 1
Raw Physical BER                   : 15E-255
"""


def of_firmware(downs: str) -> TrafficCounts:
    class Firmware:
        def link_counters(self, device: str) -> Any:
            return Reading(parse_mlxlink(MLXLINK.format(downs=downs)), Span(0, 0))

    return read_firmware_counters(Firmware(), "mlx5_0")  # type: ignore[arg-type]


def test_counters_of_the_firmware_are_those_of_mlxlink() -> None:
    before, after = of_firmware("3"), of_firmware("7")
    assert after.since(before) == {
        "firmware_link_downs": (4, 4, None),
        "firmware_link_recoveries": (0, 0, None),
    }
    assert set(after.counts) <= set(NAMES)
    # Cleared by `mlxlink --pc`; at the top of 8 bits, which older versions print; N/A while down.
    least, most, doubt = before.since(after)["firmware_link_downs"]
    assert (least, most) == (3, None)
    assert "wrapped or were reset" in str(doubt)
    least, most, doubt = of_firmware("255").since(before)["firmware_link_downs"]
    assert (least, most) == (252, None)
    assert "at its maximum" in str(doubt)
    assert "firmware_link_downs" not in of_firmware("N/A").counts


def test_a_nic_without_the_tool_has_no_counters_of_firmware() -> None:
    class Without:
        def link_counters(self, device: str) -> Any:
            raise LightrigError("mlxlink is not installed")

    assert not read_firmware_counters(Without(), "irdma0")  # type: ignore[arg-type]


class Lab:
    """A bench with one port in a time of its own, whose readings take 10 ms."""

    def __init__(
        self, simulated: Callable[..., Bench], tmp_path: Path, limit: str, rdma: str = ""
    ) -> None:
        path = describe(tmp_path)
        text = path.read_text().replace("limits:\n", "limits:\n" + limit)
        path.write_text(text.replace('"ens1f{p}"', f'"ens1f{{p}}"{rdma}'))
        self.bench = simulated(path)
        self.rows: list[Row] = []
        self.recording = Recording(self.rows.extend, self.bench.testbed.limits)
        self.counters = PortCounters(self.bench)


ASKED = "  port_counter.carrier_changes: {max: 1}\n"


def test_a_simulation_is_read_where_a_limit_asks(
    simulated: Callable[..., Bench], tmp_path: Path
) -> None:
    lab = Lab(simulated, tmp_path, "")
    lab.counters.begin()
    lab.bench.clock.sleep(10**10)
    lab.counters.record(lab.recording)
    assert lab.rows == []


def test_servers_are_read_at_the_same_time(simulated: Callable[..., Bench], tmp_path: Path) -> None:
    lab = Lab(simulated, tmp_path, ASKED)
    clock, servers = lab.bench.clock, sorted(lab.bench.servers)
    assert len(servers) > 1
    began = clock.now()
    for spec in lab.bench.testbed.nic_ports:
        if spec.port.owner == servers[0]:
            lab.bench.servers[servers[0]].port_counts(spec.netdev, spec.rdma)  # type: ignore[attr-defined]
    one = clock.now() - began
    lab.counters.begin()
    clock.sleep(10**9)
    began = clock.now()
    lab.counters.record(lab.recording)
    assert clock.now() - began < 1.5 * one


def test_links_that_go_down_within_a_test_are_counted(
    simulated: Callable[..., Bench], tmp_path: Path
) -> None:
    lab = Lab(simulated, tmp_path, ASKED)
    fabric, links = Fabric(lab.bench), LinkObservation(lab.bench)
    bring_up(fabric, links, lab.bench.testbed.plans["straight"])
    lab.counters.begin()
    measure_reconfiguration(fabric, links, Recording(list), lab.bench.testbed.plans["crossed"])
    lab.bench.clock.sleep(10**10)
    with pytest.raises(LimitExceededError, match=r"port_counter\.carrier_changes max <= 1"):
        lab.counters.record(lab.recording)
    changes = {r.subject: r.value for r in lab.rows if r.quantity == "port_counter.carrier_changes"}
    # Down and up once each, at each port of the four links.
    assert set(changes) == {str(spec.port) for spec in lab.bench.testbed.nic_ports}
    assert set(changes.values()) == {2}
    powers = [r for r in lab.rows if r.quantity == "transceiver.received_power"]
    assert {r.subject.rpartition(".")[0] for r in powers} == set(changes)
    window = next(r for r in lab.rows if r.quantity.startswith("port_counter.")).conditions
    assert window["window_s"] > 10  # type: ignore[operator]


def test_a_reading_that_would_take_more_than_a_fiftieth_of_the_time_is_left_out(
    simulated: Callable[..., Bench], tmp_path: Path
) -> None:
    lab = Lab(simulated, tmp_path, ASKED)
    clock = lab.bench.clock
    lab.counters.begin()
    clock.sleep(10**10)
    began = clock.now()
    lab.counters.record(lab.recording)
    cost, rows = clock.now() - began, len(lab.rows)
    assert 0 < cost <= 0.02 * 10**10
    clock.sleep(cost)  # a fiftieth of it is less than even the counters take
    lab.counters.record(lab.recording)
    assert len(lab.rows) == rows


def test_modules_are_read_first_and_then_in_what_is_left_of_that_time(
    simulated: Callable[..., Bench], tmp_path: Path
) -> None:
    """A module takes 60 ms: a test of 5 s leaves time for one of each server, of 1 s for none."""
    lab = Lab(simulated, tmp_path, ASKED)
    fabric, links, clock = Fabric(lab.bench), LinkObservation(lab.bench), lab.bench.clock
    bring_up(fabric, links, lab.bench.testbed.plans["straight"])
    lab.counters.begin()
    began, found = clock.now(), list[tuple[int, list[Row]]]()
    for seconds in (5, *[1] * 40, *[5] * 30):
        clock.sleep(seconds * 10**9)
        rows: list[Row] = []
        before = clock.now()
        lab.counters.record(Recording(rows.extend, {}))
        assert clock.now() - before <= 0.02 * seconds * 1e9
        found.append((before, [r for r in rows if r.quantity == "transceiver.received_power"]))
    ports = [{r.subject.rpartition(".")[0] for r in rows} for _, rows in found]
    every = {str(spec.port) for spec in lab.bench.testbed.nic_ports}
    assert ports[0] == every
    assert all(row.time_ns <= began and row.conditions["event"] == 0 for row in found[0][1])
    assert ports[1:41] == [set()] * 40
    later = [(at, of_test) for (at, _), of_test in zip(found, ports, strict=True) if of_test][1:]
    assert all(len(of_test) == 2 for _, of_test in later)
    assert all(one | other == every for (_, one), (_, other) in pairwise(later))
    assert len(later) >= 4
    assert all(late - early >= 30 * 10**9 for (early, _), (late, _) in pairwise(later))


def test_counters_of_the_firmware_are_read_in_what_is_left_of_that_time(
    simulated: Callable[..., Bench], tmp_path: Path
) -> None:
    """mlxlink takes 350 ms a port: a test of 10 s leaves no time for it, one of 25 s for a port."""
    lab = Lab(simulated, tmp_path, ASKED, ', rdma: "mlx5_{p}"')
    fabric, links = Fabric(lab.bench), LinkObservation(lab.bench)
    clock, plans = lab.bench.clock, lab.bench.testbed.plans
    bring_up(fabric, links, plans["straight"])
    lab.counters.begin()
    measure_reconfiguration(fabric, links, Recording(list), plans["crossed"])
    found, longest = list[list[Row]](), 0.0
    for seconds in (10, 25, 25, 25, 25, 25):
        clock.sleep(seconds * 10**9)
        before, rows = clock.now(), len(lab.rows)
        lab.counters.record(Recording(lab.rows.extend, {}))
        took = clock.now() - before
        of_this = lab.rows[rows:]
        found.append([r for r in of_this if r.quantity == "port_counter.firmware_link_downs"])
        longest = max(longest, took / (seconds * 1e9))
    ports = {str(spec.port) for spec in lab.bench.testbed.nic_ports}
    assert [len(each) for each in found] == [0, 1, 1, 1, 1, 1]
    assert {rows[0].subject for rows in found[1:5]} == ports
    # Each link went down once, by the change of plan; nothing has happened since.
    assert [rows[0].value for rows in found[1:]] == [1, 1, 1, 1, 0]
    assert 35 < found[1][0].conditions["window_s"] < 60  # type: ignore[operator]
    assert found[4][0].conditions["window_s"] > 110  # type: ignore[operator]
    assert 0 < longest <= 0.02
