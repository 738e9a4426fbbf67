"""Priority flow control of a port (IEEE 802.1Qbb): `dcb pfc show dev IF`, `mlnx_qos -i IF`.

dcb is of iproute2 (dcb-pfc(8)); mlnx_qos of NVIDIA's drivers, which may keep the NIC's settings to
its firmware, so that dcb is refused.
"""

import re

from lightrig.instruments.servers.tools.output import ToolOutputError

DCB, MLNX_QOS = "dcb pfc show", "mlnx_qos"

_MAP = re.compile(r"prio-pfc((?: [0-7]:(?:on|off)){8})")
_ENABLED = re.compile(
    r"^PFC configuration:\s*\n\s*priority:?((?:\s+\d){8})\s*\n\s*enabled:?((?:\s+[01]){8})\s*$",
    re.MULTILINE,
)


def parse_dcb(text: str) -> tuple[int, ...]:
    """Return the priorities with flow control; raises `ToolOutputError` for another output."""
    found = _MAP.findall(text)
    if len(found) != 1:
        raise ToolOutputError(DCB, "one line `prio-pfc 0:on|off ... 7:on|off`", text)
    states = dict(each.split(":") for each in found[0].split())
    if len(states) != 8:
        raise ToolOutputError(DCB, "each priority once", found[0])
    return tuple(sorted(int(priority) for priority, state in states.items() if state == "on"))


def parse_mlnx_qos(text: str) -> tuple[int, ...]:
    """Return the priorities with flow control; raises `ToolOutputError` for another output."""
    found = _ENABLED.findall(text)
    if len(found) != 1 or len(set(found[0][0].split())) != 8:
        raise ToolOutputError(MLNX_QOS, "one table `PFC configuration:` of 8 priorities", text)
    priorities, enabled = (each.split() for each in found[0])
    pairs = zip(priorities, enabled, strict=True)
    return tuple(sorted(int(priority) for priority, state in pairs if state == "1"))
