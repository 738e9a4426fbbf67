"""Swap blocks of bytes with one other server over TCP, once; it is sent to a server.

It needs Python 3.8 or newer on Linux and no Lightrig. Arguments: `listen` or `connect`, the address
and port at which one listens and the other connects, and the block in hex. Prints the block of the
other in hex. Both send at the same time.
"""

from __future__ import annotations

import socket
import sys
import time

LIMIT_S = 20.0
_AGAIN_S = 0.01


def connected(role: str, address: tuple[str, int]) -> socket.socket:
    """Return a connection with the other; it may come later than this one."""
    if role == "listen":
        with socket.create_server(address) as listening:
            listening.settimeout(LIMIT_S)
            return listening.accept()[0]
    ends = time.monotonic() + LIMIT_S
    while True:
        try:
            return socket.create_connection(address, LIMIT_S)
        except ConnectionRefusedError:
            if time.monotonic() > ends:
                raise
            time.sleep(_AGAIN_S)


def main() -> int:
    """Run the program; returns the exit status."""
    role, address, port, block = sys.argv[1:]
    with connected(role, (address, int(port))) as connection:
        connection.settimeout(LIMIT_S)
        connection.sendall(bytes.fromhex(block))
        connection.shutdown(socket.SHUT_WR)
        found = b""
        while part := connection.recv(1 << 16):
            found += part
    sys.stdout.write(found.hex())
    return 0


if __name__ == "__main__":
    sys.exit(main())
