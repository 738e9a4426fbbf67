"""A RailX testbed whose chips are namespaces: rails over circuit switches, the mesh by fibers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from lightrig.harness.systems.railx.planning.cross_connects import DARK, DIMENSIONS
from lightrig.harness.systems.railx.planning.physical import Dimension, RailFabric, RailxError
from lightrig.harness.systems.railx.planning.topologies import Axis, Kind, line_setting

MESH_RATE, RAIL_RATE = 40, 10
"""Mbit/s of a mesh link and of a port of a rail: k = 4."""


def chip_name(i: int, j: int, u: int, v: int) -> str:
    """Return the name of chip (u, v) of node (i, j)."""
    return f"chip{i}-{j}-{u}-{v}"


def rail_end(fabric: RailFabric, dimension: Dimension, rail: int, *, plus: bool) -> tuple[int, int]:
    """Return the chip (u, v) of a node with an end of a rail: X+ is right, Y+ at the bottom."""
    line, edge = rail // fabric.ports, fabric.mesh - 1 if plus else 0
    return (edge, line) if dimension == "x" else (line, edge)


def nics_of(fabric: RailFabric, u: int, v: int) -> dict[str, int]:
    """Return the NICs of chip (u, v), each of one port, with its rate in Mbit/s.

    A NIC at a rail's plus end is x<a>p, at its minus end x<a>m; those of the mesh have the name of
    their side.
    """
    found = {
        f"{d}{rail}{'p' if plus else 'm'}": RAIL_RATE
        for d, rail, plus in product(DIMENSIONS, range(fabric.rails), (True, False))
        if rail_end(fabric, d, rail, plus=plus) == (u, v)
    }
    last = fabric.mesh - 1
    sides = {"west": u > 0, "east": u < last, "north": v > 0, "south": v < last}
    return found | {name: MESH_RATE for name, exists in sides.items() if exists}


def chip_servers(fabric: RailFabric) -> Iterator[str]:
    """Yield the section `servers` of a testbed of chips.

    Raises `RailxError` for one chip a node, which has no mesh.
    """
    if fabric.mesh < 2:
        raise RailxError(f"found a mesh of {fabric.mesh} chip, expected two or more a side")
    for u, v in product(range(fabric.mesh), repeat=2):
        columns, rows = (f"[0-{count - 1}]" for count in (fabric.columns, fabric.rows))
        yield f"  chip{columns}-{rows}-{u}-{v}:"
        yield "    address: netns://{name}"
        yield "    nics:"
        for nic, rate in nics_of(fabric, u, v).items():
            yield (
                f"      {nic}: {{ports: 1, model: veth, netdev: {nic}, ip: '192.0.2.{{k}}/24', "
                f"rate: {rate}M, transceiver: rail}}"
            )


def chip_fibers(fabric: RailFabric) -> Iterator[str]:
    """Yield the section `fibers`: the mesh of each node, and both ends of each rail."""
    for i, j in product(range(fabric.columns), range(fabric.rows)):
        for u, v in product(range(fabric.mesh), repeat=2):
            here = chip_name(i, j, u, v)
            if u + 1 < fabric.mesh:
                yield f"{here}.east <-> {chip_name(i, j, u + 1, v)}.west"
            if v + 1 < fabric.mesh:
                yield f"{here}.south <-> {chip_name(i, j, u, v + 1)}.north"
        for d, rail, plus in product(DIMENSIONS, range(fabric.rails), (True, False)):
            chip = chip_name(i, j, *rail_end(fabric, d, rail, plus=plus))
            nic = f"{d}{rail}{'p' if plus else 'm'}"
            line, place = (j, i) if d == "x" else (i, j)
            number = 2 * place + (1 if plus else 2)
            yield f"{chip}.{nic} -> {d}ocs{line}-{rail}.{number}"
            yield f"{d}ocs{line}-{rail}.{number + fabric.radix} -> {chip}.{nic}"


def chip_plans(fabric: RailFabric) -> Iterator[str]:
    """Yield the section `plans`: rings on all rails, and all-to-alls of rail rings."""
    rails = tuple(range(fabric.rails))
    kinds: tuple[tuple[str, Kind], ...] = (("torus", "ring"), ("hyperx", "all-to-all"))
    for name, kind in kinds:
        yield f"  {name}:"
        for d in DIMENSIONS:
            setting = line_setting(fabric, d, [Axis(fabric.length(d), kind, rails)]).tolist()
            for line, rail in product(range(fabric.lines(d)), rails):
                for place, following in enumerate(setting[rail]):
                    if following != DARK:
                        ends = []
                        for at, plus in ((place, True), (following, False)):
                            i, j = (at, line) if d == "x" else (line, at)
                            u, v = rail_end(fabric, d, rail, plus=plus)
                            nic = f"{d}{rail}{'p' if plus else 'm'}"
                            ends.append(f"{chip_name(i, j, u, v)}.{nic}")
                        yield f"    - {ends[0]} <-> {ends[1]}"
