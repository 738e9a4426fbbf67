"""Infer failed components from NIC carrier states; ports with light take precedence."""

from collections.abc import Iterable, Set

from lightrig.harness.systems.mixnet.planning.region import Failures, Region
from lightrig.testbeds import Link, Port


def diagnose(
    region: Region, up: Iterable[Link], dark: Set[Port], missing: Set[Port] = frozenset()
) -> Failures:
    """Return the failures of a region in which the links `up` should have carriers.

    A port that its server does not have any more failed, and a server without any port failed
    as a whole. What else is dark at the other end of these is their doing. A link that is dark
    without such a reason failed itself. A dark port at the packet switch failed, whichever end
    did.

    dark: the NIC ports that have no carrier. gone: those that their server has no more.
    """
    dead = frozenset(
        server.name
        for server in region.servers
        if server.ports and all(port in missing for port in server.ports)
    )
    known = {port for server in region.servers for port in server.ports}
    links, nics = set[Link](), {port for port in missing if port.owner not in dead}
    for link in up:
        ends = {link.a, link.b}
        if ends & dark and not ends & missing:
            if ends <= known:
                links.add(link)
            else:
                nics |= ends & dark
    return Failures(servers=dead, nics=frozenset(nics), links=frozenset(links))
