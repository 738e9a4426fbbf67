"""Requests that a controller has not answered, and the groups that are complete."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

from lightrig.harness.systems.opus.planning.messages import TopoWrite
from lightrig.harness.systems.opus.planning.operations import CommunicationGroup


@dataclass(frozen=True, slots=True)
class Barrier:
    """A communication group's operation, and who has asked for it: one line of the CTR table."""

    group: str
    index: int
    asked: tuple[TopoWrite, ...]


class PendingAsks(Set[TopoWrite]):
    """At most one request of each rank; never changed, so that states of a controller share it.

    What groups are complete is known with each request that comes or goes, so that a message
    costs the same in a job of any size, but for copying the requests.
    """

    __slots__ = ("_by_rank", "_complete", "_groups")

    def __init__(
        self, groups: Mapping[str, CommunicationGroup], asks: Iterable[TopoWrite] = ()
    ) -> None:
        self._groups = groups
        self._by_rank: dict[int, TopoWrite] = {}
        self._complete: dict[tuple[str, int], Barrier] = {}
        for ask in asks:
            self._add(ask)

    def __contains__(self, ask: object) -> bool:
        return isinstance(ask, TopoWrite) and self._by_rank.get(ask.rank) == ask

    def __iter__(self) -> Iterator[TopoWrite]:
        return iter(self._by_rank.values())

    def __len__(self) -> int:
        return len(self._by_rank)

    def __hash__(self) -> int:
        return hash(frozenset(self._by_rank.values()))

    def __repr__(self) -> str:
        return f"PendingAsks({list(self)!r})"

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> frozenset[Any]:
        return frozenset(it)

    def of(self, rank: int) -> TopoWrite | None:
        """Return the request of a rank."""
        return self._by_rank.get(rank)

    def ready(self) -> list[Barrier]:
        """Return the operations that all ranks of their group have asked for, in order."""
        return [self._complete[key] for key in sorted(self._complete)]

    def with_ask(self, ask: TopoWrite) -> PendingAsks:
        """Return these with a request, in place of an earlier one of its rank."""
        changed = self._copy()
        changed._remove(ask.rank)  # noqa: SLF001 - of its own class
        changed._add(ask)  # noqa: SLF001
        return changed

    def without(self, ranks: Collection[int]) -> PendingAsks:
        """Return these without the requests of some ranks."""
        changed = self._copy()
        for rank in ranks:
            changed._remove(rank)  # noqa: SLF001 - of its own class
        return changed

    def _copy(self) -> PendingAsks:
        copied = PendingAsks(self._groups)
        copied._by_rank, copied._complete = self._by_rank.copy(), self._complete.copy()
        return copied

    def _add(self, ask: TopoWrite) -> None:
        self._by_rank[ask.rank] = ask
        ranks = sorted(self._groups[ask.group].ranks)
        asked = tuple(found for rank in ranks if (found := self._by_rank.get(rank)))
        same = [each for each in asked if (each.group, each.index) == (ask.group, ask.index)]
        if len(same) == len(ranks):
            self._complete[ask.group, ask.index] = Barrier(ask.group, ask.index, asked)

    def _remove(self, rank: int) -> None:
        ask = self._by_rank.pop(rank, None)
        if ask is not None:
            self._complete.pop((ask.group, ask.index), None)
