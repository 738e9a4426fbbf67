"""Bytes that a server has sent over TCP and that have not been acknowledged.

Source: proc_pid_net(5), /proc/net/tcp; `tx_queue` of a connection counts from the oldest byte that
was not acknowledged to the newest that was written.
"""

from collections.abc import Collection
from ipaddress import IPv4Address

from lightrig.instruments.servers.host.commands import Commands, ToolFailedError

_COMMAND = ["cat", "/proc/net/tcp"]
_LISTENS = "0A"


def unacknowledged(commands: Commands, addresses: Collection[str]) -> int:
    """Return the bytes of all connections from `addresses` that wait for an acknowledgement.

    Raises `ToolFailedError` where the server's kernel does not show them.
    """
    result = commands.run(_COMMAND)
    if result.status != 0:
        raise ToolFailedError(commands.server, result, " ".join(_COMMAND))
    return queued(result.stdout, addresses)


def queued(table: str, addresses: Collection[str]) -> int:
    """Return the sum of `tx_queue` of the connections from `addresses` in /proc/net/tcp's text."""
    # The kernel prints an address as one number in the machine's order: least byte first.
    packed = {IPv4Address(address).packed[::-1].hex().upper() for address in addresses}
    waiting = 0
    for line in table.splitlines()[1:]:
        _, local, _, state, queues, *_ = line.split()
        if local.partition(":")[0] in packed and state != _LISTENS:
            waiting += int(queues.partition(":")[0], 16)
    return waiting
