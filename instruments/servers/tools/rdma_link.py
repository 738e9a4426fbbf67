"""`rdma link`: the state of every RDMA device's ports, as text or JSON (`rdma -j link`).

Text is one port a line: `link DEV/PORT`, then tokens in pairs; further lines, such as
capabilities, are indented. The iproute2 of MLNX_OFED prints `link DEV/PORT:`, and an older one
`INDEX/PORT: DEV/PORT:` instead. Source: iproute2, rdma/link.c, and samples of each form.
"""

import re
from dataclasses import dataclass

from lightrig.instruments.servers.tools.output import (
    ToolOutputError,
    field,
    is_json,
    load,
    optional,
    whole,
)

TOOL = "rdma link"

STATES = frozenset({"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER", "UNKNOWN"})
PHYSICAL_STATES = frozenset(
    {"NOP", "SLEEP", "POLLING", "DISABLED", "ARMED", "LINK_UP", "LINK_ERROR_RECOVER"}
    | {"PORT_CONFIGURATION_TRAINING", "PHY_TEST", "UNKNOWN", "OPA_OFFLINE", "OPA_TEST"}
)
_OLDER = re.compile(r"\d+/(\d+): (\S+/(\d+)):")
_KEYS = frozenset(
    {"subnet_prefix", "lid", "sm_lid", "lmc", "state", "physical_state", "netdev", "netdev_index"}
)


@dataclass(frozen=True, slots=True)
class RdmaLink:
    """One port of an RDMA device; `netdev` is None on InfiniBand without an interface."""

    device: str
    port: int
    state: str
    physical_state: str
    netdev: str | None
    lid: int | None = None

    @property
    def up(self) -> bool:
        """Whether operations can pass."""
        return self.state == "ACTIVE"


def parse(text: str) -> tuple[RdmaLink, ...]:
    """Parse the output of `rdma [-j] link`; nothing at all means that there is no device.

    Raises:
        ToolOutputError: it is something else, or a state is none of those that exist.
    """
    if is_json(text):
        return _of_json(text)
    links: list[RdmaLink] = []
    for line in text.splitlines():
        if line[:1] > " " or _OLDER.match(line.lstrip()):
            links.append(_of_line(line))
        elif line.strip() and not links:
            raise ToolOutputError(TOOL, "`link DEV/PORT ...` before what is indented", line)
    return tuple(links)


def _of_line(line: str) -> RdmaLink:
    tokens = line.split()
    if (older := _OLDER.match(line.lstrip())) and older[1] == older[3]:
        tokens = ["link", older[2], *tokens[2:]]
    elif len(tokens) > 1:
        tokens[1] = tokens[1].removesuffix(":")
    pairs = dict(zip(tokens[2::2], tokens[3::2], strict=False))
    if tokens[0] != "link" or len(tokens) % 2 or 2 * len(pairs) != len(tokens) - 2:
        raise ToolOutputError(TOOL, "`link DEV/PORT`, then tokens in pairs", line)
    if not pairs.keys() <= _KEYS:
        raise ToolOutputError(TOOL, f"pairs of {', '.join(sorted(_KEYS))}", line)
    device, _, port = tokens[1].rpartition("/")
    try:
        return _checked(
            device,
            whole(port),
            pairs.get("state", ""),
            pairs.get("physical_state", ""),
            pairs.get("netdev"),
            whole(pairs["lid"]) if "lid" in pairs else None,
        )
    except ValueError as error:
        raise ToolOutputError(TOOL, str(error), line) from error


def _of_json(text: str) -> tuple[RdmaLink, ...]:
    document = load(TOOL, text)
    if not isinstance(document, list):
        raise ToolOutputError(TOOL, "a list of ports", type(document).__name__)
    try:
        return tuple(
            _checked(
                field(TOOL, port, "ifname", str),
                field(TOOL, port, "port", int),
                field(TOOL, port, "state", str),
                field(TOOL, port, "physical_state", str),
                optional(TOOL, port, "netdev", str),
                optional(TOOL, port, "lid", int),
            )
            for port in document
        )
    except ValueError as error:
        raise ToolOutputError(TOOL, str(error)) from error


def _checked(
    device: str, port: int, state: str, physical: str, netdev: str | None, lid: int | None
) -> RdmaLink:
    if not device or port < 0:
        raise ValueError("a device and its port")
    if state not in STATES:
        raise ValueError(f"one of the states {', '.join(sorted(STATES))}, not {state!r}")
    if physical not in PHYSICAL_STATES:
        raise ValueError(f"a known physical state, not {physical!r}")
    return RdmaLink(device, port, state, physical, netdev, lid)
