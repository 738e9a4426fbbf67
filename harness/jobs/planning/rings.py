"""Rings through the servers of a fabric, from the links that there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from lightrig.testbeds import LightrigError, Link

if TYPE_CHECKING:
    import networkx as nx


SEARCH_STEPS = 100_000
"""Of `ring_order`, about 0.1 s; one step adds a server to the path or takes one back."""


class BrokenRingError(LightrigError):
    """The links are no ring through all servers.

    Attributes:
        gaps: pairs of servers between which a link is missing; one link each would close a ring
            where the links are pieces of one.
    """

    def __init__(self, problem: str, gaps: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(problem)
        self.gaps = tuple(gaps)


def ring_order(servers: Sequence[str], links: Iterable[Link]) -> tuple[str, ...]:
    """The servers in an order in which each has a link to the next, and the last to the first.

    It begins with the first of `servers`, and where there is a choice goes to the one that
    stands first there. Two servers are a ring if they have a link. Finding a ring is a search
    without a known fast way (Hamiltonian cycle): it ends after `SEARCH_STEPS` steps.

    Raises `BrokenRingError`, which names the links that are missing, or says that the search
    ended without an answer.
    """
    graph = _graph(servers, links)
    if len(servers) < 2:
        raise BrokenRingError(f"a ring needs two servers, found {', '.join(servers) or 'none'}")
    if not _may_have_ring(graph):
        raise _broken(graph)
    path = _search(graph, servers)
    if path is None:
        raise _broken(graph)
    return path


def _graph(servers: Sequence[str], links: Iterable[Link]) -> nx.Graph:
    import networkx as nx  # loads slowly, and most runs look for no ring

    graph = nx.Graph()
    graph.add_nodes_from(servers)
    for link in links:
        if link.a.owner != link.b.owner and {link.a.owner, link.b.owner} <= set(servers):
            graph.add_edge(link.a.owner, link.b.owner)
    return graph


def _may_have_ring(graph: nx.Graph) -> bool:
    """Whether the links pass what every ring needs: no server whose loss parts the others."""
    import networkx as nx

    # Connected, and without such a server: so each of three or more has two neighbours.
    return bool(nx.is_biconnected(graph))


def _search(graph: nx.Graph, servers: Sequence[str]) -> tuple[str, ...] | None:
    """Return the first ring by depth first; None if there is none."""
    place = {server: number for number, server in enumerate(servers)}
    near = {server: sorted(graph[server], key=place.__getitem__) for server in servers}
    path, on_path = [servers[0]], {servers[0]}
    choices = [iter(near[servers[0]])]
    for _ in range(SEARCH_STEPS):
        if len(path) == len(servers) and graph.has_edge(path[-1], path[0]):
            return tuple(path)
        following = next((server for server in choices[-1] if server not in on_path), None)
        if following is not None:
            path.append(following)
            on_path.add(following)
            choices.append(iter(near[following]))
            continue
        choices.pop()
        on_path.discard(path.pop())
        if not path:
            return None
    raise BrokenRingError(
        f"no ring through all {len(servers)} servers was found in {SEARCH_STEPS:,} steps, and it "
        "was not looked for further; there may be one"
    )


def _broken(graph: nx.Graph) -> BrokenRingError:
    """Return the error that names the missing links, where the links are pieces of a ring."""
    import networkx as nx

    pieces = [_chain(graph, part) for part in nx.connected_components(graph)]
    if not all(pieces):
        return BrokenRingError("the links are no ring through all servers, and no pieces of one")
    chains = sorted(piece for piece in pieces if piece)
    gaps = [
        (before[-1], after[0])
        for before, after in zip(chains, [*chains[1:], chains[0]], strict=True)
    ]
    listed = ", ".join(f"{a} and {b}" for a, b in gaps)
    return BrokenRingError(f"the ring is broken: no link between {listed}", gaps)


def _chain(graph: nx.Graph, part: set[str]) -> list[str] | None:
    """The servers of one piece from end to end; None if it is no chain."""
    import networkx as nx

    ends = sorted(server for server in part if graph.degree(server) < 2)
    if not ends or any(graph.degree(server) > 2 for server in part):
        return None
    return list(nx.dfs_preorder_nodes(graph, ends[0]))
