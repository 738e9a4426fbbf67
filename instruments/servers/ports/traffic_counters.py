"""Counters that a NIC port keeps of its traffic, under common names, and their differences.

Drivers name the same event differently. `ROCE` lists the counters below
`/sys/class/infiniband/DEV/ports/N/hw_counters`, `PAUSES` those of `ethtool -S`; a NIC that has none
of a row's names does not have that counter, which is not zero. Retransmissions are counted by what
started them or by packets, whichever a driver has, so two drivers' numbers do not compare.

Sources: Linux, drivers/infiniband/hw/mlx5/counters.c, bnxt_re/hw_counters.c, ionic (LIF statistics)
and irdma/hw.c (irdma_hw_stat_names); drivers/net/ethernet: mellanox/mlx5/core/en_stats.c,
broadcom/bnxt/bnxt_ethtool.c, pensando/ionic (ionic_stats.c), intel/ice/ice_ethtool.c; of ionic's
RDMA names also sonic and ROCm exporters that read them. mlxlink: mstflint, mlxlink_commander.cpp.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from lightrig.instruments.core.capabilities import CountGrowth
from lightrig.instruments.servers.host.commands import Reading
from lightrig.instruments.servers.ports.nic import Nic
from lightrig.instruments.servers.tools.counters import (
    CounterKind,
    Unknown,
    delta,
    infiniband_kind,
)
from lightrig.testbeds import LightrigError

T = TypeVar("T")

ROCE: Mapping[str, tuple[str, ...]] = {
    # mlx5; bnxt_re; ionic; irdma
    "cnp_sent": ("np_cnp_sent", "tx_cnp_pkts", "tx_rdma_cnp_pkts", "cnpSent"),
    "cnp_received": ("rp_cnp_handled", "rx_cnp_pkts", "rx_rdma_cnp_pkts", "cnpHandled"),
    "ecn_marked": (
        "np_ecn_marked_roce_packets",
        "rx_ecn_marked_pkts",
        "rx_rdma_ecn_pkts",
        "RxECNMrkd",
    ),
    "retransmissions": (
        "roce_adp_retrans",
        "to_retransmits",
        "tx_rdma_retx_pkts",
        "RetransSegs",
    ),
    "ack_timeouts": ("local_ack_timeout_err", "tx_rdma_ack_timeout"),
    "out_of_sequence": (
        "out_of_sequence",
        "oos_drop_count",
        "resp_rx_outouf_seq",
        "Rcvd Out of order packets",
    ),
    "sequence_errors": (
        "packet_seq_err",
        "seq_err_naks_rcvd",
        "req_rx_pkt_seq_err",
        "Nak Sequence Error",
    ),
}

PAUSES: Mapping[str, re.Pattern[str]] = {
    # mlx5; bnxt; ionic; ice. All priorities are added.
    f"pfc_{word}": re.compile(
        rf"{short}_prio\d_pause|{short}_pfc_ena_frames_pri\d|frames_{short}_pripause(_?\d)?|"
        rf"{short}_priority_\d_xoff(\.nic)?"
    )
    for word, short in (("received", "rx"), ("sent", "tx"))
}

LINK: Mapping[str, str] = {"link_downed": "link_downed", "link_recoveries": "link_error_recovery"}
"""Counters below `counters/`, of 8 bits that stay at their top."""

_ERRORS: Mapping[str, tuple[str, str]] = {
    "receive_errors": ("rx", "errors"),
    "receive_drops": ("rx", "dropped"),
    "send_errors": ("tx", "errors"),
    "send_drops": ("tx", "dropped"),
}
"""Of `ip -s link`."""

_FIRMWARE: Mapping[str, str] = {
    "firmware_link_downs": "link_down_count",
    "firmware_link_recoveries": "link_recovery_count",
}
"""Of `mlxlink -c`."""

NAMES: tuple[str, ...] = (*ROCE, *PAUSES, *LINK, *_FIRMWARE, "carrier_changes", *_ERRORS)
"""All common names."""

_WRAPS = CounterKind()
_SHORT = CounterKind(bits=32)
_OF_FIRMWARE = CounterKind(bits=32, registers=(8,))
"""mlxlink prints fields of 32 bits, older versions those of PortCounters, which stay at 255."""

_IRDMA_SHORT = frozenset(("cnpHandled", "cnpIgnored", "cnpSent"))
"""32 bits wide in the second generation (irdma/hw.c)."""


@dataclass(frozen=True, slots=True)
class Count:
    """A counter's value, and how it behaves."""

    value: int
    kind: CounterKind


@dataclass(frozen=True, slots=True)
class TrafficCounts:
    """One reading of a port's counters by common name; implements `PortCounts`."""

    counts: Mapping[str, Count]

    def __bool__(self) -> bool:
        """Whether there is a counter."""
        return bool(self.counts)

    def since(self, before: "TrafficCounts") -> dict[str, CountGrowth]:
        """Return what was counted since an earlier reading, of the counters that both have."""
        return {
            name: growth(before.counts[name], count)
            for name, count in self.counts.items()
            if name in before.counts
        }


def read_counters(nic: Nic, netdev: str, rdma: str | None) -> TrafficCounts:
    """Read a port's counters by common name; what a tool or driver does not have is left out.

    No module is asked.
    """
    found: dict[str, Count] = {}
    device = _read(nic.device, netdev)
    if device is not None:
        sides = {"rx": device.rx, "tx": device.tx}
        for name, (side, error) in _ERRORS.items():
            if error in sides[side]:
                found[name] = Count(sides[side][error], _WRAPS)
        if device.carrier_changes is not None:
            found["carrier_changes"] = Count(device.carrier_changes, _SHORT)
    of_driver = _read(nic.counters, netdev) or {}
    for name, pattern in PAUSES.items():
        values = [value for each, value in of_driver.items() if pattern.fullmatch(each)]
        if values:
            found[name] = Count(sum(values), _WRAPS)
    port = _read(nic.infiniband, rdma) if rdma is not None else None
    if port is not None:
        for name, names in ROCE.items():
            present = next((each for each in names if each in port.hw_counters), None)
            if present is not None:
                kind = _SHORT if present in _IRDMA_SHORT else _WRAPS
                found[name] = Count(port.hw_counters[present], kind)
        for name, file in LINK.items():
            kind = infiniband_kind(file) or _WRAPS
            if file in port.counters:
                found[name] = Count(port.counters[file], kind)
    return TrafficCounts(found)


def read_firmware_counters(nic: Nic, rdma: str) -> TrafficCounts:
    """Read the counters of a link by its NIC's firmware; none where its tool has none."""
    report = _read(nic.link_counters, rdma)
    errors = None if report is None else report.errors
    values = {name: getattr(errors, attribute, None) for name, attribute in _FIRMWARE.items()}
    return TrafficCounts(
        {name: Count(value, _OF_FIRMWARE) for name, value in values.items() if value is not None}
    )


def growth(before: Count, after: Count) -> CountGrowth:
    """Return what a counter has counted between two readings."""
    found = delta(before.value, after.value, after.kind)
    if isinstance(found, Unknown):
        return CountGrowth(found.at_least, None, found.explanation)
    return CountGrowth(found, found, None)


def _read(read: Callable[[str], Reading[T]], name: str) -> T | None:
    try:
        return read(name).value
    except LightrigError:
        return None
