"""The link events of the Opus testbed: how long a NIC's port is down when circuits move."""

import re
from dataclasses import dataclass

from lightrig.harness.systems.opus.planning.operations import OpusError

_LINE = re.compile(
    r"Time: (\d\d):(\d\d):(\d\d), Device: (?P<device>\S+), Event: (?P<event>error|active)"
)


@dataclass(frozen=True, slots=True)
class PortDown:
    """A RoCE port from its error to when it was active again, by stamps of whole seconds.

    It includes whatever time the port was dark because no circuit was meant for it.
    """

    device: str
    at: int
    seconds: int


def parse_link_events(text: str) -> list[PortDown]:
    """Every time that a port was down and came back, in the order in which they came back.

    `at` counts seconds from midnight. A port that is told down twice is down since the first;
    one that the log ends without is left out. Raises `OpusError` for a line that makes no sense.
    """
    down: dict[str, int] = {}
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise OpusError(f"line {number}: found {line!r}, expected 'Time: ..., Device: ...'")
        hours, minutes, seconds = (int(match[place]) for place in (1, 2, 3))
        now, device = (hours * 60 + minutes) * 60 + seconds, match["device"]
        if match["event"] == "error":
            down.setdefault(device, now)
        elif device in down:
            since = down.pop(device)
            if now < since:
                raise OpusError(f"line {number}: {device} was active before its error")
            found.append(PortDown(device, since, now - since))
    return found
