"""Links that one rank selects for a kind of communication at a time: a state machine.

It decides for each rank by itself, from what that rank wants, has running and has selected: the
order is that in which operations are wanted, and a change waits until nothing runs any more. The
simulator and the servers of a system whose ranks select go by it; what a change takes, and which
light shows that neighbours have selected the same, is theirs.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

Due: TypeAlias = Literal["start", "select", "nothing"]


@dataclass(frozen=True, slots=True)
class LinkSelection:
    """State of one rank's links; each method returns the next one.

    Attributes:
        selected: the kind that the links are selected for; None before the first selection.
        selecting: whether a change to the kind of the first operation that waits is under way.
        running: operations that have started and have not ended.
        waiting: operations that have not started, each with its kind, in the order of their wishes.
    """

    selected: Hashable | None = None
    selecting: bool = False
    running: frozenset[Hashable] = frozenset()
    waiting: tuple[tuple[Hashable, Hashable], ...] = ()

    @property
    def due(self) -> Due:
        """What comes next: the first operation that waits starts, or its kind is selected."""
        if not self.waiting or self.selecting:
            return "nothing"
        if self.waiting[0][1] == self.selected:
            return "start"
        return "nothing" if self.running else "select"

    def wants(self, operation: Hashable, kind: Hashable) -> LinkSelection:
        """An operation is wanted, behind those that wait."""
        return replace(self, waiting=(*self.waiting, (operation, kind)))

    def begin(self) -> LinkSelection:
        """The change that is due begins; until it is over the links are of no kind."""
        assert self.due == "select"
        return replace(self, selected=None, selecting=True)

    def over(self, *, failed: bool = False) -> LinkSelection:
        """The change is over; one that has failed is due again for the next operation."""
        assert self.selecting
        return replace(self, selected=None if failed else self.waiting[0][1], selecting=False)

    def start(self) -> LinkSelection:
        """The first operation that waits starts."""
        assert self.due == "start"
        (operation, _), *waiting = self.waiting
        return replace(self, running=self.running | {operation}, waiting=tuple(waiting))

    def refuse(self) -> LinkSelection:
        """The first operation that waits will not start."""
        return replace(self, waiting=self.waiting[1:])

    def end(self, operation: Hashable) -> LinkSelection:
        """An operation has ended; one that was refused may be told to, too."""
        return replace(self, running=self.running - {operation})
