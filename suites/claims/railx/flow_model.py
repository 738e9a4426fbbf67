"""RailX's equations beside the flow model: chips, links and shared capacity of a generated fabric.

Each function returns the time that flows take over the time of an equation; 1 where they agree.
"""

from __future__ import annotations

from lightrig.harness.systems.railx.planning.cross_connects import Settings
from lightrig.harness.systems.railx.planning.physical import RailFabric
from lightrig.harness.systems.railx.planning.topologies import hyperx, torus
from lightrig.instruments.jobs.flows.collectives import ring_reduce_scatter
from lightrig.instruments.jobs.flows.network import Edge, Network, joined, ring_pairs
from lightrig.instruments.jobs.flows.routing import Router
from lightrig.instruments.jobs.flows.steps import Flow, Step, duration
from lightrig.suites.claims.railx import collectives
from lightrig.suites.claims.railx.chip_graph import MESH_PORTS, ChipGraph
from lightrig.suites.claims.railx.collectives import NodeGroup
from lightrig.suites.claims.railx.minimal_routing import minimal_routes
from lightrig.suites.claims.two_dimensional import all_reduce_2d, both_ways_round

BPS, LATENCY_NS, SIZE = 800e9, 300.0, 64e6


def chip_router(settings: Settings, multiple: float) -> Router:
    """Return the chips as vertices ``c0``, ``c1``...; optical links of `BPS` and `LATENCY_NS`.

    Two chips of a mesh are joined by n interfaces of `multiple` times `BPS`, without latency.
    """
    graph = ChipGraph.of(settings)
    inside = multiple * graph.fabric.ports * BPS
    edges = [
        Edge(f"c{chip}", f"c{peer}", inside)
        if port < MESH_PORTS
        else Edge(f"c{chip}", f"c{peer}", BPS, LATENCY_NS)
        for chip, row in enumerate(graph.peer_chip.tolist())
        for port, peer in enumerate(row)
        if peer >= 0
    ]
    return Router(Network(tuple(edges)))


def equation_6(ranks: int) -> float:
    """Reduce-scatter on a ring used in both directions."""
    names = [f"c{rank}" for rank in range(ranks)]
    router = Router(joined(ring_pairs(names), BPS, LATENCY_NS))
    took = duration(router, ring_reduce_scatter(names, SIZE, both_ways=True))
    return took / collectives.ring(ranks, SIZE, BPS, LATENCY_NS)


def equation_7(side: int) -> float:
    """2D rings on the generated torus, m = 1, so that every hop is optical as in the text."""
    fabric = RailFabric(1, 2, side, side, 2 * side)
    grid = [[f"c{j * side + i}" for i in range(side)] for j in range(side)]
    took = duration(chip_router(torus(fabric), 1), all_reduce_2d(grid, SIZE, both_ways_round))
    return took / collectives.ring_2d(NodeGroup(1, side, 2 * BPS, 1, LATENCY_NS), SIZE)


def equation_8_among(mesh: int, side: int, multiple: float = 4) -> float:
    """2D rings of all m^2 groups of chips of one rank at once, m of which share each rail."""
    router = chip_router(torus(RailFabric(mesh, 1, side, side, 2 * side)), multiple)
    chips, nodes = mesh * mesh, range(side)
    schedules = [
        all_reduce_2d(
            [[f"c{(j * side + i) * chips + place}" for i in nodes] for j in nodes],
            SIZE / chips,
            both_ways_round,
        )
        for place in range(chips)
    ]
    together = [
        Step(tuple(flow for step in steps for flow in step.flows), steps[0].times)
        for steps in zip(*schedules, strict=True)
    ]
    group = NodeGroup(mesh, side, BPS, multiple, LATENCY_NS)
    expected = collectives.hierarchical(group, SIZE) - collectives.local(group, SIZE)
    return duration(router, together) / expected


def equation_8_within(mesh: int, ports: int, multiple: float) -> float:
    """All-reduce on a ring through the mesh; there is none for odd m."""
    names = [f"c{x}-{y}" for x, y in collectives.mesh_ring(mesh)]
    router = Router(joined(ring_pairs(names), multiple * ports * BPS))
    took = 2 * duration(router, ring_reduce_scatter(names, SIZE, both_ways=True))
    return took / collectives.local(NodeGroup(mesh, 2, ports * BPS, multiple, 0.0), SIZE)


def equation_12(size: int) -> float:
    """Direct exchange among one row of the generated HyperX with single chips."""
    fabric = RailFabric(1, size - 1, size, size, 2 * size)
    ranks = range(size)
    flows = tuple(Flow(f"c{a}", f"c{b}", SIZE / size) for a in ranks for b in ranks if a != b)
    took = duration(chip_router(hyperx(fabric), 1), [Step(flows)])
    return took / collectives.direct(size, SIZE, (size - 1) * BPS, LATENCY_NS)


def equation_13_among(mesh: int, ports: int, size: int, multiple: float = 4) -> float:
    """First step of the direct all-reduce on the generated HyperX, over equation 12's time.

    All chips of a rank exchange in their rows with one half of their share and in their columns
    with the other, by the paths of Algorithm 1. The equation takes the load of all rails as equal;
    the paper does not describe how chips reach the rails.
    """
    fabric = RailFabric(mesh, ports, size, size, 2 * size)
    settings = hyperx(fabric)
    routes, router = minimal_routes(settings), chip_router(settings, multiple)
    chips, share = mesh * mesh, SIZE / mesh**2 / 2
    flows = []
    for source in range(fabric.chips):
        node, place = divmod(source, chips)
        i, j = node % size, node // size
        peers = [j * size + k for k in range(size) if k != i]
        peers += [k * size + i for k in range(size) if k != j]
        for peer in peers:
            sink = peer * chips + place
            hops = [f"c{chip}" for chip, _, _ in routes.path(source, sink)]
            router.state(*hops, f"c{sink}")
            flows.append(Flow(f"c{source}", f"c{sink}", share / size))
    expected = collectives.direct(size, share, ports * BPS / mesh, LATENCY_NS)
    return duration(router, [Step(tuple(flows))]) / expected
