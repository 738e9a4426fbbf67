"""Recognition of the tool whose output a text is, by what that tool alone prints."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from lightrig.instruments.servers.tools import (
    ethtool_counters,
    ethtool_driver,
    ethtool_fec,
    ethtool_link,
    ethtool_module,
    ethtool_pause,
    infiniband_sysfs,
    ip_link,
    mlxlink,
    pfc,
    rdma_link,
    sonic_eeprom,
    sonic_optics,
)
from lightrig.instruments.servers.tools.output import (
    ToolOutputError,
    ToolReportedError,
    without_colours,
)
from lightrig.packs import load_all

_JSON = re.compile(r"\s*(\{(?!')|\[\s*[{\]])")
"""Start of JSON; a bracket alone may be a launcher's prefix."""


class Recognized(NamedTuple):
    """The tool of an output, and what its parser read."""

    tool: str
    value: Any


@dataclass(frozen=True, slots=True)
class Reader:
    """A tool: a pattern that its text has, keys that its JSON has, and its parser."""

    tool: str
    text: str
    keys: tuple[str, ...]
    parse: Callable[[str], Any]

    def claims(self, text: str) -> bool:
        """Whether the output may be of this tool."""
        if _JSON.match(text):
            return bool(self.keys) and all(
                re.search(rf'(?<!\w)"?{k}"?\s*:', text) for k in self.keys
            )
        return re.search(self.text, text, re.MULTILINE) is not None


_CORE = (
    Reader(
        "mlxlink", r"^(Operational Info|Test Mode Info)\s*$", ("result", "status"), mlxlink.parse
    ),
    Reader("ethtool --show-fec", r"^FEC parameters for ", ("active", "config"), ethtool_fec.parse),
    Reader("ethtool -S", r"^NIC statistics:", (), ethtool_counters.parse),
    Reader("ethtool -i", r"^driver: \S+\nversion: ", (), ethtool_driver.parse),
    Reader("ethtool -a", r"^Pause parameters for ", (), ethtool_pause.parse),
    Reader(pfc.DCB, r"^prio-pfc 0:", (), pfc.parse_dcb),
    Reader(pfc.MLNX_QOS, r"^PFC configuration:", (), pfc.parse_mlnx_qos),
    Reader("ethtool", r"^Settings for ", (), ethtool_link.parse),
    Reader(
        "rdma link", r"^(link |\d+/\d+: )\S+/\d+:? ", ("physical_state", "state"), rdma_link.parse
    ),
    Reader("ip link", r"^\d+: \S+: <", ("ifindex", "flags"), ip_link.parse),
    Reader("/sys/class/infiniband", r"^\S*\w\d/ports/\d+/", (), infiniband_sysfs.parse),
    Reader(sonic_eeprom.TOOL, r"^\s*\w[\w/().-]*: SFP EEPROM ", (), sonic_eeprom.parse),
    Reader(sonic_optics.TABLE, r"^\s*Ethernet\d+:\s*$", (), sonic_optics.parse_table),
    Reader(sonic_optics.DATABASE, r"^\{'\w+': '", (), sonic_optics.parse_database),
    Reader(
        "ethtool -m",
        r"^\s*(Identifier|Vendor PN|Module temperature|Laser [a-z]+ [a-z]+ \(Channel \d+\))\s*:",
        ("identifier",),
        ethtool_module.parse,
    ),
)


_UNREAD: tuple[tuple[str, str], ...] = (
    ("ibstat", r"^CA '\S+'\s*$"),
    ("ibv_devinfo", r"^hca_id:\s"),
    ("ibstatus", r"^Infiniband device '\S+' port \d+ status:"),
    ("ibv_devinfo", r"^\d+ HCAs? found:"),
    ("ibv_devices", r"^\s*device\s+node GUID\s*$"),
    ("ibdev2netdev", r"^\S+ port \d+ ==> \S+ \((?:Up|Down)\)"),
    ("rdma statistic", r"^link \S+/\d+(?: \w+ \d+){2,}\s*$"),
    ("rdma statistic", r'"ifname"\s*:\s*"[^"]+"\s*,\s*"port"\s*:\s*\d+\s*,\s*"\w+"\s*:\s*\d'),
    ("rdma dev", r'^\d+: \S+: node_type |"node_type"\s*:'),
    ("rdma resource", r"^\d+: \S+: (?:pd|cq|qp) \d+ |^link \S+ lqpn |\"(?:qp|lqpn)\"\s*:\s*\d"),
    ("rdma system", r"^netns (?:shared|exclusive)\b"),
    ("tc qdisc", r"^qdisc \S+ "),
    ("chronyc tracking", r"^Reference ID +: "),
    ("ethtool -T", r"^Time stamping parameters for "),
    ("ethtool --show-module", r"^Module parameters for "),
    ("ethtool -k", r'^Features for |"rx-checksumming"\s*:'),
    ("ethtool -g", r"^Ring parameters for "),
    ("ethtool -l", r"^Channel parameters for "),
    ("ethtool -c", r"^Coalesce parameters for "),
    ("ethtool -P", r"^Permanent address: "),
    ("ethtool -x", r"^RX flow hash indirection table for "),
    ("ip -brief", r"^\S+ +(?:UP|DOWN|UNKNOWN) +\S"),
    ("ip route", r'^(?:default|[\d.]+/\d+) (?:via \S+ )?dev \S+ |"dst"\s*:\s*"[^"]*"\s*,\s*"\w+"'),
    ("ip neigh", r"^\S+ dev \S+ (?:lladdr \S+ .*|FAILED|INCOMPLETE)\s*$"),
    ("ip rule", r"^\d+:\tfrom "),
)
"""Tools that no measurement uses, so that nothing reads them, and what each alone prints."""

_FAILED = re.compile(
    r"^(?:netlink error: .*|Cannot get .*|.*: (?:command )?not found|no stats available"
    r"|Device \"\S+\" does not exist\.|\S+: bad command line argument\(s\)"
    r"|Wrong device name|ibpanic: .*| ?IB device \S+ (?:wasn't|not) found"
    r"|Couldn't (?:connect to \S+|allocate MR))$",
    re.MULTILINE,
)


class NoReaderError(ToolOutputError):
    """The output of a tool that nothing reads, since no measurement uses it; `tool` is named."""

    def __init__(
        self, tool: str, expected: str = "", found: object = "", *, where: str = ""
    ) -> None:
        super().__init__(tool, expected, found, where=where)
        self.args = (f"this is what {tool} prints, which no measurement uses and nothing reads",)


def readers() -> tuple[Reader, ...]:
    """Return the readers of all tools that are known here: the core's, then those of packs."""
    return (*_CORE, *chain.from_iterable(found for _, found in load_all("readers")))


def read(text: str) -> Recognized:
    """Return the tool whose output `text` is, and what is read from it.

    Raises:
        NoReaderError: it is of a tool that no measurement uses.
        ToolReportedError: it is the error of a tool.
        ToolOutputError: it is of no tool that is known, of several, or cannot be parsed with
            certainty; then the error is that of the tool's parser.
    """
    plain = without_colours(text)
    for tool, pattern in _UNREAD:
        if re.search(pattern, plain, re.MULTILINE):
            raise NoReaderError(tool)
    claiming = [reader for reader in readers() if reader.claims(plain)]
    if not claiming and (failed := _FAILED.search(plain)):
        raise ToolReportedError("the tool that printed this", "", failed[0])
    if not claiming:
        known = ", ".join(reader.tool for reader in readers())
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
