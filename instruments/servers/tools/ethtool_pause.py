"""`ethtool -a IF`: flow control of a port by pause frames (IEEE 802.3, annex 31B)."""

import re
from dataclasses import dataclass

from lightrig.instruments.servers.tools.output import ToolOutputError

TOOL = "ethtool -a"

_HEADER = re.compile(r"Pause parameters for (\S+):")
_KEYS = {
    "Autonegotiate": "auto_negotiation",
    "RX": "receives",
    "TX": "sends",
    "RX negotiated": "negotiated_receives",
    "TX negotiated": "negotiated_sends",
}


@dataclass(frozen=True, slots=True)
class PauseReading:
    """A port's flow control; None for what it does not report.

    Attributes:
        auto_negotiation: whether it is negotiated with the other end.
        receives, sends: whether the port is set to pause when told, and to tell.
        negotiated_receives, negotiated_sends: likewise, as negotiation has ended.
    """

    netdev: str
    auto_negotiation: bool | None = None
    receives: bool | None = None
    sends: bool | None = None
    negotiated_receives: bool | None = None
    negotiated_sends: bool | None = None

    @property
    def active(self) -> tuple[bool | None, bool | None]:
        """Whether the port pauses when told, and whether it tells: negotiated, else as set."""
        if self.auto_negotiation and self.negotiated_receives is not None:
            return self.negotiated_receives, self.negotiated_sends
        return self.receives, self.sends


def parse(text: str) -> PauseReading:
    """Parse the output of `ethtool -a IF`.

    Raises:
        ToolOutputError: it is something else.
    """
    header, *lines = [line for line in text.splitlines() if line.strip()] or [""]
    match = _HEADER.fullmatch(header.strip())
    if match is None:
        raise ToolOutputError(TOOL, "`Pause parameters for IF:`", header)
    fields: dict[str, bool] = {}
    for line in lines:
        key, _, value = line.partition(":")
        name, state = _KEYS.get(key.strip()), value.strip()
        if name is None or name in fields or state not in ("on", "off"):
            raise ToolOutputError(TOOL, f"{', '.join(_KEYS)}, each on or off, once", line)
        fields[name] = state == "on"
    return PauseReading(match[1], **fields)
