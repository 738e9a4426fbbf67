"""An NTP server whose clock runs fast or slow, for the clocks of the virtual lab's servers.

Source: RFC 5905, sections 6, 7.3 and 8.
"""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

HOST = "127.0.0.1"
"""Where the machines' own network finds this machine's loopback, as 10.0.2.2."""

PACKET = struct.Struct("!BBbbII4sQQQQ")
_FROM_1900 = 2_208_988_800
_NO_LEAP_VERSION_4_SERVER, _STRATUM, _PRECISION = 0b00_100_100, 1, -20
_ENDS_SECONDS = 0.2


def timestamp(ns: int) -> int:
    """Return a time since 1970 in ns as NTP has it, in 2^-32 s since 1900."""
    return ((ns + _FROM_1900 * 10**9) << 32) // 10**9 & (1 << 64) - 1


def reply(request: bytes, received_ns: int, sent_ns: int) -> bytes:
    """Return the answer to a client's packet, by the server's clock."""
    poll, asked_at = PACKET.unpack(request[: PACKET.size])[2::8]
    return PACKET.pack(
        *(_NO_LEAP_VERSION_4_SERVER, _STRATUM, poll, _PRECISION, 0, 1, b"LAB\0"),
        *(timestamp(received_ns), asked_at, timestamp(received_ns), timestamp(sent_ns)),
    )


def clock(ppm: float, now_ns: Callable[[], int] = time.monotonic_ns) -> Callable[[], int]:
    """Return a clock in ns since 1970, right now and fast by `ppm`."""
    began, right = now_ns(), time.time_ns()
    return lambda: right + round((now_ns() - began) * (1 + ppm * 1e-6))


@contextlib.contextmanager
def serving(ppm: float) -> Iterator[int]:
    """Answer clients of a server that is fast by `ppm`, within the block; yields its port."""
    now, over = clock(ppm), threading.Event()
    with socket.socket(type=socket.SOCK_DGRAM) as server:
        server.bind((HOST, 0))
        server.settimeout(_ENDS_SECONDS)

        def answer() -> None:
            while not over.is_set():
                with contextlib.suppress(TimeoutError):
                    request, client = server.recvfrom(512)
                    received = now()
                    if len(request) >= PACKET.size:
                        server.sendto(reply(request, received, now()), client)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield int(server.getsockname()[1])
        finally:
            over.set()
            thread.join()
