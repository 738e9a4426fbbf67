"""Assignment of links to NIC ports: parallel links on different NUMA nodes, few ports moved."""

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Sequence
from itertools import combinations
from operator import attrgetter
from typing import TypeAlias

from lightrig.harness.systems.mixnet.planning.region import OpticalNic, Region, RegionError
from lightrig.harness.systems.mixnet.planning.topology import LinkCounts
from lightrig.testbeds import Link, Port

_Pair: TypeAlias = tuple[int, int]
_Free: TypeAlias = dict[int | None, list[Port]]
_ENDS = attrgetter("a", "b")


def map_links(region: Region, links: LinkCounts, current: Iterable[Link] = ()) -> tuple[Link, ...]:
    """Links between NIC ports, as many for each pair of servers as `links` says.

    MixNet's GETNICMAPPING and PERMUTELINKS, which the paper names and does not print. Parallel
    links to one server are spread over the NUMA nodes of both ends as evenly as its ports
    allow, larger bundles first. Of the `current` links between a pair as many are kept as it
    is to have; those of a server are given up only where keeping them would crowd a NUMA node
    more than starting anew.

    Raises `RegionError` where a server has fewer ports than links.
    """
    for server, degree, wanted in zip(
        region.servers, region.degrees, links.sum(axis=1).tolist(), strict=True
    ):
        if wanted > degree:
            raise RegionError(
                f"{server.name} has {degree} working optical ports, {wanted} links are planned"
            )
    mapping = _Mapping(region, links)
    retained = mapping.keepable(current)
    if not retained:
        return mapping.map({})
    crowded = mapping.crowding(mapping.map({}))
    while True:
        mapped = mapping.map(retained)
        found = mapping.crowding(mapped)
        worse = {number for number, much in found.items() if much > crowded.get(number, 0)}
        released = {pair for pair in retained if worse & set(pair)}
        if not released:
            return mapped
        retained = {pair: ends for pair, ends in retained.items() if pair not in released}


class _Mapping:
    """The ports of a region's servers, while links are laid between them."""

    def __init__(self, region: Region, links: LinkCounts) -> None:
        self._region = region
        self._numa = {nic.port: nic.numa for server in region.servers for nic in server.optical}
        rows, columns = links.nonzero()
        self._counts: dict[_Pair, int] = {
            (a, b): int(links[a, b])
            for a, b in zip(rows.tolist(), columns.tolist(), strict=True)
            if a < b
        }

    def keepable(self, current: Iterable[Link]) -> dict[_Pair, tuple[Link, ...]]:
        """Of the current links between working ports as many as each pair is to have.

        Where there are more, the ones that are spread best, then the lowest.
        """
        between: defaultdict[_Pair, list[Link]] = defaultdict(list)
        number_of = self._region.number_of
        for link in sorted(set(current), key=_ENDS):
            if link.a in self._numa and link.b in self._numa:
                a, b = sorted((number_of[link.a.owner], number_of[link.b.owner]))
                between[a, b].append(link)
        retained = {}
        for pair, have in between.items():
            count = self._counts.get(pair, 0)
            if len(have) <= count:
                retained[pair] = tuple(have)
            elif count:
                retained[pair] = min(combinations(have, count), key=self._crowded)
        return retained

    def map(self, retained: dict[_Pair, tuple[Link, ...]]) -> tuple[Link, ...]:
        """All links: those `retained`, and for the rest the ports that spread them best."""
        laid = [link for links in retained.values() for link in links]
        used = {port for link in laid for port in (link.a, link.b)}
        free = [_by_node(server.optical, used) for server in self._region.servers]
        for pair, count in sorted(self._counts.items(), key=lambda item: (-item[1], item[0])):
            have = retained.get(pair, ())
            if len(have) == count:
                continue
            ports = (
                self._take(free[end], have, self._region.servers[end].name, count - len(have))
                for end in pair
            )
            laid += [Link(a, b) for a, b in zip(*ports, strict=True)]
        return tuple(sorted(laid, key=_ENDS))

    def _take(self, free: _Free, have: Sequence[Link], owner: str, count: int) -> list[Port]:
        """Take ports out of `free` one by one, from the node that has fewest of this bundle.

        Of nodes with as few, from the one with most ports left.
        """
        if count == 1 and not have:  # as most are
            return [max(free.values(), key=len).pop(0)]
        on = dict.fromkeys(free, 0)
        for link in have:
            for port in (link.a, link.b):
                if port.owner == owner:
                    on[self._numa[port]] += 1
        taken = []
        for _ in range(count):
            node = min((node for node in free if free[node]), key=lambda n: (on[n], -len(free[n])))
            taken.append(free[node].pop(0))
            on[node] += 1
        return taken

    def crowding(self, links: Iterable[Link]) -> dict[int, int]:
        """Return the crowding of each server's NUMA nodes; even bundles have the least."""
        bundles: Counter[tuple[int, int, int | None]] = Counter()
        number_of = self._region.number_of
        for link in links:
            for here, there in ((link.a, link.b), (link.b, link.a)):
                bundles[number_of[here.owner], number_of[there.owner], self._numa[here]] += 1
        crowded: Counter[int] = Counter()
        for (number, _, _), count in bundles.items():
            crowded[number] += count * count
        return crowded

    def _crowded(self, links: Iterable[Link]) -> int:
        return sum(self.crowding(links).values())


def _by_node(nics: Iterable[OpticalNic], used: Container[Port]) -> _Free:
    """The unused ports on each NUMA node; a node whose ports are all used is there, empty."""
    free: _Free = {}
    for nic in nics:
        ports = free.setdefault(nic.numa, [])
        if nic.port not in used:
            ports.append(nic.port)
    return free
