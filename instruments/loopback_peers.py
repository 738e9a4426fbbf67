"""Accounts at the other end of loopback connections: loopback is open to all of a machine."""

import os
import socket
import sys
from pathlib import Path

_CONNECTIONS = Path("/proc/net/tcp")


def is_trusted(connection: socket.socket) -> bool:
    """Return whether the other end is a process of this account or of root.

    False, too, where the kernel lists no such process any more, or is not Linux. A socket that its
    process has closed is listed as one of root's, so what a stranger sends and closes at once would
    be taken: it has no inode any more.
    """
    return _account(connection) in {0, os.geteuid()}


def _account(connection: socket.socket) -> int | None:
    """Return the account of the socket at the other end of a connection over IPv4."""
    wanted = [_listed(connection.getpeername()), _listed(connection.getsockname())]
    try:
        lines = _CONNECTIONS.read_text().splitlines()[1:]
    except OSError:
        return None
    for line in lines:
        # Number, own address, other's, state, queues, timer, retransmits, account, timeout, inode.
        fields = line.split()
        if fields[1:3] == wanted:
            return int(fields[7]) if fields[9] != "0" else None
    return None


def _listed(address: tuple[str, int]) -> str:
    """Return an address as proc_net_tcp(5) lists it: the host's number in the machine's order."""
    number = int.from_bytes(socket.inet_aton(address[0]), sys.byteorder)
    return f"{number:08X}:{address[1]:04X}"
