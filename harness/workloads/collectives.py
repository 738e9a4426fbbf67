"""Collectives as steps of messages, and the time of those that have their links to themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lightrig.harness.workloads.graph import Pattern, WorkloadError

ALGORITHMS = ("ring", "halving-doubling", "tree", "direct", "hierarchical")


@dataclass(frozen=True, slots=True)
class Timing:
    """What a message costs beyond its bytes, in nanoseconds and bytes a nanosecond.

    latency: of a link. endpoint: of a message, at its ends. memory: of a device, of which a
    reduction reads twice and writes once. splits: parts that a collective is cut into, done one
    after another. holding: latencies for which a link stays taken after a message's last byte.
    """

    latency: float = 500.0
    endpoint: float = 0.0
    memory: float = 0.0
    splits: int = 1
    holding: float = 0.0
    reads: int = 3

    def reduction(self, amount: int) -> int:
        """Return the nanoseconds of adding a message to what a member has."""
        return self.reads * int(amount / self.memory) if self.memory else 0


class Step(NamedTuple):
    """Messages between positions in a group that start together: (source, target, bytes) of each.

    `times`: how often the step is done in a row. `reduces`: what arrives is added to something.
    """

    messages: tuple[tuple[int, int, int], ...]
    times: int = 1
    reduces: bool = False


def ring_nanoseconds(
    pattern: Pattern, members: int, amount: int, bandwidth: float, timing: Timing
) -> int:
    """Return the time of a collective in a ring of equal links, whose members start together.

    A step that gathers passes a message on as soon as the link is free, a step that reduces after
    the addition, so the two differ. `bandwidth` in bytes a nanosecond.
    """
    if members < 2:
        return 0
    gathered = int(amount / timing.splits)
    latency, endpoint, steps = timing.latency, timing.endpoint, members - 1
    gathering = max(timing.holding * latency, latency)
    if pattern is Pattern.ALL_GATHER:
        sent = int(gathered / bandwidth)
        whole = timing.splits * steps * (sent + gathering) - (gathering - latency) + endpoint
        return int(whole)
    part = int(gathered / members)
    sent = int(part / bandwidth)
    reducing = sent + latency + endpoint + timing.reduction(part)
    if pattern is Pattern.REDUCE_SCATTER:
        return int(timing.splits * steps * reducing)
    if pattern is Pattern.ALL_REDUCE:
        return int(timing.splits * steps * (reducing + sent + gathering))
    if pattern is Pattern.ALL_TO_ALL:  # each part is passed on to its target
        return int(timing.splits * (steps * members / 2 * sent + steps * (latency + endpoint)))
    return int(timing.splits * (int(gathered / bandwidth) + steps * (latency + endpoint)))


def switched_exchange_nanoseconds(
    members: int, amount: int, bandwidth: float, timing: Timing
) -> int:
    """Return the time of an all-to-all whose members each send their parts one after another.

    Each has one link to a switch that is in nobody's way; `bandwidth` in bytes a nanosecond.
    """
    if members < 2:
        return 0
    sent = int(amount / members * (members - 1) / bandwidth)
    return int(sent + timing.latency + timing.endpoint)


def steps(
    pattern: Pattern,
    algorithm: str,
    members: int,
    amount: int,
    *,
    server: int = 0,
    amounts: Sequence[Sequence[int]] | None = None,
) -> tuple[Step, ...]:
    """Return the messages of a collective.

    `amount` is what each member puts in, in bytes. `server`: members of a server, for hierarchical.
    `amounts`: bytes from each member to each other, of an all-to-all whose parts differ.
    Raises `WorkloadError` for an algorithm that has no such collective.
    """
    if members < 2 or (not amount and amounts is None):
        return ()
    if pattern is Pattern.ALL_TO_ALL:
        return _all_to_all(members, amount, amounts)
    match algorithm:
        case "ring":
            return _ring(pattern, tuple(range(members)), amount)
        case "halving-doubling" if members & (members - 1) == 0:
            return _halving_doubling(pattern, members, amount)
        case "tree" if pattern in {Pattern.ALL_REDUCE, Pattern.BROADCAST}:
            return _tree(pattern, members, amount)
        case "direct":
            return _direct(pattern, members, amount)
        case "hierarchical" if pattern is Pattern.ALL_REDUCE and server and members % server == 0:
            return _hierarchical(members, server, amount)
    raise WorkloadError(
        f"{algorithm} makes no {pattern.name.lower().replace('_', '-')} of {members} members"
    )


def _ring(pattern: Pattern, order: tuple[int, ...], amount: int) -> tuple[Step, ...]:
    count = len(order)
    part = amount if pattern in {Pattern.ALL_GATHER, Pattern.BROADCAST} else amount // count
    neighbours = tuple((one, order[(at + 1) % count], part) for at, one in enumerate(order))
    if pattern is Pattern.BROADCAST:
        return tuple(Step((pair,)) for pair in neighbours[:-1])
    reducing, gathering = Step(neighbours, count - 1, True), Step(neighbours, count - 1)
    match pattern:
        case Pattern.ALL_GATHER:
            return (gathering,)
        case Pattern.REDUCE_SCATTER:
            return (reducing,)
    return (reducing, gathering)


def _halving_doubling(pattern: Pattern, members: int, amount: int) -> tuple[Step, ...]:
    """Neighbours halve first: the largest messages go to the nearest (Rabenseifner 2004)."""
    whole = amount * members if pattern is Pattern.ALL_GATHER else amount
    halving, distance = [], 1
    while distance < members:
        part = whole // (2 * distance)
        pairs = tuple((one, one ^ distance, part) for one in range(members))
        halving.append(Step(pairs, 1, True))
        distance *= 2
    doubling = [step._replace(reduces=False) for step in reversed(halving)]
    match pattern:
        case Pattern.ALL_GATHER | Pattern.BROADCAST:
            return tuple(doubling)
        case Pattern.REDUCE_SCATTER:
            return tuple(halving)
    return (*halving, *doubling)


def _tree(pattern: Pattern, members: int, amount: int) -> tuple[Step, ...]:
    """Member 0 is the root of a binomial tree."""
    outwards, distance = [], 1
    while distance < members:
        pairs = ((one, one + distance, amount) for one in range(min(distance, members - distance)))
        outwards.append(Step(tuple(pairs)))
        distance *= 2
    if pattern is Pattern.BROADCAST:
        return tuple(outwards)
    inwards = tuple(
        Step(tuple((target, source, amount) for source, target, _ in step.messages), 1, True)
        for step in reversed(outwards)
    )
    return (*inwards, *outwards)


def _direct(pattern: Pattern, members: int, amount: int) -> tuple[Step, ...]:
    part = amount if pattern in {Pattern.ALL_GATHER, Pattern.BROADCAST} else amount // members
    sources = range(1 if pattern is Pattern.BROADCAST else members)
    pairs = tuple((one, two, part) for one in sources for two in range(members) if one != two)
    match pattern:
        case Pattern.REDUCE_SCATTER:
            return (Step(pairs, 1, True),)
        case Pattern.ALL_REDUCE:
            return (Step(pairs, 1, True), Step(pairs))
    return (Step(pairs),)


def _all_to_all(
    members: int, amount: int, amounts: Sequence[Sequence[int]] | None
) -> tuple[Step, ...]:
    part = amount // members
    pairs = (
        (one, two, part if amounts is None else amounts[one][two])
        for one in range(members)
        for two in range(members)
        if one != two
    )
    return (Step(tuple(pair for pair in pairs if pair[2])),)


def _hierarchical(members: int, server: int, amount: int) -> tuple[Step, ...]:
    """Reduce-scatter in each server, all-reduce of equal positions between them, all-gather."""
    servers = range(0, members, server)
    inside = [_ring(Pattern.REDUCE_SCATTER, tuple(range(s, s + server)), amount) for s in servers]
    across = [
        _ring(Pattern.ALL_REDUCE, tuple(range(at, members, server)), amount // server)
        for at in range(server)
    ]
    reduce_scatter = _together(inside)
    gather = tuple(step._replace(reduces=False) for step in reduce_scatter)
    return (*reduce_scatter, *_together(across), *gather)


def _together(parts: list[tuple[Step, ...]]) -> tuple[Step, ...]:
    return tuple(
        Step(tuple(m for step in each for m in step.messages), each[0].times, each[0].reduces)
        for each in zip(*parts, strict=True)
    )
