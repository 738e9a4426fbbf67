r"""Print a topology.conf of Slurm for the nodes of a testbed, so that a job's nodes can be a ring.

    python examples/slurm/topology.py FILE --by 'xocs(\d+)-' > /etc/slurm/topology.conf
    python examples/slurm/topology.py FILE --consecutive 4 > /etc/slurm/topology.conf

A leaf of the tree (`TopologyPlugin=topology/tree`) is the nodes that are cabled to optical switches
whose names match alike, such as a row of RailX, or so many neighbours of a row of InfiniteHBD.
Slurm takes a job's nodes from one leaf where it can, and `--switches 1` insists on it. A tree
states one leaf a node: rectangles of RailX, of several rows, are not in it. Format:
topology.conf(5).
"""

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from lightrig.api import Testbed, load


def leaves_by_switch(testbed: Testbed, pattern: str) -> dict[str, list[str]]:
    """Return the servers of each leaf: those whose light enters switches that match alike.

    Raises ValueError for a server that is on two leaves, or on none.
    """
    leaf_of: dict[str, str] = {}
    for fiber in testbed.fibers:
        node, found = fiber.source.owner, re.match(pattern, fiber.sink.owner)
        if found and node in testbed.servers:
            leaf = "leaf" + found[found.re.groups and 1]
            if leaf_of.setdefault(node, leaf) != leaf:
                raise ValueError(f"{node} is on {leaf_of[node]} and on {leaf}")
    leaves: dict[str, list[str]] = {}
    for node in testbed.servers:
        if node not in leaf_of:
            raise ValueError(f"{node} is on no switch that matches {pattern}")
        leaves.setdefault(leaf_of[node], []).append(node)
    return leaves


def leaves_by_place(servers: Sequence[str], size: int) -> dict[str, list[str]]:
    """Return leaves of `size` consecutive servers, the last of what is left."""
    parts = (list(servers[first : first + size]) for first in range(0, len(servers), size))
    return {f"leaf{number}": nodes for number, nodes in enumerate(parts)}


def topology(leaves: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the lines of topology.conf."""
    for leaf, nodes in leaves.items():
        yield f"SwitchName={leaf} Nodes={','.join(nodes)}"
    yield f"SwitchName=fabric Switches={','.join(leaves)}"


def main() -> None:
    """Print the tree of a testbed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--by", metavar="REGEX", help="names of the switches of a leaf")
    parser.add_argument("--consecutive", type=int, metavar="NODES")
    given = parser.parse_args()
    if (given.by is None) == (given.consecutive is None):
        parser.error("expected one of --by and --consecutive")
    testbed = load(given.file)
    if given.by:
        leaves = leaves_by_switch(testbed, given.by)
    else:
        leaves = leaves_by_place(list(testbed.servers), given.consecutive)
    print(*topology(leaves), sep="\n")


if __name__ == "__main__":
    main()
