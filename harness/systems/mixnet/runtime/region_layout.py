"""Jobs in regions, for the service that several of them share (MixNet §4.2).

A job has the servers of one or more regions, each around a circuit switch of its own; an
expert-parallel group stays within a region. The links of each region, which the region's controller
plans for what the gates send, are part of the job's shape. They join servers of the job alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field

from lightrig.harness.orchestration.jobs import Group, Job, OrchestrationError
from lightrig.harness.orchestration.layout import Shape
from lightrig.harness.orchestration.wiring import Wiring
from lightrig.harness.systems.mixnet.planning.region import Region
from lightrig.testbeds import Circuit, Link, Port, Testbed

_FEWEST_SERVERS = 2


class RegionShape(Shape):
    """Servers of regions, and the links that join those of each."""

    CHANGEABLE: ClassVar[frozenset[str]] = frozenset({"links"})
    UNCHANGED_BY_NULL: ClassVar[frozenset[str]] = CHANGEABLE

    servers: Annotated[int, Field(ge=_FEWEST_SERVERS, description="Servers of each region")] = 2
    regions: Annotated[int, Field(ge=1, description="Regions, each on a switch of its own")] = 1
    links: Annotated[
        list[list[Annotated[list[str], Field(min_length=2, max_length=2)]]] | None,
        Field(description="Of each region the pairs of NIC ports that circuits join; null: as "
        "they are, none at first"),
    ] = None  # fmt: skip


class RegionLayout:
    """The servers of a testbed in regions, one around each circuit switch.

    regions: by switch. Raises `OrchestrationError` for a testbed without a region of two servers.
    """

    shape = RegionShape

    def __init__(self, fabric: Testbed | Wiring) -> None:
        if not isinstance(fabric, Testbed):
            raise OrchestrationError("found a file of sizes, expected one with each server")
        self._cabling = fabric.cabling
        found = {name: Region.of(fabric, name) for name in fabric.optical_switches}
        self.regions = {
            name: region.of_servers(each.name for each in region.servers if each.optical)
            for name, region in found.items()
        }
        if not any(len(each.servers) >= _FEWEST_SERVERS for each in self.regions.values()):
            raise OrchestrationError(
                f"{fabric.path} has no circuit switch that two servers are on, expected a region"
            )
        self._switch_of = {
            nic.port: name
            for name, region in self.regions.items()
            for server in region.servers
            for nic in server.optical
        }
        on = {port.owner for port in self._switch_of}
        self.nodes = tuple(name for name in fabric.servers if name in on)

    def region_of(self, nodes: Collection[str]) -> tuple[str, Region]:
        """Return the switch of a group and its servers as a region; `OrchestrationError`."""
        for name, region in self.regions.items():
            if region.number_of.keys() >= set(nodes):
                return name, region.of_servers(nodes)
        raise OrchestrationError(f"{', '.join(nodes)} are not on one circuit switch")

    def groups_of(self, shape: Mapping[str, object]) -> int:
        """See `Layout`."""
        wanted = RegionShape.model_validate(shape)
        sizes = sorted((len(each.servers) for each in self.regions.values()), reverse=True)
        if sum(size // wanted.servers for size in sizes) < wanted.regions:
            raise OrchestrationError(
                f"found {wanted.regions} regions of {wanted.servers} servers, expected what fits "
                f"into regions of {', '.join(map(str, sizes))}"
            )
        for links in wanted.links or ():
            for link in _links(links):
                self._check(link)
        if wanted.links is not None and len(wanted.links) != wanted.regions:
            raise OrchestrationError(
                f"found links of {len(wanted.links)} regions, expected {wanted.regions}"
            )
        return wanted.regions

    def cut_off(self, switches: Collection[str]) -> Mapping[str, str]:
        """Return nothing: without its circuits a region's traffic takes the packet switch."""
        return {}

    def place(
        self,
        job: Job,
        free: frozenset[str],
        lost: Mapping[int, Group],
        silent: Collection[str],
    ) -> Job:
        """See `Layout`; a group goes to the fullest region that has room for it.

        Servers that work keep their ranks. Switches that do not answer get no new group.
        """
        needed = RegionShape.model_validate(job.shape).servers
        left, groups = set(free), list(job.groups)
        for number, group in enumerate(groups):
            if group is not None:
                continue
            before = lost[number].nodes if number in lost else ()
            room = {
                name: [server.name for server in region.servers if server.name in left]
                for name, region in self.regions.items()
                if name not in silent
            }
            fits = [nodes for nodes in room.values() if len(nodes) >= needed]
            if not fits:
                break
            nodes = min(fits, key=lambda found: (-len({*found} & {*before}), len(found)))
            stay = [node if node in nodes else None for node in before] or [None] * needed
            spare = iter([node for node in nodes if node not in before])
            chosen = tuple(node or next(spare) for node in stay)
            groups[number] = Group(chosen, {})
            left -= {*chosen}
        return replace(job, groups=tuple(groups))

    def circuits(self, job: Job) -> Mapping[str, frozenset[Circuit]]:
        """See `Layout`; a link to a server that its group no longer has is none."""
        found: defaultdict[str, frozenset[Circuit]] = defaultdict(frozenset)
        used: Counter[Port] = Counter()
        for group, links in zip(job.groups, self.links_of(job), strict=True):
            nodes = frozenset(group.nodes if group else ())
            for link in links:
                if not {link.a.owner, link.b.owner} <= nodes:
                    continue
                self._check(link)
                used.update((link.a, link.b))
                for switch, circuits in self.circuits_of([link]).items():
                    found[switch] |= circuits
        if twice := [str(port) for port, count in used.items() if count > 1]:
            raise OrchestrationError(f"job {job.name} joins {', '.join(twice)} twice")
        return dict(found)

    def circuits_of(self, links: Collection[Link]) -> Mapping[str, frozenset[Circuit]]:
        """Return the circuits of links."""
        found: defaultdict[str, frozenset[Circuit]] = defaultdict(frozenset)
        for link in links:
            joined = self._cabling.circuits_for_link(link.a, link.b)
            for switch, circuits in joined.circuits.items():
                found[switch] |= circuits
        return found

    @staticmethod
    def links_of(job: Job) -> list[list[Link]]:
        """Return the links of each region of a job."""
        wanted = RegionShape.model_validate(job.shape)
        return [_links(each) for each in wanted.links or [[]] * wanted.regions]

    def measures(self, job: Job) -> Mapping[str, float]:
        """Return nothing: all places are alike."""
        return {}

    def idle(self, switch: str) -> frozenset[Circuit]:
        """Return no circuit: ports of no job are dark."""
        return frozenset()

    def _check(self, link: Link) -> None:
        switches = {self._switch_of.get(port) for port in (link.a, link.b)}
        if None in switches or len(switches) != 1:
            raise OrchestrationError(
                f"{link.a} and {link.b} are not two NIC ports on one circuit switch"
            )


def link_texts(links: Collection[Link]) -> list[list[str]]:
    """Return links as a shape has them."""
    return [[str(link.a), str(link.b)] for link in links]


def _links(texts: list[list[str]]) -> list[Link]:
    return [Link(*(_port(text) for text in ends)) for ends in texts]


def _port(text: str) -> Port:
    owner, _, name = text.partition(".")
    return Port(owner, name)
