"""Outputs of real tools, and the parser of each."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightrig.instruments.jobs.tools import iperf3, nccl_tests, osu, perftest
from lightrig.instruments.servers.tools import (
    ethtool_counters,
    ethtool_fec,
    ethtool_link,
    ethtool_module,
    infiniband_sysfs,
    ip_link,
    mlxlink,
    rdma_link,
    sonic_eeprom,
    sonic_optics,
)

ROOT = Path(__file__).parent / "samples"

Parser = Callable[[str], Any]

PARSERS: dict[str, Parser] = {
    "ethtool/jc_settings": ethtool_link.parse,
    "ethtool/jc_module": ethtool_module.parse,
    "rdma/gpud_sysfs": infiniband_sysfs.parse,
    "nccl-tests/": nccl_tests.parse,
    "perftest/": perftest.parse,
    "osu/": osu.parse,
    "iproute2/": ip_link.parse,
    "synthetic/ethtool_module": ethtool_module.parse,
    "synthetic/ethtool_fec": ethtool_fec.parse,
    "synthetic/ethtool_statistics": ethtool_counters.parse,
    "synthetic/mlxlink": mlxlink.parse,
    "synthetic/iperf3": iperf3.parse,
    "synthetic/rdma": rdma_link.parse,
    "synthetic/perftest": perftest.parse,
    "synthetic/nccl": nccl_tests.parse,
    "synthetic/sonic_eeprom": sonic_eeprom.parse,
    "synthetic/sonic_transceiver_pm": sonic_optics.parse_table,
    "synthetic/sonic_vdm": sonic_optics.parse_database,
}
"""By the beginning of a sample's path, what reads it."""


def sample(name: str) -> str:
    return (ROOT / name).read_text()


def names(beginning: str = "") -> list[str]:
    """All samples whose path begins so."""
    found = (path.relative_to(ROOT).as_posix() for path in ROOT.glob("*/*"))
    return sorted(name for name in found if name.startswith(beginning))


def parser_of(name: str) -> Parser:
    """The parser of a sample; every sample has one."""
    (parser,) = (parser for beginning, parser in PARSERS.items() if name.startswith(beginning))
    return parser


def read(name: str) -> Any:
    return parser_of(name)(sample(name))
