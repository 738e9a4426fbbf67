"""Addresses and routes of servers after the rails are closed, compared with those before."""

import re

import pytest

from lightrig.harness.systems.railx.runtime.rails import NotRestoredError, check_restored

BEFORE = {"node0": ["192.0.2.0/24 dev x0p0", "1: x0p0 inet 192.0.2.1/24"], "node1": []}


def test_equal_addresses_and_routes_pass():
    check_restored(BEFORE, {name: list(reversed(lines)) for name, lines in BEFORE.items()})


@pytest.mark.parametrize(
    ("name", "lines", "named"),
    [
        ("node0", ["192.0.2.0/24 dev x0p0"], "more none, missing ['1: x0p0 inet 192.0.2.1/24']"),
        ("node1", ["198.19.0.1 dev lane0"], "more ['198.19.0.1 dev lane0'], missing none"),
    ],
)
def test_a_difference_is_named_with_its_server(name, lines, named):
    with pytest.raises(NotRestoredError, match=f"{name} has other.*{re.escape(named)}"):
        check_restored(BEFORE, BEFORE | {name: lines})
