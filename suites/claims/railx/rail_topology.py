"""Reported topologies of a RailX fabric as rows."""

from __future__ import annotations

from itertools import combinations

from lightrig.harness.bench import Fabric
from lightrig.harness.record import Row
from lightrig.harness.systems.railx.measurements.rail_links import reported_graph
from lightrig.testbeds import Plan


def topology_row(fabric: Fabric, plan: Plan, matches: bool) -> Row:
    """Return whether the reported links are the topology asked for, as a row."""
    value, at = float(matches), fabric.bench.clock.now()
    return Row(
        fabric.testbed.name,
        "rail_topology.isomorphic",
        value,
        None,
        None,
        "share",
        at,
        {"plan": plan.name},
    )


def pair_links_row(fabric: Fabric, plan: Plan) -> Row:
    """Return the share of node pairs of a line that have two links, as a row.

    Nodes are in one line where their names agree in the column or in the row.
    """
    graph, at = reported_graph(fabric), fabric.bench.clock.now()
    pairs = [pair for pair in combinations(graph, 2) if _in_line(*pair)]
    twice = sum(graph.number_of_edges(*pair) == 2 for pair in pairs)
    return Row(
        fabric.testbed.name,
        "rail_topology.twice_joined",
        twice / len(pairs),
        None,
        None,
        "share",
        at,
        {"plan": plan.name, "pairs": len(pairs)},
    )


def _in_line(a: str, b: str) -> bool:
    return any(one == two for one, two in zip(a.split("-"), b.split("-"), strict=True))
