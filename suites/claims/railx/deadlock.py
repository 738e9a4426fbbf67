"""Whether packets can wait for each other in a circle: channel dependency graphs.

Routing is free of deadlock if no cycle of channels exists in which a packet that occupies one may
wait for the next (Dally and Towles, 2004). The graphs here are of `Routes` tables, of a mesh under
turn rules, of a torus, and of non-minimal routes that raise the channel (RailX, section 4.1), those
that the flit simulator chooses on the way among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise, product
from typing import Literal, NamedTuple, TypeAlias

from lightrig.harness.systems.railx.planning.physical import Dimension, RailxError
from lightrig.suites.claims.railx.flit_network import FlitNetwork
from lightrig.suites.claims.railx.minimal_routing import Routes

Channel: TypeAlias = tuple[int, int, int]
"""A chip, its port and the virtual channel."""

MeshRule: TypeAlias = Literal["dimension-order", "north-last", "any"]
_STEPS = {"east": (1, 0), "west": (-1, 0), "south": (0, 1), "north": (0, -1)}


def free_of_deadlock(dependencies: Iterable[Sequence[object]]) -> bool:
    """Whether the graph of `dependencies`, pairs of channels, has no cycle."""
    import networkx as nx  # loads slowly, and few commands need it

    graph = nx.DiGraph()
    graph.add_edges_from(dependencies)
    return bool(nx.is_directed_acyclic_graph(graph))


def routes_free_of_deadlock(routes: Routes) -> bool:
    """Whether all paths of `routes` together are free of deadlock."""
    return free_of_deadlock(routes.dependencies().tolist())


def adaptive_dependencies(network: FlitNetwork) -> list[tuple[Channel, Channel]]:
    """Return what waits for what where nodes' exits are chosen on the way, whichever are chosen.

    A channel is a chip, its port and the virtual channel. Raises `RailxError` for a network without
    such choices.
    """
    if network.adaptive is None:
        raise RailxError("routes of this network are tables: see `compared_networks.dependencies`")
    place, ports = network.adaptive.place, network.peers.shape[1]
    found: dict[tuple[Channel, Channel], None] = {}
    for sink in range(network.chips):
        seen: set[tuple[int, int, int, Channel | None]] = set()
        # Chip, channel, chosen exit (-1: none yet), and the channel that a packet has.
        edge: list[tuple[int, int, int, Channel | None]] = [
            (chip, 0, -1, None) for chip in range(network.chips)
        ]
        while edge:
            state = edge.pop()
            chip, channel, leave, before = state
            if chip == sink or state in seen:
                continue
            seen.add(state)
            within = bool((place[chip] == place[sink]).all())
            if not within and leave < 0:
                choices = _exits(network, chip, channel, sink)
                edge += [(chip, channel, choice, before) for choice in choices]
                continue
            if not within and leave // ports == chip:
                port, following, leave = leave % ports, channel + 1, -1
            else:
                port, following = network.port[chip, sink if within else leave // ports], channel
            now = chip, int(port), following
            if before is not None:
                found[before, now] = None
            edge.append((int(network.peers[chip, port]), following, leave, now))
    return list(found)


def _exits(network: FlitNetwork, chip: int, channel: int, sink: int) -> Iterable[int]:
    """Yield the exits that a packet which has entered a node may choose, detours among them."""
    assert network.adaptive is not None
    (column, row), (to_column, to_row) = network.adaptive.place[[chip, sink]].tolist()
    for line, leave in enumerate(network.adaptive.exits[chip].tolist()):
        along_x = line < network.adaptive.columns
        after = (line, row) if along_x else (column, line - network.adaptive.columns)
        wrong = column != to_column if along_x else row != to_row
        left = (after[0] != to_column) + (after[1] != to_row)
        if leave >= 0 and wrong and channel + 1 + left < network.channels:
            yield leave


def mesh_dependencies(side: int, rule: MeshRule) -> list[tuple[object, object]]:
    """Return the dependencies on one channel of a mesh under a rule for turns.

    Dimension order goes along x first; north-last may do anything but turn after going north.
    Turns back are never taken.
    """
    links = {
        (x, y, name): (x + dx, y + dy)
        for x, y in product(range(side), repeat=2)
        for name, (dx, dy) in _STEPS.items()
        if 0 <= x + dx < side and 0 <= y + dy < side
    }
    return [
        (link, (*there, name))
        for link, there in links.items()
        for name in _STEPS
        if (*there, name) in links and _may_turn(link[2], name, rule)
    ]


def _may_turn(before: str, after: str, rule: MeshRule) -> bool:
    back = tuple(-step for step in _STEPS[before]) == _STEPS[after]
    if before == after or back:
        return not back
    if rule == "any":
        return True
    if rule == "north-last":
        return before != "north"
    return before in ("east", "west")


def torus_dependencies(side: int, channels: int) -> list[tuple[object, object]]:
    """Return the dependencies of XY routing on a torus with one or two channels.

    With two, a packet starts on channel 0 and changes to 1 where it crosses the wrap-around link of
    a ring (a dateline); each dimension starts anew.
    """
    if channels not in (1, 2):
        raise RailxError(f"found {channels} channels, expected 1, or 2 with a dateline")
    nodes = [(x, y) for x in range(side) for y in range(side)]
    pairs: dict[tuple[object, object], None] = {}
    for source, sink in product(nodes, repeat=2):
        pairs.update(dict.fromkeys(_path_pairs(source, sink, side, channels)))
    return list(pairs)


def _path_pairs(
    source: tuple[int, int], sink: tuple[int, int], side: int, channels: int
) -> Iterable[tuple[object, object]]:
    here, taken = list(source), []
    for axis in (0, 1):
        away = (sink[axis] - here[axis]) % side
        step = 1 if away <= side // 2 else -1
        channel = 0
        while here[axis] != sink[axis]:
            following = (here[axis] + step) % side
            wraps = (here[axis], following) in ((side - 1, 0), (0, side - 1))
            taken.append((*here, axis, step, channel))
            if wraps and channels == 2:
                channel = 1
                taken[-1] = (*here, axis, step, channel)
            here[axis] = following
    return pairwise(taken)


class Hop(NamedTuple):
    """An optical hop of a non-minimal route: the node it leads to, by which rail.

    along: whether it is one of several hops along its rail's ring within a torus network.
    """

    node: tuple[int, int]
    dimension: Dimension
    rail: int
    along: bool = False


def raised_channels(hops: Sequence[Hop]) -> list[int]:
    """Return the channel after each hop where every node hop raises it (section 4.1.2).

    As many channels as the longest route has nodes are needed: hops plus one.
    """
    return list(range(1, len(hops) + 1))


def torus_network_channels(hops: Sequence[Hop]) -> list[int]:
    """Return the channel that each hop uses where torus hops in XY order do not raise it.

    Within one channel a packet may go along X-rails and then along Y-rails. A hop that is not part
    of such a passage (`along` is false), or one along X after Y, raises the channel first. With a
    such free hops, a + 1 channels are needed, if one is enough for a torus (bubble flow control).
    """
    channels = []
    channel, after_y = 0, False
    for hop in hops:
        turns_back = hop.along and hop.dimension == "x" and after_y
        if not hop.along or turns_back:
            channel += 1
            after_y = False
        if hop.along and hop.dimension == "y":
            after_y = True
        channels.append(channel)
    return channels
