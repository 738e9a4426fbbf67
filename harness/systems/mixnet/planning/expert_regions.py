"""Servers whose experts exchange rows: each set of them is a region with a controller of its own.

An expert-parallel group has the circuits of its servers alone (MixNet §4.2). Groups that share
servers, such as those of the ranks of a tensor-parallel group, share their circuits and begin the
same all-to-alls side by side.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lightrig.harness.systems.mixnet.planning.demand import Placement
from lightrig.harness.systems.mixnet.planning.region import RegionError


@dataclass(frozen=True, slots=True)
class ExpertRegion:
    """Servers of expert-parallel groups.

    Attributes:
        switch: that their circuits are on.
        servers: their numbers in the testbed.
        ranks: the ranks on them; a rank's place here is its number in the region.
        placement: of these, on these.
        groups: of these that exchange rows with each other alone.
    """

    switch: str
    servers: tuple[int, ...]
    ranks: tuple[int, ...]
    placement: Placement
    groups: tuple[tuple[int, ...], ...]


def expert_regions(
    groups: Iterable[Sequence[int]],
    server_of: Sequence[int],
    switches: Mapping[int, str],
) -> list[ExpertRegion]:
    """Return the regions of expert-parallel groups, in the order of their servers.

    server_of: of each rank. switches: of each server. Raises `RegionError` for groups on several
    switches, and for a rank on their servers that is in none: it may be a delegate of the others.
    """
    found = [tuple(group) for group in groups]
    parts: list[set[int]] = []
    for group in found:
        touched = {server_of[rank] for rank in group}
        joined = [part for part in parts if part & touched]
        parts = [part for part in parts if not part & touched]
        parts.append(touched.union(*joined))
    regions = []
    for part in sorted(parts, key=min):
        servers = tuple(sorted(part))
        ranks = tuple(rank for rank, server in enumerate(server_of) if server in part)
        place = {rank: number for number, rank in enumerate(ranks)}
        here = sorted(group for group in found if {server_of[rank] for rank in group} <= part)
        busy = {rank for group in here for rank in group}
        if idle := [rank for rank in ranks if rank not in busy]:
            raise RegionError(
                f"rank {idle[0]} is in no all-to-all of rows, and those of other ranks of its "
                "server may need it as their delegate"
            )
        on = {switches[server] for server in servers}
        if len(on) > 1:
            raise RegionError(
                f"ranks {', '.join(map(str, busy))} exchange rows over circuits of "
                f"{', '.join(sorted(on))}, expected one region: circuits join servers of one switch"
            )
        placement = Placement(tuple(servers.index(server_of[rank]) for rank in ranks), len(servers))
        members = tuple(tuple(place[rank] for rank in group) for group in here)
        regions.append(ExpertRegion(on.pop(), servers, ranks, placement, members))
    return regions
