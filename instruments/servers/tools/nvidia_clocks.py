"""`nvidia-smi --query-gpu`: why the clocks of GPUs are below what they can be.

Source: NVIDIA's NVML API Reference, NvmlClocksEventReasons; drivers before 535 call them throttle
reasons. A reason is a bit; drivers add new ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from lightrig.instruments.servers.tools.gpu_clocks import GpuClocks
from lightrig.instruments.servers.tools.output import ToolOutputError

TOOL = "nvidia-smi"

FIELDS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
"""The names of the field, the newer one first."""

_LINE = re.compile(r"(\d{1,4}), (?:0x([0-9a-fA-F]{1,16})|\[[^]]+\]|N/A)", re.ASCII)

_SLOW = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake slowdown",
}
_ALLOWED = {
    0x01: "idle",
    0x02: "application clocks",
    0x04: "software power cap",
    0x10: "sync boost",
    0x100: "display clocks",
}
"""What a working GPU does, idle or at its power limit, or what somebody has set."""


def command(field: str) -> list[str]:
    """Return the command whose output `parse` reads."""
    return [TOOL, f"--query-gpu=index,{field}", "--format=csv,noheader"]


def parse(text: str) -> tuple[GpuClocks, ...]:
    """Parse the output of `command`.

    Raises:
        ToolOutputError: it is something else.
    """
    found = []
    for line in filter(None, map(str.strip, text.splitlines())):
        match = _LINE.fullmatch(line)
        if match is None:
            raise ToolOutputError(TOOL, "`INDEX, 0xREASONS`", line)
        if match[2] is None:
            found.append(GpuClocks(int(match[1]), None))
            continue
        bits = int(match[2], 16)
        slow = _names(bits, _SLOW)
        known = sum(_SLOW) | sum(_ALLOWED)
        unknown = [f"reason {bits & ~known:#x}"] if bits & ~known else []
        reasons = (*slow, *_names(bits, _ALLOWED), *unknown)
        found.append(GpuClocks(int(match[1]), reasons, tuple(slow)))
    return tuple(found)


def _names(bits: int, names: dict[int, str]) -> Sequence[str]:
    return [name for bit, name in names.items() if bits & bit]
