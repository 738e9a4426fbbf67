"""The clock of a server, by which its programs stamp what they observe."""

from __future__ import annotations

import ctypes
import time
from typing import Any

__all__ = ["boot_id", "kernel_status", "now", "slewed"]

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


class _Timex(ctypes.Structure):
    """Beginning of the kernel's `struct timex`, and space for the rest of it."""

    _fields_ = [
        ("modes", ctypes.c_uint),  # 0: read, which takes no privilege
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    ]


_UNSYNCHRONISED = 0x0040  # STA_UNSYNC of linux/timex.h


def kernel_status() -> dict[str, Any] | None:
    """Return how the kernel disciplines this server's clocks (adjtimex); None where it cannot tell.

    synchronised: whether NTP or PTP has set the state so. frequency_ppm: the correction of the
    rate. estimated_error_ns, maximum_error_ns: of CLOCK_REALTIME, by the daemon's own account.
    """
    found = _Timex()
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.byref(found))
    except (OSError, AttributeError):
        return None
    if state < 0:
        return None
    return {
        "synchronised": not found.status & _UNSYNCHRONISED,
        "frequency_ppm": found.freq / 65536,
        "estimated_error_ns": found.esterror * 1_000,
        "maximum_error_ns": found.maxerror * 1_000,
    }


def boot_id() -> str:
    """Return what tells this boot of this machine from all others; empty where unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
