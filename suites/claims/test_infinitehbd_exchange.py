"""InfiniteHBD's all-to-all by binary exchange, with real packets between eight namespaces.

Links lead over 1, 2 and 4 nodes (Appendix G). In each round the circuits of one distance are set,
and the two nodes that they join hand over half of what they hold.
"""

import hashlib

import pytest

from lightrig.suites.claims.infinitehbd.exchange import rounds

pytestmark = [pytest.mark.of_system("infinitehbd"), pytest.mark.of_testbed("infinitehbd-binary8")]

ITEM = 512
"""Bytes that each rank has for each other."""


def item(origin: int, destination: int) -> bytes:
    """Return what a rank has for another: both ranks, and bytes that no other item has."""
    name = bytes([origin, destination])
    return name + hashlib.shake_128(name).digest(ITEM - len(name))


def items(block: bytes) -> list[bytes]:
    """Return the items of a block."""
    return [block[begin : begin + ITEM] for begin in range(0, len(block), ITEM)]


def test_every_item_arrives_in_three_rounds(paired_nodes, fabric, measure, links):
    """A rank hands over half of its items in each round, those for its partner's half."""
    links.pause()
    nodes = list(fabric.testbed.servers)
    holds = [{item(rank, far) for far in range(len(nodes))} for rank in range(len(nodes))]
    for turn in rounds(len(nodes)):
        handed = [
            {each for each in holds[rank] if first <= each[1] < first + turn.distance}
            for rank, first in enumerate(turn.sent.tolist())
        ]
        assert {len(each) for each in handed} == {len(nodes) // 2}
        blocks = {name: b"".join(sorted(handed[rank])) for rank, name in enumerate(nodes)}
        found = paired_nodes.swap(fabric, fabric.plans[f"over{turn.distance}"], blocks)
        measure.record(found.rows())
        for rank, name in enumerate(nodes):
            holds[rank] = (holds[rank] - handed[rank]) | {*items(found.blocks[name])}
    for rank, present in enumerate(holds):
        assert present == {item(far, rank) for far in range(len(nodes))}
