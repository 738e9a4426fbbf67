"""Recognition of the tool whose output a text is, by what that tool alone prints."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

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
from lightrig.instruments.servers.tools.output import ToolOutputError, without_colours

_JSON = re.compile(r"\s*(\{(?!')|\[\s*[{\]])")
"""Start of JSON; a bracket alone may be a launcher's prefix."""


class Recognized(NamedTuple):
    """The tool of an output, and what its parser read."""

    tool: str
    value: Any


@dataclass(frozen=True, slots=True)
class _Reader:
    """A tool: a pattern that its text has, keys that its JSON has, and its parser."""

    tool: str
    text: str
    keys: tuple[str, ...]
    parse: Callable[[str], Any]

    def claims(self, text: str) -> bool:
        """Whether the output may be of this tool."""
        if _JSON.match(text):
            return bool(self.keys) and all(re.search(rf'"{k}"\s*:', text) for k in self.keys)
        return re.search(self.text, text, re.MULTILINE) is not None


_READERS = (
    _Reader(
        "mlxlink", r"^(Operational Info|Test Mode Info)\s*$", ("result", "status"), mlxlink.parse
    ),
    _Reader("ethtool --show-fec", r"^FEC parameters for ", ("active", "config"), ethtool_fec.parse),
    _Reader("ethtool -S", r"^NIC statistics:", (), ethtool_counters.parse),
    _Reader("ethtool", r"^Settings for ", (), ethtool_link.parse),
    _Reader("nccl-tests", r"#\s+size\s+count\s", ("average_bus_bandwidth",), nccl_tests.parse),
    _Reader("OSU micro-benchmarks", r"# OSU ", (), osu.parse),
    _Reader("perftest", r"^\s*#bytes\s", ("test_info", "results"), perftest.parse),
    _Reader(
        "rdma link", r"^(link |\d+/\d+: )\S+/\d+:? ", ("physical_state", "state"), rdma_link.parse
    ),
    _Reader("ip link", r"^\d+: \S+: <", ("ifindex", "flags"), ip_link.parse),
    _Reader(iperf3.TOOL, r"(?!)", ("start", "version", "end"), iperf3.parse),
    _Reader("/sys/class/infiniband", r"^\S*\w\d/ports/\d+/", (), infiniband_sysfs.parse),
    _Reader(sonic_eeprom.TOOL, r"^\s*Ethernet\d+: SFP EEPROM ", (), sonic_eeprom.parse),
    _Reader(sonic_optics.TABLE, r"^\s*Ethernet\d+:\s*$", (), sonic_optics.parse_table),
    _Reader(sonic_optics.DATABASE, r"^\{'\w+': '", (), sonic_optics.parse_database),
    _Reader(
        "ethtool -m",
        r"^\s*(Identifier|Vendor PN|Module temperature|Laser [a-z]+ [a-z]+ \(Channel \d+\))\s*:",
        ("identifier",),
        ethtool_module.parse,
    ),
)


def read(text: str) -> Recognized:
    """Return the tool whose output `text` is, and what is read from it.

    Raises:
        ToolOutputError: it is of no tool that is known, of several, or cannot be parsed with
            certainty; then the error is that of the tool's parser.
    """
    plain = without_colours(text)
    claiming = [reader for reader in _READERS if reader.claims(plain)]
    if not claiming:
        known = ", ".join(reader.tool for reader in _READERS)
        raise ToolOutputError("this file", f"the output of one of: {known}", text.strip()[:80])
    found: list[Recognized] = []
    failures: list[ToolOutputError] = []
    for reader in claiming:
        try:
            found.append(Recognized(reader.tool, reader.parse(text)))
        except ToolOutputError as error:
            failures.append(error)
    if len(found) > 1:
        tools = " and ".join(each.tool for each in found)
        raise ToolOutputError("this file", "the output of one tool", f"that of {tools}")
    if not found:
        raise failures[0]
    return found[0]
