"""Program that reads one entry of the kernel's neighbour table again and again, until stdin ends.

`neighbour_entries NETDEV ADDRESS` prints a line each time that the entry of an IPv4 address has
changed: when it was last read as before, when it was first read so (ns of CLOCK_MONOTONIC), its
state (NUD_ of linux/neighbour.h, 0 where there is no entry), and how many queries have been sent
since it began to be resolved or probed, with the `ucast_solicit` that a broadcast counts from.
It is run as a file of its own and imports nothing of ours.
"""

import select
import socket
import struct
import sys
import time

_PERIOD_S = 0.002
_ERROR, _NEW, _GET, _REQUEST = 2, 28, 30, 1
_DESTINATION, _PROBES = 1, 4
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_ENTRY = struct.Struct("=BxxxiHBB")  # struct ndmsg
_ATTRIBUTE = struct.Struct("=HH")  # struct nlattr


def parsed(reply: bytes) -> tuple[int, int]:
    """Return state and queries of the entry in the kernel's reply; zeros where there is none."""
    _, kind, *_ = _HEADER.unpack_from(reply)
    if kind == _ERROR:
        return 0, 0
    assert kind == _NEW, kind
    _, _, state, _, _ = _ENTRY.unpack_from(reply, _HEADER.size)
    at = _HEADER.size + _ENTRY.size
    while at < len(reply):
        length, attribute = _ATTRIBUTE.unpack_from(reply, at)
        if attribute == _PROBES:
            return state, int(struct.unpack_from("=I", reply, at + _ATTRIBUTE.size)[0])
        at += -(-length // 4) * 4
    return state, 0


def print_changes() -> None:
    """Print the changes."""
    index, address = socket.if_nametoindex(sys.argv[1]), socket.inet_aton(sys.argv[2])
    body = _ENTRY.pack(socket.AF_INET, index, 0, 0, 0) + _ATTRIBUTE.pack(8, _DESTINATION) + address
    request = _HEADER.pack(_HEADER.size + len(body), _GET, _REQUEST, 1, 0) + body
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        last, unchanged = None, time.monotonic_ns()
        while not select.select([0], [], [], _PERIOD_S)[0]:
            began = time.monotonic_ns()
            kernel.send(request)
            found = parsed(kernel.recv(8192))
            if found != last:
                print(unchanged, time.monotonic_ns(), *found, flush=True)
            last, unchanged = found, began


if __name__ == "__main__":
    print_changes()
