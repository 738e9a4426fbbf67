"""The clock of a server, by which its programs stamp what they observe."""

from __future__ import annotations

import time

__all__ = ["boot_id", "now", "slewed"]

now = time.monotonic_ns
"""Time of this server, in ns of CLOCK_MONOTONIC: the clock of all stamps."""


def slewed() -> int:
    """Return by how many ns NTP has slewed this clock, from an arbitrary beginning."""
    width, found = 1 << 62, 0
    for _ in range(3):  # an interrupt between the readings would look like a slew
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        between = now()
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        if after - before < width:
            width, found = after - before, between - (before + after) // 2
    return found


def boot_id() -> str:
    """Return what tells this boot of this machine from all others; empty where unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
