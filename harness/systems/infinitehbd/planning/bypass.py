"""One ring through all healthy nodes, which closes past those that have failed.

The cluster manager says who has failed, and each node's fabric manager what its own modules do
about it. Values in, values out: nobody is told anything here.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from lightrig.harness.systems.infinitehbd.planning.managers import NodeFabricManager, PathChange
from lightrig.harness.systems.infinitehbd.planning.rings import Path, bundles, circuits, paths
from lightrig.harness.systems.infinitehbd.planning.wiring import InfiniteHbdError, Wiring, k_hop
from lightrig.testbeds import Plan, Testbed

_SWITCH = re.compile(r"trx(\d+)-node(\d+)")


@dataclass(frozen=True)
class RingManager:
    """A ring through all healthy nodes of a closed K-hop wiring.

    nodes: each one's fabric manager, in the ring's order. faulty: nodes that the ring passes.
    """

    wiring: Wiring
    nodes: tuple[NodeFabricManager, ...]
    faulty: frozenset[int] = frozenset()

    @classmethod
    def start(cls, wiring: Wiring) -> tuple["RingManager", list[PathChange]]:
        """All nodes healthy and in loopback; what makes the ring.

        Raises `InfiniteHbdError` for a line, which has no ring through all of its nodes.
        """
        if not wiring.closed:
            raise InfiniteHbdError("found a line, expected a ring: its ends have no link")
        count = len(bundles(wiring))
        idle = tuple(NodeFabricManager.idle(node, count) for node in range(wiring.nodes))
        return cls(wiring, idle).failed()

    @property
    def healthy(self) -> tuple[int, ...]:
        """The nodes of the ring, in its order."""
        return tuple(node for node in range(self.wiring.nodes) if node not in self.faulty)

    def failed(self, *nodes: int) -> tuple["RingManager", list[PathChange]]:
        """Nodes have failed: what those beside them change, so that the ring closes past them.

        Raises `InfiniteHbdError` where no backup link reaches from one to the next.
        """
        after = replace(self, faulty=self.faulty | {*nodes})
        # A ring has two ends to close, so it needs a node between them.
        if len(after.healthy) < 3:
            raise InfiniteHbdError(f"found {len(after.healthy)} healthy nodes, a ring needs three")
        wanted, joined = paths(self.wiring, np.array([after.healthy]), closed=True)
        if not joined.all():
            raise InfiniteHbdError("a node would need one of its bundles for both of its sides")
        nodes_after, moves = [], []
        for node in self.nodes:
            if node.node in after.faulty:
                nodes_after.append(node)
                continue
            ordered, changes = node.ordered(tuple(map(Path, wanted[node.node].tolist())))
            nodes_after.append(ordered)
            moves += changes
        return replace(after, nodes=tuple(nodes_after)), moves

    def repaired(self, *nodes: int) -> tuple["RingManager", list[PathChange]]:
        """Nodes are back, in loopback for all that is known: what takes them in again."""
        idle = NodeFabricManager.idle
        count = len(bundles(self.wiring))
        back = tuple(idle(n.node, count) if n.node in nodes else n for n in self.nodes)
        return replace(self, nodes=back, faulty=self.faulty - {*nodes}).failed()

    def switched(self) -> "RingManager":
        """All modules of healthy nodes have taken the paths that they were told last."""
        done = tuple(
            node if node.node in self.faulty else replace(node, paths=node.wanted)
            for node in self.nodes
        )
        return replace(self, nodes=done)


def wiring_of(testbed: Testbed) -> Wiring:
    """The closed K-hop wiring of a testbed as `lightrig generate infinitehbd` names its parts.

    Raises `InfiniteHbdError` for another testbed.
    """
    found = [_SWITCH.fullmatch(name) for name in testbed.optical_switches]
    if not found or None in found:
        raise InfiniteHbdError(
            f"{testbed.path} has switches that are no bundles of a node, trxB-nodeN"
        )
    places = [(int(match[1]), int(match[2])) for match in found if match]
    hops, nodes = (1 + max(each) for each in zip(*places, strict=True))
    return k_hop(nodes, hops, closed=True)


def plan_of(name: str, moves: Iterable[PathChange]) -> Plan:
    """Return the cross-connects of such a testbed that carry out `moves`."""
    return Plan(name, {f"trx{m.bundle}-node{m.node}": circuits(m.after, 1) for m in moves})
