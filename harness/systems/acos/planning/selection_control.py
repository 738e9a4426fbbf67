"""Decentralised topology selection as a state machine, explored exhaustively (§4.4).

Each server switches at the boundary of a collective, waits until the links to its neighbours are
lit, then runs. A link is lit where both of its ends have selected its topology. Light does not
number collectives: a server that has been away to another topology and back finds the link to a
late neighbour lit, though that one is a collective behind and will darken it. So the collective
library has to exchange the number of the collective as well (`numbered`). Servers move in any
order, one at a time, so a late server is one that the order leaves for last.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

Phase: TypeAlias = Literal["switching", "waiting", "running", "finished"]
Groups: TypeAlias = Mapping[str, Sequence[Sequence[int]]]


class Server(NamedTuple):
    """Place in its program, phase, and the topology that its switches have selected."""

    step: int
    phase: Phase
    selected: str | None


@dataclass
class Exploration:
    """All states that can be reached.

    Attributes:
        states: how many.
        blocked: sets of servers that cannot go on in a state from which nothing moves.
        mismatches: states in which neighbours run different collectives over a lit link.
        skew: greatest difference of two servers' places in the program.
        reconfigurations: of each server that finishes.
    """

    states: int = 0
    blocked: set[frozenset[int]] = field(default_factory=set)
    mismatches: int = 0
    skew: int = 0
    reconfigurations: dict[int, int] = field(default_factory=dict)


def explore(
    groups: Groups,
    programs: Sequence[Sequence[str]],
    *,
    dead_from: Mapping[int, int] | None = None,
    numbered: bool = True,
) -> Exploration:
    """Visit every state of servers that run `programs`, lists of topologies.

    groups: members of each collective, by topology. dead_from: step from which a server does
    nothing more. numbered: whether neighbours compare the numbers of their collectives before
    they start, or trust the light alone.
    """
    dead = dead_from or {}
    start = tuple(Server(0, "switching", None) for _ in programs)
    known, waiting = {start}, [start]
    found = Exploration()
    while waiting:
        state = waiting.pop()
        found.states += 1
        _inspect(state, groups, programs, found)
        moved = False
        for index in range(len(programs)):
            for after in _moves(state, index, groups, programs, dead, numbered):
                moved = True
                if after not in known:
                    known.add(after)
                    waiting.append(after)
        if not moved:
            stuck = frozenset(w for w, server in enumerate(state) if server.phase != "finished")
            found.blocked |= {stuck} if stuck else set()
    for index, program in enumerate(programs):
        changes = sum(a != b for a, b in pairwise(program))
        found.reconfigurations[index] = changes + bool(program)
    return found


def _moves(
    state: tuple[Server, ...],
    index: int,
    groups: Groups,
    programs: Sequence[Sequence[str]],
    dead: Mapping[int, int],
    numbered: bool,
) -> list[tuple[Server, ...]]:
    server, program = state[index], programs[index]
    if server.phase == "finished" or server.step >= dead.get(index, len(program) + 1):
        return []
    if server.step == len(program):
        return [_with(state, index, server._replace(phase="finished"))]
    topology = program[server.step]
    members = next(group for group in groups[topology] if index in group)
    if server.phase == "switching":
        return [_with(state, index, Server(server.step, "waiting", topology))]
    if server.phase == "waiting":
        near = [state[partner] for partner in _neighbours(members, index)]
        lit = all(partner.selected == topology for partner in near)
        same = all(partner.phase != "switching" and partner.step == server.step for partner in near)
        if lit and (same or not numbered):
            return [_with(state, index, server._replace(phase="running"))]
        return []
    partners = [state[partner] for partner in members if partner != index]
    # A collective is complete when every member has started it, or is beyond it.
    if any(_progress(partner) < 2 * server.step + 1 for partner in partners):
        return []
    return [_with(state, index, Server(server.step + 1, "switching", server.selected))]


def _progress(server: Server) -> int:
    return 2 * server.step + (server.phase == "running")


def _neighbours(members: Sequence[int], index: int) -> set[int]:
    place, count = members.index(index), len(members)
    return {members[(place - 1) % count], members[(place + 1) % count]} - {index}


def _inspect(
    state: tuple[Server, ...], groups: Groups, programs: Sequence[Sequence[str]], found: Exploration
) -> None:
    steps = [server.step for server in state]
    found.skew = max(found.skew, max(steps) - min(steps))
    for index, server in enumerate(state):
        if server.phase != "running":
            continue
        members = next(g for g in groups[programs[index][server.step]] if index in g)
        for near in _neighbours(members, index):
            partner = state[near]
            if partner.phase == "running" and partner.selected == server.selected:
                found.mismatches += partner.step != server.step


def _with(state: tuple[Server, ...], index: int, server: Server) -> tuple[Server, ...]:
    return (*state[:index], server, *state[index + 1 :])


def start_times(
    groups: Groups,
    programs: Sequence[Sequence[str]],
    compute_ns: Sequence[Sequence[int]],
    delay_ns: int,
    *,
    barrier: bool = False,
) -> list[list[int]]:
    """Time when each server starts each collective, in ns, collectives themselves taking no time.

    compute_ns: of each server before each collective. delay_ns: of its switches. A server waits
    for its neighbours, with `barrier` for all servers; members end together.
    """
    count, steps = len(programs), len(programs[0])
    free = [0] * count
    starts: list[list[int]] = [[] for _ in programs]
    for step in range(steps):
        topologies = [program[step] for program in programs]
        ready = []
        for index in range(count):
            changes = step == 0 or programs[index][step - 1] != topologies[index]
            ready.append(free[index] + compute_ns[index][step] + delay_ns * changes)
        for index in range(count):
            members = next(g for g in groups[topologies[index]] if index in g)
            free[index] = max(ready) if barrier else max(ready[m] for m in members)
            starts[index].append(free[index])
    return starts
