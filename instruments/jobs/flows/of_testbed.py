"""The network of a testbed's servers, GPUs and NIC ports, from the links that are up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lightrig.instruments.jobs.flows.network import Edge, Network, duplex
from lightrig.instruments.jobs.flows.routing import NoRouteError, Router
from lightrig.testbeds.errors import LightrigError
from lightrig.testbeds.model import ServerSpec, SwitchSpec, Testbed, UnknownNameError
from lightrig.testbeds.plans import Link, Plan, Port


class RanksError(LightrigError, ValueError):
    """Ranks that a testbed cannot place, or that are not connected as required."""


@dataclass(frozen=True, slots=True)
class Inside:
    """Rates and latencies inside servers, and of fibers. The defaults are guesses.

    Attributes:
        memory_bps: from a GPU, or a server's memory, to the GPUs and NICs, per direction: the
            rate of PCIe 4.0 x16.
        nic_latency_ns: from memory through a NIC to the fiber, or back.
        switch_latency_ns: through a packet switch.
        fiber_latency_ns: from port to port; 5 ns per metre.
    """

    memory_bps: float = 252e9
    nic_latency_ns: float = 700.0
    switch_latency_ns: float = 600.0
    fiber_latency_ns: float = 100.0


INSIDE = Inside()

_NO_RATE = 10**15
"""Rate in bit/s of a packet switch without a stated one: never the bottleneck."""


def network_of(
    testbed: Testbed, up: Iterable[Link], *, forwarding: bool = False, inside: Inside = INSIDE
) -> Network:
    """Return the network of a testbed's servers over the links `up`.

    Vertices are servers ("server0", its memory), GPUs ("server0.gpu1"), NIC ports
    ("server0.nic0.p1") and packet switches with their ports ("tor", "tor.1"), and two more within
    each server. Each direction of a link has the rate of its slower end.

    Args:
        testbed: the testbed.
        up: the links that carry traffic, including those to packet switches.
        forwarding: whether servers forward packets.
        inside: properties that the testbed file does not have.
    """
    edges: list[Edge] = []
    for server in testbed.servers.values():
        edges += _server(server, forwarding, inside)
    for switch in testbed.switches.values():
        if switch.kind == "packet":
            edges += _packet_switch(switch, inside)
    for link in sorted(up):
        rate = link_rate_bps(testbed, link)
        edges += duplex(str(link.a), str(link.b), rate, inside.fiber_latency_ns)
    ends = (place for server in testbed.servers.values() for place in _places(server))
    return Network(tuple(edges), frozenset(ends))


def _places(server: ServerSpec) -> list[str]:
    """Return the ends of traffic in a server: its memory and its GPUs."""
    return [server.name, *(f"{server.name}.gpu{index}" for index in range(server.gpus.count))]


def _server(server: ServerSpec, forwarding: bool, inside: Inside) -> Iterable[Edge]:
    # Two vertices, one per direction: traffic that comes in goes out again only if the server
    # forwards.
    out, into = f"{server.name} out", f"{server.name} in"
    places = _places(server)
    for place in places:
        yield Edge(place, out, inside.memory_bps)
        yield Edge(into, place, inside.memory_bps)
    yield Edge(out, into, inside.memory_bps * len(places))
    total = 0.0
    for nic in server.nics.values():
        for port in nic.ports:
            total += nic.rate_bps
            yield Edge(out, str(port.port), nic.rate_bps, inside.nic_latency_ns)
            yield Edge(str(port.port), into, nic.rate_bps, inside.nic_latency_ns)
    if forwarding and total:
        yield Edge(into, out, total)


def _packet_switch(switch: SwitchSpec, inside: Inside) -> Iterable[Edge]:
    # Ports are joined directly: the switching fabric is not a bottleneck.
    for number in switch.ingress_ports:
        port = f"{switch.name}.{number}"
        yield from duplex(
            port, switch.name, switch.rate_bps or _NO_RATE, inside.switch_latency_ns / 2
        )


def fabric_links(testbed: Testbed, plan: Plan) -> tuple[Link, ...]:
    """Return the links of `plan`, including those to packet switches and those without circuit.

    Their ends are ports of NICs and of packet switches.
    """
    optical = testbed.optical_switches.keys()
    ends = testbed.servers.keys() | testbed.switches.keys() - optical
    onward = {
        Port(switch, str(circuit.ingress)): Port(switch, str(circuit.egress))
        for switch, circuits in plan.circuits.items()
        for circuit in circuits
    }
    heard_by: dict[Port, Port] = {}
    for fiber in testbed.fibers:
        end: Port | None = fiber.sink
        # No port has two fibers or circuits, so the path has no cycle.
        while end is not None and end.owner in optical:
            out = onward.get(end)
            following = testbed.cabling.fiber_from(out) if out else None
            end = following.sink if following else None
        if end is not None and {fiber.source.owner, end.owner} <= ends:
            heard_by[fiber.source] = end
    return tuple(sorted({Link(a, b) for a, b in heard_by.items() if heard_by.get(b) == a}))


def link_rate_bps(testbed: Testbed, link: Link) -> int:
    """Return the rate of the slower end of `link`, in bit/s; raises `UnknownNameError`."""
    return min(_port_rate_bps(testbed, port) for port in (link.a, link.b))


def _port_rate_bps(testbed: Testbed, port: Port) -> int:
    switch = testbed.switches.get(port.owner)
    if switch is not None:
        return switch.rate_bps or _NO_RATE
    return testbed.nic_of(port)[1].rate_bps


def rank_vertices(testbed: Testbed, ranks: Sequence[str]) -> tuple[str, ...]:
    """Return the vertex of each rank by its server: the GPUs in order, without GPUs its memory.

    Raises `RanksError` if a server has more ranks than GPUs, `UnknownNameError` if it is not in
    the testbed.
    """
    seen: Counter[str] = Counter()
    vertices = []
    for name in ranks:
        server = testbed.servers.get(name)
        if server is None:
            raise UnknownNameError(f"testbed {testbed.name} has no server {name!r}")
        if seen[name] >= max(server.gpus.count, 1):
            raise RanksError(
                f"{name} has room for {max(server.gpus.count, 1)} ranks, not for "
                f"{ranks.count(name)}: it has {server.gpus.count} GPUs"
            )
        vertices.append(f"{name}.gpu{seen[name]}" if server.gpus.count else name)
        seen[name] += 1
    return tuple(vertices)


def explicit_route(hops: Sequence[tuple[Port, Port]], up: Iterable[Link]) -> tuple[str, ...]:
    """Return the vertices of a route from server to server over pairs of NIC ports, sender first.

    The ports of a pair have a link in `up`, or each has one to the same packet switch. Servers
    in between forward. Raises `RanksError` if a pair has neither.
    """
    ends = {here: there for link in up for here, there in ((link.a, link.b), (link.b, link.a))}
    vertices = [hops[0][0].owner]
    for number, (a, b) in enumerate(hops):
        if number:
            vertices.append(f"{a.owner} in")
        vertices += [f"{a.owner} out", str(a)]
        into, out = ends.get(a), ends.get(b)
        if into != b:
            if into is None or out is None or into.owner != out.owner:
                raise RanksError(f"no link leads from {a} to {b}, and no packet switch")
            vertices += [str(into), into.owner, str(out)]
        vertices.append(str(b))
    last = hops[-1][1].owner
    return (*vertices, f"{last} in", last)


def joined_servers(testbed: Testbed, up: Iterable[Link]) -> tuple[tuple[str, ...], ...]:
    """Return groups of servers that links `up` connect, in the file's order.

    A server without a link to another one is in no group; packet switches do not count.
    """
    import networkx as nx  # loads slowly, and most runs look for no groups

    pairs = ((link.a.owner, link.b.owner) for link in up)
    graph = nx.Graph(pair for pair in pairs if testbed.servers.keys() >= set(pair))
    order = {name: index for index, name in enumerate(testbed.servers)}
    groups = (
        tuple(sorted(group, key=order.__getitem__)) for group in nx.connected_components(graph)
    )
    return tuple(sorted((g for g in groups if len(g) > 1), key=lambda group: order[group[0]]))


def unjoined(ranks: Sequence[str], up: Iterable[Link]) -> tuple[tuple[str, str], ...]:
    """Return the neighbours in a ring of `ranks` that no link connects directly."""
    pairs = {frozenset((link.a.owner, link.b.owner)) for link in up}
    following = [*ranks[1:], ranks[0]]
    return tuple(
        (a, b)
        for a, b in zip(ranks, following, strict=True)
        if a != b and frozenset((a, b)) not in pairs
    )


def slowest_rate_bps(testbed: Testbed, ranks: Sequence[str], up: Iterable[Link]) -> float:
    """Return the lowest rate between neighbours in a ring of `ranks`, in bit/s.

    Routes have the fewest hops; parallel links count together; servers and packet switches
    forward between servers without a link. Raises `RanksError` without a route.
    """
    links = tuple(up)
    inside = Inside(memory_bps=_NO_RATE)
    router = Router(network_of(testbed, links, forwarding=True, inside=inside))
    rates = []
    for a, b in zip(ranks, [*ranks[1:], ranks[0]], strict=True):
        if a == b:
            continue
        try:
            route = router.route(a, b)
        except NoRouteError as error:
            missing = ", ".join(f"{one} to {next_one}" for one, next_one in unjoined(ranks, links))
            raise RanksError(f"no ring among {', '.join(ranks)}: no link from {missing}") from error
        rates.append(float((router.network.capacities[route.edges] / route.shares).min()))
    if not rates:
        raise RanksError(f"no ring among {', '.join(ranks)}: one server alone")
    return min(rates)
