"""Whether flows lose rate while others run, and the least sets of flows that do: pure decisions.

A flow's shares are its rates beside others by its rates alone, in rounds that take turns. Its
median share lies below a bound if so many of the shares do that a fair coin would do it in
`_ERROR` of all cases, over all looks (sign test; the error is divided among the looks).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, TypeVar

LEAST: Final = 0.9
"""Share of its rate alone below which a flow loses by others."""

LOOKS: Final = (6, 9, 12)
"""Rounds after which it is decided; after the last it is undecided."""

_ERROR: Final = 0.05
_MOST_SHRUNK: Final = 16
"""Flows of a set from which none is taken to make it smaller: each takes a load of its own."""

F = TypeVar("F")


class Loss(Enum):
    """Whether a flow's share lies below `LEAST`."""

    LOSES = "loses"
    HOLDS = "holds"
    UNDECIDED = "undecided"


def judged(shares: Sequence[float], looks: Sequence[int] = LOOKS) -> Loss:
    """Return what the shares of a flow show, at a look or between two."""
    below = sum(share < LEAST for share in shares)
    least = _ERROR / len(looks)
    if _tail(below, len(shares)) <= least:
        return Loss.LOSES
    return Loss.HOLDS if _tail(len(shares) - below, len(shares)) <= least else Loss.UNDECIDED


def _tail(successes: int, trials: int) -> float:
    """Return the probability that a fair coin shows as many successes or more."""
    found = sum(math.comb(trials, each) for each in range(successes, trials + 1))
    return float(found / 2**trials)


@dataclass(frozen=True, slots=True)
class LosingSet(Generic[F]):
    """Flows that lose when they run at once.

    shared: what the testbed's file says they share; empty where it says nothing.
    confirmed: whether they lose without further flows beside them.
    """

    flows: tuple[F, ...]
    shared: str = ""
    confirmed: bool = True


@dataclass(frozen=True, slots=True)
class SharedLimits(Generic[F]):
    """What loses when all flows of a plan run at once.

    sets: the least sets that were found. beside: flows that lose too, beside those of the sets
    alone. alike: whether all flows lose and no smaller set does:
    all of them share a limit, or the bench cannot carry them. undecided: flows of which nothing
    can be said.
    """

    sets: tuple[LosingSet[F], ...] = ()
    beside: tuple[F, ...] = ()
    alike: bool = False
    undecided: tuple[F, ...] = ()


def find_shared_limits(
    flows: Sequence[F],
    groups: Mapping[str, Collection[F]],
    run: Callable[[Sequence[F]], Mapping[F, Loss]],
) -> SharedLimits[F]:
    """Return the least sets of flows that lose when they run at once.

    Groups of flows that share something are tried before others, the smallest first; a set that
    the file says nothing of is made smaller by one flow at a time.

    flows: all of a plan. groups: flows by what they share. run: loads flows, alone in turns with
    all at once, and returns what becomes of each.
    """
    first = run(flows)
    undecided = tuple(flow for flow in flows if first[flow] is Loss.UNDECIDED)
    lost = [flow for flow in flows if first[flow] is Loss.LOSES]
    if not lost:
        return SharedLimits(undecided=undecided)
    search = _Search(groups, run)
    sets = list(search.by_groups(flows, lost))
    rest = [flow for flow in lost if all(flow not in one.flows for one in sets)]
    if len(lost) == len(flows):
        return SharedLimits(tuple(sets), alike=bool(rest), undecided=undecided)
    while rest:
        found = search.least(rest)
        if sets and not found.confirmed:
            break
        sets.append(found)
        rest = [flow for flow in rest if flow not in found.flows]
    return SharedLimits(tuple(sets), tuple(rest), undecided=undecided)


class _Search(Generic[F]):
    def __init__(
        self,
        groups: Mapping[str, Collection[F]],
        run: Callable[[Sequence[F]], Mapping[F, Loss]],
    ) -> None:
        self._groups, self._run = groups, run

    def by_groups(self, flows: Sequence[F], lost: Collection[F]) -> Iterator[LosingSet[F]]:
        """Yield the smallest groups that lose, none of which holds flows of an earlier one.

        A group of which a flow holds its rate shares something else.
        """
        named: dict[tuple[F, ...], str] = {}
        for name, members in self._groups.items():
            inside = tuple(flow for flow in flows if flow in members)
            if 2 <= len(inside) < len(flows) and all(flow in lost for flow in inside):
                named.setdefault(inside, name)
        found: set[F] = set()
        for group, name in sorted(named.items(), key=lambda item: len(item[0])):
            if found.isdisjoint(group) and len(self._losing(group)) == len(group):
                found.update(group)
                yield LosingSet(group, name)

    def least(self, lost: Sequence[F]) -> LosingSet[F]:
        """Return a set of which none can be taken away; unconfirmed where `lost` holds alone."""
        members = self._losing(lost)
        if len(members) < 2:
            return LosingSet(tuple(lost), confirmed=False)
        for flow in members if len(members) <= _MOST_SHRUNK else ():
            fewer = [one for one in members if one != flow]
            if flow in members and len(fewer) > 1 and len(losing := self._losing(fewer)) > 1:
                members = losing
        return LosingSet(tuple(members))

    def _losing(self, flows: Sequence[F]) -> list[F]:
        """Return the flows that lose when these run at once, and nothing else."""
        found = self._run(flows) if len(flows) > 1 else {}
        return [flow for flow in flows if found.get(flow) is Loss.LOSES]
