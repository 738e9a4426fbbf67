"""The program that has a server's kernel drop a share of the packets that its ports receive.

`packet_loss PERCENT NETDEV...` adds a table of nftables with the rules, and removes it for 0; it
prints when it began and had done so, in ns of CLOCK_MONOTONIC. It runs on the server, as root, and
needs pyroute2 there and a kernel with CONFIG_NFT_NUMGEN. Each packet is dropped for itself, by a
random number of the kernel (nft(8), numgen).
"""

import sys
import time

from pyroute2.netlink.nfnetlink.nftsocket import Cmp, Meta, Regs
from pyroute2.nftables.expressions import genex, verdict
from pyroute2.nftables.main import NFTables

__all__ = ["main"]

_TABLE, _CHAIN = "lightrig", "loss"
_INET, _DROP, _ACCEPT = 1, 0, 1
_PRIORITY = -300
_RANDOM, _TO_NETWORK = 1, 1
_OF = 10_000
_NAME_BYTES = 16


def _value(data: bytes) -> dict[str, object]:
    return {"attrs": [("NFTA_DATA_VALUE", data)]}


def _random(register: Regs) -> dict[str, object]:
    """Return the expression that puts a random number below `_OF` into a register."""
    data = [("DREG", register), ("MODULUS", _OF), ("TYPE", _RANDOM), ("OFFSET", 0)]
    attributes = {"attrs": [(f"NFTA_NG_{name}", value) for name, value in data]}
    return {"attrs": [("NFTA_EXPR_NAME", "numgen"), ("NFTA_EXPR_DATA", attributes)]}


def main() -> int:
    """Set the loss; returns the exit status."""
    share, netdevs = round(float(sys.argv[1]) * _OF / 100), sys.argv[2:]
    began = time.monotonic_ns()
    _set(share, netdevs)
    print(began, time.monotonic_ns())
    return 0


def _set(share: int, netdevs: list[str]) -> None:
    with NFTables(nfgen_family=_INET) as tables:
        present = [each.get_attr("NFTA_TABLE_NAME") for each in tables.get_tables()]
        if _TABLE in present:
            tables.table("del", name=_TABLE)
        if not share:
            return
        tables.table("add", name=_TABLE)
        # Before routing, so that what the server forwards is lost too.
        tables.chain(
            "add", table=_TABLE, name=_CHAIN, hook="prerouting", priority=_PRIORITY, policy=_ACCEPT
        )
        limit, register = share.to_bytes(4, "big"), Regs.NFT_REG_1
        both = {"sreg": register, "dreg": register}
        for netdev in netdevs:
            name = netdev.encode().ljust(_NAME_BYTES, b"\0")
            rule = [
                [genex("meta", {"key": Meta.NFT_META_IIFNAME, "dreg": register})],
                [genex("cmp", {"sreg": register, "op": Cmp.NFT_CMP_EQ, "data": _value(name)})],
                [_random(register)],
                # Compared as bytes, so the most significant one has to come first.
                [genex("byteorder", {**both, "op": _TO_NETWORK, "len": 4, "size": 4})],
                [genex("cmp", {"sreg": register, "op": Cmp.NFT_CMP_LT, "data": _value(limit)})],
                verdict(_DROP),
            ]
            tables.rule("add", table=_TABLE, chain=_CHAIN, expressions=tuple(rule))


if __name__ == "__main__":
    sys.exit(main())
