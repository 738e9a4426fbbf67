"""Ways of packets between chips for a hierarchical all-reduce (RailX, section 4.2, figure 11).

Three lanes: over the mesh of a node, over X-rails and the mesh rows, and over Y-rails and the mesh
columns. A chip reaches the chips of equal place in the nodes of its row by its rail's other end,
which may be the neighbour's on the mesh: these forward.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lightrig.harness.jobs.planning.routes import LaneHop, LaneRoutes
from lightrig.harness.systems.railx.planning.physical import RailxError
from lightrig.testbeds import Link

MESH, X, Y = range(3)
LANES = ("mesh", "x", "y")
_SIDES = {"x": frozenset({"west", "east"}), "y": frozenset({"north", "south"})}
_CHIP = re.compile(r"chip(\d+)-(\d+)-(\d+)-(\d+)")


class Chip(NamedTuple):
    """Column and row of a node, and of the chip on its mesh."""

    i: int
    j: int
    u: int
    v: int


def chip_of(name: str) -> Chip:
    """Return the place of a chip; raises `RailxError` for another server."""
    found = _CHIP.fullmatch(name)
    if found is None:
        raise RailxError(f"found the server {name}, expected a chip such as chip0-0-1-0")
    return Chip(*map(int, found.groups()))


def chip_lanes(links: Iterable[Link]) -> LaneRoutes:
    """Return the first hops of each lane over the fewest of `links`, those of the mesh included."""
    import networkx as nx  # loads slowly, and few commands need it

    graphs = {name: nx.Graph() for name in LANES}
    hops: dict[str, dict[tuple[str, str], LaneHop]] = {name: {} for name in LANES}
    for link in sorted(links):
        of = link.a.name
        lanes = [d for d, sides in _SIDES.items() if of in sides] + ["mesh"]
        if not any(of in sides for sides in _SIDES.values()):
            lanes = [of[0]]
        for lane in lanes:
            graphs[lane].add_edge(link.a.owner, link.b.owner)
            for a, b in ((link.a, link.b), (link.b, link.a)):
                hops[lane].setdefault((a.owner, b.owner), LaneHop(a, b))
    return [
        {
            (source, sink): hops[name][source, path[1]]
            for source, paths in nx.all_pairs_shortest_path(graphs[name])
            for sink, path in paths.items()
            if sink != source
        }
        for name in LANES
    ]


class ChipRing(NamedTuple):
    """Chips that a step of the all-reduce goes round, in order, and the lane of their packets."""

    lane: int
    chips: tuple[str, ...]


def rings_of(chips: Sequence[str]) -> dict[str, dict[str, ChipRing]]:
    """Return the rings of each chip: its node's mesh, its row and its column either way round.

    The mesh's ring is a Hamiltonian cycle, which a mesh with an odd side has not: raises
    `RailxError` for it.
    """
    places = {name: chip_of(name) for name in chips}
    names = {place: name for name, place in places.items()}
    side = 1 + max(place.u for place in places.values())
    cycle = mesh_cycle(side)
    found = {}
    for name, (i, j, u, v) in places.items():
        row = tuple(names[at] for at in sorted(names) if (at.j, at.u, at.v) == (j, u, v))
        column = tuple(names[at] for at in sorted(names) if (at.i, at.u, at.v) == (i, u, v))
        found[name] = {
            "mesh": ChipRing(MESH, tuple(names[Chip(i, j, *place)] for place in cycle)),
            "x": ChipRing(X, row),
            "y": ChipRing(Y, column),
            "x back": ChipRing(X, row[::-1]),
            "y back": ChipRing(Y, column[::-1]),
        }
    return found


def mesh_cycle(side: int) -> list[tuple[int, int]]:
    """Return a cycle of neighbours through a mesh of `side` x `side` chips, which is even."""
    if side % 2:
        raise RailxError(
            f"a mesh of {side} x {side} chips has no ring of neighbours: expected an even side"
        )
    there = [(u, 0) for u in range(side)]
    for u in reversed(range(side)):
        column = range(1, side) if (side - 1 - u) % 2 == 0 else range(side - 1, 0, -1)
        there += [(u, v) for v in column]
    return there
