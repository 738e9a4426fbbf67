"""Outputs of tools that users have published, against values that were read by eye.

Selection, made before any of them was parsed: public GitHub threads found with one search per
tool (its name and words that it alone prints), in the order found; of each thread at most two
outputs that show a value; none that this project's tests or samples had used before. Not taken:
rows without their header, placeholders, documents whose author cut out the middle. Threads state no
licence, so each output is typed anew as an excerpt of its facts, with the lines in their order:
serial numbers and lines that repeat the kind of one before are left out, emphasis of Markdown is
removed, and an output that the thread's record cuts off ends with its last entire line or section.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from lightrig.instruments.servers.tools.output import ToolOutputError
from lightrig.instruments.servers.tools.recognition import read

FILE = Path(__file__).with_name("public_outputs.txt")
G = 10**9
MEBIBYTE_PER_S = 8 * 2**20
UP = {"BROADCAST", "MULTICAST", "UP", "LOWER_UP"}

EXPECTED: dict[str, dict[str, Any]] = {
    "lldpd": {"identifier": 0x11, "form": "QSFP28", "wavelength_nm": 850, "vendor": "FS"},
    "netdata_module": {"identifier": 3, "form": "SFP", "wavelength_nm": 1270, "vendor": "FS"},
    "openwrt_module": {"wavelength_nm": 1550, "vendor": "FS", "part": "SFP-GE-BX", "lanes": ()},
    "corundum": {"form": "SFP", "wavelength_nm": 850, "vendor": "FINISAR CORP.", "part": None},
    "beszel": {
        "temperature_c": 57.09,
        "thresholds.temperature.high_alarm": 80,
        "thresholds.temperature.low_alarm": -10,
        "thresholds.temperature.high_warning": 70,
        "thresholds.temperature.low_warning": 0,
        "alarms": frozenset(),
        "alarms_reported": True,
    },
    "nixpkgs": {"form": "SFP", "wavelength_nm": 1310, "vendor": None, "temperature_c": None},
    "rtlplayground": {"wavelength_nm": 1310, "vendor": "Hisense", "part": "LTF1303-BH+"},
    "vyos_module": {"identifier": 3, "form": "SFP", "vendor": None, "lanes": ()},
    "dklog": {
        "netdev": "eth0",
        "speed_bps": G,
        "duplex": "full",
        "port": "Twisted Pair",
        "auto_negotiation": True,
        "detected": True,
    },
    "r8152": {"netdev": "eth2", "speed_bps": G, "duplex": "full", "port": "MII"},
    "xdpd": {
        "netdev": "eth14",
        "speed_bps": G,
        "port": "FIBRE",
        "auto_negotiation": True,
        "modes": ("1000baseT/Full",),
        "detected": True,
    },
    "istoreos": {"speed_bps": G // 10, "port": "Twisted Pair", "detected": True},
    "openwrt_lan2": {"netdev": "lan2", "speed_bps": G, "duplex": None},
    "pyroute2": {"netdev": "enp0s31f6", "speed_bps": G, "duplex": "full", "detected": True},
    "rxe": {"netdev": "eth0", "speed_bps": G, "auto_negotiation": True, "detected": True},
    "open_nic_0": {"netdev": "enp24s0f0", "speed_bps": None, "port": None, "detected": True},
    "open_nic_1": {"netdev": "enp24s0f1", "speed_bps": None, "duplex": None, "detected": True},
    "innodisk": {"netdev": "eth1", "speed_bps": None},
    "xikestor": {
        "netdev": "lan12",
        "speed_bps": None,
        "duplex": None,
        "port": "FIBRE",
        "auto_negotiation": False,
        "detected": False,
    },
    "vyos_settings": {
        "netdev": "eth4",
        "speed_bps": 10 * G,
        "port": "Direct Attach Copper",
        "auto_negotiation": True,
        "detected": True,
    },
    "checkbox": {"netdev": "enp22s0f1", "speed_bps": None},
    "cb2": {
        "mmc_tx_octetcount_gb": 340174588,
        "mmc_rx_multicastframe_g": 3456,
        "mmc_rx_crc_error": 0,
    },
    "ethq_r8169": {"tx_packets": 0, "rx_missed": 0, "tx_underrun": 0},
    "ethq_bnx2": {
        "rx_bytes": 12532335371359,
        "tx_bytes": 48799173902667,
        "rx_64_byte_packets": 47903542,
        "rx_1523_to_9022_byte_packets": 0,
    },
    "ethq_e1000e": {"rx_packets": 567425, "tx_bytes": 31313190, "rx_smbus": 1446},
    "netdata_counters": {
        "rx_packets": 3811442771,
        "rx_bytes": 3492834274089,
        "rx_no_buffer_count": 527,
        "rx_missed_errors": 4954,
    },
    "3fs": {
        "0.device": "rxe_0",
        "0.port": 1,
        "0.state": "ACTIVE",
        "0.netdev": "p1p1",
        "0.lid": None,
        "0.up": True,
    },
    "security_onion": {
        "0.index": 6,
        "0.netdev": "eth4",
        "0.mtu": 1500,
        "0.operstate": "UP",
        "0.rx.bytes": 1361950677217,
        "0.rx.dropped": 179,
        "0.rx.missed": 1725828,
        "0.tx.bytes": 0,
        "0.carrier": True,
    },
    "iproute2": {
        "0.index": 1,
        "0.netdev": "lo",
        "0.mtu": 65536,
        "0.operstate": "UNKNOWN",
        "0.rx.bytes": 100,
        "0.rx.packets": 2,
        "0.tx.packets": 2,
    },
    "unraid_bond": {
        "0.index": 10,
        "0.netdev": "bond1",
        "0.mtu": 9000,
        "0.flags": UP | {"MASTER"},
        "0.rx.bytes": 770731719960,
        "0.rx.packets": 808429036,
        "0.rx.dropped": 185979,
        "0.tx.dropped": 1,
    },
    "unraid_lo": {"0.rx.bytes": 247490817, "0.rx.packets": 3018478, "0.tx.errors": 0},
    "k8s_gitops": {
        "0.netdev": "eth0",
        "0.rx.dropped": 890437,
        "0.tx.bytes": 5354437176,
        "0.flags": UP,
    },
    "kube_ovn": {
        "0.netdev": "lo",
        "1.netdev": "eno8303",
        "1.carrier": False,
        "1.operstate": "DOWN",
        "2.index": 9,
        "2.carrier": True,
        "2.mtu": 9000,
        "3.flags": UP | {"SLAVE"},
        "3.rx": {},
    },
    "perftest_all": {
        "0.bandwidths.0.size": 1024,
        "0.bandwidths.0.iterations": 1000,
        "0.bandwidths.0.peak_bps": None,
        "0.bandwidths.0.average_bps": 5544.28 * MEBIBYTE_PER_S,
        "0.bandwidths.0.messages_per_s": 5677340,
    },
    "perftest_one": {
        "0.bandwidths.0.average_bps": 920.13 * MEBIBYTE_PER_S,
        "0.bandwidths.0.messages_per_s": 942218,
    },
    "ucx_threads": {
        "title": "OSU MPI Multi-threaded Latency Test",
        "version": "3.6",
        "rows.0.size": 0,
        "rows.0.values.*": 2.35,
        "rows.3.size": 4,
        "rows.3.values.*": 2113.56,
        "rows.4.values.*": 1.25,
    },
    "ucx_posix": {
        "version": "7.5",
        "rows.0.size": 1,
        "rows.0.values.*": 0.94,
        "rows.2.size": 4,
        "rows.2.values.*": 0.92,
    },
    "parallelcluster": {
        "version": "5.7.1",
        "rows.0.values.MB/s": 58.09,
        "rows.0.values.Messages/s": 58086503.51,
        "rows.3.size": 8,
        "rows.3.values.Messages/s": 55344560.42,
    },
    "nccl_gather": {
        "rows.0.size": 16777216,
        "rows.0.count": 4194304,
        "rows.0.type": "bfloat16",
        "rows.0.out_of_place.time_us.value": 108.8,
        "rows.0.out_of_place.bus_gbytes.value": 77.10,
        "rows.2.in_place.algorithm_gbytes.value": 251.62,
        "rows.2.in_place.bus_gbytes.value": 125.81,
        "rows.2.in_place.wrong": 0,
    },
    "nccl_scatter": {
        "rows.0.size": 0,
        "rows.0.out_of_place.time_us.value": 5.70,
        "rows.2.size": 128,
        "rows.2.count": 4,
        "rows.2.redop": "sum",
        "rows.2.out_of_place.time_us.value": 32.31,
        "rows.3.in_place.time_us.value": 23.18,
    },
    "spectrum": {
        "link.up": True,
        "link.physical_state": "LinkUp",
        "link.rate_bps": 25 * G,
        "link.width": 1,
        "link.fec": "Firecode FEC",
        "link.auto_negotiation": "ON",
        "module": None,
    },
    "sonic_sfp": {
        "Ethernet256.form": "SFP/SFP+/SFP28",
        "Ethernet256.vendor": "FINISAR CORP.",
        "Ethernet256.part": "FTLX8571D3BCL",
        "Ethernet256.temperature_c": 21.301,
        "Ethernet256.voltage_v": 3.374,
        "Ethernet256.lanes.0.number": 1,
        "Ethernet256.lanes.0.rx_power_dbm": -1.785,
        "Ethernet256.lanes.0.tx_power_dbm": -2.857,
        "Ethernet256.lanes.0.tx_bias_ma": 7.058,
    },
    "sonic_dac": {
        "Ethernet44.vendor": "Mellanox",
        "Ethernet44.part": "MCP1600-E001",
        "Ethernet44.lanes": (),
        "Ethernet44.temperature_c": None,
    },
    "sonic_aoc": {
        "Ethernet0.form": "QSFP28 or later",
        "Ethernet0.vendor": "Mellanox",
        "Ethernet0.part": "MFA1A00-C003",
    },
    "sonic_edgecore": {"Ethernet0.vendor": "Edgecore", "Ethernet0.part": "ET7402-AOC-1M"},
    "sonic_cmis": {
        "Ethernet96.form": "QSFP+ or later with CMIS",
        "Ethernet96.vendor": "VENDOR_NAME_ABC",
    },
    "sonic_zr": {
        "Ethernet0.form": "QSFP-DD Double Density 8X Pluggable Transceiver",
        "Ethernet0.vendor": None,
    },
}
"""Values by path, as a person reads them in the output."""

REFUSED = {
    "r8152": "cut off before `Link detected`",
    "openwrt_lan2": "cut off before `Link detected`",
    "innodisk": "cut off before `Link detected`",
    "checkbox": "cut off before `Link detected`",
    "security_onion": "first line broken in two by the author's mail program",
}
"""Outputs for which an error is right as well: what they lack must not be guessed."""


def outputs() -> dict[str, str]:
    found = re.split(r"^%% (\w+) \|.*\n", FILE.read_text(), flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2], strict=True))


def at(value: Any, path: str) -> Any:
    """Return the part of `value` at a path of keys, indices and attributes; `*` is a sole value."""
    for part in path.split("."):
        if part == "*":
            (value,) = value.values()
        elif isinstance(value, Mapping):
            value = value[part]
        elif part.isdigit():
            value = value[int(part)]
        else:
            value = getattr(value, part)
    return value


def wrong(name: str) -> Iterator[str]:
    """Yield the values of an output that are read otherwise; raises `ToolOutputError`."""
    value = read(outputs()[name]).value
    for path, expected in EXPECTED[name].items():
        found = at(value, path)
        if found != (pytest.approx(expected) if isinstance(expected, float) else expected):
            yield f"{path}: {found!r}, not {expected!r}"


def test_every_output_has_expected_values_and_a_source() -> None:
    assert outputs().keys() == EXPECTED.keys()
    heads = re.findall(r"^%%.*", FILE.read_text(), re.MULTILINE)
    sources = {re.fullmatch(r"%% \w+ \| (\S+/\S+), [a-z ]+ \d+ \| .+", each)[1] for each in heads}
    assert len(heads) >= 40
    assert len(sources) >= 6


@pytest.mark.parametrize("name", EXPECTED)
def test_published_outputs_are_read_as_by_eye(name: str) -> None:
    try:
        assert list(wrong(name)) == []
    except ToolOutputError:
        if name not in REFUSED:
            raise


def test_the_final_result_is_the_one_that_the_docs_state() -> None:
    """First run: 33 right, 13 refused, 1 without its rate, 0 wrong; see docs/devices.md."""
    refused = set()
    for name, text in outputs().items():
        try:
            read(text)
        except ToolOutputError:
            refused.add(name)
    page = " ".join((Path(__file__).parents[2] / "docs" / "devices.md").read_text().split())
    assert refused == set(REFUSED)
    assert f"now {len(EXPECTED) - len(refused)} are read right, {len(refused)} are refused" in page
