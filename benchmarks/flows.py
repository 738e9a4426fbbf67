"""The flow model against the closed forms of papers, and how long it takes to compute.

The model knows links, routes and fair shares; the formulas know none of them. Where a formula
leaves lower orders out, as printed, the difference is theirs and shown as such.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from benchmarks.figures import beside_limit
from lightrig.instruments.jobs.flows import collectives
from lightrig.instruments.jobs.flows.network import Network, duplex, joined, ring_pairs
from lightrig.instruments.jobs.flows.routing import Router
from lightrig.instruments.jobs.flows.steps import Schedule, duration
from lightrig.suites.claims import closed_forms as formula
from lightrig.suites.claims.closed_forms import full_mesh_pairs, grid_pairs
from lightrig.suites.claims.railx import collectives as railx
from lightrig.suites.claims.two_dimensional import (
    all_reduce_2d,
    both_ways_round,
    hierarchical_2d_all_reduce,
)

RATE, ALPHA, SIZE = 400e9, 700.0, 256e6
ALLOWED = 0.01
MULTIPLE = 4.0


class Case(NamedTuple):
    """A collective by the model, and the time that a formula has for it in ns.

    `as_printed` formulas leave lower orders out, and are not held to `ALLOWED`.
    """

    name: str
    build: Callable[[], tuple[Network, Schedule]]
    expected: float
    as_printed: bool = False


def main() -> None:
    print(f"{SIZE / 1e6:g} MB at {RATE / 1e9:g} Gbit/s, {ALPHA:g} ns a link")
    print(f"{'collective':<46}{'formula':>14}{'model':>14}{'error':>11}{'computed in':>14}")
    worst, exact = 0.0, 0
    for case in cases():
        network, schedule = case.build()
        before = time.perf_counter()
        found = duration(Router(network), schedule)
        spent = time.perf_counter() - before
        error = found / case.expected - 1
        if not case.as_printed:
            worst, exact = max(worst, abs(error)), exact + 1
        print(
            f"{case.name:<46}{case.expected / 1e6:>11.4f} ms{found / 1e6:>11.4f} ms"
            f"{error:>+11.1e}{1e3 * spent:>11.1f} ms"
        )
    beside_limit("worst error of those that are exact", worst, ALLOWED, spread=f"n {exact}")


def cases() -> Iterator[Case]:
    """All of them."""
    for count in (4, 16, 64):
        yield Case(
            f"ring all-reduce, {count} ranks",
            partial(_on_ring, count, collectives.ring_all_reduce),
            formula.ring_all_reduce(count, SIZE, RATE, ALPHA),
        )
    for count in (4, 9, 32):
        yield Case(
            f"all-to-all on a ring that forwards, {count}",
            partial(_on_ring, count, collectives.direct_all_to_all),
            formula.all_to_all_on_ring(count, SIZE, RATE) + count // 2 * ALPHA,
        )
    yield Case(
        "all-to-all on a torus, 6 x 6",
        lambda: (
            joined(grid_pairs(_grid(6), wrapped=True), RATE, ALPHA),
            collectives.direct_all_to_all([r for row in _grid(6) for r in row], SIZE),
        ),
        formula.all_to_all_on_torus(6, SIZE, RATE) + 6 * ALPHA,
    )
    yield Case(
        "all-to-all on a full mesh, 16",
        lambda: (
            joined(full_mesh_pairs(_ranks(16)), RATE, ALPHA),
            collectives.direct_all_to_all(_ranks(16), SIZE),
        ),
        formula.all_to_all_on_full_mesh(16, SIZE, RATE) + ALPHA,
    )
    for side in (4, 8):
        yield Case(
            f"2D ring all-reduce, {side} x {side} (RailX Eq. 7)",
            partial(_on_torus, side),
            railx.ring_2d(railx.NodeGroup(1, side, RATE, 1, ALPHA), SIZE),
        )
    for nodes, mesh in ((4, 2), (6, 3)):
        group = railx.NodeGroup(mesh, nodes, RATE, MULTIPLE, ALPHA)
        build = partial(_on_railx, nodes, mesh)
        name = f"RailX all-reduce, {nodes} x {nodes} nodes of {mesh} x {mesh}"
        yield Case(f"{name} (Eq. 8)", build, railx.hierarchical(group, SIZE))
        yield Case("  the same as printed", build, railx.hierarchical_printed(group, SIZE), True)
        direct = partial(_on_railx, nodes, mesh, direct=True)
        yield Case("  on HyperX (Eq. 13)", direct, railx.hyperx(group, SIZE))


def _ranks(count: int) -> list[str]:
    return [f"rank{index}" for index in range(count)]


def _grid(side: int) -> list[list[str]]:
    return [[f"rank{row}.{column}" for column in range(side)] for row in range(side)]


def _on_ring(
    count: int, collective: Callable[[list[str], float], Schedule]
) -> tuple[Network, Schedule]:
    return joined(ring_pairs(_ranks(count)), RATE, ALPHA), collective(_ranks(count), SIZE)


def _on_torus(side: int) -> tuple[Network, Schedule]:
    network = joined(grid_pairs(_grid(side), wrapped=True), RATE, ALPHA)
    return network, all_reduce_2d(_grid(side), SIZE, both_ways_round)


def _on_railx(nodes: int, mesh: int, *, direct: bool = False) -> tuple[Network, Schedule]:
    """Rings within nodes; for each place in them, rows and columns across with their share."""
    places = range(mesh * mesh)
    chips = [[[f"{x}.{y}.{place}" for place in places] for y in range(nodes)] for x in range(nodes)]
    edges = [
        edge
        for row in chips
        for node in row
        for a, b in ring_pairs(node)
        for edge in duplex(a, b, MULTIPLE * RATE)
    ]
    pairs, share = (full_mesh_pairs, 2 / (nodes - 1)) if direct else (ring_pairs, 1.0)
    for place in places:
        rows = [[node[place] for node in row] for row in chips]
        for line in [*rows, *(list(column) for column in zip(*rows, strict=True))]:
            for a, b in pairs(line):
                edges += duplex(a, b, share * RATE / mesh, ALPHA)
    across = collectives.direct_all_to_all if direct else both_ways_round
    within, among = hierarchical_2d_all_reduce(chips, SIZE, across)
    return Network(tuple(edges)), [*within, *among]


if __name__ == "__main__":
    main()
