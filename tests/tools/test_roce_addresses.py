"""RoCE addresses by index, in the forms that sysfs has them, and their moves."""

import pytest

from lightrig.instruments.servers.tools import roce_addresses
from lightrig.instruments.servers.tools.output import ToolOutputError
from lightrig.instruments.servers.tools.roce_addresses import RoceAddress

ROOT = "/sys/class/infiniband/mlx5_0/ports/1"
LOCAL = "fe80:0000:0000:0000:ee0d:9aff:fea0:1b2c"
ZERO = "0000:0000:0000:0000:0000:0000:0000:0000"


def mapped(address: str) -> str:
    """An IPv4 address as a GID: RFC 4291, 2.5.5.2."""
    digits = "".join(f"{int(part):02x}" for part in address.split("."))
    return f"0000:0000:0000:0000:0000:ffff:{digits[:4]}:{digits[4:]}"


def table(*gids: str) -> str:
    """What grep prints: each address as RoCE v1 and v2, and the empty rest, without attributes."""
    lines = []
    for number, gid in enumerate(gids):
        for index, kind in ((2 * number, "IB/RoCE v1"), (2 * number + 1, "RoCE v2")):
            lines += [f"{ROOT}/gids/{index}:{gid}", f"{ROOT}/gid_attrs/types/{index}:{kind}"]
            lines += [f"{ROOT}/gid_attrs/ndevs/{index}:ens1f0np0"]
    lines += [f"{ROOT}/gids/{index}:{ZERO}" for index in range(2 * len(gids), 16)]
    return "\n".join(lines)


def test_addresses_by_index() -> None:
    found = roce_addresses.parse(table(LOCAL, mapped("192.0.2.7")))
    assert list(found) == [0, 1, 2, 3]
    assert found[3] == RoceAddress(mapped("192.0.2.7"), "RoCE v2", "ens1f0np0")
    assert str(found[3]) == f"{mapped('192.0.2.7')} (RoCE v2 of ens1f0np0)"


def test_two_addresses_that_come_back_in_the_other_order_have_moved() -> None:
    one, two = mapped("192.0.2.7"), mapped("198.51.100.9")
    before = roce_addresses.parse(table(LOCAL, one, two))
    after = roce_addresses.parse(table(LOCAL, two, one))
    moved = roce_addresses.moves(before, after)
    assert [(each.address.gid, each.address.kind, each.before, each.after) for each in moved] == [
        (one, "IB/RoCE v1", 2, 4),
        (one, "RoCE v2", 3, 5),
        (two, "IB/RoCE v1", 4, 2),
        (two, "RoCE v2", 5, 3),
    ]
    assert roce_addresses.moves(before, before) == []


def test_an_address_that_is_no_more_has_not_moved() -> None:
    one, two = mapped("192.0.2.7"), mapped("198.51.100.9")
    before = roce_addresses.parse(table(one, two))
    assert roce_addresses.moves(before, roce_addresses.parse(table(one))) == []
    moved = roce_addresses.moves(before, roce_addresses.parse(table(two)))
    assert [(each.before, each.after) for each in moved] == [(2, 0), (3, 1)]


@pytest.mark.parametrize("text", ["grep: nothing", f"{ROOT}/gids/x:{LOCAL}", f"{ROOT}/state:4"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ToolOutputError):
        roce_addresses.parse(text)
