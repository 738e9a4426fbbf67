"""`ethtool -S IF`: every counter of a port's driver, by the driver's own names."""

import re

from lightrig.instruments.servers.tools.output import ToolOutputError, whole

TOOL = "ethtool -S"

_HEADER = re.compile(r"(?:NIC|PHY) statistics:|Standard stats for \S+:")


def parse(text: str) -> dict[str, int]:
    """Parse the output of `ethtool -S IF`, also with `--groups`: counters by name.

    What a name means and how the counter behaves is `counters.ethtool_kind`.

    Raises:
        ToolOutputError: it is something else, or a name occurs twice, which leaves open
            which of the two is meant.
    """
    header, *lines = [line for line in text.splitlines() if line.strip()] or [""]
    if not _HEADER.fullmatch(header.strip()):
        raise ToolOutputError(TOOL, "`NIC statistics:`", header)
    counters: dict[str, int] = {}
    for line in lines:
        name, colon, value = line.rpartition(":")
        name = name.strip()
        if not colon or not name:
            raise ToolOutputError(TOOL, "`name: count`", line)
        if name in counters:
            raise ToolOutputError(TOOL, f"{name!r} once", line)
        try:
            counters[name] = whole(value.strip())
        except ValueError as error:
            raise ToolOutputError(TOOL, "`name: count`", line) from error
    return counters
