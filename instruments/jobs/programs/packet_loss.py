"""The program that has a server's kernel drop a share of the packets that its ports receive.

`packet_loss PERCENT NETDEV...` adds a table of nftables with the rules, and removes it for 0; it
prints when it began and had done so, in ns of CLOCK_MONOTONIC. It runs on the server, as root, and
needs Python 3.8 or newer there and a kernel with CONFIG_NFT_NUMGEN. Each packet is dropped for
itself, by a random number of the kernel (nft(8), numgen). All changes are one transaction
(linux/netfilter/nf_tables.h, nfnetlink.h): at once, or not at all.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time

__all__ = ["main"]

_NETFILTER = 12  # NETLINK_NETFILTER
_ERROR, _BATCH_BEGIN, _BATCH_END, _NFTABLES = 2, 0x10, 0x11, 10
_NEW_TABLE, _DELETE_TABLE, _NEW_CHAIN, _NEW_RULE = 0, 2, 3, 6
_REQUEST, _ACK, _CREATE, _APPEND = 0x1, 0x4, 0x400, 0x800
_INET, _NESTED = 1, 0x8000
_TABLE, _CHAIN = b"lightrig\0", b"loss\0"
_PREROUTING, _PRIORITY, _ACCEPT, _DROP = 0, -300, 1, 0
"""Before routing, so that what the server forwards is lost too."""
_VERDICT, _REGISTER = 0, 1
_INTERFACE_NAME, _EQUAL, _LESS, _RANDOM, _TO_NETWORK = 6, 0, 2, 1, 1
_OF = 10_000
_NAME_BYTES = 16


def _attribute(kind: int, value: bytes | int) -> bytes:
    """Return a netlink attribute; numbers are of four bytes, most significant first."""
    if isinstance(value, int):
        value = struct.pack("!i", value)
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _nested(kind: int, *attributes: bytes) -> bytes:
    return _attribute(kind | _NESTED, b"".join(attributes))


def _numbered(*values: bytes | int) -> bytes:
    """Return attributes of kinds 1, 2, ..."""
    return b"".join(_attribute(kind, value) for kind, value in enumerate(values, 1))


def _expression(name: bytes, attributes: bytes) -> bytes:
    return _nested(1, _attribute(1, name + b"\0"), _nested(2, attributes))


def _compared(how: int, value: bytes) -> bytes:
    return _expression(b"cmp", _numbered(_REGISTER, how) + _nested(3, _attribute(1, value)))


def _rule(netdev: str, share: int) -> bytes:
    expressions = (
        _expression(b"meta", _numbered(_REGISTER, _INTERFACE_NAME)),
        _compared(_EQUAL, netdev.encode().ljust(_NAME_BYTES, b"\0")),
        _expression(b"numgen", _numbered(_REGISTER, _OF, _RANDOM, 0)),
        # Compared as bytes, so the most significant one has to come first.
        _expression(b"byteorder", _numbered(_REGISTER, _REGISTER, _TO_NETWORK, 4, 4)),
        _compared(_LESS, share.to_bytes(4, "big")),
        _expression(
            b"immediate", _attribute(1, _VERDICT) + _nested(2, _nested(2, _attribute(1, _DROP)))
        ),
    )
    return _numbered(_TABLE, _CHAIN) + _nested(4, *expressions)


def _message(number: int, kind: int, flags: int, family: int, body: bytes, of: int = 0) -> bytes:
    content = struct.pack("!BBH", family, 0, of) + body
    return struct.pack("=IHHII", 16 + len(content), kind, _REQUEST | flags, number, 0) + content


def _set(share: int, netdevs: list[str]) -> None:
    table = _attribute(1, _TABLE)
    # Deleting needs a table, and adding one that is there changes nothing.
    changes = [(_NEW_TABLE, _CREATE, table), (_DELETE_TABLE, 0, table)]
    if share:
        hook = _nested(4, _numbered(_PREROUTING, _PRIORITY))
        chain = _attribute(1, _TABLE) + _attribute(3, _CHAIN) + hook + _attribute(5, _ACCEPT)
        changes += [(_NEW_TABLE, _CREATE, table)]
        changes += [(_NEW_CHAIN, _CREATE, chain + _attribute(7, b"filter\0"))]
        changes += [(_NEW_RULE, _CREATE | _APPEND, _rule(each, share)) for each in netdevs]
    batch = [_message(0, _BATCH_BEGIN, 0, 0, b"", _NFTABLES)]
    for number, (kind, flags, body) in enumerate(changes, 1):
        batch.append(_message(number, _NFTABLES << 8 | kind, flags | _ACK, _INET, body))
    batch.append(_message(0, _BATCH_END, 0, 0, b"", _NFTABLES))
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETFILTER) as kernel:
        kernel.send(b"".join(batch))
        answered = 0
        while answered < len(changes):
            reply, at = kernel.recv(1 << 16), 0
            while at < len(reply):
                length, kind, _, _, _, error = struct.unpack_from("=IHHIIi", reply, at)
                if kind == _ERROR and error:
                    raise OSError(-error, f"nftables: {os.strerror(-error)}")
                answered, at = answered + (kind == _ERROR), at + -(-length // 4) * 4


def main() -> int:
    """Set the loss; returns the exit status."""
    share, netdevs = round(float(sys.argv[1]) * _OF / 100), sys.argv[2:]
    began = time.monotonic_ns()
    _set(share, netdevs)
    print(began, time.monotonic_ns())
    return 0


if __name__ == "__main__":
    sys.exit(main())
