"""From a demand to the cross-connects that a region's circuit switch is to hold."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from lightrig.harness.systems.mixnet.planning.demand import DemandError, Matrix
from lightrig.harness.systems.mixnet.planning.nics import map_links
from lightrig.harness.systems.mixnet.planning.region import Failures, Region
from lightrig.harness.systems.mixnet.planning.topology import LinkCounts, plan_links
from lightrig.testbeds import Circuit, Link, Plan, Testbed


def plan_region(
    region: Region, demand: npt.ArrayLike, current: Iterable[Link] = ()
) -> tuple[Link, ...]:
    """The links between NIC ports that serve `demand` best, keeping `current` ones.

    MixNet's Algorithm 1 on what works of the region: servers and NICs that failed were taken
    out of it by `Region.without`. Raises `DemandError` and `RegionError`.
    """
    wanted, count = np.asarray(demand, dtype=float), len(region.servers)
    if wanted.shape != (count, count):
        raise DemandError(f"found a demand of shape {wanted.shape}, the region has {count} servers")
    links = plan_links(wanted, region.degrees, lifelines=_lifelines(region, wanted))
    return map_links(region, links, current)


def _lifelines(region: Region, demand: Matrix) -> LinkCounts:
    """One link for each server whose packet NICs all failed, to a peer that has some.

    The paper routes the traffic of such a server through a peer that it is lit to (§5.4), but
    its algorithm may leave just this server without circuits: the one with least to say. The
    peer is the one that it has most to say to, of those with a port left.
    """
    count = len(region.servers)
    links = np.zeros((count, count), dtype=np.int64)
    free = region.degrees
    both = demand + demand.T
    for number, server in enumerate(region.servers):
        if server.packet or not free[number]:
            continue
        peers = [n for n, peer in enumerate(region.servers) if peer.packet and free[n]]
        if peers:
            peer = max(peers, key=lambda n: (both[number, n], -n))
            links[number, peer] = links[peer, number] = 1
            free[number] -= 1
            free[peer] -= 1
    return links


def cross_connects(testbed: Testbed, links: Iterable[Link], name: str) -> Plan:
    """The plan that closes `links`, two circuits each, and nothing else on any switch.

    The switches that no link crosses are named, too: what they hold is to go. Raises
    `NoLightPathError` for a link without fibers, `PlanError` where a port is used twice.
    """
    circuits: dict[str, list[Circuit]] = {switch: [] for switch in testbed.optical_switches}
    for link in links:
        for switch, both in testbed.cabling.circuits_for_link(link.a, link.b).circuits.items():
            circuits[switch] += both
    return Plan(name, {switch: frozenset(made) for switch, made in circuits.items()})


def plan_testbed(
    testbed: Testbed,
    demand: npt.ArrayLike,
    name: str,
    current: Plan | None = None,
    failures: Failures | None = None,
) -> Plan:
    """The plan of a testbed with one circuit switch for `demand`, its servers in file order.

    Of the circuits of `current` those stay that fit; what failed is left out. Raises what
    `Region.of`, `Region.without` and `plan_region` do.
    """
    current_links = () if current is None else testbed.links(current)
    region = Region.of(testbed).without(failures or Failures())
    return cross_connects(testbed, plan_region(region, demand, current_links), name)
