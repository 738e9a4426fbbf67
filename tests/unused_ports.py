"""Ports of loopback that stay unused until the test listens there, or to the end if it does not.

The kernel gives no connection a port below its local range, so that no test that runs beside
this one, nor a program of the machine, takes one by chance between the choice and the use.
"""

import contextlib
import os
import socket
from itertools import count
from pathlib import Path

LOWEST = 15_000
LOCAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")

_attempts = count(os.getpid() * 101)


def unused_ports(number: int = 1) -> range:
    """`number` ports in a row on which nothing listens; other calls are given other ones."""
    blocks = (int(LOCAL_RANGE.read_text().split()[0]) - LOWEST) // number
    for _ in range(blocks):
        first = LOWEST + next(_attempts) % blocks * number
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + number):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return range(first, first + number)
    raise OSError(f"no {number} ports in a row are unused on loopback")
