"""The rate of the processor's counter, which an emulated machine reads as its own.

Its kernel measures that as it boots: on a busy machine it was seen to take 776 for 2,596 MHz, and
its clock then ran three times too fast.
"""

import ctypes
import mmap
import platform
import time
from collections.abc import Callable

_RDTSC = b"\x0f\x31\x48\xc1\xe2\x20\x48\x09\xd0\xc3"
"""rdtsc; shl rdx, 32; or rax, rdx; ret: Intel's manual, volume 2, RDTSC."""


def counter_khz(seconds: float = 1.0) -> int | None:
    """Measure the counter of an x86 processor for that time, in kHz; None on any other."""
    if platform.machine() != "x86_64":
        return None
    executable = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
    with mmap.mmap(-1, mmap.PAGESIZE, prot=executable) as page:
        page.write(_RDTSC)
        code = (ctypes.c_char * len(_RDTSC)).from_buffer(page)
        read = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(code))
        try:
            since, first = _reading(read)
            time.sleep(seconds)
            until, last = _reading(read)
        finally:
            del read, code  # else the page could not be given back
    return round((last - first) / (until - since) * 1e6)


def _reading(read: Callable[[], int]) -> tuple[int, int]:
    """Return a moment in ns and the counter then: the closest of some pairs of readings."""
    found = []
    for _ in range(20):
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        counter = read()
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        found.append((after - before, (before + after) // 2, counter))
    _, at, counter = min(found)
    return at, counter
